"""The options of a benchmark: defaults, and combinations that are rejected."""

from dataclasses import dataclass
from enum import StrEnum

from horae.core.errors import Misconfigured
from horae.core.model import Overlap


class Mode(StrEnum):
    """The kinds of load."""

    NOW = "now"  # as fast as possible
    TIMED = "timed"  # evenly spread due times
    HERD = "herd"  # all due at one instant
    CRON = "cron"  # recurring jobs that each fire every second


DEFAULT_SECONDS = 10
DEFAULT_HERD = 2_000
DEFAULT_RATES = {Mode.TIMED: 1_000, Mode.CRON: 100}


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The load of a benchmark, and for how long it runs."""

    mode: Mode
    rate: int | None  # jobs due per second; of `cron`: recurring jobs, each fires every second
    jobs: int | None  # None: as many as possible in the time
    seconds: int | None  # None: until the jobs are done
    backlog: int = 0  # jobs due far in the future, stored before
    overlap: Overlap = Overlap.SKIP  # of recurring jobs
    processes: int | None = None  # workers; None: the default of the load


def parse_options(
    mode: str,
    *,
    rate: int | None,
    jobs: int | None,
    seconds: int | None,
    backlog: int,
    overlap: str | None,
    processes: int | None,
) -> BenchOptions:
    """Return the options with defaults; raises Misconfigured for options that contradict each other."""
    chosen = Mode(mode)
    if overlap is not None and chosen is not Mode.CRON:
        raise Misconfigured(f"--overlap is for recurring jobs: use --mode cron, or leave it away with --mode {chosen}")
    rate, jobs, seconds = _amounts(chosen, rate, jobs, seconds)
    return BenchOptions(
        mode=chosen,
        rate=rate,
        jobs=jobs,
        seconds=seconds,
        backlog=backlog,
        overlap=Overlap(overlap or Overlap.SKIP),
        processes=processes,
    )


def _amounts(
    mode: Mode, rate: int | None, jobs: int | None, seconds: int | None
) -> tuple[int | None, int | None, int | None]:
    match mode:
        case Mode.NOW:
            _refuse("--rate", rate, "now goes as fast as it can; use --mode timed for a rate")
            return None, jobs, seconds or (None if jobs else DEFAULT_SECONDS)
        case Mode.TIMED:
            _refuse("--jobs", jobs, "timed offers --rate jobs a second for --seconds")
            rate, seconds = rate or DEFAULT_RATES[mode], seconds or DEFAULT_SECONDS
            return rate, rate * seconds, seconds
        case Mode.HERD:
            _refuse("--rate", rate, "in a herd all --jobs are due at one instant")
            _refuse("--seconds", seconds, "in a herd all --jobs are due at one instant")
            return None, jobs or DEFAULT_HERD, None
        case Mode.CRON:
            _refuse("--jobs", jobs, "cron has --rate jobs, each of which fires every second for --seconds")
            rate, seconds = rate or DEFAULT_RATES[mode], seconds or DEFAULT_SECONDS
            return rate, rate * seconds, seconds


def _refuse(option: str, given: int | None, why: str) -> None:
    if given is not None:
        raise Misconfigured(f"{option} {given} has no effect here: {why}")
