"""`horae check`: verify that the history in the store keeps every promise."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from horae.cli.arguments import StoreUrl
from horae.cli.commands.check_history import judge_files, print_verdict, violation_documents
from horae.cli.output import Column, Format, Output, print_fields, print_json, print_note, print_table
from horae.cli.progress import progress_line
from horae.cli.times import past
from horae.core.errors import Misconfigured

if TYPE_CHECKING:
    from horae.config import Settings
    from horae.proof.checking import CheckCounts, Violation
    from horae.proof.checking.history.records import Line

MOST = 1000  # violations after which the check ends

COLUMNS = (Column(title="violation"), Column(title="subject"), Column(title="detail"))

Since = Annotated[
    str | None, Parameter(help="Check only what was due since then: 2d (ago), yesterday, 2026-03-01 or a timestamp.")
]
History = Annotated[
    list[Path] | None,
    Parameter(
        consume_multiple=True,
        negative=(),
        help="Verify a recorded history, from one or more files; with --store the final state is read from there.",
    ),
]
Prove = Annotated[
    bool,
    Parameter(negative=(), help="Fail also if the history lacks a planned fault or a required occurrence."),
]


def check(
    *,
    store: StoreUrl = None,
    since: Since = None,
    history: History = None,
    prove: Prove = False,
    output: Output = "table",
) -> int:
    """Verify that every slot, run and attempt in the store is on time, in order, once, and accounted for.

    It only reads, also while nodes run. The exit code is 1 if a promise is broken.
    """
    from horae.config import load_settings, without_password

    settings = load_settings({"store": store})
    if history:
        return _check_history(history, None if store is None else settings, prove, output)
    with progress_line("opening the store") as show:
        due_since = None if since is None else datetime.fromisoformat(past(since, "--since"))
        seen, found = asyncio.run(_check(settings, due_since, lambda seen: show(_progress(seen))))
    if output == "json":
        print_json(_document(without_password(settings.store), seen, found))
    elif found:
        print_table(COLUMNS, [(v.code, v.subject, v.detail) for v in found], empty="")
    else:
        shown = without_password(settings.store)
        print_fields({"store": shown, "checked": _amount(seen), "violations": "none"})
    if found and output == "table":
        more = f"; only the first {MOST} are shown" if len(found) >= MOST else ""
        print_note(f"{len(found)} violations in {_amount(seen)}{more}")
    return 1 if found else 0


def _check_history(paths: list[Path], settings: "Settings | None", prove: bool, output: Format) -> int:
    with progress_line("reading the history"):
        final = [] if settings is None else asyncio.run(_final_state(settings))
        verdict = judge_files(paths, final)
    print_verdict(verdict, paths, output=output, most=MOST)
    return 1 if verdict.violations or (prove and not verdict.coverage.is_complete) else 0


async def _final_state(settings: "Settings") -> list["Line"]:
    from horae.proof.checking import read_final

    async with _opened(settings) as store:
        now = await store.time()
        return [line async for line in read_final(store, now=now, at=now.timestamp())]


async def _check(
    settings: "Settings", since: datetime | None, progress: Callable[["CheckCounts"], None]
) -> tuple["CheckCounts", list["Violation"]]:
    from horae.proof.checking import Checker, Tolerance

    async with _opened(settings) as store:
        kept_since = await store.time() - settings.retention + timedelta(days=1)
        checker = Checker(
            store,
            since=kept_since if since is None else max(since, kept_since),
            tolerance=Tolerance(lead=settings.lead_seconds),
            progress=progress,
        )
        found: list[Violation] = []
        async for violation in checker.violations():
            found.append(violation)
            if len(found) >= MOST:
                break
    return checker.counts, found


@asynccontextmanager
async def _opened(settings: "Settings") -> AsyncIterator[Any]:
    """Open the store for reading; raises Misconfigured if its schema is not for this version."""
    from horae.adapters import make_store  # late: it imports the drivers

    store = make_store(settings.store)
    await _refuse_other_schema(settings.store, store)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


async def _refuse_other_schema(url: str, store: Any) -> None:
    """Raise Misconfigured where opening the store would create or migrate it."""
    from horae.adapters import sqlite_path

    if url.startswith("sqlite:") and not sqlite_path(url).exists():
        raise Misconfigured(f"there is no store at {sqlite_path(url)}; choose another with --store or HORAE_STORE")
    if problem := (await store.status()).problem:
        raise Misconfigured(problem)


def _document(store: str, seen: "CheckCounts", found: list["Violation"]) -> dict[str, object]:
    return {
        "store": store,
        "jobs": seen.jobs,
        "runs": seen.runs,
        "violations": violation_documents(found),
    }


def _progress(seen: "CheckCounts") -> str:
    return f"{_amount(seen)}, {seen.violations} violations"


def _amount(seen: "CheckCounts") -> str:
    return f"{seen.runs:,} runs and {seen.jobs:,} recurring jobs"
