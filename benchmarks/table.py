"""`make bench`: measures everything, prints the table, and publishes it on request.

    make bench                              takes an hour; ARGS="--quick" for a first result in a few minutes
    make bench ARGS="--only now,timed"      some parts; the others keep their last figures
    make bench ARGS="--without-peers"       Horae and the bare stores; the peers keep their last figures
    make bench ARGS="--all --publish"       with the slowest parts, and written to docs/internals/benchmarks.md

Figures are saved to .bench/results.json as they come, so that a failure or an interruption loses nothing.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from benchmarks.machine import facts
from benchmarks.measurements import CELERY, LONG_PARTS, PARTS, PGQUEUER, QUICK, Bench, Figures, Measurement, Sizes
from benchmarks.page import REVISION, page
from benchmarks.peers.environment import ROOT, SCRATCH, version_of
from benchmarks.servers import postgres_version, redis_version, rest
from benchmarks.summary import with_summary

RESULTS = SCRATCH / "results.json"
PAGE = ROOT / "docs" / "internals" / "benchmarks.md"
README = ROOT / "README.md"
PEERS = (PGQUEUER, CELERY)

console = Console(highlight=False, soft_wrap=True)


def main() -> int:
    options = _options()
    sizes = QUICK if options.quick else Sizes()
    sizes = replace(sizes, rounds=options.rounds or sizes.rounds)
    kept = Kept(quick=options.quick)
    if not options.show:
        with Bench(sizes) as bench:
            _measure(bench, _parts(options), sizes, kept, peers=not options.without_peers)
    text = page(kept.machine, kept.in_order())
    if options.publish:
        PAGE.write_text(text, "utf-8")
        README.write_text(with_summary(README.read_text("utf-8"), kept.in_order()), "utf-8")
        console.print(f"written: {PAGE.relative_to(ROOT)} and {README.name}")
    elif console.is_terminal:
        console.print(Markdown(text))
    else:
        sys.stdout.write(text)
    return 1 if kept.failed else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description="Measure Horae beside its peers.")
    parser.add_argument("--only", help=f"these parts, as a,b: {', '.join(PARTS + LONG_PARTS)}")
    parser.add_argument("--all", action="store_true", help=f"with those that take longest: {', '.join(LONG_PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes and one round: a few minutes")
    parser.add_argument("--rounds", type=int, help="how often each is measured (3)")
    parser.add_argument(
        "--without-peers", action="store_true", help="Horae and the bare stores alone; the peers' last figures stay"
    )
    parser.add_argument("--show", action="store_true", help="measure nothing, show what was measured last")
    parser.add_argument("--publish", action="store_true", help=f"write {PAGE.relative_to(ROOT)} and the README")
    options = parser.parse_args()
    if unknown := set(_parts(options)) - {*PARTS, *LONG_PARTS}:
        parser.error(f"--only {','.join(sorted(unknown))}: the parts are {', '.join(PARTS + LONG_PARTS)}")
    if options.quick and options.publish:
        parser.error("--quick is for a first look; what is published is measured at full size")
    return options


def _parts(options: argparse.Namespace) -> list[str]:
    if options.only:
        return [part.strip() for part in options.only.split(",")]
    return [*PARTS, *(LONG_PARTS if options.all else ())]


def _measure(bench: Bench, parts: list[str], sizes: Sizes, kept: "Kept", *, peers: bool) -> None:
    kept.describe(machine_facts(bench, peers=peers))
    for part in parts:
        every = bench.measurements(part)
        measurements = [each for each in every if peers or each.who not in PEERS]
        kept.begin(part, every, measurements)
        for turn in range(1 if part in LONG_PARTS else sizes.rounds):
            for measurement in measurements:
                asyncio.run(rest(bench.postgres))
                _take(measurement, turn, kept)


def _take(measurement: Measurement, turn: int, kept: "Kept") -> None:
    """Take one measurement; a failure is recorded as well."""
    label = f"{measurement.part} · {measurement.name} · round {turn + 1}"
    with console.status(label):
        try:
            figures = measurement.run()
        except (RuntimeError, OSError, subprocess.SubprocessError) as exc:
            figures = {"error": str(exc).strip().splitlines()[-1], "who": measurement.who, "work": measurement.work}
            console.print(f"{label}: failed\n{exc}")
        else:
            console.print(f"{label}: {_short(figures)}")
    kept.add(measurement, figures)


def _short(figures: Figures) -> str:
    """The figures in one line, for the terminal."""
    rates = [f"{figures[key]:,.0f}/s" for key in ("completed_per_s", "submitted_per_s", "per_s") if figures.get(key)]
    late = [f"p99 {figures['lateness_ms']['p99']} ms"] if "lateness_ms" in figures else []
    return " · ".join([*rates, *late, f"stolen {figures['stolen_percent']} %"])


def machine_facts(bench: Bench, *, peers: bool) -> dict[str, str]:
    """The facts of machine and versions."""
    described = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    known = facts() | {
        "PostgreSQL": asyncio.run(postgres_version(bench.postgres)),
        REVISION: f"revision {described.stdout.strip() or 'unknown'}",
    }
    if peers:
        known |= {PGQUEUER: f"PgQueuer {version_of('pgqueuer')}, two processes, 200 jobs at a time"}
        known |= {CELERY: f"Celery {version_of('celery')}, prefork with two processes; Redis {redis_version()}"}
    return known


class Kept:
    """The saved figures: those of this run, and of parts that are not measured again."""

    def __init__(self, *, quick: bool) -> None:
        self._quick = quick
        self.failed = False  # something that was measured now
        stored: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
        same = stored.get("quick") == quick
        self.machine: dict[str, str] = stored["machine"] if same else {}
        self._parts: dict[str, dict[str, list[Figures]]] = stored["parts"] if same else {}

    def in_order(self) -> dict[str, dict[str, list[Figures]]]:
        """The parts in the order of the page."""
        measured = {part: {name: runs for name, runs in each.items() if runs} for part, each in self._parts.items()}
        return {part: measured[part] for part in PARTS + LONG_PARTS if measured.get(part)}

    def describe(self, machine: dict[str, str]) -> None:
        """Save the facts; peers that are not measured again keep theirs."""
        self.machine = machine | {
            peer: self.machine[peer] for peer in PEERS if peer in self.machine and peer not in machine
        }
        self._write()

    def begin(self, part: str, every: Sequence[Measurement], measured: Sequence[Measurement]) -> None:
        """Delete the old figures of everything that is measured again or no longer exists."""
        last = self._parts.get(part, {})
        self._parts[part] = {each.name: [] if each in measured else last.get(each.name, []) for each in every}

    def add(self, measurement: Measurement, figures: Figures) -> None:
        told = {**figures, "revision": self.machine[REVISION]}
        self._parts[measurement.part].setdefault(measurement.name, []).append(told)
        self.failed |= "error" in figures
        self._write()

    def _write(self) -> None:
        RESULTS.parent.mkdir(exist_ok=True)
        written = RESULTS.with_suffix(".new")
        told = {"quick": self._quick, "machine": self.machine, "parts": self._parts}
        written.write_text(json.dumps(told, indent=1, ensure_ascii=False), "utf-8")
        written.replace(RESULTS)


if __name__ == "__main__":
    sys.exit(main())
