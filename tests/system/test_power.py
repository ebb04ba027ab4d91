"""Power cuts under SQLite at a small size; the acceptance suite has the full size."""

import random
from pathlib import Path

from tests.system import power
from tests.system.vfs import Record, Step


def test_a_power_cut_costs_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    seen = power.check_power_cuts(tmp_path, jobs=60, count=20, seed=5)
    assert seen.unsynced >= 5, seen
    assert seen.created > 0, seen


def test_what_was_not_synced_may_be_gone_and_what_was_is_not() -> None:
    """A store that does not sync is found out."""
    records = [
        Record(Step.WRITE, "/x/horae.db", 0, b"a" * 1024),
        Record(Step.SYNC, "/x/horae.db"),
        Record(Step.CREATED, "job"),
        Record(Step.WRITE, "/x/horae.db", 512, b"b" * 1024),
        Record(Step.TRUNCATE, "/x/horae.db", 700),
    ]
    synced = b"a" * 1024
    left = set()
    for seed in range(600):
        [cut] = [cut for cut in power.cuts(records, 2, random.Random(seed)) if cut.place == 4]
        as_it_is, as_cut = cut.images
        assert as_it_is == {"horae.db": b"a" * 512 + b"b" * 188}
        assert as_cut["horae.db"][:512] == b"a" * 512, "what was synced stays, where nothing was written over it"
        left.add(as_cut["horae.db"])
        assert cut.created == {"job"}
    torn, whole = b"a" * 512 + b"b" * 512, b"a" * 512 + b"b" * 1024
    assert left >= {synced, torn, whole, synced[:700], whole[:700]}
