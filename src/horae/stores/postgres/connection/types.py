"""How ids and times travel to PostgreSQL and back, and arrays of them: as hexadecimal digits and aware datetimes."""

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_MOMENTS = 4096  # that are remembered

_TEXT, _TIMESTAMPTZ, _UUID = 25, 1184, 2950  # the numbers of these types in every server
_HEAD = Struct(">iiIii")  # of an array: dimensions, flags, the type of its elements, their number, the first index
_SIZE = Struct(">i")  # of an element, before it
_TIME = Struct(">iq")
_TICKS = Struct(">q")
_NULL = _SIZE.pack(-1)
_ID_SIZE = _SIZE.pack(16)


async def set_codecs(connection: Any) -> None:
    """Teach a connection to speak our ids and times, one by one and in arrays.

    Arrays are made as a whole: the driver asks of every element what it is, which takes two to five times as long. For
    an array it lets nobody but itself set a codec, hence the way around its door.
    """
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=bytes.fromhex, decoder=bytes.hex, format="binary"
    )
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=_encode_time, decoder=_decode_time, format="binary"
    )
    add = connection._protocol.get_settings().add_python_codec
    add(1009, "_text", "pg_catalog", [], "scalar", encode_texts, decode_texts, "binary")
    add(1185, "_timestamptz", "pg_catalog", [], "scalar", encode_times, decode_times, "binary")
    add(2951, "_uuid", "pg_catalog", [], "scalar", encode_ids, decode_ids, "binary")


def encode_ids(ids: Collection[str | None]) -> bytes:
    """A `uuid[]`."""
    head = _HEAD.pack(1, 0, _UUID, len(ids), 1)
    try:
        return head + bytes.fromhex(_ID_SIZE.hex().join(("", *ids)))  # type: ignore[arg-type]
    except TypeError:  # one of them is None
        return head + b"".join([_NULL if ident is None else _ID_SIZE + bytes.fromhex(ident) for ident in ids])


def decode_ids(data: bytes) -> list[str | None]:
    """The inverse of `encode_ids`."""
    return [None if element is None else element.hex() for element in _elements(data)]


def encode_times(moments: Collection[datetime | None]) -> bytes:
    """A `timestamptz[]`."""
    pack, sent = _TIME.pack, [_HEAD.pack(1, 0, _TIMESTAMPTZ, len(moments), 1)]
    last, data = None, _NULL
    for moment in moments:
        if moment is not last:  # what comes together often has its time in common
            last, data = moment, _NULL if moment is None else pack(8, (moment - _EPOCH) // _MICROSECOND)
        sent.append(data)
    return b"".join(sent)


def decode_times(data: bytes) -> list[datetime | None]:
    """The inverse of `encode_times`."""
    return [None if element is None else _decode_time(element) for element in _elements(data)]


def encode_texts(texts: Collection[str | None]) -> bytes:
    """A `text[]`."""
    pack, sent = _SIZE.pack, [_HEAD.pack(1, 0, _TEXT, len(texts), 1)]
    for text in texts:
        if text is None:
            sent.append(_NULL)
        else:
            data = text.encode()
            sent += pack(len(data)), data
    return b"".join(sent)


def decode_texts(data: bytes) -> list[str | None]:
    """The inverse of `encode_texts`."""
    return [None if element is None else element.decode() for element in _elements(data)]


def _elements(array: bytes) -> list[bytes | None]:
    """What an array holds, each as it was sent."""
    found: list[bytes | None] = []
    at = _HEAD.size  # beyond the end of an empty array, whose head is shorter
    while at < len(array):
        (size,) = _SIZE.unpack_from(array, at)
        begin = at + _SIZE.size
        at = begin + max(size, 0)
        found.append(None if size < 0 else array[begin:at])
    return found


def _encode_time(moment: datetime) -> bytes:
    """A time as PostgreSQL keeps it, in microseconds."""
    return _TICKS.pack((moment - _EPOCH) // _MICROSECOND)


class _Moments(dict[bytes, datetime]):
    """Times by what PostgreSQL sends for them: rows that are read together have most of their times in common."""

    def __missing__(self, sent: bytes) -> datetime:
        if len(self) >= _MOST_MOMENTS:
            self.clear()
        moment = self[sent] = _EPOCH + int.from_bytes(sent, signed=True) * _MICROSECOND
        return moment


_decode_time = _Moments().__getitem__
