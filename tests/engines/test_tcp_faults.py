"""The proxy before Redis cuts, silences and delays the connections of one link, and counts it."""

import socket
import time
from collections.abc import Iterator

import pytest

from tests.engines.servers import fresh_valkey
from tests.engines.tcp_faults import TcpFaults, TcpLink


@pytest.fixture
def link() -> Iterator[TcpLink]:
    with fresh_valkey() as server, TcpFaults(("127.0.0.1", server.port)) as proxy:
        yield proxy.link()


def connect(link: TcpLink) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=5)


def ask(connection: socket.socket, command: str) -> bytes:
    connection.sendall(command.encode() + b"\r\n")
    return connection.recv(4096)


def is_cut(connection: socket.socket, command: str) -> bool:
    """Whether the connection ends instead of an answer."""
    try:
        return ask(connection, command) == b""
    except OSError:
        return True


def is_refused(link: TcpLink) -> bool:
    """Whether a new connection ends before it answers."""
    try:
        with connect(link) as connection:
            return is_cut(connection, "PING")
    except OSError:
        return True


def test_without_a_fault_everything_passes(link: TcpLink) -> None:
    with connect(link) as connection:
        assert ask(connection, "PING") == b"+PONG\r\n"
    assert not link.fired


def test_a_cut_ends_every_connection_and_new_ones_work(link: TcpLink) -> None:
    with connect(link) as connection:
        assert ask(connection, "PING") == b"+PONG\r\n"
        assert link.cut() == 1
        assert is_cut(connection, "PING")
    with connect(link) as connection:
        assert ask(connection, "PING") == b"+PONG\r\n"


def test_an_answer_that_is_lost_belongs_to_a_command_that_took_effect(link: TcpLink) -> None:
    with connect(link) as connection:
        assert ask(connection, "PING") == b"+PONG\r\n"
        link.answers_to_lose = 1
        assert is_cut(connection, "INCR n")
    with connect(link) as connection:
        assert ask(connection, "GET n") == b"$1\r\n1\r\n"
    assert link.fired["answer lost"] == 1


def test_a_silent_link_accepts_and_answers_nothing_until_it_is_healed(link: TcpLink) -> None:
    link.silent = True
    with connect(link) as connection:
        connection.settimeout(0.2)
        with pytest.raises(TimeoutError):
            ask(connection, "PING")
    link.heal()
    with connect(link) as connection:
        assert ask(connection, "PING") == b"+PONG\r\n"


def test_a_delayed_link_takes_longer_each_way(link: TcpLink) -> None:
    link.delay = 0.1
    with connect(link) as connection:
        began = time.monotonic()
        assert ask(connection, "PING") == b"+PONG\r\n"
        assert time.monotonic() - began >= 0.2
    assert link.fired["delay"] == 2


def test_a_link_that_refuses_ends_new_connections_at_once(link: TcpLink) -> None:
    link.refuses = True
    assert is_refused(link)
    assert link.fired["refused"] == 1
