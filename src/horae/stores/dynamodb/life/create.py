"""Creating one-shots in DynamoDB: journal and hints first, then the runs, then their events."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from horae.core.changes import NewEvent
from horae.core.effects import due_signals
from horae.core.events import EventKind
from horae.core.model import Run, RunId
from horae.stores.dynamodb.base import DynamoBase
from horae.stores.dynamodb.database import Did, PutItem, counted, insert
from horae.stores.dynamodb.gates import is_item_gate, member_item
from horae.stores.dynamodb.items import Item, run_item, spread
from horae.stores.dynamodb.journals import made_items


class DynamoCreate(DynamoBase):
    """The verb of the store that creates one-shots."""

    @counted
    async def create(self, runs: Sequence[Run]) -> None:
        if not runs:
            return
        wanted = {run.id: run for run in runs}
        shards = await self._owners.sub_shards(run.owner for run in wanted.values())
        items = {run.id: run_item(run, spread(run.id, shards[run.owner])) for run in wanted.values()}
        # A hint without a run is passed over, a run without a hint would be lost.
        await self._db.write([*self._made(wanted.values(), shards), *await self._before(list(wanted.values()))])
        fresh = await self._write_new(items)
        self._tell(due_signals(runs))
        events = [NewEvent(EventKind.JOB_CREATED, run.owner, run.job_id) for run in wanted.values() if run.id in fresh]
        await self._log.append(events)
        await self._owners.wrote(Counter(wanted[ident].owner for ident in fresh))

    def _made(self, runs: Iterable[Run], shards: Mapping[str, int]) -> list[PutItem]:
        return [PutItem(self._db.names.meta, item) for item in made_items(runs, shards)]

    async def _before(self, runs: Sequence[Run]) -> list[PutItem]:
        """Return what is written before runs: their hints, and their places in gates."""
        members = [PutItem(self._db.names.meta, member_item(run)) for run in runs if is_item_gate(run.gate)]
        return [*await self._lines.hints(runs), *members]

    async def _write_new(self, items: Mapping[RunId, Item]) -> set[RunId]:
        """Write the runs that are not there yet, and return which these are; one in doubt counts as new."""
        did = await self._db.attempt([insert(self._db.names.runs, item) for item in items.values()])
        return {ident for ident, done in zip(items, did, strict=True) if done is not Did.NOT}
