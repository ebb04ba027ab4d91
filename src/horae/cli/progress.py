"""Progress of long acts: a bar on a terminal, silence in a pipe."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[int, int | None], None]  # done so far, and of how many if that is known


@contextmanager
def progress_bar(what: str) -> Iterator[Advance]:
    """A bar on stderr while the act goes on; it is gone when the act is over."""
    with _bar(what) as update:
        yield lambda done, total: update(completed=done, total=total)


@contextmanager
def progress_stages(beginning: str) -> Iterator[Callable[[str, int, int | None], None]]:
    """A bar on stderr for an act in several stages, each with a length of its own."""
    with _bar(beginning) as update:
        yield lambda stage, done, total: update(description=stage, completed=done, total=total)


@contextmanager
def progress_line(beginning: str) -> Iterator[Callable[[str], None]]:
    """A line on stderr that says how far an act of unknown length is."""
    if not sys.stderr.isatty():
        yield lambda words: None
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(beginning, total=None)
        yield lambda words: shown.update(line, description=words)


@contextmanager
def _bar(beginning: str) -> Iterator[Callable[..., None]]:
    if not sys.stderr.isatty():
        yield lambda **values: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        line = shown.add_task(beginning, total=None)
        yield lambda **values: shown.update(line, **values)
