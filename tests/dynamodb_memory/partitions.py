"""What partitions of tables and indexes are asked, and the limits at which they throttle."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any
from zlib import crc32

WRITE_LIMIT = 1000.0  # units a second that a partition takes
READ_LIMIT = 3000.0
SLICES = 4  # of a second, in which units are counted


class Bucket:
    """Units that a partition still takes: full, it has those of a second."""

    __slots__ = ("at", "left")

    def __init__(self, left: float, at: float) -> None:
        self.left = left
        self.at = at

    def open(self, now: float, limit: float) -> bool:
        if now > self.at:
            self.left = min(limit, self.left + (now - self.at) * limit)
            self.at = now
        return self.left > 0


class Partitions:
    """The partitions of all tables. A key has one partition of its table's, and none is split by its heat.

    `width` says how many partitions a table has; several keys share one if there are more keys.
    """

    def __init__(
        self, clock: Callable[[], float], *, width: Callable[[str], int] = lambda table: 64, limited: bool = True
    ) -> None:
        self._clock = clock
        self._limited = limited
        self._width = width
        self._widths: dict[str, int] = {}
        self._write_buckets: dict[tuple[str, int], Bucket] = {}
        self._read_buckets: dict[tuple[str, int], Bucket] = {}
        self.writes: defaultdict[tuple[str, int], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.reads: defaultdict[tuple[str, int], defaultdict[int, float]] = defaultdict(lambda: defaultdict(float))
        self.throttled: defaultdict[str, int] = defaultdict(int)  # by table or index
        self.total: defaultdict[str, float] = defaultdict(float)  # write units by table or index
        self.total_reads: defaultdict[str, float] = defaultdict(float)

    def partition(self, place: str, key: Any) -> tuple[str, int]:
        """The partition of a key."""
        width = self._widths.get(place)
        if width is None:
            width = self._widths[place] = self._width(place)
        return place, (crc32(key.encode()) if isinstance(key, str) else hash(key)) % width

    def write(self, place: str, key: Any, units: float) -> None:
        """Charge a write that was let through."""
        self.total[place] += units
        if not self._limited:
            return
        now, partition = self._clock(), self.partition(place, key)
        self.writes[partition][int(now * SLICES)] += units
        bucket = self._write_buckets.get(partition)
        if bucket is None:
            bucket = self._write_buckets[partition] = Bucket(WRITE_LIMIT, now)
        bucket.open(now, WRITE_LIMIT)
        bucket.left -= units

    def read(self, place: str, key: Any, units: float) -> None:
        """Charge a read that was let through."""
        self.total_reads[place] += units
        if not self._limited:
            return
        now, partition = self._clock(), self.partition(place, key)
        self.reads[partition][int(now * SLICES)] += units
        bucket = self._read_buckets.get(partition)
        if bucket is None:
            bucket = self._read_buckets[partition] = Bucket(READ_LIMIT, now)
        bucket.open(now, READ_LIMIT)
        bucket.left -= units

    def takes_write(self, place: str, key: Any) -> bool:
        """Whether a partition takes a write now; one that it does not is counted."""
        return not self._limited or self._takes(self._write_buckets, WRITE_LIMIT, place, key)

    def takes_read(self, place: str, key: Any) -> bool:
        return not self._limited or self._takes(self._read_buckets, READ_LIMIT, place, key)

    def _takes(self, buckets: dict[tuple[str, int], Bucket], limit: float, place: str, key: Any) -> bool:
        bucket = buckets.get(self.partition(place, key))
        if bucket is None or bucket.open(self._clock(), limit):
            return True
        self.throttled[place] += 1
        return False

    def hottest(self, limit: float) -> dict[tuple[str, int], list[int]]:
        """The partitions that were written more than so many units a second, and in which slices of seconds."""
        return {
            partition: busy
            for partition, by_slice in self.writes.items()
            if (busy := sorted(each for each, units in by_slice.items() if units > limit / SLICES))
        }

    def most(self, counted: Mapping[tuple[str, int], Mapping[int, float]]) -> dict[str, float]:
        """The most units a second that a partition of each table and index had, in a whole second."""
        found: dict[str, float] = {}
        for (place, _), by_slice in counted.items():
            by_second: defaultdict[int, float] = defaultdict(float)
            for each, units in by_slice.items():
                by_second[each // SLICES] += units
            found[place] = max(found.get(place, 0.0), max(by_second.values()))
        return found
