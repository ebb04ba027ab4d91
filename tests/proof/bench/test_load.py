"""The loads of a benchmark create jobs with the calls that users make."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from horae.config import load_settings
from horae.proof.bench.load import JobWriter, make_load
from horae.proof.bench.options import BenchOptions, Mode
from horae.proof.bench.tasks import app
from horae.sdk.arguments import ArgumentEncoder
from horae.sdk.handle import Handle
from horae.sdk.open_store import opened_connection
from horae.sdk.task import Submission

JOBS = 5_000


@pytest.mark.parametrize("mode", [Mode.NOW, Mode.HERD, Mode.TIMED])
async def test_a_benchmark_pays_for_arguments_and_handles_as_users_do(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded, returned = list[Mapping[str, Any]](), list[Handle[Any]]()
    encode_all, submit_many = ArgumentEncoder.encode_all, Submission.submit_many

    def counted(self: ArgumentEncoder, calls: Any, secrets: str | None = None) -> list[str]:
        encoded.extend(calls)
        return encode_all(self, calls, secrets)

    async def kept(self: Submission[Any, Any], calls: Any) -> list[Handle[Any]]:
        handles = await submit_many(self, calls)
        returned.extend(handles)
        return handles

    monkeypatch.setattr(ArgumentEncoder, "encode_all", counted)
    monkeypatch.setattr(Submission, "submit_many", kept)
    options = BenchOptions(mode=mode, jobs=JOBS, rate=100_000, seconds=None)
    settings = load_settings({"store": f"sqlite:///{tmp_path / 'horae.db'}"})
    async with opened_connection(settings, app.registry) as opened:
        with app.bind(opened):
            await make_load(options, JobWriter(opened), lambda: JOBS).submit()
    assert sorted(call["n"] for call in encoded) == list(range(JOBS))
    assert len(set(returned)) == (0 if mode is Mode.TIMED else JOBS)
