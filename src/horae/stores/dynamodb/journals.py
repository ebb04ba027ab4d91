"""Journals of what was made and what ended: ids that are written before their runs, so that none is ever missing.

An entry is a hint: what it names may not exist, or not have ended then, and whoever reads it looks at the rows.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import groupby
from operator import itemgetter
from os import urandom
from typing import NamedTuple

import msgspec

from horae.core.lifecycle import FINAL
from horae.core.model import Run
from horae.stores.dynamodb.items import Item, micros, packed, spread, stamp, text, time_of_stamp, unpacked

MADE_TOGETHER = 10  # the first digits that all ids of an entry share: a quarter of a second
MOST_MADE = 60  # ids in an entry: one kilobyte, which is one write unit
ENDED_PARTS = 8  # partitions that take turns, for all runs that end are in them
RESTORED = "restored"  # the partition of what came back from the archive
MOST_ENDED = 15  # runs in an entry, for the same reason
_MICROSECOND = timedelta(microseconds=1)


class Ended(NamedTuple):
    """A run that is about to end."""

    run_id: str
    owner: str
    queue: str
    due_at: datetime
    late: timedelta | None  # from the due time to the first start; None if it never started
    finished_at: datetime


def made_partition(owner_part: str) -> str:
    """The partition of the journal of what was made, of a sub-shard of an owner."""
    return f"made#{owner_part}"


def made_items(runs: Iterable[Run], sub_shards: Mapping[str, int]) -> list[Item]:
    """The entries of new runs, which are written to `meta` before the runs; `sub_shards` says how many owners have."""
    places = sorted((run.owner, run.id[:MADE_TOGETHER], run.id, run.one_shot) for run in runs)
    items: list[Item] = []
    for (owner, _), group in groupby(places, key=itemgetter(0, 1)):
        entries = list(group)
        for start in range(0, len(entries), MOST_MADE):
            some = entries[start : start + MOST_MADE]
            # One sub-shard for a whole entry, or the entries of a busy owner would have a single run each.
            part = f"{owner}#{spread(some[-1][2], sub_shards[owner])}"
            # An entry never replaces another: a batch that is sent again may be cut in another way.
            item = {"pk": text(made_partition(part)), "sk": text(f"{some[-1][2]}-{urandom(2).hex()}")}
            for name, one_shots in (("ids", True), ("rids", False)):
                if ids := [ident for _, _, ident, one_shot in some if one_shot is one_shots]:
                    item[name] = packed(ids)
            items.append(item)
    return items


class _EndedRow(msgspec.Struct, array_like=True, frozen=True):
    """A run of an entry, but for its id: numbers of its owner and queue, and times in microseconds."""

    owner: int
    queue: int
    due_at: int
    late: int | None
    finished_at: int


class _EndedEntry(msgspec.Struct, array_like=True, frozen=True):
    """An entry but for its ids."""

    names: list[str]  # owners and queues
    rows: list[_EndedRow]


_decode_entry = msgspec.json.Decoder(_EndedEntry).decode


def ended_items(runs: Iterable[Run]) -> list[Item]:
    """The entries of the runs that have a final state, which are written to `meta` before their rows."""
    ended = [(run.finished_at, run) for run in runs if run.state in FINAL and run.finished_at is not None]
    ended.sort(key=itemgetter(0))
    items: list[Item] = []
    for _, group in groupby(ended, key=lambda each: second_of(each[0])):
        some = list(group)
        items += [_entry(some[start : start + MOST_ENDED]) for start in range(0, len(some), MOST_ENDED)]
    return items


def _entry(ended: Sequence[tuple[datetime, Run]]) -> Item:
    names = sorted({name for _, run in ended for name in (run.owner, run.spec.queue)})
    rows = [_row(run, names) for _, run in ended]
    mark = urandom(4).hex()
    return {
        "pk": text(ended_partition(int(mark, 16) % ENDED_PARTS)),
        "sk": text(stamp(ended[-1][0]) + mark),  # when its last run ended
        "ids": packed(run.id for _, run in ended),
        "v": text(msgspec.json.encode(_EndedEntry(names, rows)).decode()),
    }


def second_of(moment: datetime) -> datetime:
    """The second in which all runs of an entry ended, so that entries can be read in the order of ends."""
    return moment.replace(microsecond=0)


def ended_partition(part: int) -> str:
    """One of the partitions of the journal of what ended."""
    return f"ended#{part}"


def ended_of(item: Item) -> list[Ended]:
    """The runs of an entry of `ended_items`."""
    entry = _decode_entry(item["v"]["S"])
    return [
        Ended(
            run_id=run_id,
            owner=entry.names[row.owner],
            queue=entry.names[row.queue],
            due_at=time_of_stamp(f"{row.due_at:020d}"),
            late=None if row.late is None else row.late * _MICROSECOND,
            finished_at=time_of_stamp(f"{row.finished_at:020d}"),
        )
        for run_id, row in zip(unpacked(item["ids"]), entry.rows, strict=True)
    ]


def restored_entry(run: Run, at: datetime) -> Item:
    """The entry of a run that came back from the archive; retention deletes it by that time."""
    return {"pk": text(RESTORED), "sk": text(stamp(at) + run.id), "id": text(run.id)}


def _row(run: Run, names: list[str]) -> _EndedRow:
    late = None if run.first_started_at is None else (run.first_started_at - run.due_at) // _MICROSECOND
    finished_at = micros(run.finished_at or run.due_at)
    return _EndedRow(names.index(run.owner), names.index(run.spec.queue), micros(run.due_at), late, finished_at)
