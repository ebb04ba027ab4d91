"""What tasks write with Python's `logging`: it goes to the log of their run, with its level."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from structlog.testing import capture_logs

from horae import Horae
from horae.engine.execution import task_logging
from horae.engine.execution.task_logging import begin_capture, end_capture
from horae.log_setup import accept_task_logs
from tests.execution import cpu_tasks
from tests.execution.executing import stage

library = logging.getLogger("some.library")


@pytest.fixture(autouse=True)
def accepting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`logging` as workers set it up, with no other worker in this process: simulated ones that crashed stay there."""
    monkeypatch.setattr(task_logging, "_users", 0)
    with unconfigured():
        accept_task_logs("info")
        level = logging.getLogger().level
    logging.getLogger().setLevel(level)
    yield
    logging.getLogger().setLevel(logging.WARNING)


@contextmanager
def unconfigured() -> Iterator[logging.Logger]:
    """The root logger as Python starts with it, without the handlers of pytest."""
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    level = root.level
    root.setLevel(logging.WARNING)
    try:
        yield root
    finally:
        root.handlers = handlers
        root.setLevel(level)


def speak(word: str) -> None:
    library.debug("too low")
    library.info("an %s", word)
    try:
        raise ValueError(word)
    except ValueError:
        library.exception("it broke")


@pytest.fixture
def app() -> Horae:
    app = Horae()

    @app.task("loop")
    async def on_the_loop(word: str) -> None:
        await asyncio.sleep(0)
        speak(word)
        await asyncio.to_thread(library.warning, "from a thread of the task")

    @app.task("thread")
    def in_a_thread(word: str) -> None:
        speak(word)

    @app.task("quick")
    async def quick(word: str) -> None:
        speak(word)

    @app.task("silent")
    async def silent() -> None: ...

    app.task("process", cpu=True)(cpu_tasks.speak)
    return app


@pytest.mark.parametrize("task", ["loop", "thread", "quick", "process"])
async def test_logging_in_a_task_goes_to_the_log_of_its_run(app: Horae, task: str) -> None:
    async with stage(app) as on_stage:
        attempt = on_stage.begin(task, word="omen")
        await attempt.result()
        text = await on_stage.log(attempt, "ValueError: omen")
    assert " INFO an omen\n" in text
    assert " ERROR it broke\n  Traceback" in text
    assert "too low" not in text
    assert ("from a thread of the task" in text) == (task == "loop")


async def test_each_attempt_gets_its_own_lines(app: Horae) -> None:
    async with stage(app) as on_stage:
        attempts = [on_stage.begin(task, word=f"omen-{task}") for task in ("quick", "loop", "quick", "thread")]
        for attempt in attempts:
            await attempt.result()
            own = f"omen-{attempt.run.spec.task}"
            text = await on_stage.log(attempt, f"ValueError: {own}")
            assert text.count(" INFO ") == text.count(f"an {own}\n") == 1


async def test_what_is_logged_outside_of_tasks_is_no_run_s() -> None:
    with unconfigured() as root:
        async with stage() as on_stage:
            await on_stage.result("demo.echo", message="hello")
            with capture_logs() as lines:
                library.info("nobody asked")
                library.warning("look at %s", "this")
        assert root.handlers == []
    assert lines == [{"event": "look at this", "logger": "some.library", "log_level": "warning"}]


async def test_handlers_that_the_user_configured_still_get_everything(caplog: pytest.LogCaptureFixture) -> None:
    begin_capture()
    try:
        with capture_logs() as lines:
            library.warning("mine")
    finally:
        end_capture()
    assert (lines, caplog.messages) == ([], ["mine"])


def test_a_level_that_users_set_is_left_alone() -> None:
    with unconfigured() as root:
        root.setLevel(logging.ERROR)
        accept_task_logs("debug")
        assert root.level == logging.ERROR
