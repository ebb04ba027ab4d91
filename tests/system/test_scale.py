"""The cost of the hot verbs does not depend on the size of the store."""

from pathlib import Path

from tests.system import scale
from tests.system.fixtures import scratch_store

FEW, MANY = 4_000, 40_000  # in the smaller one, too, no page of a list ends early


async def test_plans_and_pages_stay_when_there_is_more_in_the_store(kind: str, tmp_path: Path) -> None:
    async with (
        scratch_store(kind, tmp_path / "few") as few,
        scratch_store(kind, tmp_path / "many") as many,
        scale.sized(kind, few, FEW) as small,
        scale.sized(kind, many, MANY) as large,
    ):
        assert await scale.check_plans(small, large) > 10
        if kind == "postgres":
            await scale.check_pages(small, large, turns=5)
        await scale.measure_life(small, large, turns=5)
