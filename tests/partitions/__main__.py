"""`python -m tests.partitions --rate 10000 --seconds 600 --nodes 100`: the figures of a large cluster, as JSON."""

import argparse
import json
import time

from tests.partitions.load import LoadShape
from tests.partitions.run import simulate_partitions


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.partitions", description=__doc__)
    parser.add_argument("--rate", type=int, default=10_000, help="jobs a second")
    parser.add_argument("--seconds", type=int, default=600, help="of virtual time")
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--latency", type=float, default=0.02, help="seconds of each request")
    parser.add_argument("--store-queue", action="store_true", help="without a queue in front of the store")
    given = parser.parse_args()
    began = time.process_time()
    shape = LoadShape(rate=given.rate, seconds=given.seconds, creators=max(1, min(20, given.rate // 100)))
    found = simulate_partitions(shape, nodes=given.nodes, latency=given.latency, queue=not given.store_queue)
    found["cpu_seconds"] = round(time.process_time() - began, 1)
    found["cpu_microseconds_a_job"] = round(found["cpu_seconds"] / max(found["jobs"], 1) * 1e6)
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
