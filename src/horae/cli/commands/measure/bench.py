"""`horae bench`: measure throughput and lateness with real nodes, in scratch data."""

import asyncio
import signal
from collections.abc import Coroutine, Mapping
from typing import Annotated, Any, Literal, TypeVar

from cyclopts import Parameter, validators

from horae.cli import INTERRUPTED
from horae.cli.arguments import Positive
from horae.cli.output import NOTHING, Output, milliseconds, print_note, print_result
from horae.cli.progress import progress_stages
from horae.config import load_settings

T = TypeVar("T")

NotNegative = Parameter(validator=validators.Number(gte=0))


def bench(
    *,
    store: Annotated[str | None, Parameter(help="The store to measure (HORAE_STORE); its data stay untouched.")] = None,
    queue: Annotated[str | None, Parameter(help="The queue's address (HORAE_QUEUE).")] = None,
    mode: Annotated[
        Literal["now", "timed", "herd", "cron"],
        Parameter(help="As fast as possible, spread evenly, all at one instant, or recurring jobs."),
    ] = "now",
    rate: Annotated[
        int | None, Positive, Parameter(help="timed: jobs a second (1000). cron: jobs, each fires every second (100).")
    ] = None,
    jobs: Annotated[int | None, Positive, Parameter(help="now, herd: how many (herd: 2000).")] = None,
    seconds: Annotated[int | None, Positive, Parameter(help="now, timed, cron: for how long (10).")] = None,
    backlog: Annotated[int, NotNegative, Parameter(help="First store so many jobs due far in the future.")] = 0,
    overlap: Annotated[
        Literal["allow", "skip"] | None, Parameter(help="cron: what to do while the previous run still runs (skip).")
    ] = None,
    processes: Annotated[
        int | None, Positive, Parameter(help="How many workers (1; 2 for now, herd, high rates).")
    ] = None,
    output: Output = "table",
) -> int:
    """Run empty jobs on a real planner and real workers, and report their lateness and cost.

    It uses a scratch schema or file beside the store, and deletes it afterwards. The exit code is 1 if a job was lost,
    ran twice or ran early, or if the store disagrees with what the jobs recorded.
    """
    from horae.proof.bench.options import parse_options

    options = parse_options(
        mode, rate=rate, jobs=jobs, seconds=seconds, backlog=backlog, overlap=overlap, processes=processes
    )
    from horae.proof.bench.report import is_good  # late: it imports everything
    from horae.proof.bench.run import run_bench

    try:
        with progress_stages("preparing") as show_stage:
            report = _run(run_bench(load_settings({"store": store, "queue": queue}), options, show_stage))
    except asyncio.CancelledError:
        print_note("interrupted; the scratch data are deleted")
        return INTERRUPTED
    print_result(report, _fields(report), output)
    return 0 if is_good(report) else 1


def _run(act: Coroutine[Any, Any, T]) -> T:
    """Run to the end; a signal cancels it once, so that a second signal does not disturb the clean-up."""
    import uvloop

    async def main() -> T:
        loop, task = asyncio.get_running_loop(), asyncio.create_task(act)
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, lambda: task.cancelling() or task.cancel())
        return await task

    return uvloop.run(main())


def _fields(report: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the report as fields for people."""
    late, slots, beside = report["lateness_ms"], report.get("slots"), report.get("bystanders_ms")
    return {
        "mode": f"{report['mode']}, with {_count(report['processes'], 'worker')}",
        "store": report["store"],
        "queue": report["queue"],
        "backlog": f"{report['backlog']:,} jobs, stored in {report['backlog_seconds']} s"
        if "backlog" in report
        else None,
        "offered": _rate(report["offered_per_s"], report["submitted"]),
        "completed": _rate(report["completed_per_s"], report["completed"]),
        "lateness": _lateness(late),
        "bystanders": None if beside is None else _lateness(beside),
        "slots": None if slots is None else ", ".join(f"{count:,} {what}" for what, count in slots.items()),
        "wrong": f"{report['lost']:,} lost, {report['duplicated']:,} doubled, {report['early']:,} early",
        "verified": "yes" if report["verified"] else "; ".join(report["problems"]),
        "CPU": _cpu(report),
        "units": _units(report.get("units")),
        "price": _price(report.get("units")),
        "stolen": f"{report['stolen_percent']} % of the CPUs went to others on the host",
        "memory": ", ".join(f"{role} {peak} MB" for role, peak in report["rss_mb"].items()),
    }


def _lateness(figures: Mapping[str, float | None]) -> str:
    return " · ".join(f"{name} {milliseconds(value)}" for name, value in figures.items())


def _rate(per_second: float | None, count: int) -> str:
    return f"{count:,} jobs, {NOTHING if per_second is None else f'{per_second:,.0f}'} a second"


def _cpu(report: Mapping[str, Any]) -> str | None:
    if report["cpu_s_per_1000"] is None:
        return None
    roles = ", ".join(f"{role} {seconds * 1000:.0f}" for role, seconds in report["cpu"].items())
    return f"{report['cpu_s_per_1000'] * 1000:.0f} µs a job: {roles}"


def _units(units: Mapping[str, Any] | None) -> str | None:
    if units is None:
        return None
    parts = (("write units", "write_units"), ("read units", "read_units"), ("requests", "requests"))
    sqs = f", {units['sqs_requests']:g} of SQS" if units["sqs_requests"] else ""
    throttled = f"; {units['throttled']:,} throttled" if units["throttled"] else ""
    return "a job: " + ", ".join(f"{units[name]:g} {words}" for words, name in parts) + sqs + throttled


def _price(units: Mapping[str, Any] | None) -> str | None:
    if units is None:
        return None
    dollars = units["dollars_per_million"]
    parts = ", ".join(f"{name} ${amount:.2f}" for name, amount in dollars.items() if name != "total" and amount)
    return f"${dollars['total']:.2f} a million jobs ({parts}; {units['prices']})"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
