"""The shop at work: workers started by `manage.py`, on a real PostgreSQL that is restarted."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from django.contrib.auth.models import Permission, User
from django.contrib.messages import get_messages
from django.core.checks import run_checks
from django.core.management import CommandError, call_command
from django.db import connection, transaction
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone
from django_tasks import task_backends
from django_tasks.exceptions import TaskResultDoesNotExist
from orders.models import Order, Receipt
from orders.tasks import agreet, count_orders, draw_report, greet, send_receipt

from horae import Invalid
from horae.django import app, on_commit
from horae.ports.reader import RunFilter
from tests.system.postgres import OwnPostgres

PROJECT = Path(__file__).parents[1]
WITHIN = 30.0

StartWorker = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="module")
def _working(worker: StartWorker) -> Iterator[None]:
    """A worker as people start it, whose connections are named `worker`."""
    with worker("--concurrency", "8", "--queues", "default", SHOP_CONNECTIONS="worker"):
        yield


def connections_named(database: OwnPostgres, name: str) -> int:
    """Return how many connections there are with this name."""
    with psycopg.connect(database.url) as observer:
        found = observer.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = %s", [name]).fetchone()
        assert found is not None
        return int(found[0])


def eventually_connections(database: OwnPostgres, name: str, most: int) -> None:
    deadline = time.monotonic() + WITHIN
    while (count := connections_named(database, name)) > most:
        assert time.monotonic() < deadline, f"{count} connections are left open"
        time.sleep(0.02)


def orders(count: int) -> list[dict[str, int]]:
    """Create orders; returns the parameters of a task for each."""
    created = Order.objects.bulk_create(Order(customer=f"customer {number}") for number in range(count))
    return [{"order": order.pk} for order in created]


@contextmanager
def rolled_back() -> Iterator[None]:
    """A transaction that does not commit."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def jobs_of(order: int) -> int:
    """Return how many jobs there are for an order."""

    async def count(connection) -> int:  # type: ignore[no-untyped-def]
        page = await connection.store.list_runs(RunFilter(task=send_receipt.name), cursor=None, limit=1000)
        return sum(f'"order":{order}}}' in run.spec.params for run in page.items)

    return app.on_store(count)


# --- transactions


@pytest.mark.usefixtures("_working")
def test_an_order_and_its_job_are_one_transaction() -> None:
    created = Client().post("/orders/", {"customer": "Ann"}).json()
    assert send_receipt.handle(created["job"]).result_sync(timeout=WITHIN) == "Thank you, Ann!"
    assert Receipt.objects.get(order=created["order"]).text == "Thank you, Ann!"


def test_a_job_of_a_transaction_that_is_rolled_back_never_was() -> None:
    with rolled_back():
        [params] = orders(1)
        send_receipt.using(tx=connection).submit_sync(**params)
    assert jobs_of(params["order"]) == 0


def test_a_connection_without_a_transaction_is_refused() -> None:
    with pytest.raises(Invalid, match=r"submit inside `with transaction.atomic"):
        send_receipt.using(tx=connection).submit_sync(order=1)


@pytest.mark.usefixtures("_working")
def test_a_job_on_commit_is_submitted_after_the_commit() -> None:
    [params] = orders(1)
    with transaction.atomic():
        Client().post(f"/orders/{params['order']}/pay/")
        assert jobs_of(params["order"]) == 0, "the transaction around the request is still open"
    assert jobs_of(params["order"]) == 1
    deadline = time.monotonic() + WITHIN
    while not Receipt.objects.filter(order=params["order"]).exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_arguments_that_do_not_fit_are_refused_before_the_commit() -> None:
    with transaction.atomic():
        [params] = orders(1)
        with pytest.raises(TypeError, match="missing a required argument: 'order'"):
            on_commit(send_receipt, odrer=params["order"])  # type: ignore[call-arg]
        with rolled_back():
            on_commit(send_receipt, **params)
    assert jobs_of(params["order"]) == 0


# --- connections


