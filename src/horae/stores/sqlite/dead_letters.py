"""Dead letters in SQLite: what becomes of them, and by what they failed."""

import sqlite3

from horae.core.model import RunId
from horae.ports.reader import ErrorGroup, RunFilter
from horae.stores.common.codecs import decode_error
from horae.stores.sqlite.codecs import to_hex, to_time
from horae.stores.sqlite.list_queries import dead_letter_groups
from horae.stores.sqlite.reads import MAX_DEPTH


def groups(db: sqlite3.Connection, which: RunFilter) -> list[ErrorGroup]:
    """Letters that failed alike, the most frequent first."""
    return [
        ErrorGroup(
            error=error,
            count=count,
            oldest_at=to_time(oldest),
            newest_at=to_time(newest),
            task=task,
            example=RunId(to_hex(example)),
        )
        for task, text, count, oldest, newest, example in dead_letter_groups(db, which, MAX_DEPTH)
        if (error := decode_error(text)) is not None
    ]
