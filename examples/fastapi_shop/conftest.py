"""Runs the web server in the event loop of a test, on a database of the test server."""

import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from horae.adapters import make_store
from tests.system.postgres import OwnPostgres

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def address(postgres: OwnPostgres) -> str:
    """The address of an empty database for the shop and for Horae."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE webshop")
    address = postgres.url.replace("/postgres?", "/webshop?")
    asyncio.run(make_store(address).migrate())
    return address


@pytest.fixture
def webshop(postgres: OwnPostgres, address: str, monkeypatch: pytest.MonkeyPatch) -> OwnPostgres:
    """The server, while HORAE_STORE names the database of the shop."""
    monkeypatch.setenv("HORAE_STORE", address)
    return postgres


@pytest.fixture
async def client(webshop: OwnPostgres) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the web server, which runs for as long as the test does."""
    from webshop.api import api

    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url="http://localhost") as client,
    ):
        yield client
