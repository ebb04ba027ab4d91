"""The benchmarks report what they measured: peers are judged like Horae, and the page shows the figures."""

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import table
from benchmarks.http_load import ALL_ACCEPTED
from benchmarks.measurements import LONG_PARTS, PARTS, PGQUEUER, POSTGRES, QUICK, SQLITE, Bench, Measurement
from benchmarks.page import COLUMNS, EXPLANATIONS, HEADINGS, REVISION, page
from benchmarks.peers import recording
from benchmarks.peers.drive import judge
from benchmarks.peers.environment import HERE, version_of
from benchmarks.summary import BEGIN, END, with_summary
from benchmarks.table import README
from horae.api.routes.batch import BatchView
from horae.proof.bench.start_recorder import count_starts


def figures(**changes: Any) -> dict[str, Any]:
    """What one round of one measurement may have told."""
    told = {"who": POSTGRES, "work": "10 a second", "completed": 10, "completed_per_s": 10, "lost": 0, "duplicated": 0}
    lateness = {"p50": 0.1, "p95": 1.0, "p99": 2.0, "max": 3.0}
    return {**told, "early": 0, "lateness_ms": lateness, "stolen_percent": 0.5, **changes}


def lines_of(parts: Mapping[str, Any]) -> list[str]:
    return page({"processors": "2 × abacus"}, parts).splitlines()


def row(start: str, lines: list[str]) -> list[str]:
    [found] = [line for line in lines if line.startswith(f"| {start} |")]
    return [cell.strip() for cell in found.strip("|").split("|")]


def test_a_figure_is_the_median_of_its_rounds() -> None:
    rounds = [figures(completed_per_s=rate) for rate in (9_000, 30_000, 10_000)]
    assert row(POSTGRES, lines_of({"now": {POSTGRES: rounds}}))[1] == "10,000"


def test_what_went_wrong_is_the_sum_of_all_rounds() -> None:
    rounds = [figures(lost=1), figures(duplicated=2), figures(early=3)]
    assert row(POSTGRES, lines_of({"now": {POSTGRES: rounds}}))[4] == "1 · 2 · 3"


def test_the_page_says_when_the_store_disagrees() -> None:
    told = row(POSTGRES, lines_of({"now": {POSTGRES: [figures(verified=True), figures(verified=False)]}}))
    assert told[4].endswith("(the store disagrees)")


def test_a_measurement_that_failed_is_told_and_the_others_stay() -> None:
    failed = {"who": "a peer", "work": "", "error": "it would not start"}
    lines = lines_of({"now": {"a peer": [failed], POSTGRES: [figures()]}})
    assert row("a peer", lines)[1] == "failed: it would not start"
    assert row(POSTGRES, lines)[1] == "10"


def test_requests_have_their_waiting_times_at_most_and_at_half() -> None:
    half = {"offered_per_s": 1500, "errors": 1, "p50_ms": 5.0, "p99_ms": 6.0, "max_ms": 7.0}
    most = {"per_s": 4000, "errors": 0, "p50_ms": 13.0, "p99_ms": 26.0, "cpu_s_per_1000": 0.4, "at_half": half}
    told = {"who": "the API", "work": "", "stolen_percent": 0.5, "create": most}
    cells = row("`POST /v1/jobs`", lines_of({"api": {"the API": [told]}}))[1:]
    assert cells == ["4,000", "0.400", "13", "26", "1,500", "5.0", "6.0", "7.0", "1", "0.5 %"]


@pytest.mark.parametrize("rejected", [0, 1, 10])
def test_a_batch_of_which_some_were_rejected_is_an_error(rejected: int) -> None:
    body = msgspec.json.encode(BatchView(items=[], accepted=5, rejected=rejected))
    assert body.endswith(ALL_ACCEPTED) == (rejected == 0)


