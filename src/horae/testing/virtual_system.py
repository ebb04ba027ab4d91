"""An application on the real engine, in virtual time."""

import asyncio
import random
import tempfile
from collections.abc import Coroutine, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from horae.app import Horae
from horae.core.errors import Invalid
from horae.core.ids import Ids
from horae.core.lifecycle import FINAL
from horae.core.model import JobId, Run, RunId
from horae.jobs.declaring import Declaring, Outcome
from horae.jobs.params import Parameters
from horae.ports.reader import JobFilter, RunFilter
from horae.ports.store import Store
from horae.run_logs import read_log
from horae.sdk.connection import Connection
from horae.stores.sqlite.executor import InlineExecutor
from horae.stores.sqlite.store import SqliteStore
from horae.tasks.builtin import builtin_tasks
from horae.tasks.registry import AnyTask, Registry
from horae.testing.node import VirtualNode
from horae.testing.views import JobView, RunView, job_view, run_view
from horae.testing.virtual_time import VirtualClock, VirtualLoop

START = datetime(2026, 1, 5, 9, 0, tzinfo=UTC)  # a Monday morning
PATIENCE = timedelta(days=366)  # of virtual time that a wait for a result may take
FIRST_LOOK = timedelta(minutes=1)  # for ends that nobody tells of; then less and less often
PAGE = 500

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Submittable(Protocol[T_co]):
    """A task, or what its `using(...)` returns."""

    def submit(self, *args: Any, **kwargs: Any) -> Coroutine[Any, Any, T_co]: ...


class System:
    """A store, a planner and a worker whose time moves when the test says so.

    It starts at `start`, and with the same `seed` everything that is left to chance comes out the same.
    """

    def __init__(self, *, start: datetime = START, seed: int = 0) -> None:
        if start.tzinfo is None:
            raise ValueError("`start` needs a time zone, for example datetime(2026, 1, 5, tzinfo=UTC)")
        self._start = start.astimezone(UTC)
        self._random = random.Random(seed)
        self._engine: _Engine | None = None
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- setting it up

    def use(self, *apps: Horae) -> Self:
        """Run these applications: their tasks, and the schedules that they declare, from now on."""
        if self._engine is not None:
            raise RuntimeError("the system runs already; name all its applications in one call of use()")
        if not apps:
            raise TypeError("use() needs an application: the Horae() that your tasks belong to")
        folder = self._exit.enter_context(tempfile.TemporaryDirectory(prefix="horae-testing-"))
        loop = VirtualLoop()
        loop.start()
        self._exit.callback(loop.end)
        engine = _Engine(apps, Path(folder), loop, VirtualClock(loop, self._start), self._random)
        self._exit.callback(lambda: loop.call(engine.close(), free=True))
        loop.call(engine.open())
        self._engine = engine
        return self

    def close(self) -> None:
        """End everything; the store is gone with it."""
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
        """Let time pass; everything that is due on the way runs at its exact instant, in order."""
        passing = (duration or timedelta()) + timedelta(
            weeks=weeks, days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds
        )
        if passing < timedelta():
            raise ValueError("time does not run backwards")
        engine = self._running
        engine.loop.call(engine.advance(passing))

    def advance_to(self, moment: datetime) -> None:
        """Let time pass until `moment`."""
        if moment.tzinfo is None:
            raise ValueError("the moment needs a time zone, for example datetime(2026, 1, 5, tzinfo=UTC)")
        if moment < self.now:
            raise ValueError(f"time does not run backwards: it is {self.now.isoformat()} already")
        self.advance(moment.astimezone(UTC) - self.now)

    def settle(self) -> None:
        """Run everything that is due now, and what comes of it, while time stands still."""
        self.advance()

    # --- acting

    def submit(self, task: Submittable[T], /, *args: Any, **params: Any) -> T:
        """Submit a task (or `task.using(...)`), from sync and from async tests alike; its handle."""
        return self._running.loop.call(task.submit(*args, **params))

    def crash_worker(self) -> None:
        """Kill the worker as `kill -9` would, and start another: what ran comes back when the death is noticed."""
        engine = self._running
        engine.loop.call(engine.crash(), free=True)

    # --- looking

    def runs(
        self, *, task: AnyTask | str | None = None, job: object | None = None, status: str | None = None
    ) -> list[RunView]:
        """All runs, by due time; `job` is a job's id, or anything that has one: a handle, or what `jobs()` returned."""
        engine = self._running
        views = engine.loop.call(engine.runs(_name_of(task), _job_of(job)))
        return [view for view in views if status in (None, view.status)]

    def run(self, run: object) -> RunView:
        """One run, by its id, its handle, or an earlier look at it."""
        engine = self._running
        return engine.loop.call(engine.run(_run_of(run)))

    def jobs(self, *, task: AnyTask | str | None = None, status: str | None = None) -> list[JobView]:
        """All jobs, in the order of their creation."""
        engine = self._running
        views = engine.loop.call(engine.jobs(_name_of(task)))
        return [view for view in views if status in (None, view.status)]

    def logs(self, run: object) -> str:
        """What the attempts of a run logged, tracebacks among it."""
        engine = self._running
        return engine.loop.call(engine.logs(_run_of(run)))

    @property
    def _running(self) -> "_Engine":
        if self._engine is None:
            raise RuntimeError(
                "no application is named: call system.use(app), or define a fixture `horae_app` that returns it"
            )
        return self._engine


