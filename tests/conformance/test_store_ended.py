"""Waiting for many runs: which of them have ended."""

import pytest

from horae.core.decisions.results import cancel
from horae.core.model import RunId, State
from horae.ports.store import Store
from tests import acts
from tests.conformance.builders import MINUTE, NOW, failed, given_ended, given_running, new_id, one_shot


async def test_of_many_runs_those_that_ended_are_told(store: Store) -> None:
    [done] = await given_ended(store, one_shot())
    [broken, running] = await given_running(store, one_shot(), one_shot())
    assert await store.settle([failed(broken)]) == [True]
    unwanted, waiting = one_shot(), one_shot()
    await acts.create(store, [unwanted, waiting])
    assert await store.settle([cancel(unwanted, NOW)]) == [True]

    asked = [done.id, broken.id, running.id, unwanted.id, waiting.id, RunId(new_id())]
    found = await store.runs(asked, ended=True)

    assert {run_id: run.state for run_id, run in found.items()} == {
        done.id: State.SUCCEEDED,
        broken.id: State.FAILED,
        unwanted.id: State.CANCELLED,
    }
    assert found[done.id] == done


@pytest.mark.parametrize("count", [0, 1500])
async def test_as_many_as_one_likes_can_be_asked_for_at_once(store: Store, count: int) -> None:
    runs = [one_shot(NOW + MINUTE) for _ in range(count)]
    await acts.create(store, runs)
    [done] = await given_ended(store, one_shot())
    assert list(await store.runs([*(run.id for run in runs), done.id], ended=True)) == [done.id]
