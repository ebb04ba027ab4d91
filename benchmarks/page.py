"""Renders the published page from the figures: medians of the rounds in tables, with the facts of the machine."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.measurements import BARE_POSTGRES, BARE_SQLITE, PGQUEUER, POSTGRES, SQLITE

Figures = dict[str, Any]
Rounds = Sequence[Figures]  # of one measurement
Part = Mapping[str, Rounds]  # by the name of the measurement
NOTHING = "–"
REVISION = "Horae"  # among the facts: the version that was measured last
HEADINGS = {"now": "As fast as possible", "enqueue": "Creating jobs", "timed": "On time", "herd": "All at one instant"}
HEADINGS |= {"cron": "Recurring jobs", "api": "Over REST", "backlog": "With many waiting jobs"}
HEADINGS |= {"soak": "For a long time", "held": "Beside a forgotten transaction"}

INTRODUCTION = """\
# Benchmarks

Written by `make bench ARGS="--publish"`, never by hand. [Benchmarking](benchmarking.md) explains how to measure
yourself.

Everything in a table was measured on one machine in one run, alternately; a figure is the median of {rounds} unless
its table says otherwise. Producers, workers, the database and the load generator share the processors. Handlers do
nothing but record their own start, and these records are what counts. Jobs that were lost, ran twice or ran early are
counted, and the store is verified afterwards (`horae bench` does all of this). PostgreSQL has just written a
checkpoint and reuses its log files, as a server does after its first hours. *Stolen* is the share of processor time
that the host of a virtual machine gave to others meanwhile.
"""
EXPLANATIONS = {
    "now": """\
Producer and workers together, until the store is empty. *Bare* is what the store itself can do: insert, claim and
finish a row, a thousand at a time, and nothing else. CPU covers all processes, the database included.""",
    "enqueue": """\
One program that creates jobs in large batches (Celery: one by one, because it has no batches), without workers.
*Bare*: rows inserted, a thousand at a time.""",
    "timed": """\
Jobs due at evenly spread instants, and how many milliseconds after its own instant each started. Horae creates them
while others run; the peers had theirs created before.""",
    "herd": """\
Jobs that are all due at the same instant. *Beside*: jobs in another queue that come due at the same time.""",
    "cron": """\
Recurring jobs that each fire every second. Every slot is run, or skipped with its reason.""",
    "api": """\
The API, with tokens checked, in processes of its own beside one that plans and runs; 64 connections. Single jobs are
due at once and run meanwhile; status is requested for jobs that have run; the jobs of a batch (10,000 in a call) are
due later. Waiting times at a given rate are counted from the instant at which a request should have been sent.""",
    "backlog": """\
The same work in an empty store, and in one where many jobs wait for a distant day. One run each.""",
    "soak": """\
One run, with all its history kept.""",
    "held": """\
As fast as possible, while another connection holds a transaction open all the time. One run each.""",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table, computed from the rounds of one measurement."""

    title: str
    cell: Callable[[Rounds], str]


def page(machine: Mapping[str, str], parts: Mapping[str, Part]) -> str:
    """Render the page with the measured parts."""
    rounds = max((len(runs) for part in parts.values() for runs in part.values()), default=0)
    times = {1: "one run", 2: "two runs", 3: "three runs"}.get(rounds, f"{rounds} runs")
    facts = table(("the machine", ""), list(machine.items()), left=True)
    return "\n".join(
        [
            INTRODUCTION.format(rounds=times),
            facts,
            *(_section(name, part, machine.get(REVISION)) for name, part in parts.items()),
        ]
    )


def _section(name: str, part: Part, newest: str | None) -> str:
    lines = [f"## {HEADINGS[name]}", "", EXPLANATIONS[name], ""]
    told: set[str] = {run["revision"] for runs in part.values() for run in runs if "revision" in run}
    if older := sorted(revision for revision in told if revision != newest):
        how = "In part measured earlier, beside" if newest in told else "Measured with"
        lines += [f"{how} Horae of {', '.join(older)}.", ""]
    columns = COLUMNS[name]
    rows = [(label, *_cells(columns, runs)) for label, runs in _rows(name, part)]
    lines.append(table(("", *(column.title for column in columns)), rows))
    if name == "now":
        lines += _ratios(part)
    return "\n".join(lines)


def _rows(name: str, part: Part) -> list[tuple[str, Rounds]]:
    """The measurements of a part with their labels."""
    if name == "api":
        [runs] = part.values()
        stolen = [{"stolen_percent": run.get("stolen_percent")} for run in runs]
        pairs = list(zip(runs, stolen, strict=True))
        return [(label, [run.get(kind, run) | share for run, share in pairs]) for kind, label in REQUESTS.items()]
    return [(runs[0]["who"] if name in ("now", "enqueue") else label, runs) for label, runs in part.items()]


def _cells(columns: Sequence[Column], runs: Rounds) -> list[str]:
    if failed := [run["error"] for run in runs if "error" in run]:
        return [f"failed: {failed[0]}", *[NOTHING] * (len(columns) - 1)]
    return [column.cell(runs) for column in columns]


def _ratios(part: Part) -> list[str]:
    """Sentences that compare Horae with the others."""
    pairs = [(POSTGRES, PGQUEUER), (POSTGRES, BARE_POSTGRES), (SQLITE, BARE_SQLITE)]
    told: list[str] = []
    rates = {runs[0].get("who", label): median(runs, _rate_key(runs)) for label, runs in part.items() if runs}
    for ours, theirs in pairs:
        if (mine := rates.get(ours)) and (other := rates.get(theirs)):
            told.append(f"* {ours}: {mine / other:.2f} × {theirs}")
    return [*told, ""] if told else []


