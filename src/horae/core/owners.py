"""Names of owners: what stands for every owner in a request cannot be the name of one."""

from horae.core.errors import Misconfigured

EVERY_OWNER = "*"  # in requests only: within the code every owner is None, so that no name can mean it


def refuse_reserved_owner(name: str) -> None:
    """Raise Misconfigured for a name that stands for every owner."""
    if name == EVERY_OWNER:
        raise Misconfigured(f"an owner cannot be called {name!r}, which stands for every owner; choose another name")
