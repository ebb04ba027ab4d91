"""Tickets in a worker: what a claim says of each decides whether it is finished, kept or given back."""

from datetime import datetime, timedelta

import pytest

from horae.core.errors import Unavailable
from horae.core.model import RunId
from horae.core.tickets import Ticket
from horae.engine.worker.tickets import FIRST_DELAY, KEPT, KEPT_OF_QUEUE, Tickets
from horae.metrics import Metrics
from horae.ports.queue import Taken
from horae.ports.store import Claims, Contested
from tests.clocks import ManualClock
from tests.conformance.builders import NOW, SECOND, new_id, one_shot
from tests.memory_queue import MemoryQueue

LEAD = SECOND


class Worker:
    """The tickets of a worker, with a queue and a clock to move."""

    def __init__(self) -> None:
        self.clock = ManualClock(NOW)
        self.queue = MemoryQueue(self.clock.now, waits=False)
        self.metrics = Metrics()
        self.wakes = 0
        self.tickets = Tickets(
            self.queue, self.clock, self.metrics.tickets, lead=LEAD, queues=(), tasks=("demo.echo",), taken=self._wake
        )

    def _wake(self) -> None:
        self.wakes += 1

    async def given(self, *tickets: Ticket) -> list[RunId]:
        """Offer tickets, and take them."""
        await self.queue.offer(tickets, now=self.clock.now())
        assert await self.tickets.take(1000) == len(tickets)
        return self.ripe()

    def ripe(self) -> list[RunId]:
        return self.tickets.ripe(self.clock.now(), 1000)

    async def answered(self, asked: list[RunId], claims: Claims, *, undecided: bool = False) -> None:
        self.tickets.answered(asked, claims, undecided=undecided)
        await self.tickets.leave_finished()

    async def left(self, **units: float) -> list[RunId]:
        """The runs whose tickets others can take after a while."""
        now = NOW + timedelta(**units)
        taken = await self.queue.take(
            queues=(), without=(), tasks=("demo.echo", "other"), now=now, until=now, limit=1000, wait=timedelta()
        )
        return [each.ticket.run_id for each in taken]

    def count(self, event: str) -> float:
        return self.metrics.registry.get_sample_value("horae_tickets_total", {"event": event}) or 0.0


def ticket(wake_at: datetime = NOW, **changes: str) -> Ticket:
    values = {"task": "demo.echo", "queue": "default", "owner": "ada", **changes}
    return Ticket(run_id=RunId(new_id()), priority=0, wake_at=wake_at, **values)


@pytest.fixture
def worker() -> Worker:
    return Worker()


async def test_what_was_claimed_or_is_void_is_finished(worker: Worker) -> None:
    claimed, void = await worker.given(ticket(), ticket())
    await worker.answered([claimed, void], Claims(runs=[one_shot(id=claimed)]))
    assert (worker.ripe(), await worker.left(hours=1)) == ([], [])
    assert (worker.count("taken"), worker.count("claimed"), worker.count("void")) == (2, 1, 1)


async def test_what_was_decided_as_contested_is_finished(worker: Worker) -> None:
    [contested] = await worker.given(ticket())
    await worker.answered([contested], Claims(contested=[Contested(run=one_shot(id=contested), rivals=())]))
    assert (worker.ripe(), await worker.left(hours=1)) == ([], [])


async def test_what_is_contested_and_undecided_is_tried_again(worker: Worker) -> None:
    [contested] = await worker.given(ticket())
    claims = Claims(contested=[Contested(run=one_shot(id=contested), rivals=())])
    await worker.answered([contested], claims, undecided=True)
    assert worker.ripe() == []
    worker.clock.move_to(NOW + FIRST_DELAY)
    assert worker.ripe() == [contested]


async def test_what_waits_is_tried_again_after_longer_and_longer_delays(worker: Worker) -> None:
    [waiting] = await worker.given(ticket())
    delays = []
    for _ in range(4):
        await worker.answered([waiting], Claims(waiting={waiting: NOW}))
        next_at = worker.tickets.next_at()
        assert next_at is not None
        delays.append(next_at - worker.clock.now())
        worker.clock.move_to(next_at)
        assert worker.ripe() == [waiting]
    assert delays == [FIRST_DELAY * 2**n for n in range(4)]


async def test_what_waits_for_its_instant_is_tried_then(worker: Worker) -> None:
    wake_at = NOW + timedelta(milliseconds=7)
    [waiting] = await worker.given(ticket(wake_at))
    await worker.answered([waiting], Claims(waiting={waiting: wake_at}))
    assert worker.tickets.next_at() == wake_at


