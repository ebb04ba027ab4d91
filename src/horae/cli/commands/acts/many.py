"""Acts on many: counts them, asks on a terminal, shows the progress, and reports what became of them."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol

import msgspec
from cyclopts import Parameter

from horae.cli.arguments import Flag, Flat
from horae.cli.output import confirmed, print_note, print_result
from horae.cli.progress import progress_bar
from horae.client import BulkResult
from horae.core.errors import HoraeError, Malformed

MOST = 10_000  # that the server counts, or acts on, by one request
FORMS = {  # of each act: in progress, and done
    "pause": ("pausing", "paused"),
    "resume": ("resuming", "resumed"),
    "cancel": ("cancelling", "cancelled"),
    "run": ("starting", "started"),
    "retry": ("retrying", "retried"),
    "requeue": ("requeueing", "requeued"),
    "discard": ("discarding", "discarded"),
}


@Flat
@dataclass(frozen=True, slots=True, kw_only=True)
class ManyOptions:
    """The options of acts on many."""

    everything: Annotated[bool, Flag, Parameter(name="--all", help="All that you own, or that --owner owns.")] = False
    dry_run: Annotated[bool, Flag, Parameter(help="Only count them, and change nothing.")] = False
    yes: Annotated[
        bool, Flag, Parameter(name=["--yes", "-y"], help="Do not ask on a terminal before many are changed.")
    ] = False


NOT_MANY = ManyOptions()


class Perform(Protocol):
    """Sends the requests of an act."""

    def __call__(self, *, dry_run: bool, repeat: bool, progress: Callable[[BulkResult], None] | None) -> BulkResult: ...


def only(names: Sequence[str] | None, filters: Mapping[str, Any], many: ManyOptions) -> str | None:
    """Return the name if exactly one is given, and nothing else selects; None for an act on many."""
    alone = names is not None and len(names) == 1 and not (_selects(filters) or many.everything or many.dry_run)
    return names[0] if names is not None and alone else None


def selected(names: Sequence[str] | None, filters: Mapping[str, Any], many: ManyOptions, subject: str) -> Any:
    """Return the names, or the filter; only one way is allowed, so that no slip selects all."""
    if sum(map(bool, (names, _selects(filters), many.everything))) != 1:
        raise Malformed(f"select {subject} by naming them, by options such as --queue and --task, or with --all")
    return [*names] if names else filters


def _selects(filters: Mapping[str, Any]) -> bool:
    """Whether a filter says more than whose."""
    return bool(filters.keys() - {"owner"})


def act_on_many(perform: Perform, action: str, subject: str, many: ManyOptions, output: str) -> int:
    """Act on all that is selected, and return the exit code: 1 if some are left."""
    if many.dry_run:
        return _report_count(perform(dry_run=True, repeat=False, progress=None), action, subject, output)
    if _asks(many):
        found = perform(dry_run=True, repeat=False, progress=None)
        if found.matched > 1 and not confirmed(f"{action} {_count(found, subject)}?"):
            print_note("nothing was changed")
            return 1
    done = _performed(perform, action, subject)
    left = f"{done.remaining:,}" if done.remaining else None
    print_result(msgspec.to_builtins(done), {FORMS[action][1]: _counted(done.done, subject), "left": left}, output)
    return 1 if done.remaining or done.done < done.matched else 0


def _performed(perform: Perform, action: str, subject: str) -> BulkResult:
    """Act on all that is selected; tell what was done before an error, because that stays done."""
    reported: list[BulkResult] = []
    in_progress, done_word = FORMS[action]

    def progress(so_far: BulkResult) -> None:
        reported.append(so_far)
        advance(so_far.done, _total(so_far))

    try:
        with progress_bar(in_progress) as advance:
            return perform(dry_run=False, repeat=True, progress=progress)
    except HoraeError:
        if reported:
            print_note(f"{done_word} {_counted(reported[-1].done, subject)} before this:")
        raise


def _counted(number: int, subject: str) -> str:
    """Return a number with its noun: `1 run`, `1,000 runs`."""
    return f"{number:,} {subject.removesuffix('s') if number == 1 else subject}"


def _asks(many: ManyOptions) -> bool:
    """Whether to ask first; a script has nobody who could answer."""
    return not many.yes and sys.stdin.isatty()


def _report_count(found: BulkResult, action: str, subject: str, output: str) -> int:
    print_result(msgspec.to_builtins(found), {f"would {action}": _count(found, subject)}, output)
    return 0


def _count(found: BulkResult, subject: str) -> str:
    more = found.cursor is not None or found.matched >= MOST
    return ("at least " if more else "") + _counted(found.matched, subject)


def _total(so_far: BulkResult) -> int | None:
    """Return how many there are in all; None where the server counted only some of them."""
    return so_far.done + so_far.remaining if so_far.remaining < MOST else None
