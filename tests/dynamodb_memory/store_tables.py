"""The tables of the store, in memory, made by the store's own migration."""

from horae.ports.database import tell_nobody
from horae.stores.dynamodb.database import Database, Names
from horae.stores.dynamodb.tables.address import parse_dynamodb
from horae.stores.dynamodb.tables.schema import migrate
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.server import DynamoServer


async def made_tables(server: DynamoServer, prefix: str = "x") -> None:
    """Create the tables and set them up."""
    _, options = parse_dynamodb(f"dynamodb://local/{prefix}")
    await migrate(Database(MemoryClient(server), Names.of(prefix)), options, tell_nobody)
