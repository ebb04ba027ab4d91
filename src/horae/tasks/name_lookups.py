"""Resolves host names in threads, with a limit for each owner, so that nobody waits for another's name servers."""

import asyncio
import socket
import threading
from collections import Counter, deque
from dataclasses import dataclass

import structlog

log = structlog.get_logger(__name__)

MAX_LOOKUPS = 200  # at the same time; one whose name server does not answer takes up to half a minute
MAX_OF_OWNER = 20
SECONDS = 20.0  # for the turn and the answer together

Answer = list[str] | Exception
Key = tuple[str, str, int]  # owner, host, port


@dataclass(slots=True)
class _Lookup:
    key: Key
    answer: asyncio.Future[Answer]
    callers: int = 0
    started: bool = False


class NameLookups:
    """The lookups of one process; all its methods are for the event loop.

    The event loop itself has only a few threads for lookups, among them those of the store's connections, which a name
    server that does not answer would block.
    """

    def __init__(self, *, limit: int = MAX_LOOKUPS, of_owner: int = MAX_OF_OWNER, seconds: float = SECONDS) -> None:
        self._limit = limit
        self._of_owner = of_owner
        self._seconds = seconds
        self._lookups: dict[Key, _Lookup] = {}
        self._waiting: dict[str, deque[_Lookup]] = {}  # by owner; the owner whose turn is next is first
        self._running: Counter[str] = Counter()

    async def addresses(self, host: str, port: int, *, owner: str) -> list[str]:
        """Return the addresses of a host; callers with the same question share one lookup.

        Raises what the resolver raises, and TimeoutError when the answer takes too long.
        """
        lookup = self._lookup((owner, host, port))
        lookup.callers += 1
        try:
            async with asyncio.timeout(self._seconds):
                answer = await asyncio.shield(lookup.answer)
        finally:
            lookup.callers -= 1
            self._forget_unwanted(lookup)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _lookup(self, key: Key) -> _Lookup:
        """Return the lookup that answers a question, a new one if there is none."""
        if (found := self._lookups.get(key)) is not None:
            return found
        lookup = self._lookups[key] = _Lookup(key, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(key[0], deque()).append(lookup)
        self._start_waiting()
        return lookup

    def _start_waiting(self) -> None:
        """Start lookups, one of each owner in turn."""
        while self._running.total() < self._limit:
            owner = next((owner for owner in self._waiting if self._running[owner] < self._of_owner), None)
            if owner is None:
                return
            line = self._waiting.pop(owner)
            self._start(line.popleft())
            if line:
                self._waiting[owner] = line  # behind the others

    def _start(self, lookup: _Lookup) -> None:
        lookup.started = True
        self._running[lookup.key[0]] += 1
        loop = asyncio.get_running_loop()

        def resolve() -> None:
            answer = _resolved(lookup.key)
            try:
                loop.call_soon_threadsafe(self._ended, lookup, answer)
            except RuntimeError:  # the loop is closed, and nobody waits for the answer
                log.debug("lookup_outlived_worker", host=lookup.key[1])

        try:
            threading.Thread(target=resolve, name="horae-lookup", daemon=True).start()
        except RuntimeError as exc:  # the machine has no thread for it
            loop.call_soon(self._ended, lookup, OSError(str(exc)))

    def _ended(self, lookup: _Lookup, answer: Answer) -> None:
        """Free the place first, so that whoever gets the answer can ask the next question."""
        owner = lookup.key[0]
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]
        del self._lookups[lookup.key]
        self._start_waiting()
        lookup.answer.set_result(answer)

    def _forget_unwanted(self, lookup: _Lookup) -> None:
        if lookup.callers or lookup.started:
            return
        owner = lookup.key[0]
        self._waiting[owner].remove(lookup)
        if not self._waiting[owner]:
            del self._waiting[owner]
        del self._lookups[lookup.key]


def _resolved(key: Key) -> Answer:
    _, host, port = key
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except Exception as exc:  # noqa: BLE001 - raised in the caller
        return exc
    return list(dict.fromkeys(str(address[0]) for *_, address in found))
