"""Horae for Django: put `horae.django` into INSTALLED_APPS, and tasks into the `tasks.py` of your apps.

from horae.django import app, on_commit

@app.task
def send_receipt(order: int) -> None: ...

on_commit(send_receipt, order=order.pk)                                   # after the transaction commits
send_receipt.using(tx=connection).submit_sync(order=order.pk)             # in the transaction
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from horae.django.application import DjangoHorae
    from horae.django.commit import on_commit

    app: DjangoHorae

__all__ = ["app", "on_commit"]


def __getattr__(name: str) -> Any:
    """Make the application at first use: when Django imports this package, its settings may not be complete."""
    if name == "app":
        from horae.django.application import DjangoHorae

        value: Any = DjangoHorae()
    elif name == "on_commit":
        from horae.django.commit import on_commit as value
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value
