"""The blob port: logs and large payloads, by key."""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol


class Blobs(Protocol):
    """Small files by key; keys are made by Horae: `/`-separated segments of [a-z0-9_.-]."""

    async def put(self, items: Sequence[tuple[str, bytes]]) -> None:
        """Keep each blob durably under its key, replacing what was there."""

    async def get(self, key: str) -> bytes | None:
        """The blob, or None."""

    async def under(self, prefix: str, *, after: str = "", limit: int = 100) -> list[tuple[str, bytes]]:
        """Blobs whose key begins with the prefix and sorts after `after`, in order of their keys."""

    async def delete(self, prefix: str) -> None:
        """Remove every blob whose key begins with the prefix."""


class AgingBlobs(Blobs, Protocol):
    """Blobs that are kept apart from the store, and so do not age with it."""

    async def prune(self, prefix: str, *, before: datetime, limit: int) -> int:
        """Remove up to `limit` blobs whose key begins with the prefix and that were written before; how many went."""
