"""Limits how many requests, body bytes and streams are in progress; more wait, or are refused before they cost much."""

from collections import Counter

from starlette.requests import Request

from horae.api.http.owner_turns import OwnerTurns
from horae.api.http.problems import RateLimited
from horae.api.http.protocol import MAX_CONNECTIONS
from horae.core.errors import Unavailable

MIB = 1024 * 1024
MAX_REQUESTS = 1_000  # in progress in one process; more would not be faster
MAX_BYTES = 256 * MIB  # of their bodies
MAX_STREAMS = MAX_CONNECTIONS // 2  # open in one process; each keeps a connection
MAX_STREAMS_OF_OWNER = 500  # each may be written to several times a second
SHARE = 2  # one owner may use 1/SHARE of each limit
LISTS_AT_ONCE = 2  # one owner's leave room for another's
LISTS_WAITING = 64  # of one owner; as each looks at a bounded number of rows, the last waits for seconds at most
BULK_AT_ONCE = 16  # each writes in small chunks
BULK_WAITING = 8  # of one owner; each may take ten seconds, and clients wait for thirty
RETRY_SECONDS = 1

_ADMITTED = "horae.admitted"


class Admitted:
    """One admitted request, and how many bytes of its body are in memory."""

    __slots__ = ("_admission", "_owner", "_size")

    def __init__(self, admission: "Admission", owner: str) -> None:
        self._admission = admission
        self._owner = owner
        self._size = 0

    def add_bytes(self, size: int) -> None:
        """Count more bytes of the body; raises RateLimited or Unavailable above the limits."""
        self._admission.load(self._owner, size)
        self._size += size

    def leave(self) -> None:
        """Release what the request counted, after its response."""
        self._admission.release(self._owner, self._size)


class AdmittedStream:
    """One stream that is open."""

    __slots__ = ("_admission", "_owner")

    def __init__(self, admission: "Admission", owner: str) -> None:
        self._admission = admission
        self._owner = owner

    def leave(self) -> None:
        """Remove the stream from the counts, after its end."""
        self._admission.close_stream(self._owner)


class Admission:
    """Counts the requests, body bytes and streams in progress in this process, in total and per owner."""

    def __init__(self, *, requests: int = MAX_REQUESTS, size: int = MAX_BYTES, streams: int = MAX_STREAMS) -> None:
        self._max_requests = requests
        self._max_bytes = size
        self._max_streams = streams
        self.lists = OwnerTurns("lists", at_once=LISTS_AT_ONCE, waiting=LISTS_WAITING)
        self.bulk = OwnerTurns("acts on many", at_once=BULK_AT_ONCE, waiting=BULK_WAITING)
        self._streams: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()
        self._all_requests = 0
        self._all_bytes = 0

    def enter(self, request: Request, owner: str) -> Admitted:
        """Admit a request; raises RateLimited when its owner has too many in progress, Unavailable when all have."""
        _refuse_excess(self._requests[owner], self._all_requests, 1, self._max_requests)
        self._requests[owner] += 1
        self._all_requests += 1
        admitted = request.scope[_ADMITTED] = Admitted(self, owner)
        return admitted

    def load(self, owner: str, size: int) -> None:
        """Count more body bytes of an owner; raises RateLimited or Unavailable above the limits."""
        _refuse_excess(self._bytes[owner], self._all_bytes, size, self._max_bytes)
        self._bytes[owner] += size
        self._all_bytes += size

    def release(self, owner: str, size: int) -> None:
        """Remove a request of an owner and its body bytes from the counts."""
        self._all_requests -= 1
        self._all_bytes -= size
        self._bytes[owner] -= size
        self._requests[owner] -= 1
        if not self._requests[owner]:
            del self._requests[owner], self._bytes[owner]

    def open_stream(self, owner: str) -> AdmittedStream:
        """Admit a stream; raises RateLimited when its owner has too many open, Unavailable when all have."""
        most = min(self._max_streams // SHARE, MAX_STREAMS_OF_OWNER)
        if self._streams[owner] >= most:
            raise RateLimited(RETRY_SECONDS, f"{most} streams are open, as many as one owner may have; close some")
        if self._streams.total() >= self._max_streams:
            raise Unavailable("this node has no room for another stream; retry later")
        self._streams[owner] += 1
        return AdmittedStream(self, owner)

    def close_stream(self, owner: str) -> None:
        """Remove a stream of an owner from the counts."""
        self._streams[owner] -= 1
        if not self._streams[owner]:
            del self._streams[owner]


def admitted_of(request: Request) -> Admitted | None:
    """Return the admission of a request; None for open operations, which are not limited."""
    admitted: Admitted | None = request.scope.get(_ADMITTED)
    return admitted


def _refuse_excess(own: int, total: int, added: int, limit: int) -> None:
    if own + added > limit // SHARE:
        raise RateLimited(RETRY_SECONDS)
    if total + added > limit:
        raise Unavailable("this node is at capacity; retry later")
