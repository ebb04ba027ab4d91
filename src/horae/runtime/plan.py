"""What one process is started for: its roles, its limits, and the users' code that it runs."""

import socket
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from horae.config import ROLES
from horae.core.errors import Misconfigured

if TYPE_CHECKING:
    from horae.core.drafts import Declared
    from horae.core.records import QueueSettings
    from horae.sdk.connection import Connection
    from horae.tasks.hooks import Hooks
    from horae.tasks.registry import Registry

DEFAULT_CONCURRENCY = 100


class Program(Protocol):
    """Users' code as a node needs it; a `Horae()` is one."""

    name: str
    owner: str

    @property
    def registry(self) -> "Registry": ...

    @property
    def declared(self) -> "Sequence[Declared]": ...

    @property
    def queues(self) -> "Sequence[QueueSettings]": ...

    @property
    def hooks(self) -> "Hooks": ...

    def bind(self, connection: "Connection") -> AbstractContextManager[None]:
        """Submit through this connection, in the event loop that runs here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """What one process does."""

    roles: frozenset[str] = frozenset(ROLES)
    apps: Sequence[str] = ()  # each MODULE:APP
    queues: Sequence[str] = ()
    concurrency: int = DEFAULT_CONCURRENCY
    demo: bool = False
    local: bool = False  # for one person on one machine: answers requests to localhost only
    listener: socket.socket | None = None  # of the API or of probes, shared by processes; None: as the settings say


def checked_roles(roles: Iterable[str], *, option: str = "roles") -> frozenset[str]:
    """Return the roles if all are known and there is at least one; raises Misconfigured."""
    given = frozenset(roles)
    if not given or not given <= set(ROLES):
        raise Misconfigured(f"{option} {','.join(sorted(given)) or '(none)'}: choose among {', '.join(ROLES)}")
    return given
