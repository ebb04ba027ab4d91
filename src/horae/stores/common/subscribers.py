"""Who listens to the signals of a store in this process."""

from collections.abc import Callable, Iterable

from horae.core.signals import Signal

Heard = Callable[[Signal], None]


class Subscribers:
    """Callables that get every signal, until they unsubscribe."""

    def __init__(self) -> None:
        self._subscribers: list[Heard] = []

    def __len__(self) -> int:
        return len(self._subscribers)

    def add(self, heard: Heard) -> Callable[[], None]:
        """Call `heard` for every signal; returns how to stop that."""
        self._subscribers.append(heard)

        def stop() -> None:
            if heard in self._subscribers:
                self._subscribers.remove(heard)

        return stop

    def tell(self, signals: Iterable[Signal]) -> None:
        """Pass signals on."""
        for signal in signals:
            for heard in tuple(self._subscribers):
                heard(signal)
