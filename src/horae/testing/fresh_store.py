"""A store that is used only after something else was written.

Thousands of results in one write cost little more than one. So the worker of a virtual node keeps results back for as
long as nobody needs them, and whoever uses the store finds it as if each had been written at its own instant.
"""

import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Any, cast

from horae.ports.store import Store


def fresh_store(store: Store, refresh: Callable[[], Awaitable[object]], *, but: Collection[str]) -> Store:
    """Return the same store, with `refresh` called before each verb but these."""
    return cast(Store, _FreshStore(store, refresh, but))


class _FreshStore:
    def __init__(self, store: Store, refresh: Callable[[], Awaitable[object]], but: Collection[str]) -> None:
        self._store = store
        self._refresh = refresh
        self._but = but

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self._store, name)
        if name in self._but or not inspect.iscoroutinefunction(verb):
            return verb

        async def fresh(*args: Any, **keywords: Any) -> Any:
            await self._refresh()
            return await verb(*args, **keywords)

        setattr(self, name, fresh)  # so that the next look-up is direct
        return fresh
