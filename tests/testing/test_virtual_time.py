"""Users' applications in virtual time: hours pass at once, and everything happens at its instant, in order."""

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from horae import Fatal, Horae, RetryAfter, Run, cron, every
from horae.core.errors import RunFailed
from horae.testing import START, StandStill, System, system

__all__ = ["system"]

HOUR = timedelta(hours=1)


class Mailbox:
    """An application, and what its tasks did."""

    def __init__(self) -> None:
        self.app = Horae(name="mailbox")
        self.sent: list[Any] = []
        self.failures = 0
        app, sent = self.app, self.sent

        @app.task
        async def send(to: str) -> str:
            sent.append(to)
            return f"sent to {to}"

        @app.task
        def send_sync(to: str) -> str:
            sent.append(to)
            return f"sent to {to}"

        @app.task(max_retries=3)
        async def flaky(run: Run) -> int:
            sent.append(run.attempt)
            if run.attempt <= self.failures:
                raise ValueError("not yet")
            return run.attempt

        @app.task
        async def sleepy(run: Run, seconds: float) -> None:
            run.log.info("going to sleep")
            await asyncio.sleep(seconds)
            run.log.info("awake again")

        self.send, self.send_sync, self.flaky, self.sleepy = send, send_sync, flaky, sleepy


@pytest.fixture
def mail() -> Mailbox:
    return Mailbox()


@pytest.fixture
def horae_app(mail: Mailbox) -> Horae:
    return mail.app


def statuses(running: System) -> list[str]:
    return [run.status for run in running.runs()]


# --- time


def test_nothing_runs_before_its_time_and_everything_at_its_instant(system: System, mail: Mailbox) -> None:
    mail.send.using(delay=86400).submit_sync(to="a@example.com")
    system.advance(hours=23, minutes=59)
    assert (mail.sent, statuses(system)) == ([], ["scheduled"])
    system.advance(hours=1)
    [run] = system.runs()
    assert (run.status, run.result) == ("succeeded", "sent to a@example.com")
    assert run.started_at == run.due_at == START + timedelta(days=1)
    assert system.now == START + timedelta(hours=24, minutes=59)


def test_what_is_due_now_runs_when_the_system_settles(system: System, mail: Mailbox) -> None:
    mail.send.submit_sync(to="a@example.com")
    assert statuses(system) == ["queued"]
    system.settle()
    assert statuses(system) == ["succeeded"]
    assert system.now == START


def test_time_stops_at_the_moment_that_it_is_moved_to(system: System, mail: Mailbox) -> None:
    monday = datetime(2026, 1, 12, 9, 30, tzinfo=UTC)
    mail.send.using(at=monday).submit_sync(to="a@example.com")
    system.advance_to(monday - timedelta(microseconds=1))
    assert statuses(system) == ["scheduled"]
    system.advance_to(monday)
    assert statuses(system) == ["succeeded"]


def test_a_coroutine_sleeps_for_hours_of_virtual_time_and_no_real_time(system: System, mail: Mailbox) -> None:
    began = time.monotonic()
    mail.sleepy.submit_sync(seconds=3600)
    system.advance(minutes=59)
    assert statuses(system) == ["running"]
    system.advance(minutes=1)
    [run] = system.runs()
    assert (run.status, run.finished_at) == ("succeeded", START + HOUR)
    assert "09:00:00.000Z INFO going to sleep\n" in system.logs(run)
    assert "10:00:00.000Z INFO awake again\n" in system.logs(run)
    assert time.monotonic() - began < 30


