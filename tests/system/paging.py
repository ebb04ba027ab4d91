"""Checks of paging through very many runs while new ones arrive."""

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

from tests.system.cluster import Cluster

ALLOWED = 1.5
NOISE_SECONDS = 0.005
TURNS = 30  # pages at each end


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """All items of a list, and the cursors of its pages."""

    ids: list[str]
    cursors: list[str]


def walk(cluster: Cluster, path: str, limit: int) -> Walk:
    """Read every page of a list."""
    found = Walk(ids=[], cursors=[])
    page = cluster.rest.get(path, limit=limit)
    while True:
        found.ids.extend(item["id"] for item in page["items"])
        if page["next_cursor"] is None:
            return found
        found.cursors.append(page["next_cursor"])
        page = cluster.rest.get(path, limit=limit, cursor=page["next_cursor"])


def check_paging(cluster: Cluster, *, runs: int, limit: int, timed: bool = True) -> str:
    """Check that each run comes once while new ones arrive, and that late pages take no longer."""
    before = set(walk(cluster, "/v1/runs", 1000).ids)
    assert len(before) >= runs
    with _Arrivals(cluster) as arrivals:
        found = walk(cluster, "/v1/runs", limit)
        first, last = _ends(cluster, "/v1/runs", limit, found.cursors) if timed else (0.0, 0.0)
    assert arrivals.made > 0, "nothing arrived meanwhile"
    assert len(found.ids) == len(set(found.ids)), "a run came twice"
    missing = before - set(found.ids)
    assert not missing, f"{len(missing)} runs were left out, among them {sorted(missing)[:3]}"
    figures = f"{len(found.ids)} runs, {len(found.cursors)} pages: {first * 1e3:.1f} → {last * 1e3:.1f} ms a page"
    assert last <= ALLOWED * first + NOISE_SECONDS, figures
    return f"{figures}, {arrivals.made} new ones meanwhile"


def _ends(cluster: Cluster, path: str, limit: int, cursors: Sequence[str]) -> tuple[float, float]:
    """Time pages at the beginning and at the end in turn, so that both see the same load of the machine."""
    taken: tuple[list[float], list[float]] = ([], [])
    for early, late in zip(cursors[:TURNS], cursors[-TURNS - 1 : -1], strict=True):
        for cursor, seconds in zip((early, late), taken, strict=True):
            began = time.perf_counter()
            page = cluster.rest.get(path, limit=limit, cursor=cursor)
            seconds.append(time.perf_counter() - began)
            assert len(page["items"]) == limit
    return statistics.median(taken[0]), statistics.median(taken[1])


class _Arrivals:
    """New jobs during the walk: due now, and due long before and after all others."""

    def __init__(self, cluster: Cluster) -> None:
        self.made = 0
        self._cluster = cluster
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._make)

    def __enter__(self) -> "_Arrivals":
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()

    def _make(self) -> None:
        whens = ("now", "2098-01-01T00:00:00Z", "2020-01-01T00:00:00Z")
        jobs = [{"task": "demo.echo", "schedule": when} for when in whens]
        while not self._over.is_set():
            self._cluster.at_once(lambda cluster: cluster.rest.create_many(jobs))
            self.made += len(jobs)
            self._over.wait(0.05)
