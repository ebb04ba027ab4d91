"""Turns functions that describe requests into methods that send them, with the same signature and docstring."""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, TypeVar

from horae.client.call import Call, Pages, Steps
from horae.client.models import Page
from horae.client.streams import Stream
from horae.client.transport import AsyncTransport, SyncTransport

P = ParamSpec("P")
T = TypeVar("T")


class Methods:
    """A group of methods of the synchronous client."""

    def __init__(self, transport: SyncTransport) -> None:
        self._transport = transport


class AsyncMethods:
    """A group of methods of the asynchronous client."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport


def call_method(describe: Callable[P, Call[T] | Steps[T]]) -> Callable[Concatenate[Methods, P], T]:
    """Return a method that sends the described requests and returns the result."""

    def method(self: Methods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._transport.execute(describe(*args, **kwargs))

    return _like(method, describe)


def list_method(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[Methods, P], Iterator[T]]:
    """Return a method that iterates over a list, page after page."""

    def method(self: Methods, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._transport.items(describe(*args, **kwargs))

    return _like(method, describe)


def page_method(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[Methods, P], Page[T]]:
    """Return a method that fetches one page of a list."""

    def method(self: Methods, /, *args: P.args, **kwargs: P.kwargs) -> Page[T]:
        return self._transport.execute(describe(*args, **kwargs).first)

    return _like(method, describe)


def stream_method(describe: Callable[P, Stream[T]]) -> Callable[Concatenate[Methods, P], Iterator[T]]:
    """Return a method that iterates over a stream."""

    def method(self: Methods, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self._transport.stream(describe(*args, **kwargs))

    return _like(method, describe)


def async_call_method(
    describe: Callable[P, Call[T] | Steps[T]],
) -> Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, T]]:
    """Return a coroutine method that sends the described requests and returns the result."""

    async def method(self: AsyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._transport.execute(describe(*args, **kwargs))

    return _like(method, describe)


def async_list_method(describe: Callable[P, Pages[T]]) -> Callable[Concatenate[AsyncMethods, P], AsyncIterator[T]]:
    """Return a method that asynchronously iterates over a list, page after page."""

    def method(self: AsyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._transport.items(describe(*args, **kwargs))

    return _like(method, describe)


def async_page_method(
    describe: Callable[P, Pages[T]],
) -> Callable[Concatenate[AsyncMethods, P], Coroutine[Any, Any, Page[T]]]:
    """Return a coroutine method that fetches one page of a list."""

    async def method(self: AsyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> Page[T]:
        return await self._transport.execute(describe(*args, **kwargs).first)

    return _like(method, describe)


def async_stream_method(describe: Callable[P, Stream[T]]) -> Callable[Concatenate[AsyncMethods, P], AsyncIterator[T]]:
    """Return a method that asynchronously iterates over a stream."""

    def method(self: AsyncMethods, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self._transport.stream(describe(*args, **kwargs))

    return _like(method, describe)


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _like(method: _Method, describe: Callable[..., Any]) -> _Method:
    """Give a method the name, docstring and signature of the function that describes it, for `help` and editors."""
    signature = inspect.signature(describe)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [itself, *signature.parameters.values()]
    if parameters[1:] and parameters[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
        parameters[0] = itself.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__doc__ = describe.__doc__
    method.__name__ = describe.__name__.strip("_")
    method.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return method
