"""Who asks: the one place where a request becomes a principal."""

from dataclasses import dataclass

from starlette.requests import Request

LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Somebody, and what they may reach."""

    owner: str
    subject: str  # who acts, for `created_by`
    admin: bool = False

    @property
    def reach(self) -> str | None:
        """The owner whose things may be looked up; None means anybody's."""
        return None if self.admin else self.owner


_EVERYBODY = Principal(owner=LOCAL, subject=LOCAL, admin=True)


def principal(request: Request) -> Principal:
    """Without authentication (loopback only) everybody is the owner `local`, and may look at everything."""
    return _EVERYBODY
