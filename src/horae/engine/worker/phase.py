"""The phase of a worker: what it may do, by the state of its lease and of its shutdown."""

from dataclasses import dataclass
from enum import Enum, auto

from horae.engine.cluster.lease import Lease


class WorkerPhase(Enum):
    """The phases of a worker; results are sent in every one of them, and the fence decides whether they count."""

    WORKING = auto()  # the lease is safe, and every claim is known to be ours
    UNSURE = auto()  # the lease is not safe, or an answer was lost: runs that we hold may be others' by now
    REVALIDATING = auto()  # the lease is safe again, and the store is being asked which claims are still ours
    LOST = auto()  # the others declared this node dead: it needs a new identity
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """What a phase allows."""

    claim: bool = False  # ask the store for runs
    start: bool = False  # start attempts of held runs
    hold: bool = False  # keep a run that the store assigns to us until its instant; else it is given back


def permissions(phase: WorkerPhase) -> Permissions:
    """What a worker may do in a phase."""
    match phase:
        case WorkerPhase.WORKING:
            return Permissions(claim=True, start=True, hold=True)
        case WorkerPhase.UNSURE | WorkerPhase.REVALIDATING:
            return Permissions(hold=True)
        case WorkerPhase.LOST | WorkerPhase.DRAINING:
            return Permissions()


class PhaseTracker:
    """Keeps the phase of one worker; used on its event loop only."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self.current = WorkerPhase.WORKING
        self.may = permissions(self.current)

    def move(self, cause: PhaseCause) -> None:
        """Change the phase as the table says."""
        following = TRANSITIONS[self.current].get(cause)
        if following is not None:
            self.current, self.may = following, permissions(following)

    def check_lease(self) -> Permissions:
        """Suspend work if the lease is not safe."""
        if not self._lease.safe:
            self.move(PhaseCause.NODE_DEAD if self._lease.lost else PhaseCause.LEASE_UNSAFE)
        return self.may

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
