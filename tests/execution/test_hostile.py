"""Tasks that are made to hurt: each attempt ends with its reason, and the worker goes on."""

import asyncio
import base64
import contextlib
import math
import os
import pickle
import resource
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from horae import Horae, RetryAfter, Run
from horae.core.decisions.results import Failure
from horae.engine.execution.outcome import MAX_TYPE, Success, redacted
from horae.secrets.redaction import Redactor
from tests.execution import cpu_tasks
from tests.execution.executing import Stage, gone, pids_in, stage, until

app = Horae()


class Leaver(Exception):
    """Raises SystemExit when its message is read."""

    def __str__(self) -> str:
        sys.exit(1)


def _chain(length: int) -> Exception:
    """Return an exception with a long chain of causes."""
    error = ValueError("the last")
    tip: BaseException = error
    for number in range(length):
        tip.__cause__ = KeyError(number)
        tip = tip.__cause__
    return error


ODD: dict[str, Callable[[], BaseException]] = {
    "generator": lambda: GeneratorExit("thrown"),
    "leaver": Leaver,
    "named": lambda: type("N" * 100_000, (Exception,), {})("long name"),
    "group": lambda: BaseExceptionGroup("many", [SystemExit(1), KeyboardInterrupt(), ValueError("x")]),
    "chain": lambda: _chain(2000),
    "span": lambda: RetryAfter(timedelta(minutes=5), "busy"),  # type: ignore[arg-type]
    "soon": lambda: RetryAfter("soon", "busy"),  # type: ignore[arg-type]
    "nan": lambda: RetryAfter(math.nan),
    "huge": lambda: RetryAfter(10**400, "busy"),
    "memory": MemoryError,
    "surrogate": lambda: ValueError("half \ud800 of a pair"),
}
EXPECTED: dict[str, tuple[str, str, float | None]] = {
    "generator": ("GeneratorExit", "thrown", None),
    "leaver": ("Leaver", "(its message cannot be printed: SystemExit)", None),
    "named": ("N" * MAX_TYPE, "long name", None),
    "group": ("BaseExceptionGroup", "many (3 sub-exceptions)", None),
    "chain": ("ValueError", "the last", None),
    "span": ("RetryAfter", "busy", 300),
    "soon": ("RetryAfter", "busy", None),
    "nan": ("RetryAfter", "the task asked for a retry after nan s", 0),
    "huge": ("RetryAfter", "busy", 3653 * 86_400),
    "memory": ("MemoryError", "", None),
    "surrogate": ("ValueError", "half ? of a pair", None),
}


@app.task("odd.async")
async def raise_odd(kind: str) -> None:
    await asyncio.sleep(0)
    raise ODD[kind]()


@app.task("odd.thread")
def raise_odd_in_thread(kind: str) -> None:
    raise ODD[kind]()


@app.task("deep.async")
async def deep(depth: int, token: str = "") -> Any:
    value: Any = token
    for _ in range(depth):
        value = [value]
    return value


@app.task("fork.async")
async def fork(note: str) -> str:
    return _forked(note)


@app.task("fork.thread")
def fork_in_thread(note: str) -> str:
    return _forked(note)


def _forked(note: str) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons advise against it, and rightly so
        child = os.fork()
    if child == 0:
        return "child"
    Path(note).write_text(str(child))
    return "parent"


@app.task("flood.thread")
def flood(run: Run) -> None:
    for _ in range(50):
        run.log.info("x" * 1_000_000)
        run.progress(0.5)


@app.task("same.async")
async def same(value: object) -> object:
    await asyncio.sleep(0)
    return value


@app.task("same.thread")
def same_in_thread(value: object) -> object:
    return value


@app.task("where")
def where() -> str:
    return threading.current_thread().name


@pytest.fixture
async def play() -> AsyncIterator[Stage]:
    async with stage(app, threads=2) as play:
        yield play


@pytest.mark.parametrize("mode", ["async", "thread"])
@pytest.mark.parametrize("kind", ODD)
async def test_whatever_is_raised_the_attempt_ends_with_its_reason(play: Stage, mode: str, kind: str) -> None:
    result = await play.result(f"odd.{mode}", kind=kind)
    assert isinstance(result, Failure)
    delay = None if result.retry_after is None else result.retry_after.total_seconds()
    assert (result.error.type, result.error.message, delay) == EXPECTED[kind]
    assert isinstance(await play.result("where"), Success)
    assert play.executor.abandoned == 0


async def test_a_deep_result_that_cannot_be_searched_for_secrets_is_not_kept(play: Stage) -> None:
    flat = await play.result("deep.async", depth=2, secrets='plain:{"token":"s3cr3t-value"}')
    assert flat == Success('[["***"]]')
    result = await play.result("deep.async", depth=980, secrets='plain:{"token":"s3cr3t-value"}')
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("InvalidResult", True)
    assert "s3cr3t" not in result.error.message


def test_a_result_in_which_no_secret_can_be_looked_for_is_a_failure() -> None:
    text = "[" * 50_000 + "]" * 50_000
    result = redacted(Success(text), Redactor('{"token":"s3cr3t-value"}'))
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("InvalidResult", True)


