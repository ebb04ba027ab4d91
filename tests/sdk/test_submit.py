"""Submitting tasks: what is written, what may be said about it, and what is refused."""

import asyncio
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from horae import Handle, Horae, Invalid, KeyTaken
from horae.core.errors import RequestChanged, TooLarge
from horae.core.model import OnFailure, Run, RunId
from horae.lookup import find_run
from horae.ports.reader import RunFilter
from horae.ports.store import Store
from tests.sdk.conftest import Work
from tests.sdk.tasks import Parcel, Tasks

FAR = datetime(2990, 1, 1, 9, tzinfo=UTC)


async def run_of(store: Store, handle: Handle[Any]) -> Run:
    run = await find_run(store, RunId(handle.run_id.removeprefix("run_")), owner="ada")
    assert run is not None
    return run


async def count(store: Store) -> int:
    return len((await store.list_runs(RunFilter(owner="ada"), cursor=None, limit=1000)).items)


async def test_a_submitted_task_is_a_job_that_is_due_now(tasks: Tasks, store: Store) -> None:
    handle = await tasks.add.submit(1, right=2)
    run = await run_of(store, handle)
    assert handle.id == f"job_{run.job_id}"
    assert (run.owner, run.spec.task, run.spec.params) == ("ada", "add", '{"left":1,"right":2}')
    assert run.spec.policy.retry.max_retries == 7  # the task's own
    assert run.due_at == run.created_at
    assert abs(await store.time() - run.due_at) < timedelta(seconds=10)


async def test_arguments_of_any_type_that_json_can_hold_are_sent(tasks: Tasks, store: Store) -> None:
    run = await run_of(store, await tasks.weigh.submit(Parcel(to="Ann", on=date(2026, 3, 1))))
    assert msgspec.json.decode(run.spec.params) == {"parcel": {"to": "Ann", "on": "2026-03-01", "grams": 100}}


async def test_what_using_says_is_written(tasks: Tasks, store: Store) -> None:
    handle = await tasks.add.using(
        at=FAR,
        queue="mail",
        priority=5,
        ordering_key="user-42",
        on_failure="block",
        key="k",
        name="a sum",
        labels={"team": "blue"},
        max_retries=2,
        timeout=timedelta(minutes=1),
        start_within=30,
        delay=None,
        tx=None,
    ).submit(1)
    run = await run_of(store, handle)
    spec, policy = run.spec, run.spec.policy
    assert (run.due_at, spec.queue, spec.priority, spec.ordering_key, spec.key) == (FAR, "mail", 5, "user-42", "k")
    assert (spec.name, dict(spec.labels)) == ("a sum", {"team": "blue"})
    assert (policy.retry.max_retries, policy.on_failure) == (2, OnFailure.BLOCK)
    assert (policy.timeout, policy.start_within) == (timedelta(minutes=1), timedelta(seconds=30))


async def test_what_was_said_can_be_kept_and_added_to(tasks: Tasks, store: Store) -> None:
    mail = tasks.add.using(queue="mail", at=FAR)
    urgent = mail.using(priority=9, delay=60)
    first, second = await run_of(store, await mail.submit(1)), await run_of(store, await urgent.submit(2))
    assert (first.spec.queue, first.spec.priority, first.due_at) == ("mail", 0, FAR)
    assert (second.spec.queue, second.spec.priority) == ("mail", 9)
    assert abs(second.due_at - second.created_at - timedelta(seconds=60)) < timedelta(seconds=1)


