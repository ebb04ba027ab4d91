"""Administrators see and act on what others own, in every list."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.commands import CommandResult, RunCommand, until
from tests.live import Live, live_horae

SECRET = {"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": "a secret of more than thirty-two characters"}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    with live_horae(tmp_path_factory.mktemp("owners"), "serve", **SECRET) as live:
        yield live


class Person:
    """Someone with a token, who types commands."""

    def __init__(self, command: RunCommand, sub: str, scope: str) -> None:
        self._command = command
        self._token = command("token", "create", "--sub", sub, "--scope", scope, **SECRET).stdout.strip()

    def types(self, *words: str) -> CommandResult:
        return self._command(*words, HORAE_TOKEN=self._token)

    def reads(self, *words: str) -> Any:
        return json.loads(self.types(*words, "-o", "json").stdout)


def test_lists_and_names_reach_another_owner(command: RunCommand) -> None:
    ann, root = Person(command, "ann", "jobs:read,jobs:write"), Person(command, "root", "admin")
    job = ann.reads("jobs", "create", "demo.fail", "--max-retries", "0", "--name", "hers", "--queue", "ann-queue")["id"]
    until(lambda: bool(ann.reads("dlq", "ls")["items"]), "it has not failed")
    lists = (("jobs", "ls"), ("runs", "ls"), ("dlq", "ls"))
    for words in lists:
        assert root.reads(*words)["items"] == []
        assert [item["owner"] for item in root.reads(*words, "--owner", "ann")["items"]] == ["ann"]
        assert [item["owner"] for item in root.reads(*words, "--owner", "*")["items"]].count("ann") == 1
        assert root.types(*words, "--owner", "*").stdout.splitlines()[0].split()[-1] == "OWNER"
        assert "OWNER" not in root.types(*words, "--owner", "ann").stdout
    assert [run["job_id"] for run in root.reads("runs", "ls", "--job", "hers", "--owner", "ann")["items"]] == [job]
    digits = job.removeprefix("job_")
    assert root.reads("runs", "show", digits)["owner"] == "ann", "what is named by its id needs no owner"
    assert root.reads("dlq", "discard", digits)["done"] == 1
    assert root.reads("queues", "set", "ann-queue", "--concurrency", "2")["concurrency"] == 2
    events = root.types("events", "--owner", "*", "--types", "run.failed").stdout
    assert digits in events
    assert root.types("top", "--once", "--owner", "ann").returncode == 0


def test_a_name_means_the_job_of_the_owner_who_is_named(command: RunCommand) -> None:
    cyd, boss = Person(command, "cyd", "jobs:read,jobs:write"), Person(command, "boss", "admin")
    words = ("jobs", "create", "demo.echo", "--name", "shared name", "--schedule", "0 * * * *")
    hers, own = cyd.reads(*words)["id"], boss.reads(*words)["id"]
    for owner, job in (((), own), (("--owner", "cyd"), hers)):
        assert boss.reads("jobs", "show", "shared name", *owner)["id"] == job
        assert boss.reads("jobs", "run", "shared name", *owner)["job_id"] == job
        assert boss.reads("run", "shared name", *owner)["job_id"] == job
        assert boss.reads("jobs", "edit", "shared name", "--set", "priority=1", *owner)["id"] == job
        past = ("--start", "2026-01-05", "--end", "2026-01-05 00:30")
        assert boss.reads("jobs", "backfill", "shared name", *past, *owner)["job_id"] == job
        assert len(boss.reads("jobs", "next", "shared name", "-n", "2", *owner)["items"]) == 2
    both = boss.types("jobs", "show", "shared name", "--owner", "*")
    assert "2 jobs have the name 'shared name'" in both.stderr


def test_others_are_told_what_they_lack(command: RunCommand) -> None:
    ben = Person(command, "ben", "jobs:read")
    for words in (("jobs", "ls"), ("queues",), ("events",), ("top",)):
        refused = ben.types(*words, "--owner", "*")
        assert refused.returncode == 1
        assert "scope admin" in refused.stderr
    paused = ben.types("queues", "pause", "default")
    assert paused.returncode == 1
    assert "admin" in paused.stderr
