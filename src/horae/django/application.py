"""The application of a Django project: its store follows from the settings, its tasks close connections."""

from typing import TYPE_CHECKING, TypeVar

from horae.app import Horae
from horae.django import options
from horae.django.connections import after_task, before_task

if TYPE_CHECKING:
    from horae.sdk.event_loop import Action

T = TypeVar("T")


class DjangoHorae(Horae):
    """The `Horae()` of a Django project, `horae.django.app`."""

    imported_first = "horae.django.node"  # by processes of `cpu=True` tasks, so that Django is set up there

    def __init__(self) -> None:
        super().__init__(owner=options.option("OWNER"), name=options.project_name())
        self.on("task_start")(before_task)
        self.on("task_end")(after_task)

    @property
    def store(self) -> str | None:
        """The address of the store; None: as HORAE_STORE says."""
        return options.store_address()

    def on_store(self, action: "Action[T]") -> T:
        """Run an action on the store, from a view."""
        return self._bridge.call_sync(action, "on_store")

    async def aon_store(self, action: "Action[T]") -> T:
        """The same from a coroutine."""
        return await self._bridge.call(action)
