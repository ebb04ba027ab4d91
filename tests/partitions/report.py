"""What a load asked of partitions, and whether that is what they can take."""

import itertools
from collections import Counter
from typing import Any

from tests.partitions.dynamodb import DynamoBackend
from tests.partitions.load import Lateness

PLANNED = 700.0  # write units a second that a partition is planned for
BURST = 1  # seconds in a row that may have more


def longest_burst(backend: DynamoBackend, planned: float = PLANNED) -> dict[str, int]:
    """The most seconds in a row in which a partition of each table or index was written more than planned."""
    longest: dict[str, int] = {}
    for (place, _), seconds in backend.partitions.hottest(planned).items():
        run = best = 1
        for before, after in itertools.pairwise(seconds):
            run = run + 1 if after == before + 1 else 1
            best = max(best, run)
        longest[place] = max(longest.get(place, 0), best)
    return longest


def figures(backend: DynamoBackend, lateness: Lateness) -> dict[str, Any]:
    """All figures of a load."""
    jobs, partitions = max(lateness.created, 1), backend.partitions
    hottest: Counter[str] = Counter()
    for (place, _), by_second in partitions.writes.items():
        hottest[place] = max(hottest[place], round(max(by_second.values())))
    read: Counter[str] = Counter()
    for (place, _), by_second in partitions.reads.items():
        read[place] = max(read[place], round(max(by_second.values())))
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
        "hottest_write_units_a_second": dict(hottest.most_common(8)),
        "hottest_read_units_a_second": dict(read.most_common(6)),
        "longest_burst_seconds": longest_burst(backend),
        "throttled": dict(partitions.throttled),
    }