def test_a_timeout_comes_in_virtual_time() -> None:
    app = Horae(name="slow")

    @app.task(timeout=30, max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(3600)

    with System().use(app) as running:
        slow.submit_sync()
        running.advance(minutes=1)
        [run] = running.runs()
        assert (run.status, run.error and run.error.type) == ("failed", "timeout")
        assert run.finished_at == START + timedelta(seconds=30)


def test_a_year_of_a_daily_job_takes_less_than_two_seconds() -> None:
    app, days = Horae(name="daily"), []

    @app.schedule(cron("0 9 * * *", tz="Europe/Paris"))
    async def daily(run: Run) -> None:
        days.append(run.due_at)

    with System().use(app) as running:
        began = time.process_time()  # others may want the processor, too
        running.advance(days=365)
        assert time.process_time() - began < 2
    assert len(days) == 365
    assert {day.hour for day in days} == {7, 8}  # summer and winter


# --- schedules and retries


def test_declared_schedules_run_from_the_beginning() -> None:
    app, seen = Horae(name="declared"), []

    @app.schedule(every(hours=12))
    def twice_a_day(run: Run) -> None:
        seen.append(run.due_at)

    @app.schedule(cron("0 9 * * mon-fri"), key="mornings", params={"greeting": "hello"})
    async def morning(greeting: str) -> None:
        seen.append(greeting)

    with System().use(app) as running:
        running.advance(hours=23)
        assert seen == [START.replace(hour=12), START.replace(hour=0) + timedelta(days=1)]
        running.advance_to(datetime(2026, 1, 12, 9, 0, tzinfo=UTC))
        assert seen.count("hello") == 5  # Tuesday to Friday, and Monday
        [job] = running.jobs(task=morning)
        assert (job.key, job.status, job.description) == (
            "mornings",
            "scheduled",
            "at 09:00 on Monday through Friday (UTC)",
        )


def test_failures_are_tried_again_after_their_delays(system: System, mail: Mailbox) -> None:
    mail.failures = 2
    handle = mail.flaky.submit_sync()
    system.settle()
    [run] = system.runs()
    assert (run.status, run.error and run.error.message) == ("retrying", "not yet")
    system.advance(minutes=1)
    run = system.run(handle)
    assert (run.status, run.result, mail.sent) == ("succeeded", 3, [1, 2, 3])
    first, second = run.attempts
    assert (first.outcome, first.started_at) == ("failed", START)
    assert second.started_at is not None
    assert timedelta(seconds=5) <= second.started_at - first.finished_at <= timedelta(seconds=6.25)


def test_a_run_that_fails_for_good_shows_why(system: System, mail: Mailbox) -> None:
    mail.failures = 99
    handle = mail.flaky.submit_sync()
    system.advance(hours=1)
    run = system.run(handle)
    assert (run.status, run.attempt) == ("failed", 4)
    assert run.error is not None
    assert (run.error.type, run.error.message) == ("ValueError", "not yet")
    assert "in flaky" in system.logs(run)  # the traceback
    with pytest.raises(RunFailed, match="not yet"):
        handle.result_sync()


def test_what_a_task_says_about_retries_holds() -> None:
    app, starts = Horae(name="choosy"), []

    @app.task
    async def choosy(run: Run) -> None:
        starts.append(run.attempt)
        raise RetryAfter(7200) if run.attempt == 1 else Fatal("no use")

    with System().use(app) as running:
        choosy.submit_sync()
        running.advance(hours=1, minutes=59)
        assert starts == [1]
        running.advance(minutes=1)
        assert [run.status for run in running.runs()] == ["failed"]


# --- functions in threads


def test_functions_run_one_after_another_in_the_order_of_their_submission(system: System, mail: Mailbox) -> None:
    names = [f"{n}@example.com" for n in range(20)]
    for name in names:
        mail.send_sync.submit_sync(to=name)
    system.settle()
    assert mail.sent == names
    assert set(statuses(system)) == {"succeeded"}


def test_time_stands_still_while_a_function_runs() -> None:
    app, ticks = Horae(name="standing"), []

    @app.task
    def slow() -> None:
        time.sleep(0.3)  # of real time

    @app.schedule(every(seconds=1))
    async def tick(run: Run) -> None:
        ticks.append(run.due_at)

    with System().use(app) as running:
        handle = slow.submit_sync()
        running.settle()
        run = running.run(handle)
        assert (run.status, run.finished_at, ticks) == ("succeeded", START, [])


def test_a_function_may_submit_and_wait_for_what_another_function_returns() -> None:
    app = Horae(name="nested")

    @app.task
    def inner(number: int) -> int:
        if number > 1:
            return number * inner.submit_sync(number=number - 1).result_sync(timeout=60)
        return 1

    with System().use(app) as running:
        handle = inner.submit_sync(number=3)
        running.settle()
        assert running.run(handle).result == 6


def test_a_function_may_wait_for_something_that_takes_virtual_time() -> None:
    app = Horae(name="patient")

    @app.task
    async def later() -> str:
        await asyncio.sleep(60)
        return "done"

    @app.task
    def waits() -> str:
        return later.submit_sync().result_sync(timeout=120)

    with System().use(app) as running:
        handle = waits.submit_sync()
        running.settle()
        assert running.run(handle).status == "running"
        running.advance(minutes=1)
        assert running.run(handle).result == "done"


def test_time_waits_for_threads_and_programs_of_coroutines() -> None:
    app = Horae(name="outside")

    @app.task
    async def asks_a_thread() -> int:
        return await asyncio.to_thread(lambda: time.sleep(0.2) or threading.active_count())  # type: ignore[func-returns-value]

    @app.task
    async def asks_a_program() -> int:
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass", stdout=subprocess.PIPE)
        await program.communicate()
        return program.returncode or 0

    with System().use(app) as running:
        handles = [asks_a_thread.submit_sync(), asks_a_program.submit_sync()]
        running.settle()
        first = running.run(handles[0])
        assert (first.status, first.finished_at) == ("succeeded", START)
        assert handles[1].result_sync(timeout=3600) == 0


def test_secrets_reach_the_task_and_nobody_else(system: System, mail: Mailbox) -> None:
    handle = mail.send.using(secrets={"to": "a@example.com"}).submit_sync()  # type: ignore[call-arg]
    system.settle()
    run = system.run(handle)
    assert (mail.sent, run.params, run.result) == (["a@example.com"], {}, "sent to ***")


# --- waiting for results


def test_waiting_for_a_result_takes_the_time_that_it_takes(system: System, mail: Mailbox) -> None:
    handle = mail.send.using(delay=HOUR).submit_sync(to="a@example.com")
    assert handle.result_sync(timeout=7200) == "sent to a@example.com"
    assert system.now == START + HOUR
    late = mail.send.using(delay=HOUR).submit_sync(to="b@example.com")
    with pytest.raises(TimeoutError):
        late.result_sync(timeout=60)
    assert system.now == START + HOUR + timedelta(minutes=1)


def test_a_run_can_be_cancelled_before_and_after_its_start(system: System, mail: Mailbox) -> None:
    waiting = mail.send.using(delay=60).submit_sync(to="a@example.com")
    running = mail.sleepy.submit_sync(seconds=3600)
    system.settle()
    assert (waiting.cancel_sync(), running.cancel_sync()) == ("cancelled", "cancelled")
    system.advance(hours=2)
    assert (mail.sent, statuses(system)) == ([], ["cancelled", "cancelled"])


async def test_asynchronous_tests_submit_and_wait_in_their_own_loop(system: System, mail: Mailbox) -> None:
    handle = await mail.send.using(delay=60).submit(to="a@example.com")
    await mail.send.submit_many([{"to": "b@example.com"}, {"to": "c@example.com"}])
    system.settle()
    assert mail.sent == ["b@example.com", "c@example.com"]
    assert await handle.result(timeout=3600) == "sent to a@example.com"
    assert system.submit(mail.send, to="d@example.com").id in {job.id for job in system.jobs()}
    system.advance(seconds=1)
    assert mail.sent[-1] == "d@example.com"


# --- workers that die


def test_a_run_survives_its_worker() -> None:
    app, starts = Horae(name="survivor"), []

    @app.task
    async def long(run: Run) -> str:
        starts.append(run.fence)
        await asyncio.sleep(600)
        return "done"

    with System().use(app) as running:
        handle = long.submit_sync()
        running.advance(minutes=5)
        running.crash_worker()
        running.advance(minutes=5)
        run = running.run(handle)
        assert (run.status, run.crashes, run.attempts[0].outcome) == ("running", 1, "lost")
        running.advance(minutes=10)
        assert (running.run(handle).result, starts) == ("done", [1, 2])


# --- looking


def test_runs_and_jobs_can_be_chosen(system: System, mail: Mailbox) -> None:
    first = mail.send.submit_sync(to="a@example.com")
    mail.send_sync.using(delay=60, key="later", name="Later").submit_sync(to="b@example.com")
    system.settle()
    assert [run.params for run in system.runs(task=mail.send)] == [{"to": "a@example.com"}]
    assert [run.job_id for run in system.runs(job=first)] == [first.id]
    assert [run.task for run in system.runs(status="scheduled")] == [mail.send_sync.name]
    later = system.jobs(task=mail.send_sync)[0]
    assert (later.key, later.name, later.next_run_at) == ("later", "Later", START + timedelta(minutes=1))
    assert [job.status for job in system.jobs()] == ["finished", "scheduled"]
    with pytest.raises(ValueError, match="is not a run"):
        system.run("nonsense")


def test_the_same_seed_gives_the_same_story(mail: Mailbox) -> None:
    def story(seed: int) -> list[tuple[str, datetime | None]]:
        mail.failures = 2
        with System(seed=seed).use(mail.app) as running:
            for _ in range(3):
                mail.flaky.submit_sync()
            running.advance(hours=1)
            return [(run.id, run.finished_at) for run in running.runs()]

    assert story(1) == story(1) != story(2)


# --- mistakes


def test_mistakes_are_told(system: System, mail: Mailbox) -> None:
    with pytest.raises(ValueError, match="backwards"):
        system.advance(hours=-1)
    with pytest.raises(ValueError, match="backwards"):
        system.advance_to(START - HOUR)
    with pytest.raises(ValueError, match="time zone"):
        system.advance_to(datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(RuntimeError, match="already running"):
        system.use(mail.app)
    with pytest.raises(ValueError, match="time zone"):
        System(start=datetime(2030, 1, 1))  # noqa: DTZ001
    with System() as nobody, pytest.raises(RuntimeError, match=r"system\.use\(app\)"):
        nobody.advance(hours=1)


def test_a_handler_cannot_move_the_time_that_it_runs_in() -> None:
    app = Horae(name="meddling")

    @app.task(max_retries=0)
    async def meddle() -> None:
        running.settle()

    with System().use(app) as running:
        handle = meddle.submit_sync()
        running.settle()
        assert "only tests can advance time" in str(running.run(handle).error)


def test_a_function_that_does_not_return_fails_the_test_instead_of_hanging_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("horae.testing.virtual_time.REAL_LIMIT", 0.4)
    app, forever = Horae(name="stuck"), threading.Event()

    @app.task
    def stuck() -> None:
        forever.wait(60)

    with System().use(app) as running:
        stuck.submit_sync()
        with pytest.raises(StandStill, match="virtual time waits for it"):
            running.settle()
        forever.set()


def test_a_coroutine_that_does_not_want_to_end_does_not_keep_the_system_open() -> None:
    app = Horae(name="stubborn")

    @app.task
    async def stubborn() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3600)

    with System().use(app) as running:
        stubborn.submit_sync()
        running.advance(minutes=1)
        running.crash_worker()
        running.advance(minutes=1)
        assert [run.status for run in running.runs()] == ["running"]


def test_an_application_is_free_again_when_its_system_is_closed(mail: Mailbox) -> None:
    for _ in range(2):
        with System().use(mail.app) as running:
            mail.send.submit_sync(to="a@example.com")
            running.settle()
            assert len(running.runs()) == 1


@pytest.fixture(autouse=True)
def no_thread_stays() -> Iterator[None]:
    """Every system takes its threads with it."""
    yield
    deadline = time.monotonic() + 5
    while stayed := [thread for thread in threading.enumerate() if thread.name.startswith(("horae-v", "horae-t"))]:
        assert time.monotonic() < deadline, stayed
        stayed[0].join(1)


def test_the_log_is_there_as_soon_as_the_end_is(system: System, mail: Mailbox) -> None:
    mail.failures = 99
    handle = mail.flaky.submit_sync()
    with pytest.raises(RunFailed):
        handle.result_sync()
    assert "in flaky" in system.logs(handle)