async def test_an_instant_in_another_zone_is_the_same_instant(tasks: Tasks, store: Store) -> None:
    paris = datetime(2990, 1, 1, 10, tzinfo=ZoneInfo("Europe/Paris"))
    assert (await run_of(store, await tasks.add.using(at=paris).submit(1))).due_at == FAR


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"at": datetime(2990, 1, 1)}, Invalid, "needs a time zone"),  # noqa: DTZ001 - that is the point
        ({"at": FAR, "delay": 5}, TypeError, "not both"),
        ({"at": "tomorrow"}, TypeError, "datetime"),
        ({"delay": -1}, Invalid, "negative"),
        ({"delay": "soon"}, Invalid, "number of seconds"),
        ({"priority": 101}, Invalid, "priority"),
        ({"queue": "with space"}, Invalid, "queue"),
        ({"timeout": 0}, Invalid, "timeout"),
        ({"labels": {"a": 1}}, Invalid, "labels"),
        ({"on_failure": "explode"}, Invalid, "on_failure"),
        ({"key": "a\0b"}, Invalid, "key: text cannot contain"),
        ({"name": "half \ud800"}, Invalid, "name: text cannot contain"),
        ({"labels": {"a\0": "b"}}, Invalid, "labels: text cannot contain"),
        ({"labels": {"a": "\udfff"}}, Invalid, "labels: text cannot contain"),
        ({"secrets": "hush"}, TypeError, "dict"),
        ({"colour": "red"}, TypeError, "has no colour"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_sent(
    options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    app = Horae(store="mysql://nowhere")
    with pytest.raises(error, match=reason):
        app.task("x")(lambda: None).using(**options)


async def test_what_blocks_after_a_failure_needs_an_ordering_key(tasks: Tasks, store: Store) -> None:
    blocking = tasks.add.using(at=FAR, on_failure="block")
    with pytest.raises(Invalid, match="ordering_key"):
        await blocking.submit(1)
    with pytest.raises(Invalid, match="ordering_key"):
        await blocking.submit_many([{"left": 1}])
    assert (await run_of(store, await blocking.using(ordering_key="user-42").submit(1))).gate is not None


@pytest.mark.parametrize(
    ("args", "kwargs", "error", "reason"),
    [
        ((), {"left": "one"}, Invalid, "must be a whole number"),
        ((), {}, TypeError, "missing a required argument: 'left'"),
        ((), {"left": 1, "wrong": 2}, TypeError, "unexpected keyword argument 'wrong'"),
        ((1, 2, 3), {}, TypeError, "too many positional"),
        ((1,), {"left": 1}, TypeError, "multiple values"),
        ((), {"left": object()}, TypeError, "'left' cannot be sent as JSON"),
        ((), {"left": float("nan")}, Invalid, "left"),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_sent(
    args: tuple[Any, ...], kwargs: dict[str, Any], error: type[Exception], reason: str
) -> None:
    app = Horae(store="mysql://nowhere")

    @app.task
    async def add(left: int, right: int = 1) -> int:
        return left + right

    with pytest.raises(error, match=reason):
        add.submit_sync(*args, **kwargs)


async def test_a_delay_beyond_all_calendars_is_refused(tasks: Tasks, store: Store) -> None:
    for delay in (timedelta(days=999_999_999), timedelta(days=400_000)):
        with pytest.raises(Invalid, match=r"delay|year"):
            await tasks.add.using(delay=delay).submit(1)
    assert await count(store) == 0


async def test_a_key_belongs_to_one_unfinished_job(tasks: Tasks, store: Store) -> None:
    first = await tasks.add.using(key="once").submit(1)
    with pytest.raises(KeyTaken, match=first.id):
        await tasks.add.using(key="once").submit(2)
    assert await count(store) == 1


async def test_a_repeated_submission_makes_no_second_job(tasks: Tasks, store: Store) -> None:
    once = tasks.add.using(idempotency_key="order-7")
    first = await once.submit(1)
    assert await once.submit(1) == first
    with pytest.raises(RequestChanged, match="order-7"):
        await once.submit(2)
    assert await count(store) == 1


async def test_a_repeated_submission_may_name_its_options_in_another_order_but_not_others(
    tasks: Tasks, store: Store
) -> None:
    first = await tasks.add.using(idempotency_key="k", labels={"a": "1", "b": "2"}, queue="mail").submit(1)
    again = tasks.add.using(queue="mail", labels={"b": "2", "a": "1"}, idempotency_key="k")
    assert await again.submit(1) == first
    with pytest.raises(RequestChanged):
        await again.using(queue="other").submit(1)
    assert await count(store) == 1


async def test_many_are_submitted_in_batches(tasks: Tasks, store: Store) -> None:
    handles = await tasks.add.using(queue="bulk").submit_many({"left": number} for number in range(2500))
    assert len({handle.id for handle in handles}) == 2500
    run = await run_of(store, handles[2345])
    assert (run.spec.params, run.spec.queue, run.owner) == ('{"left":2345}', "bulk", "ada")
    assert await tasks.add.submit_many([]) == []


async def test_a_mistake_in_one_of_many_leaves_nothing_behind(tasks: Tasks, store: Store) -> None:
    with pytest.raises(Invalid, match="must be a whole number"):
        await tasks.add.submit_many([{"left": 1}, {"left": "x"}])
    with pytest.raises(TypeError, match="are a dict, not"):
        await tasks.add.submit_many([{"left": 1}, 2])  # type: ignore[list-item]
    with pytest.raises(Invalid, match="key belongs to one job"):
        await tasks.add.using(key="k").submit_many([{"left": 1}, {"left": 2}])
    assert await count(store) == 0


async def test_many_are_encoded_as_one_is(app: Horae, store: Store) -> None:
    @app.task
    async def note(text: str, at: datetime | None = None, **more: Any) -> None: ...

    @app.task
    async def strict(text: str, tags: list[str] = []) -> None: ...  # noqa: B006

    strange = ["two\nlines", "\u2028 \x85 \x1c", "ä€😀", ""]
    for task, calls in (
        (strict, [{"text": text} for text in strange]),
        (strict, [{"text": text, "tags": ["a\n"]} for text in strange]),
        (strict, [{"text": msgspec.Raw(b'"raw"'), "tags": msgspec.Raw(b'[\n"a",\n"b"]')}] * 2),
        (note, [{"text": text, "at": datetime(2026, 1, 1, tzinfo=UTC), "any": {"n": 1}} for text in strange]),
    ):
        handles = await task.submit_many(calls)
        each = [await task.submit(**call) for call in calls]  # type: ignore[arg-type]
        params = [(await run_of(store, handle)).spec.params for handle in (*handles, *each)]
        assert params[: len(calls)] == params[len(calls) :]


async def test_many_that_are_repeated_make_no_second_jobs(tasks: Tasks, store: Store) -> None:
    calls = [{"left": number} for number in range(10)]
    first = await tasks.add.using(idempotency_key="import").submit_many(calls)
    assert await tasks.add.using(idempotency_key="import").submit_many(calls) == first
    assert await count(store) == 10


async def test_a_key_that_could_be_that_of_one_of_many_is_refused(tasks: Tasks, store: Store) -> None:
    with pytest.raises(Invalid, match="must not contain the control character"):
        await tasks.add.using(idempotency_key="import\x1f0").submit(1)
    assert await count(store) == 0


async def test_large_parameters_are_kept_apart_and_too_large_ones_refused(app: Horae, store: Store, work: Work) -> None:
    @app.task("demo.echo")
    def echo(message: str) -> str:
        return message

    text = "x" * 100_000
    one, other = await echo.submit_many([{"message": text}, {"message": "y" + text}])
    await work()
    assert (await run_of(store, other)).spec.params_blob is not None
    assert [await one.result(timeout=20), await other.result(timeout=20)] == [text, "y" + text]
    with pytest.raises(TooLarge):
        await echo.submit("x" * 11_000_000)


async def test_secrets_are_parameters_that_nobody_sees(tasks: Tasks, store: Store, work: Work) -> None:
    handle = await tasks.login.using(secrets={"password": "open sesame"}).submit(user="ali")
    run = await run_of(store, handle)
    assert run.spec.params == '{"user":"ali"}'
    await work()
    assert await handle.result(timeout=20) == "ali:11"
    with pytest.raises(TypeError, match="missing a required argument: 'password'"):
        await tasks.login.submit(user="ali")


async def test_submissions_at_the_same_time_share_a_write(tasks: Tasks, store: Store) -> None:
    handles = await asyncio.gather(*(tasks.add.submit(number) for number in range(300)))
    assert len({handle.id for handle in handles}) == 300
    assert await count(store) == 300


def test_a_task_with_parameters_that_have_no_name_cannot_be_sent() -> None:
    app = Horae(store="mysql://nowhere")

    @app.task
    def total(*numbers: int) -> int:
        return sum(numbers)

    with pytest.raises(TypeError, match=r"\*numbers cannot be sent"):
        total.submit_sync(1, 2)


def test_two_applications_may_have_tasks_of_one_name() -> None:
    apps = SimpleNamespace(one=Horae(), other=Horae())
    assert apps.one.task("same")(lambda: 1)() == 1
    assert apps.other.task("same")(lambda: 2)() == 2
