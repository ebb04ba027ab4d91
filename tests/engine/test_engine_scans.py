"""Whatever makes a run claimable, a worker that scans only what is new finds it in time."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.decisions.new_runs import manual_run, requeued
from horae.core.decisions.results import Failure
from horae.core.model import Backfill, JobError, OnFailure, Overlap, Policy, Run, State, Trigger
from horae.core.records import QueueSettings
from horae.core.values import replace
from horae.engine.worker.scan_floor import FLOOR_AGE
from horae.engine.worker.settler import RESULT_DELAY
from horae.ports.store import ClaimRequest, Claims, Contested
from tests import acts
from tests.acts import Resolution
from tests.engine.system import START, SimNode, System, failing, taking
from tests.engine.test_engine import a_one_shot, one_shot, recurring

MOMENT = timedelta(milliseconds=50)  # between two claims of a stream
UNTIL_SWEEP = 0.4  # seconds that surely pass after one sweep before the next
END = START + timedelta(hours=1)
BOOM = JobError(type="Boom", message="boom")


class Stream:
    """A node that is kept busy so that it claims all the time, and its claim requests."""

    def __init__(self, system: System, node: SimNode) -> None:
        self.system = system
        self.node = node
        self.asked: list[tuple[ClaimRequest, Claims]] = []

    def is_new(self, request: ClaimRequest) -> bool:
        """Return whether a claim scans nothing that had to be claimed before."""
        return request.floor is not None and request.floor >= request.now

    async def just_swept(self) -> None:
        """Advance until a sweep is over and the next one is far."""
        for _ in range(100):
            await self.system.advance(seconds=0.01)
            if not self.is_new(self.asked[-1][0]):
                break
        else:
            pytest.fail("it never sweeps")
        await self.system.advance(seconds=0.06)
        assert self.is_new(self.asked[-1][0])

    async def started(self) -> list[datetime]:
        """Return when something beside the stream starts before the next sweep."""
        since = self.system.clock.now()
        await self.system.advance(seconds=UNTIL_SWEEP)
        return [start.at for start in self.system.starts if start.run.spec.name != "stream" and start.at >= since]


@pytest.fixture
def system(store_system: System) -> System:
    """Without a queue: these are claims in the store alone."""
    return store_system


@pytest.fixture
async def stream(system: System, monkeypatch: pytest.MonkeyPatch) -> Stream:
    stream = Stream(system, await system.add_node())
    claim = system.store.claim

    async def telling(request: ClaimRequest) -> Claims:
        claims = await claim(request)
        if request.node == stream.node.heartbeat.node.id:
            stream.asked.append((request, claims))
        return claims

    monkeypatch.setattr(system.store, "claim", telling)
    await acts.create(system.store, [a_one_shot(system, delay=0.02 * number, name="stream") for number in range(1000)])
    await system.advance(seconds=3)
    return stream


async def test_a_stream_is_looked_at_once(stream: Stream) -> None:
    await stream.system.advance(seconds=5)
    lately = stream.asked[-80:]
    new = [request for request, _ in lately if stream.is_new(request)]
    assert len(new) > len(lately) * 3 / 4
    assert all(len(claims.runs) > 0 for _, claims in lately), "and nothing of it is missed"
    starts = [start for start in stream.system.starts if start.run.spec.name == "stream"]
    assert all(start.at == start.run.due_at for start in starts)


class TestWhatIsTold:
    """Each way in which a run becomes claimable: it starts at its instant, without a sweep."""

    async def test_a_new_run(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        run = await one_shot(system)
        assert await stream.started() == [run.due_at]

    async def test_a_new_run_that_wakes_within_the_lead(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        run = await one_shot(system, delay=0.3)
        assert await stream.started() == [run.due_at]

    async def test_a_run_of_another_priority_and_queue(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        runs = [await one_shot(system, delay=0.3, queue=queue, priority=9) for queue in ("default", "other")]
        assert await stream.started() == [run.due_at for run in runs]

    @pytest.mark.parametrize("overlap", [Overlap.ALLOW, Overlap.SKIP])
    async def test_a_slot_that_a_new_job_fires(self, system: System, stream: Stream, overlap: Overlap) -> None:
        await stream.just_swept()
        job = await recurring(system, "* * * * * *", overlap=overlap)
        await system.advance(seconds=UNTIL_SWEEP)
        [first, *_] = (await system.store.ledger(job.id, start=job.created_at, end=END, limit=9)).runs
        assert first.state is State.CLAIMED
        assert job.next_fire_at is not None
        await system.advance_to(job.next_fire_at)
        assert [start.at for start in system.starts_of(job.id)] == [job.next_fire_at]

    async def test_a_run_by_hand(self, system: System, stream: Stream) -> None:
        job = await recurring(system, "0 0 1 1 *")
        await stream.just_swept()
        run = manual_run(job, now=system.clock.now(), new_id=system.new_id)
        await acts.create(system.store, [run])
        assert await stream.started() == [run.due_at]

    async def test_a_slot_that_is_filled_in(self, system: System, stream: Stream) -> None:
        job = await recurring(system, "0 0 1 1 *")
        await stream.just_swept()
        now, new_year = system.clock.now(), datetime(2026, 1, 1, tzinfo=UTC)
        await acts.backfill(
            system.store,
            Backfill(
                id=system.new_id(),
                job_id=job.id,
                trigger=Trigger.BACKFILL,
                start=new_year,
                end=new_year,
                plan_at=now,
                created_at=now,
            ),
        )
        assert await stream.started() == [now]

    async def test_a_retry(self, system: System, stream: Stream) -> None:
        delay = timedelta(seconds=0.2)
        system.scripts["flaky"] = failing(1, Failure(error=BOOM, retry_after=delay))
        await stream.just_swept()
        run = await one_shot(system, "flaky")
        assert await stream.started() == [run.due_at, run.due_at + delay]

    async def test_a_run_that_another_node_gives_back(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        run, other = await given_held_elsewhere(system, stream)
        await other.drain()
        assert await stream.started() == [run.due_at]

    async def test_a_run_of_a_node_that_is_buried(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        run, other = await given_held_elsewhere(system, stream)
        other.kill()
        await acts.unregister(system.store, other.heartbeat.node.id)
        stream.node.sweeping.wake()
        assert await stream.started() == [run.due_at]

    async def test_the_next_of_a_gate(self, system: System, stream: Stream) -> None:
        other = await system.add_node(queues=("other",))
        system.scripts["slow"] = taking(3)
        await one_shot(system, "slow", queue="other", ordering_key="k")
        await system.advance(seconds=0.1)
        await one_shot(system, ordering_key="k")
        await system.advance(seconds=2)
        await stream.just_swept()
        [running] = other.executor.under_way
        running.ends_at = system.clock.now()
        [started_at] = await stream.started()
        assert started_at <= running.ends_at + RESULT_DELAY + MOMENT, "the other node has to let go of the gate, too"

    async def test_a_job_that_is_resumed(self, system: System, stream: Stream) -> None:
        paused = replace(a_one_shot(system), paused=True)
        await acts.create(system.store, [paused])
        await stream.just_swept()
        now = system.clock.now()
        await acts.change_one_shot(system.store, replace(paused, paused=False, wake_at=now, revision=2), expected=1)
        assert await stream.started() == [now]

    async def test_a_job_that_is_changed(self, system: System, stream: Stream) -> None:
        run = await one_shot(system, delay=3600)
        await stream.just_swept()
        soon = system.clock.now() + timedelta(seconds=0.2)
        await acts.change_one_shot(system.store, replace(run, due_at=soon, wake_at=soon, revision=2), expected=1)
        assert await stream.started() == [soon]

    async def test_a_dead_letter_that_is_requeued(self, system: System, stream: Stream) -> None:
        system.scripts["broken"] = failing(1, Failure(error=BOOM, fatal=True))
        letter = await one_shot(system, "broken")
        await stream.just_swept()
        now = system.clock.now()
        successor = requeued(await system.run(letter.id), now=now, new_id=system.new_id)
        await acts.resolve(system.store, [Resolution(run_id=letter.id, successor=successor)], now=now)
        assert await stream.started() == [now]

    async def test_what_a_dead_letter_blocked(self, system: System, stream: Stream) -> None:
        system.scripts["broken"] = failing(1, Failure(error=BOOM, fatal=True))
        policy = Policy(on_failure=OnFailure.BLOCK)
        letter = await one_shot(system, "broken", ordering_key="k", policy=policy)
        await one_shot(system, ordering_key="k", policy=policy)
        await system.advance(seconds=2)
        await stream.just_swept()
        now = system.clock.now()
        await acts.resolve(system.store, [Resolution(run_id=letter.id)], now=now)
        assert await stream.started() == [now]

    @pytest.mark.parametrize("before", [QueueSettings(queue="q", paused=True), QueueSettings(queue="q", concurrency=0)])
    async def test_a_queue_that_is_opened(self, system: System, stream: Stream, before: QueueSettings) -> None:
        await acts.set_queue(system.store, before)
        await one_shot(system, queue="q")
        await system.advance(seconds=3)
        await stream.just_swept()
        now = system.clock.now()
        await acts.set_queue(system.store, QueueSettings(queue="q"))
        assert await stream.started() == [now]

    async def test_a_place_in_a_queue(self, system: System, stream: Stream) -> None:
        system.scripts["slow"] = taking(3)
        await acts.set_queue(system.store, QueueSettings(queue="q", concurrency=1))
        for _ in range(2):
            await one_shot(system, "slow", queue="q")
        await system.advance(seconds=2)
        await stream.just_swept()
        [running] = [each for each in stream.node.executor.under_way if each.run.spec.task == "slow"]
        running.ends_at = system.clock.now()
        [started_at] = await stream.started()
        assert started_at <= running.ends_at + RESULT_DELAY


async def given_held_elsewhere(system: System, stream: Stream) -> tuple[Run, SimNode]:
    """Create a run that another node holds and this one could start."""
    other = await system.add_node()
    stream.node.freeze()
    run = await one_shot(system, delay=0.3)
    await system.settle_all()
    stream.node.thaw()
    assert other.worker.holding > 0
    return run, other


async def test_runs_of_one_key_that_wake_within_the_lead_follow_each_other(system: System, stream: Stream) -> None:
    await stream.just_swept()
    runs = [await one_shot(system, delay=delay, ordering_key="k") for delay in (0.1, 0.2, 0.3)]
    assert await stream.started() == [run.due_at for run in runs], "although each claim takes one of a gate"


async def test_runs_of_one_key_that_waited_for_a_node_follow_each_other(system: System) -> None:
    runs = [await one_shot(system, ordering_key="k") for _ in range(3)]
    await system.advance(seconds=60)
    await system.add_node()
    await system.advance(seconds=1)
    assert [start.run.id for start in system.starts] == [run.id for run in runs], "each claim takes one of a gate"


class TestWhatIsNotTold:
    """A process dies between its commit and its signal, or a connection is lost."""

    async def test_it_is_found_by_the_next_sweep(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        stream.node.unsubscribe()
        run = await one_shot(system)
        assert await stream.started() == [], "nobody told of it"
        [started_at] = await stream.started()
        assert started_at <= run.due_at + system.timing.lead / 2 + MOMENT

    async def test_an_idle_worker_finds_it_within_the_lead(self, system: System) -> None:
        node = await system.add_node()
        await system.advance(seconds=7.3)
        for _ in range(2):  # the second is claimed by a look at what is new, and nothing comes after it
            await one_shot(system)
            await system.advance(seconds=0.1)
        node.unsubscribe()
        run = await one_shot(system)
        await system.advance(seconds=3)
        [_, _, start] = system.starts
        assert start.at <= run.due_at + system.timing.lead

    async def test_a_late_commit_is_found_as_well(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        stream.node.unsubscribe()
        late = a_one_shot(system)
        wake_at = late.wake_at - FLOOR_AGE
        await acts.create(system.store, [replace(late, due_at=wake_at, wake_at=wake_at)])
        assert await stream.started() == []
        assert len(await stream.started()) == 1

    async def test_a_signal_without_a_time_has_all_of_it_looked_at(self, system: System, stream: Stream) -> None:
        await stream.just_swept()
        stream.node.unsubscribe()
        run = await one_shot(system)
        stream.node.worker.signal(None)
        assert await stream.started() == [run.due_at]


async def test_claims_go_on_while_the_clock_of_the_store_stands_still(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = await system.add_node()
    await one_shot(system)
    await system.settle_all()
    await one_shot(system)
    elapsed = system.clock.elapsed() + 1
    monkeypatch.setattr(system.clock, "elapsed", lambda: elapsed)
    node.claiming.wake()
    await system.settle_all()
    assert len(system.starts) == 2


async def test_what_is_left_open_is_not_looked_at_again_without_a_pause(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.add_node()
    in_another_gate = Contested(run=a_one_shot(system, ordering_key="k"), rivals=())
    looks: list[datetime] = []

    async def claim(request: ClaimRequest) -> Claims:
        looks.append(request.now)
        return Claims(more=True, contested=[in_another_gate])

    monkeypatch.setattr(system.store, "claim", claim)
    await system.advance(seconds=1)
    assert len(looks) <= 2 * (1 + timedelta(seconds=1) / MOMENT), "at it, and once behind it"
