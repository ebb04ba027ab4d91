"""What a load asked of partitions, and whether that is what they can take."""

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from tests.dynamodb_memory.partitions import SLICES
from tests.partitions.dynamodb import DynamoBackend
from tests.partitions.load import Lateness

PLANNED = 700.0  # write units a second that a partition is planned for


def longest_burst(backend: DynamoBackend, planned: float = PLANNED) -> dict[str, float]:
    """For how many seconds in a row a partition of each table or index was written more than planned."""
    longest: dict[str, float] = {}
    for (place, _), slices in backend.partitions.hottest(planned).items():
        run = best = 1
        for before, after in pairwise(slices):
            run = run + 1 if after == before + 1 else 1
            best = max(best, run)
        longest[place] = max(longest.get(place, 0.0), best / SLICES)
    return longest


def figures(backend: DynamoBackend, lateness: Lateness) -> dict[str, Any]:
    """All figures of a load."""
    jobs, partitions = max(lateness.created, 1), backend.partitions
    by_verb: Counter[str] = Counter()
    for client in backend.clients:
        by_verb.update({verb: tally.write_units for verb, tally in client.counters.by_verb().items()})
    return {
        "jobs": lateness.created,
        "started": lateness.started,
        "lost": lateness.lost,
        "doubled": lateness.doubled,
        "early": lateness.early,
        "states": dict(backend.ended),
        "lateness_ms": {
            "p50": lateness.percentile(0.5),
            "p99": lateness.percentile(0.99),
            "max": round(lateness.largest * 1000),
        },
        "write_units_a_job": round(sum(partitions.total.values()) / jobs, 3),
        "read_units_a_job": round(sum(partitions.total_reads.values()) / jobs, 3),
        "requests_a_job": round(sum(backend.server.requests.values()) / jobs, 3),
        "writes_of": {place: round(units / jobs, 3) for place, units in partitions.total.items()},
        "reads_of": {place: round(units / jobs, 3) for place, units in partitions.total_reads.items()},
        "requests_of": {action: round(count / jobs, 3) for action, count in backend.server.requests.items()},
        "write_units_of_verbs": {verb: round(units / jobs, 3) for verb, units in by_verb.most_common(8)},
        "hottest_write_units_a_second": _most(partitions.most(partitions.writes)),
        "hottest_read_units_a_second": _most(partitions.most(partitions.reads)),
        "longest_burst_seconds": longest_burst(backend),
        "throttled": dict(partitions.throttled),
    }


def _most(units: Mapping[str, float]) -> dict[str, int]:
    return {place: round(each) for place, each in sorted(units.items(), key=lambda item: -item[1])[:8]}