def test_what_is_measured_without_peers_leaves_their_last_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "RESULTS", tmp_path / "results.json")
    rates = iter(range(1, 100))
    every = [
        Measurement(part="now", who=who, work="", measure=lambda: figures(completed_per_s=next(rates)))
        for who in (POSTGRES, PGQUEUER, SQLITE)
    ]

    def measure(revision: str, measured: list[Measurement], facts: Mapping[str, str]) -> list[str]:
        kept = table.Kept(quick=True)
        kept.describe({"processors": "2 × abacus", REVISION: revision, **facts})
        kept.begin("now", every, measured)
        for each in measured:
            kept.add(each, each.run())
        again = table.Kept(quick=True)
        return page(again.machine, again.in_order()).splitlines()

    measure("old", every, {PGQUEUER: "PgQueuer 1.0"})
    lines = measure("new", [every[0], every[2]], {})
    assert row(PGQUEUER, [line for line in lines if "1.0" in line]) == [PGQUEUER, "PgQueuer 1.0"]
    shown = [line.split(" | ")[:2] for line in lines[lines.index(f"## {HEADINGS['now']}") :] if line.startswith("| ")]
    assert shown[2:] == [[f"| {POSTGRES}", "4"], [f"| {PGQUEUER}", "2"], [f"| {SQLITE}", "5"]]
    assert "In part measured earlier, beside Horae of old." in lines


def test_parts_that_were_not_measured_are_left_out() -> None:
    titles = [line for line in lines_of({"herd": {POSTGRES: [figures()]}}) if line.startswith("## ")]
    assert titles == [f"## {HEADINGS['herd']}"]


@pytest.mark.parametrize("part", PARTS + LONG_PARTS)
def test_every_part_has_its_measurements_and_its_place_on_the_page(part: str) -> None:
    names = [each.name for each in Bench(QUICK).measurements(part)]
    assert names
    assert len(set(names)) == len(names)
    assert part in HEADINGS
    assert part in EXPLANATIONS
    assert part in COLUMNS


def test_a_part_that_was_measured_with_an_older_version_says_so() -> None:
    parts = {"now": {POSTGRES: [figures(revision="revision 1")]}, "herd": {POSTGRES: [figures(revision="revision 2")]}}
    text = page({REVISION: "revision 2"}, parts)
    assert text.count("Measured with Horae of") == 1
    assert "Measured with Horae of revision 1." in text


def test_a_peer_is_judged_by_what_its_jobs_recorded() -> None:
    due = {number: 100.0 + number for number in range(4)}
    records = [(0, 100.5), (1, 100.9), (2, 103.0), (2, 102.002), (-1, 90.0)]  # -1 only woke the worker
    judged = judge(due, records, rate=1)
    assert {key: judged[key] for key in ("submitted", "completed", "lost", "duplicated", "early")} == {
        "submitted": 4,
        "completed": 3,
        "lost": 1,
        "duplicated": 1,
        "early": 1,
    }
    assert judged["lateness_ms"]["max"] == pytest.approx(500)
    assert judged["lateness_ms"]["p50"] == pytest.approx(2)


def test_jobs_of_a_peer_are_recorded_by_the_means_of_horae_bench(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BENCH_RECORDS", str(tmp_path))
    began = time.time()
    for number in (-1, 0, 7):
        recording.note(number)
    assert (recording.count(), recording.processes()) == (3, 1)
    assert [number for number, _ in recording.starts()] == [-1, 0, 7]
    assert all(began - 0.001 < at < time.time() + 0.001 for _, at in recording.starts())
    assert count_starts(tmp_path) == 3


@pytest.mark.parametrize("peer", ["pgqueuer", "celery"])
def test_all_that_a_peer_needs_is_pinned_and_no_registry_is_named(peer: str) -> None:
    lines = (HERE / f"{peer}.txt").read_text("utf-8").splitlines()
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", line) for line in lines)
    assert version_of(peer)


def test_the_readme_has_the_medians_of_today_between_its_marks_and_nothing_else_changes() -> None:
    late = [figures(work="1,000 a second, 60 s", lateness_ms={"p99": p99}) for p99 in (1.5, 90.0, 2.5)]
    parts = {"now": {POSTGRES: [figures(completed_per_s=25_000)]}, "timed": {POSTGRES: late}}
    text = with_summary(f"before\n{BEGIN}old figures\n{END}after\n", parts)
    assert text.startswith(f"before\n{BEGIN}| ")
    assert text.endswith(f"|\n{END}after\n")
    assert "old figures" not in text
    assert row(POSTGRES, text.splitlines())[1:] == ["25,000", "2.5", "–", "–"]


def test_the_readme_has_a_place_for_the_figures() -> None:
    assert with_summary(README.read_text("utf-8"), {}).count(BEGIN) == 1
