"""Commands fill a page of a list: where the server ended its search early, they go on."""

from typing import Any

import pytest

from horae.cli.client import CommandClient

EARLY = "2026-01-02T00:00:00Z"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The queries that a server is asked, which finds a run on every other page."""
    monkeypatch.setenv("HORAE_URL", "http://127.0.0.1:9")
    queries: list[dict[str, Any]] = []

    def get(client: CommandClient, path: str, **query: Any) -> Any:
        queries.append(query)
        number = len(queries)
        items = [{"id": f"run_{number}"}] if number % 2 == 0 else []
        ended = {"next_cursor": None} if number == 6 else {"next_cursor": str(number), "searched_to": EARLY}
        return {"items": items, **ended}

    monkeypatch.setattr(CommandClient, "get", get)
    return queries


def test_a_page_is_searched_for_until_it_is_full(asked: list[dict[str, Any]]) -> None:
    with CommandClient() as client:
        page = client.page("/v1/runs", q="x", limit=2)
    assert [item["id"] for item in page["items"]] == ["run_2", "run_4"]
    assert page["next_cursor"] == "4"
    assert [(query["limit"], query["cursor"]) for query in asked] == [(2, None), (2, "1"), (1, "2"), (1, "3")]


def test_a_page_is_searched_for_to_the_end(asked: list[dict[str, Any]]) -> None:
    with CommandClient() as client:
        page = client.page("/v1/runs", q="x", limit=50)
    assert len(page["items"]) == 3
    assert page["next_cursor"] is None
    assert all(query["q"] == "x" for query in asked)


def test_a_job_is_found_by_its_name_behind_many_others(asked: list[dict[str, Any]]) -> None:
    with CommandClient() as client:
        assert client.page("/v1/jobs", name="x", limit=1)["items"] == [{"id": "run_2"}]
