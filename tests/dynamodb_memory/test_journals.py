"""The journals of the DynamoDB store: few entries for many runs."""

from horae.core.ids import Ids
from horae.core.model import JobId, Run, RunId, Spec
from horae.core.schedule.types import At
from horae.core.values import replace
from horae.stores.dynamodb.items import unpacked
from horae.stores.dynamodb.journals import MOST_MADE, made_items
from tests.partitions.virtual import START


def test_a_batch_of_a_busy_owner_is_one_entry_however_many_sub_shards_it_has() -> None:
    ids = Ids(wall=lambda: START.timestamp()).many(MOST_MADE)
    template = Run(RunId(""), JobId(""), "ann", "ann", Spec(task="t"), START, START, START, schedule=At(time=START))
    runs = [replace(template, id=RunId(each), job_id=JobId(each)) for each in ids]
    [entry] = made_items(runs, {"ann": 64})
    assert sorted(unpacked(entry["ids"])) == sorted(ids)
    assert entry["pk"]["S"].startswith("made#ann#")
