"""A cluster under load on tables whose partitions throttle, at a small size; `make acceptance` has the large one."""

from tests.partitions.load import LoadShape
from tests.partitions.run import simulate_partitions


def test_a_cluster_spreads_its_writes_and_starts_on_time() -> None:
    shape = LoadShape(rate=200, seconds=4, herd_every=2, creators=2, owners=5)
    found = simulate_partitions(shape, nodes=4, latency=0.02, queue=True)
    assert found["started"] == found["jobs"] == shape.jobs
    assert (found["lost"], found["doubled"], found["early"]) == (0, 0, 0)
    assert found["states"] == {"succeeded": shape.jobs}
    assert found["lateness_ms"]["p99"] <= 500
    assert all(seconds < 1 for seconds in found["longest_burst_seconds"].values()), found["longest_burst_seconds"]
    assert not found["throttled"]
