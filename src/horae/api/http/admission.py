"""How much may be under way at once: what is beyond that is refused before it costs anything, and may come again."""

from collections import Counter

from starlette.requests import Request

from horae.api.http.problems import RateLimited
from horae.core.errors import Unavailable

MIB = 1024 * 1024
MOST_REQUESTS = 1_000  # that one process answers at a time: more make nothing faster
MOST_BYTES = 256 * MIB  # of their bodies
SHARE = 2  # one owner may have one part in so many
RETRY_SECONDS = 1

_STAY = "horae.stay"


class Stay:
    """One request that was let in."""

    __slots__ = ("_admission", "_owner", "_size")

    def __init__(self, admission: "Admission", owner: str) -> None:
        self._admission = admission
        self._owner = owner
        self._size = 0

    def bring(self, size: int) -> None:
        """So many more bytes of its body are kept; raises RateLimited or Unavailable when that is too much."""
        self._admission.load(self._owner, size)
        self._size += size

    def leave(self) -> None:
        """It is answered."""
        self._admission.release(self._owner, self._size)


class Admission:
    """Counts what is under way in this process, and what of it is each owner's."""

    def __init__(self, *, requests: int = MOST_REQUESTS, size: int = MOST_BYTES) -> None:
        self._most_requests = requests
        self._most_bytes = size
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._all_requests = 0
        self._all_bytes = 0

    def enter(self, request: Request, owner: str) -> Stay:
        """Let a request in; raises RateLimited when its owner has too many under way, Unavailable when all have."""
        _weigh(self._requests[owner], self._all_requests, 1, self._most_requests)
        self._requests[owner] += 1
        self._all_requests += 1
        stay = request.scope[_STAY] = Stay(self, owner)
        return stay

    def load(self, owner: str, size: int) -> None:
        """Keep so many bytes for an owner."""
        _weigh(self._bytes[owner], self._all_bytes, size, self._most_bytes)
        self._bytes[owner] += size
        self._all_bytes += size

    def release(self, owner: str, size: int) -> None:
        """A request of an owner, and what it brought, is over."""
        self._all_requests -= 1
        self._all_bytes -= size
        self._bytes[owner] -= size
        self._requests[owner] -= 1
        if not self._requests[owner]:
            del self._requests[owner], self._bytes[owner]


def stay_of(request: Request) -> Stay | None:
    """What lets a request keep its body; None for those that everybody may send."""
    stay: Stay | None = request.scope.get(_STAY)
    return stay


def _weigh(own: int, everybodys: int, more: int, most: int) -> None:
    if own + more > most // SHARE:
        raise RateLimited(RETRY_SECONDS)
    if everybodys + more > most:
        raise Unavailable("this node has as much to do as it can; try again")
