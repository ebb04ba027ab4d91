"""What `horae doctor` finds out about nodes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.blobs.folder import FolderFiles
from horae.config import Settings
from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from horae.runtime.doctor import Level, examine
from horae.stores.sqlite.store import SqliteStore
from tests import acts
from tests.archive.places import archive_all, archiver_over, given_history
from tests.engines.servers import ministack_url, own_name, valkey_url
from tests.live import free_port


async def test_nodes_whose_machines_have_wrong_clocks_are_named(tmp_path: Path) -> None:
    file, now, new_id = tmp_path / "horae.db", datetime.now(UTC), Ids()
    store = SqliteStore(file)
    await store.open()
    for name, hours in (("ahead:1", 1), ("right:2", 0), ("behind:3", -1)):
        node = Node(
            id=NodeId(new_id()),
            name=name,
            roles=("worker",),
            version="1",
            started_at=now,
            beat_at=now,
            wall_ahead=timedelta(hours=hours),
        )
        await acts.register(store, node)
    await store.close()

    found = [finding async for finding in examine(Settings(store=f"sqlite:///{file}"))]

    clocks = {finding.subject: finding for finding in found if finding.subject.startswith("node ")}
    assert clocks.keys() == {"node ahead:1", "node behind:3"}
    assert {finding.level for finding in clocks.values()} == {Level.WARNING}
    assert "3600.000 s ahead of the store's" in clocks["node ahead:1"].detail
    assert "3600.000 s behind the store's" in clocks["node behind:3"].detail


async def test_it_says_what_is_wrong_with_the_archive_and_the_blobs(tmp_path: Path) -> None:
    file = tmp_path / "horae.db"
    store = SqliteStore(file)
    await store.open()

    async def found(**settings: str) -> dict[str, tuple[Level, str]]:
        given = Settings(store=f"sqlite:///{file}", **settings)  # type: ignore[arg-type]
        return {each.subject: (each.level, each.detail) async for each in examine(given)}

    assert not {"archive", "blobs"} & (await found()).keys()
    places = {"archive": f"file://{tmp_path}/archive", "blobs": f"file://{tmp_path}/blobs"}
    right = await found(**places)
    assert (right["archive"], right["blobs"]) == ((Level.OK, "can be read, and is empty"), (Level.OK, "can be read"))
    assert not (tmp_path / "archive").exists(), "it creates nothing"

    absent = await found(archive=f"s3://horae-absent?endpoint={ministack_url()}")
    assert absent["archive"][0] is Level.BAD
    assert "there is no such bucket" in absent["archive"][1]

    await given_history(store, 3)
    late = await found(**places)
    assert late["archive"][0] is Level.WARNING
    assert "the history of 2026-03-01 should have been archived" in late["archive"][1]
    await archive_all(lambda: archiver_over(store, FolderFiles(tmp_path / "archive")))
    assert (await found(**places))["archive"] == (Level.OK, "can be read, the last day is 2026-03-01")
    await store.close()


async def test_it_says_whether_the_queue_in_front_of_the_store_answers(tmp_path: Path) -> None:
    async def found(queue: str) -> tuple[Level, str]:
        given = Settings(store=f"sqlite:///{tmp_path / 'horae.db'}", queue=queue)
        [finding] = [each async for each in examine(given) if each.subject == "queue"]
        return finding.level, finding.detail

    level, detail = await found(f"{valkey_url()}/0?prefix={own_name()}")
    assert (level, detail.partition(" and ")[2]) == (Level.OK, "holds 0 tickets")
    level, detail = await found(f"redis://127.0.0.1:{free_port()}/0")
    assert level is Level.BAD
    assert "claimed from the store" in detail
    level, detail = await found("redis://")
    assert (level, "redis://host:6379/0" in detail) == (Level.BAD, True)
