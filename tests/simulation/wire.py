"""The connection of a host to the store: calls take time, fail or get lost, and hosts crash before or after them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from horae.core.errors import Unavailable
from horae.core.signals import Signal
from horae.ports.store import Store
from tests.acts import act_of
from tests.simulation.faults import VERBS, CallFate, Faults
from tests.simulation.virtual import SimulatedLoop

Kill = Callable[[str], None]
Watch = Callable[[str, tuple[Any, ...], dict[str, Any], Any], None]  # a verb, its arguments, what the store answered


class Network:
    """The connections of all hosts to the one store, which may be down."""

    def __init__(self, store: Store, loop: SimulatedLoop, faults: Faults, watch: Watch) -> None:
        self.store = store
        self.loop = loop
        self.faults = faults
        self.watch = watch
        self.down = False
        self.unanswered: list[
            asyncio.Future[Any]
        ] = []  # of crashed hosts; kept so that waiting tasks are not collected
        self.over = False  # after the life: no call reaches the store

    def wire(self, kill: Kill) -> "Wire":
        """Connect one host; `kill` crashes it at a named point."""
        return Wire(self, kill)


class Wire:
    """The store as one host sees it."""

    def __init__(self, network: Network, kill: Kill) -> None:
        self._network = network
        self._kill = kill
        self._unsubscribe: list[Callable[[], None]] = []
        self.blobs = Part(self, "blobs")
        self.events = Part(self, "events")

    def unplug(self) -> None:
        """Stop sending signals to this host."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()

    def subscribe(self, receive: Callable[[Signal], None]) -> Callable[[], None]:
        """Deliver signals to the host, delayed, lost or doubled."""
        network, context = self._network, copy_context()

        def send(signal: Signal) -> None:
            for seconds in network.faults.signal(network.loop.time()):
                network.loop.call_later(seconds, receive, signal, context=context)

        unsubscribe = network.store.subscribe(send)
        self._unsubscribe.append(unsubscribe)
        return unsubscribe

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        function = getattr(self._network.store, verb)

        async def call(*args: Any, **options: Any) -> Any:
            return await self.send(verb, function, args, options)

        setattr(self, verb, call)  # so that the next look-up is direct
        return call

    async def send(
        self, verb: str, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
    ) -> Any:
        network, loop = self._network, self._network.loop
        answered: asyncio.Future[Any] = loop.create_future()
        act = f"apply {act_of(args[0][0])}" if verb == "apply" and args[0] else verb
        fate = network.faults.call(act, loop.time()) if act in _VERBS else _USUAL
        if fate.crash is not None and fate.crash.startswith("before"):
            network.unanswered.append(answered)
            self._kill(fate.crash)
        else:
            arrive = _Arrival(network, verb, function, args, options, fate, answered, self._kill)
            loop.call_later(fate.there, arrive, context=loop.outside)
        return await answered


class _Arrival:
    """A call that arrives at the store, even if its sender has crashed."""

    def __init__(
        self,
        network: Network,
        verb: str,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        options: dict[str, Any],
        fate: CallFate,
        answered: "asyncio.Future[Any]",
        kill: Kill,
    ) -> None:
        self._network = network
        self._verb = verb
        self._function = function
        self._args = args
        self._options = options
        self._fate = fate
        self._answered = answered
        self._kill = kill

    def __call__(self) -> None:
        network, fate = self._network, self._fate
        answer: Any = None
        error: BaseException | None = None
        if network.over or network.down or fate.refused:
            error = Unavailable("the store does not answer (simulated)")
        else:
            try:
                answer = finished(self._function(*self._args, **self._options))
            except Exception as exc:  # noqa: BLE001 - raised in the caller
                error = exc
            else:
                network.watch(self._verb, self._args, self._options, answer)
        if fate.crash is not None and not network.over:
            network.unanswered.append(self._answered)
            self._kill(fate.crash)
            return
        if fate.unanswered:
            error = Unavailable("the answer of the store was lost (simulated)")
        network.loop.call_later(fate.back, self._answer, answer, error, context=network.loop.outside)

    def _answer(self, answer: Any, error: BaseException | None) -> None:
        if self._answered.done():
            return  # the caller has timed out
        if error is None:
            self._answered.set_result(answer)
        else:
            self._answered.set_exception(error)


class Part:
    """The blobs or the event log of the store, over the same connection."""

    def __init__(self, wire: Wire, name: str) -> None:
        self._wire = wire
        self._name = name

    def __getattr__(self, verb: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        function = getattr(getattr(self._wire._network.store, self._name), verb)

        async def call(*args: Any, **options: Any) -> Any:
            return await self._wire.send(f"{self._name}.{verb}", function, args, options)

        return call


_VERBS = frozenset(VERBS)
_USUAL = CallFate(200e-6, 100e-6)  # what becomes of blobs


def finished(work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine of the store, which never waits on an inline executor."""
    try:
        work.send(None)
    except StopIteration as stop:
        return stop.value
    work.close()
    raise AssertionError("the store waits for something: it is not on an inline executor")
