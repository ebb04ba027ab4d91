"""Dead letters: failed runs that wait for somebody to look at them."""

from horae.store import Store
from tests.conformance.builders import failed, given_ended, given_running, one_shot


async def test_failed_runs_are_counted_and_others_are_not(store: Store) -> None:
    assert await store.dead_letters() == 0
    await given_ended(store, one_shot())
    broken = await given_running(store, one_shot(), one_shot(task="demo.echo", queue="other"))
    assert await store.settle([failed(run) for run in broken]) == [True, True]
    assert await store.dead_letters() == 2
