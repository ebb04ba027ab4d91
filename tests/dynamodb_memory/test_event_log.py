"""The event log of the DynamoDB store: one item for what is written together, paced when many processes write."""

import asyncio

from horae.core.changes import NewEvent
from horae.core.events import EventKind
from horae.stores.dynamodb.database import Database, Names
from horae.stores.dynamodb.reading.events import CALLS, DynamoEventLog
from tests.dynamodb_memory.client import MemoryClient
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.store_tables import made_tables
from tests.partitions.virtual import run_in_virtual_time
from tests.simulation.virtual import SimulatedLoop

ID = "0192f0c1a2b37{:019x}"


def succeeded(number: int, owner: str) -> NewEvent:
    return NewEvent(EventKind.RUN_SUCCEEDED, owner, ID.format(number))


async def log_on(server: DynamoServer) -> DynamoEventLog:
    await made_tables(server)
    return DynamoEventLog(Database(MemoryClient(server), Names.of("x")))


async def test_events_of_many_owners_that_are_written_together_are_one_item() -> None:
    log = await log_on(server := DynamoServer())
    await log.append([succeeded(number, f"owner-{number % 5}") for number in range(20)])
    assert len(server.tables["x-events"]) == 1

    found = await log.read(after=None, owner=None, limit=10)
    assert [batch.owner for batch in found] == [f"owner-{place}" for place in range(5)]
    assert [subject for batch in found for subject in batch.subjects if batch.owner == "owner-2"] == [
        ID.format(number) for number in (2, 7, 12, 17)
    ]
    positions = [int(batch.position) for batch in found]
    assert positions == sorted(set(positions))
    assert str(positions[-1]) == await log.last()


async def test_a_reader_that_stopped_within_an_item_goes_on_there() -> None:
    log = await log_on(DynamoServer())
    for start in (0, 10, 20):
        await log.append([succeeded(start + number, f"owner-{number}") for number in range(4)])
    whole = await log.read(after=None, owner=None, limit=100)
    assert len(whole) == 12

    found, after = [], None
    while page := await log.read(after=after, owner=None, limit=1):
        found += page
        after = page[-1].position
    assert found == whole
    mine = await log.read(after=whole[1].position, owner="owner-1", limit=100)
    assert [batch.subjects for batch in mine] == [[ID.format(11)], [ID.format(21)]]


async def test_a_number_that_its_writer_left_is_made_void_and_passed_over() -> None:
    log = await log_on(server := DynamoServer())
    await log.append([succeeded(1, "ann")])
    key = {"pk": {"S": "log"}, "sk": {"S": "log"}}
    add = {"UpdateExpression": "ADD n :one", "ExpressionAttributeValues": {":one": {"N": "1"}}}
    server.call("UpdateItem", {"TableName": "x-meta", "Key": key, **add})  # and its writer dies
    await log.append([succeeded(2, "ann")])
    found = await log.read(after=None, owner=None, limit=10)
    assert [batch.subjects for batch in found] == [[ID.format(1)]]
    async with asyncio.timeout(10):
        while len(found) < 2:
            found += await log.read(after=found[-1].position, owner=None, limit=10)
    assert [batch.subjects for batch in found] == [[ID.format(1)], [ID.format(2)]]


def test_processes_that_all_write_take_turns_so_that_the_counter_is_not_too_busy() -> None:
    server, seconds = DynamoServer(), 10

    async def write(log: DynamoEventLog, loop: SimulatedLoop) -> None:
        number = 0
        while loop.time() < seconds:
            await log.append([succeeded(number := number + 1, "ann")])

    async def main(loop: SimulatedLoop) -> None:
        await made_tables(server)
        databases = [Database(MemoryClient(server, latency=0.02), Names.of("x")) for _ in range(60)]
        await asyncio.gather(*(write(DynamoEventLog(database), loop) for database in databases))

    run_in_virtual_time(main)
    key = {"pk": {"S": "log"}, "sk": {"S": "log"}}
    counter = server.call("GetItem", {"TableName": "x-meta", "Key": key})["Item"]
    calls = int(counter["calls"]["N"])
    assert CALLS / 3 < calls / seconds < 1.5 * CALLS
