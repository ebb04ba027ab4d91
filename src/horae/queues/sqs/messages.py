"""Tickets as the bodies of messages: JSON that people can read in Amazon's console."""

from datetime import datetime
from hashlib import sha256

import msgspec

from horae.core.model import RunId
from horae.core.tickets import Ticket


class TicketBody(msgspec.Struct, frozen=True, rename={"run_id": "run"}):
    """The body of a message."""

    run_id: str
    task: str
    queue: str
    priority: int
    owner: str
    wake_at: datetime


_decode = msgspec.json.Decoder(TicketBody).decode
_encode = msgspec.json.Encoder().encode


def body_of(ticket: Ticket) -> str:
    """Return the body of a message for a ticket."""
    body = TicketBody(ticket.run_id, ticket.task, ticket.queue, ticket.priority, ticket.owner, ticket.wake_at)
    return _encode(body).decode()


def ticket_of(body: str) -> Ticket | None:
    """Return the ticket of a message; None when it is none of ours."""
    try:
        found = _decode(body)
    except msgspec.DecodeError:
        return None
    if found.wake_at.tzinfo is None:
        return None
    return Ticket(
        run_id=RunId(found.run_id),
        task=found.task,
        queue=found.queue,
        priority=found.priority,
        owner=found.owner,
        wake_at=found.wake_at,
    )


def group_of(owner: str) -> str:
    """Return the group of an owner's messages, by which SQS lets owners take turns in a backlog ("fair queues")."""
    return sha256(owner.encode()).hexdigest()[:32]
