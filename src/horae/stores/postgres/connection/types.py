"""The types of PostgreSQL on the wire: ids as hexadecimal digits, times as aware datetimes, and arrays of them."""

from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from functools import partial
from struct import Struct
from typing import Any, TypeVar

T = TypeVar("T")

_EPOCH = datetime(2000, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MOST_MOMENTS = 4096  # in the cache

_TEXT, _TIMESTAMPTZ, _UUID = 25, 1184, 2950  # the numbers of these types in every server
_HEAD = Struct(">iiIii")  # of an array: dimensions, flags, the type of its elements, their number, the first index
_SIZE = Struct(">i")  # of an element, before it
_TIME = Struct(">iq")
_TICKS = Struct(">q")
_NULL = _SIZE.pack(-1)
_ID_SIZE = _SIZE.pack(16)


async def set_codecs(connection: Any) -> None:
    """Set the codecs of a connection for ids and times, one by one and in arrays.

    Arrays are encoded as a whole: the driver checks the type of every element, which takes two to five times as long.
    It has no public way to set the codec of an array.
    """
    await connection.set_type_codec(
        "uuid", schema="pg_catalog", encoder=bytes.fromhex, decoder=bytes.hex, format="binary"
    )
    await connection.set_type_codec(
        "timestamptz", schema="pg_catalog", encoder=_encode_time, decoder=_decode_time, format="binary"
    )
    add = connection._protocol.get_settings().add_python_codec
    for oid, name, encode, decode in (
        (1009, "_text", encode_texts, bytes.decode),
        (1185, "_timestamptz", encode_times, _decode_time),
        (2951, "_uuid", encode_ids, bytes.hex),
    ):
        add(oid, name, "pg_catalog", [], "scalar", encode, partial(decode_array, decode), "binary")


def encode_ids(ids: Collection[str | None]) -> bytes:
    """A `uuid[]`."""
    head = _HEAD.pack(1, 0, _UUID, len(ids), 1)
    try:
        return head + bytes.fromhex(_ID_SIZE.hex().join(("", *ids)))  # type: ignore[arg-type]
    except TypeError:  # one of them is None
        return head + b"".join([_NULL if ident is None else _ID_SIZE + bytes.fromhex(ident) for ident in ids])


def encode_times(moments: Collection[datetime | None]) -> bytes:
    """A `timestamptz[]`."""
    pack, sent = _TIME.pack, [_HEAD.pack(1, 0, _TIMESTAMPTZ, len(moments), 1)]
    last, data = None, _NULL
    for moment in moments:
        if moment is not last:  # the items of a batch often share their time
            last, data = moment, _NULL if moment is None else pack(8, (moment - _EPOCH) // _MICROSECOND)
        sent.append(data)
    return b"".join(sent)


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


def decode_array(decode: Callable[[bytes], T], array: bytes) -> list[T | None]:
    """The elements of an array, each decoded."""
    found: list[T | None] = []
    at = _HEAD.size  # beyond the end of an empty array, whose head is shorter
    while at < len(array):
        (size,) = _SIZE.unpack_from(array, at)
        begin = at + _SIZE.size
        at = begin + max(size, 0)
        found.append(None if size < 0 else decode(array[begin:at]))
    return found


def _encode_time(moment: datetime) -> bytes:
    """A time as PostgreSQL keeps it, in microseconds."""
    return _TICKS.pack((moment - _EPOCH) // _MICROSECOND)


class _Moments(dict[bytes, datetime]):
    """A cache of times by their bytes: rows that are read together share most of their times."""

    def __missing__(self, sent: bytes) -> datetime:
        if len(self) >= _MOST_MOMENTS:
            self.clear()
        moment = self[sent] = _EPOCH + int.from_bytes(sent, signed=True) * _MICROSECOND
        return moment


_decode_time = _Moments().__getitem__
