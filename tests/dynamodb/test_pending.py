"""A planner that crashes between a job and the runs that it has fired: whoever reads them next writes them."""

from collections.abc import Sequence

import pytest

from horae.core.decisions.firing import fire
from horae.core.errors import Unavailable
from horae.core.lifecycle import WAITING
from horae.core.model import Run
from horae.planning import write_firings
from horae.ports.reader import RunFilter
from horae.stores.dynamodb.store import DynamoStore
from tests.conformance.builders import MINUTE, NOW, claims_of, given_job, given_node, ids, new_id, recurring


async def given_crash(store: DynamoStore, monkeypatch: pytest.MonkeyPatch) -> Sequence[Run]:
    """Runs that a job has fired and that have no rows."""
    await given_job(store, recurring())

    async def crash(runs: Sequence[Run]) -> None:
        raise Unavailable("the planner is gone")

    [due] = (await store.plannable(range(64), now=NOW, limit=10)).jobs
    firing = fire(due, now=NOW, horizon=MINUTE, new_id=new_id)
    with monkeypatch.context() as patch:
        patch.setattr(store, "_insert_fired", crash)
        with pytest.raises(Unavailable):
            await write_firings(store, [firing])
    assert await store.runs(ids(firing.runs)) == {}
    return firing.runs


async def test_a_claim_finds_runs_that_were_fired_and_not_written(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await given_crash(store, monkeypatch)
    claims = await claims_of(store, await given_node(store))
    assert ids(claims.runs) == [runs[0].id]
    assert await store.runs([runs[1].id]) == {runs[1].id: runs[1]}


async def test_a_list_of_live_runs_has_those_that_were_fired_and_not_written(
    store: DynamoStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = await given_crash(store, monkeypatch)
    which = RunFilter(job_id=runs[0].job_id, states=WAITING)
    listing = await store.list_runs(which, cursor=None, limit=10)
    assert sorted(ids(listing.items)) == sorted(ids(runs))
