"""Renders the few figures in the README."""

from collections.abc import Mapping

from benchmarks.measurements import CELERY, PGQUEUER, POSTGRES, SQLITE
from benchmarks.page import Part, Rounds, count, median, ms, table

BEGIN, END = "<!-- measured: begin -->\n", "<!-- measured: end -->\n"
WHO = (POSTGRES, SQLITE, PGQUEUER, CELERY)
TITLES = ("", "jobs a second", "1,000 a second: p99 ms late", "10,000 a second: p99", "2,000 at one instant: p99")


def with_summary(text: str, parts: Mapping[str, Part]) -> str:
    """Replace the text between the markers by the new figures."""
    before, rest = text.split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}{summary(parts)}{END}{after}"


def summary(parts: Mapping[str, Part]) -> str:
    """Render one row per product with medians; a dash where it was not measured."""
    rows = [
        (
            who,
            count(median(_rounds(parts, "now", who), "completed_per_s")),
            *(_late(parts, "timed", who, f"{rate} a second") for rate in ("1,000", "10,000")),
            _late(parts, "herd", who, "2,000 jobs"),
        )
        for who in WHO
    ]
    return table(TITLES, rows)


def _late(parts: Mapping[str, Part], part: str, who: str, work: str) -> str:
    return ms(median(_rounds(parts, part, who, work), "lateness_ms", "p99"))


def _rounds(parts: Mapping[str, Part], part: str, who: str, work: str = "") -> Rounds:
    """The rounds of a measurement; empty if there are none."""
    found = [
        runs for runs in parts.get(part, {}).values() if runs[0]["who"] == who and runs[0]["work"].startswith(work)
    ]
    return found[0] if found else []
