"""From what a run left behind to what its task returned."""

from functools import cached_property
from typing import Any

import msgspec

from horae.core.errors import Invalid
from horae.core.model import Run
from horae.tasks.registry import AnyTask


class Results:
    """Decodes the results of one task, in the type that its function says it returns."""

    def __init__(self, task: AnyTask) -> None:
        self._task = task

    def of(self, run: Run) -> Any:
        """The value that the task returned; raises Invalid when it is none of the type that this code expects."""
        if run.result is None:
            return None
        try:
            return self._decoder.decode(run.result)
        except msgspec.ValidationError as exc:
            raise Invalid(
                f"run_{run.id} returned something else than {self._task.name} returns here ({exc});"
                " was it run by another version of the code?"
            ) from exc

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._task.returns)
