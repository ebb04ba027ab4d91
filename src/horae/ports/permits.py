"""Permits: every act that makes runs asks whether its caller may run the task."""

from collections.abc import Callable

from horae.core.drafts import Draft
from horae.core.model import Spec

Permit = Callable[[Draft | Spec], None]  # raises when the caller may not run what it is given


def permit_all(what: Draft | Spec) -> None:
    """Permit everything: the caller is code of this process, and not a request."""
