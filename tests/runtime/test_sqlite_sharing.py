"""Several processes on one SQLite file: none of them may lose what another has committed."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from horae.core.effects import register_node
from horae.core.model import Node, NodeId
from horae.stores.sqlite.store import SqliteStore
from tests.live import HORAE, environment


async def test_a_process_that_comes_and_goes_leaves_the_log_of_the_others_alone(tmp_path: Path) -> None:
    file = tmp_path / "horae.db"
    main, heartbeat, later = SqliteStore(file), SqliteStore(file), SqliteStore(file)
    await main.open()
    await heartbeat.open()  # as every node does; what it closes on the way must not cost the first one its locks
    other = await asyncio.create_subprocess_exec(
        *(HORAE, "db", "migrate", "--store", f"sqlite:///{file}"), env=environment(), stdout=asyncio.subprocess.DEVNULL
    )
    assert await asyncio.wait_for(other.wait(), 30) == 0
    now = datetime.now(UTC)
    node = Node(id=NodeId("a" * 32), name="here", roles=("worker",), version="1", started_at=now, beat_at=now)
    await main.apply([register_node(node)])
    await later.open()
    try:
        assert [found.name for found in await later.nodes()] == ["here"]
    finally:
        for store in (later, heartbeat, main):
            await store.close()
