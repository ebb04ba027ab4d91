"""What one request consumes, charged to partitions as it happens."""

from collections.abc import Mapping
from typing import Any

from tests.dynamodb_memory.partitions import Partitions

READ_KB = 4096


class Consumed:
    """The units of one request, by table."""

    __slots__ = ("_partitions", "reads", "writes")

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions
        self.writes: dict[str, float] = {}
        self.reads: dict[str, float] = {}

    def write(self, place: str, key: Any, units: float) -> None:
        self._partitions.write(place, key, units)
        table = place.partition("/")[0]
        self.writes[table] = self.writes.get(table, 0.0) + units

    def read(self, place: str, key: Any, size: int, *, consistent: bool, factor: int = 1) -> None:
        """Charge a read of so many bytes: half a unit for each 4 KB, a whole one if it is consistent."""
        units = max(1, -(-size // READ_KB)) * (1.0 if consistent else 0.5) * factor
        self._partitions.read(place, key, units)
        table = place.partition("/")[0]
        self.reads[table] = self.reads.get(table, 0.0) + units

    def report(self) -> list[dict[str, Any]]:
        """What is answered when the request asks for its capacity."""
        return [
            {
                "TableName": table,
                "CapacityUnits": self.writes.get(table, 0.0) + self.reads.get(table, 0.0),
                **({"WriteCapacityUnits": self.writes[table]} if table in self.writes else {}),
                **({"ReadCapacityUnits": self.reads[table]} if table in self.reads else {}),
            }
            for table in sorted({*self.writes, *self.reads})
        ]


def wants_capacity(request: Mapping[str, Any]) -> bool:
    return request.get("ReturnConsumedCapacity", "NONE") != "NONE"
