"""Runs the web server in the event loop of a test, on a database of the test server."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import psycopg
import pytest

from horae.adapters import make_store
from tests.system.postgres import OwnPostgres

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def webshop(postgres: OwnPostgres) -> Iterator[OwnPostgres]:
    """The server with an empty database of the shop, which HORAE_STORE names."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE webshop")
    address = postgres.url.replace("/postgres?", "/webshop?")
    asyncio.run(make_store(address).migrate())
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "HORAE_STORE", address)
        yield postgres


@pytest.fixture
async def client(webshop: OwnPostgres) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of the web server, which runs for as long as the test does."""
    from webshop.api import api

    async with (
        api.router.lifespan_context(api),
        httpx2.AsyncClient(transport=httpx2.ASGITransport(app=api), base_url="http://shop") as client,
    ):
        yield client
