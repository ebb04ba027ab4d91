"""The setting `HORAE` of a Django project, and the address of the store that follows from it."""

from typing import Any
from urllib.parse import quote, urlencode

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import connections

from horae.config import load_settings

KNOWN = ("STORE", "DATABASE", "OWNER", "NAME")
DRIVER_OPTIONS = ("sslmode", "sslrootcert", "sslcert", "sslkey", "passfile")  # which mean the same in both drivers


def option(name: str, default: Any = None) -> Any:
    """Return an entry of the setting HORAE; raises ImproperlyConfigured if it has an entry that nobody knows."""
    given = getattr(settings, "HORAE", {})
    if unknown := given.keys() - set(KNOWN):
        raise ImproperlyConfigured(f"HORAE has {', '.join(sorted(unknown))}, but knows only {', '.join(KNOWN)}")
    return given.get(name, default)


def project_name() -> str:
    """Return the name that tells this project's schedules apart: by default the package of its settings."""
    return str(option("NAME") or settings.SETTINGS_MODULE.partition(".")[0])


def store_address() -> str | None:
    """Return the address of the store; None if HORAE_STORE or `horae.toml` say it, or nothing does.

    Otherwise the store is in a database of the project, if that is PostgreSQL: HORAE["DATABASE"], by default `default`.
    """
    if given := option("STORE"):
        return str(given)
    if "store" in load_settings().sources:
        return None
    connection = connections[database()]
    return postgres_address(connection.settings_dict) if connection.vendor == "postgresql" else None


def database() -> str:
    """Return the alias of the database that holds the store, unless HORAE or HORAE_STORE name another."""
    return str(option("DATABASE", "default"))


def postgres_address(database: dict[str, Any]) -> str:
    """Return the address of a PostgreSQL database of the setting DATABASES."""
    user = quote(database.get("USER") or "", safe="")
    password = quote(str(database.get("PASSWORD") or ""), safe="")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    given = {"host": database.get("HOST"), "port": database.get("PORT")}
    given |= {name: value for name, value in database.get("OPTIONS", {}).items() if name in DRIVER_OPTIONS}
    query = urlencode({name: value for name, value in given.items() if value})
    return f"postgresql://{login}/{quote(database['NAME'], safe='')}{'?' if query else ''}{query}"
