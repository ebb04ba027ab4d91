"""A cache of encoded values: bounded by their bytes, and emptied when nobody uses it any more."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

K = TypeVar("K")


class ByteCache(Generic[K]):
    """Encodes each value once for all who use it, and keeps the latest results up to a number of bytes."""

    def __init__(self, encode: Callable[[K], bytes], *, most: int) -> None:
        self._encode = encode
        self._most = most
        self._kept: OrderedDict[K, bytes] = OrderedDict()
        self._users = 0
        self.size = 0  # bytes

    def __call__(self, value: K) -> bytes:
        """Return a value encoded, from the cache if it is there."""
        encoded = self._kept.get(value)
        if encoded is None:
            encoded = self._encode(value)
            self._keep(value, encoded)
        return encoded

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use the cache; the last one who leaves empties it."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if not self._users:
                self._kept.clear()
                self.size = 0

    def _keep(self, value: K, encoded: bytes) -> None:
        self._kept[value] = encoded
        self.size += len(encoded)
        while self.size > self._most:
            _, oldest = self._kept.popitem(last=False)
            self.size -= len(oldest)