async def test_what_wakes_later_than_its_ticket_says_is_finished(worker: Worker) -> None:
    """Whoever put it off has offered it again."""
    [early] = await worker.given(ticket())
    await worker.answered([early], Claims(waiting={early: NOW + 60 * SECOND}))
    assert (worker.ripe(), await worker.left(hours=1)) == ([], [])


async def test_what_was_kept_for_long_is_given_back_for_a_while(worker: Worker) -> None:
    [waiting] = await worker.given(ticket())
    for _ in range(100):
        await worker.answered([waiting], Claims(waiting={waiting: NOW}))
        if (next_at := worker.tickets.next_at()) is None:
            break
        worker.clock.move_to(next_at)
    held = worker.clock.now() - NOW
    assert KEPT < held < 3 * KEPT
    assert await worker.left(seconds=held.total_seconds()) == []
    assert await worker.left(seconds=(held + KEPT).total_seconds()) == [waiting]
    assert worker.count("returned") == 1


@pytest.mark.parametrize("gated", [True, False])
async def test_a_result_of_its_queue_or_of_a_gate_has_it_tried_at_once(worker: Worker, gated: bool) -> None:
    [waiting] = await worker.given(ticket(queue="mail"))
    await worker.answered([waiting], Claims(waiting={waiting: NOW}))
    assert not worker.tickets.try_soon({"other"}, gated=False)
    assert worker.ripe() == []
    assert worker.tickets.try_soon({"other"} if gated else {"mail"}, gated=gated)
    assert worker.ripe() == [waiting]


async def test_a_queue_that_stands_still_is_left_alone_and_others_are_not(worker: Worker) -> None:
    stuck = await worker.given(*(ticket(queue="full") for _ in range(3 * KEPT_OF_QUEUE)))
    await worker.answered(stuck, Claims(waiting=dict.fromkeys(stuck, NOW)))
    assert worker.count("returned") == KEPT_OF_QUEUE, "more than this need not wait here"
    more, other = ticket(queue="full"), ticket(queue="other")
    await worker.queue.offer([more, other], now=NOW)
    assert await worker.tickets.take(1000) == 1
    assert worker.ripe() == [other.run_id]
    kept = [run_id for run_id in stuck if run_id in worker.tickets]
    await worker.answered(kept, Claims(runs=[one_shot(id=run_id) for run_id in kept]))
    assert await worker.tickets.take(1000) == 1, "it is taken from again"


async def test_tickets_of_tasks_that_are_not_known_here_are_given_back(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue may not know of tasks."""
    foreign = ticket(task="other")
    take = worker.queue.take

    async def careless(**asked: object) -> list[Taken]:
        return await take(**{**asked, "tasks": ("demo.echo", "other")})  # type: ignore[arg-type]

    monkeypatch.setattr(worker.queue, "take", careless)
    await worker.queue.offer([foreign], now=NOW)
    assert await worker.tickets.take(10) == 1
    assert (worker.ripe(), worker.wakes) == ([], 0)
    assert await worker.left() == []
    assert await worker.left(seconds=0.3) == [foreign.run_id]


async def test_a_doubled_ticket_is_finished_with_the_other(worker: Worker) -> None:
    double = ticket()
    await worker.given(double)
    worker.queue._add(double, NOW)
    assert await worker.tickets.take(10) == 1
    assert worker.ripe() == [double.run_id]
    await worker.answered([double.run_id], Claims())
    assert await worker.left(hours=1) == []


@pytest.mark.parametrize("breaks", ["take", "done"])
async def test_without_its_queue_a_worker_forgets_its_tickets_and_claims_from_the_store(
    worker: Worker, breaks: str
) -> None:
    [run_id] = await worker.given(ticket())
    assert worker.tickets.healthy
    worker.queue.down, wakes = True, worker.wakes
    if breaks == "take":
        with pytest.raises(Unavailable):
            await worker.tickets.take(10)
    else:
        await worker.answered([run_id], Claims())
    assert not worker.tickets.healthy
    assert (worker.ripe(), worker.wakes) == ([], wakes + 1)
    worker.queue.down = False
    await worker.tickets.take(10)
    assert worker.tickets.healthy


async def test_whoever_leaves_gives_everything_back(worker: Worker) -> None:
    run_ids = await worker.given(ticket(), ticket())
    await worker.tickets.leave()
    assert sorted(await worker.left()) == sorted(run_ids)
    assert worker.tickets.next_at() is None
