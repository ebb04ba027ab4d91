"""Jobs and runs by the first digits of their ids, in every command."""

from typing import Any

import pytest

from horae.cli.client import CommandClient
from tests.cli.commands import JsonOf, RunCommand, until


def made(json_of: JsonOf, *words: str) -> str:
    """The digits of a new job's id, which for one that runs once are those of its run."""
    return str(json_of("jobs", "create", *words)["id"]).removeprefix("job_")


def shortest(json_of: JsonOf, one: str) -> str:
    """The first digits that no other job or run begins with."""
    there = [each["id"] for kind in ("jobs", "runs") for each in json_of(kind, "ls", "--limit", "1000")["items"]]
    others = {ident.rpartition("_")[2] for ident in there} - {one}
    return next(one[:size] for size in range(1, 33) if not any(other.startswith(one[:size]) for other in others))


def test_the_first_digits_of_an_id_are_enough(command: RunCommand, json_of: JsonOf) -> None:
    first = made(json_of, "demo.fail", "--max-retries", "0", "--queue", "prefixed")
    second = made(json_of, "demo.echo", "--schedule", "2099-01-01", "--queue", "prefixed")
    until(lambda: json_of("runs", "show", f"run_{first}")["status"] == "failed", "it has not failed")
    digits, other = shortest(json_of, first), shortest(json_of, second)
    for words in (("runs", "show"), ("dlq", "show"), ("runs", "show")):
        assert json_of(*words, digits)["id"] == f"run_{first}"
    assert json_of("runs", "show", f"run_{digits.upper()}"[:4] + digits)["id"] == f"run_{first}"
    assert json_of("jobs", "show", f"job_{digits}")["id"] == f"job_{first}"
    assert json_of("runs", "why", other)["reason"] == "not_due"
    assert command("runs", "logs", digits).returncode == 0
    assert json_of("runs", "ls", "--job", digits)["items"][0]["id"] == f"run_{first}"
    assert json_of("runs", "cancel", other)["status"] == "cancelled"
    assert json_of("dlq", "requeue", digits, "--param", "times=0")["done"] == 1


def test_digits_that_several_ids_begin_with_name_the_candidates(command: RunCommand, json_of: JsonOf) -> None:
    made_ids = [made(json_of, "demo.echo", "--name", f"twin {n}", "--schedule", "@daily") for n in range(7)]
    shared = made_ids[0][:2]
    result = command("jobs", "show", shared)
    assert (result.returncode, result.stdout) == (1, "")
    title, *candidates = result.stderr.splitlines()
    assert title == f"error: several jobs begin with '{shared}'; give more digits:"
    assert len(candidates) == 6
    assert candidates[0].startswith(f"  job_{made_ids[-1]}  twin 6, scheduled, ")
    assert candidates[-1] == "  and more"


@pytest.mark.parametrize("words", [("runs", "show", "fff"), ("jobs", "show", "job_fff"), ("runs", "show", "no id")])
def test_digits_that_no_id_begins_with_are_told(command: RunCommand, words: tuple[str, ...]) -> None:
    result = command(*words)
    assert result.returncode == 1
    assert result.stderr.startswith(f"error: there is no {words[0].removesuffix('s')}")


def test_what_is_written_as_an_id_is_not_searched_for_as_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    queries: list[dict[str, Any]] = []

    def get(client: CommandClient, path: str, **query: Any) -> Any:
        queries.append(query)
        return {"items": [{"id": "job_019a"}], "next_cursor": None}

    monkeypatch.setattr(CommandClient, "get", get)
    with CommandClient() as client:
        assert client.job_id("job_019a") == "job_019a"
    assert [query["id_prefix"] for query in queries] == ["019a"]


def test_a_key_or_name_comes_before_the_digits_of_an_id(command: RunCommand, json_of: JsonOf) -> None:
    other = made(json_of, "demo.echo", "--schedule", "@daily")
    named = made(json_of, "demo.echo", "--schedule", "@daily", "--name", other[:10])
    assert json_of("jobs", "show", other[:10])["id"] == f"job_{named}"
