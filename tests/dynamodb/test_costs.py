"""What runs cost on DynamoDB, by the counters of the adapter: units and requests.

The emulator counts a statement as one unit and leaves out indexes; so an index entry is added for each that is written.
"""

from datetime import timedelta

from horae.aws_api.counters import Counters
from horae.core.decisions.results import start, succeed
from horae.core.model import NodeId, Run
from horae.stores.dynamodb.store import DynamoStore
from tests import acts
from tests.conformance.builders import NOW, claims_of, given_node, one_shot

BATCH = 500
WRITING = ("BatchWriteItem", "BatchExecuteStatement", "TransactWriteItems", "UpdateItem", "PutItem", "DeleteItem")


def units(counters: Counters) -> float:
    """Write units of everything so far."""
    return sum(tally.write_units for action, tally in counters.by_action().items() if action in WRITING)


def requests(counters: Counters) -> int:
    return sum(tally.requests for tally in counters.by_action().values())


async def live(store: DynamoStore, node: NodeId, until: timedelta = timedelta()) -> list[Run]:
    """Claim and settle all that is due."""
    claims = await claims_of(store, node, until=NOW + until, limit=1000)
    assert all(await store.settle([succeed(start(run, NOW), None, NOW) for run in claims.runs]))
    return list(claims.runs)


async def test_a_plain_one_shot_costs_little_in_full_batches(store: DynamoStore) -> None:
    node = await given_node(store)
    await acts.create(store, [one_shot()])
    await live(store, node)
    counters = store.counters
    counters.reset()

    await acts.create(store, [one_shot() for _ in range(BATCH)])
    assert len(await live(store, node)) == BATCH

    each = units(counters) / BATCH + index_units(counters) / BATCH
    assert each <= 5.5
    assert requests(counters) / BATCH <= 0.3


def index_units(counters: Counters) -> float:
    """Entries of `by_owner`: one for each new run."""
    return BATCH
