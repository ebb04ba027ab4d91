"""The commands, each imported only when it is used, and the exit code of every error."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App, CycloptsError

from horae import __version__
from horae.core.errors import HoraeError, Malformed, Misconfigured, Unavailable

if TYPE_CHECKING:
    from rich.text import Text

HELP = "Run jobs on time: now, at an instant, or on a recurring schedule."

COMMANDS = {  # in the order of the help page; the help is written here so that `--help` imports nothing
    "dev": ("horae.cli.commands.serve:dev", "Start all roles in one process, with demo jobs, to try it out."),
    "serve": ("horae.cli.commands.serve:serve", "Start a node for production, with the roles you choose."),
    "worker": ("horae.cli.commands.serve:worker", "Start a node that only runs your tasks."),
    "db": ("horae.cli.commands.db:app", "Prepare the store, and show the version of its schema."),
    "token": ("horae.cli.commands.token:app", "Create tokens for a server that checks them with a secret."),
    "jobs": ("horae.cli.commands.jobs:app", "Create, list, change and cancel jobs."),
    "runs": ("horae.cli.commands.runs:app", "List runs, show how they ended, cancel or retry one."),
    "run": ("horae.cli.commands.runs:start", "Run a job now; with --follow the exit code is its result."),
    "dlq": ("horae.cli.commands.dlq:app", "List, requeue or discard failed runs (dead letters)."),
    "queues": ("horae.cli.commands.watch.queues:app", "Show the queues, and pause, resume or limit one."),
    "workers": ("horae.cli.commands.watch.workers:app", "Show the nodes that run tasks, or all of them."),
    "tasks": ("horae.cli.commands.watch.tasks:app", "Show the tasks that jobs can run, and their parameters."),
    "events": ("horae.cli.commands.watch.events:events", "Print what happened, and follow what happens."),
    "top": ("horae.cli.commands.watch.top:top", "Watch queues, running runs, rates and failures."),
    "usage": ("horae.cli.commands.watch.usage:usage", "Show how much an owner keeps, and how much it may."),
    "archive": ("horae.cli.commands.archive:app", "List the archived days, show and restore archived runs."),
    "doctor": ("horae.cli.commands.doctor:doctor", "Show each setting and its source, and check the set-up."),
    "check": ("horae.cli.commands.check:check", "Verify that the history in the store keeps every promise."),
    "bench": ("horae.cli.commands.measure.bench:bench", "Measure throughput and lateness here, in scratch data."),
    "size": ("horae.cli.commands.measure.size:size", "Show what a load needs and costs; needs no server."),
    "explain": (
        "horae.cli.commands.explain:explain",
        "Describe a schedule and when it fires next; needs no server.",
    ),
    "completion": ("horae.cli.commands.completion:completion", "Print the script for tab completion in a shell."),
}

REFUSED, USAGE, UNREACHABLE = 1, 2, 3
EXIT_CODES: tuple[tuple[type[HoraeError], int], ...] = (
    (Unavailable, UNREACHABLE),
    (Misconfigured, USAGE),
    (Malformed, USAGE),
    (HoraeError, REFUSED),
)


def build() -> App:
    """Return the application, with none of its commands imported."""
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
    """Run one command line and return its exit code; a HoraeError is printed to stderr."""
    try:
        code = build()(arguments)
    except HoraeError as error:
        return fail(error)
    except BrokenPipeError:  # `horae jobs ls | head` has closed its end of the pipe
        sys.stderr.close()
        return REFUSED
    return code if isinstance(code, int) else 0


def fail(error: HoraeError) -> int:
    """Print an error to stderr and return its exit code."""
    from horae.cli.output import print_error

    print_error(error)
    return next(code for kind, code in EXIT_CODES if isinstance(error, kind))


def _usage_error(error: CycloptsError) -> "Text":
    from rich.text import Text

    from horae.core.wording.printable import printable

    command = " ".join(("horae", *error.command_chain)) if error.command_chain else "horae"
    sentence = printable(" ".join(str(error).split()))
    return Text(f"error: {sentence}\n  see {command} --help", no_wrap=True, overflow="ignore")
