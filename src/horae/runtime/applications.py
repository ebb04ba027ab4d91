"""Loads users' applications, and brings the store in line with the schedules and queues that they declare."""

import importlib
import os
import sys
import sysconfig
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import horae
from horae.app import Horae
from horae.config import Settings, without_password
from horae.core.errors import Misconfigured
from horae.jobs.declared import DeclaredQueues, DeclaredResult, DeclaredSchedules
from horae.sdk.open_store import opened_connection

NOT_USERS_CODE = (  # Python itself, libraries, and Horae
    *(sysconfig.get_path(which) for which in ("stdlib", "platstdlib", "purelib", "platlib")),
    str(Path(horae.__file__).parent),
)


def load_apps(names: Sequence[str]) -> list[Horae]:
    """Import the applications that MODULE:APP names, each once; an empty one if there are no names."""
    if not names:
        return [Horae()]
    apps = [load_app(name) for name in names]
    return [app for place, app in enumerate(apps) if app not in apps[:place]]


def load_app(name: str) -> Horae:
    """Import the application that MODULE:APP names; raises Misconfigured, which says what is wrong and where."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise Misconfigured(f"--app {name!r}: use MODULE:APP, for example tasks:app")
    sys.path.insert(0, os.getcwd())
    module = _import(name, module_name)
    if not hasattr(module, attribute):
        raise Misconfigured(f"--app {name!r}: the module {module.__file__ or module_name} has no {attribute!r}")
    app = getattr(module, attribute)
    if not isinstance(app, Horae):
        raise Misconfigured(f"--app {name!r} is a {type(app).__name__}, not a Horae()")
    return app


def _import(name: str, module_name: str) -> ModuleType:
    try:
        return importlib.import_module(module_name)
    except (Exception, SystemExit) as exc:
        if isinstance(exc, ModuleNotFoundError) and f"{module_name}.".startswith(f"{exc.name}."):
            raise Misconfigured(f"--app {name!r}: {exc}; is the module in this folder or installed?") from exc
        raise Misconfigured(f"--app {name!r}: {_place(exc)}: {type(exc).__name__}: {exc}") from exc


def _place(exc: BaseException) -> str:
    """Return the file and line where an import failed: the last of the user's own code."""
    if isinstance(exc, SyntaxError) and exc.filename is not None:
        return f"{exc.filename}, line {exc.lineno}"
    frames = traceback.extract_tb(exc.__traceback__)
    own = [frame for frame in frames if not frame.filename.startswith(("<", *NOT_USERS_CODE))] or frames
    return f"{own[-1].filename}, line {own[-1].lineno}"


def with_store_of(apps: Sequence[Horae], settings: Settings) -> Settings:
    """Return the settings with the store of the applications, unless a flag names another store."""
    stores = {app.store for app in apps if app.store is not None}
    if not stores or settings.sources.get("store", "").startswith("flag"):
        return settings
    if len(stores) > 1:
        named = " and ".join(sorted(without_password(store) for store in stores))
        raise Misconfigured(f"the applications name different stores, {named}; start a worker for each, or use --store")
    return replace(settings, store=stores.pop(), sources={**settings.sources, "store": "the application"})


async def prune_schedules(name: str, settings: Settings, *, dry_run: bool) -> list[DeclaredResult]:
    """Apply what an application declares, and cancel the schedules that it no longer declares."""
    app = load_app(name)
    settings = with_store_of([app], settings)
    async with opened_connection(settings, app.registry) as connection:
        store, clock = connection.store, connection.clock
        await DeclaredQueues(store, clock, app=app.name).prune(app.queues, dry_run=dry_run)
        declaring = DeclaredSchedules(store, clock, connection.jobs, owner=app.owner, app=app.name)
        return await declaring.prune(app.declared, dry_run=dry_run)
