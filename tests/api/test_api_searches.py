"""Searches over the API: a page looks at a bounded number of rows, and says how far it came."""

from typing import Any

import pytest

from horae.queries import jobs as queries
from tests.api.harness import Api


@pytest.fixture(autouse=True)
def _look_at_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queries, "MAX_LOOK", 5)


async def pages(api: Api, path: str, **query: Any) -> list[Any]:
    """Every page of a list."""
    found = [await api.get(path, params=query)]
    while found[-1]["next_cursor"] is not None:
        found.append(await api.get(path, params={**query, "cursor": found[-1]["next_cursor"]}))
    return found


@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/runs"])
async def test_a_search_that_ends_early_says_how_far_it_came(api: Api, path: str) -> None:
    sought = await api.create(name="needle", schedule="2026-03-01T11:00:00Z")
    for minute in range(30):
        await api.create(name="hay", schedule=f"2026-03-01T12:{minute:02}:00Z")
    first, *others = await pages(api, path, q="NEEDLE", limit=2)
    assert first["items"] == []
    assert first["searched_to"].startswith("2026-03-01T12:")
    assert "searched_to" not in others[-1]
    [found] = [item for page in (first, *others) for item in page["items"]]
    assert sought["id"] in (found["id"], found.get("job_id"))


async def test_a_page_that_is_complete_says_nothing_of_it(api: Api) -> None:
    for _ in range(3):
        await api.create()
    for path in ("/v1/jobs", "/v1/runs", "/v1/dead-letters", "/v1/queues"):
        assert "searched_to" not in await api.get(path)


async def test_runs_are_searched_by_all_that_they_show(api: Api) -> None:
    plain = await api.create(schedule="2026-03-01T11:00:00Z")
    await api.create(schedule="2026-03-01T11:30:00Z", labels={"team": "blue"}, key="k-1", name="Report")
    failing = [run for run in await api.hand.claim() if run.job_id == plain["id"].removeprefix("job_")]
    await api.hand.fail(await api.hand.start(failing[0]))

    async def count(**query: Any) -> int:
        return sum(len(page["items"]) for page in await pages(api, "/v1/runs", **query))

    assert await count(label="team:blue") == await count(label="team") == await count(q="report") == 1
    assert await count(label="team:red") == 0
    assert await count(worker_id=api.hand.id) == 1, "the other waits for its next attempt"
    assert await count(worker_id="0" * 12 + "7" + "0" * 3 + "8" + "0" * 15) == 0
    assert await count(error_type="DemoError") == 1
    assert await count(error_type="Demo") == 0
    assert await count(min_lateness_ms=3_600_000) == 1
    assert await count(min_lateness_ms=3_600_001) == 0
    assert await count(trigger="schedule", label="team") == 1


@pytest.mark.parametrize(
    ("query", "pointer"),
    [({"worker_id": "me"}, "/worker_id"), ({"min_lateness_ms": "-1"}, "/min_lateness_ms"), ({"label": ""}, "/label")],
)
async def test_a_search_for_something_that_cannot_be_is_refused(api: Api, query: Any, pointer: str) -> None:
    problem = await api.get("/v1/runs", params=query, status=422)
    assert problem["errors"][0]["pointer"] == pointer


async def test_queues_come_in_pages(api: Api) -> None:
    for name in ("d", "b", "a", "c"):
        await api.create(queue=name, schedule="2026-03-01T13:00:00Z")
    found = await pages(api, "/v1/queues", limit=3)
    assert [[queue["name"] for queue in page["items"]] for page in found] == [["a", "b", "c"], ["d"]]