@pytest.mark.usefixtures("_working")
def test_many_tasks_leave_no_connections_behind(database: OwnPostgres) -> None:
    handles = send_receipt.submit_many_sync(orders(300))
    most = 0
    while any(handle.status_sync() != "succeeded" for handle in handles[-3:]):
        most = max(most, connections_named(database, "worker"))
    for handle in handles:
        handle.result_sync(timeout=WITHIN)
    assert most <= 2 * 8, "each of eight tasks has one, and the server may not have ended the one before yet"
    eventually_connections(database, "worker", most=0)


@pytest.mark.usefixtures("_working")
def test_an_async_task_leaves_no_connections_behind(database: OwnPostgres) -> None:
    for handle in count_orders.submit_many_sync([{}] * 20):
        assert handle.result_sync(timeout=WITHIN) == Order.objects.count()
    eventually_connections(database, "worker", most=0)


@pytest.mark.usefixtures("_working")
def test_a_task_in_a_process_of_its_own_has_the_orm(database: OwnPostgres) -> None:
    assert draw_report.submit_sync().result_sync(timeout=WITHIN) == Order.objects.count()
    eventually_connections(database, "worker", most=0)


def test_kept_connections_survive_a_restart_of_the_database(database: OwnPostgres, worker: StartWorker) -> None:
    """The connections that tasks keep are all cut, and the next tasks succeed at once."""
    with worker("--concurrency", "8", "--queues", "kept", SHOP_CONNECTIONS="kept", SHOP_CONN_MAX_AGE="600"):
        kept = send_receipt.using(queue="kept", max_retries=0)
        for handle in kept.submit_many_sync(orders(40)):
            handle.result_sync(timeout=WITHIN)
        assert 0 < connections_named(database, "kept") <= 8
        connection.close()
        database.start()  # which stops it first, as by a power cut
        for handle in kept.submit_many_sync(orders(40)):
            handle.result_sync(timeout=WITHIN)


def test_kept_connections_that_are_not_checked_are_a_warning() -> None:
    assert run_checks() == []
    settings = connection.settings_dict
    before = {name: settings[name] for name in ("CONN_MAX_AGE", "CONN_HEALTH_CHECKS")}
    settings.update(CONN_MAX_AGE=600, CONN_HEALTH_CHECKS=False)
    try:
        assert [warning.id for warning in run_checks()] == ["horae.W001"]
    finally:
        settings.update(before)


# --- commands


def test_a_process_that_manage_py_did_not_start_finds_the_tasks() -> None:
    """As those of `--processes` and `horae worker --app horae.django.node:app` are."""
    program = "from horae.runtime.applications import load_app; print(load_app('horae.django.node:app').registry.names)"
    environment = os.environ | {"DJANGO_SETTINGS_MODULE": "shop.settings"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, env=environment, capture_output=True, text=True, check=True
    )
    assert "orders.tasks.send_receipt" in done.stdout


def test_horae_has_no_migrations_for_django() -> None:
    call_command("makemigrations", "--check", "--dry-run")


