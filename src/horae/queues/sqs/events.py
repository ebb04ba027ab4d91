"""Messages as Lambda gets them from SQS."""

from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.errors import Malformed
from horae.core.tickets import Ticket
from horae.core.values import Value
from horae.queues.sqs.messages import ticket_of


class EventMessage(Value, frozen=True, kw_only=True):
    """A message of an event."""

    id: str  # by which Lambda is told that it must come again
    queue_name: str  # in SQS
    handle: str
    body: str
    ticket: Ticket | None  # None: it is no ticket

    def as_received(self) -> dict[str, Any]:
        """Return the message as SQS gives it to those who receive."""
        return {"MessageId": self.id, "ReceiptHandle": self.handle, "Body": self.body}


def messages_of(event: object) -> list[EventMessage]:
    """Read the event of an SQS event source; raises `Malformed` for any other."""
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, Sequence) or not all(_is_from_sqs(record) for record in records):
        raise Malformed("the event is none of an SQS event source: it has no Records with eventSource aws:sqs")
    return [_message_of(record) for record in records]


def _is_from_sqs(record: object) -> bool:
    needed = ("messageId", "receiptHandle", "body", "eventSourceARN")
    return (
        isinstance(record, Mapping)
        and record.get("eventSource") == "aws:sqs"
        and all(isinstance(record.get(name), str) for name in needed)
    )


def _message_of(record: Mapping[str, Any]) -> EventMessage:
    return EventMessage(
        id=record["messageId"],
        queue_name=record["eventSourceARN"].rpartition(":")[2],
        handle=record["receiptHandle"],
        body=record["body"],
        ticket=ticket_of(record["body"]),
    )
