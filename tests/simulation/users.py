"""What users do in one simulated life: drawn from its seed, asked of any host that is up, and recorded."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from datetime import timedelta
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from horae.api.context import Services
from horae.core.errors import HoraeError, Unavailable
from horae.core.model import Job, JobId, Misfire, OnFailure, Overlap, Policy, Run, RunId
from horae.core.retry import RetryPolicy
from horae.core.schedule import schedule_to_wire
from horae.core.values import replace
from horae.services.acting import id_of
from horae.services.dead_letters import Selection
from horae.services.drafts import Draft
from horae.services.receipts import Ask, answer_of, fingerprint
from horae.store import QueueSettings, Receipt, RunFilter

if TYPE_CHECKING:
    from tests.simulation.life import Life

T = TypeVar("T")
Act = Callable[[], Coroutine[Any, Any, None]]

OWNER = "local"
PATIENCE = 5.0  # seconds that a user waits for an answer
TRIES = 4  # of a request that may be repeated
NARROW = "narrow"  # a queue in which one run at a time is allowed
LETTERS = RunFilter(dead_letters=True)


class Users:
    """Users with all their wishes, each at its time."""

    def __init__(self, life: "Life", seed: int, *, until: float) -> None:
        self._life = life
        self._chance = Random(f"{seed} users")
        self._until = until
        self._calls = 0
        self._labels = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.recurring: list[JobId] = []  # that were answered
        self.shots: list[JobId] = []

    async def act(self) -> None:
        """Do everything, each at its time; returns when the last answer came."""
        wishes = sorted(self._wishes(), key=lambda wish: wish[0])
        for at, wish in wishes:
            await asyncio.sleep(max(at - self._life.loop.time(), 0))
            task = self._life.loop.create_task(wish(), name="wish")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _wishes(self) -> Iterator[tuple[float, Act]]:
        chance, until = self._chance, self._until
        yield 0.0, self._narrow
        for wish, times, begin, end in (
            (self._once, 20, 0.0, until),
            (self._batch, 1, 0.0, until),
            (self._in_order, 3, 0.0, 0.7 * until),
            (self._again_and_again, 3, 0.0, 0.4 * until),
            (self._cancel_run, 5, 2.0, until),
            (self._cancel_job, 2, 0.4 * until, until),
            (self._run_now, 4, 2.0, until),
            (self._pause, 6, 2.0, until),
            (self._patch, 3, 2.0, until),
            (self._patch_once, 3, 0.5, until),
            (self._backfill, 2, 0.4 * until, until),
            (self._retry, 3, 0.5 * until, until),
            (self._narrow, 2, 0.0, until),
        ):
            for _ in range(times):
                yield chance.uniform(begin, end), wish

    # --- asking

    async def _ask(self, action: str, subject: str, request: Callable[[Services], Awaitable[T]]) -> T | None:
        """The answer of some host; None when it was refused, or none came."""
        recording = self._life.recording
        self._calls += 1
        call = self._calls
        recording.asked(call, action, subject)
        up = [(host, host.services) for host in self._life.hosts if host.services is not None and not host.dead]
        if not up:
            recording.answered(call, "fail", "nobody is up")
            return None
        host, services = self._chance.choice(up)
        asking = self._life.loop.spawn(host, _done(request, services), f"{action} {subject}")
        asking.add_done_callback(_heed)
        await asyncio.wait({asking}, timeout=PATIENCE)
        if not asking.done():
            recording.answered(call, "info", "no answer")
            return None
        error = asking.exception()
        if error is None:
            answer: T = asking.result()
            recording.answered(call, "ok", *_told(answer))
            return answer
        if isinstance(error, Unavailable):
            recording.answered(call, "info", str(error))
        elif isinstance(error, HoraeError):
            recording.answered(call, "fail", str(error))
        else:
            raise error
        return None

    async def _create(self, draft: Draft) -> JobId | None:
        """Create a job, again until it is answered; the receipt keeps it from being there twice."""
        label = self._label()
        params = {**json.loads(draft.params), "label": label}
        draft = _with(draft, params=json.dumps(params))
        ask = Ask(owner=OWNER, key=label, fingerprint=fingerprint(label.encode()))

        async def request(services: Services) -> JobId:
            receipts = services.jobs.receipts
            if (earlier := await receipts.earlier(ask)) is not None:
                return JobId(earlier)

            async def issue(job: Job | Run) -> Receipt:
                return receipts.of(ask, id_of(job))

            made = await services.jobs.create_once(draft, owner=OWNER, by=OWNER, issue=issue)
            return JobId(answer_of(made, ask)) if isinstance(made, Receipt) else id_of(made)

        for _ in range(TRIES):
            job_id = await self._ask("create", label, request)
            if job_id is not None:
                return job_id
            await asyncio.sleep(self._chance.choice((0.01, 1.0)))
        return None

    def _label(self) -> str:
        self._labels += 1
        return f"job {self._labels}"

    # --- creating

    def _draft(self, schedule: Any, **changes: Any) -> Draft:
        chance = self._chance
        work = {
            "seconds": chance.choice((0.0, 0.0, 0.05, 0.4, 1.5, 4.0)),
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
        queue = chance.choice(("default", "default", "other", NARROW))
        given |= {"queue": queue, "priority": chance.choice((0, 0, 0, 5, -5))}
        return Draft(task="work", schedule=schedule, **(given | changes))

    def _moment(self, *seconds: float) -> str:
        at = self._life.now() + timedelta(seconds=self._chance.uniform(*seconds))
        return at.isoformat()

    async def _once(self) -> None:
        chance = self._chance
        when = chance.choice(("now", self._moment(0.2, 3.0), self._moment(2.0, 10.0)))
        if job_id := await self._create(self._draft(when, ordering_key=chance.choice((None, None, "a", "b")))):
            self.shots.append(job_id)

    async def _in_order(self) -> None:
        """Some jobs of one ordering key, one after another."""
        key, at = self._chance.choice(("a", "b", "c")), self._moment(0.0, 2.0)
        for _ in range(3):
            if job_id := await self._create(self._draft(self._chance.choice(("now", at)), ordering_key=key)):
                self.shots.append(job_id)

    async def _batch(self) -> None:
        drafts = []
        for _ in range(5):
            draft = self._draft(self._chance.choice(("now", self._moment(0.5, 6.0))))
            drafts.append(_with(draft, params=json.dumps({**json.loads(draft.params), "label": self._label()})))
        labels = ",".join(json.loads(draft.params)["label"] for draft in drafts)
        made = await self._ask(
            "create_many", labels, lambda services: services.jobs.create_many(drafts, owner=OWNER, by=OWNER)
        )
        self.shots += [job_id for job_id in made or () if isinstance(job_id, str)]

    async def _again_and_again(self) -> None:
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
        if job_id := await self._create(self._draft({**schedule, "ends_at": ends_at.isoformat()})):
            self.recurring.append(job_id)

    # --- acting on what there is

    async def _act_on(
        self, jobs: list[JobId], action: str, act: Callable[[Services, JobId], Awaitable[object]]
    ) -> JobId | None:
        if not jobs:
            return None
        job_id = self._chance.choice(jobs)
        await self._ask(action, job_id, lambda services: act(services, job_id))
        return job_id

    async def _cancel_run(self) -> None:
        await self._act_on(
            self.shots[-4:],
            "cancel_run",
            lambda services, job: services.jobs.cancel_run(RunId(job), owner=OWNER),
        )

    async def _cancel_job(self) -> None:
        keep = self._chance.random() < 0.3
        await self._act_on(
            self.recurring + self.shots[-4:],
            "cancel_job_keep" if keep else "cancel_job",
            lambda services, job: services.jobs.cancel(job, keep_running=keep, owner=OWNER),
        )

    async def _run_now(self) -> None:
        await self._act_on(
            self.recurring + self.shots[-4:],
            "run_now",
            lambda services, job: services.jobs.run_now(job, None, owner=OWNER, by=OWNER),
        )

    async def _pause(self) -> None:
        job_id = await self._act_on(
            self.recurring + self.recurring + self.shots[-2:],
            "pause",
            lambda services, job: services.jobs.pause(job, owner=OWNER),
        )
        if job_id is None:
            return
        await asyncio.sleep(self._chance.choice((0.01, 1.0, 4.0)))
        await self.resume(job_id, self._chance.choice(list(Misfire)))

    async def resume(self, job_id: JobId, missed: Misfire) -> None:
        await self._ask("resume", job_id, lambda services: services.jobs.resume(job_id, missed=missed, owner=OWNER))

    async def _patch(self) -> None:
        await self._patch_some(self.recurring)

    async def _patch_once(self) -> None:
        await self._patch_some(self.shots[-3:])

    async def _patch_some(self, jobs: list[JobId]) -> None:
        chance = self._chance
        moved = chance.random() < 0.4
        fresh = self._draft("now")

        async def revise(job: Job | Run) -> Draft:
            assert job.schedule is not None
            schedule: Any = schedule_to_wire(job.schedule)
            if moved and isinstance(job, Job):
                ends_at = self._life.start + timedelta(seconds=self._until)
                schedule = {"type": "every", "seconds": 3, "ends_at": ends_at.isoformat()}
            elif moved and isinstance(job, Run):
                schedule = (job.due_at + timedelta(seconds=1)).isoformat()
            return _with(fresh, schedule=schedule, params=job.spec.params, ordering_key=job.spec.ordering_key)

        await self._act_on(jobs, "patch", lambda services, job: services.jobs.patch(job, revise, owner=OWNER))

    async def _backfill(self) -> None:
        now = self._life.now()
        start, end = now - timedelta(seconds=60), now - timedelta(seconds=50)
        await self._act_on(
            self.recurring,
            "backfill",
            lambda services, job: services.jobs.backfill(job, start, end, owner=OWNER),
        )

    async def _retry(self) -> None:
        """Try a dead letter again, or keep an answer about it."""

        async def request(services: Services) -> str:
            letters = await services.dead_letters.list(LETTERS, cursor=None, limit=5)
            for letter in letters.items[:1]:
                await services.dead_letters.retry(letter.id, None, owner=OWNER, by=OWNER)
            ask = Ask(owner=OWNER, key=f"retry {self._calls}", fingerprint="")
            return await services.jobs.receipts.keep(ask, "done")

        await self._ask("retry", "some letter", request)

    async def _narrow(self) -> None:
        settings = QueueSettings(queue=NARROW, concurrency=1)
        for _ in range(TRIES):
            if await self._ask("set_queue", NARROW, lambda services: services.queues.set(settings)) is not None:
                return

    async def discard_letters(self) -> bool:
        """Give up what failed, so that what it blocks goes on."""
        done = await self._ask(
            "discard", "all letters", lambda services: services.dead_letters.discard(Selection(which=LETTERS))
        )
        return done is not None

    async def make_up(self, runs: int) -> None:
        """Create so many more jobs, where too many were refused for a life to prove something."""
        for _ in range(runs):
            await self._create(self._draft("now"))


def _heed(asking: "asyncio.Task[Any]") -> None:
    """An answer that comes when nobody waits for it any more may be an error, and is no news."""
    if not asking.cancelled():
        asking.exception()


async def _done(request: Callable[[Services], Awaitable[T]], services: Services) -> T:
    return await request(services)


def _with(draft: Draft, **changes: Any) -> Draft:
    return replace(draft, **changes)


def _told(answer: object) -> tuple[str, str]:
    if isinstance(answer, Run):
        return answer.id, str(answer.state)
    if isinstance(answer, Job):
        return answer.id, str(answer.status)
    return (answer, "") if isinstance(answer, str) else ("", "")
