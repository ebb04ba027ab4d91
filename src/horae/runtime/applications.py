"""Loads users' applications, and brings the store in line with the schedules that they declare."""

import importlib
import os
import sys
from dataclasses import replace

from horae.app import Horae
from horae.config import Settings
from horae.core.errors import Misconfigured
from horae.jobs.declared import DeclaredResult, DeclaredSchedules
from horae.sdk.open_store import opened_connection


def load_app(name: str | None) -> Horae:
    """Import the application that MODULE:APP names; None: an empty one."""
    if name is None:
        return Horae()
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Misconfigured(f"--app {name!r}: use MODULE:APP, for example tasks:app")
    sys.path.insert(0, os.getcwd())
    try:
        app = getattr(importlib.import_module(module_name), attribute)
    except ModuleNotFoundError as exc:
        raise Misconfigured(f"--app {name!r}: {exc}; is the module in this folder or installed?") from exc
    except AttributeError as exc:
        raise Misconfigured(f"--app {name!r}: the module has no {attribute!r}") from exc
    if not isinstance(app, Horae):
        raise Misconfigured(f"--app {name!r} is a {type(app).__name__}, not a Horae()")
    return app


def with_store_of(app: Horae, settings: Settings) -> Settings:
    """Return the settings with the store of the application, unless a flag names another store."""
    if app.store is None or settings.sources.get("store", "").startswith("flag"):
        return settings
    return replace(settings, store=app.store, sources={**settings.sources, "store": "the application"})


async def prune_schedules(name: str, settings: Settings, *, dry_run: bool) -> list[DeclaredResult]:
    """Apply the schedules that an application declares, and cancel those that it no longer declares."""
    app = load_app(name)
    settings = with_store_of(app, settings)
    async with opened_connection(settings, app.registry) as connection:
        declaring = DeclaredSchedules(
            connection.store, connection.clock, connection.jobs, owner=app.owner, app=app.name
        )
        return await declaring.prune(app.declared, dry_run=dry_run)
