"""What PostgreSQL is told of ids, times and texts, and what it tells us."""

from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from horae.stores.postgres.connection.database import Address
from tests.postgres_server import postgres_url

ID = "0190a6e0c7b17f00bfffffffffffffff"
ZERO = "0" * 32
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
NOON = datetime(2026, 3, 29, 12, 0, 0, 1, tzinfo=UTC)

ARRAYS: list[tuple[str, Sequence[Any]]] = [
    ("uuid", []),
    ("uuid", [ID, ZERO, ID]),
    ("uuid", [None, ID, None]),
    ("timestamptz", []),
    ("timestamptz", [FIRST, NOON, NOON, LAST]),
    ("timestamptz", [None, NOON, None, None, NOON]),
    ("text", []),
    ("text", ["", "plain", "späť 🕰", '"quoted", {and} \\more', "NULL"]),
    ("text", [None, "a", None]),
]


@pytest.fixture
async def connection() -> AsyncIterator[Any]:
    connection = await Address(postgres_url()).connect()
    yield connection
    await connection.close()


@pytest.mark.parametrize(("kind", "values"), ARRAYS)
async def test_an_array_comes_back_as_it_was(connection: Any, kind: str, values: Sequence[Any]) -> None:
    assert await connection.fetchval(f"SELECT $1::{kind}[]", values) == values


@pytest.mark.parametrize(("kind", "values"), ARRAYS)
async def test_an_array_means_the_same_as_its_elements_one_by_one(
    connection: Any, kind: str, values: Sequence[Any]
) -> None:
    rows = await connection.fetch(f"SELECT element FROM unnest($1::{kind}[]) AS element", values)
    assert [row[0] for row in rows] == values
    for place, value in enumerate(values, start=1):
        same = f"SELECT ($1::{kind}[])[$2] IS NOT DISTINCT FROM $3::{kind}"
        assert await connection.fetchval(same, values, place, value)


async def test_a_time_of_another_zone_is_the_same_instant(connection: Any) -> None:
    there = NOON.astimezone(timezone(timedelta(hours=5, minutes=45)))
    assert await connection.fetchval("SELECT $1::timestamptz[] = ARRAY[$2::timestamptz]", [there], NOON)
