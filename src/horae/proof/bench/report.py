"""Builds the report of a benchmark: the document that `-o json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horae.proof.bench.costs import UsageReading, cpu_seconds_between, stolen_percent
from horae.proof.bench.figures import StartTally, bystander_figures, minute_figures, per_1000, per_second
from horae.proof.bench.load import HerdLoad, Load, NowLoad
from horae.proof.bench.options import BenchOptions
from horae.proof.bench.progress import LoadTimes
from horae.proof.bench.requests import usage_figures
from horae.proof.bench.verify import SlotCounts
from horae.size.prices import Prices

Report = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchResult:
    """Everything that was measured in a benchmark."""

    options: BenchOptions
    store: str  # without its password
    queue: str
    processes: int
    concurrency: int
    load: Load
    tally: StartTally
    times: LoadTimes
    before: UsageReading
    after: UsageReading
    rss_mb: dict[str, float | None]
    backlog_seconds: float | None
    slots: SlotCounts | None
    problems: Sequence[str]


def report_of(result: BenchResult) -> Report:
    """Return the report, with the documented figures first."""
    submitted, completed = _amounts(result)
    cpu = per_1000(cpu_seconds_between(result.before, result.after), completed)
    return {
        "mode": str(result.options.mode),
        "store": result.store,
        "queue": result.queue,
        "offered_per_s": _offered_per_second(result),
        "completed_per_s": per_second(completed, _seconds(result)),
        "submitted": submitted,
        "completed": completed,
        "lost": _lost(result),
        "duplicated": result.tally.duplicated,
        "early": result.tally.early,
        "lateness_ms": result.tally.lateness.figures(),
        "cpu_s_per_1000": round(sum(cpu.values()), 4) if cpu else None,
        "peak_rss_mb": result.rss_mb.get("worker"),
        "verified": not result.problems,
        "problems": list(result.problems),
        "processes": result.processes,
        "concurrency": result.concurrency,
        "seconds": round(result.times.whole, 3),
        "cpu": cpu,
        "rss_mb": result.rss_mb,
        "stolen_percent": stolen_percent(result.before, result.after),
        **_optional_figures(result),
    }


def is_good(report: Report) -> bool:
    """Whether no run was lost, duplicated or early, and the store agrees."""
    return not (report["lost"] or report["duplicated"] or report["early"]) and bool(report["verified"])


def _optional_figures(result: BenchResult) -> Report:
    """The figures that only some benchmarks have."""
    figures: Report = {}
    if result.options.backlog:
        figures |= {"backlog": result.options.backlog, "backlog_seconds": round(result.backlog_seconds or 0, 1)}
    if result.slots is not None:
        slots = {name: getattr(result.slots, name) for name in ("expected", "run", "skipped", "missing")}
        figures |= {"overlap": str(result.options.overlap), "slots": slots}
    if isinstance(result.load, HerdLoad):
        figures |= {"bystanders": len(result.tally.bystanders), "bystanders_ms": bystander_figures(result.tally)}
    if result.load.created_late:
        figures |= {"created_late": result.load.created_late}
    asked = usage_figures(result.after.asked - result.before.asked, _amounts(result)[1], Prices())
    if asked is not None:
        figures |= {"units": asked}
    if result.tally.minutes:
        figures |= {"minutes": minute_figures(result.tally.minutes)}
    return figures


def _amounts(result: BenchResult) -> tuple[int, int]:
    """The runs that were requested and that started, without bystanders."""
    if isinstance(result.load, HerdLoad):
        return result.load.jobs, result.tally.completed - len(result.tally.bystanders)
    return result.load.submitted, result.tally.completed


def _lost(result: BenchResult) -> int:
    if result.slots is not None:
        return result.slots.missing
    return result.load.submitted - result.tally.completed


def _offered_per_second(result: BenchResult) -> float | None:
    submitted, _ = _amounts(result)
    return float(result.options.rate) if result.options.rate else per_second(submitted, result.times.submitting)


def _seconds(result: BenchResult) -> float:
    """The measured time: of `now` until no run is left, else from the first due time to the last start."""
    if isinstance(result.load, NowLoad):
        return result.times.whole
    span = (result.tally.last_start_us - result.tally.first_due_us) / 1_000_000
    return span if isinstance(result.load, HerdLoad) else max(span, float(result.options.seconds or 0))
