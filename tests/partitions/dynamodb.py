"""The real DynamoDB store on tables in memory, whose partitions throttle and whose answers take their time."""

from collections.abc import Mapping
from datetime import timedelta

from horae.ports.queue import Queue
from horae.ports.store import Store
from horae.stores.dynamodb.items import micros, stamp
from horae.stores.dynamodb.store import DynamoStore
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.store_tables import made_tables
from tests.partitions.queue import MemoryQueue, QueueServer
from tests.partitions.virtual import VirtualClock, seconds
from tests.simulation.virtual import SimulatedLoop

KEPT = timedelta(seconds=10)  # how long what has ended stays in memory; then it is checked, and dropped


class DynamoBackend:
    """Tables, queue, and a client of them for each process."""

    def __init__(
        self, loop: SimulatedLoop, clock: VirtualClock, *, latency: float, widths: Mapping[str, int], queue: bool
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._latency = latency
        self.partitions = Partitions(self._seconds, width=lambda place: widths[place.partition("-")[2]])
        self.server = DynamoServer(clock=self._seconds, partitions=self.partitions)
        self.tickets = QueueServer(clock.now) if queue else None
        self.clients: list[MemoryClient] = []
        self.ended: dict[str, int] = {}  # runs that were dropped from memory, by their final state

    def _seconds(self) -> float:
        return seconds(self._loop)

    async def begin(self) -> None:
        await made_tables(self.server)

    def store(self) -> Store:
        client = MemoryClient(self.server, latency=self._latency)
        self.clients.append(client)
        return DynamoStore("dynamodb://local/x", client=client)

    def queue(self) -> Queue | None:
        return None if self.tickets is None else MemoryQueue(self.tickets, latency=self._latency)

    # --- upkeep: what a table keeps for weeks would not fit into memory

    def upkeep(self) -> None:
        """Check and drop runs that ended a while ago, with their hints and entries of journals; it costs nothing."""
        before = self._clock.now() - KEPT
        self._drop_ended(micros(before))
        runs = self.server.tables["x-runs"].rows
        old = stamp(before)
        oldest = f"{int(before.timestamp() * 1000):012x}"  # as ids begin
        for collection in self.server.tables["x-due"].collections.values():
            collection.drop_first(lambda sort, row: sort < old and sort[20:] not in runs)
        for pk, collection in self.server.tables["x-meta"].collections.items():
            if pk.startswith("made#"):
                collection.drop_first(lambda sort, row: sort < oldest)
            elif pk.startswith("ended#"):
                collection.drop_first(lambda sort, row: sort < old)
        for collection in self.server.tables["x-events"].collections.values():
            collection.drop_first(lambda sort, row: int(row.item["at"]["N"]) < micros(before))

    def _drop_ended(self, before: int) -> None:
        table = self.server.tables["x-runs"]
        over = [
            (key, row)
            for key, row in table.rows.items()
            if (finished := row.item.get("fi")) is not None and "N" in finished and int(finished["N"]) < before
        ]
        for key, row in over:
            state = row.item["s"]["S"]
            self.ended[state] = self.ended.get(state, 0) + 1
            table.write((key, ""), row, None, 0, _free)

    def finish(self) -> dict[str, int]:
        """Count all runs by their state, those that were dropped included."""
        for row in self.server.tables["x-runs"].rows.values():
            state = row.item["s"]["S"]
            self.ended[state] = self.ended.get(state, 0) + 1
        return self.ended


def _free(place: str, key: object, units: float) -> None:
    """Charge nothing."""
