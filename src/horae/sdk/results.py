"""Decodes the stored result of a run into what its task returned."""

from functools import cached_property
from typing import Any

import msgspec

from horae.core.errors import Invalid
from horae.core.model import Run
from horae.tasks.registry import AnyTask


class ResultDecoder:
    """Decodes the results of one task into the return type of its function."""

    def __init__(self, task: AnyTask) -> None:
        self._task = task

    def decode(self, run: Run) -> Any:
        """Return the value that the task returned; raises Invalid if it is not of the declared return type."""
        if run.result is None:
            return None
        try:
            return self._decoder.decode(run.result)
        except msgspec.ValidationError as exc:
            raise Invalid(
                f"the result of run_{run.id} does not fit the return type of {self._task.name} ({exc});"
                " was it run by another version of the code?"
            ) from exc

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self._task.returns)
