"""Runs an application on the real engine in virtual time."""

import asyncio
import random
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from horae.app import Horae
from horae.core.errors import Invalid
from horae.core.ids import Ids
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, Run, RunId
from horae.core.records import QueueSettings
from horae.jobs.declared import DeclaredOutcome, DeclaredQueues, DeclaredSchedules
from horae.jobs.params import Parameters
from horae.lookup import find_run
from horae.ports.reader import JobFilter, RunFilter
from horae.ports.store import Store
from horae.run_logs import read_log
from horae.sdk.connection import Connection
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import AnyTask, Registry
from horae.testing.fresh_store import fresh_store
from horae.testing.node import VirtualNode
from horae.testing.views import JobView, RunView, job_view, run_view
from horae.testing.virtual_time import VirtualClock, VirtualLoop

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning
RESULT_TIMEOUT = timedelta(days=366)  # of virtual time
FIRST_POLL = timedelta(minutes=1)  # for ends without a notification; then less and less often
PAGE = 500

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Submittable(Protocol[T_co]):
    """A task, or what its `using(...)` returns."""

    def submit(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, T_co]: ...


class System:
    """A store, a planner and a worker in virtual time, which only the test advances.

    It starts at `start`, and the same `seed` gives the same random choices.
    """

    def __init__(self, *, start: datetime = START, seed: int = 0) -> None:
        if start.tzinfo is None:
            raise ValueError("`start` needs a time zone, for example datetime(2026, 1, 5, tzinfo=UTC)")
        self._start = start.astimezone(UTC)
        self._random = random.Random(seed)
        self._engine: _VirtualEngine | None = None
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- setting it up

    def use(self, *apps: Horae) -> Self:
        """Run the tasks and declared schedules of these applications from now on."""
        if self._engine is not None:
            raise RuntimeError("the system is already running; pass all applications in one call of use()")
        if not apps:
            raise TypeError("use() needs an application: the Horae() of your tasks")
        folder = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="horae-testing-"))
        loop = VirtualLoop()
        loop.start()
        self._exit.callback(loop.end)
        engine = _VirtualEngine(apps, Path(folder), loop, VirtualClock(loop, self._start), self._random)
        self._exit.callback(lambda: loop.call(engine.close(), free=True))
        loop.call(engine.open())
        self._engine = engine
        return self

    def close(self) -> None:
        """Stop everything and delete the store."""
        self._engine = None
        self._exit.close()

    # --- time

    @property
    def now(self) -> datetime:
        """The virtual time."""
        return self._start if self._engine is None else self._engine.clock.now()

    def advance(
        self,
        duration: timedelta | None = None,
        /,
        *,
        weeks: float = 0,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> None:
        """Advance virtual time; everything due on the way runs at its exact instant, in order."""
        passing = (duration or timedelta()) + timedelta(
            weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        if passing < timedelta():
            raise ValueError("time cannot go backwards")
        engine = self._running
        engine.loop.call(engine.advance(passing))

    def advance_to(self, moment: datetime) -> None:
        """Advance virtual time to `moment`."""
        if moment.tzinfo is None:
            raise ValueError("the moment needs a time zone, for example datetime(2026, 1, 5, tzinfo=UTC)")
        if moment < self.now:
            raise ValueError(f"time cannot go backwards: it is already {self.now.isoformat()}")
        self.advance(moment.astimezone(UTC) - self.now)

    def settle(self) -> None:
        """Run everything that is due now and what follows from it, without advancing time."""
        self.advance()

    # --- acting

    def submit(self, task: Submittable[T], /, *args: Any, **params: Any) -> T:
        """Submit a task (or `task.using(...)`) and return its handle; works in sync and async tests."""
        return self._running.loop.call(task.submit(*args, **params))

    def crash_worker(self) -> None:
        """Kill the worker like `kill -9` and start another; its runs start again once it is declared dead."""
        engine = self._running
        engine.loop.call(engine.crash(), free=True)

    # --- looking

    def runs(
        self, *, task: AnyTask | str | None = None, job: object | None = None, status: str | None = None
    ) -> list[RunView]:
        """All runs, by due time; `job` is a job id, a handle or a job view."""
        engine = self._running
        views = engine.loop.call(engine.runs(_name_of(task), _job_of(job)))
        return [view for view in views if status in (None, view.status)]

    def run(self, run: object) -> RunView:
        """One run, by its id, its handle or an earlier view."""
        engine = self._running
        return engine.loop.call(engine.run(_run_of(run)))

    def jobs(self, *, task: AnyTask | str | None = None, status: str | None = None) -> list[JobView]:
        """All jobs, in the order of their creation."""
        engine = self._running
        views = engine.loop.call(engine.jobs(_name_of(task)))
        return [view for view in views if status in (None, view.status)]

    def logs(self, run: object) -> str:
        """The log of a run, with tracebacks."""
        engine = self._running
        return engine.loop.call(engine.logs(_run_of(run)))

    @property
    def _running(self) -> "_VirtualEngine":
        if self._engine is None:
            raise RuntimeError(
                "there is no application: call system.use(app), or define a fixture `horae_app` that returns it"
            )
        return self._engine


class _VirtualEngine:
    """The store and the node of a system; all of its methods run in its event loop."""

    def __init__(
        self, apps: Sequence[Horae], folder: Path, loop: VirtualLoop, clock: VirtualClock, rng: random.Random
    ) -> None:
        self._apps = apps
        self._random = rng
        self._new_id = Ids(random=rng.randbytes, wall=lambda: clock.now().timestamp())
        self.loop = loop
        self.clock = clock
        store = SqliteStore(folder / "horae.db", executor=InlineExecutor(durable=False), wall=clock.now)
        self._store = fresh_store(store, self._write_kept, but=("settle", "start"))  # by which it is written
        self._acts_store = fresh_store(store, self._undo_early_claims, but=("create",))  # which needs no other run
        self._parameters = Parameters(self._store.blobs)
        self._registry = Registry().with_tasks(*(app.registry for app in apps), builtin_tasks())
        self._waiter = _VirtualWaiter(self._acts_store, clock)
        self._bindings = ExitStack()
        self._node: VirtualNode | None = None
        self._nodes = 0
        self._queues_are_limited = False

    async def open(self) -> None:
        await self._store.open()
        connection = Connection.over(
            self._acts_store, self.clock, self._registry, new_id=self._new_id, waiter=self._waiter
        )
        for app in self._apps:
            self._bindings.enter_context(app.bind(connection))
            await app.hooks.start_worker()
        self._node = await self._new_node()
        for app in self._apps:
            await self._declare(app, connection)

    async def _declare(self, app: Horae, connection: Connection) -> None:
        await DeclaredQueues(self._store, self.clock, app=app.name).apply(app.queues)
        declaring = DeclaredSchedules(self._store, self.clock, connection.jobs, owner=app.owner, app=app.name)
        for result in await declaring.apply(app.declared):
            if result.outcome is DeclaredOutcome.REFUSED:
                raise Invalid(f"the schedule {result.key!r} was refused: {result.detail}")

    async def close(self) -> None:
        if self._node is not None:
            await self._node.stop()
            for app in self._apps:
                await app.hooks.stop_worker()
        self._bindings.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self._store.close()

    async def _new_node(self) -> VirtualNode:
        self._nodes += 1
        node = VirtualNode(
            self._store,
            self.clock,
            self.loop,
            self._registry,
            name=f"worker-{self._nodes}",
            new_id=self._new_id,
            random_factor=self._random.random,
            looks_ahead=self._looks_ahead,
            on_settled=self._waiter.notify,
        )
        await node.start()
        return node

    async def advance(self, duration: timedelta) -> None:
        self._queues_are_limited = bool(await self._store.records(QueueSettings))
        await self.loop.advance(duration)
        await self._flush()

    def _looks_ahead(self) -> bool:
        """Whether nobody can tell that runs are claimed early and that results are kept back.

        A queue with a limit counts claimed runs, a test or a task may wait for a result, and runs wait in their gates
        for what a worker that died has left.
        """
        return not self._queues_are_limited and not self._waiter.is_waiting and self._nodes == 1

    async def _write_kept(self) -> None:
        if self._node is not None:
            await self._node.write_kept()

    async def _undo_early_claims(self) -> None:
        """Have the store look as in real time to a task, which may cancel runs."""
        if self._node is not None:
            self._node.give_back_early_claims()
            await self._node.write_kept()

    async def _flush(self) -> None:
        """Write everything to the store without advancing time."""
        assert self._node is not None
        while await self._node.flush():
            await self.loop.settle()
        await self.loop.settle()

    async def crash(self) -> None:
        node, self._node = self._node, None
        assert node is not None
        await node.write_kept()  # a real worker has written what ended before
        await node.stop()
        self._node = await self._new_node()
        self._node.sweep_dead_nodes()

    async def runs(self, task: str | None, job: JobId | None) -> list[RunView]:
        found: list[RunView] = []
        cursor: str | None = None
        while True:
            page = await self._store.list_runs(RunFilter(task=task, job_id=job), cursor=cursor, limit=PAGE)
            found += await self._views(page.items)
            if (cursor := page.cursor) is None:
                return sorted(found, key=lambda view: (view.due_at, view.id))

    async def run(self, run_id: RunId) -> RunView:
        run = await find_run(self._store, run_id, owner=None)
        if run is None:
            raise LookupError(f"there is no run_{run_id}")
        [view] = await self._views([run])
        return view

    async def _views(self, runs: Sequence[Run]) -> list[RunView]:
        attempts = await self._store.attempts([run.id for run in runs])
        now = self.clock.now()
        return [run_view(run, attempts.get(run.id, ()), await self._parameters.of(run.spec), now) for run in runs]

    async def jobs(self, task: str | None) -> list[JobView]:
        found: list[JobView] = []
        cursor: str | None = None
        while True:
            page = await self._store.list_jobs(JobFilter(task=task), cursor=cursor, limit=PAGE)
            found += [job_view(job, await self._parameters.of(job.spec), self.clock.now()) for job in page.items]
            if (cursor := page.cursor) is None:
                return found[::-1]

    async def logs(self, run_id: RunId) -> str:
        await self._flush()  # an awaited run may just have ended
        return "".join([piece async for piece in read_log(self._store.blobs, run_id)])


class _VirtualWaiter:
    """Waits for runs to end in virtual time; a waiting test advances it."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)

    def notify(self) -> None:
        """Check all waits again, because some run may have ended."""
        for event in self._waiting:
            event.set()

    async def wait(self, run_id: RunId) -> Run:
        deadline, pause = self._clock.now() + RESULT_TIMEOUT, FIRST_POLL
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            while self._clock.now() < deadline:
                changed.clear()
                run = await find_run(self._store, run_id, owner=None)
                if run is not None and run.state in FINAL:
                    return run
                await self._clock.wait(changed, self._clock.now() + pause)
                pause = min(2 * pause, timedelta(days=1))
        finally:
            self._waiting.discard(changed)
        raise AssertionError(f"run_{run_id} has not ended after {RESULT_TIMEOUT.days} virtual days")


def _name_of(task: AnyTask | str | None) -> str | None:
    return task if task is None or isinstance(task, str) else task.name


def _job_of(job: object | None) -> JobId | None:
    return None if job is None else JobId(_id_of(job, "job", "job_id"))


def _run_of(run: object) -> RunId:
    return RunId(_id_of(run, "run", "run_id"))


def _id_of(thing: object, kind: str, attribute: str) -> str:
    text = thing if isinstance(thing, str) else getattr(thing, attribute, None) or getattr(thing, "id", None)
    if not isinstance(text, str) or not text.startswith(f"{kind}_"):
        raise ValueError(f"{thing!r} is not a {kind}: pass its id ({kind}_…), or an object that has one")
    return text.removeprefix(f"{kind}_")
