"""The report of a benchmark, built from planted records: it can show failures."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

from horae.core.model import Overlap
from horae.proof.bench.costs import UsageReading
from horae.proof.bench.figures import tally
from horae.proof.bench.load import CronLoad, HerdLoad, JobWriter, NowLoad, TimedLoad
from horae.proof.bench.options import parse_options
from horae.proof.bench.progress import LoadTimes
from horae.proof.bench.report import BenchResult, Report, is_good, report_of
from horae.proof.bench.verify import SlotCounts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOTHING_ASKED: dict[str, Any] = dict.fromkeys(("rate", "jobs", "seconds", "overlap", "processes")) | {"backlog": 0}


class StillRows:
    """Makes nothing, at a time that stands still."""

    def now(self) -> datetime:
        return NOW


ROWS = cast(JobWriter, StillRows())


def timed_load() -> TimedLoad:
    """Ten jobs a second for two seconds, all created."""
    load = TimedLoad(ROWS, rate=10, jobs=20)
    load.submitted = 20
    return load


def timely(load: Any, places: Sequence[int], late_us: int = 1_000) -> list[tuple[int, int]]:
    return [(place, (load.due_us(place) + late_us) * 1000) for place in places]


def report(load: Any, starts: Sequence[tuple[int, int]], *, problems: Sequence[str] = (), **asked: Any) -> Report:
    mode = {TimedLoad: "timed", HerdLoad: "herd", NowLoad: "now", CronLoad: "cron"}[type(load)]
    return report_of(
        BenchResult(
            options=parse_options(mode, **NOTHING_ASKED | asked),
            store="sqlite:///horae.db",
            queue="store",
            processes=1,
            concurrency=1000,
            load=load,
            tally=tally(starts, load, bystanders_from=load.jobs if isinstance(load, HerdLoad) else None),
            times=LoadTimes(submitting=2.0, whole=4.0),
            before=UsageReading(cpu_seconds={"producer": 1.0, "worker": 2.0}, machine=(1000, 10)),
            after=UsageReading(cpu_seconds={"producer": 1.5, "worker": 3.0}, machine=(2000, 35)),
            rss_mb={"producer": 40.0, "worker": 60.5},
            backlog_seconds=None,
            slots=SlotCounts(expected=load.submitted, run=len(starts), skipped=1) if mode == "cron" else None,
            problems=problems,
        )
    )


def test_a_good_benchmark_is_told_with_rates_and_costs() -> None:
    load = timed_load()
    told = report(load, timely(load, range(20)), rate=10, seconds=2)
    assert is_good(told)
    assert (told["submitted"], told["completed"], told["lost"]) == (20, 20, 0)
    assert (told["offered_per_s"], told["completed_per_s"]) == (10.0, 10.0)
    assert told["lateness_ms"] == {"p50": 1.0, "p95": 1.0, "p99": 1.0, "max": 1.0}
    assert (told["cpu_s_per_1000"], told["cpu"]) == (75.0, {"producer": 25.0, "worker": 50.0})
    assert (told["peak_rss_mb"], told["stolen_percent"]) == (60.5, 2.5)


def test_a_lost_job_is_told() -> None:
    load = timed_load()
    told = report(load, timely(load, range(19)))
    assert (told["completed"], told["lost"]) == (19, 1)
    assert not is_good(told)


def test_a_doubled_job_is_told() -> None:
    load = timed_load()
    told = report(load, timely(load, [*range(20), 7]))
    assert (told["completed"], told["lost"], told["duplicated"]) == (20, 0, 1)
    assert not is_good(told)


def test_an_early_job_is_told() -> None:
    load = timed_load()
    told = report(load, [*timely(load, range(19)), *timely(load, [19], late_us=-1_001)])
    assert (told["completed"], told["lost"], told["early"]) == (20, 0, 1)
    assert not is_good(told)


def test_a_store_that_disagrees_is_told() -> None:
    load = timed_load()
    told = report(load, timely(load, range(20)), problems=["some runs have not ended"])
    assert (told["verified"], told["problems"]) == (False, ["some runs have not ended"])
    assert not is_good(told)


def test_a_slot_that_is_neither_run_nor_skipped_is_lost() -> None:
    load = CronLoad(ROWS, rate=2, seconds=3, overlap=Overlap.SKIP)
    starts = [(job << 32 | second, (load.due_us(job * 3 + second) + 500) * 1000) for job in (0, 1) for second in (0, 1)]
    told = report(load, starts, rate=2, seconds=3)
    assert told["slots"] == {"expected": 6, "run": 4, "skipped": 1, "missing": 1}
    assert (told["submitted"], told["completed"], told["lost"]) == (6, 4, 1)
    assert not is_good(told)


def test_a_slot_after_the_time_is_not_measured() -> None:
    load = CronLoad(ROWS, rate=2, seconds=3, overlap=Overlap.SKIP)
    assert [load.place(1 << 32 | second) for second in (0, 2, 3, 1000)] == [3, 5, None, None]


def test_a_lost_bystander_counts_but_is_not_of_the_herd() -> None:
    load = HerdLoad(ROWS, jobs=10)
    load.submitted = load.expected
    told = report(load, timely(load, range(load.expected - 1)), jobs=10)
    assert (told["submitted"], told["completed"], told["lost"]) == (10, 10, 1)
    assert told["bystanders"] == load.expected - 11
    assert not is_good(told)


def test_bystanders_do_not_hide_the_lateness_of_a_herd() -> None:
    load = HerdLoad(ROWS, jobs=2)
    load.submitted = load.expected
    told = report(load, [*timely(load, [0, 1], 50_000), *timely(load, range(2, load.expected), 100)], jobs=2)
    assert (told["lateness_ms"]["p50"], told["bystanders_ms"]["max"]) == (50.0, 0.1)
