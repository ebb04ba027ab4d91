"""Queue settings in code: what a worker writes when it starts, and what it leaves alone."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from horae import Horae, Invalid, Queue
from horae.core.records import QueueSettings
from horae.lookup import queue_settings
from horae.ports.store import Store
from tests.acts import set_queue
from tests.sdk.conftest import node


async def start(address: str, *queues: Queue, name: str = "reports", role: str = "worker") -> list[tuple[str, str]]:
    """Start and stop a worker whose code declares the queues, and return what it logs about them."""
    app = Horae(store=address, owner="ada", name=name, queues=queues)
    with capture_logs() as lines:
        async with node(app, address, role):
            pass
    return [(line["event"], line["queue"]) for line in lines if line["event"].startswith("queue_")]


async def limit_of(store: Store, queue: str = "mail") -> int | None:
    return (await queue_settings(store, queue)).concurrency


async def test_a_worker_writes_the_queue_settings_that_its_code_declares(address: str, store: Store) -> None:
    assert await start(address, Queue("mail", concurrency=5), role="planner") == []
    assert await limit_of(store) is None
    assert await start(address, Queue("mail", concurrency=5), Queue("slow")) == [
        ("queue_changed", "mail"),
        ("queue_kept", "slow"),
    ]
    assert await limit_of(store) == 5


async def test_what_an_administrator_set_stays_until_the_code_changes(address: str, store: Store) -> None:
    await start(address, Queue("mail", concurrency=5))
    await set_queue(store, QueueSettings(queue="mail", concurrency=2, paused=True))
    assert await start(address, Queue("mail", concurrency=5)) == [("queue_kept", "mail")]
    assert await limit_of(store) == 2
    assert await start(address, Queue("mail", concurrency=7)) == [("queue_changed", "mail")]
    assert await queue_settings(store, "mail") == QueueSettings(queue="mail", concurrency=7, paused=True)


async def test_an_older_deploy_leaves_the_settings_of_a_newer_one(address: str, store: Store) -> None:
    await start(address, Queue("mail", concurrency=5))
    await start(address, Queue("mail"), name="other")
    assert await limit_of(store) is None
    assert await start(address, Queue("mail", concurrency=5)) == [("queue_left", "mail")]
    assert await limit_of(store) is None


@pytest.mark.parametrize(
    ("name", "concurrency", "reason"),
    [("with space", 1, "queue"), ("", 1, "queue"), (None, 1, "name"), ("mail", 0, "from 1"), ("mail", "5", "from 1")],
)
def test_a_queue_that_cannot_be_meant_is_refused_where_it_is_written(name: Any, concurrency: Any, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        Queue(name, concurrency=concurrency)


def test_a_queue_is_declared_once() -> None:
    with pytest.raises(Invalid, match=r"mail .*twice"):
        Horae(queues=[Queue("mail"), Queue("mail", concurrency=1)])
    with pytest.raises(TypeError, match="Queue"):
        Horae(queues=["mail"])  # type: ignore[list-item]
