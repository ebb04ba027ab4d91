"""What all parts of the DynamoDB store share: the tables, what it remembers of them, and its listeners."""

from collections.abc import Iterable
from datetime import datetime

from horae.aws_api.client import ServiceClient
from horae.aws_api.counters import Counters
from horae.core.signals import Signal
from horae.stores.dynamodb import times
from horae.stores.dynamodb.clock import HostClock
from horae.stores.dynamodb.database import Database, Names
from horae.stores.dynamodb.lines import Lines
from horae.stores.dynamodb.owners import Owners
from horae.stores.dynamodb.reading.events import DynamoEventLog
from horae.stores.dynamodb.signals import SharedSignals
from horae.stores.dynamodb.tables.address import parse_dynamodb

CONNECTIONS = 64


class DynamoBase:
    """The state that the parts of the store share."""

    def __init__(self, url: str, *, client: ServiceClient | None = None) -> None:
        """`client` is used instead of one for the address; a simulation has its own."""
        address, self._options = parse_dynamodb(url)
        self._clock = HostClock()
        self._client = client or ServiceClient(
            "dynamodb",
            region=address.region,
            endpoint=address.endpoint,
            connections=CONNECTIONS,
            seen_date=self._clock.seen,
        )
        self._db = Database(self._client, Names.of(address.prefix))
        self._owners = Owners(self._db)
        self._lines = Lines(self._db)
        self._log = DynamoEventLog(self._db, self._wall)
        self._signals = SharedSignals(self._db)
        self._limited: frozenset[str] = frozenset()  # queues that had a limit when we last looked

    @property
    def counters(self) -> Counters:
        """What was asked of DynamoDB, by verb and action."""
        return self._client.counters

    def _wall(self) -> datetime:
        return times.wall()

    def _tell(self, signals: Iterable[Signal]) -> None:
        self._signals.send(signals)
