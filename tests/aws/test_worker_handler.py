"""A worker inside Lambda runs the tickets of its event, and says which messages must come again."""

import json
import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from subprocess import PIPE

import pytest

from horae.aws import worker_handler
from horae.aws.environment import Environment
from horae.core.errors import Malformed, Misconfigured
from horae.core.model import State
from tests.aws.conftest import Account, Context


def test_the_tickets_of_an_event_are_run_and_their_messages_deleted(account: Account) -> None:
    runs = [account.submit("add", a=number, b=1) for number in range(3)]
    assert account.work() == set()
    assert [account.run_of(run).result for run in runs] == ["1", "2", "3"]
    assert account.messages() == {"Visible": 0, "Delayed": 0, "NotVisible": 0}


def test_the_next_invocation_uses_the_same_connections_and_code(account: Account) -> None:
    first = account.submit("add", a=1, b=1)
    account.work()
    kept = Environment.of_this_process(role="worker")
    second = account.submit("add", a=2, b=2)
    began = time.monotonic()
    account.work()
    assert time.monotonic() - began < 2
    assert Environment.of_this_process(role="worker") is kept
    assert [account.run_of(run).result for run in (first, second)] == ["2", "4"]


def test_an_environment_is_a_node_during_an_invocation_alone(account: Account) -> None:
    account.submit("add", a=1, b=1)
    account.work()

    async def nodes(store: object) -> list[object]:
        return await store.nodes()  # type: ignore[attr-defined,no-any-return]

    assert account.in_store(nodes) == []


def test_a_task_in_a_thread_runs_too(account: Account) -> None:
    account.submit("note", what="hello")
    account.work()
    assert [line.split()[0] for line in account.notes()] == ["hello"]


def test_a_failed_run_is_retried_by_a_new_ticket(account: Account) -> None:
    run = account.submit("fail")
    assert account.work() == set()
    assert account.run_of(run).state is State.RETRYING
    assert account.messages() == {"Visible": 0, "Delayed": 1, "NotVisible": 0}


def test_a_ticket_twice_in_an_event_is_run_once(account: Account) -> None:
    run = account.submit("note", what="once")
    account.offer_again(run)
    event = account.event()
    while len(event["Records"]) < 2:
        event["Records"] += account.event()["Records"]
    assert account.work(event) == set()
    assert len(account.notes()) == 1


def test_the_ticket_of_a_run_that_has_ended_is_deleted(account: Account) -> None:
    run = account.submit("note", what="once")
    account.offer_again(run)
    account.work()
    account.work()
    assert len(account.notes()) == 1
    assert account.messages() == {"Visible": 0, "Delayed": 0, "NotVisible": 0}


def test_a_ticket_that_is_early_is_run_at_its_time(account: Account) -> None:
    run = account.submit("note", after=2.5, what="later")
    event = account.event()
    assert account.work(event) == set()
    ended = account.run_of(run)
    assert ended.first_started_at is not None
    assert timedelta() <= ended.first_started_at - ended.due_at < timedelta(seconds=1)


def test_a_ticket_that_is_much_too_early_comes_again_at_its_time(account: Account) -> None:
    first = account.submit("add", a=1, b=1)
    early = account.submit("add", after=60, offered=False, a=1, b=2)
    event = account.event()
    later = dict(event["Records"][0], messageId="later")
    later["body"] = later["body"].replace(first, early)
    wake_at = account.run_of(early).wake_at
    document = later["body"].rpartition('"wake_at":"')
    later["body"] = f'{document[0]}"wake_at":"{wake_at.isoformat()}"}}'
    began = time.monotonic()
    assert account.work({"Records": [later]}) == {early}
    assert time.monotonic() - began < 5, "nobody waits for it"
    assert account.messages() == {"Visible": 0, "Delayed": 0, "NotVisible": 1}


def test_a_ticket_of_a_task_that_the_application_has_not_comes_again(account: Account) -> None:
    run = account.submit("unknown.task")
    assert account.work(seconds=30) == {run}
    assert account.run_of(run).state is State.SCHEDULED


def test_a_message_that_is_no_ticket_is_set_aside(account: Account) -> None:
    run = account.submit("add", a=1, b=1)
    account.send("nonsense")
    event = account.event()
    while len(event["Records"]) < 2:
        event["Records"] += account.event()["Records"]
    answer = worker_handler(event, Context(60))
    assert answer == {"batchItemFailures": []}
    assert account.run_of(run).result == "2"
    assert account.messages("refused")["Visible"] == 1


def test_a_task_that_needs_longer_than_the_function_has_fails_with_a_timeout(account: Account) -> None:
    run = account.submit("sleep", seconds=60)
    began = time.monotonic()
    assert account.work(seconds=6) == set()
    assert time.monotonic() - began < 6
    failed = account.run_of(run)
    assert failed.state is State.RETRYING
    assert failed.error is not None
    assert failed.error.type == "timeout"


def test_a_run_that_began_late_is_given_back_and_uses_no_retry(account: Account) -> None:
    run = account.submit("sleep", after=1.8, seconds=60)
    event = account.event()
    assert account.work(event, seconds=4) == set()
    returned = account.run_of(run)
    assert returned.state is State.SCHEDULED
    assert returned.error is None
    assert len(account.notes()) == 1
    assert sum(account.messages().values()) == 1, "it has a new ticket"


def test_when_the_store_does_not_answer_all_messages_come_again_soon(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = account.submit("add", a=1, b=1)
    event = account.event()
    monkeypatch.setenv("HORAE_STORE", "postgresql://nobody@127.0.0.1:1/nothing")
    assert account.work(event, seconds=30) == {run}


def test_an_event_of_something_else_is_refused(account: Account) -> None:
    for event in ({}, {"Records": [{"eventSource": "aws:s3"}]}, {"source": "aws.events"}, []):
        with pytest.raises(Malformed, match="SQS"):
            worker_handler(event, Context(60))


def test_a_function_without_sqs_is_refused(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    account.submit("add", a=1, b=1)
    event = account.event()
    monkeypatch.setenv("HORAE_QUEUE", "store")
    with pytest.raises(Misconfigured, match="HORAE_QUEUE must be sqs://"):
        worker_handler(event, Context(60))


@pytest.mark.acceptance  # it takes the time that a run is held before it is due
def test_a_function_that_was_frozen_starts_nothing_that_others_have_been_given(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("HEARTBEAT", "0.2"), ("DEAD_AFTER", "1"), ("LEAD", "11")):
        monkeypatch.setenv(f"HORAE_{name}_SECONDS", seconds)
    account.lead = timedelta(seconds=11)
    function = subprocess.Popen([sys.executable, "-m", "tests.aws.function"], stdin=PIPE, stdout=PIPE, text=True)
    try:
        run = account.submit("note", after=12, what="once")
        assert function.stdin is not None
        function.stdin.write(json.dumps(account.event()))
        function.stdin.close()
        account.until(lambda: account.run_of(run).state is State.CLAIMED)
        function.send_signal(signal.SIGSTOP)
        assert account.notes() == [], "it was frozen before the run was due"
        time.sleep(1.5)
        account.plan()  # the function is declared dead, and its run gets another ticket
        assert account.work() == set()
        assert account.run_of(run).state is State.SUCCEEDED
        function.send_signal(signal.SIGCONT)
        assert function.stdout is not None
        answer = json.loads(function.stdout.read())
    finally:
        function.kill()
        function.wait()
        for stream in (function.stdin, function.stdout):
            if stream is not None:
                stream.close()
    assert [line.split() for line in account.notes()] == [["once", str(os.getpid())]]
    assert answer == {"batchItemFailures": []}
