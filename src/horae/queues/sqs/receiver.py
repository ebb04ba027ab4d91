"""Receives messages by long polls, one or more for each SQS queue, while somebody waits for tickets."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import Any

from horae.aws_api.client import ServiceClient
from horae.aws_api.errors import ResourceMissing
from horae.aws_api.retries import RetryBudget, RetryRule
from horae.core.errors import HoraeError, Unavailable
from horae.core.values import Value
from horae.queues.sqs.buffer import Buffer, Received
from horae.queues.sqs.lines import TicketLine, TicketLines
from horae.queues.sqs.messages import ticket_of

BATCH = 10  # messages that SQS returns at once
LONG_POLL = 20  # seconds that SQS waits for a message: its longest, so that an idle queue costs least
BUSY_POLL = 5  # seconds, where messages came lately: what SQS sends to one who has just died comes again sooner
IDLE_AFTER = 12  # polls without a message
MOST_WIDE = 16  # receives at once from one SQS queue with a backlog
MOST_POLLS = 100  # long polls at once; with more SQS queues they take turns, and are shorter
SPARE = 3.0  # seconds before others get a message, in which it is not handed out any more
KEPT_EARLY = timedelta(seconds=5)  # a ticket that wakes so soon is kept here; others are hidden until their time
SHORT = 0.5  # seconds; a take that waits less looks by itself
PATIENCE = 1.0  # seconds after which tickets that nobody here took are given back
FIND_EVERY = (5.0, 30.0)  # seconds between looks for new SQS queues: the first, and the longest when there are none
BACKOFF = RetryBudget(RetryRule(first_delay=0.2, longest_delay=5.0))

UNWANTED_HIDDEN = (1.0, 60.0)  # seconds in which others can take what is not wanted here: first, and at most
MOST_UNWANTED = 20  # takes after which a ticket is deleted that nobody wanted: one is offered again if it is due

GiveBack = Callable[[Sequence[tuple[Received, float]]], Coroutine[Any, Any, None]]  # with seconds
Delete = Callable[[Sequence[Received]], Coroutine[Any, Any, None]]
Refuse = Callable[[str, str, Sequence[dict[str, Any]]], Coroutine[Any, Any, None]]  # name and URL of the SQS queue


class Wish(Value, frozen=True, kw_only=True):
    """Which tickets are wanted."""

    names: frozenset[str] | None  # SQS queues; None: all
    queues: frozenset[str]  # of Horae; empty: all
    without_names: frozenset[str]
    without: frozenset[str]
    tasks: frozenset[str]
    limit: int

    def includes(self, line: TicketLine) -> bool:
        """Whether tickets of an SQS queue are wanted."""
        return (self.names is None or line.name in self.names) and line.name not in self.without_names

    def fits(self, received: Received) -> bool:
        """Whether a ticket is wanted."""
        ticket = received.ticket
        known = ticket.task in self.tasks and (not self.queues or ticket.queue in self.queues)
        return known and ticket.queue not in self.without


NOTHING = Wish(
    names=frozenset(),
    queues=frozenset(),
    without_names=frozenset(),
    without=frozenset(),
    tasks=frozenset(),
    limit=0,
)


class Receiver:
    """Fills a buffer from SQS, no further than somebody asks for."""

    def __init__(
        self,
        client: ServiceClient,
        lines: TicketLines,
        *,
        visibility: int,
        give_back: GiveBack,
        delete: Delete,
        refuse: Refuse,
    ) -> None:
        """`give_back` lets others take messages after some seconds, `refuse` sets aside what is no ticket."""
        self._client = client
        self._lines = lines
        self._visibility = visibility
        self._give_back = give_back
        self._delete = delete
        self._refuse = refuse
        self._elapsed = asyncio.get_running_loop().time
        self.buffer = Buffer(self._elapsed)
        self._polls: dict[str, asyncio.Task[None]] = {}
        self._finding: asyncio.Task[None] | None = None
        self._resting: asyncio.Task[None] | None = None
        self._places = asyncio.Semaphore(MOST_POLLS)
        self._changed = asyncio.Event()  # tickets came, or an error
        self._asked = asyncio.Event()  # somebody waits for tickets, or has lately
        self._waiting = 0  # who wait now
        self._waited_at = 0.0  # when the last of them went
        self._left = asyncio.Event()  # one of them went
        self._room = asyncio.Event()  # tickets were taken, or are wanted
        self._error: Unavailable | None = None
        self._wish = NOTHING
        self._until: datetime | None = None  # of the last question,
        self._until_at = 0.0  # which was asked then
        lines.when_new(self._start)

    async def take(self, wish: Wish, *, until: datetime, wait: timedelta) -> list[Received]:
        """Take tickets that wake up to `until`; waits up to `wait` for the first, and at least for an answer of SQS.

        Returns earlier, with nothing, when a ticket is in hand that would be wanted by now.
        """
        began = self._elapsed()
        deadline = began + wait.total_seconds()
        self._wish, self._until, self._until_at = wish, until, began
        if unwanted := self.buffer.take_unless(wish.fits):
            await self._give_back([(each, 0.0) for each in unwanted])
        self._waiting += 1
        self._start()
        self._asked.set()
        self._room.set()
        try:
            if deadline - began < SHORT and not self.buffer.next_at():
                await self._look_once(wish)
            return await self._first(wish, until, deadline)
        except asyncio.CancelledError:
            self._asked.clear()  # nobody asks any more: what comes now goes to others at once
            raise
        finally:
            self._waiting -= 1
            self._left.set()
            self._waited_at = self._elapsed()
            self._rest_later()

    async def _look_once(self, wish: Wish) -> None:
        """Ask each SQS queue once, for a take that does not wait for those that poll."""
        lines = [line for line in self._lines.known.values() if wish.includes(line)]
        answers = await asyncio.gather(*(self._receive(line, 0) for line in lines), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, HoraeError):
                self._fail(answer)
            elif isinstance(answer, BaseException):
                raise answer

    async def _first(self, wish: Wish, until: datetime, deadline: float) -> list[Received]:
        while True:
            self._changed.clear()
            if found := self.buffer.take(until, wish.limit):
                self._room.set()
                return found
            if (error := self._error) is not None:
                self._error = None
                raise error
            next_at, left = self.buffer.next_at(), deadline - self._elapsed()
            if next_at is not None:
                left = min(left, (next_at - self._reach()).total_seconds())
            if left <= 0:
                return []
            try:
                async with asyncio.timeout(left):
                    await self._changed.wait()
            except TimeoutError:
                return []

    async def close(self) -> None:
        """Stop polling, and let others have what nobody took."""
        tasks = [task for task in (*self._polls.values(), self._finding, self._resting) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._return_all()

    def _start(self) -> None:
        """Poll every SQS queue that is known and wanted, and look for further ones."""
        for name, line in self._lines.known.items() if self._waiting else ():
            if name not in self._polls and self._wish.includes(line):
                self._polls[name] = asyncio.create_task(self._poll(line), name=f"poll {name}")
        if self._finding is None and self._waiting:
            self._finding = asyncio.create_task(self._find(), name="find sqs queues")

    def _fail(self, error: HoraeError) -> None:
        """Raise an error where tickets are taken, as one that passes: loops go on after it."""
        self._error = error if isinstance(error, Unavailable) else Unavailable(str(error))
        self._changed.set()

    # --- finding

    async def _find(self) -> None:
        """Look for new SQS queues, the longer there are none the less often."""
        wait, longest = FIND_EVERY
        while True:
            await self._asked.wait()
            before = len(self._lines.known)
            try:
                await self._lines.find()
            except HoraeError as exc:
                self._fail(exc)
            wait = FIND_EVERY[0] if len(self._lines.known) > before else min(wait * 1.5, longest)
            await asyncio.sleep(wait)

    # --- polling

    async def _poll(self, line: TicketLine) -> None:
        """Receive from one SQS queue for ever; with a backlog by many receives at once."""
        width, failures, empty = 1, 0, 0
        while True:
            await self._wanted(line)
            try:
                counts = await self._receive_many(line, min(width, self._missing()), is_idle=empty >= IDLE_AFTER)
                failures, empty = 0, 0 if any(counts) else empty + 1
            except ResourceMissing:
                self._lines.forget(line)
                del self._polls[line.name]
                self._start()  # it may have been created again
                return
            except HoraeError as exc:
                failures += 1
                self._fail(exc)
                await asyncio.sleep(BACKOFF.pause(failures))
                continue
            width = min(2 * width, MOST_WIDE) if min(counts) == BATCH else 1

    async def _wanted(self, line: TicketLine) -> None:
        """Wait until somebody asks for tickets of an SQS queue, and for more of them than are in hand."""
        await self._asked.wait()
        while self._missing() == 0 or not self._wish.includes(line) or not self._asked.is_set():
            self._room.clear()
            await self._room.wait()

    def _missing(self) -> int:
        """Return how many receives it takes to fill what is asked for."""
        return -(-max(self._wish.limit - len(self.buffer), 0) // BATCH)

    async def _receive_many(self, line: TicketLine, width: int, *, is_idle: bool) -> list[int]:
        """Receive from one SQS queue; returns how many messages each receive brought."""
        wait = 0 if width > 1 else LONG_POLL if is_idle else BUSY_POLL
        receives = (self._receive(line, wait) for _ in range(max(width, 1)))
        answers = await asyncio.gather(*receives, return_exceptions=True)
        counts = [answer for answer in answers if not isinstance(answer, BaseException)]
        for answer in answers:  # all are over: none is left running behind an error
            if isinstance(answer, BaseException):
                raise answer
        return counts

    async def _receive(self, line: TicketLine, wait: int) -> int:
        if wait and len(self._polls) > MOST_POLLS:
            wait = max(wait * MOST_POLLS // len(self._polls), 1)
        body = {
            "QueueUrl": line.url,
            "MaxNumberOfMessages": BATCH,
            "VisibilityTimeout": self._visibility,
            "WaitTimeSeconds": wait,
            "MessageSystemAttributeNames": ["ApproximateReceiveCount"],
        }
        async with self._places:
            asked_at = self._elapsed()
            answer = await self._client.call("ReceiveMessage", body, timeout=wait + 5.0)
        messages = answer.get("Messages") or []
        if messages:
            # A message that came at once was hidden when it was asked for; later ones are hidden for longer than this.
            await self._keep(line, messages, hidden_until=max(asked_at, self._elapsed() - 1.0) + self._visibility)
        return len(messages)

    async def _keep(self, line: TicketLine, messages: Sequence[dict[str, Any]], *, hidden_until: float) -> None:
        """Keep the tickets of messages that are soon due; hide those that are early, refuse what is no ticket."""
        until = self._reach() + KEPT_EARLY
        unreadable: list[dict[str, Any]] = []
        hidden: list[tuple[Received, float]] = []
        unwanted: list[Received] = []
        kept: list[Received] = []
        for message in messages:
            ticket = ticket_of(message.get("Body", ""))
            if ticket is None:
                unreadable.append(message)
                continue
            handle = message["ReceiptHandle"]
            received = Received(ticket=ticket, line=line, handle=handle, until=hidden_until - SPARE)
            times = int(message.get("Attributes", {}).get("ApproximateReceiveCount", 1))
            if ticket.wake_at > until:
                hidden.append((received, (ticket.wake_at - until + KEPT_EARLY).total_seconds()))
            elif self._wish.fits(received):
                kept.append(received)
            elif times < MOST_UNWANTED:
                hidden.append((received, min(UNWANTED_HIDDEN[0] * 2 ** (times - 1), UNWANTED_HIDDEN[1])))
            else:
                unwanted.append(received)
        if kept and not self._asked.is_set():
            hidden += [(each, 0.0) for each in kept]
        elif kept:
            self.buffer.add(kept)
            self._changed.set()
            self._rest_later()
        if hidden:
            await self._give_back(hidden)
        if unwanted:
            await self._delete(unwanted)
        if unreadable:
            await self._refuse(line.name, line.url, unreadable)

    def _reach(self) -> datetime:
        """Return up to when tickets are wanted now."""
        assert self._until is not None
        return self._until + timedelta(seconds=self._elapsed() - self._until_at)

    # --- giving back

    def _rest_later(self) -> None:
        """See to it that polling ends, and leftovers are given back, some time after the last question."""
        if self._resting is None or self._resting.done():
            self._resting = asyncio.create_task(self._rest(), name="rest from sqs")

    async def _rest(self) -> None:
        while self._asked.is_set() and (self._waiting or self._elapsed() < self._waited_at + PATIENCE):
            self._left.clear()
            await (self._left.wait() if self._waiting else asyncio.sleep(PATIENCE))
        self._asked.clear()
        try:
            await self._return_all()
        except HoraeError as exc:
            self._fail(exc)

    async def _return_all(self) -> None:
        """Let others have what nobody here has taken."""
        await self._give_back([(each, 0.0) for each in self.buffer.take_unless(lambda _: False)])
