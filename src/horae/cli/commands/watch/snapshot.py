"""What `horae top` shows at one moment: read in a few bounded requests, however much waits or has ended."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from horae.cli.client import CommandClient, Document
from horae.cli.output import instant

SAMPLE = 200  # of the latest runs, from which rates and lateness are taken
WINDOW = timedelta(minutes=1)
SHORTEST = timedelta(seconds=1)
RUNNING, FAILED = 50, 10  # that are read; a screen has room for fewer


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How many runs a second came due lately, and how they went."""

    window: timedelta
    due: float
    succeeded: float
    failed: float
    lateness_p50_ms: float | None
    lateness_p99_ms: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """The state of a cluster at one moment."""

    at: datetime
    queues: Sequence[Document]
    workers: Sequence[Document]
    running: Sequence[Document]
    failed: Sequence[Document]  # dead letters, the latest first
    pace: Pace


def read_snapshot(client: CommandClient, owner: str | None) -> Snapshot:
    """Ask the server for everything that a frame shows."""
    now = datetime.now(UTC)
    latest = client.get("/v1/runs", due="true", limit=SAMPLE, owner=owner)["items"]
    return Snapshot(
        at=now,
        queues=client.get("/v1/queues", owner=owner)["items"],
        workers=client.get("/v1/workers")["items"],
        running=client.get("/v1/runs", status="running", limit=RUNNING, owner=owner)["items"],
        failed=client.get("/v1/dead-letters", limit=FAILED, owner=owner)["items"],
        pace=pace_of(latest, now),
    )


def pace_of(latest: Sequence[Document], now: datetime) -> Pace:
    """Return the pace of the runs that came due within the last minute, or since the oldest of a full sample."""
    due_at = [instant(run["due_at"]) or now for run in latest]
    begin = now - WINDOW
    if len(latest) >= SAMPLE:
        begin = max(begin, min(due_at))
    recent = [run for run, due in zip(latest, due_at, strict=True) if due >= begin]
    window = max(now - begin, SHORTEST)
    late = sorted(run["lateness_ms"] for run in recent if run.get("lateness_ms") is not None)
    ended = [run["status"] for run in recent]
    return Pace(
        window=window,
        due=len(recent) / window.total_seconds(),
        succeeded=ended.count("succeeded") / window.total_seconds(),
        failed=(ended.count("failed") + ended.count("retrying")) / window.total_seconds(),
        lateness_p50_ms=_quantile(late, 0.5),
        lateness_p99_ms=_quantile(late, 0.99),
    )


def _quantile(ordered: Sequence[float], part: float) -> float | None:
    return ordered[min(int(part * len(ordered)), len(ordered) - 1)] if ordered else None
