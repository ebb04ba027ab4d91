"""How a node starts on a store that is not ready, and which errors stop it at once."""

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.live import free_port
from tests.system.cluster import Cluster
from tests.system.fixtures import QUICK, OpenCluster
from tests.system.waiting import eventually

WAITS = "store_unavailable"


def test_a_node_that_starts_before_postgres_joins_when_that_answers(new_cluster: OpenCluster, tmp_path: Path) -> None:
    cluster = new_cluster("postgres", **QUICK)
    [folder] = parse_qs(urlsplit(cluster.store).query)["host"]
    road = tmp_path / "s"  # short, as the path of a socket must be
    server = cluster.node("worker", wait=False, settings={"HORAE_STORE": cluster.store.replace(folder, str(road))})
    eventually(lambda: WAITS in server.output(), "it waits", within=30)
    road.symlink_to(folder)
    cluster.ready(server)
    assert server.output().count(WAITS) == 1
    server.stop(within=20)


def test_a_node_that_waits_for_its_store_ends_when_it_is_told_to(tmp_path: Path) -> None:
    store = f"postgresql://postgres@127.0.0.1:{free_port()}/postgres"
    with Cluster(tmp_path, store) as cluster:
        server = cluster.node("worker", wait=False)
        eventually(lambda: WAITS in server.output(), "it waits", within=30)
        server.stop(within=5)


def test_a_node_with_a_store_that_cannot_work_ends_at_once_and_several_say_so_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("certainly no database " * 100)
    with Cluster(tmp_path, "sqlite:///letter.txt") as cluster:
        alone = cluster.node("worker", wait=False)
        several = cluster.node("worker", "--processes", "2", wait=False)
        assert alone.wait(within=30) == 2
        eventually(lambda: "process_died" in several.output(), "one of them ends", within=30)
        for server in (alone, several):
            assert "not a SQLite database" in server.output()
            assert "Traceback" not in server.output(), server.tail()
        several.terminate()
        several.wait(within=20)
