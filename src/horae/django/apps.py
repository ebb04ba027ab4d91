"""The Django app: finds tasks in the `tasks.py` of all apps, and keeps the tables of Horae up to date."""

import asyncio
from typing import Any

from django.apps import AppConfig
from django.core import checks
from django.db.models.signals import post_migrate
from django.utils.module_loading import autodiscover_modules


class HoraeConfig(AppConfig):
    """`horae.django` in INSTALLED_APPS."""

    name = "horae.django"
    label = "horae"
    verbose_name = "Horae"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Import the tasks of every app."""
        from horae.django import backend_tasks  # noqa: F401 - declares the tasks that run those of `django.tasks`
        from horae.django.checks import check_connections

        autodiscover_modules("tasks")
        checks.register(check_connections)
        post_migrate.connect(_migrate_store, sender=self)


def _migrate_store(using: str, **_: Any) -> None:
    """Migrate the tables of Horae with those of the database that they are in."""
    from horae.adapters import make_store
    from horae.django import options

    address = options.store_address()
    if using == options.database() and address is not None and options.option("STORE") is None:
        asyncio.run(make_store(address).migrate())
