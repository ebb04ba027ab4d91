"""A planner inside Lambda fires what comes within the horizon, offers tickets, and cleans up after dead nodes."""

from datetime import UTC, datetime, timedelta

import pytest

from horae.core.errors import Misconfigured
from horae.core.model import NodeId
from horae.core.schedule.types import Every
from horae.core.values import replace
from horae.ports.store import ClaimRequest, Store
from tests import acts
from tests.aws.conftest import Account
from tests.conformance.builders import a_node, firing, recurring


def test_what_comes_within_the_horizon_is_fired_and_gets_tickets(account: Account) -> None:
    now = datetime.now(UTC)
    job = replace(
        recurring(next_fire_at=now + timedelta(seconds=30), task="add"),
        schedule=Every(interval=timedelta(minutes=1), anchor=now + timedelta(seconds=30)),
        plan_at=now,
    )

    async def create(store: Store) -> None:
        await acts.create(store, [firing(job)])

    account.in_store(create)
    answer = account.plan()
    assert datetime.fromisoformat(answer["planned_until"]) > now + timedelta(seconds=170)

    async def waiting(store: Store) -> int:
        page = await store.waiting(range(64), since=None, until=now + timedelta(hours=1), cursor=None, limit=100)
        return len(page.tickets)

    assert account.in_store(waiting) == 3
    assert sum(account.messages().values()) == 3


def test_what_nobody_offered_gets_a_ticket_once(account: Account) -> None:
    account.submit("add", offered=False, after=60, a=1, b=1)
    account.plan()
    assert sum(account.messages().values()) == 1
    account.plan()
    assert sum(account.messages().values()) == 1


def test_what_a_dead_node_held_is_given_back_and_gets_a_ticket(
    account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HORAE_HEARTBEAT_SECONDS", "0.3")
    run = account.submit("add", offered=False, a=1, b=1)
    now = datetime.now(UTC)
    node = a_node(id=NodeId("0" * 32), beat_at=now - timedelta(minutes=1))

    async def claim(store: Store) -> None:
        await acts.register(store, node)
        request = ClaimRequest(node=node.id, queues=(), tasks=("add",), now=now, until=now)
        assert len((await store.claim(request)).runs) == 1

    account.in_store(claim)
    account.plan()
    assert account.run_of(run).node is None
    assert sum(account.messages().values()) == 1
    assert account.work() == set()
    assert account.run_of(run).result == "2"


def test_a_horizon_shorter_than_two_minutes_is_refused(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HORAE_HORIZON_SECONDS", "30")
    with pytest.raises(Misconfigured, match="HORAE_HORIZON_SECONDS must be at least 120"):
        account.plan()
