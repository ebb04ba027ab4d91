"""The metrics of a node in the format of Prometheus; dashboards and alerts rely on their names.

Tenants choose queues and keys, so labels are bounded: what is beyond a maximum is counted under `other`.
"""

import inspect
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cached_property
from itertools import accumulate, groupby
from operator import attrgetter
from typing import Any, TypeVar, cast

from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client import Counter as CounterMetric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from horae.aws_api.counters import process_tallies
from horae.core.decisions.results import Settled
from horae.core.lifecycle import FINAL
from horae.core.model import Node, Run, State, Trigger
from horae.ports.reader import QueueDepth

SOON = timedelta(minutes=5)  # how far `horae_due_soon` looks ahead: long enough for an autoscaler to add workers
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
LATENESS_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 300, 3600)
RUN_BUCKETS = (0.001, 0.005, 0.02, 0.1, 0.5, 1, 2, 5, 10, 30, 60, 300, 1800, 3600, 21600)
STORE_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10)

ROLES = ("api", "planner", "worker")
OTHER = "other"  # the label of what is beyond a maximum
QUEUES_PER_TASK = 20
MOST_RUN_LABELS = 500  # pairs of queue and task
KEYS_PER_OWNER, MOST_KEYS = 50, 1000
MOST_QUEUES = 200

_PLACE = attrgetter("spec.queue", "spec.task")  # of a run: runs are counted in groups of those that are counted alike
_PLACE_OF_RESULT = attrgetter("run.spec.queue", "run.spec.task")

AnyStore = TypeVar("AnyStore")