class _Engine:
    """What a system consists of; everything here happens in its event loop."""

    def __init__(
        self, apps: Sequence[Horae], folder: Path, loop: VirtualLoop, clock: VirtualClock, chance: random.Random
    ) -> None:
        self._apps = apps
        self._random = chance
        self._new_id = Ids(random=chance.randbytes, wall=lambda: clock.now().timestamp())
        self.loop = loop
        self.clock = clock
        self._store: Store = SqliteStore(folder / "horae.db", executor=InlineExecutor(durable=False), wall=clock.now)
        self._parameters = Parameters(self._store.blobs)
        self._registry = Registry().with_tasks(*(app.registry for app in apps), builtin_tasks())
        self._ends = _Ends(self._store, clock)
        self._bindings = ExitStack()
        self._node: VirtualNode | None = None
        self._nodes = 0

    async def open(self) -> None:
        await self._store.open()
        self._node = await self._new_node()
        connection = Connection.over(self._store, self.clock, self._registry, new_id=self._new_id, waiter=self._ends)
        for app in self._apps:
            self._bindings.enter_context(app.bind(connection))
            await self._declare(app, connection)

    async def _declare(self, app: Horae, connection: Connection) -> None:
        declaring = Declaring(self._store, self.clock, connection.jobs, owner=app.owner, app=app.name)
        for verdict in await declaring.apply(app.declared):
            if verdict.outcome is Outcome.REFUSED:
                raise Invalid(f"the schedule {verdict.key!r} is refused: {verdict.detail}")

    async def close(self) -> None:
        self._bindings.close()
        if self._node is not None:
            await self._node.stop()
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
            ended=self._ends.look,
        )
        await node.start()
        return node

    async def advance(self, duration: timedelta) -> None:
        await self.loop.move(duration)
        await self._show()

    async def _show(self) -> None:
        """Bring to the store whatever is known, while time stands still."""
        assert self._node is not None
        while await self._node.show():
            await self.loop.rest()
        await self.loop.rest()

    async def crash(self) -> None:
        assert self._node is not None
        await self._node.stop()
        self._node = await self._new_node()
        self._node.look_for_dead()

    async def runs(self, task: str | None, job: JobId | None) -> list[RunView]:
        found: list[RunView] = []
        cursor: str | None = None
        while True:
            page = await self._store.list_runs(RunFilter(task=task, job_id=job), cursor=cursor, limit=PAGE)
            found += await self._views(page.items)
            if (cursor := page.cursor) is None:
                return sorted(found, key=lambda view: (view.due_at, view.id))

    async def run(self, run_id: RunId) -> RunView:
        run = await self._store.run(run_id, owner=None)
        if run is None:
            raise LookupError(f"there is no run_{run_id}")
        [view] = await self._views([run])
        return view

    async def _views(self, runs: Sequence[Run]) -> list[RunView]:
        attempts = await self._store.attempts_of([run.id for run in runs])
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
        await self._show()  # a run that was waited for may have ended a moment ago
        return "".join([piece async for piece in read_log(self._store.blobs, run_id)])


class _Ends:
    """Tells of the end of runs; whoever waits from a test moves time by waiting."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self._store = store
        self._clock = clock
        self._waiting: set[asyncio.Event] = set()

    def look(self) -> None:
        """Some run may have ended."""
        for event in self._waiting:
            event.set()

    async def wait(self, run_id: RunId) -> Run:
        deadline, pause = self._clock.now() + PATIENCE, FIRST_LOOK
        changed = asyncio.Event()
        self._waiting.add(changed)
        try:
            while self._clock.now() < deadline:
                changed.clear()
                run = await self._store.run(run_id, owner=None)
                if run is not None and run.state in FINAL:
                    return run
                await self._clock.wait(changed, self._clock.now() + pause)
                pause = min(2 * pause, timedelta(days=1))
        finally:
            self._waiting.discard(changed)
        raise AssertionError(f"run_{run_id} has not ended after a virtual wait of {PATIENCE.days} days")


def _name_of(task: AnyTask | str | None) -> str | None:
    return task if task is None or isinstance(task, str) else task.name


def _job_of(job: object | None) -> JobId | None:
    return None if job is None else JobId(_id_of(job, "job", "job_id"))


def _run_of(run: object) -> RunId:
    return RunId(_id_of(run, "run", "run_id"))


def _id_of(thing: object, kind: str, attribute: str) -> str:
    text = thing if isinstance(thing, str) else getattr(thing, attribute, None) or getattr(thing, "id", None)
    if not isinstance(text, str) or not text.startswith(f"{kind}_"):
        raise ValueError(f"{thing!r} names no {kind}: use its id ({kind}_…), or something that has one")
    return text.removeprefix(f"{kind}_")
