"""A node with an archive: it archives old history by itself, and commands list, show and restore it."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from horae.client import Client
from horae.core.model import Run
from tests.archive.places import DAY, given_history, sqlite
from tests.cli.commands import JsonOf, RunCommand, until
from tests.live import Live, live_horae

COUNT = 20


@pytest.fixture(scope="module")
def runs() -> list[Run]:
    """The history that the store has when the node starts."""
    return []


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, runs: list[Run]) -> Iterator[Live]:
    """In place of the server of the other commands."""
    folder = tmp_path_factory.mktemp("archive")

    async def prepare() -> None:
        (folder / ".horae").mkdir()
        async with sqlite(folder / ".horae") as store:
            runs.extend(await given_history(store, COUNT))

    asyncio.run(prepare())
    with live_horae(folder, "dev", "--no-demo", HORAE_ARCHIVE=f"file://{folder}/archive") as live:
        yield live


def test_old_history_is_archived_listed_shown_and_restored(
    command: RunCommand, json_of: JsonOf, server: Live, runs: list[Run]
) -> None:
    until(lambda: bool(list(server.folder.glob("archive/manifests/*.json"))), "archived")
    assert (server.folder / "archive/runs/year=2026/month=03/day=01/part-00001.ndjson.gz").is_file()
    until(lambda: json_of("runs", "ls", "--owner", "*")["items"] == [], "deleted from the store")

    [day] = json_of("archive", "ls")["items"]
    assert (day["day"], day["runs"], day["parts"]) == ("2026-03-01", COUNT, 1)
    assert command("archive", "ls").stdout.splitlines()[1].split()[:2] == ["2026-03-01", str(COUNT)]

    name = f"run_{runs[0].id}"
    assert json_of("archive", "show", name)["archived"] is True
    assert "archived" in command("runs", "show", name).stdout
    assert command("archive", "restore", name).stdout == "restored  1 run\n"
    assert [item["id"] for item in json_of("runs", "ls", "--owner", "*")["items"]] == [name]
    with Client(server.url) as client:
        assert client.runs.get(f"run_{runs[1].id}").archived
        assert not client.runs.get(name).archived
        assert [each.runs for each in client.archive.days()] == [COUNT]
        assert client.archive.restore(["run_019ca7358ed874ffab3c92510a22adbe"]).missing == [
            "run_019ca7358ed874ffab3c92510a22adbe"
        ]
    assert json_of("archive", "restore", "--day", DAY.date().isoformat()) == {"restored": COUNT, "missing": []}
    assert len(json_of("runs", "ls", "--owner", "*", "--limit", "100")["items"]) == COUNT


@pytest.mark.parametrize("words", [(), ("run_1", "--day", "2026-03-01"), ("--day", "yesterday")])
def test_a_restore_that_names_nothing_clear_is_refused(alone: RunCommand, words: tuple[str, ...]) -> None:
    result = alone("archive", "restore", *words)
    assert result.returncode == 2
    assert "--day" in result.stderr or "write it like 2026-01-31" in result.stderr


def test_without_an_archive_the_command_says_so(alone: RunCommand, tmp_path: Path) -> None:
    with live_horae(tmp_path, "dev", "--no-demo") as live:
        result = alone("archive", "ls", HORAE_URL=live.url)
    assert result.returncode == 1
    assert "HORAE_ARCHIVE" in result.stderr
