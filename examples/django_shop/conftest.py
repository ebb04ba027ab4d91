"""Sets the project up on a database of the test server, and starts its workers."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import django
import psycopg
import pytest

from tests.system.postgres import OwnPostgres

PROJECT = Path(__file__).parent
READY_WITHIN = 60.0  # seconds; usually about two

sys.path.insert(0, str(PROJECT))
os.environ["DJANGO_SETTINGS_MODULE"] = "shop.settings"
django.setup()
del os.environ["DJANGO_SETTINGS_MODULE"]  # `manage.py` sets it for itself

StartWorker = Callable[..., AbstractContextManager[None]]


@pytest.fixture(scope="session")
def database(postgres: OwnPostgres) -> Iterator[OwnPostgres]:
    """The server with an empty database of the shop, migrated by Django together with the tables of Horae."""
    from django.core.management import call_command
    from django.db import connections

    from horae.django import app

    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shop")
    connections["default"].settings_dict["HOST"] = str(postgres.folder)
    call_command("migrate", verbosity=0)
    yield postgres
    app.close_sync()
    connections.close_all()


@pytest.fixture(autouse=True)
def _close_connections(database: OwnPostgres) -> Iterator[None]:
    """Keep no connection of this process, which a restart of the server would cut."""
    from django.db import connections

    yield
    connections.close_all()


@pytest.fixture(scope="session")
def worker(database: OwnPostgres, tmp_path_factory: pytest.TempPathFactory) -> StartWorker:
    """Starts `manage.py horae worker` with options and further variables of the environment, until it is ready."""
    folder = tmp_path_factory.mktemp("workers")

    @contextmanager
    def started(*options: str, **variables: str) -> Iterator[None]:
        log = folder / f"worker-{time.monotonic_ns()}.log"
        environment = os.environ | {"SHOP_DB_HOST": str(database.folder), "HORAE_DRAIN_SECONDS": "2"} | variables
        command = [sys.executable, "manage.py", "horae", "worker", *options]
        with log.open("wb") as output:
            process = subprocess.Popen(command, cwd=PROJECT, env=environment, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + READY_WITHIN
            while '"event": "ready"' not in (text := log.read_text()):
                assert process.poll() is None, f"the worker ended by itself:\n{text}"
                assert time.monotonic() < deadline, f"the worker is not ready:\n{text}"
                time.sleep(0.02)
            yield
        finally:
            process.terminate()
            assert process.wait(30) == 0, log.read_text()

    return started
