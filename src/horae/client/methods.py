"""Turns functions that describe requests into methods that send them; signature, types and docstring stay the same."""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from horae.client.call import Call, Pages, Steps
from horae.client.models import Page
from horae.client.streams import Source
from horae.client.transport import AsyncDriver, Driver

P = ParamSpec("P")
T = TypeVar("T")


class Group:
    """Methods of the synchronous client."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver


class AsyncGroup:
    """Methods of the asynchronous client."""

    def __init__(self, driver: AsyncDriver) -> None:
        self._driver = driver


def does(describe: Callable[P, Call[T] | Steps[T]]) -> Callable[Concatenate[Group, P], T]:
    """A method that waits for the outcome."""

    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._driver.do(describe(*args, **kwargs))

    return _like(method, describe)


def lists(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[Group, P], Iterator[T]]:
    """A method that iterates over a list, page after page."""

    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._driver.items(describe(*args, **kwargs))

    return _like(method, describe)


def shows_page(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[Group, P], Page[T]]:
    """A method that brings one page of a list."""

    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> Page[T]:
        return self._driver.do(describe(*args, **kwargs).first)

    return _like(method, describe)


def streams(describe: Callable[P, Source[T]]) -> Callable[Concatenate[Group, P], Iterator[T]]:
    """A method that iterates over a stream."""

    def method(self: Group, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._driver.stream(describe(*args, **kwargs))

    return _like(method, describe)


def async_does(
    describe: Callable[P, Call[T] | Steps[T]],
) -> Callable[Concatenate[AsyncGroup, P], Coroutine[Any, Any, T]]:
    """A method whose outcome is awaited."""

    async def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._driver.do(describe(*args, **kwargs))

    return _like(method, describe)


def async_lists(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[AsyncGroup, P], AsyncIterator[T]]:
    """A method that iterates over a list, page after page."""

    def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._driver.items(describe(*args, **kwargs))

    return _like(method, describe)


def async_shows_page(
    describe: Callable[P, Pages[T]],
) -> Callable[Concatenate[AsyncGroup, P], Coroutine[Any, Any, Page[T]]]:
    """A method that brings one page of a list."""

    async def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> Page[T]:
        return await self._driver.do(describe(*args, **kwargs).first)

    return _like(method, describe)


def async_streams(describe: Callable[P, Source[T]]) -> Callable[Concatenate[AsyncGroup, P], AsyncIterator[T]]:
    """A method that iterates over a stream."""

    def method(self: AsyncGroup, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._driver.stream(describe(*args, **kwargs))

    return _like(method, describe)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _like(method: _Method, describe: Callable[..., Any]) -> _Method:
    """The method with the name, docstring and signature of what it does, for `help` and editors."""
    signature = inspect.signature(describe)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [itself, *signature.parameters.values()]
    if parameters[1:] and parameters[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
        parameters[0] = itself.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__doc__ = describe.__doc__
    method.__name__ = describe.__name__.strip("_")
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method
