"""What the tests of the examples share: a PostgreSQL server of their own, which they may restart."""

from collections.abc import Iterator

import pytest

from tests.system.postgres import OwnPostgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[OwnPostgres]:
    """A real server, from a wheel or the machine's own."""
    with OwnPostgres(settings="fsync = off\n") as server:  # a restart takes a second less
        yield server
