"""What a type checker says of calls and submissions; the expected words stand behind each line.

Never run, only checked: `E:` is an error on its line, `R:` the type that `reveal_type` tells.
"""

from datetime import UTC, datetime, timedelta
from typing import reveal_type

from horae import Horae, Run, cron, every

app = Horae()


@app.task
async def send(to: str, subject: str = "hi") -> int:
    return len(to + subject)


@app.task("reports.build", max_retries=5, timeout=30)
def build(run: Run, day: str) -> float:
    return 1.0


@app.task()
async def archive(run: Run, day: str, *, deep: bool = False) -> None: ...


@app.schedule(cron("0 9 * * mon-fri", tz="Europe/Paris"), overlap="allow")
@app.schedule(every(minutes=5), params={"day": "monday"}, catchup=timedelta(hours=1))
@app.task("reports.daily")
async def daily(run: Run, day: str = "today") -> str:
    return day


@app.schedule("@daily")
def morning() -> bool:
    return True


async def use() -> None:
    reveal_type(await send(to="a"))  # R: int
    reveal_type(build(day="monday"))  # R: float
    reveal_type(morning())  # R: bool
    handle = await send.submit(to="a", subject="b")
    reveal_type(handle)  # R: horae.sdk.handle.Handle[int]
    reveal_type(await handle.result(timeout=60))  # R: int
    reveal_type(handle.result_sync())  # R: int
    reveal_type(await (await build.submit(day="monday")).result())  # R: float
    reveal_type(await (await archive.submit("monday", deep=True)).result())  # R: None
    reveal_type(await (await daily.submit()).result())  # R: str
    reveal_type(await (await morning.submit()).result())  # R: bool
    reveal_type(await send.submit_many([{"to": "a"}]))  # R: list[horae.sdk.handle.Handle[int]]
    reveal_type(build.submit_sync("monday"))  # R: horae.sdk.handle.Handle[float]
    reveal_type(send.submit_many_sync([{"to": "a"}])[0].result_sync())  # R: int

    later = send.using(at=datetime(2027, 1, 1, tzinfo=UTC), delay=None, queue="mail", ordering_key="user-42", key=None)
    reveal_type(await later.submit(to="a"))  # R: horae.sdk.handle.Handle[int]
    reveal_type(later.using(delay=timedelta(minutes=1), priority=3).submit_sync("a"))  # R: horae.sdk.handle.Handle[int]

    await send.submit()  # E: Missing positional argument "to"
    await send.submit(to=1)  # E: Argument "to" to "submit" of "Submission" has incompatible type "int"; expected "str"
    await send.submit("a", "b", "c")  # E: Too many arguments for "submit"
    await send.submit(to="a", subjekt="b")  # E: Unexpected keyword argument "subjekt"
    send.submit_sync(to=b"a")  # E: Argument "to" to "submit_sync" of "Submission" has incompatible type "bytes"
    await build.submit(1)  # E: Argument 1 to "submit" of "Submission" has incompatible type "int"; expected "str"
    await archive.submit("monday", True)  # E: Too many positional arguments
    await daily.submit(dai="x")  # E: Unexpected keyword argument "dai"
    await send.submit_many([1])  # E: List item 0 has incompatible type "int"
    await later.submit(subject="b")  # E: Missing positional argument "to"
    await later.submit(to=1)  # E: Argument "to" to "submit" of "Submission" has incompatible type "int"
    send.using(at="tomorrow")  # E: Argument "at" to "using" of "Submission" has incompatible type "str"
    send.using(colour="red")  # E: Unexpected keyword argument "colour"
    send.using(on_failure="explode")  # E: Argument "on_failure" to "using" of "Submission" has incompatible type
    app.schedule("@daily", overlap="sometimes")  # E: Argument "overlap" to "schedule" of "Horae" has incompatible type
    app.asgi(roles=("boss",))  # E: Argument "roles" to "asgi" of "Horae" has incompatible type