class Metrics:
    """The metrics of one node, in a registry of its own, so that several nodes can run in one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._runs = _RunMetrics()
        self.registry.register(self._runs)
        self._successes = _LastSuccesses()
        self.registry.register(self._successes)
        self.registry.register(_ServiceRequests())
        self._slots = self._gauge(
            "horae_slots", "Slots of this worker; tasks that wait for others lend theirs.", "state"
        )
        self._nodes = self._gauge("horae_nodes", "Live nodes with each role.", "role")
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
        self._archived_runs = self._counter("horae_archived_runs", "Runs that this node has written to the archive.")
        self._archived_bytes = self._counter("horae_archived_bytes", "Compressed bytes of them.")
        self._archive_failures = self._counter("horae_archive_failures", "Times that the archive or its store failed.")
        self._archive_lag = self._gauge(
            "horae_archive_lag_seconds", "For how long the oldest history has been due to be archived."
        )
        self._store = Histogram(
            "horae_store_seconds",
            "Duration of a call to the store.",
            ["verb"],
            buckets=STORE_BUCKETS,
            registry=self.registry,
        )

    def started(self, runs: Iterable[Run]) -> None:
        """Count the lateness of runs whose first attempts began."""
        for place, alike in groupby(runs, key=_PLACE):
            late = [(run.started_at - run.due_at).total_seconds() for run in alike if run.started_at is not None]
            self._runs.of(*place).lateness.observe([max(seconds, 0.0) for seconds in late])

    def settled(self, results: Iterable[Settled]) -> None:
        """Count the durations of attempts that ended, and the runs that ended with them."""
        for place, group in groupby(results, key=_PLACE_OF_RESULT):
            figures, alike = self._runs.of(*place), list(group)
            lasted = [each.lasted for each in alike]
            figures.duration.observe([duration.total_seconds() for duration in lasted if duration is not None])
            self._end(figures, [each.run for each in alike if each.run.state in FINAL])

    def ended(self, runs: Iterable[Run]) -> None:
        """Count runs that ended without an attempt."""
        for place, alike in groupby(runs, key=_PLACE):
            self._end(self._runs.of(*place), list(alike))

    def _end(self, figures: "_RunFigures", runs: Sequence[Run]) -> None:
        figures.ended.update([run.state for run in runs])
        for run in runs:
            if run.spec.key is not None and run.state is State.SUCCEEDED:
                self._successes.add(run)

    def watch_slots(self, **states: Callable[[], int]) -> None:
        """Read the number of slots in each state whenever metrics are asked for."""
        for state, count in states.items():
            self._slots.labels(state).set_function(count)

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
        roles = Counter(role for node in alive for role in node.roles)
        for role in ROLES:
            self._nodes.labels(role).set(roles[role])
        self._node_walls.clear()
        for node in alive:
            self._node_walls.labels(node.name).set(node.wall_ahead.total_seconds())

    def queues(self, depths: Sequence[QueueDepth], due_soon: Mapping[str, int], now: datetime) -> None:
        """Set the metrics of the deepest queues and of the rest together; those of queues that are gone are removed.

        `due_soon` counts what is due within SOON.
        """
        for gauge in (self._depth, self._oldest, self._due_soon):
            gauge.clear()
        soon = Counter({**dict.fromkeys((queue.queue for queue in depths), 0), **due_soon}).most_common()
        for name, count in soon[:MOST_QUEUES]:
            self._due_soon.labels(name).set(count)
        if soon[MOST_QUEUES:]:
            self._due_soon.labels(OTHER).set(sum(count for _, count in soon[MOST_QUEUES:]))
        deepest = sorted(depths, key=lambda queue: queue.depth, reverse=True)
        for queue in deepest[:MOST_QUEUES]:
            self._depth.labels(queue.queue).set(queue.depth)
            self._oldest.labels(queue.queue).set(_age(queue, now))
        if rest := deepest[MOST_QUEUES:]:
            self._depth.labels(OTHER).set(sum(queue.depth for queue in rest))
            self._oldest.labels(OTHER).set(max(_age(queue, now) for queue in rest))

    def dead_letters(self, count: int) -> None:
        """Set the number of failed runs that are not resolved."""
        self._dead_letters.set(count)

    def archived(self, *, runs: int, size: int) -> None:
        """Count a part that is in the archive."""
        self._archived_runs.inc(runs)
        self._archived_bytes.inc(size)

    def archive_failed(self) -> None:
        """Count a step that the archive did not answer."""
        self._archive_failures.inc()

    def archive_lag(self, lag: timedelta) -> None:
        """Set for how long the oldest history should have been archived."""
        self._archive_lag.set(lag.total_seconds())

    def measured(self, store: AnyStore) -> AnyStore:
        """Return the same store, with the duration of each call observed."""
        return cast(AnyStore, _TimedStore(store, self._store))

    @cached_property
    def tickets(self) -> "TicketMetrics":
        """The metrics of a queue in front of the store, which only nodes with one have."""
        return TicketMetrics(self.registry)

    def text(self) -> bytes:
        """Return all metrics in the format of Prometheus."""
        return generate_latest(self.registry)

    def _counter(self, name: str, documentation: str) -> CounterMetric:
        return CounterMetric(name, documentation, registry=self.registry)

    def _gauge(self, name: str, documentation: str, *labels: str) -> Gauge:
        return Gauge(name, documentation, labels, registry=self.registry)


class TicketMetrics:
    """What this node does with the tickets of a queue in front of the store, and what the queue tells of itself."""

    def __init__(self, registry: CollectorRegistry) -> None:
        counted = CounterMetric(
            "horae_tickets", "Tickets of the queue, by what became of them here.", ["event"], registry=registry
        )
        self.offered = counted.labels("offered").inc  # to the queue
        self.failed = counted.labels("failed").inc  # to be offered, and are offered again
        self.taken = counted.labels("taken").inc
        self.claimed = counted.labels("claimed").inc
        self.void = counted.labels("void").inc  # the run was claimed by another node, or has ended
        self.returned = counted.labels("returned").inc  # to the queue, because the run could not be claimed yet
        self._held = Gauge("horae_tickets_held", "Tickets that this worker has taken.", registry=registry)
        self._in_queue = Gauge("horae_queue_tickets", "Tickets that the queue holds, about.", registry=registry)
        self._refused = Gauge("horae_queue_refused", "Tickets that the queue has set aside.", registry=registry)

    def watch_held(self, count: Callable[[], int]) -> None:
        """Read how many tickets are held whenever metrics are asked for."""
        self._held.set_function(count)

    def queue(self, *, tickets: int, refused: int) -> None:
        """Set what the queue tells of itself."""
        self._in_queue.set(tickets)
        self._refused.set(refused)


def _age(queue: QueueDepth, now: datetime) -> float:
    return 0.0 if queue.oldest_due_at is None else max((now - queue.oldest_due_at).total_seconds(), 0.0)


class _FastHistogram:
    """A histogram at a tenth of the usual cost, for what happens ten thousand times a second; not thread-safe."""

    __slots__ = ("_bounds", "_counts", "_sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)  # of each bucket alone; the last is above all bounds
        self._sum = 0.0

    def observe(self, values: Sequence[float]) -> None:
        bounds, counts = self._bounds, self._counts
        for value in values:
            counts[bisect_left(bounds, value)] += 1
        self._sum += sum(values)

    def add_to(self, family: HistogramMetricFamily, labels: Sequence[str]) -> None:
        """Add the buckets to a family, unless nothing was observed."""
        if any(self._counts):
            bounds = [*(str(float(bound)) for bound in self._bounds), "+Inf"]
            family.add_metric(labels, list(zip(bounds, accumulate(self._counts), strict=True)), self._sum)


class _RunFigures:
    """The figures of the runs of one task in one queue."""

    __slots__ = ("duration", "ended", "lateness")

    def __init__(self) -> None:
        self.lateness = _FastHistogram(LATENESS_BUCKETS)
        self.duration = _FastHistogram(RUN_BUCKETS)
        self.ended: Counter[State] = Counter()


class _RunMetrics(Collector):
    """Lateness, durations and ends of runs by queue and task."""

    def __init__(self) -> None:
        self._figures: dict[tuple[str, str], _RunFigures] = {}  # by queue and task
        self._queues: Counter[str] = Counter()  # how many each task has

    def of(self, queue: str, task: str) -> _RunFigures:
        """Return where runs of a task in a queue are counted."""
        return self._figures.get((queue, task)) or self._bounded(queue, task)

    def _bounded(self, queue: str, task: str) -> _RunFigures:
        if self._queues[task] >= QUEUES_PER_TASK:
            queue = OTHER
        if (queue, task) not in self._figures and len(self._figures) >= MOST_RUN_LABELS:
            queue = task = OTHER
        if (queue, task) not in self._figures:
            self._queues[task] += 1
        return self._figures.setdefault((queue, task), _RunFigures())

    def collect(self) -> Iterator[Metric]:
        labels = ("queue", "task")
        late = "From the due time of a run to the start of its first attempt."
        lateness = HistogramMetricFamily("horae_lateness_seconds", late, labels=labels)
        duration = HistogramMetricFamily("horae_run_seconds", "Duration of an attempt.", labels=labels)
        ended = CounterMetricFamily("horae_runs", "Runs that ended on this node.", labels=("status", *labels))
        for pair, figures in self._figures.items():
            figures.lateness.add_to(lateness, pair)
            figures.duration.add_to(duration, pair)
            for state, count in figures.ended.items():
                ended.add_metric((str(state), *pair), count)
        yield from (lateness, duration, ended)


class _LastSuccesses(Collector):
    """When recurring jobs with a key last succeeded here."""

    def __init__(self) -> None:
        self._owners: dict[str, dict[str, float]] = {}  # by owner and key
        self._keys = 0
        self._other = 0.0

    def add(self, run: Run) -> None:
        """Note a success, unless it is a one-shot's or a backfill's."""
        key, at = run.spec.key, run.finished_at
        if key is None or at is None or run.slot is None or run.trigger is Trigger.BACKFILL:
            return
        known = self._owners.get(run.owner, {})
        if key not in known:
            if len(known) >= KEYS_PER_OWNER or self._keys >= MOST_KEYS:
                self._other = max(self._other, at.timestamp())
                return
            self._keys += 1
            known = self._owners.setdefault(run.owner, known)
        known[key] = max(known.get(key, 0.0), at.timestamp())

    def collect(self) -> Iterator[Metric]:
        family = GaugeMetricFamily(
            "horae_last_success_timestamp_seconds", "When a recurring job with a key last succeeded.", labels=("key",)
        )
        latest: dict[str, float] = {OTHER: self._other} if self._other else {}
        for keys in self._owners.values():
            for key, at in keys.items():
                latest[key] = max(latest.get(key, 0.0), at)
        for key, at in latest.items():
            family.add_metric((key,), at)
        yield family


class _ServiceRequests(Collector):
    """Requests of this process to Amazon's services."""

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "horae_aws_requests", "Requests to DynamoDB and SQS.", labels=("action", "outcome")
        )
        units = CounterMetricFamily("horae_aws_units", "Capacity units that DynamoDB reported.", labels=("kind",))
        read, write = 0.0, 0.0
        for action, tally in process_tallies().items():
            for outcome, count in tally.outcomes().items():
                if count:
                    requests.add_metric((action, outcome), count)
            read, write = read + tally.read_units, write + tally.write_units
        if read or write:
            units.add_metric(("read",), read)
            units.add_metric(("write",), write)
        yield from (requests, units)


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
