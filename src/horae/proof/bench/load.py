"""The loads of a benchmark: they create numbered jobs, each with a known due time, with the calls that users make.

A load numbers its jobs from 0, and handlers record that number. `place` and `due_us` map it to the due time.
"""

import asyncio
from abc import ABC, abstractmethod
from array import array
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta

from horae.core.drafts import Draft
from horae.core.errors import HoraeError, InternalError
from horae.core.model import LOCAL, JobId, Overlap, Policy
from horae.core.schedule.timestamps import rfc3339
from horae.core.schedule.types import At
from horae.core.values import replace
from horae.jobs.bulk_create import BATCH
from horae.proof.bench.options import BenchOptions, Mode
from horae.proof.bench.tasks import EPOCH, micros, once, slot
from horae.sdk.connection import Connection

MOST_WAITING = 20_000  # unstarted jobs at which `now` stops creating, so that jobs are created and run at the same time
WAIT_SECONDS = 0.01  # before it checks again whether it may create more
AT_ONCE = 2  # batches that are created at the same time, as within one large `submit_many`
AHEAD = timedelta(seconds=2.5)  # how long before its due time a timed job is created
BATCHES_A_SECOND = 10  # of a timed load
QUIET = timedelta(seconds=0.5)  # before the first timed job is created
BACKLOG_AT_ONCE = 4  # concurrent batches while a backlog is stored
FAR = timedelta(days=365)  # when a backlog is due
HERD_JOBS_A_SECOND = 5_000  # a creation rate that any store reaches, so that a herd exists before it is due
CRON_JOBS_A_SECOND = 500
BYSTANDERS_A_SECOND = 100  # in a queue of their own, due while a herd runs
BYSTANDERS = "bystanders"

_STRIDE = 1 << 32  # between the numbers of two recurring jobs
_NOTICE = timedelta(seconds=3)  # between the creation of a few jobs and their due time

OnStored = Callable[[int], None]  # called with the number of jobs stored so far


class Load(ABC):
    """Numbered jobs and their due times."""

    expected: int | None  # runs; None: it depends on the speed
    submitted: int = 0  # runs requested so far
    created_late: int = 0  # jobs created after their due time: the producer could not keep up

    @abstractmethod
    async def submit(self) -> None:
        """Create the jobs."""

    def place(self, number: int) -> int | None:
        """Return the index of a recorded number among the requested runs; None if it is not measured."""
        return number

    @abstractmethod
    def due_us(self, place: int) -> int:
        """Return the due time of the run at an index, in microseconds since 1970."""

    @property
    def last_due_at(self) -> datetime:
        """The due time of the last run."""
        assert self.expected is not None
        return _instant(self.due_us(self.expected - 1))


class NowLoad(Load):
    """Jobs that are due at once, created as fast as possible, up to a number or for a time."""

    def __init__(
        self, writer: "JobWriter", started: Callable[[], int], *, jobs: int | None, seconds: int | None
    ) -> None:
        self._writer = writer
        self._started = started
        self._seconds = seconds
        self._due = array("q")
        self.expected = jobs

    @property
    def last_due_at(self) -> datetime:
        return _instant(self._due[-1] if self._due else 0)

    async def submit(self) -> None:
        end_at = None if self._seconds is None else self._writer.now() + timedelta(seconds=self._seconds)

        async def write_some() -> None:
            while self._is_wanted(end_at):
                if self.submitted - self._started() > MOST_WAITING - BATCH:
                    await asyncio.sleep(WAIT_SECONDS)
                else:
                    await self._submit_next()

        await asyncio.gather(*(write_some() for _ in range(AT_ONCE)))

    def _is_wanted(self, end_at: datetime | None) -> bool:
        enough = self.expected is not None and self.submitted >= self.expected
        return not enough and (end_at is None or self._writer.now() < end_at)

    async def _submit_next(self) -> None:
        """Submit a batch; its jobs count as due from the moment of the call."""
        size = BATCH if self.expected is None else min(BATCH, self.expected - self.submitted)
        numbers = range(self.submitted, self.submitted + size)
        self._due.extend([micros(self._writer.now())] * size)
        self.submitted += size
        await once.submit_many(_calls(numbers))

    def due_us(self, place: int) -> int:
        return self._due[place]


