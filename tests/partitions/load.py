"""The load of the cluster: an even stream, herds that are all due at one instant, and one owner with half of it."""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

from horae.core.ids import Ids
from horae.core.model import JobId, Run, RunId, Spec
from horae.core.schedule.types import At
from horae.core.values import Value, replace
from horae.ports.store import Store
from tests.partitions.virtual import START, VirtualClock

STEP = 0.05  # seconds between two writes of a creator
LARGE = "large-owner"


class LoadShape(Value, frozen=True, kw_only=True):
    """How many jobs are created, and when they are due."""

    rate: int = 10_000  # jobs a second
    seconds: int = 600
    ahead: float = 5.0  # seconds between the creation and the due time, at most
    herd_share: float = 0.2  # of all jobs are due together
    herd_every: int = 10  # seconds
    large_share: float = 0.5  # of all jobs belong to one owner
    owners: int = 50  # that share the rest
    creators: int = 20  # processes that create them

    @property
    def jobs(self) -> int:
        return self.rate * self.seconds


class Lateness:
    """How late runs started, in a histogram of milliseconds, and what never started or started twice."""

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._waiting: dict[str, float] = {}  # due times of jobs that have not started
        self._counts: dict[int, int] = {}
        self.created = 0
        self.started = 0
        self.doubled = 0
        self.early = 0
        self.largest = 0.0

    def expect(self, runs: list[Run]) -> None:
        """Count jobs before they are written."""
        self.created += len(runs)
        for run in runs:
            self._waiting[run.id] = run.due_at.timestamp()

    def start(self, run_id: str) -> None:
        """Count a start."""
        due = self._waiting.pop(run_id.removeprefix("run_"), None)
        if due is None:
            self.doubled += 1
            return
        late = self._seconds() - due
        self.started += 1
        self.early += late < -0.001
        self.largest = max(self.largest, late)
        bucket = int(late * 1000)
        self._counts[bucket] = self._counts.get(bucket, 0) + 1

    @property
    def lost(self) -> int:
        return len(self._waiting)

    def percentile(self, share: float) -> float:
        """The lateness in milliseconds that this share of the starts did not exceed."""
        rank, passed = share * self.started, 0
        for bucket, count in sorted(self._counts.items()):
            passed += count
            if passed >= rank:
                return bucket + 1.0
        return 0.0


class Creator:
    """A process that creates its part of the load."""

    def __init__(self, number: int, store: Store, clock: VirtualClock, shape: LoadShape, lateness: Lateness) -> None:
        self._rng = random.Random(f"creator {number}")
        self._store = store
        self._clock = clock
        self._shape = shape
        self._lateness = lateness
        self._ids = Ids(random=self._rng.randbytes, wall=lambda: clock.now().timestamp())
        self._owners = [f"owner-{place}" for place in range(shape.owners)]
        self._offset = STEP * number / shape.creators
        spec = Spec(task="work", params='{"to": "somebody@example.com", "subject": "something that is of some length"}')
        self._template = Run(RunId(""), JobId(""), "", "", spec, START, START, START, schedule=At(time=START))

    async def run(self) -> None:
        """Create jobs at an even pace until the end of the load."""
        shape, rng = self._shape, self._rng
        await asyncio.sleep(self._offset)
        begun = asyncio.get_running_loop().time()
        due_count, made = 0.0, 0
        writes: set[asyncio.Task[None]] = set()
        total = shape.jobs // shape.creators
        while made < total:
            due_count += shape.rate * STEP / shape.creators
            count = min(int(due_count) - made, total - made)
            made += count
            runs = [self._job(rng, job_id) for job_id in self._ids.many(count)]
            self._lateness.expect(runs)
            task = asyncio.create_task(self._store.create(runs), name="create")
            writes.add(task)
            task.add_done_callback(writes.discard)
            begun += STEP
            await asyncio.sleep(max(begun - asyncio.get_running_loop().time(), 0))
        while writes:
            await asyncio.gather(*writes)

    def _job(self, rng: random.Random, job_id: str) -> Run:
        shape, now = self._shape, self._clock.now()
        owner = LARGE if rng.random() < shape.large_share else self._owners[int(rng.random() * shape.owners)]
        if rng.random() < shape.herd_share:
            since = (now - START) / timedelta(seconds=shape.herd_every)
            due = START + (int(since) + 1) * timedelta(seconds=shape.herd_every)
        else:
            due = now + timedelta(seconds=0.5 + rng.random() * shape.ahead)
        return replace(
            self._template,
            id=RunId(job_id),
            job_id=JobId(job_id),
            owner=owner,
            created_by=owner,
            due_at=due,
            wake_at=due,
            created_at=now,
            schedule=At(time=due),
        )
