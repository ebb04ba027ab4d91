"""The archive over REST: archived runs are found by their id, marked, hidden from other owners, and restored."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from horae.api.dispatch.context import Services
from horae.blobs.folder import FolderFiles
from horae.core.model import Run
from horae.ports.store import Store
from tests.api.harness import Api, services_over
from tests.archive.places import DAY, archive_all, archiver_over, given_history, sqlite
from tests.clocks import ManualClock


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with sqlite(tmp_path) as opened:
        yield opened


@pytest.fixture
def services(store: Store, clock: ManualClock, tmp_path: Path) -> Services:
    return services_over(store, clock, archive=tmp_path / "archive")


@pytest.fixture
async def runs(store: Store, tmp_path: Path) -> list[Run]:
    """Runs that are archived and no longer in the store; every second one is somebody else's."""
    made = await given_history(store, 20)
    await archive_all(lambda: archiver_over(store, FolderFiles(tmp_path / "archive")))
    assert await store.runs([run.id for run in made]) == {}
    return made


async def shown(api: Api, run: Run) -> Any:
    return await api.get(f"/v1/runs/run_{run.id}")


async def test_an_archived_run_is_shown_and_marked(api: Api, runs: list[Run]) -> None:
    found = await shown(api, runs[3])
    assert (found["id"], found["status"], found["archived"]) == (f"run_{runs[3].id}", "failed", True)
    assert found["params"] == {"day": "2026-03-01", "n": 3}
    assert [attempt["outcome"] for attempt in found["attempts"]] == ["failed"]


async def test_another_owner_s_archived_run_is_as_good_as_absent(services: Services, runs: list[Run]) -> None:
    mine, other = runs[0], runs[1]
    assert await services.queries.archived(other.id, owner=mine.owner) is None
    found = await services.queries.archived(mine.id, owner=mine.owner)
    assert found is not None
    assert found[0].id == mine.id


async def test_days_are_listed_the_latest_first(api: Api, runs: list[Run]) -> None:
    page = await api.get("/v1/archive")
    assert [(day["day"], day["runs"], day["parts"]) for day in page["items"]] == [("2026-03-01", 20, 1)]
    assert page["next_cursor"] is None
    assert (await api.get("/v1/archive?cursor=2026-03-01"))["items"] == []
    await api.ask("GET", "/v1/archive?cursor=x", 422)


async def test_a_restored_run_is_no_longer_marked(api: Api, runs: list[Run]) -> None:
    named = [f"run_{run.id}" for run in runs[:2]]
    body = {"ids": [*named, "run_019ca7358ed874ffab3c92510a22adbd", "nonsense"]}
    done = await api.ask("POST", "/v1/archive/restore", 200, json=body)
    assert done == {"restored": 2, "missing": ["run_019ca7358ed874ffab3c92510a22adbd"], "cursor": None}
    assert "archived" not in await shown(api, runs[0])
    listed = await api.get("/v1/runs?owner=*")
    assert {item["id"] for item in listed["items"]} == {*named}


async def test_a_day_is_restored_and_an_absent_one_is_404(api: Api, runs: list[Run]) -> None:
    done = await api.ask("POST", "/v1/archive/restore", 200, json={"day": DAY.date().isoformat()})
    assert (done["restored"], done["cursor"]) == (20, None)
    await api.ask("POST", "/v1/archive/restore", 404, json={"day": "2020-01-01"})


@pytest.mark.parametrize(
    "body", [{}, {"ids": [], "day": "2026-03-01"}, {"day": "2026-02-30"}, {"day": "2026-03-01", "cursor": "x"}]
)
async def test_a_request_that_names_nothing_clear_is_refused(api: Api, runs: list[Run], body: Any) -> None:
    await api.ask("POST", "/v1/archive/restore", 422, json=body)


async def test_without_an_archive_it_says_so(api: Api, services: Services, store: Store) -> None:
    api.client._transport.app.services = replace_archive(services)  # type: ignore[attr-defined]
    for method, path in (("GET", "/v1/archive"), ("POST", "/v1/archive/restore")):
        answer = await api.ask(method, path, 409, **({"json": {"ids": []}} if method == "POST" else {}))
        assert "HORAE_ARCHIVE" in answer["detail"]


def replace_archive(services: Services) -> Services:
    """The services of a node without an archive."""
    import dataclasses

    return dataclasses.replace(services, archive=None, restorer=None)
