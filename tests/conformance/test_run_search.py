"""Lists of runs by conditions that no index answers."""

import pytest

from horae.core.model import Run, Trigger
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from horae.queries import run_search
from horae.queries.run_search import RunSearch, search_runs
from tests import acts
from tests.conformance.builders import NOW, SECOND, one_shot

MANUAL = RunSearch(trigger=Trigger.MANUAL)


async def given_runs(store: Store, triggers: str) -> list[Run]:
    """A run for each letter, `m` for manual and `s` for schedule, the latest first."""
    kinds = {"m": Trigger.MANUAL, "s": Trigger.SCHEDULE}
    runs = [one_shot(NOW - place * SECOND, trigger=kinds[each]) for place, each in enumerate(triggers)]
    await acts.create(store, runs)
    return runs


async def pages(store: Store, limit: int) -> list[list[str]]:
    """The ids on each page of a search."""
    found, cursor = [], None
    while True:
        page = await search_runs(store, RunFilter(owner="ada"), MANUAL, cursor=cursor, limit=limit)
        found.append([run.id for run in page.items])
        cursor = page.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("triggers", ["", "ssss", "m", "mmmmmmmmm", "smssssmmsssssssmsm", "sssssssssssm"])
async def test_a_search_finds_each_run_once_whatever_the_pages(
    store: Store, triggers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_search, "CHUNK", 4)
    expected = [run.id for run in await given_runs(store, triggers) if run.trigger is Trigger.MANUAL]
    for limit in (1, 2, 3, 100):
        found = await pages(store, limit)
        assert [ident for page in found for ident in page] == expected
        assert all(len(page) <= limit for page in found)


async def test_a_page_looks_at_a_bounded_number_of_runs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_search, "CHUNK", 4)
    monkeypatch.setattr(run_search, "MAX_LOOK", 8)
    runs = await given_runs(store, "s" * 11 + "m")
    assert await pages(store, 10) == [[], [runs[-1].id]]
