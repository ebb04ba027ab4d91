"""Migrations: what each does to nodes of earlier releases, and how it is applied while they serve.

The comments at the top of a script may say two things:

* `-- contract: since N`: code of a schema version before N cannot use the schema afterwards. Without this line the
  migration expands: it only adds, and nodes of the release before go on.
* `-- way: batches` or `-- way: concurrently` (see `Way`).
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from horae.stores.common.statements import migrations

_HEADER = re.compile(r"\A(?:--.*\n|\s*\n)*")
_LINE = re.compile(r"^-- (contract: since|way:) (\w+)$", re.MULTILINE)


class Way(StrEnum):
    """How a migration is applied."""

    TRANSACTION = "transaction"  # all of it or nothing; for what is done in a moment
    BATCHES = "batches"  # its one statement is repeated until it changes no row, each time in its own transaction
    CONCURRENTLY = "concurrently"  # indexes of large tables, without a lock that writes wait for; PostgreSQL only


@dataclass(frozen=True, slots=True, kw_only=True)
class Migration:
    """A numbered script."""

    number: int
    script: str
    way: Way = Way.TRANSACTION
    since: int | None = None  # if it contracts: the oldest version of the code that can use the schema afterwards


@cache
def all_migrations(dialect: str) -> tuple[Migration, ...]:
    """The migrations of a dialect, in order."""
    return tuple(read_migration(number, script) for number, script in migrations(dialect))


def read_migration(number: int, script: str) -> Migration:
    """Read the header of a script."""
    header = _HEADER.match(script)
    said = dict(_LINE.findall(header[0] if header else ""))
    since = said.get("contract: since")
    return Migration(
        number=number,
        script=script,
        way=Way(said.get("way:", Way.TRANSACTION)),
        since=None if since is None else int(since),
    )
