"""The servers of the tests: there when asked for, alone on their loopback, gone with their last user."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import psutil  # type: ignore[import-untyped]
import pytest

from tests.engines.servers import fresh_ministack, fresh_valkey, ministack_url, valkey_url
from tests.system.waiting import eventually

ASK = "from tests.engines.servers import valkey_url; print(valkey_url(), flush=True); input()"


def ask_redis(url: str, command: str) -> bytes:
    address = urlsplit(url)
    assert address.hostname is not None
    with socket.create_connection((address.hostname, address.port or 0), timeout=5) as link:
        link.sendall(command.encode() + b"\r\n")
        return link.recv(4096)


def listening(port: int) -> set[str]:
    return {
        each.laddr.ip for each in psutil.net_connections("tcp") if each.status == "LISTEN" and each.laddr.port == port
    }


@pytest.mark.parametrize("url_of", [ministack_url, valkey_url])
def test_a_server_of_the_tests_listens_on_the_loopback_alone(url_of: object) -> None:
    assert callable(url_of)
    assert listening(urlsplit(url_of()).port or 0) == {"127.0.0.1"}


def test_ministack_serves_the_three_services() -> None:
    health = httpx2.get(f"{ministack_url()}/_ministack/health", trust_env=False).json()
    assert {"dynamodb", "sqs", "s3"} <= set(health["services"])


def test_valkey_refuses_what_it_has_no_memory_for() -> None:
    assert b"268435456" in ask_redis(valkey_url(), "CONFIG GET maxmemory")
    assert b"noeviction" in ask_redis(valkey_url(), "CONFIG GET maxmemory-policy")


def test_the_processes_of_a_session_share_a_server_which_ends_with_the_last_of_them() -> None:
    environ = {**os.environ, "PYTEST_XDIST_TESTRUNUID": f"shared{os.getpid()}"}
    users = [
        subprocess.Popen([sys.executable, "-c", ASK], env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    try:
        first, second = [read_line(user) for user in users]
        assert first == second
        users[0].send_signal(signal.SIGKILL)
        users[0].wait()
        assert ask_redis(second, "PING") == b"+PONG\r\n"
    finally:
        for user in users:
            user.kill()
        for user in users:
            user.communicate()
    eventually(lambda: not listening(urlsplit(second).port or 0), "the server is gone", within=10)


def read_line(user: "subprocess.Popen[bytes]") -> str:
    assert user.stdout is not None
    return user.stdout.readline().decode().strip()


def test_a_server_of_ones_own_comes_back_empty_on_its_port() -> None:
    with fresh_valkey() as server:
        url = server.url
        assert ask_redis(url, "SET a 1") == b"+OK\r\n"
        server.restart()
        assert server.url == url
        assert ask_redis(url, "DBSIZE") == b":0\r\n"
    with pytest.raises(OSError):
        ask_redis(url, "PING")


def test_a_frozen_server_answers_after_the_thaw() -> None:
    with fresh_ministack() as server:
        server.freeze()
        with pytest.raises(httpx2.TimeoutException):
            httpx2.get(f"{server.url}/_ministack/health", trust_env=False, timeout=0.2)
        server.thaw()
        assert httpx2.get(f"{server.url}/_ministack/health", trust_env=False).is_success
        folder = server.folder
    assert not Path(folder).exists()
