"""In which order tickets are handed out that a process has in hand."""

from datetime import timedelta

from horae.queues.sqs.buffer import Buffer, Received
from horae.queues.sqs.lines import TicketLine
from horae.queues.sqs.names import PriorityClass
from tests.queues.sqs.conftest import now, ticket

SOON = timedelta(seconds=1)


def _received(
    number: int, *, priority: int = 0, owner: str = "o", after: float = 0.0, until: float = 100.0
) -> Received:
    level = PriorityClass.of(priority)
    found = ticket(number, priority=priority, owner=owner, after=after)
    return Received(ticket=found, line=TicketLine(name=level.name, url="", level=level), handle="", until=until)


def _taken(buffer: Buffer, limit: int) -> list[int]:
    return [int(each.ticket.run_id, 16) for each in buffer.take(now() + SOON, limit)]


def test_tickets_of_a_higher_class_are_taken_first() -> None:
    buffer = Buffer(lambda: 0.0)
    buffer.add([_received(1, priority=-1), _received(2), _received(3, priority=5)])
    assert [_taken(buffer, 1) for _ in range(3)] == [[3], [2], [1]]


def test_owners_take_turns() -> None:
    buffer = Buffer(lambda: 0.0)
    buffer.add([_received(number, owner="busy", after=-9) for number in range(8)])
    buffer.add([_received(8, owner="calm"), _received(9, owner="calm")])
    assert _taken(buffer, 4) == [0, 8, 1, 9]


def test_tickets_of_one_owner_are_taken_by_their_time() -> None:
    buffer = Buffer(lambda: 0.0)
    buffer.add([_received(1, after=-1), _received(2, after=-3), _received(3, after=-2)])
    assert _taken(buffer, 2) == [2, 3]


def test_a_ticket_that_wakes_later_stays_in_hand() -> None:
    buffer = Buffer(lambda: 0.0)
    buffer.add([_received(1, after=3)])
    assert _taken(buffer, 10) == []
    assert len(buffer) == 1
    assert buffer.next_at() is not None


def test_a_ticket_that_others_may_have_by_now_is_not_handed_out() -> None:
    time = 0.0
    buffer = Buffer(lambda: time)
    buffer.add([_received(1, until=12), _received(2, until=14)])
    time = 13.0
    assert _taken(buffer, 10) == [2]
    assert len(buffer) == 0
