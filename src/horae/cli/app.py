"""The commands, each imported only when it is used, and the exit code of whatever goes wrong."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from horae import __version__
from horae.core.errors import HoraeError, Malformed, Misconfigured, Unavailable

if TYPE_CHECKING:
    from rich.text import Text

HELP = "Run jobs on time: now, at an instant, or again and again by a calendar."

COMMANDS = {  # in the order of the help page; the sentence stands here so that `--help` imports nothing
    "dev": ("horae.cli.commands.serve:dev", "Start everything in one process, with demo jobs, on this machine only."),
    "serve": ("horae.cli.commands.serve:serve", "Start a node for production, with the roles you choose."),
    "worker": ("horae.cli.commands.serve:worker", "Start a node that only works: it runs your tasks."),
    "db": ("horae.cli.commands.db:app", "Prepare the store and see where it stands."),
    "token": ("horae.cli.commands.token:app", "Make tokens for a server that checks them with a secret."),
    "jobs": ("horae.cli.commands.jobs:app", "Create, list, change and stop jobs."),
    "runs": ("horae.cli.commands.runs:app", "See what became of each occurrence, and stop one."),
    "run": ("horae.cli.commands.runs:start", "Run a job now; with --follow the exit code tells how it ended."),
    "dlq": ("horae.cli.commands.dlq:app", "See, requeue or discard failed runs that nobody has resolved."),
    "doctor": ("horae.cli.commands.doctor:doctor", "Show each setting and its source, and what is well or not."),
    "check": ("horae.cli.commands.check:check", "Verify that what the store tells keeps every promise."),
    "bench": ("horae.cli.commands.bench:bench", "Measure how many jobs run how late here, in scratch data."),
    "explain": ("horae.cli.commands.explain:explain", "Say in words when a schedule fires; needs no server."),
}

REFUSED, USAGE, UNREACHABLE = 1, 2, 3
EXIT_CODES: tuple[tuple[type[HoraeError], int], ...] = (
    (Unavailable, UNREACHABLE),
    (Misconfigured, USAGE),
    (Malformed, USAGE),
    (HoraeError, REFUSED),
)


def build() -> App:
    """The application, with its commands not yet imported."""
    app = App(
        name="horae",
        help=HELP,
        version=__version__,
        version_flags=["--version"],
        help_format="plaintext",
        error_formatter=_usage_error,
        result_action="return_value",
    )
    for place, (name, (path, sentence)) in enumerate(COMMANDS.items()):
        app.command(path, name=name, help=sentence, sort_key=place)
    return app


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command line and return its exit code; every error by design becomes a block on stderr."""
    try:
        code = build()(arguments)
    except HoraeError as error:
        return fail(error)
    except BrokenPipeError:  # `horae jobs ls | head` has read enough
        sys.stderr.close()
        return REFUSED
    return code if isinstance(code, int) else 0


def fail(error: HoraeError) -> int:
    """Tell an error on stderr and return its exit code."""
    from horae.cli.output import print_error

    print_error(error)
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _usage_error(error: CycloptsError) -> "Text":
    from rich.text import Text

    command = " ".join(("horae", *error.command_chain)) if error.command_chain else "horae"
    return Text(f"error: {' '.join(str(error).split())}\n  see {command} --help", no_wrap=True, overflow="ignore")
