"""Look-ups by id in DynamoDB."""

from collections.abc import Mapping, Sequence

from horae.core.lifecycle import FINAL
from horae.core.model import Run, RunId
from horae.stores.dynamodb.base import DynamoBase
from horae.stores.dynamodb.items import run_of


class DynamoReads(DynamoBase):
    """The verbs of the store that look up."""

    async def runs(self, run_ids: Sequence[RunId], *, ended: bool = False) -> Mapping[RunId, Run]:
        keys = [{"id": {"S": ident}} for ident in dict.fromkeys(run_ids)]
        found = [run_of(item) for item in await self._db.batch_get(self._db.names.runs, keys)]
        return {run.id: run for run in found if not ended or run.state in FINAL}
