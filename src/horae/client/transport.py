"""Carries calls out, once for the synchronous client and once for the asynchronous: all that differs between them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from typing import TypeVar

import httpx2

from horae.client.address import Connection, refusal_of
from horae.client.call import Call, Pages, Steps
from horae.client.errors import Refused
from horae.client.retries import Breaks
from horae.client.streams import Source

T = TypeVar("T")


class Driver:
    """Waits for each answer."""

    def __init__(self, connection: Connection, transport: httpx2.BaseTransport | None = None) -> None:
        self._connection = connection
        self._http = httpx2.Client(**connection.options, transport=transport)

    def close(self) -> None:
        self._http.close()

    def do(self, act: Call[T] | Steps[T]) -> T:
        """The outcome of a call, or of the last of several."""
        if isinstance(act, Call):
            return self._connection.read(act, self._send(act))
        answer: object = None
        while True:
            try:
                call = act.send(answer)
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            answer = self.do(call)

    def items(self, pages: Pages[T]) -> Generator[T]:
        """Everything in a list."""
        page = self.do(pages.first)
        yield from page.items
        while page.next_cursor:
            page = self.do(pages.at(page.next_cursor))
            yield from page.items

    def stream(self, source: Source[T]) -> Generator[T]:
        """What a stream brings, over as many connections as it takes."""
        breaks = Breaks(url=self._connection.url, retries=self._connection.retries)
        while not source.over() and not self._http.is_closed:
            try:
                with self._http.stream(**self._connection.request(source.connect(), stream=True)) as response:
                    if response.is_error:
                        response.read()
                        raise refusal_of(response)
                    for data in response.iter_bytes():
                        breaks.connected()
                        yield from source.feed(data)
                        if source.over():
                            return
                yield from source.disconnected()
            except (httpx2.RequestError, Refused) as exc:
                breaks.judge(exc)
            if not source.over():
                time.sleep(breaks.delay())

    def _send(self, call: Call[T]) -> bytes:
        patience = self._connection.patience(call)
        while True:
            try:
                response = self._http.request(**self._connection.request(call))
            except httpx2.RequestError as exc:
                delay = patience.after_failure(exc)
            else:
                if not response.is_error:
                    return response.content
                delay = patience.after_refusal(refusal_of(response))
            time.sleep(delay)


class AsyncDriver:
    """Leaves the event loop to others while it waits."""

    def __init__(self, connection: Connection, transport: httpx2.AsyncBaseTransport | None = None) -> None:
        self._connection = connection
        self._http = httpx2.AsyncClient(**connection.options, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def do(self, act: Call[T] | Steps[T]) -> T:
        """The outcome of a call, or of the last of several."""
        if isinstance(act, Call):
            return self._connection.read(act, await self._send(act))
        answer: object = None
        while True:
            try:
                call = act.send(answer)
            except StopIteration as end:
                outcome: T = end.value
                return outcome
            answer = await self.do(call)

    async def items(self, pages: Pages[T]) -> AsyncGenerator[T]:
        """Everything in a list."""
        page = await self.do(pages.first)
        for item in page.items:
            yield item
        while page.next_cursor:
            page = await self.do(pages.at(page.next_cursor))
            for item in page.items:
                yield item

    async def stream(self, source: Source[T]) -> AsyncGenerator[T]:
        """What a stream brings, over as many connections as it takes."""
        breaks = Breaks(url=self._connection.url, retries=self._connection.retries)
        while not source.over() and not self._http.is_closed:
            try:
                async with self._http.stream(**self._connection.request(source.connect(), stream=True)) as response:
                    if response.is_error:
                        await response.aread()
                        raise refusal_of(response)
                    async for data in response.aiter_bytes():
                        breaks.connected()
                        for item in source.feed(data):
                            yield item
                        if source.over():
                            return
                for item in source.disconnected():
                    yield item
            except (httpx2.RequestError, Refused) as exc:
                breaks.judge(exc)
            if not source.over():
                await asyncio.sleep(breaks.delay())

    async def _send(self, call: Call[T]) -> bytes:
        patience = self._connection.patience(call)
        while True:
            try:
                response = await self._http.request(**self._connection.request(call))
            except httpx2.RequestError as exc:
                delay = patience.after_failure(exc)
            else:
                if not response.is_error:
                    return response.content
                delay = patience.after_refusal(refusal_of(response))
            await asyncio.sleep(delay)
