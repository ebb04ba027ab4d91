"""Queues: tickets are taken by their time, hide while somebody has them, and come back by themselves."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from horae.core.ids import Ids
from horae.core.model import NodeId, RunId
from horae.core.signals import Kind, Signal
from horae.core.tickets import Ticket
from horae.ports.queue import Queue, Taken
from horae.queues.sqs.queue import SqsQueue
from tests.conformance.queues.conftest import Connect

NOW = datetime.now(UTC).replace(microsecond=123457)  # the time is an argument; SQS counts the seconds of its own clock
SECOND = timedelta(seconds=1)
TICK = timedelta(microseconds=1)
HOUR = timedelta(hours=1)  # longer than any queue hides a ticket
NO_WAIT = timedelta()
ODD = "naïve \"quoted\" 'single' \\ % _ ; / -- 🦉 \u202e\u0301 \n\t"

new_id = Ids(wall=NOW.timestamp)


def ticket(wake_at: datetime = NOW, **changes: object) -> Ticket:
    values = {"task": "demo.echo", "queue": "default", "priority": 0, "owner": "ada", **changes}
    return Ticket(run_id=RunId(new_id()), wake_at=wake_at, **values)  # type: ignore[arg-type]


async def take(queue: Queue, *, now: datetime = NOW, limit: int = 100, **changes: object) -> list[Taken]:
    wanted = {"queues": (), "without": (), "tasks": ("demo.echo",), "until": now, "wait": NO_WAIT, **changes}
    return await queue.take(now=now, limit=limit, **wanted)  # type: ignore[arg-type]


async def drained(queue: Queue, **changes: object) -> list[Ticket]:
    """Everything that can be taken, in its order."""
    found: list[Ticket] = []
    while taken := await take(queue, **changes):
        found += tickets_of(taken)
    return found


def tickets_of(taken: Sequence[Taken]) -> list[Ticket]:
    return [each.ticket for each in taken]


async def test_a_ticket_is_taken_as_it_was_offered(queue: Queue) -> None:
    offered = ticket(NOW - SECOND, owner=ODD, queue="mail-1", priority=-100)
    await queue.offer([offered], now=NOW)
    assert tickets_of(await take(queue)) == [offered]


async def test_a_ticket_that_was_taken_is_hidden_from_everybody(queue: Queue, connect_queue: Connect) -> None:
    await queue.offer([ticket()], now=NOW)
    other = await connect_queue()
    assert len(await take(queue)) == 1
    assert await take(other) == []
    assert await take(queue) == []


async def test_takers_that_race_share_the_tickets(queue: Queue, connect_queue: Connect) -> None:
    offered = [ticket() for _ in range(200)]
    await queue.offer(offered, now=NOW)
    queues = [queue, await connect_queue(), await connect_queue()]
    taken = await asyncio.gather(*(drained(each, limit=7) for each in queues))
    assert sorted(each.run_id for part in taken for each in part) == sorted(each.run_id for each in offered)


async def test_what_was_done_never_comes_back(queue: Queue) -> None:
    await queue.offer([ticket()], now=NOW)
    await queue.done(await take(queue))
    assert await take(queue, now=NOW + HOUR) == []


async def test_what_is_neither_done_nor_given_back_comes_back_by_itself(queue: Queue) -> None:
    if isinstance(queue, SqsQueue):
        pytest.skip("SQS hides tickets by its own clock: tests/queues/sqs shows it, and waits")
    offered = ticket()
    await queue.offer([offered], now=NOW)
    assert len(await take(queue)) == 1
    assert tickets_of(await take(queue, now=NOW + HOUR)) == [offered]


async def test_what_was_given_back_can_be_taken_at_once(queue: Queue) -> None:
    offered = ticket()
    await queue.offer([offered], now=NOW)
    await queue.give_back(await take(queue), now=NOW, at=NOW)
    assert tickets_of(await take(queue, wait=SECOND)) == [offered]


async def test_what_was_given_back_for_later_is_hidden_until_then(queue: Queue) -> None:
    offered = ticket()
    await queue.offer([offered], now=NOW)
    await queue.give_back(await take(queue), now=NOW, at=NOW + 3 * SECOND)
    assert await take(queue, now=NOW + 2 * SECOND, until=NOW + 9 * SECOND) == []
    assert tickets_of(await take(queue, now=NOW + 3 * SECOND, wait=5 * SECOND)) == [offered]


async def test_giving_back_or_finishing_what_came_back_changes_nothing(queue: Queue) -> None:
    if isinstance(queue, SqsQueue):
        pytest.skip("SQS hides tickets by its own clock: tests/queues/sqs shows it, and waits")
    await queue.offer([ticket()], now=NOW)
    first = await take(queue)
    second = await take(queue, now=NOW + HOUR)
    await queue.done(second)
    await queue.give_back(first, now=NOW + HOUR, at=NOW + HOUR)
    await queue.done(first)
    assert await take(queue, now=NOW + 2 * HOUR) == []


async def test_what_wakes_later_is_not_taken(queue: Queue) -> None:
    soon, later = ticket(NOW + SECOND), ticket(NOW + SECOND + TICK)
    await queue.offer([later, soon], now=NOW)
    assert tickets_of(await take(queue, until=NOW + SECOND)) == [soon]
    assert tickets_of(await take(queue, until=NOW + 2 * SECOND)) == [later]


async def test_a_ticket_that_is_offered_again_with_another_time_is_found_at_that_time(queue: Queue) -> None:
    first = ticket(NOW + HOUR)
    again = Ticket(**{name: getattr(first, name) for name in Ticket.__struct_fields__} | {"wake_at": NOW})
    await queue.offer([first], now=NOW)
    await queue.offer([again], now=NOW)
    assert tickets_of(await take(queue)) == [again]


async def test_only_wanted_queues_are_taken_from(queue: Queue) -> None:
    offered = {name: ticket(queue=name) for name in ("a", "b", "c")}
    await queue.offer(list(offered.values()), now=NOW)
    assert tickets_of(await take(queue, queues=("a", "b"), without=("a",))) == [offered["b"]]
    assert tickets_of(await take(queue, without=("a",))) == [offered["c"]]
    assert tickets_of(await take(queue, queues=("b", "c"))) == []
    assert tickets_of(await take(queue)) == [offered["a"]]


async def test_tickets_of_one_priority_come_in_the_order_of_their_time(queue: Queue) -> None:
    if not queue.traits.keeps_order:
        pytest.skip("this queue keeps no order, as its traits say")
    offered = [ticket(NOW - n * SECOND) for n in range(20)]
    await queue.offer(offered[::2], now=NOW)
    await queue.offer(offered[1::2], now=NOW)
    assert await drained(queue, limit=3) == offered[::-1]


async def test_higher_priorities_come_first(queue: Queue) -> None:
    if not queue.traits.keeps_priority:
        pytest.skip("this queue knows no priorities, as its traits say")
    offered = [ticket(NOW - n * SECOND, priority=priority) for n, priority in enumerate((0, 5, -3, 100, -100, 5))]
    await queue.offer(offered, now=NOW)
    assert [each.priority for each in await drained(queue, limit=2)] == [100, 5, 5, 0, -3, -100]


async def test_as_many_are_taken_as_are_asked_for(queue: Queue) -> None:
    await queue.offer([ticket() for _ in range(50)], now=NOW)
    taken = await take(queue, limit=5)
    assert 1 <= len(taken) <= 5


async def test_many_tickets_are_offered_and_finished_at_once(queue: Queue) -> None:
    offered = [ticket(owner=f"owner {n % 7}", queue=f"q{n % 3}") for n in range(2500)]
    await queue.offer(offered, now=NOW)
    found: list[Taken] = []
    while taken := await take(queue, limit=2000):
        found += taken
    assert Counter(tickets_of(found)) == Counter(offered)
    await queue.done(found)
    assert await take(queue, now=NOW + HOUR) == []


async def test_offering_and_finishing_nothing_does_nothing(queue: Queue) -> None:
    await queue.offer([], now=NOW)
    await queue.done([])
    await queue.give_back([], now=NOW, at=NOW)
    assert await take(queue) == []


async def test_a_take_waits_for_the_first_ticket(queue: Queue, connect_queue: Connect) -> None:
    other = await connect_queue()
    waiting = asyncio.create_task(take(queue, wait=10 * SECOND))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    offered = ticket(NOW - SECOND)
    began = time.monotonic()
    await other.offer([offered], now=NOW)
    assert tickets_of(await waiting) == [offered]
    assert time.monotonic() - began < 1, "it is woken, and does not poll"


async def test_a_take_without_tickets_ends_after_its_wait(queue: Queue) -> None:
    began = time.monotonic()
    assert await take(queue, wait=timedelta(milliseconds=200)) == []
    assert time.monotonic() - began >= 0.2


async def test_a_cancelled_take_leaves_the_tickets_to_others(queue: Queue, connect_queue: Connect) -> None:
    waiting = asyncio.create_task(take(queue, wait=10 * SECOND))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    offered = ticket()
    await queue.offer([offered], now=NOW)
    assert tickets_of(await take(await connect_queue(), wait=SECOND)) == [offered]


async def test_it_tells_about_how_many_tickets_it_holds(queue: Queue) -> None:
    await queue.offer([ticket() for _ in range(5)], now=NOW)
    await take(queue, limit=2)
    state = await queue.state()
    assert (state.tickets, state.refused) == (5, 0)


async def test_its_generation_stays_while_nothing_is_lost(queue: Queue, connect_queue: Connect) -> None:
    first = await queue.generation()
    await queue.offer([ticket()], now=NOW)
    assert await queue.generation() == await (await connect_queue()).generation() == first


async def test_signals_reach_the_other_processes(queue: Queue, connect_queue: Connect) -> None:
    if not queue.traits.carries_signals:
        pytest.skip("this queue carries no signals, as its traits say")
    other, heard = await connect_queue(), list[Signal]()
    arrived = asyncio.Event()
    sent = [Signal(kind=Kind.STOP, node=NodeId(new_id())), Signal(kind=Kind.PLAN, at=NOW), Signal(kind=Kind.DUE)]

    def hear(signal: Signal) -> None:
        heard.append(signal)
        arrived.set()

    stop = other.subscribe(hear)
    deadline = time.monotonic() + 10
    while not set(sent) <= set(heard):  # a signal may be lost while the subscription is on its way
        assert time.monotonic() < deadline
        arrived.clear()
        await queue.send(sent)
        await asyncio.wait([asyncio.create_task(arrived.wait())], timeout=0.2)
    stop()
    await queue.send([])
