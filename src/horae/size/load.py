"""The load that is to be sized."""

from horae.core.errors import Misconfigured
from horae.core.values import Value

MONTH_SECONDS = 730 * 3600  # as Amazon counts a month
BUSY = 3.0  # how much more than the mean comes at the busiest time, unless it is given
LARGEST_PAYLOAD = 64 * 1024  # bytes of parameters and result that are kept in the run; more goes to blobs


class PlannedLoad(Value, frozen=True, kw_only=True):
    """Jobs a second, and what each of them is."""

    rate: float = 0.0  # one-shot jobs a second, in the mean of a month
    recurring: float = 0.0  # runs of recurring jobs a second
    peak: float  # runs a second at the busiest time, of both together
    task_seconds: float = 0.1  # that a task takes
    payload_bytes: int = 200  # parameters and result of a run
    retention_days: float = 30.0
    nodes: int = 0  # 0: as many as it needs
    queues: int = 1  # Horae queues, each with its priority classes

    @property
    def runs(self) -> float:
        """Runs a second, in the mean."""
        return self.rate + self.recurring

    @property
    def runs_a_month(self) -> float:
        return self.runs * MONTH_SECONDS


def load_of(
    *,
    rate: float,
    recurring: float = 0.0,
    peak: float | None = None,
    task_seconds: float = 0.1,
    payload_bytes: int = 200,
    retention_days: float = 30.0,
    nodes: int = 0,
    queues: int = 1,
) -> PlannedLoad:
    """Return a load with its peak; raises `Misconfigured` for figures that contradict each other."""
    mean = rate + recurring
    if peak is not None and peak < mean:
        raise Misconfigured(f"--peak {peak:g} is less than the mean of {mean:g} runs a second")
    if payload_bytes > LARGEST_PAYLOAD:
        raise Misconfigured(
            f"--payload {payload_bytes} is more than the {LARGEST_PAYLOAD} bytes that a run keeps; the rest goes to"
            " blobs (HORAE_BLOBS), which this does not size"
        )
    return PlannedLoad(
        rate=rate,
        recurring=recurring,
        peak=mean * BUSY if peak is None else peak,
        task_seconds=task_seconds,
        payload_bytes=payload_bytes,
        retention_days=retention_days,
        nodes=nodes,
        queues=queues,
    )