def _rate_key(runs: Rounds) -> str:
    """The name of the rate in the figures of a measurement."""
    return next((key for key in ("completed_per_s", "submitted_per_s") if key in runs[0]), "per_s")


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, left: bool = False) -> str:
    """Render a table in Markdown, with figures aligned to the right."""
    lines = [titles, ["---", *["---" if left else "---:"] * (len(titles) - 1)], *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


# --- cells


def _at(figures: Any, *path: str) -> Any:
    for name in path:
        figures = figures.get(name) if isinstance(figures, Mapping) else None
    return figures


def median(runs: Rounds, *path: str) -> float | None:
    """The median of a figure over the rounds; None if it is missing."""
    values = [value for run in runs if (value := _at(run, *path)) is not None]
    return statistics.median(values) if values else None


def _total(runs: Rounds, *path: str) -> int:
    return sum(_at(run, *path) or 0 for run in runs)


def count(value: float | None) -> str:
    """Format a count."""
    return NOTHING if value is None else f"{value:,.0f}"


def ms(value: float | None) -> str:
    """Format milliseconds with about three digits."""
    if value is None:
        return NOTHING
    return f"{value:,.0f}" if abs(value) >= 10 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.2f}"


def _cpu(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f} %"


def _wrong(runs: Rounds) -> str:
    """Lost, duplicated and early runs of all rounds, and problems found in the store."""
    if "completed" not in runs[0]:
        return NOTHING
    counts = [f"{_total(runs, key):,}" for key in ("lost", "duplicated", "early")]
    return " · ".join(counts) + ("" if all(run.get("verified", True) for run in runs) else " (the store disagrees)")


def _rate(runs: Rounds) -> str:
    return count(median(runs, _rate_key(runs)))


def _of(render: Callable[[float | None], str], *path: str) -> Callable[[Rounds], str]:
    return lambda runs: render(median(runs, *path))


def _minute(which: int, key: str) -> Callable[[Rounds], str]:
    def cell(runs: Rounds) -> str:
        minutes = runs[0].get("minutes") or []
        return (count if key == "completed" else ms)(minutes[which][key]) if len(minutes) > 2 else NOTHING

    return cell


RATE = Column(title="jobs/s", cell=_rate)
LATENESS = [Column(title=f"{name} ms", cell=_of(ms, "lateness_ms", name)) for name in ("p50", "p99", "max")]
WRONG = Column(title="lost · doubled · early", cell=_wrong)
CPU = Column(title="CPU s per 1,000", cell=_of(_cpu, "cpu_s_per_1000"))
MEMORY = Column(title="worker MB", cell=_of(count, "peak_rss_mb"))
STOLEN = Column(title="stolen", cell=_of(_percent, "stolen_percent"))
SLOTS = [
    Column(title=f"slots {name}", cell=_of(count, "slots", name)) for name in ("expected", "run", "skipped", "missing")
]

ERRORS = Column(title="errors", cell=lambda runs: count(_total(runs, "errors") + _total(runs, "at_half", "errors")))

REQUESTS = {
    "create": "`POST /v1/jobs`",
    "job_status": "`GET /v1/jobs/{id}/status`",
    "run": "`GET /v1/runs/{id}`",
    "job": "`GET /v1/jobs/{id}`",
    "batch": "`POST /v1/jobs/batch`, jobs",
}
COLUMNS: dict[str, Sequence[Column]] = {
    "now": [RATE, CPU, MEMORY, WRONG, STOLEN],
    "enqueue": [RATE, STOLEN],
    "timed": [RATE, *LATENESS, WRONG, CPU, MEMORY, STOLEN],
    "herd": [*LATENESS, Column(title="beside: p99 ms", cell=_of(ms, "bystanders_ms", "p99")), WRONG, STOLEN],
    "cron": [*SLOTS, *LATENESS, WRONG, CPU, MEMORY, STOLEN],
    "api": [
        Column(title="most a second", cell=_rate),
        CPU,
        *(Column(title=f"{name} ms", cell=_of(ms, f"{name}_ms")) for name in ("p50", "p99")),
        Column(title="at … a second", cell=_of(count, "at_half", "offered_per_s")),
        *(Column(title=f"{name} ms", cell=_of(ms, "at_half", f"{name}_ms")) for name in ("p50", "p99", "max")),
        ERRORS,
        STOLEN,
    ],
    "backlog": [
        Column(title="stored in s", cell=_of(count, "backlog_seconds")),
        RATE,
        *LATENESS,
        MEMORY,
        Column(title="planner MB", cell=_of(count, "rss_mb", "planner")),
        WRONG,
        STOLEN,
    ],
    "soak": [
        Column(title="2nd minute: ran", cell=_minute(1, "completed")),
        Column(title="p99 ms", cell=_minute(1, "p99")),
        Column(title="last whole minute: ran", cell=_minute(-1, "completed")),
        Column(title="p99 ms", cell=_minute(-1, "p99")),
        *LATENESS,
        MEMORY,
        WRONG,
        STOLEN,
    ],
    "held": [RATE, CPU, MEMORY, WRONG, STOLEN],
}
