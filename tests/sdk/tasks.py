"""Tasks that the tests submit."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import date
from typing import Any

from horae import Fatal, Horae, Run, Task


@dataclass
class Parcel:
    """A shape that is sent and returned."""

    to: str
    on: date
    grams: int = 100


@dataclass
class Tasks:
    """The tasks of one application."""

    add: Task[Any, Coroutine[Any, Any, int], int]
    weigh: Task[Any, Coroutine[Any, Any, Parcel], Parcel]
    nothing: Task[Any, None, None]
    fail: Task[Any, None, None]
    sleep: Task[Any, Coroutine[Any, Any, None], None]
    chain: Task[Any, Coroutine[Any, Any, str], str]
    chain_sync: Task[Any, str, str]
    login: Task[Any, str, str]


def declare(app: Horae) -> Tasks:
    """Declare the same tasks on any application."""

    @app.task("add", max_retries=7)
    async def add(left: int, right: int = 1) -> int:
        return left + right

    @app.task("weigh")
    async def weigh(run: Run, parcel: Parcel) -> Parcel:
        return Parcel(to=parcel.to, on=parcel.on, grams=parcel.grams + 1)

    @app.task("nothing")
    def nothing() -> None:
        pass

    @app.task("fail")
    def fail(why: str) -> None:
        raise Fatal(why)

    @app.task("sleep")
    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds)

    @app.task("chain")
    async def chain(left: int) -> str:
        return (await add.submit(left)).id

    @app.task("chain.sync")
    def chain_sync(left: int) -> str:
        return add.submit_sync(left).id

    @app.task("login")
    def login(user: str, password: str) -> str:
        return f"{user}:{len(password)}"

    return Tasks(add, weigh, nothing, fail, sleep, chain, chain_sync, login)
