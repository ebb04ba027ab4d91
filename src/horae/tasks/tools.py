"""What the built-in tasks may use of their node."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # so that `import horae`, and with it every process of the pool, starts twice as fast
    from horae.tasks.process_groups import ProcessGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Given to a task that has a parameter of this type."""

    processes: "ProcessGroups"
    allow_shell: bool = False
    http_allow: tuple[str, ...] = ()  # hosts and networks that may be reached although they are internal
    grace: float = 1.0  # seconds between the request to stop and the end by force
