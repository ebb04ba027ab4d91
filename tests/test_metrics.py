"""The figures of a node, as Prometheus reads them."""

from datetime import UTC, datetime, timedelta

from prometheus_client.parser import text_string_to_metric_families

from horae.core.model import Node, NodeId, State
from horae.metrics import LATENESS_BUCKETS, Metrics


def samples(metrics: Metrics, family: str) -> dict[str, float]:
    """The samples of a family by name, and by their label if they have one."""
    families = {found.name: found for found in text_string_to_metric_families(metrics.text().decode())}
    return {
        " ".join((sample.name, *sample.labels.values())).strip(): sample.value for sample in families[family].samples
    }


def test_lateness_is_a_histogram_with_every_bound_and_early_starts_count_as_punctual() -> None:
    metrics = Metrics()
    for milliseconds in (-1, 1, 3, 7_200_000):
        metrics.started(timedelta(milliseconds=milliseconds))
    found = samples(metrics, "horae_lateness_seconds")
    assert found["horae_lateness_seconds_bucket 0.001"] == 2, "a bound belongs to its bucket"
    assert found["horae_lateness_seconds_bucket 0.002"] == 2
    assert found["horae_lateness_seconds_bucket 0.005"] == 3
    assert found["horae_lateness_seconds_bucket 3600.0"] == 3
    assert found["horae_lateness_seconds_bucket +Inf"] == found["horae_lateness_seconds_count"] == 4
    assert found["horae_lateness_seconds_sum"] == 7200.004
    assert len(found) == len(LATENESS_BUCKETS) + 3


def test_ends_are_counted_by_state() -> None:
    metrics = Metrics()
    metrics.ended(State.SUCCEEDED, 3)
    metrics.ended(State.FAILED)
    found = samples(metrics, "horae_runs")
    assert (found["horae_runs_total succeeded"], found["horae_runs_total failed"]) == (3, 1)


def test_the_clocks_of_nodes_are_told_while_they_live() -> None:
    metrics, now = Metrics(), datetime(2026, 11, 15, tzinfo=UTC)
    nodes = [
        Node(
            id=NodeId(f"{hours}"),
            name=f"host:{hours}",
            roles=("worker",),
            version="1",
            started_at=now,
            beat_at=now,
            wall_ahead=timedelta(hours=hours),
        )
        for hours in (0, 1)
    ]
    family = "horae_node_wall_clock_offset_seconds"
    metrics.nodes(nodes)
    assert samples(metrics, family) == {f"{family} host:0": 0.0, f"{family} host:1": 3600.0}
    metrics.nodes(nodes[:1])
    assert samples(metrics, family) == {f"{family} host:0": 0.0}
