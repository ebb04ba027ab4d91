"""`horae jobs create --file`: create many jobs, with progress and a line for each that was refused."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, Any

from horae.cli.client import CommandClient, Document
from horae.cli.output import Column, print_json, print_note, print_table
from horae.cli.progress import progress_bar
from horae.core.errors import Malformed

CHUNK = 2_000  # jobs in one request; few enough that the progress bar moves
MOST = 50  # refused jobs that are listed one by one

COLUMNS = (Column(title="LINE", right=True), Column(title="WHERE", least=8), Column(title="WHY", least=20))


def create_from(name: str, output: str) -> int:
    """Create the jobs of a file with one JSON object a line (`-` is stdin); return 1 if some were refused, else 0."""
    accepted, refused, ids = 0, [], []
    with _lines(name) as lines, CommandClient() as client, progress_bar("creating") as advance:
        jobs = [(number, _job(number, line)) for number, line in enumerate(lines, 1) if line.strip()]
        for start in range(0, len(jobs), CHUNK):
            chunk = jobs[start : start + CHUNK]
            answer = client.create("/v1/jobs/batch", {"jobs": [job for _, job in chunk]})
            accepted += answer["accepted"]
            ids += [item.get("id") for item in answer["items"]]
            refused += [
                (number, item["error"])
                for (number, _), item in zip(chunk, answer["items"], strict=True)
                if item.get("error")
            ]
            advance(start + len(chunk), len(jobs))
    _print_summary(accepted, refused, ids, output)
    return 1 if refused else 0


@contextmanager
def _lines(name: str) -> Iterator[IO[str]]:
    try:
        with nullcontext(sys.stdin) if name == "-" else Path(name).open(encoding="utf-8") as file:
            yield file
    except (OSError, UnicodeDecodeError) as exc:
        raise Malformed(f"--file {name}: {exc}") from exc


def _job(number: int, line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as exc:
        raise Malformed(f"line {number} is not JSON: {exc}; nothing was created") from exc


def _print_summary(accepted: int, refused: list[tuple[int, Document]], ids: list[str | None], output: str) -> None:
    if output == "json":
        errors = [{"line": number, "error": problem} for number, problem in refused]
        print_json({"accepted": accepted, "rejected": len(refused), "ids": ids, "errors": errors})
        return
    print_note(f"created {accepted} jobs" + (f", refused {len(refused)}" if refused else ""))
    if refused:
        print_table(COLUMNS, [_refusal(number, problem) for number, problem in refused[:MOST]], empty="")
        if len(refused) > MOST:
            print_note(f"and {len(refused) - MOST} more; -o json lists them all")


def _refusal(number: int, problem: Document) -> list[str]:
    faults = problem.get("errors") or [{}]
    return [str(number), faults[0].get("pointer", ""), problem["detail"]]