async def test_a_result_that_is_too_deep_for_json_is_refused(play: Stage) -> None:
    result = await play.result("deep.async", depth=100_000)
    assert isinstance(result, Failure)
    assert (result.error.type, result.fatal) == ("InvalidResult", True)


@pytest.mark.parametrize("mode", ["async", "thread"])
async def test_a_child_that_a_task_forks_ends_where_the_task_does(play: Stage, mode: str, tmp_path: Path) -> None:
    assert await play.result(f"fork.{mode}", note=str(tmp_path / "note")) == Success('"parent"')
    [child] = await pids_in(tmp_path / "note")
    await until(lambda: gone(child))


async def test_a_flood_of_long_lines_from_a_thread_is_cut_and_the_loop_goes_on(play: Stage) -> None:
    attempt = play.begin("flood.thread")
    longest, began = 0.0, time.monotonic()
    while not attempt.results:
        before = time.monotonic()
        await asyncio.sleep(0.001)
        longest = max(longest, time.monotonic() - before)
        assert time.monotonic() - began < 20
    assert attempt.results == [Success(None)]
    assert len(await play.log(attempt, "truncated")) <= 1_000_100
    assert longest < 1


# --- when the machine has no more to give


@contextlib.contextmanager
def no_files_left() -> Iterator[None]:
    """Every file that this process may open is open."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, limits[0]), limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


async def test_what_cannot_be_started_for_want_of_files_is_tried_again_later() -> None:
    async with stage(cpu_tasks.app, processes=1) as play:
        with no_files_left():
            program = await play.result("shell.run", command=["true"])
            process = await play.result("square", number=2)
        assert isinstance(program, Failure)
        assert (program.error.type, program.fatal) == ("NotStarted", False)
        assert "Too many open files" in program.error.message
        assert isinstance(process, Failure)
        assert (process.error.type, process.fatal) == ("OSError", False)
        assert isinstance(await play.result("shell.run", command=["true"]), Success)
        assert isinstance(await play.result("square", number=2), Success)
    assert not play.executor._groups._live


async def test_a_function_for_which_there_is_no_thread_fails_and_the_next_one_runs(
    play: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        result = await play.result("where")
    assert isinstance(result, Failure)
    assert (result.error.type, result.error.message, result.fatal) == ("RuntimeError", "can't start new thread", False)
    assert await play.result("where") == Success('"horae-task-1"')


async def test_a_function_waits_for_the_threads_that_there_are(play: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    assert await play.result("where") == Success('"horae-task-1"')
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", _no_thread)
        attempts = [play.begin("where") for _ in range(5)]
        assert [await attempt.result() for attempt in attempts] == [Success('"horae-task-1"')] * 5


def _no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


class Bomb:
    """Creates a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.file,)


async def test_values_that_would_be_code_elsewhere_stay_values(play: Stage, tmp_path: Path) -> None:
    """In and out of a coroutine, a thread and a process, which get and give them by different ways."""
    trace = tmp_path / "trace"
    pickled = pickle.dumps(Bomb(trace))
    code = f"__import__('pathlib').Path({str(trace)!r}).touch()"
    values = [
        *(code, f"{{{{ {code} }}}}", f"${{{code}}}", f"$(touch {trace})", f"`touch {trace}`", "{0.__class__.__mro__}"),
        *(pickled.decode("latin-1"), base64.b64encode(pickled).decode()),
        f"!!python/object/apply:os.system ['touch {trace}']",
        {"py/object": "os.system", "__reduce__": ["os.system", f"touch {trace}"], "__class__": "Run"},
        {"$ref": f"file://{trace}", "__proto__": {"a": 1}, "$type": "System.Diagnostics.Process"},
    ]
    for task in ("same.async", "same.thread"):
        assert [await _back(play, task, value) for value in values] == values
    async with stage(cpu_tasks.app, processes=1) as processes:
        assert [await _back(processes, "same", value) for value in values] == values
    assert not trace.exists()
    pickle.loads(pickled)
    assert trace.exists(), "the bomb is none"


async def _back(play: Stage, task: str, value: object) -> object:
    result = await play.result(task, value=value)
    assert isinstance(result, Success)
    assert result.result is not None
    return msgspec.json.decode(result.result)


async def test_a_task_that_eats_memory_fails_and_is_the_first_to_go() -> None:
    async with stage(cpu_tasks.app, processes=1) as play:
        assert await play.result("expendable") == Success('"1000"')
        command = ["sh", "-c", "read go; cat /proc/self/oom_score_adj"]
        assert await play.result("shell.run", command=command, stdin="go\n") == Success(
            '{"exit_code":0,"output":"1000\\n"}'
        )
        result = await play.result("hog", megabytes=500)
        assert isinstance(result, Failure)
        assert result.error.type in ("MemoryError", "crash")
        assert isinstance(await play.result("shell.run", command=["true"]), Success)
    own = int(Path("/proc/self/oom_score_adj").read_text())
    assert own < 1000
