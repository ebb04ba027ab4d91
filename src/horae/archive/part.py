"""Parts: lines compressed as one gzip file, written and read in a stream."""

import hashlib
import zlib
from collections.abc import Iterator

from horae.archive.id_filter import make_filter
from horae.archive.manifest import Part
from horae.archive.record import id_of
from horae.core.errors import InternalError
from horae.core.model import RunId
from horae.core.values import Value

MAX_RUNS = 10_000
MAX_BYTES = 4_000_000  # compressed; the last line may be of 10 MB
_GZIP = 16 + zlib.MAX_WBITS
_CHUNK = 262_144  # uncompressed bytes at a time


class FilledPart(Value, frozen=True, kw_only=True):
    """A part that is complete."""

    part: Part
    filter: bytes
    last_line: bytes


class PartWriter:
    """Collects lines until the part is full; equal lines make equal files."""

    def __init__(self) -> None:
        self._compressor = zlib.compressobj(6, zlib.DEFLATED, _GZIP)
        self._data: list[bytes] = []
        self._size = 0
        self._runs = 0

    @property
    def full(self) -> bool:
        return self._runs >= MAX_RUNS or self._size >= MAX_BYTES

    @property
    def empty(self) -> bool:
        return self._runs == 0

    def add(self, line: bytes) -> None:
        """Add a line."""
        self._keep(self._compressor.compress(line))
        self._runs += 1

    def finish(self) -> bytes:
        """Return the file."""
        self._keep(self._compressor.flush())
        return b"".join(self._data)

    def _keep(self, data: bytes) -> None:
        if data:
            self._data.append(data)
            self._size += len(data)


def describe(key: str, data: bytes) -> FilledPart:
    """Return what the manifest says of a file of lines."""
    ids: list[RunId] = []
    last = b""
    for last in lines_of(data):
        ids.append(id_of(last))
    if not ids:
        raise InternalError(f"{key} has no runs")
    bits = make_filter(ids)
    part = Part(
        file=key,
        runs=len(ids),
        first_id=min(ids),
        last_id=max(ids),
        bytes=len(data),
        sha256=digest_of(data),
        filter_bytes=len(bits),
    )
    return FilledPart(part=part, filter=bits, last_line=last)


def digest_of(data: bytes) -> str:
    """Return the checksum of a file."""
    return hashlib.sha256(data).hexdigest()


def lines_of(data: bytes) -> Iterator[bytes]:
    """Yield the lines of a file, holding only a piece of it in memory uncompressed."""
    decompressor = zlib.decompressobj(_GZIP)
    begun, rest = b"", data
    while not decompressor.eof:
        text = decompressor.decompress(rest, _CHUNK)
        rest = decompressor.unconsumed_tail
        if not text and not rest:
            raise InternalError("a part of the archive is incomplete")
        *lines, begun = (begun + text).split(b"\n")
        yield from lines
