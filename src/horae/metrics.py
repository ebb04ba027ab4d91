"""The metrics of a node in the format of Prometheus; dashboards and alerts rely on their names."""

import inspect
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import accumulate
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from horae.core.model import Node, State
from horae.ports.reader import QueueDepth

SOON = timedelta(minutes=5)  # how far `horae_due_soon` looks ahead: long enough for an autoscaler to add workers
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENESS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
STORE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

AnyStore = TypeVar("AnyStore")


class Metrics:
    """The metrics of one node, in a registry of its own, so that several nodes can run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._lateness = _FastHistogram(
            "horae_lateness_seconds",
            "From the due time of a run to the start of its first attempt.",
            buckets=LATENESS_BUCKETS,
        )
        self.registry.register(self._lateness)
        runs = Counter("horae_runs", "Runs that ended on this node.", ["status"], registry=self.registry)
        self._runs = {state: runs.labels(str(state)) for state in State}
        self._depth = self._gauge("horae_queue_depth", "Runs that are due and not started.", "queue")
        self._oldest = self._gauge("horae_oldest_due_age_seconds", "Age of the oldest due run.", "queue")
        self._due_soon = self._gauge(
            "horae_due_soon",
            "Runs, and slots of recurring jobs, that come due within 5 minutes; the first 10,000 at least are counted.",
            "queue",
        )
        self._dead_letters = self._gauge("horae_dead_letters", "Failed runs that are not resolved, up to 10,000.")
        self._planner_lag = self._gauge("horae_planner_lag_seconds", "How late the planner's last round was.")
        self._clock_offset = self._gauge("horae_clock_offset_seconds", "How far this clock was behind the store's.")
        self._wall_offset = self._gauge(
            "horae_wall_clock_offset_seconds", "How far the wall clock of this machine is ahead of the store's."
        )
        self._node_walls = self._gauge(
            "horae_node_wall_clock_offset_seconds",
            "How far the wall clock of each live node's machine is ahead of the store's.",
            "node",
        )
        self._store = Histogram(
            "horae_store_seconds",
            "Duration of a call to the store.",
            ["verb"],
            buckets=STORE_BUCKETS,
            registry=self.registry,
        )

    def started(self, lateness: timedelta) -> None:
        """Count the lateness of a run whose first attempt began."""
        seconds = lateness.total_seconds()
        self._lateness.observe(seconds if seconds > 0 else 0.0)

    def ended(self, state: State, runs: int = 1) -> None:
        """Count runs that ended in a state."""
        self._runs[state].inc(runs)

    def planned(self, lag: timedelta) -> None:
        """Set how much later than planned the planner looked."""
        self._planner_lag.set(lag.total_seconds())

    def synced(self, offset: timedelta) -> None:
        """Set the offset of this node's clock from the store's."""
        self._clock_offset.set(offset.total_seconds())

    def wall_seen(self, offset: timedelta) -> None:
        """Set the offset of this machine's wall clock from the store's."""
        self._wall_offset.set(offset.total_seconds())

    def nodes(self, alive: Sequence[Node]) -> None:
        """Set the metrics of the live nodes; those of others are removed."""
        self._node_walls.clear()
        for node in alive:
            self._node_walls.labels(node.name).set(node.wall_ahead.total_seconds())

    def queues(self, depths: Sequence[QueueDepth], due_soon: Mapping[str, int], now: datetime) -> None:
        """Set the metrics of the queues; those of others are removed. `due_soon` counts what is due within SOON."""
        for gauge in (self._depth, self._oldest, self._due_soon):
            gauge.clear()
        for name in {*due_soon, *(queue.queue for queue in depths)}:
            self._due_soon.labels(name).set(due_soon.get(name, 0))
        for queue in depths:
            age = timedelta() if queue.oldest_due_at is None else max(now - queue.oldest_due_at, timedelta())
            self._depth.labels(queue.queue).set(queue.depth)
            self._oldest.labels(queue.queue).set(age.total_seconds())

    def dead_letters(self, count: int) -> None:
        """Set the number of failed runs that are not resolved."""
        self._dead_letters.set(count)

    def measured(self, store: AnyStore) -> AnyStore:
        """Return the same store, with the duration of each call observed."""
        return cast(AnyStore, _TimedStore(store, self._store))

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)


class _FastHistogram(Collector):
    """A histogram at a tenth of the usual cost, for what happens ten thousand times a second; not thread-safe."""

    def __init__(self, name: str, documentation: str, *, buckets: Sequence[float]) -> None:
        self._name = name
        self._documentation = documentation
        self._buckets = buckets
        self._counts = [0] * (len(buckets) + 1)  # of each bucket alone; the last is above all bounds
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._buckets, value)] += 1
        self._sum += value

    def collect(self) -> Iterator[HistogramMetricFamily]:
        bounds = [*(str(float(bound)) for bound in self._buckets), "+Inf"]
        counts = list(zip(bounds, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._documentation, buckets=counts, sum_value=self._sum)


class _TimedStore:
    """A store whose calls are timed."""

    def __init__(self, store: object, seconds: Histogram) -> None:
        self._store = store
        self._seconds = seconds

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if not inspect.iscoroutinefunction(verb):
            return verb
        seconds = self._seconds.labels(name)

        async def timed(*args: Any, **keywords: Any) -> Any:
            began = time.perf_counter()
            try:
                return await verb(*args, **keywords)
            finally:
                seconds.observe(time.perf_counter() - began)

        setattr(self, name, timed)  # so that the next look-up is direct
        return timed
