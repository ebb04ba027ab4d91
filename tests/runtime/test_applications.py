"""Users' applications: how they are loaded, and which store they use."""

from pathlib import Path

import pytest

from horae import Horae
from horae.config import load_settings
from horae.core.errors import Misconfigured
from horae.runtime.applications import load_app, with_store_of

NO_FILE = Path("there-is-no-such-file.toml")


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
