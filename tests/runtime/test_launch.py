"""How a node is started: unsafe set-ups, a store that is not there yet, and users' code that stops the event loop."""

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2
import pytest
from structlog.testing import capture_logs

from horae import Horae
from horae.config import load_settings
from horae.core.errors import HoraeError, Misconfigured, Unavailable
from horae.runtime.launch import join_with_retries, run_node, run_until_done
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import running_node

NO_FILE = Path("there-is-no-such-file.toml")


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
        assert run_until_done(main()) == 3
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
        assert run_until_done(main()) == 5


def test_what_the_node_itself_raises_comes_out() -> None:
    async def main() -> int:
        raise RuntimeError("a duty ended by itself")

    with pytest.raises(RuntimeError, match="a duty ended"):
        run_until_done(main())

    async def exit_itself() -> int:
        sys.exit(3)

    with pytest.raises(SystemExit):
        run_until_done(exit_itself())


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.com"])
def test_without_authentication_it_listens_on_loopback_only(host: str) -> None:
    settings = load_settings({"host": host}, environ={}, file=NO_FILE)
    with pytest.raises(Misconfigured, match="loopback"):
        run_node(settings, NodePlan())


@pytest.mark.parametrize(
    ("environ", "rebound"), [({}, 403), ({"HORAE_AUTH": "jwt", "HORAE_JWT_SECRET": "s" * 32}, 401)]
)
async def test_without_authentication_it_answers_to_names_of_this_machine_only(
    environ: dict[str, str], rebound: int, tmp_path: Path
) -> None:
    settings = load_settings({"store": f"sqlite:///{tmp_path}/horae.db"}, environ=environ, file=NO_FILE)
    evil = {"host": "evil.example:8765", "origin": "http://evil.example:8765"}  # its name resolves to this machine
    program = {"task": "shell.run", "params": {"command": ["true"]}}
    async with running_node(settings, NodePlan(roles=frozenset({"api"})), Horae(name="here")) as node:
        transport = httpx2.ASGITransport(node.api)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8765") as client:
            assert (await client.get("/healthz")).status_code == 200
            assert (await client.get("/v1/jobs", headers=evil)).status_code == rebound
            assert (await client.post("/v1/jobs", json=program, headers=evil)).status_code == rebound


class Joining:
    """Joins a cluster, but for what hinders it the first times."""

    def __init__(self, *hindrances: HoraeError) -> None:
        self._hindrances = list(hindrances)
        self.tries = 0

    async def __call__(self) -> str:
        self.tries += 1
        if self._hindrances:
            raise self._hindrances.pop(0)
        return "joined"


async def test_a_node_that_starts_before_its_store_tries_again() -> None:
    joining = Joining(Unavailable("down"), Unavailable("starting up"))
    assert await join_with_retries(joining, asyncio.Event()) == "joined"
    assert joining.tries == 3


async def test_a_node_does_not_wait_for_ever_for_its_store() -> None:
    joining = Joining(*[Unavailable(f"down {number}") for number in range(100)])
    with pytest.raises(Unavailable, match="down"):
        await join_with_retries(joining, asyncio.Event(), within=0.3)
    assert 1 < joining.tries < 100


async def test_a_node_waits_for_nothing_that_no_waiting_mends() -> None:
    joining = Joining(Misconfigured("no such database"))
    with pytest.raises(Misconfigured):
        await join_with_retries(joining, asyncio.Event())
    assert joining.tries == 1


async def test_a_node_that_waits_for_its_store_can_be_stopped() -> None:
    stop, joining = asyncio.Event(), Joining(*[Unavailable("down")] * 100)
    asyncio.get_running_loop().call_later(0.05, stop.set)
    async with asyncio.timeout(5):
        assert await join_with_retries(joining, stop) is None
