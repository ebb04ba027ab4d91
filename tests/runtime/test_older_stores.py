"""A SQLite file of an earlier release: only `horae dev` and `horae db migrate` change its schema."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from horae import Horae
from horae.adapters import make_store
from horae.config import load_settings
from horae.core.errors import Misconfigured
from horae.runtime.doctor import examine
from horae.runtime.plan import NodePlan
from horae.runtime.wiring import running_node
from horae.stores.common.schema import expected_version
from horae.stores.common.statements import migrations
from horae.stores.sqlite.database import STATEMENTS, Database

OLDEST, NEWEST = migrations("sqlite")[0][0], expected_version("sqlite")


@pytest.fixture
def older(tmp_path: Path) -> str:
    """The address of a file that only the first migration was applied to."""
    database = Database(tmp_path / "horae.db")
    database.prepare()
    [(number, script), *_] = migrations("sqlite")
    with closing(database.writer()) as db:
        db.execute(STATEMENTS["create_versions"])
        db.executescript(script)
        db.execute(STATEMENTS["add_version"], (number, 0))
    return f"sqlite:///{tmp_path}/horae.db"


async def version_of(url: str) -> int:
    return (await make_store(url).status()).version


async def start(url: str, *, local: bool = False) -> None:
    async with running_node(load_settings({"store": url}), NodePlan(local=local), Horae()):
        pass


async def test_a_node_refuses_it_and_names_the_command(older: str) -> None:
    with pytest.raises(Misconfigured, match="run `horae db migrate`"):
        await start(older)
    assert await version_of(older) == OLDEST


async def test_an_application_that_only_submits_refuses_it(older: str) -> None:
    app = Horae(store=older)

    @app.task("add")
    def add(left: int) -> int:
        return left

    with pytest.raises(Misconfigured, match="run `horae db migrate`"):
        await add.submit(1)
    assert await version_of(older) == OLDEST


def test_serve_ends_with_the_exit_code_of_a_wrong_setup(older: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "horae", "serve", "--store", older, "--port", "0"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert ended.returncode == 2
    assert "run `horae db migrate`" in ended.stderr


async def test_after_the_command_the_node_starts(older: str) -> None:
    assert await make_store(older).migrate()
    await start(older)


async def test_dev_migrates_it_by_itself(older: str) -> None:
    await start(older, local=True)
    assert await version_of(older) == NEWEST


async def test_a_new_store_needs_no_command(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    await start(url)
    assert await version_of(url) == NEWEST


async def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    with closing(Database(tmp_path / "theirs.db").writer()) as db:
        db.execute("CREATE TABLE notes (text TEXT)")
    url = f"sqlite:///{tmp_path}/theirs.db"
    with pytest.raises(Misconfigured, match="run `horae db migrate`"):
        await start(url)
    assert await version_of(url) == 0


async def test_the_doctor_says_what_to_do_and_changes_nothing(older: str) -> None:
    findings = [finding async for finding in examine(load_settings({"store": older}))]
    assert any("run `horae db migrate`" in finding.detail for finding in findings)
    assert await version_of(older) == OLDEST
