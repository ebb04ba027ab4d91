"""An open store as the SDK works with it.

This is the seam for everything that runs an application on something else than the store of its settings. A node binds
its own (`wiring`), and `horae.testing` binds one over its store and its virtual clock:

    connection = Connection(store=store, clock=clock, jobs=jobs, ends=ends)
    with app.bind(connection):          # in the event loop that the store was opened in
        await task.submit(...)          # goes to `connection`, without a thread or a second connection

`Connection.over(...)` builds the use cases for whoever has only a store and a clock. `ends` says how a handle waits for
the end of its run; the default looks into the store again and again in real time, so whoever moves time by hand brings
one that moves it.
"""

from dataclasses import dataclass
from datetime import timedelta

from horae.core.ids import Ids
from horae.jobs.params import Parameters
from horae.jobs.service import Jobs
from horae.jobs.task_catalog import TaskBook
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.sdk.wait import Ends, Watch
from horae.secrets.sealer import Sealer
from horae.tasks.registry import Registry

HORIZON = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A store with its clock and the use cases over it; it belongs to one event loop."""

    store: Store
    clock: Clock
    jobs: Jobs
    ends: Ends

    @classmethod
    def over(
        cls,
        store: Store,
        clock: Clock,
        registry: Registry,
        *,
        blobs: Blobs | None = None,
        new_id: Ids | None = None,
        horizon: timedelta = HORIZON,
        sealer: Sealer | None = None,
        ends: Ends | None = None,
    ) -> "Connection":
        """The use cases over a store that is open, for the tasks of a registry."""
        kept_in = store.blobs if blobs is None else blobs
        parameters = Parameters(kept_in)
        jobs = Jobs(
            store=store,
            clock=clock,
            tasks=TaskBook(store, clock, defaults=registry.get, check_params=registry.check),
            parameters=parameters,
            metrics=Metrics(),
            new_id=new_id or Ids(wall=lambda: clock.now().timestamp()),
            horizon=horizon,
            sealer=sealer,
        )
        return cls(store=store, clock=clock, jobs=jobs, ends=ends or Watch(store))
