"""The client against the API in process, over a real store, with a clock and a worker that move by hand."""

from collections.abc import AsyncIterator

import httpx2
import pytest

from horae import AsyncClient
from horae.api.app import create_app
from horae.api.dispatch.context import Services
from horae.core.ids import Ids
from horae.core.model import NodeId
from horae.ports.store import Store
from tests.api.conftest import clock, services, store
from tests.api.harness import Hand
from tests.clocks import ManualClock

__all__ = ["clock", "services", "store"]


@pytest.fixture
async def hand(store: Store, clock: ManualClock) -> Hand:
    hand = Hand(store, clock, NodeId(Ids()()))
    await hand.join()
    return hand


@pytest.fixture
async def client(services: Services, hand: Hand) -> AsyncIterator[AsyncClient]:
    transport = httpx2.ASGITransport(create_app(services), raise_app_exceptions=False)
    async with AsyncClient("http://localhost", transport=transport) as client:
        yield client
