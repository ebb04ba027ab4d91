"""Line 8: a million waiting and a million finished runs cost no more than a thousand."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.acceptance.conftest import ReportFigure
from tests.system import scale
from tests.system.cluster import Cluster, Server
from tests.system.fixtures import STORES, scratch_store
from tests.system.rest import run_of

pytestmark = [pytest.mark.acceptance, pytest.mark.asyncio(loop_scope="module")]

FEW, MANY = 10_000, 1_000_000  # with fewer, pages end before they are full
TURNS = 200

Pair = tuple[scale.Sized, scale.Sized]


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=STORES)
async def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    """A store with a thousand waiting and finished runs each, and one with a million."""
    kind, folder = str(request.param), tmp_path_factory.mktemp("scale")
    (folder / "few").mkdir()
    (folder / "many").mkdir()
    async with (
        scratch_store(kind, folder / "few") as few,
        scratch_store(kind, folder / "many") as many,
        scale.sized(kind, few, FEW) as small,
        scale.sized(kind, many, MANY) as large,
    ):
        yield small, large


async def test_creates_claims_and_settles_take_as_long(pair: Pair, report_figure: ReportFigure) -> None:
    report_figure(scale.check_medians(await scale.measure_life(*pair, turns=TURNS)))


async def test_first_pages_take_as_long(pair: Pair, report_figure: ReportFigure) -> None:
    report_figure(scale.check_medians(await scale.measure_lists(*pair, turns=TURNS)))


async def test_plans_and_pages_read_stay(pair: Pair, report_figure: ReportFigure) -> None:
    report_figure(f"{await scale.check_plans(*pair)} statements have the same plan")
    if pair[0].kind == "postgres":  # SQLite does not tell how much it reads
        report_figure(await scale.check_pages(*pair, turns=20))


async def test_memory_of_a_node_stays(pair: Pair, tmp_path: Path, report_figure: ReportFigure) -> None:
    few, many = [_memory_after_work(sized, tmp_path / str(sized.runs)) for sized in pair]
    report_figure(f"{few / 1e6:.1f} → {many / 1e6:.1f} MB")
    assert many <= 1.1 * few + 5e6, f"a node needs {many / 1e6:.1f} MB instead of {few / 1e6:.1f} MB"


def _memory_after_work(sized: scale.Sized, folder: Path) -> float:
    folder.mkdir()
    with Cluster(folder, sized.address) as cluster:
        server = cluster.node()
        for _ in range(5):
            for query in ({}, {"status": "succeeded"}, {"status": "failed"}, {"task": "demo.echo"}, {"queue": "mail"}):
                cluster.rest.get("/v1/runs", **query)
            cluster.rest.get("/v1/jobs")
            job_id = cluster.rest.create("effects.work")["id"]
            cluster.rest.wait(run_of(job_id), "succeeded", within=5)
        return _memory(server)


def _memory(server: Server) -> float:
    return float(sum(process.memory_info().rss for process in server.tree()))
