"""What a task itself says about its jobs: queue, priority, retries; and what a submission says instead."""

from datetime import timedelta
from typing import Any

import pytest

from horae import Horae, Invalid, Retry
from horae.core.decisions.retry import RetryPolicy
from horae.core.drafts import Draft
from horae.core.model import RunId
from horae.lookup import find_run
from horae.ports.store import Store
from horae.tasks.registry import TaskFunction
from tests.sdk.conftest import node
from tests.sdk.test_submit import run_of

HASTY = RetryPolicy(initial=timedelta(seconds=1), factor=3.0)


def nothing() -> None: ...


async def test_the_jobs_of_a_task_have_its_queue_its_priority_and_its_retries(app: Horae, store: Store) -> None:
    mail = app.task("mail", retry=Retry(initial=1, factor=3), queue="mail", priority=5, max_retries=7)(nothing)
    one = await run_of(store, await mail.submit())
    [many] = [await run_of(store, handle) for handle in await mail.submit_many([{}])]
    for spec in (one.spec, many.spec):
        assert (spec.queue, spec.priority) == ("mail", 5)
        assert spec.policy.retry == RetryPolicy(initial=timedelta(seconds=1), factor=3.0, max_retries=7)


async def test_a_submission_may_say_otherwise(app: Horae, store: Store) -> None:
    mail = app.task("mail", retry=Retry(initial=1), queue="mail", priority=5)(nothing)
    said = mail.using(retry=Retry(initial=timedelta(minutes=1), max=90, jitter=False), queue="default", priority=0)
    spec = (await run_of(store, await said.submit())).spec
    assert (spec.queue, spec.priority) == ("default", 0)
    retry = RetryPolicy(initial=timedelta(minutes=1), maximum=timedelta(seconds=90), jitter=False)
    assert spec.policy.retry == retry
    again = (await run_of(store, await said.using(name="again").submit())).spec
    assert again.policy.retry == retry


async def test_a_repeated_submission_with_retries_is_recognised(app: Horae) -> None:
    once = app.task("mail")(nothing).using(retry=Retry(initial=1), idempotency_key="k")
    assert await once.submit() == await once.submit()


async def test_declared_schedules_have_the_queue_and_the_retries_of_their_task(app: Horae) -> None:
    task = app.task("mail", retry=Retry(initial=1, factor=3), queue="mail")(nothing)
    app.schedule("@daily")(task)
    app.schedule("@hourly", retry=Retry(initial=2), queue="slow")(task)
    drafts = [declared.draft for declared in app.declared]
    specs = [draft.spec(task, params="{}", params_blob=None) for draft in drafts]
    assert [spec.queue for spec in specs] == ["mail", "slow"]
    assert [spec.policy.retry.initial.total_seconds() for spec in specs] == [1, 2]
    assert specs[0].policy.retry == HASTY


async def test_jobs_that_come_by_rest_have_them_too(app: Horae, address: str, store: Store) -> None:
    app.task("mail", retry=Retry(initial=1, factor=3), queue="mail", priority=5)(nothing)
    async with node(app, address, "api", "worker") as running:
        job = await running.services.jobs.create(Draft(task="mail"), owner="ada", by="ada")
    run = await find_run(store, RunId(job.id), owner="ada")
    assert run is not None
    assert (run.spec.queue, run.spec.priority, run.spec.policy.retry) == ("mail", 5, HASTY)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"queue": "with space"}, "queue"),
        ({"priority": 101}, "priority"),
        ({"priority": "high"}, "priority"),
        ({"retry": {"initial": 1}}, r"retry= must be a Retry\(\.\.\.\)"),
    ],
)
def test_a_task_that_cannot_be_meant_is_refused_when_the_code_is_loaded(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises((Invalid, TypeError), match=reason):
        Horae().task("mail", **settings)(nothing)


@pytest.mark.parametrize(
    ("retry", "reason"),
    [
        ({"initial": -1}, "initial"),
        ({"factor": 0.5}, "factor"),
        ({"max": "long"}, "max"),
        ({"jitter": 0.5}, "jitter"),
    ],
)
def test_retries_that_cannot_be_meant_are_refused_where_they_are_written(retry: dict[str, Any], reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        Retry(**retry)


def test_a_plain_task_function_has_no_settings_of_its_own() -> None:
    task: TaskFunction[Any, Any] = TaskFunction(nothing)
    assert (task.queue, task.priority, task.retry) == (None, None, None)
