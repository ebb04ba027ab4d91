"""The connection of the SDK: an open store with its clock, its job services and a waiter.

An application usually opens the store of its settings. To run it on another one, bind it to a connection, as a node
does (`wiring`) and `horae.testing` with its virtual clock:

    connection = Connection(store=store, clock=clock, jobs=jobs, waiter=waiter)
    with app.bind(connection):          # in the event loop that the store was opened in
        await task.submit(...)          # uses `connection`, without a thread or a second connection

`Connection.over(...)` builds one from a store and a clock. Its `waiter` waits for runs to end; the default polls the
store in real time, so a virtual clock needs a waiter of its own.
"""

from dataclasses import dataclass
from datetime import timedelta

from horae.core.ids import Ids
from horae.jobs.params import Parameters
from horae.jobs.service import Jobs
from horae.jobs.task_catalog import TaskCatalog
from horae.metrics import Metrics
from horae.ports.blobs import Blobs
from horae.ports.clock import Clock
from horae.ports.store import Store
from horae.sdk.wait import PollingWaiter, RunWaiter
from horae.secrets.sealer import Sealer
from horae.tasks.registry import Registry

HORIZON = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open store with its clock and job services; it belongs to one event loop."""

    store: Store
    clock: Clock
    jobs: Jobs
    waiter: RunWaiter

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
        waiter: RunWaiter | None = None,
    ) -> "Connection":
        """Build a connection over an open store for the tasks of a registry."""
        jobs = Jobs(
            store=store,
            clock=clock,
            tasks=TaskCatalog(store, clock, defaults=registry.get, check_params=registry.check),
            parameters=Parameters(store.blobs if blobs is None else blobs),
            metrics=Metrics(),
            new_id=new_id or Ids(wall=lambda: clock.now().timestamp()),
            horizon=horizon,
            sealer=sealer,
        )
        return cls(store=store, clock=clock, jobs=jobs, waiter=waiter or PollingWaiter(store))
