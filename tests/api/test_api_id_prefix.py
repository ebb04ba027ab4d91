"""Jobs and runs by the first digits of their ids: a bounded look at one range, and nobody else's things."""

from datetime import UTC, datetime

import pytest

from horae import AsyncClient
from horae.api.dispatch.context import Services
from horae.core.errors import Invalid
from horae.core.ids import Ids
from horae.core.model import JobId, RunId
from horae.ports.reader import KnownId
from horae.queries import id_prefix
from tests.api.harness import Api
from tests.api.serving import ByName, served


async def test_a_run_and_a_job_are_found_by_how_their_ids_begin(api: Api) -> None:
    once = await api.create(name="once")
    api.clock.advance(minutes=5)
    other = await api.create(name="other", schedule="every 1h")
    digits = once["id"].removeprefix("job_")
    for prefix in (digits[:11], digits, f"run_{digits[:11]}"):
        assert [run["name"] for run in (await api.get(f"/v1/runs?id_prefix={prefix}"))["items"]] == ["once"]
    for prefix in (other["id"][:15], other["id"].removeprefix("job_")[:11]):
        [found] = (await api.get(f"/v1/jobs?id_prefix={prefix}"))["items"]
        assert (found["id"], found["last_run"]) == (other["id"], None)
    both = await api.get(f"/v1/jobs?id_prefix={digits[:6]}")
    assert [job["name"] for job in both["items"]] == ["other", "once"], "newest first"
    assert both["next_cursor"] is None
    assert len((await api.get(f"/v1/jobs?id_prefix={digits[:6]}&limit=1"))["items"]) == 1
    assert (await api.get("/v1/jobs?id_prefix=ffff"))["items"] == []


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("id_prefix=", "1 to 500 characters"),
        ("id_prefix=xyz", "1 to 32 of the digits 0-9 and a-f, after run_ or alone"),
        ("id_prefix=job_01", "after run_ or alone"),
        (f"id_prefix={'0' * 33}", "1 to 32 of the digits"),
        ("id_prefix=01&status=failed&task=a", "cannot be combined with status, task"),
    ],
)
async def test_digits_that_no_id_begins_with_are_refused(api: Api, query: str, words: str) -> None:
    problem = await api.get(f"/v1/runs?{query}", status=422)
    assert words in problem["detail"]


async def test_another_owners_ids_are_as_good_as_absent(services: Services) -> None:
    async with served(services, ByName()) as server, AsyncClient(server.url, "ada") as ada:
        digits = (await ada.jobs.create("demo.echo", allow_unknown_task=True)).id.removeprefix("job_")
        assert [job.id async for job in ada.jobs.list(id_prefix=digits)] == [f"job_{digits}"]
        async with AsyncClient(server.url, "ben") as ben, AsyncClient(server.url, "root") as root:
            assert [job.id async for job in ben.jobs.list(id_prefix=digits)] == []
            assert [run.id async for run in ben.runs.list(id_prefix=digits)] == []
            assert [run.id async for run in root.runs.list(id_prefix=digits)] == [f"run_{digits}"]
            assert [run.id async for run in root.runs.list(id_prefix=digits, owner="ben")] == []


class ManyIds:
    """A reader with the ids of many runs, all of one owner but the last."""

    def __init__(self, others: int) -> None:
        new_id = Ids(wall=datetime(2026, 3, 1, tzinfo=UTC).timestamp)
        self.all = [KnownId(id=new_id(), owner="ada", job=False, run=True)]
        self.all += [KnownId(id=new_id(), owner="ben", job=False, run=True) for _ in range(others)]
        self.asked: list[int] = []

    async def ids(self, first: str, last: str, *, limit: int) -> list[KnownId]:
        self.asked.append(limit)
        return [known for known in reversed(self.all) if first <= known.id <= last][:limit]

    async def runs(self, run_ids: list[RunId]) -> dict[RunId, RunId]:
        return {run_id: run_id for run_id in run_ids}

    async def jobs(self, job_ids: list[JobId]) -> dict[JobId, JobId]:
        return {job_id: job_id for job_id in job_ids}


async def test_a_look_is_bounded_and_says_when_it_cannot_tell() -> None:
    few, many = ManyIds(id_prefix.MAX_LOOK - 2), ManyIds(id_prefix.MAX_LOOK)
    [mine] = await id_prefix.runs_beginning(few, "0", owner="ada", limit=9)  # type: ignore[arg-type]
    assert mine == few.all[0].id
    with pytest.raises(Invalid, match="too many ids begin with '0'; give more digits"):
        await id_prefix.runs_beginning(many, "0", owner="ada", limit=9)  # type: ignore[arg-type]
    for limit, found in ((9, 9), (1000, id_prefix.MOST_FOUND)):
        assert len(await id_prefix.runs_beginning(many, "0", owner="ben", limit=limit)) == found  # type: ignore[arg-type]
    assert set(few.asked + many.asked) == {id_prefix.MAX_LOOK}
