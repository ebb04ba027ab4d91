"""Coroutines share one asyncio task as long as none of them suspends."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import ContextVar

import pytest

from horae.engine.execution.shared_task import SharedTask, Task

MARK: ContextVar[str] = ContextVar("MARK", default="unset")

Step = Callable[[Task], Awaitable[None]]


class Handlers:
    """Handlers that record when they begin, and in which task."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.tasks: list[Task] = []
        self.go_on = asyncio.Event()

    def at_once(self, name: str, act: Callable[[], object] = lambda: None) -> Step:
        async def step(task: Task) -> None:
            assert asyncio.current_task() is task
            self.begun.append(name)
            self.tasks.append(task)
            act()

        return step

    def waiting(self, name: str) -> Step:
        async def step(task: Task) -> None:
            await self.at_once(name)(task)
            await self.go_on.wait()
            self.begun.append(f"{name} goes on")
            assert asyncio.current_task() is task

        return step


@pytest.fixture
async def shared() -> SharedTask:
    return SharedTask(asyncio.get_running_loop())


async def a_round() -> None:
    await asyncio.sleep(0)


async def test_what_does_not_wait_shares_a_task_and_begins_in_the_next_round(shared: SharedTask) -> None:
    handlers = Handlers()
    for name in "abc":
        shared.run("quick", handlers.at_once(name))
    assert handlers.begun == []
    await a_round()
    assert handlers.begun == ["a", "b", "c"]
    assert len(set(handlers.tasks)) == 1


async def test_whoever_waits_keeps_nobody_waiting(shared: SharedTask) -> None:
    handlers = Handlers()
    shared.run("quick", handlers.at_once("a"))
    for name in "bcd":
        shared.run("slow", handlers.waiting(name))
    shared.run("quick", handlers.at_once("e"))
    await a_round()
    await a_round()
    assert sorted(handlers.begun) == ["a", "b", "c", "d", "e"]
    handlers.go_on.set()
    await asyncio.gather(*handlers.tasks)
    assert sorted(handlers.begun[5:]) == ["b goes on", "c goes on", "d goes on"]


async def test_a_kind_that_has_waited_once_has_tasks_of_its_own_from_then_on(shared: SharedTask) -> None:
    handlers = Handlers()
    shared.run("slow", handlers.waiting("a"))
    await a_round()
    await a_round()
    for name in "bc":
        shared.run("slow", handlers.waiting(name))
    shared.run("quick", handlers.at_once("d"))
    await a_round()
    assert handlers.begun == ["a", "b", "c", "d"]
    assert len(set(handlers.tasks)) == 4
    assert [task.get_name() for task in handlers.tasks[1:3]] == ["slow", "slow"]
    handlers.go_on.set()
    await asyncio.gather(*handlers.tasks)


async def test_what_a_handler_gives_begins_in_another_round(shared: SharedTask) -> None:
    handlers = Handlers()
    shared.run("quick", handlers.at_once("a", lambda: shared.run("quick", handlers.at_once("b"))))
    await a_round()
    assert handlers.begun == ["a"]
    await a_round()
    assert handlers.begun == ["a", "b"]


@pytest.mark.parametrize("leave", [lambda: MARK.set("mine"), lambda: asyncio.current_task().cancel()])  # type: ignore[union-attr]
async def test_nobody_finds_what_another_left_in_the_task(shared: SharedTask, leave: Callable[[], object]) -> None:
    handlers, found = Handlers(), []
    shared.run("quick", handlers.at_once("a", leave))
    shared.run("quick", handlers.at_once("b", lambda: found.append(MARK.get())))
    await a_round()
    await a_round()
    assert handlers.begun == ["a", "b"]
    assert found == ["unset"]
    assert handlers.tasks[0] is not handlers.tasks[1]
    assert handlers.tasks[1].cancelling() == 0


async def test_an_error_holds_nobody_up(shared: SharedTask) -> None:
    def fail() -> None:
        raise ValueError("no good")

    handlers = Handlers()
    shared.run("quick", handlers.at_once("a", fail))
    shared.run("quick", handlers.at_once("b"))
    await a_round()
    await a_round()
    assert handlers.begun == ["a", "b"]
    with pytest.raises(ValueError, match="no good"):
        await handlers.tasks[0]


async def test_to_cancel_what_waits_leaves_the_others_alone(shared: SharedTask) -> None:
    handlers = Handlers()
    shared.run("slow", handlers.waiting("a"))
    shared.run("quick", handlers.at_once("b"))
    await a_round()
    handlers.tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await handlers.tasks[0]
    shared.run("quick", handlers.at_once("c"))
    await a_round()
    assert handlers.begun == ["a", "b", "c"]
