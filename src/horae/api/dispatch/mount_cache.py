"""A cache of what is made once for each path at which the application is mounted."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

MAX_PATHS = 16  # beyond that the path has a parameter, which clients choose as they like


class MountCache(Generic[T]):
    """Keeps what was made for a few mount paths."""

    def __init__(self) -> None:
        self._kept: dict[str, T] = {}

    def get(self, path: str, make: Callable[[], T]) -> T:
        """Return what is kept for a path, or make it."""
        if path not in self._kept:
            if len(self._kept) >= MAX_PATHS:
                self._kept.clear()
            self._kept[path] = make()
        return self._kept[path]
