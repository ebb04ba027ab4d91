"""Turns functions that describe requests into methods that send them, with the same signature and docstring.

A group of methods is written once for both clients: in a group of the asynchronous client the same methods return
coroutines and asynchronous iterators, because its transport does.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, get_args, overload

from horae.client.call import Call, Pages, Steps
from horae.client.models import Page
from horae.client.streams import Stream
from horae.client.transport import AsyncTransport, SyncTransport

P = ParamSpec("P")
T = TypeVar("T", covariant=True)
TransportT = TypeVar("TransportT", bound=SyncTransport | AsyncTransport)


class Methods(Generic[TransportT]):
    """A group of methods of a client."""

    def __init__(self, transport: TransportT) -> None:
        self._transport = transport


Sync = Methods[SyncTransport]
Async = Methods[AsyncTransport]


class CallMethod(Protocol[P, T]):
    """A method that returns one result."""

    @overload
    def __get__(self, group: Sync, kind: type, /) -> Callable[P, T]: ...
    @overload
    def __get__(self, group: Async, kind: type, /) -> Callable[P, Coroutine[Any, Any, T]]: ...


class IteratorMethod(Protocol[P, T]):
    """A method that iterates over many results."""

    @overload
    def __get__(self, group: Sync, kind: type, /) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, group: Async, kind: type, /) -> Callable[P, AsyncIterator[T]]: ...


def call_method(describe: Callable[P, Call[T] | Steps[T]]) -> CallMethod[P, T]:
    """Return a method that sends the described requests and returns the result."""
    method: CallMethod[P, T] = _method(describe, lambda transport, described: transport.execute(described))
    return method


def page_method(describe: Callable[P, Pages[T]]) -> CallMethod[P, Page[T]]:
    """Return a method that fetches one page of a list."""
    method: CallMethod[P, Page[T]] = _method(describe, lambda transport, pages: transport.execute(pages.first))
    return method


def list_method(describe: Callable[P, Pages[T]]) -> IteratorMethod[P, T]:
    """Return a method that iterates over a list, page after page."""
    method: IteratorMethod[P, T] = _method(describe, lambda transport, pages: transport.items(pages))
    return method


def stream_method(describe: Callable[P, Stream[T]]) -> IteratorMethod[P, T]:
    """Return a method that iterates over a stream."""
    method: IteratorMethod[P, T] = _method(describe, lambda transport, stream: transport.stream(stream))
    return method


def _method(describe: Callable[..., Any], send: Callable[[Any, Any], Any]) -> Any:
    """Return a method with the docstring and signature of the function that describes it, for `help` and editors."""

    def method(self: Methods[Any], /, *args: Any, **kwargs: Any) -> Any:
        return send(self._transport, describe(*args, **kwargs))

    method.__doc__ = describe.__doc__
    method.__name__ = describe.__name__.strip("_")
    method.__signature__ = _signature(describe)  # type: ignore[attr-defined]
    return method


def _signature(describe: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of the method; the fields of an unpacked TypedDict are shown as optional arguments."""
    signature = inspect.signature(describe)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    parameters = [itself]
    for parameter in signature.parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and (unpacked := get_args(parameter.annotation)):
            parameters += [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=..., annotation=kind)
                for name, kind in unpacked[0].__annotations__.items()
                if name not in signature.parameters
            ]
        else:
            parameters.append(parameter)
    if parameters[1:] and parameters[1].kind is not inspect.Parameter.POSITIONAL_ONLY:
        parameters[0] = itself.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return inspect.Signature(parameters)
