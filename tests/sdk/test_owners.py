"""Owners in code: a task knows whose run it is, and submits on behalf of others."""

from typing import Any

import pytest

from horae import Fatal, Horae, Invalid, NotFound, Run
from horae.core.errors import Misconfigured
from horae.core.model import RunId
from horae.lookup import find_run
from horae.ports.store import Store
from tests.execution.cpu_tasks import cpu_whose
from tests.sdk.conftest import node
from tests.sdk.tasks import Tasks


def shown(run: Run) -> list[Any]:
    return [run.owner, dict(run.params)]


async def test_a_submission_on_behalf_of_another_owner_belongs_to_that_owner(tasks: Tasks, store: Store) -> None:
    handle = await tasks.add.using(owner="bob").submit(1)
    [many] = await tasks.add.using(owner="bob").submit_many([{"left": 2}])
    for one in (handle, many):
        run = await find_run(store, RunId(one.run_id.removeprefix("run_")), owner=None)
        assert run is not None
        assert (run.owner, run.created_by) == ("bob", "ada")
    assert await handle.status() == "queued"
    with pytest.raises(NotFound):
        await tasks.add.handle(handle.id).status()
    assert await tasks.add.using(owner="bob").handle(handle.id).cancel() == "cancelled"


async def test_owners_do_not_share_idempotency_keys(tasks: Tasks) -> None:
    once = tasks.add.using(idempotency_key="k")
    assert await once.using(owner="bob").submit(1) != await once.submit(1)


@pytest.mark.parametrize("owner", ["", "*", "x" * 201, "a\0b", 7])
def test_an_owner_that_nobody_can_be_is_refused(owner: Any) -> None:
    with pytest.raises(Invalid, match="owner"):
        Horae().task("x")(lambda: None).using(owner=owner)
    if owner:
        with pytest.raises((Invalid, Misconfigured), match="owner"):
            Horae(owner=owner)


async def test_a_task_knows_its_owner_and_its_parameters_without_secrets(address: str) -> None:
    app = Horae(store=address, owner="ada")

    @app.task("loop")
    async def on_the_loop(run: Run, day: str, password: str = "") -> list[Any]:
        assert password == "hush"
        return shown(run)

    @app.task("thread")
    def in_a_thread(run: Run, day: str, password: str = "") -> list[Any]:
        assert password == "hush"
        return shown(run)

    in_a_process = app.task("process", cpu=True)(cpu_whose)
    async with node(app, address):
        for task in (on_the_loop, in_a_thread, in_a_process):
            said = task.using(owner="bob", secrets={"password": "hush"})  # type: ignore[attr-defined]
            handle = await said.submit(day="monday")
            assert await handle.result(timeout=30) == ["bob", {"day": "monday"}], task


async def test_large_parameters_are_seen_as_well(address: str) -> None:
    app = Horae(store=address, owner="ada")

    @app.task("measure")
    def measure(run: Run, text: str) -> int:
        if run.params != {"text": text}:
            raise Fatal("other parameters")
        return len(run.params["text"])

    async with node(app, address):
        assert await (await measure.submit(text="x" * 100_000)).result(timeout=30) == 100_000


def test_what_a_task_changes_in_its_parameters_is_its_own() -> None:
    app = Horae(owner="ada")

    @app.task
    def whose(run: Run) -> list[Any]:
        return shown(run)

    assert whose() == ["local", {}]
