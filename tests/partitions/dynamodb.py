"""The real DynamoDB store on tables in memory, whose partitions throttle and whose answers take their time."""

from collections.abc import Mapping

from horae.stores.dynamodb.store import DynamoStore

from horae.ports.queue import Queue
from horae.ports.store import Store
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.partitions import Partitions
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.store_tables import made_tables
from tests.partitions.queue import MemoryQueue, QueueServer
from tests.partitions.virtual import VirtualClock, seconds
from tests.simulation.virtual import SimulatedLoop

KEPT = 10.0  # seconds that what has ended stays in memory; then it is checked, and dropped
DROPPED = ("due", "events", "meta")  # tables whose old items nobody reads any more


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
