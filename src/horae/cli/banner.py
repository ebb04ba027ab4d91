"""The messages of `horae dev` in a terminal: when it is ready, and when it stops."""

import os
import shutil
import sys
from pathlib import Path

from rich.text import Text

from horae import __version__
from horae.cli.output import console, print_fields
from horae.client.address import DEFAULT_URL
from horae.runtime.launch import Announcer
from horae.runtime.stop_signals import END_AT_ONCE


class Banner(Announcer):
    """Prints where the server is and how to use it, instead of log lines."""

    def ready(self, *, url: str | None, roles: frozenset[str], store: str) -> None:
        """Show the address, where the documentation is, a first command, and how to stop."""
        out = console()
        out.print(f"\nHorae {__version__} is ready.\n", style="bold")
        print_fields(
            {
                "Address": Text(url or "", style="cyan"),
                "API docs": Text(f"{url}/docs", style="cyan"),
                "Try it": Text.assemble(
                    (f"{_command(url)} jobs ls", "green"), ("  (in another terminal)", "bright_black")
                ),
                "Stop": "Ctrl-C",
            }
        )
        out.print()

    def stopping(self, *, interrupted: bool) -> None:
        """Close with one line, written over the `^C` that the terminal shows."""
        hint = f" {END_AT_ONCE}." if interrupted else ""
        # `print_text` would show the carriage return as an escape.
        print(f"\rStopping; jobs and history are kept.{hint}", flush=True)


def _command(url: str | None) -> str:
    """Return how to call this `horae` from the folder that it was started in, for the server at `url`."""
    beside = Path(sys.executable).with_name("horae")
    command = "horae" if shutil.which("horae") else os.path.relpath(beside)
    return command if url == DEFAULT_URL else f"HORAE_URL={url} {command}"