class TimedLoad(Load):
    """Jobs with evenly spread due times, each created a few seconds before it is due."""

    def __init__(self, writer: "JobWriter", *, rate: int, jobs: int) -> None:
        self._writer = writer
        self._rate = rate
        self.expected: int = jobs
        self._first_us = micros(writer.now() + AHEAD + QUIET)

    async def submit(self) -> None:
        size = min(max(self._rate // BATCHES_A_SECOND, 1), BATCH)
        await in_batches(self.expected, self._write, size=size)

    async def _write(self, numbers: range) -> None:
        await self._writer.sleep_until(_instant(self.due_us(numbers.start)) - AHEAD)
        await self._writer.create_due_at(numbers, [_instant(self.due_us(n)) for n in numbers])
        self.submitted += len(numbers)
        late_us = micros(self._writer.now()) - self.due_us(numbers.start)
        self.created_late += min(max(late_us * self._rate // 1_000_000, 0), len(numbers))

    def due_us(self, place: int) -> int:
        return self._first_us + place * 1_000_000 // self._rate


class HerdLoad(Load):
    """Jobs that are all due at one instant, and a small stream of bystanders in another queue."""

    def __init__(self, writer: "JobWriter", *, jobs: int) -> None:
        self._writer = writer
        self.jobs = jobs
        self._at = writer.now() + _NOTICE + timedelta(seconds=jobs / HERD_JOBS_A_SECOND)
        self._at_us = micros(self._at)
        seconds = 1 + max(2, jobs // 20_000)  # one before the herd, the others while it runs
        self.expected: int = jobs + seconds * BYSTANDERS_A_SECOND

    async def submit(self) -> None:
        await in_batches(self.expected, self._write)

    async def _write(self, numbers: range) -> None:
        herd, beside = numbers[: max(self.jobs - numbers.start, 0)], numbers[max(self.jobs - numbers.start, 0) :]
        bystanders = once.using(queue=BYSTANDERS)
        await once.using(at=self._at).submit_many(_calls(herd))
        await asyncio.gather(*(bystanders.using(at=_instant(self.due_us(n))).submit(n=n) for n in beside))
        self.submitted += len(numbers)
        self.created_late += len(numbers) if self._writer.now() > self._at else 0

    def due_us(self, place: int) -> int:
        if place < self.jobs:
            return self._at_us
        return self._at_us + ((place - self.jobs) * 1_000_000) // BYSTANDERS_A_SECOND - 1_000_000


class CronLoad(Load):
    """Recurring jobs that fire every second, spread evenly over the second; each slot in the time is one run."""

    def __init__(self, writer: "JobWriter", *, rate: int, seconds: int, overlap: Overlap) -> None:
        self._writer = writer
        self.rate = rate
        self.seconds = seconds
        self._overlap = overlap
        self.job_ids: list[JobId] = []
        self.first_at = writer.now() + _NOTICE + timedelta(seconds=rate / CRON_JOBS_A_SECOND)
        self._first_us = micros(self.first_at)
        self.expected = self.submitted = rate * seconds

    @property
    def last_due_at(self) -> datetime:
        return self.end_at

    @property
    def end_at(self) -> datetime:
        """The time from which slots are not measured."""
        return _instant(self._first_us + self.seconds * 1_000_000)

    async def submit(self) -> None:
        await in_batches(self.rate, self._write)
        if self._writer.now() >= self.first_at:
            raise InternalError(f"the store took too long to create {self.rate} recurring jobs: use a lower --rate")

    async def _write(self, numbers: range) -> None:
        self.job_ids += await self._writer.recur([self._draft(job) for job in numbers])

    def place(self, number: int) -> int | None:
        job, second = divmod(number, _STRIDE)
        return job * self.seconds + second if second < self.seconds else None

    def due_us(self, place: int) -> int:
        job, second = divmod(place, self.seconds)
        return self._anchor_us(job) + second * 1_000_000

    def _anchor_us(self, job: int) -> int:
        return self._first_us + job * 1_000_000 // self.rate

    def _draft(self, job: int) -> Draft:
        anchor_us = self._anchor_us(job)
        return Draft(
            task=slot.name,
            params=f'{{"n":{job * _STRIDE},"first_us":{anchor_us}}}',
            schedule={"type": "every", "seconds": 1, "anchor": rfc3339(_instant(anchor_us))},
            policy=Policy(overlap=self._overlap),
        )


class JobWriter:
    """Creates jobs for which `submit_many` has no arguments: with a due time each, or recurring."""

    def __init__(self, connection: Connection) -> None:
        self._jobs = connection.jobs
        self._store = connection.store
        self._clock = connection.clock

    def now(self) -> datetime:
        return self._clock.now()

    async def sleep_until(self, moment: datetime) -> None:
        await asyncio.sleep(max((moment - self.now()).total_seconds(), 0))

    async def create_due_at(self, numbers: Iterable[int], moments: Sequence[datetime]) -> None:
        """Create jobs as `submit_many` does, but each with a due time of its own."""
        params = once.arguments.encode_all(_calls(numbers))
        draft = Draft(task=once.name, schedule=rfc3339(moments[0]))
        runs = await self._jobs.bulk.prepare(draft, params, owner=LOCAL, by=LOCAL)
        pairs = zip(runs, moments, strict=True)
        await self._store.create([replace(run, due_at=at, wake_at=at, schedule=At(time=at)) for run, at in pairs])

    async def recur(self, drafts: Sequence[Draft]) -> list[JobId]:
        """Create recurring jobs."""
        created: list[JobId] = []
        for outcome in await self._jobs.create_many(drafts, owner=LOCAL, by=LOCAL):
            if isinstance(outcome, HoraeError):
                raise outcome
            created.append(outcome)
        return created

    async def store_backlog(self, count: int, on_stored: OnStored) -> None:
        """Create jobs that are due far in the future, with numbers beyond those of all other jobs."""
        begin_at = self.now() + FAR
        stored = 0

        async def write(numbers: range) -> None:
            nonlocal stored
            due = [begin_at + n * timedelta(milliseconds=1) for n in numbers]
            await self.create_due_at((_STRIDE + n for n in numbers), due)
            stored += len(numbers)
            on_stored(stored)

        await in_batches(count, write, at_once=BACKLOG_AT_ONCE)


async def in_batches(
    count: int, write: Callable[[range], Awaitable[None]], *, size: int = BATCH, at_once: int = AT_ONCE
) -> None:
    """Write the numbers from 0 on in batches, some of them concurrently."""
    starts = iter(range(0, count, size))

    async def write_some() -> None:
        for start in starts:
            await write(range(start, min(start + size, count)))

    await asyncio.gather(*(write_some() for _ in range(at_once)))


def make_load(options: BenchOptions, writer: JobWriter, started: Callable[[], int]) -> Load:
    """Return the requested load; its time starts now."""
    match options.mode:
        case Mode.NOW:
            return NowLoad(writer, started, jobs=options.jobs, seconds=options.seconds)
        case Mode.TIMED:
            assert options.rate is not None
            assert options.jobs is not None
            return TimedLoad(writer, rate=options.rate, jobs=options.jobs)
        case Mode.HERD:
            assert options.jobs is not None
            return HerdLoad(writer, jobs=options.jobs)
        case Mode.CRON:
            assert options.rate is not None
            assert options.seconds is not None
            return CronLoad(writer, rate=options.rate, seconds=options.seconds, overlap=options.overlap)


def _calls(numbers: Iterable[int]) -> list[dict[str, int]]:
    return [{"n": number} for number in numbers]


def _instant(moment_us: int) -> datetime:
    return EPOCH + timedelta(microseconds=moment_us)
