"""The port of the archive's files, which several processes write at the same time and nobody changes in place."""

from typing import NamedTuple, Protocol


class File(NamedTuple):
    """A file as it was read."""

    data: bytes
    version: str  # changes with every write; only the adapter can read it


class Files(Protocol):
    """Files by key; keys are `/`-separated segments of letters, digits and `_.=-`."""

    async def create(self, key: str, data: bytes) -> bool:
        """Store a file durably; False if there is one by this key, which stays as it is."""

    async def replace(self, key: str, data: bytes, *, version: str) -> bool:
        """Replace the version that was read; False if somebody else was first."""

    async def read(self, key: str) -> File | None:
        """The file, or None."""

    async def keys(self, prefix: str, *, after: str = "", limit: int = 1000) -> list[str]:
        """The keys that begin with a prefix, which ends with `/`, and sort after `after`, in their order."""
