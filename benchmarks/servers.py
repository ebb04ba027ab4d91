"""The servers of a measurement: one PostgreSQL for all products, and a Redis for those that need it.

`HORAE_BENCH_POSTGRES` (an address) uses a running server; otherwise one with durable settings is started.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from benchmarks.machine import parent_of
from tests.live import free_port
from tests.postgres_server import postgres_url

START_SECONDS = 10.0
POSTGRES_SETTINGS = """
shared_buffers = 2GB
max_wal_size = 8GB
min_wal_size = 4GB
"""
LOG_FILES = 200  # of 16 MB, that our own server has used before anything is measured
SHOWN = ("fsync", "synchronous_commit", "shared_buffers", "max_wal_size", "wal_level")
REDIS_SETTINGS = ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]


def postgres_address() -> str:
    """The address of the PostgreSQL for all measurements; a started one ends with this process."""
    if given := os.environ.get("HORAE_BENCH_POSTGRES"):
        return given
    address = postgres_url(POSTGRES_SETTINGS)
    asyncio.run(_use_log_files(address))
    return address


async def _use_log_files(address: str) -> None:
    """Bring a new server to where it is after some hours: it writes over log files that it has used before.

    Until then it fills each with zeros first, and so writes everything twice.
    """
    connection = await asyncpg.connect(address)
    try:
        for _ in range(LOG_FILES):
            await connection.execute("SELECT pg_logical_emit_message(false, 'horae', ''), pg_switch_wal()")
    finally:
        await connection.close()
    await rest(address)


async def rest(address: str) -> None:
    """Prepare a started server for a measurement: a checkpoint, and WAL files to reuse."""
    if not os.environ.get("HORAE_BENCH_POSTGRES"):
        connection = await asyncpg.connect(address)
        try:
            await connection.execute("CHECKPOINT")
        finally:
            await connection.close()


async def postgres_version(address: str) -> str:
    """The version of PostgreSQL and the settings that matter for speed."""
    connection = await asyncpg.connect(address)
    try:
        version = str(await connection.fetchval("SHOW server_version")).split()[0]
        settings = [f"{name} = {await connection.fetchval(f'SHOW {name}')}" for name in SHOWN]
    finally:
        await connection.close()
    return ", ".join([version, *settings])


async def postmaster(address: str) -> int | None:
    """The main process of the server; None if it is on another machine."""
    connection = await asyncpg.connect(address)
    try:
        local = await connection.fetchval("SELECT inet_client_addr() IS NOT DISTINCT FROM inet_server_addr()")
        return parent_of(connection.get_server_pid()) if local else None
    finally:
        await connection.close()


@contextmanager
def scratch_redis() -> Iterator[str]:
    """Run a Redis on a free port, which syncs its log every second; yield its address."""
    program, port = _program(), free_port()
    with tempfile.TemporaryDirectory(prefix="horae-bench-redis-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            command = [program, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder, *REDIS_SETTINGS]
            server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        try:
            _await_start(server, log)
            yield f"redis://127.0.0.1:{port}/0"
        finally:
            server.terminate()
            server.wait()


def redis_version() -> str:
    """The version of Redis and its durability here."""
    said = subprocess.run([_program(), "--version"], capture_output=True, text=True, check=True).stdout
    version = next(word[2:] for word in said.split() if word.startswith("v="))
    return f"{version}, appendonly = yes, appendfsync = everysec"


def _program() -> str:
    if shutil.which("redis-server") is None:
        install("redis-server")
    return "redis-server"


def install(package: str) -> None:
    """Install a package of the distribution; raises RuntimeError without the permission."""
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise RuntimeError(f"{package} is needed: install it first (on Debian or Ubuntu: apt-get install {package})")
    quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}  # no service of it is started
    for command in (["update", "-qq"], ["install", "-y", "-qq", "--no-install-recommends", package]):
        subprocess.run(["apt-get", *command], env=quiet, check=True, stdout=subprocess.DEVNULL)


def _await_start(server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while "Ready to accept connections" not in log.read_text():
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"Redis did not start:\n{log.read_text()}")
        time.sleep(0.02)
