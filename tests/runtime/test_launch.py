"""The event loop of a node ends when the node does, and not when users' code says so."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

import pytest
from structlog.testing import capture_logs

from horae.runtime.launch import run_to_the_end


async def leave() -> None:
    sys.exit("enough")


async def interrupt() -> None:
    raise KeyboardInterrupt


async def stop_the_loop() -> None:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("act", "told"),
    [(leave, "SystemExit: enough"), (interrupt, "KeyboardInterrupt: "), (stop_the_loop, "RuntimeError: ")],
)
def test_a_task_that_ends_the_event_loop_does_not_end_the_node(act: Callable[[], Awaitable[None]], told: str) -> None:
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        for _ in range(20):
            await asyncio.sleep(0.001)
            ticks += 1

    async def main() -> int:
        ticking = asyncio.create_task(tick())
        outcomes = await asyncio.gather(*(asyncio.ensure_future(act()) for _ in range(3)), return_exceptions=True)
        await ticking
        return len(outcomes)

    with capture_logs() as lines:
        assert run_to_the_end(main()) == 3
    assert ticks == 20
    assert {line["event"] for line in lines} == {"event_loop_stopped"}
    assert all(line["by"].startswith(told) for line in lines)


def test_signals_arrive_after_the_loop_has_gone_on() -> None:
    async def main() -> int:
        heard = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
        await asyncio.wait([asyncio.create_task(leave())])
        signal.raise_signal(signal.SIGUSR1)
        await asyncio.wait_for(heard.wait(), 5)
        return 5

    with capture_logs():
        assert run_to_the_end(main()) == 5


def test_what_the_node_itself_raises_comes_out() -> None:
    async def main() -> int:
        raise RuntimeError("a duty ended by itself")

    with pytest.raises(RuntimeError, match="a duty ended"):
        run_to_the_end(main())

    async def exit_itself() -> int:
        sys.exit(3)

    with pytest.raises(SystemExit):
        run_to_the_end(exit_itself())
