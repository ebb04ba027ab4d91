"""System checks: settings under which a database restart would fail tasks."""

from typing import Any

from django.core.checks import Warning as CheckWarning
from django.db import connections


def check_connections(**_: Any) -> list[CheckWarning]:
    """Warn about connections that are kept between tasks without a check that they still work."""
    return [
        CheckWarning(
            f"The database {alias!r} keeps connections (CONN_MAX_AGE) without CONN_HEALTH_CHECKS.",
            hint="Set CONN_HEALTH_CHECKS to True: after a database restart, each kept connection fails one attempt.",
            id="horae.W001",
        )
        for alias in connections
        if _keeps_unchecked(connections[alias].settings_dict)
    ]


def _keeps_unchecked(database: dict[str, Any]) -> bool:
    return database["CONN_MAX_AGE"] != 0 and not database["CONN_HEALTH_CHECKS"]
