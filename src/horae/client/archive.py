"""`client.archive`: lists the days in the archive, and restores runs."""

from collections.abc import Sequence
from datetime import date

from horae.client.call import Pages, Steps, change, pages, path_to
from horae.client.methods import Methods, TransportT, call_method, list_method
from horae.client.models import ArchivedDay, Restored


def days(*, limit: int | None = None, cursor: str | None = None) -> Pages[ArchivedDay]:
    """List the days that are archived, the latest first; needs the scope `admin`."""
    return pages(path_to("archive"), ArchivedDay, limit=limit, cursor=cursor)


def restore(which: Sequence[str] | date) -> Steps[Restored]:
    """Restore runs by id, at most 1,000, or those that ended on a day; they stay as long as history is kept."""
    restored, cursor, missing = 0, None, list[str]()
    while True:
        body = {"day": which.isoformat(), "cursor": cursor} if isinstance(which, date) else {"ids": [*which]}
        done: Restored = yield change("POST", path_to("archive", "restore"), Restored, body, repeatable=True)
        restored, cursor, missing = restored + done.restored, done.cursor, [*missing, *done.missing]
        if cursor is None:
            return Restored(restored=restored, missing=missing)


class ArchiveMethods(Methods[TransportT]):
    """Methods for the archive of ended runs."""

    days = list_method(days)
    restore = call_method(restore)
