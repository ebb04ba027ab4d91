"""Applications on a real store, and a worker beside them that runs what they submit."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from horae import Horae
from horae.adapters import make_store
from horae.config import Settings, load_settings
from horae.ports.store import Store
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import RunningNode, running_node
from tests.sdk.tasks import Tasks, declare
from tests.system.fixtures import scratch_store

STORES = ("sqlite", "postgres")
NO_FILE = Path("there-is-no-such-file.toml")

Work = Callable[[], Awaitable[None]]


@pytest.fixture(params=STORES)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of store."""
    return str(request.param)


@pytest.fixture
async def address(kind: str, tmp_path: Path) -> AsyncIterator[str]:
    """The address of a migrated store of this test's own."""
    async with scratch_store(kind, tmp_path) as url:
        await make_store(url).migrate()
        yield url


@pytest.fixture
async def store(address: str) -> AsyncIterator[Store]:
    """The same store, to look into."""
    opened: Store = make_store(address)
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
async def app(address: str) -> AsyncIterator[Horae]:
    """An application as a web server would have it: it submits, and runs nothing itself."""
    app = Horae(store=address, owner="ada", name="web")
    yield app
    await app.close()


@pytest.fixture
def tasks(app: Horae) -> Tasks:
    return declare(app)


@pytest.fixture
async def work(address: str) -> AsyncIterator[Work]:
    """Starts a worker with the same tasks, as another process would have them."""
    async with AsyncExitStack() as stack:

        async def start() -> None:
            theirs = Horae(store=address, owner="ada", name="worker")
            declare(theirs)
            await stack.enter_async_context(node(theirs, address))

        yield start


@asynccontextmanager
async def node(app: Horae, address: str, *roles: str) -> AsyncIterator[RunningNode]:
    """A node of the application in this event loop."""
    plan = NodePlan(roles=frozenset(roles or ("planner", "worker")))
    async with running_node(settings(address), plan, app) as running:
        yield running


def settings(address: str) -> Settings:
    quick = {"drain_seconds": 2}
    return load_settings({"store": address, **quick}, environ={}, file=NO_FILE)
