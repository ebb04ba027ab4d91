"""Creating plain one-shots in SQLite: encoded before the write lock is taken, and written in bulk."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from horae.core.events import EventKind
from horae.core.model import Run
from horae.stores.sqlite import batches
from horae.stores.sqlite.codecs import to_hex
from horae.stores.sqlite.database import STATEMENTS
from horae.stores.sqlite.executor import Transaction


def creating(runs: Sequence[Run]) -> Callable[[Transaction], None]:
    """Writes new one-shots; of those that are there already, because they are sent again, no event is emitted."""
    encoded = batches.encode(runs)
    wake_at = min((run.wake_at for run in runs if not run.paused), default=None)

    def create(transaction: Transaction) -> None:
        if wake_at is not None:
            transaction.due(wake_at)
        inserted, fresh = batches.insert(transaction.db, encoded), runs
        if inserted < len(runs):
            last = transaction.db.execute(STATEMENTS["last_runs_inserted"], (inserted,))
            idents = {to_hex(ident) for (ident,) in last}
            fresh = [run for run in runs if run.id in idents]
        created = defaultdict[str, list[str]](list)
        for run in fresh:
            created[run.owner].append(run.job_id)
        for owner, job_ids in created.items():
            transaction.emit(EventKind.JOB_CREATED, owner, *job_ids)

    return create
