"""Schedules in code: what a worker brings to the store, what it leaves alone, and what pruning takes away."""

from datetime import UTC, datetime
from typing import Any

import pytest
from structlog.testing import capture_logs

from horae import Horae, Queue, Run, cron, every
from horae.core.errors import Conflict, Invalid, InvalidSchedule
from horae.core.model import JobStatus, Misfire, Overlap
from horae.core.schedule.types import CronSchedule
from horae.jobs.declared import DeclaredOutcome, DeclaredSchedules
from horae.lookup import find_job_by_key, queue_settings
from horae.ports.reader import JobFilter
from horae.ports.store import Store
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import running_node
from horae.sdk.connection import Connection
from tests.clocks import ManualClock
from tests.sdk.conftest import node, settings

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAILY, HOURLY = cron("0 9 * * *"), every("1h")


class Deploys:
    """Versions of one application, each as a worker would start with it."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.clock = ManualClock(NOON)

    async def start(self, name: str = "reports", **schedules: Any) -> dict[str, DeclaredOutcome]:
        """A worker of a version starts that declares schedules by key."""
        app = declaring_app(name, schedules)
        verdicts = await self._declaring(app).apply(app.declared)
        self.clock.advance(seconds=1)
        return {verdict.key: verdict.outcome for verdict in verdicts}

    async def prune(
        self, name: str = "reports", *, dry_run: bool = False, **schedules: Any
    ) -> dict[str, DeclaredOutcome]:
        app = declaring_app(name, schedules)
        verdicts = await self._declaring(app).prune(app.declared, dry_run=dry_run)
        self.clock.advance(seconds=1)
        return {verdict.key: verdict.outcome for verdict in verdicts}

    async def schedules(self) -> dict[str, str]:
        """What holds: key → cron expression, or the type."""
        which = JobFilter(owner="ada", status=JobStatus.SCHEDULED)
        page = await self.store.list_jobs(which, cursor=None, limit=100)
        return {
            str(job.spec.key): job.schedule.expression if isinstance(job.schedule, CronSchedule) else "every"
            for job in page.items
        }

    async def cancel(self, key: str) -> None:
        job = await find_job_by_key(self.store, "ada", key)
        assert job is not None
        await self._connection(declaring_app("x", {})).jobs.cancel(job.id, keep_running=False, owner="ada")

    def _connection(self, app: Horae) -> Connection:
        return Connection.over(self.store, self.clock, app.registry)

    def _declaring(self, app: Horae) -> DeclaredSchedules:
        return DeclaredSchedules(self.store, self.clock, self._connection(app).jobs, owner="ada", app=app.name)


def declaring_app(name: str, schedules: dict[str, Any]) -> Horae:
    app = Horae(store="mysql://nowhere", owner="ada", name=name)
    task = app.task("report")(lambda: None)
    for key, when in schedules.items():
        app.schedule(when, key=key)(task)
    return app


@pytest.fixture
def deploys(store: Store) -> Deploys:
    return Deploys(store)


# --- declaring


def test_a_function_becomes_a_task_with_a_schedule() -> None:
    app = Horae(owner="ada", name="reports")

    @app.schedule(cron("0 9 * * mon-fri", tz="Europe/Paris"), queue="slow", overlap="allow", misfire="all", catchup=60)
    @app.schedule({"type": "calendar", "hour": 7}, key="early", params={"day": "monday"})
    @app.schedule("every 5m")
    @app.task("report", max_retries=1)
    async def report(run: Run, day: str = "today") -> str:
        return day

    @app.schedule("@daily")
    def morning() -> None: ...

    assert report.name == "report"
    assert [declared.key for declared in app.declared] == ["report", "early", "report:2", morning.name]
    every_five, early, weekdays, _ = (declared.draft for declared in app.declared)
    assert every_five.schedule == {"type": "every", "seconds": 300, "anchor": "1970-01-01T00:00:00Z"}
    assert (early.params, early.schedule) == ('{"day":"monday"}', {"type": "calendar", "hour": 7})
    assert weekdays.queue == "slow"
    assert (weekdays.policy.overlap, weekdays.policy.misfire) == (Overlap.ALLOW, Misfire.ALL)
    assert app.registry.get(morning.name) is morning
    with pytest.raises(TypeError, match=r"put @app\.schedule above @app\.task"):
        app.task(morning)


@pytest.mark.parametrize(
    ("when", "options", "error", "reason"),
    [
        ("now", {}, InvalidSchedule, "must recur"),
        ("2990-01-01T00:00:00Z", {}, InvalidSchedule, "must recur"),
        ("61 * * * *", {}, InvalidSchedule, "61"),
        ("@daily", {"overlap": "sometimes"}, Invalid, "overlap"),
        ("@daily", {"key": "k" * 201}, Invalid, "key"),
        ("@daily", {"key": "taken"}, Conflict, "'taken'"),
        ("@daily", {"colour": "red"}, Invalid, "colour"),
    ],
)
def test_a_mistake_in_a_schedule_is_told_when_the_code_is_loaded(
    when: str, options: dict[str, Any], error: type[Exception], reason: str
) -> None:
    app = Horae()
    app.schedule("@hourly", key="taken")(app.task("first")(lambda: None))
    declare = app.schedule(when, **options)
    with pytest.raises(error, match=reason):
        declare(app.task("second")(lambda: None))
    assert len(app.declared) == 1


def test_an_application_is_named_for_the_module_that_makes_it() -> None:
    assert Horae().name == __name__
    assert Horae(name="billing").name == "billing"


# --- deploys


async def test_a_new_schedule_is_created_and_a_restart_changes_nothing(deploys: Deploys) -> None:
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.CREATED}
    assert await deploys.schedules() == {"report": "0 9 * * *"}
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.KEPT}
    job = await find_job_by_key(deploys.store, "ada", "report")
    assert job is not None
    assert (job.revision, job.created_by) == (1, "app:reports")


async def test_an_older_deploy_never_overwrites_a_newer(deploys: Deploys) -> None:
    await deploys.start(report=DAILY)
    assert await deploys.start(report=HOURLY) == {"report": DeclaredOutcome.CHANGED}
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.LEFT}  # an old node restarts
    assert await deploys.schedules() == {"report": "every"}
    assert await deploys.start(report=cron("0 10 * * *")) == {"report": DeclaredOutcome.CHANGED}
    assert await deploys.start(report=HOURLY) == {"report": DeclaredOutcome.LEFT}
    assert await deploys.schedules() == {"report": "0 10 * * *"}


async def test_the_newest_version_is_brought_back_when_its_job_is_gone(deploys: Deploys) -> None:
    await deploys.start(report=DAILY)
    await deploys.start(report=HOURLY)
    await deploys.cancel("report")
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.LEFT}
    assert await deploys.schedules() == {}
    assert await deploys.start(report=HOURLY) == {"report": DeclaredOutcome.CREATED}


async def test_what_a_person_changed_stays_until_the_code_changes(deploys: Deploys, store: Store) -> None:
    await deploys.start(report=DAILY)
    job = await find_job_by_key(store, "ada", "report")
    assert job is not None
    jobs = deploys._connection(declaring_app("x", {})).jobs
    await jobs.pause(job.id, owner="ada")
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.KEPT}
    assert await deploys.start(report=HOURLY) == {"report": DeclaredOutcome.CHANGED}
    paused = await find_job_by_key(store, "ada", "report")
    assert paused is not None
    assert paused.status is JobStatus.PAUSED


async def test_one_schedule_that_is_refused_does_not_stop_the_others(deploys: Deploys) -> None:
    over = {"type": "cron", "expression": "0 9 * * *", "ends_at": "2020-01-01T00:00:00Z"}
    assert await deploys.start(over=over, report=DAILY) == {
        "over": DeclaredOutcome.REFUSED,
        "report": DeclaredOutcome.CREATED,
    }


# --- pruning


async def test_pruning_cancels_what_is_no_longer_declared(deploys: Deploys) -> None:
    await deploys.start(report=DAILY, digest=HOURLY)
    await deploys.start(report=DAILY)
    assert await deploys.schedules() == {"report": "0 9 * * *", "digest": "every"}  # nobody said it should go
    told = {"digest": DeclaredOutcome.CANCELLED, "report": DeclaredOutcome.KEPT}
    assert await deploys.prune(report=DAILY, dry_run=True) == told
    assert await deploys.schedules() == {"report": "0 9 * * *", "digest": "every"}
    assert await deploys.prune(report=DAILY) == told
    assert await deploys.schedules() == {"report": "0 9 * * *"}
    assert await deploys.prune(report=DAILY) == {"report": DeclaredOutcome.KEPT}
    assert await deploys.start(report=DAILY, digest=HOURLY) == {
        "report": DeclaredOutcome.KEPT,
        "digest": DeclaredOutcome.CREATED,
    }


async def test_pruning_makes_a_rollback_hold(deploys: Deploys) -> None:
    await deploys.start(report=DAILY)
    await deploys.start(report=HOURLY)
    assert await deploys.prune(report=DAILY, dry_run=True) == {"report": DeclaredOutcome.CHANGED}
    assert await deploys.prune(report=DAILY) == {"report": DeclaredOutcome.CHANGED}
    assert await deploys.start(report=HOURLY) == {"report": DeclaredOutcome.LEFT}
    assert await deploys.start(report=DAILY) == {"report": DeclaredOutcome.KEPT}
    assert await deploys.schedules() == {"report": "0 9 * * *"}


async def test_pruning_one_application_does_not_touch_another(deploys: Deploys) -> None:
    await deploys.start("billing", invoice=DAILY)
    await deploys.start("reports", report=DAILY, moved=DAILY)
    await deploys.start("billing", invoice=DAILY, moved=DAILY)  # it moved there
    assert await deploys.prune("reports", report=DAILY) == {
        "moved": DeclaredOutcome.LEFT,
        "report": DeclaredOutcome.KEPT,
    }
    assert (await deploys.schedules()).keys() == {"invoice", "report", "moved"}


# --- a worker


async def test_a_worker_declares_when_it_starts_and_tells_what_it_did(address: str, store: Store) -> None:
    app = Horae(store=address, owner="ada", name="reports")
    app.schedule(every(hours=1), key="report")(app.task("report")(lambda: None))
    app.schedule(every(hours=1), key="wrong", params={"nope": 1})(app.task("other")(lambda: None))
    with capture_logs() as lines:
        async with node(app, address, "planner"):
            assert await find_job_by_key(store, "ada", "report") is None  # a planner runs no code, and declares nothing
        async with node(app, address, "worker"):
            pass
    job = await find_job_by_key(store, "ada", "report")
    assert job is not None
    told = {line["event"]: line for line in lines if line["event"].startswith("schedule_")}
    assert told["schedule_created"]["key"] == "report"
    assert told["schedule_created"]["job"] == f"job_{job.id}"
    assert told["schedule_refused"]["key"] == "wrong"
    assert "nope" in told["schedule_refused"]["detail"]


async def test_a_worker_of_several_applications_has_the_tasks_and_schedules_of_all(address: str, store: Store) -> None:
    web = Horae(store=address, owner="ada", name="web", queues=[Queue("mail", concurrency=5)])
    mail = Horae(store=address, owner="bob", name="mail")
    page = web.task("page")(lambda: "page")
    letter = mail.task("letter")(lambda: "letter")
    web.schedule(every(hours=1), key="pages")(page)
    mail.schedule(every(hours=1), key="letters")(letter)
    plan = NodePlan(roles=frozenset({"worker"}))
    async with running_node(settings(address), plan, web, mail):
        assert await (await page.submit()).result(timeout=20) == "page"
        assert await (await letter.submit()).result(timeout=20) == "letter"
    assert await find_job_by_key(store, "ada", "pages") is not None
    assert await find_job_by_key(store, "bob", "letters") is not None
    assert (await queue_settings(store, "mail")).concurrency == 5
