"""Submits tasks after the commit of a Django transaction."""

from functools import partial
from typing import ParamSpec, TypeVar

from django.db import transaction

from horae.sdk.task import Submission

P = ParamSpec("P")
T = TypeVar("T")


def on_commit(task: Submission[P, T], *args: P.args, **kwargs: P.kwargs) -> None:
    """Submit a task (or `task.using(...)`) after the transaction commits, and never if it is rolled back.

    Without a transaction it is submitted at once. Arguments that do not fit the task are refused now. A crash between
    the commit and the submission loses the job; `using(tx=connection)` has no such gap.
    """
    task.check_arguments(*args, **kwargs)
    transaction.on_commit(partial(task.submit_sync, *args, **kwargs))
