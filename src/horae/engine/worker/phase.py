"""The phase of a worker: what it may do, by the state of its lease and of its shutdown."""

from enum import Enum, auto

from horae.engine.cluster.lease import Lease


class WorkerPhase(Enum):
    """The phases of a worker; results are sent in every one of them, and the fence decides whether they count."""

    WORKING = auto()  # the lease is safe, and every claim is known to be ours
    UNSURE = auto()  # the lease is not safe, or an answer was lost: runs that we hold may be others' by now
    REVALIDATING = auto()  # the lease is safe again, but the store has not yet confirmed our claims
    LOST = auto()  # other nodes declared this one dead: it needs a new identity
    DRAINING = auto()  # shutdown has begun; final


class PhaseCause(Enum):
    """What makes a worker change its phase."""

    LEASE_UNSAFE = auto()
    LEASE_SAFE = auto()  # a heartbeat was accepted, perhaps under a new identity
    NODE_DEAD = auto()
    ANSWER_LOST = auto()  # the store may have taken a held run back without our knowing
    CLAIMS_CONFIRMED = auto()
    SHUTDOWN = auto()


TRANSITIONS = {  # a cause that is not listed changes nothing
    WorkerPhase.WORKING: {
        PhaseCause.LEASE_UNSAFE: WorkerPhase.UNSURE,
        PhaseCause.ANSWER_LOST: WorkerPhase.UNSURE,
        PhaseCause.NODE_DEAD: WorkerPhase.LOST,
        PhaseCause.SHUTDOWN: WorkerPhase.DRAINING,
    },
    WorkerPhase.UNSURE: {
        PhaseCause.LEASE_SAFE: WorkerPhase.REVALIDATING,
        PhaseCause.NODE_DEAD: WorkerPhase.LOST,
        PhaseCause.SHUTDOWN: WorkerPhase.DRAINING,
    },
    WorkerPhase.REVALIDATING: {
        PhaseCause.CLAIMS_CONFIRMED: WorkerPhase.WORKING,
        PhaseCause.LEASE_UNSAFE: WorkerPhase.UNSURE,
        PhaseCause.ANSWER_LOST: WorkerPhase.UNSURE,  # so that an answer which does not cover it confirms nothing
        PhaseCause.NODE_DEAD: WorkerPhase.LOST,
        PhaseCause.SHUTDOWN: WorkerPhase.DRAINING,
    },
    WorkerPhase.LOST: {
        PhaseCause.LEASE_SAFE: WorkerPhase.REVALIDATING,
        PhaseCause.SHUTDOWN: WorkerPhase.DRAINING,
    },
    WorkerPhase.DRAINING: {},
}


MAY_WORK = frozenset({WorkerPhase.WORKING})  # claim runs and start attempts
# Keep a run that the store assigns to us until its instant; in the other phases it is given back.
MAY_HOLD = frozenset({WorkerPhase.WORKING, WorkerPhase.UNSURE, WorkerPhase.REVALIDATING})


class PhaseTracker:
    """Keeps the phase of one worker; used on its event loop only."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._enter(WorkerPhase.WORKING)

    def move(self, cause: PhaseCause) -> None:
        """Change the phase as the table says."""
        self._enter(TRANSITIONS[self.current].get(cause, self.current))

    def _enter(self, phase: WorkerPhase) -> None:
        self.current = phase
        self.may_work, self.may_hold = phase in MAY_WORK, phase in MAY_HOLD

    def check_lease(self) -> bool:
        """Suspend work if the lease is not safe; returns whether the worker may work."""
        if not self._lease.safe:
            self.move(PhaseCause.NODE_DEAD if self._lease.lost else PhaseCause.LEASE_UNSAFE)
        return self.may_work

    def resume(self) -> WorkerPhase:
        """Suspend work if the lease is not safe, and prepare to go on if it is safe again."""
        if self._lease.safe:
            self.move(PhaseCause.LEASE_SAFE)
        else:
            self.check_lease()
        return self.current

    @property
    def suspended(self) -> bool:
        """Whether the worker waits for its lease, or for the store to confirm its claims."""
        return self.current not in (WorkerPhase.WORKING, WorkerPhase.DRAINING)
