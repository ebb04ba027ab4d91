"""The composition root: addresses, and set-ups that are refused."""

from pathlib import Path

import pytest

from horae import Horae
from horae.config import load_settings, without_password
from horae.connect import make_store, sqlite_path
from horae.core.errors import Misconfigured
from horae.launch import load_app, run_node, with_store_of
from horae.wiring import NodePlan

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
