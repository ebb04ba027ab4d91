"""What a node provides to the built-in tasks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `import horae`, and so every process of the pool, starts twice as fast without it
    from horae.tasks.process_groups import ProcessGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Passed to a task that has a parameter of this type."""

    processes: "ProcessGroups"
    allow_shell: bool = False
    http_allow: tuple[str, ...] = ()  # internal hosts and networks that may be reached
    grace: float = 1.0  # seconds between SIGTERM and SIGKILL
