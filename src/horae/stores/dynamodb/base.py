"""What all parts of the DynamoDB store share: the tables, what it remembers of them, and its listeners."""

from collections.abc import Iterable

from horae.aws_api.client import ServiceClient
from horae.core.signals import Signal, merged
from horae.stores.common.subscribers import Subscribers
from horae.stores.dynamodb.address import parse_dynamodb
from horae.stores.dynamodb.database import Database, Names
from horae.stores.dynamodb.lines import Lines
from horae.stores.dynamodb.owners import Owners

CONNECTIONS = 64


class DynamoBase:
    """The state that the parts of the store share."""

    def __init__(self, url: str) -> None:
        address, self._options = parse_dynamodb(url)
        self._client = ServiceClient(
            "dynamodb", region=address.region, endpoint=address.endpoint, connections=CONNECTIONS
        )
        self._db = Database(self._client, Names.of(address.prefix))
        self._owners = Owners(self._db)
        self._lines = Lines(self._db)
        self._subscribers = Subscribers()

    def _tell(self, signals: Iterable[Signal]) -> None:
        """Pass signals on to the listeners of this process; others look for themselves."""
        self._subscribers.tell(merged(signals))
