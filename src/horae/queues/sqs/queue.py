"""The queue on Amazon SQS: tickets that wake within a quarter of an hour, handed out the lead before their time.

A message is deleted once its run is claimed, so a long run does not depend on the time for which messages are hidden. A
ticket whose taker dies before that comes back after VISIBILITY.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime, timedelta
from itertools import groupby, islice
from typing import Any

import structlog

from horae.aws_api.address import AwsAddress
from horae.aws_api.client import ServiceClient
from horae.aws_api.counters import Counters
from horae.aws_api.errors import ResourceMissing
from horae.core.drafts import DEFAULT_QUEUE
from horae.core.errors import HoraeError
from horae.core.model import RunId
from horae.core.signals import Signal
from horae.core.tickets import Ticket
from horae.ports.queue import QueueState, QueueTraits, Taken
from horae.queues.sqs.batches import Entry, send_batches
from horae.queues.sqs.buffer import Received
from horae.queues.sqs.door import at_the_door
from horae.queues.sqs.events import EventMessage
from horae.queues.sqs.lines import TicketLine, TicketLines
from horae.queues.sqs.messages import body_of, group_of
from horae.queues.sqs.names import PriorityClass, line_name
from horae.queues.sqs.receiver import BATCH, MOST_POLLS, MOST_WIDE, Receiver, Wish

log = structlog.get_logger(__name__)

LONGEST_DELAY = timedelta(minutes=15)  # what SQS keeps a message back for
LONGEST_HIDDEN = 12 * 3600  # seconds that SQS hides a message for
VISIBILITY = 15  # seconds between the take of a ticket and the claim of its run, at most
MOST_SENT = 50_000  # tickets that are remembered
STATE_LASTS = 60.0  # seconds: planners ask each second, and each answer costs requests
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessagesNotVisible")


class SqsQueue:
    """Tickets in SQS: one SQS queue for each queue of Horae and class of priority."""

    traits = QueueTraits(
        max_delay=LONGEST_DELAY, batch=BATCH, keeps_priority=False, keeps_order=False, carries_signals=False
    )

    def __init__(self, address: AwsAddress, *, lead: timedelta = timedelta(seconds=1)) -> None:
        """`lead` is how long before their time tickets are wanted."""
        self._prefix = address.prefix
        self._lead = lead
        self.counters = Counters()
        self._client = ServiceClient("sqs", region=address.region, endpoint=address.endpoint, counters=self.counters)
        self._polls = ServiceClient(
            "sqs",
            region=address.region,
            endpoint=address.endpoint,
            connections=MOST_POLLS + MOST_WIDE,
            counters=self.counters,
        )
        self._lines = TicketLines(self._client, address.prefix)
        self._receiver: Receiver | None = None
        self._connecting = asyncio.Lock()
        self._sent = SentTickets()
        self._is_fair = True  # until the service refuses the groups that make it so
        self._state: tuple[float, QueueState] | None = None

    @at_the_door
    async def open(self) -> None:
        """Connect, and look which SQS queues there are; whoever only looks creates none."""
        await self._connected()
        await self._lines.find()

    async def close(self) -> None:
        """Give back what was received and not taken, and close every connection."""
        if self._receiver is not None:
            try:
                await self._receiver.close()
            except HoraeError as exc:
                log.warning("sqs_tickets_not_given_back", reason=str(exc))  # they come again after VISIBILITY
            self._receiver = None
        await self._polls.close()
        await self._client.close()

    async def _connected(self) -> Receiver:
        """Find keys and endpoint, unless that is done."""
        async with self._connecting:
            if self._receiver is None:
                await self._client.open()
                await self._polls.open()
                self._receiver = Receiver(
                    self._polls,
                    self._lines,
                    visibility=VISIBILITY,
                    give_back=self._hide,
                    delete=self._delete,
                    refuse=self._refuse,
                )
            return self._receiver

    @at_the_door
    async def offer(self, tickets: Sequence[Ticket], *, now: datetime) -> None:
        """Send tickets, to be received the lead before their time; some may be there after an error, too."""
        await self._connected()
        lines: dict[tuple[str, PriorityClass], list[Ticket]] = {}
        for ticket in self._sent.without(tickets, now):
            lines.setdefault((ticket.queue, PriorityClass.of(ticket.priority)), []).append(ticket)
        sends = (self._send(queue, level, group, now) for (queue, level), group in lines.items())
        for answer in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(answer, BaseException):
                raise answer
        self._sent.add(tickets)

    @at_the_door
    async def take(
        self,
        *,
        queues: Sequence[str],
        without: Collection[str],
        tasks: Sequence[str],
        now: datetime,
        until: datetime,
        limit: int,
        wait: timedelta,
    ) -> list[Taken]:
        """Take tickets; those that are much too early are hidden until their time, those of other tasks for a while."""
        receiver = self._receiver or await self._connected()
        if not queues or DEFAULT_QUEUE in queues:  # which nearly everybody needs: its first ticket must not be late
            level = PriorityClass.NORMAL
            await self._lines.need(line_name(self._prefix, DEFAULT_QUEUE, level), level)
        wish = Wish(
            names=self._names(queues) if queues else None,
            queues=frozenset(queues),
            without_names=self._names(without),
            without=frozenset(without),
            tasks=frozenset(tasks),
            limit=limit,
        )
        received = await receiver.take(wish, until=until, wait=wait)
        return [Taken(ticket=each.ticket, receipt=_receipt(each.line.url, each.handle)) for each in received]

    @at_the_door
    async def done(self, taken: Sequence[Taken]) -> None:
        """Delete the messages of tickets."""
        await self._for_each_line("DeleteMessageBatch", [(each.receipt, {}) for each in taken])

    @at_the_door
    async def give_back(self, taken: Sequence[Taken], *, now: datetime, at: datetime) -> None:
        """Let others take tickets from `at` on."""
        seconds = _hidden_seconds((at - now).total_seconds())
        changes = [(each.receipt, {"VisibilityTimeout": seconds}) for each in taken]
        await self._for_each_line("ChangeMessageVisibilityBatch", changes)

    async def taken_from_event(self, messages: Sequence[EventMessage]) -> dict[str, Taken]:
        """Return tickets that Lambda has received, by the ids of their messages; what is no ticket is set aside."""
        await self._connected()
        taken: dict[str, Taken] = {}
        for name, group in groupby(sorted(messages, key=_queue_name), key=_queue_name):
            url = await self._lines.url_of(name)
            unreadable: list[dict[str, Any]] = []
            for message in group:
                if message.ticket is None:
                    unreadable.append(message.as_received())
                else:
                    taken[message.id] = Taken(ticket=message.ticket, receipt=_receipt(url, message.handle))
            if unreadable:
                await self._refuse(name, url, unreadable)
        return taken

    async def generation(self) -> str:
        """Return always the same: SQS keeps what it has accepted."""
        return ""

    @at_the_door
    async def state(self) -> QueueState:
        """Return about how many tickets there are, and how many messages were set aside; up to STATE_LASTS old."""
        if self._state is None or time.monotonic() >= self._state[0] + STATE_LASTS:
            await self._connected()
            await self._lines.find()
            tickets = await asyncio.gather(*(self._count(line.url) for line in self._lines.known.values()))
            url = self._lines.refused_url
            refused = 0 if url is None else await self._count(url)
            self._state = time.monotonic(), QueueState(tickets=sum(tickets), refused=refused)
        return self._state[1]

    async def send(self, signals: Sequence[Signal]) -> None:
        """Deliver nothing: SQS has no way to reach all processes."""

    def subscribe(self, heard: Callable[[Signal], None]) -> Callable[[], None]:
        """Hear nothing."""
        return lambda: None

    def _names(self, queues: Iterable[str]) -> frozenset[str]:
        return frozenset(line_name(self._prefix, queue, level) for queue in queues for level in PriorityClass)

    async def _send(self, queue: str, level: PriorityClass, tickets: Sequence[Ticket], now: datetime) -> None:
        line = await self._lines.need(line_name(self._prefix, queue, level), level)
        try:
            await self._send_to(line, [self._entry(ticket, now) for ticket in tickets])
        except ResourceMissing:  # somebody deleted it
            self._lines.forget(line)
            line = await self._lines.need(line.name, level)
            await self._send_to(line, [self._entry(ticket, now) for ticket in tickets])

    def _entry(self, ticket: Ticket, now: datetime) -> Entry:
        delay = min(max(ticket.wake_at - self._lead - now, timedelta()), LONGEST_DELAY)
        entry = {"MessageBody": body_of(ticket), "DelaySeconds": int(delay.total_seconds())}
        return {**entry, "MessageGroupId": group_of(ticket.owner)} if self._is_fair else entry

    async def _send_to(self, line: TicketLine, entries: Sequence[Entry]) -> None:
        refused = await send_batches(self._client, "SendMessageBatch", line.url, entries)
        if refused and self._is_fair and all("MessageGroupId" in each.entry for each in refused):
            self._is_fair = False  # an older service or emulator, where only first-in-first-out queues have groups
            log.info("sqs_without_fair_queues", reason=refused[0].message)
            plain = [{**each.entry} for each in refused]
            for entry in plain:
                del entry["MessageGroupId"]
            refused = await send_batches(self._client, "SendMessageBatch", line.url, plain)
        if refused:
            log.error("sqs_refuses_tickets", tickets=len(refused), code=refused[0].code, reason=refused[0].message)

    async def _for_each_line(self, action: str, entries: Sequence[tuple[str, Entry]]) -> None:
        """Send entries with their handles; a message that is gone needs nothing more."""
        lines: dict[str, list[Entry]] = {}
        for receipt, entry in entries:
            url, _, handle = receipt.partition(" ")
            lines.setdefault(url, []).append({**entry, "ReceiptHandle": handle})
        sends = (send_batches(self._client, action, url, group) for url, group in lines.items())
        for answer in await asyncio.gather(*sends, return_exceptions=True):
            if isinstance(answer, BaseException) and not isinstance(answer, ResourceMissing):
                raise answer

    async def _hide(self, received: Sequence[tuple[Received, float]]) -> None:
        """Let others take messages after some seconds."""
        changes = [
            (_receipt(each.line.url, each.handle), {"VisibilityTimeout": _hidden_seconds(seconds)})
            for each, seconds in received
        ]
        await self._for_each_line("ChangeMessageVisibilityBatch", changes)

    async def _delete(self, received: Sequence[Received]) -> None:
        await self._for_each_line(
            "DeleteMessageBatch", [(_receipt(each.line.url, each.handle), {}) for each in received]
        )

    async def _refuse(self, name: str, url: str, messages: Sequence[dict[str, Any]]) -> None:
        """Set aside messages that are no tickets."""
        refused, _ = await self._lines.refused()
        log.warning("sqs_message_refused", messages=len(messages), queue=name, first=messages[0].get("MessageId"))
        await send_batches(
            self._client, "SendMessageBatch", refused, [{"MessageBody": each.get("Body") or " "} for each in messages]
        )
        handles: list[tuple[str, Entry]] = [(_receipt(url, each["ReceiptHandle"]), {}) for each in messages]
        await self._for_each_line("DeleteMessageBatch", handles)

    async def _count(self, url: str) -> int:
        try:
            answer = await self._client.call("GetQueueAttributes", {"QueueUrl": url, "AttributeNames": list(COUNTS)})
        except ResourceMissing:
            return 0
        return sum(int(answer.get("Attributes", {}).get(name, 0)) for name in COUNTS)


class SentTickets:
    """Tickets that this process has sent and that wake later: planners offer what they fire, and again as watchers."""

    def __init__(self) -> None:
        self._wake_at: dict[RunId, datetime] = {}

    def without(self, tickets: Sequence[Ticket], now: datetime) -> list[Ticket]:
        """Return the tickets that were not sent for this time, and all that is due: somebody misses it."""
        return [each for each in tickets if each.wake_at <= now or self._wake_at.get(each.run_id) != each.wake_at]

    def add(self, tickets: Sequence[Ticket]) -> None:
        """Note what was sent; the oldest is forgotten."""
        self._wake_at.update((each.run_id, each.wake_at) for each in tickets)
        for run_id in list(islice(self._wake_at, max(len(self._wake_at) - MOST_SENT, 0))):
            del self._wake_at[run_id]


def _queue_name(message: EventMessage) -> str:
    return message.queue_name


def _receipt(url: str, handle: str) -> str:
    return f"{url} {handle}"


def _hidden_seconds(seconds: float) -> int:
    return min(max(int(seconds), 0), LONGEST_HIDDEN)
