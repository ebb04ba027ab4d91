"""Owners take turns at requests that cost more than others: one of each owner at a time, and a few in all."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from horae.api.http.problems import RateLimited

RETRY_SECONDS = 1


class OwnerTurns:
    """Lets few requests run at once; each owner has a line of its own, and the owners take turns."""

    def __init__(self, what: str, *, at_once: int, waiting: int) -> None:
        """Create the turns; `what` names the requests, and at most `waiting` of one owner wait."""
        self._what = what
        self._at_once = at_once
        self._most = waiting
        self._busy: set[str] = set()  # owners whose request runs
        self._lines: dict[str, deque[asyncio.Future[None]]] = {}  # the owner whose turn is next comes first

    @asynccontextmanager
    async def turn(self, owner: str) -> AsyncIterator[None]:
        """Wait for a turn of the owner; raises RateLimited when too many of its requests wait already."""
        await self._enter(owner)
        try:
            yield
        finally:
            self._leave(owner)

    async def _enter(self, owner: str) -> None:
        if owner not in self._busy and len(self._busy) < self._at_once:
            self._busy.add(owner)
            return
        line = self._lines.setdefault(owner, deque())
        if len(line) >= self._most:
            raise RateLimited(
                RETRY_SECONDS, f"{self._most} {self._what} wait, as many as one owner may have; send fewer at once"
            )
        turn = asyncio.get_running_loop().create_future()
        line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._give_up(owner, turn)
            else:
                self._leave(owner)  # its turn had come
            raise

    def _give_up(self, owner: str, turn: "asyncio.Future[None]") -> None:
        line = self._lines[owner]
        line.remove(turn)
        if not line:
            del self._lines[owner]

    def _leave(self, owner: str) -> None:
        self._busy.remove(owner)
        for following in [*self._lines]:
            if len(self._busy) == self._at_once:
                return
            if following not in self._busy:
                self._admit(following)

    def _admit(self, owner: str) -> None:
        """Give the first in the line of an owner its turn; the owner's next one comes after those of all others."""
        line = self._lines.pop(owner)
        turn = line.popleft()
        if line:
            self._lines[owner] = line
        self._busy.add(owner)
        turn.set_result(None)
