"""Users' applications: how they are loaded, and which store they use."""

import sys
from pathlib import Path

import pytest

from horae import Horae
from horae.config import load_settings
from horae.core.errors import Misconfigured
from horae.runtime.applications import load_app, load_apps, with_store_of

NO_FILE = Path("there-is-no-such-file.toml")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that a worker is started in; what it imports is forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return tmp_path


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("nothing", "MODULE:APP"),
        ("no_such_module:app", "No module named 'no_such_module'; is the module in this folder"),
        ("json:nothing", "has no 'nothing'"),
        ("json:loads", "not a Horae"),
    ],
)
def test_an_application_that_cannot_be_loaded_is_explained(name: str, why: str) -> None:
    with pytest.raises(Misconfigured, match=why):
        load_app(name)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import json\nimport no_such_library\n", "line 2: ModuleNotFoundError: No module named 'no_such_library'"),
        ("import json\n\njson.dumps(object())\n", "line 3: TypeError: Object of type object is not JSON serializable"),
        ("import json\ndef broken(:\n", "line 2: SyntaxError: invalid syntax"),
        ("import json\njson.colour\n", "line 2: AttributeError: module 'json' has no attribute 'colour'"),
        ("from horae import Queue\nQueue('a b')\n", "line 2: Invalid: queue"),
        ("raise SystemExit('no settings')\n", "line 1: SystemExit: no settings"),
    ],
)
def test_a_broken_import_says_which_file_and_line(folder: Path, code: str, why: str) -> None:
    (folder / "broken_tasks.py").write_text(code)
    (folder / "broken_shop.py").write_text("import broken_tasks\nfrom horae import Horae\napp = Horae()\n")
    with pytest.raises(Misconfigured) as caught:
        load_app("broken_shop:app")
    assert str(caught.value).startswith(f"--app 'broken_shop:app': {folder / 'broken_tasks.py'}, {why}")


def test_several_applications_are_loaded_each_once(folder: Path) -> None:
    (folder / "shop_web.py").write_text("from horae import Horae\napp = Horae()\n")
    (folder / "shop_mail.py").write_text("from horae import Horae\napp = Horae()\nagain = app\n")
    apps = load_apps(["shop_web:app", "shop_mail:app", "shop_mail:again"])
    assert [app.name for app in apps] == ["shop_web", "shop_mail"]
    assert [app.name for app in load_apps([])] == ["horae.runtime.applications"]


def test_a_node_works_on_the_store_of_its_application_unless_a_flag_names_another() -> None:
    by_environment = load_settings(environ={"HORAE_STORE": "sqlite:///env.db"}, file=NO_FILE)
    by_flag = load_settings({"store": "sqlite:///flag.db"}, environ={}, file=NO_FILE)
    app, other = Horae(store="sqlite:///app.db"), Horae(store="sqlite:///other.db")
    assert with_store_of([app], by_environment).store == "sqlite:///app.db"
    assert with_store_of([app, Horae()], by_environment).store == "sqlite:///app.db"
    assert with_store_of([app, other], by_flag).store == "sqlite:///flag.db"
    assert with_store_of([Horae()], by_environment).store == "sqlite:///env.db"
    with pytest.raises(Misconfigured, match=r"different stores, sqlite:///app\.db and sqlite:///other\.db"):
        with_store_of([app, other], by_environment)
