"""Completes names of tasks and queues at the shell, as far as the server answers at once."""

from horae.core.errors import HoraeError

PATIENCE_SECONDS = 0.5


def task_names(context: object) -> list[str]:
    """Return the names of the tasks that the server knows; none if it does not answer at once."""
    return _names("/v1/tasks")


def queue_names(context: object) -> list[str]:
    """Return the names of the queues that the server knows; none if it does not answer at once."""
    return _names("/v1/queues")


def _names(path: str) -> list[str]:
    from horae.client import Client  # late, because every command that takes a queue imports this module

    try:
        with Client(timeout=PATIENCE_SECONDS, retries=0) as client:
            return [item["name"] for item in client.request("GET", path)["items"]]
    except HoraeError:  # no server, no token: nothing to offer, and nobody to tell
        return []
