"""Sends calls and reads streams: one transport for the synchronous client, one for the asynchronous."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import httpx2

from horae.client.address import ServerAddress, refusal_of
from horae.client.call import Call, Pages, Steps
from horae.client.errors import Refused
from horae.client.retries import StreamRetries
from horae.client.streams import Stream

T = TypeVar("T")


class SyncTransport:
    """Executes calls in the caller's thread."""

    def __init__(self, server: ServerAddress, http_transport: httpx2.BaseTransport | None = None) -> None:
        self._server = server
        self._http = httpx2.Client(**server.options, transport=http_transport)

    def close(self) -> None:
        self._http.close()

    def execute(self, described: Call[T] | Steps[T]) -> T:
        """Send a call, or several in turn, and return the result."""
        if isinstance(described, Call):
            return self._server.read(described, self._send(described))
        response: object = None
        while True:
            try:
                call = described.send(response)
            except StopIteration as end:
                result: T = end.value
                return result
            response = self.execute(call)

    def items(self, pages: Pages[T]) -> Generator[T]:
        """Yield every item of a list."""
        page = self.execute(pages.first)
        yield from page.items
        while page.next_cursor:
            page = self.execute(pages.at(page.next_cursor))
            yield from page.items

    def stream(self, stream: Stream[T]) -> Generator[T]:
        """Yield what a stream brings, reconnecting as often as needed."""
        retries = StreamRetries(url=self._server.url, retries=self._server.retries)
        while not stream.ended() and not self._http.is_closed:
            try:
                with self._http.stream(**self._server.request(stream.connect(), stream=True)) as response:
                    if response.is_error:
                        response.read()
                        raise refusal_of(response)
                    for data in response.iter_bytes():
                        retries.received()
                        yield from stream.feed(data)
                        if stream.ended():
                            return
                yield from stream.disconnected()
            except (httpx2.RequestError, Refused) as exc:
                retries.raise_if_final(exc)
            if not stream.ended():
                time.sleep(retries.delay())

    def _send(self, call: Call[T]) -> bytes:
        retries = self._server.retries_of(call)
        while True:
            try:
                response = self._http.request(**self._server.request(call))
            except httpx2.RequestError as exc:
                delay = retries.after_failure(exc)
            else:
                if not response.is_error:
                    return response.content
                delay = retries.after_refusal(refusal_of(response))
            time.sleep(delay)


class AsyncTransport:
    """Executes calls in the event loop; otherwise the same as `SyncTransport`."""

    def __init__(self, server: ServerAddress, http_transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._server = server
        self._http = httpx2.AsyncClient(**server.options, transport=http_transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def execute(self, described: Call[T] | Steps[T]) -> T:
        """Send a call, or several in turn, and return the result."""
        if isinstance(described, Call):
            return self._server.read(described, await self._send(described))
        response: object = None
        while True:
            try:
                call = described.send(response)
            except StopIteration as end:
                result: T = end.value
                return result
            response = await self.execute(call)

    async def items(self, pages: Pages[T]) -> AsyncGenerator[T]:
        """Yield every item of a list."""
        page = await self.execute(pages.first)
        for item in page.items:
            yield item
        while page.next_cursor:
            page = await self.execute(pages.at(page.next_cursor))
            for item in page.items:
                yield item

    async def stream(self, stream: Stream[T]) -> AsyncGenerator[T]:
        """Yield what a stream brings, reconnecting as often as needed."""
        retries = StreamRetries(url=self._server.url, retries=self._server.retries)
        while not stream.ended() and not self._http.is_closed:
            try:
                async with self._http.stream(**self._server.request(stream.connect(), stream=True)) as response:
                    if response.is_error:
                        await response.aread()
                        raise refusal_of(response)
                    async for data in response.aiter_bytes():
                        retries.received()
                        for item in stream.feed(data):
                            yield item
                        if stream.ended():
                            return
                for item in stream.disconnected():
                    yield item
            except (httpx2.RequestError, Refused) as exc:
                retries.raise_if_final(exc)
            if not stream.ended():
                await asyncio.sleep(retries.delay())

    async def _send(self, call: Call[T]) -> bytes:
        retries = self._server.retries_of(call)
        while True:
            try:
                response = await self._http.request(**self._server.request(call))
            except httpx2.RequestError as exc:
                delay = retries.after_failure(exc)
            else:
                if not response.is_error:
                    return response.content
                delay = retries.after_refusal(refusal_of(response))
            await asyncio.sleep(delay)
