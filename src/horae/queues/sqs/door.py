"""What SQS refuses reaches the engine as `Unavailable`: a queue holds hints, and what it refuses must end no node."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from horae.aws_api.errors import RequestRefused
from horae.core.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")


def at_the_door(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Translate the refusals of a verb of the port."""

    @wraps(verb)
    async def translated(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await verb(*args, **kwargs)
        except RequestRefused as exc:
            raise Unavailable(str(exc)) from exc

    return translated
