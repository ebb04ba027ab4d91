"""The users of one simulated life: requests that are drawn from the seed, sent to any live host, and recorded."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from horae.api.dispatch.context import Services
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Declared, Draft
from horae.core.errors import HoraeError, NotFound, Unavailable
from horae.core.job_rules import run_status
from horae.core.model import LOCAL, Job, JobId, Misfire, OnFailure, Overlap, Policy, Run, RunId
from horae.core.records import IdempotencyRecord, QueueSettings
from horae.core.schedule.parse import schedule_to_wire
from horae.core.values import replace
from horae.jobs.dead_letters import Selection
from horae.jobs.declared import DeclaredSchedules
from horae.jobs.idempotency import Ask, answer_of, fingerprint
from horae.lookup import find_run
from horae.proof.checking.findings import job_name, run_name
from horae.proof.checking.history.records import Action, Definition
from tests.simulation.reads import LETTERS, read_everything
from tests.simulation.recording import definition_of

if TYPE_CHECKING:
    from tests.simulation.life import Life

T = TypeVar("T")
Act = Callable[[], Coroutine[Any, Any, None]]

OWNER = LOCAL
PATIENCE = 5.0  # seconds that a user waits for an answer
TRIES = 4  # of a request that may be repeated
NARROW = "narrow"  # a queue in which one run at a time is allowed
WORK_SECONDS = (0.0, 0.0, 0.0, 0.05, 0.05, 0.4, 0.4, 1.5, 4.0)  # that a run takes; long ones keep a life long
BATCH = 8  # jobs that are created at once
NEVER = "0 0 1 1 *"  # when declared schedules fire: in no life


@dataclass(frozen=True, slots=True)
class Reply(Generic[T]):
    """How a request ended: answered, refused (without effect), or lost (effect unknown)."""

    answer: T | None = None
    refused: str | None = None
    lost: str | None = None


class Users:
    """Sends all planned requests, each at its time."""

    def __init__(self, life: "Life", seed: int, *, until: float) -> None:
        self._life = life
        self._chance = Random(f"{seed} users")
        self._until = until
        # Few lanes in most lives: each of them makes every claim dearer.
        wide, narrow = ("default", "default", "other", NARROW), ("default", "default", "default", NARROW)
        self._queues = self._chance.choice((("default",), narrow, wide))
        self._priorities = self._chance.choice(((0,), (0,), (0, 0, 0, 5, -5)))
        self._history = life.history
        self._labels = 0
        self._requests = 0
        self._lost_updates: list[tuple[JobId, float, list[Definition]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.recurring: list[JobId] = []  # that were answered
        self.shots: list[JobId] = []
        self.narrow_at: float | None = None  # since when the narrow queue is known to be narrow

    async def act(self) -> None:
        """Send all requests, and return after the last answer."""
        plan = sorted(self._plan(), key=lambda action: action[0])
        for at, action in plan:
            await asyncio.sleep(max(at - self._life.loop.time(), 0))
            task = self._life.loop.create_task(action(), name="request")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _plan(self) -> Iterator[tuple[float, Act]]:
        chance, until = self._chance, self._until
        yield 0.0, self._limit_narrow_queue
        for action, times, begin, end in (
            (self._once, 12, 0.0, until),
            (self._batch, 3, 0.0, until),
            (self._ordered, 2, 0.0, 0.7 * until),
            (self._recurring, 3, 0.0, 0.4 * until),
            (self._cancel_run, 5, 2.0, until),
            (self._cancel_job, 2, 0.4 * until, until),
            (self._run_now, 4, 2.0, until),
            (self._pause, 6, 2.0, until),
            (self._patch, 3, 2.0, until),
            (self._patch_once, 3, 0.5, until),
            (self._backfill, 2, 0.4 * until, until),
            (self._retry, 3, 0.5 * until, until),
            (self._limit_narrow_queue, 2, 0.0, until),
            (self._read, 6, 1.0, until),
            (self._look, 1, 0.2 * until, 0.9 * until),
            (self._declare, 2, 0.0, 0.7 * until),
            (self._declare_nothing, 1, 0.3 * until, until),
        ):
            for _ in range(times):
                yield chance.uniform(begin, end), action

    # --- asking

    async def _ask(self, what: str, request: Callable[[Services], Awaitable[T]]) -> Reply[T]:
        """Send a request to a random live host."""
        up = [(host, host.services) for host in self._life.hosts if host.services is not None and not host.dead]
        if not up:
            return Reply(refused="nobody is up")
        host, services = self._chance.choice(up)
        asking = self._life.loop.spawn(host, _done(request, services), what)
        asking.add_done_callback(_retrieve_exception)
        await asyncio.wait({asking}, timeout=PATIENCE)
        if not asking.done():
            return Reply(lost="no answer")
        error = asking.exception()
        if error is None:
            return Reply(asking.result())
        if isinstance(error, Unavailable):
            return Reply(lost=str(error))
        if isinstance(error, HoraeError):
            return Reply(refused=str(error))
        raise error

    def _ended(self, call: str, reply: Reply[Any], **fields: Any) -> None:
        """Record how a call ended; `fields` are those of its answer."""
        if reply.refused is not None:
            self._history.fail(call, reply.refused)
        elif reply.lost is not None:
            self._history.info(call, reply.lost)
        else:
            self._history.ok(call, **fields)

    async def _call(
        self,
        action: Action,
        request: Callable[[Services], Awaitable[T]],
        *,
        job: JobId | None = None,
        run: RunId | None = None,
        **asked: Any,
    ) -> T | None:
        """Send a request and record it."""
        call = self._history.invoke(action, job=job, run=run, **asked)
        reply = await self._ask(f"{action} {job or run}", request)
        self._ended(call, reply, **self._answer_fields(reply.answer))
        return reply.answer

    def _answer_fields(self, answer: object) -> dict[str, Any]:
        """The fields of an answer about a job or run."""
        match answer:
            case Job(run=None):
                form = schedule_to_wire(answer.schedule)
                return {"job": job_name(answer.id), "owner": answer.owner, "schedule": form}
            case Job(run=Run() as run) | (Run() as run):
                status = run_status(run, self._life.now())
                return {"job": job_name(run.job_id), "run": run_name(run.id), "status": status, "owner": run.owner}
        return {}

    async def _create(self, draft: Draft) -> JobId | None:
        """Create a job, again until it is answered; the record keeps it from being there twice."""
        label = self._label()
        draft = _with(draft, params=json.dumps({**json.loads(draft.params), "label": label}))
        definition = definition_of(draft, label)
        ask = Ask(owner=OWNER, key=label, fingerprint=fingerprint(label.encode()))

        async def request(services: Services) -> Job | JobId:
            records = services.jobs.idempotency
            if (earlier := await records.earlier(ask)) is not None:
                return JobId(earlier)

            async def issue(job: Job) -> IdempotencyRecord:
                return records.of(ask, job.id)

            made = await services.jobs.create_once(draft, owner=OWNER, by=OWNER, issue=issue)
            return JobId(answer_of(made, ask)) if isinstance(made, IdempotencyRecord) else made

        for _ in range(TRIES):
            call = self._history.invoke(Action.CREATE, definition=definition, idempotency_key=label)
            reply = await self._ask(f"create {label}", request)
            made = reply.answer
            job_id = made.id if isinstance(made, Job) else made
            self._ended(call, reply, **(_created(job_id, definition) | self._answer_fields(made)))
            if job_id is not None:
                return job_id
            await asyncio.sleep(self._chance.choice((0.01, 1.0)))
        return None

    def _label(self) -> str:
        self._labels += 1
        return f"job {self._labels}"

    # --- creating

    def _draft(self, schedule: Any, *, longest: float = max(WORK_SECONDS), **changes: Any) -> Draft:
        chance = self._chance
        work = {
            "seconds": chance.choice([seconds for seconds in WORK_SECONDS if seconds <= longest]),
            "fails": chance.choice((0, 0, 0, 0, 1, 2, 9)),
        }
        policy = Policy(
            retry=RetryPolicy(initial=timedelta(seconds=chance.choice((0.5, 1.5)))),
            overlap=chance.choice(list(Overlap)),
            misfire=chance.choice(list(Misfire)),
            catchup=timedelta(seconds=chance.choice((10, 3600))),
            on_failure=chance.choice(list(OnFailure)),
            start_within=chance.choice((None, None, None, timedelta(seconds=2))),
        )
        timeout = chance.choice((None, None, None, timedelta(seconds=1)))
        given: dict[str, Any] = {
            "params": json.dumps(work),
            "policy": policy,
            "max_retries": chance.choice((0, 1, 2)),
            "timeout": timeout,
        }
        given |= {"queue": chance.choice(self._queues), "priority": chance.choice(self._priorities)}
        if changes.get("ordering_key") is None:
            given["policy"] = replace(policy, on_failure=OnFailure.CONTINUE)
        return Draft(task="work", schedule=schedule, **(given | changes))

    def _moment(self, *seconds: float) -> str:
        at = self._life.now() + timedelta(seconds=self._chance.uniform(*seconds))
        return at.isoformat()

    async def _once(self) -> None:
        chance = self._chance
        when = chance.choice(("now", self._moment(0.2, 3.0), self._moment(2.0, 10.0)))
        if job_id := await self._create(self._draft(when, ordering_key=chance.choice((None, None, "a", "b")))):
            self.shots.append(job_id)

    async def _ordered(self) -> None:
        """Create some jobs with one ordering key, one after another."""
        key, at = self._chance.choice(("a", "b", "c")), self._moment(0.0, 2.0)
        for _ in range(3):
            if job_id := await self._create(self._draft(self._chance.choice(("now", at)), ordering_key=key)):
                self.shots.append(job_id)
            await asyncio.sleep(0.005)  # long enough for two hosts to agree which of them came first

    async def _batch(self) -> None:
        await self._create_many(
            [self._draft(self._chance.choice(("now", self._moment(0.5, 6.0)))) for _ in range(BATCH)]
        )

    async def _create_many(self, wanted: Sequence[Draft]) -> bool:
        """Create jobs in one request; return whether it was answered."""
        drafts, calls = [], []
        for draft in wanted:
            label = self._label()
            drafts.append(_with(draft, params=json.dumps({**json.loads(draft.params), "label": label})))
            asked = definition_of(drafts[-1], label)
            calls.append((self._history.invoke(Action.CREATE, definition=asked), asked))
        reply = await self._ask(
            "create many", lambda services: services.jobs.create_many(drafts, owner=OWNER, by=OWNER)
        )
        for (call, asked), made in zip(calls, reply.answer or [None] * len(calls), strict=True):
            if isinstance(made, Unavailable):
                self._history.info(call, str(made))
            elif isinstance(made, HoraeError):
                self._history.fail(call, str(made))
            else:
                self._ended(call, reply, **_created(made, asked))
                self.shots += [] if made is None else [made]
        return reply.answer is not None

    async def _recurring(self) -> None:
        chance = self._chance
        schedule: dict[str, Any] = chance.choice(
            (
                {"type": "every", "seconds": 1},
                {"type": "every", "seconds": 2.5},
                {"type": "every", "seconds": 4, "jitter_seconds": 2},
                {"type": "cron", "expression": "*/3 * * * * *"},
                {"type": "cron", "expression": "*/5 * * * * *", "timezone": "Europe/Berlin"},
            )
        )
        ends_at = self._life.start + timedelta(seconds=self._until)
        # Not the longest work: a line of many such runs would make a life several times as long.
        if job_id := await self._create(self._draft({**schedule, "ends_at": ends_at.isoformat()}, longest=1.5)):
            self.recurring.append(job_id)

    # --- acting on what there is

    def _some(self, jobs: list[JobId]) -> JobId | None:
        return self._chance.choice(jobs) if jobs else None

    async def _cancel_run(self) -> None:
        if (job := self._some(self.shots[-4:])) is not None:
            run = RunId(job)  # of a job that runs once
            await self._call(Action.CANCEL, lambda services: services.jobs.cancel_run(run, owner=OWNER), run=run)

    async def _cancel_job(self) -> None:
        keep = self._chance.random() < 0.3
        if (job := self._some(self.recurring + self.shots[-4:])) is not None:
            await self._call(
                Action.DELETE,
                lambda services: services.jobs.cancel(job, keep_running=keep, owner=OWNER),
                job=job,
                keep_running=keep,
            )

    async def _run_now(self) -> None:
        if (job := self._some(self.recurring + self.shots[-4:])) is not None:
            await self._call(
                Action.TRIGGER, lambda services: services.jobs.run_now(job, None, owner=OWNER, by=OWNER), job=job
            )

    async def _pause(self) -> None:
        if (job := self._some(self.recurring + self.recurring + self.shots[-2:])) is not None:
            await self._call(Action.PAUSE, lambda services: services.jobs.pause(job, owner=OWNER), job=job)
            await asyncio.sleep(self._chance.choice((0.01, 1.0, 4.0)))
            await self.resume(job, self._chance.choice(list(Misfire)))

    async def resume(self, job: JobId, missed: Misfire) -> None:
        await self._call(Action.RESUME, lambda services: services.jobs.resume(job, missed=missed, owner=OWNER), job=job)

    async def _patch(self) -> None:
        await self._patch_some(self.recurring)

    async def _patch_once(self) -> None:
        await self._patch_some(self.shots[-3:])

    async def _patch_some(self, jobs: list[JobId]) -> None:
        moved = self._chance.random() < 0.4
        fresh = self._draft("now")
        written: list[Definition] = []  # what was asked for at last: it depends on what the job was

        async def revise(job: Job) -> Draft:
            schedule: Any = schedule_to_wire(job.schedule)
            if moved and job.run is None:
                ends_at = self._life.start + timedelta(seconds=self._until)
                schedule = {"type": "every", "seconds": 3, "ends_at": ends_at.isoformat()}
            elif moved and job.run is not None:
                schedule = (job.run.due_at + timedelta(seconds=1)).isoformat()
            draft = _with(fresh, schedule=schedule, params=job.spec.params, ordering_key=job.spec.ordering_key)
            written.append(definition_of(draft, json.loads(draft.params)["label"]))
            return draft

        if (job := self._some(jobs)) is None:
            return
        began = self._history.now()
        reply = await self._ask(f"update {job}", lambda services: services.jobs.patch(job, revise, owner=OWNER))
        if reply.answer is not None:
            call = self._history.invoke(Action.UPDATE, job=job, at=began, definition=written[-1])
            self._history.ok(call, **self._answer_fields(reply.answer))
        elif reply.lost is not None:
            self._lost_updates.append((job, began, written))

    def record_lost_updates(self) -> None:
        """Record, at the end of it all, updates without an answer: a host may have thought them out long after."""
        for job, began, written in self._lost_updates:
            if written:
                call = self._history.invoke(Action.UPDATE, job=job, at=began, definition=written[-1])
                self._history.info(call, "no answer")

    async def _backfill(self) -> None:
        now = self._life.now()
        start, end = now - timedelta(seconds=60), now - timedelta(seconds=55)
        if (job := self._some(self.recurring)) is not None:
            await self._call(
                Action.BACKFILL, lambda services: services.jobs.backfill(job, start, end, owner=OWNER), job=job
            )

    async def _retry(self) -> None:
        """Requeue a dead letter, if there is one, and record the answer."""
        reply = await self._ask("letters", lambda services: services.store.list_runs(LETTERS, cursor=None, limit=1))
        for letter in reply.answer.items if reply.answer is not None else ():
            await self._call(
                Action.REQUEUE,
                lambda services, run=letter.id: services.dead_letters.retry(run, None, owner=OWNER, by=OWNER),
                run=letter.id,
            )
        self._requests += 1
        ask = Ask(owner=OWNER, key=f"retry {self._requests}", fingerprint="")
        await self._ask("record", lambda services: services.jobs.idempotency.keep(ask, "done"))

    async def discard_letters(self) -> bool:
        """Discard all dead letters, so that they block no other runs."""
        return (
            await self._call(Action.DISCARD, lambda services: services.dead_letters.discard(Selection(which=LETTERS)))
            is not None
        )

    async def _limit_narrow_queue(self) -> None:
        settings = QueueSettings(queue=NARROW, concurrency=1)
        for _ in range(TRIES):
            reply = await self._ask("set queue", lambda services: services.queues.set(settings))
            if reply.answer is not None:
                self.narrow_at = self._history.now() if self.narrow_at is None else self.narrow_at
                return

    # --- looking

    async def _read(self) -> None:
        if (job := self._some(self.shots)) is not None:
            run = RunId(job)

            async def request(services: Services) -> Run:
                found = await find_run(services.store, run, owner=OWNER)
                if found is None:
                    raise NotFound("run", run)
                return found

            await self._call(Action.READ, request, run=run)

    async def _look(self) -> None:
        await self._ask("look", lambda services: read_everything(services.store, services.clock.now()))

    # --- what code declares

    async def _declare(self) -> None:
        """Declare schedules, as a worker of some version of the code does."""
        draft = Draft(task="work", key="declared", params='{"label": "declared"}', schedule=NEVER)
        draft = _with(draft, priority=self._chance.choice((0, 1)))

        async def request(services: Services) -> object:
            return await _declaring(services).apply([Declared(key="declared", draft=draft)])

        await self._ask("declare", request)

    async def _declare_nothing(self) -> None:
        await self._ask("prune", lambda services: _declaring(services).prune([]))

    # --- the end

    async def create_missing(self, runs: int) -> None:
        """Create more jobs if too many were refused."""
        if runs > 0:
            for _ in range(TRIES):
                if await self._create_many([self._draft("now", longest=0.05) for _ in range(runs)]):
                    return
                await asyncio.sleep(2.0)  # until somebody is up


def _retrieve_exception(asking: "asyncio.Task[Any]") -> None:
    """Retrieve the exception of a request that timed out, so that asyncio does not log it."""
    if not asking.cancelled():
        asking.exception()


async def _done(request: Callable[[Services], Awaitable[T]], services: Services) -> T:
    return await request(services)


def _with(draft: Draft, **changes: Any) -> Draft:
    return replace(draft, **changes)


def _declaring(services: Services) -> DeclaredSchedules:
    return DeclaredSchedules(services.store, services.clock, services.jobs, owner=OWNER, app="simulated")


def _created(job: JobId | None, definition: Definition) -> dict[str, Any]:
    """The ids of a created job; a one-shot has a run with the same id."""
    if job is None:
        return {}
    once = not isinstance(definition.schedule, dict)
    return {"job": job_name(job), "run": run_name(RunId(job)) if once else None}
