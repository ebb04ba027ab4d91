"""`horae top`: a screen that shows every second what waits, runs and fails."""

import shutil
import sys
from typing import Annotated

from cyclopts import Parameter, validators
from rich.text import Text

from horae.cli.arguments import Flag, Owner
from horae.cli.client import CommandClient
from horae.cli.commands.watch.frame import frame
from horae.cli.commands.watch.snapshot import read_snapshot
from horae.cli.keys import single_keys
from horae.cli.output import console
from horae.client import RateLimited
from horae.core.errors import Unavailable
from horae.core.wording.printable import printable

QUIT = ("q", "Q")
PIPE_SIZE = (120, 60)  # columns and lines of a frame that no terminal shows


def top(
    *,
    once: Annotated[
        bool, Flag, Parameter(help="Print one frame and end, as it does if stdout is no terminal.")
    ] = False,
    every: Annotated[
        float, Parameter(help="Seconds between two frames.", validator=validators.Number(gte=0.2, lte=3600))
    ] = 1.0,
    owner: Owner = None,
) -> None:
    """Watch queues, running runs, failures, rates and lateness; q or Ctrl-C leaves.

    Rates and lateness are those of the runs that came due within the last minute, as far as the latest 200 tell.
    """
    with CommandClient(retries=0) as client:
        if once or not sys.stdout.isatty():
            out = console()
            for line in _lines(client, owner, *_size()):
                out.print(line, no_wrap=True, crop=False, overflow="ignore")
        else:
            _watch(client, owner, every)


def _watch(client: CommandClient, owner: str | None, every: float) -> None:
    """Draw frame after frame on the whole screen, and leave the screen as it was."""
    from rich.console import Group
    from rich.live import Live

    with single_keys() as wait, Live(screen=True, auto_refresh=False, console=console()) as screen:
        try:
            while True:
                width, height = shutil.get_terminal_size()
                lines = _lines_or_reason(client, owner, width, height - 1)
                screen.update(Group(*lines, Text("q leaves", style="bright_black")), refresh=True)
                if wait(every) in QUIT:
                    return
        except KeyboardInterrupt:
            return


def _lines_or_reason(client: CommandClient, owner: str | None, width: int, height: int) -> list[Text]:
    """Return the lines of a frame, or why there is none at the moment."""
    try:
        return _lines(client, owner, width, height)
    except (Unavailable, RateLimited) as error:
        return [Text(printable(f"{error}; trying again"))]


def _lines(client: CommandClient, owner: str | None, width: int, height: int) -> list[Text]:
    return frame(read_snapshot(client, owner), url=client.url, width=width, height=height)


def _size() -> tuple[int, int]:
    """Return the columns and lines of a frame that is printed once."""
    size = shutil.get_terminal_size(PIPE_SIZE)
    return size.columns, size.lines
