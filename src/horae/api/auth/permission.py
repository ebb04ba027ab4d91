"""Permission: which tasks a principal may run, and with which priority; every act that makes runs asks."""

import re
from collections.abc import Callable
from fnmatch import translate
from functools import lru_cache

from horae.api.auth.guard import Principal
from horae.api.http.operation import Scope
from horae.api.http.problems import Forbidden
from horae.core.drafts import Draft, TaskDefaults
from horae.core.model import Spec

SHELL_TASK = "shell.run"

MAX_CACHED = 1_000  # lists of patterns; the oldest entry is dropped
MAX_NAMED = 10  # patterns in a message, of which a batch may answer ten thousand

Defaults = Callable[[str], TaskDefaults | None]  # of a task; None when this process does not have its code


class Permission:
    """Permits what the token of a principal allows; a `Permit` of the use cases."""

    __slots__ = ("_defaults", "_who")

    def __init__(self, who: Principal, defaults: Defaults) -> None:
        self._who = who
        self._defaults = defaults

    def __call__(self, what: Draft | Spec) -> None:
        """Raise Forbidden unless the principal may run a task with its priority."""
        who = self._who
        if what.task == SHELL_TASK and Scope.SHELL not in who.scopes:
            raise Forbidden(f"the token needs the scope {Scope.SHELL} for {SHELL_TASK}", scope=Scope.SHELL)
        if who.tasks is not None and not _any_of(who.tasks).match(what.task):
            raise Forbidden(f"the token does not allow the task {what.task}; its tasks are: {_named(who.tasks)}")
        if what.priority is not None and what.priority > who.max_priority and not self._is_declared(what):
            raise Forbidden(
                f"the token allows priorities up to {who.max_priority}, not {what.priority}; lower the priority,"
                f" or use a token with max_priority {what.priority}"
            )

    def change(self, before: Spec, draft: Draft) -> None:
        """Raise Forbidden unless the principal may change a job to a draft."""
        kept = draft.task == before.task and draft.priority == before.priority
        self(before if kept else draft)

    def _is_declared(self, what: Draft | Spec) -> bool:
        """Whether the code of the task declares the priority, or a higher one.

        Without that code nobody knows here what it declares: a job that exists then keeps its priority.
        """
        declared = self._defaults(what.task)
        if declared is None:
            return isinstance(what, Spec)
        return declared.priority is not None and what.priority is not None and what.priority <= declared.priority


@lru_cache(MAX_CACHED)
def _any_of(patterns: tuple[str, ...]) -> re.Pattern[str]:
    """Return an expression for names that match one of the patterns; a batch asks it ten thousand times."""
    return re.compile("|".join(map(translate, patterns)) or "(?!)")


def _named(patterns: tuple[str, ...]) -> str:
    more = f" and {len(patterns) - MAX_NAMED} more" if len(patterns) > MAX_NAMED else ""
    return (", ".join(patterns[:MAX_NAMED]) or "none") + more
