"""The composition root: addresses, and set-ups that are refused."""

import asyncio
from pathlib import Path

import pytest

from horae import Horae
from horae.adapters import make_store, sqlite_path
from horae.config import load_settings, without_password
from horae.core.errors import HoraeError, Misconfigured, Unavailable
from horae.runtime.launch import load_app, patiently, run_node, with_store_of
from horae.runtime.wiring import NodePlan

NO_FILE = Path("there-is-no-such-file.toml")


def test_three_slashes_are_relative_and_four_absolute() -> None:
    assert sqlite_path("sqlite:///a/b.db") == Path("a/b.db")
    assert sqlite_path("sqlite:////a/b.db") == Path("/a/b.db")


@pytest.mark.parametrize("url", ["mysql://host/db", "sqlite:a.db", "sqlite:///", "", "horae.db"])
def test_an_address_that_names_no_store_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_STORE"):
        make_store(url)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.7", "::", "example.com"])
def test_without_authentication_it_listens_on_loopback_only(host: str) -> None:
    settings = load_settings({"host": host}, environ={}, file=NO_FILE)
    with pytest.raises(Misconfigured, match="loopback"):
        run_node(settings, NodePlan())


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "MODULE:APP"),
        ("no_such_module:app", "No module named"),
        ("json:nothing", "has no 'nothing'"),
        ("json:loads", "not a Horae"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_explained(name: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        load_app(name)


def test_a_node_works_on_the_store_of_its_application_unless_a_flag_names_another() -> None:
    by_environment = load_settings(environ={"HORAE_STORE": "sqlite:///env.db"}, file=NO_FILE)
    by_flag = load_settings({"store": "sqlite:///flag.db"}, environ={}, file=NO_FILE)
    app = Horae(store="sqlite:///app.db")
    assert with_store_of(app, by_environment).store == "sqlite:///app.db"
    assert with_store_of(app, by_flag).store == "sqlite:///flag.db"
    assert with_store_of(Horae(), by_environment).store == "sqlite:///env.db"


def test_a_password_is_not_shown() -> None:
    assert without_password("postgresql://ann:secret@host/db") == "postgresql://ann:***@host/db"
    assert without_password("sqlite:///a.db") == "sqlite:///a.db"


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
    assert await patiently(joining, asyncio.Event()) == "joined"
    assert joining.tries == 3


async def test_a_node_does_not_wait_for_ever_for_its_store() -> None:
    joining = Joining(*[Unavailable(f"down {number}") for number in range(100)])
    with pytest.raises(Unavailable, match="down"):
        await patiently(joining, asyncio.Event(), within=0.3)
    assert 1 < joining.tries < 100


async def test_a_node_waits_for_nothing_that_no_waiting_mends() -> None:
    joining = Joining(Misconfigured("no such database"))
    with pytest.raises(Misconfigured):
        await patiently(joining, asyncio.Event())
    assert joining.tries == 1


async def test_a_node_that_waits_for_its_store_can_be_stopped() -> None:
    stop, joining = asyncio.Event(), Joining(*[Unavailable("down")] * 100)
    asyncio.get_running_loop().call_later(0.05, stop.set)
    async with asyncio.timeout(5):
        assert await patiently(joining, stop) is None
