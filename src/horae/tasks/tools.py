"""What a node provides to the built-in tasks."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # `import horae`, and so every process of the pool, starts twice as fast without them
    from horae.tasks.name_lookups import NameLookups
    from horae.tasks.process_groups import ProcessGroups


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Passed to a task that has a parameter of this type."""

    processes: "ProcessGroups"
    lookups: "NameLookups"
    allow_shell: bool = False
    http_allow: tuple[str, ...] = ()  # internal hosts and networks that may be reached
    grace: float = 1.0  # seconds between SIGTERM and SIGKILL
    owner: str = ""  # of the run
    contains_secret: Callable[[str], bool] = lambda text: False  # whether a text has a secret of the run in it
