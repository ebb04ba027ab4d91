"""What `horae doctor` finds out about nodes."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from horae.config import Settings
from horae.core.ids import Ids
from horae.core.model import Node, NodeId
from horae.runtime.doctor import Level, examine
from horae.stores.sqlite.store import SqliteStore
from tests import acts


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