def test_the_store_is_migrated_with_the_database(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("horae", "migrate")
    assert "nothing to do" in capsys.readouterr().out


def test_a_wrong_option_of_the_command_is_explained() -> None:
    with pytest.raises(CommandError, match="--roles postman: choose among api, planner, worker"):
        call_command("horae", "worker", "--roles", "postman")


# --- the admin


@pytest.fixture
def browser() -> Iterator[Client]:
    """A browser in which an administrator is logged in."""
    administrator = User.objects.create_superuser("root", password="root")
    client = Client()
    client.force_login(administrator)
    yield client
    administrator.delete()


def acted(browser: Client, page: str, action: str, subject: str) -> str:
    """Press a button of the admin; returns the message that it shows."""
    answer = browser.post(f"/admin/horae/{page}/", {"action": action, "id": subject})
    assert answer.status_code == 302
    return str(list(get_messages(answer.wsgi_request))[-1])


def test_the_admin_lists_jobs_and_cancels_them(browser: Client) -> None:
    handle = send_receipt.using(delay=3600, name="Later <b>").submit_sync(order=1)
    page = browser.get("/admin/horae/horaejob/", {"q": "later"}).content.decode()
    assert "Later &lt;b&gt;" in page
    assert acted(browser, "horaejob", "cancel", handle.id) == f"The job {handle.id} is cancelled."
    assert handle.status_sync() == "cancelled"
    assert f"The job {handle.id} is cancelled." in browser.get("/admin/horae/horaejob/").content.decode()
    assert "Later" not in browser.get("/admin/horae/horaejob/", {"status": "paused"}).content.decode()


@pytest.mark.usefixtures("_working")
def test_the_admin_runs_a_job_now_and_shows_its_runs(browser: Client) -> None:
    [params] = orders(1)
    handle = send_receipt.using(delay=3600, name="Tomorrow").submit_sync(**params)
    assert f"The job {handle.id} runs now, as run_" in acted(browser, "horaejob", "run_now", handle.id)
    deadline = time.monotonic() + WITHIN
    while "Tomorrow" not in browser.get("/admin/horae/horaerun/", {"status": "succeeded"}).content.decode():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert acted(browser, "horaerun", "cancel", handle.run_id) == f"The run {handle.run_id} is cancelled."


def test_the_admin_needs_permissions() -> None:
    clerk = User.objects.create_user("clerk", password="clerk", is_staff=True)
    client = Client()
    client.force_login(clerk)
    try:
        assert client.get("/admin/horae/horaejob/").status_code == 403
        clerk.user_permissions.add(Permission.objects.get(codename="view_horaejob"))
        assert client.get("/admin/horae/horaejob/").status_code == 200
        assert client.post("/admin/horae/horaejob/", {"action": "cancel", "id": "job_1"}).status_code == 403
    finally:
        clerk.delete()


def test_what_cannot_be_done_is_a_message_in_the_admin(browser: Client) -> None:
    unknown = "job_019a00000000700080000000000000ff"
    assert acted(browser, "horaejob", "cancel", unknown) == f"there is no job {unknown}"
    assert acted(browser, "horaejob", "cancel", "job_1") == "there is no job or run job_1"
    assert acted(browser, "horaejob", "burn", unknown).startswith(f"cannot burn {unknown}")


# --- django.tasks


@pytest.mark.usefixtures("_working")
def test_a_task_of_django_runs_in_horae() -> None:
    enqueued = greet.enqueue(customer="Ann")
    assert enqueued.id.startswith("job_")
    assert finished(enqueued).return_value == "Hello, Ann (attempt 1)"
    assert greet.get_result(enqueued.id).attempts == 1
    assert finished(agreet.enqueue("Bea")).return_value == f"Hello, Bea, one of {Order.objects.count()}"


@pytest.mark.usefixtures("_working")
def test_a_task_of_django_that_fails_shows_its_errors() -> None:
    failed = finished(greet.enqueue(""))
    assert failed.status == "FAILED"
    assert [error.exception_class for error in failed.errors] == [ValueError]
    assert "nobody is there" in failed.errors[0].traceback


def test_a_task_of_django_waits_until_its_time_in_its_queue_and_in_the_transaction() -> None:
    later = greet.using(run_after=timezone.now() + timedelta(hours=1), priority=5)
    result = later.enqueue("Cy")
    result.refresh()
    assert (result.status, result.args, result.kwargs) == ("READY", ["Cy"], {})
    options = {"database": "default"}
    with override_settings(TASKS={"default": {"BACKEND": "horae.django.backend.HoraeBackend", "OPTIONS": options}}):
        assert task_backends["default"].options == options
        with rolled_back():
            lost = greet.enqueue("Di")
        with pytest.raises(TaskResultDoesNotExist):
            greet.get_result(lost.id)


def finished(result):  # type: ignore[no-untyped-def]
    """Wait until a task of Django has ended."""
    deadline = time.monotonic() + WITHIN
    while not result.is_finished:
        assert time.monotonic() < deadline, result
        time.sleep(0.02)
        result.refresh()
    return result
