"""The blob port: logs and large payloads, by key."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class Blobs(Protocol):
    """Small files by key; Horae makes the keys, as `/`-separated segments of [a-z0-9_.-]."""

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Store each blob durably under its key, replacing any before it."""

    async def get(self, key: str) -> bytes | None:
        """The blob, or None."""

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """Blobs whose key begins with the prefix and sorts after `after`, in key order."""

    async def delete(self, prefix: str) -> None:
        """Delete every blob whose key begins with the prefix."""


class AgingBlobs(Blobs, Protocol):
    """Blobs outside the store, which retention has to delete separately."""

    async def prune(self, prefix: str, *, before: datetime, limit: int) -> int:
        """Delete up to `limit` blobs under the prefix that were written before that time; returns how many."""
