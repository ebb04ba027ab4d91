"""Shows the progress of long commands on a terminal, and nothing in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from horae.core.wording.printable import printable

Advance = Callable[[int, int | None], None]  # done so far, and of how many if that is known


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """Show a bar on stderr, and remove it at the end."""
    with _bar(what) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def progress_stages(first_stage: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """Show a bar on stderr for several stages, each with a length of its own."""
    with _bar(first_stage) as update:
        yield lambda stage, done, total: update(description=stage, completed=done, total=total)


@contextmanager
def progress_line(text: str) -> Iterator[Callable[[str], None]]:
    """Show a line on stderr for something of unknown length."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(printable(text), total=None)
        yield lambda text: shown.update(line, description=printable(text))


@contextmanager
def _bar(description: str) -> Iterator[Callable[..., None]]:
    if not sys.stderr.isatty():
        yield lambda **values: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(description, total=None)
        yield lambda **values: shown.update(line, **values)
