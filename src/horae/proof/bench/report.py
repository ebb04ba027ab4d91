"""What a benchmark tells: the document that `-o json` prints."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from horae.proof.bench.costs import Reading, stolen_percent, used_between
from horae.proof.bench.figures import Tally, bystander_figures, minute_figures, per_1000, per_second
from horae.proof.bench.load import AnyLoad, HerdLoad, NowLoad
from horae.proof.bench.options import Offer
from horae.proof.bench.progress import Course
from horae.proof.bench.verify import Slots

Report = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """All that is known when a benchmark is over."""

    offer: Offer
    store: str  # without its password
    queue: str
    processes: int
    concurrency: int
    load: AnyLoad
    tally: Tally
    course: Course
    before: Reading
    after: Reading
    rss_mb: dict[str, float | None]
    backlog_seconds: float | None
    slots: Slots | None
    problems: Sequence[str]


def report_of(result: Result) -> Report:
    """The figures; those of the contract first."""
    submitted, completed = _amounts(result)
    cpu = per_1000(used_between(result.before, result.after), completed)
    return {
        "mode": str(result.offer.mode),
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
        "seconds": round(result.course.whole, 3),
        "cpu": cpu,
        "rss_mb": result.rss_mb,
        "stolen_percent": stolen_percent(result.before, result.after),
        **_particulars(result),
    }


def is_good(report: Report) -> bool:
    """Whether nothing was lost, doubled or early, and the store agrees."""
    return not (report["lost"] or report["duplicated"] or report["early"]) and bool(report["verified"])


def _particulars(result: Result) -> Report:
    """What only some benchmarks have."""
    told: Report = {}
    if result.offer.backlog:
        told |= {"backlog": result.offer.backlog, "backlog_seconds": round(result.backlog_seconds or 0, 1)}
    if result.slots is not None:
        slots = result.slots
        told |= {"overlap": str(result.offer.overlap)}
        told |= {"slots": {"expected": slots.expected, "run": slots.run, "skipped": slots.skipped}}
        told["slots"]["missing"] = slots.missing
    if isinstance(result.load, HerdLoad):
        told |= {"bystanders": len(result.tally.bystanders), "bystanders_ms": bystander_figures(result.tally)}
    if result.load.created_late:
        told |= {"created_late": result.load.created_late}
    if result.tally.minutes:
        told |= {"minutes": minute_figures(result.tally.minutes)}
    return told


def _amounts(result: Result) -> tuple[int, int]:
    """What was offered and what ran, without what only stood by."""
    if isinstance(result.load, HerdLoad):
        return result.load.jobs, result.tally.completed - len(result.tally.bystanders)
    return result.load.submitted, result.tally.completed


def _lost(result: Result) -> int:
    if result.slots is not None:
        return result.slots.missing
    return result.load.submitted - result.tally.completed


def _offered_per_second(result: Result) -> float | None:
    submitted, _ = _amounts(result)
    return float(result.offer.rate) if result.offer.rate else per_second(submitted, result.course.offering)


def _seconds(result: Result) -> float:
    """`now`: until the store was empty. Otherwise from the first due time to the last start, or the end of the time."""
    if isinstance(result.load, NowLoad):
        return result.course.whole
    span = (result.tally.last_start_us - result.tally.first_due_us) / 1_000_000
    return span if isinstance(result.load, HerdLoad) else max(span, float(result.offer.seconds or 0))
