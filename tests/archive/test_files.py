"""The port of the archive's files, in a folder and in an object store."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from horae.blobs.folder import FolderFiles
from horae.core.errors import InternalError, Unavailable
from horae.ports.files import Files
from tests.archive.places import bucket_url, object_files

Open = Callable[[], Files]


@pytest.fixture(params=["folder", "ministack", "versitygw"])
def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Opens the same place as often as it is called, as several processes do."""
    if request.param == "folder":
        return lambda: FolderFiles(tmp_path / "deep" / "archive")
    url = bucket_url(request.param, monkeypatch)
    return lambda: object_files(url)


async def test_a_file_is_created_once(opened: Open) -> None:
    files = opened()
    assert await files.read("runs/a.gz") is None
    assert await files.create("runs/a.gz", b"first")
    assert not await opened().create("runs/a.gz", b"second")
    found = await opened().read("runs/a.gz")
    assert found is not None
    assert found.data == b"first"


async def test_of_many_that_create_a_file_at_once_one_succeeds(opened: Open) -> None:
    everybody = [opened() for _ in range(8)]
    created = await asyncio.gather(*(files.create("a", b"%d" % n) for n, files in enumerate(everybody)))
    assert sum(created) == 1
    found = await opened().read("a")
    assert found is not None
    assert found.data == b"%d" % created.index(True)


async def test_a_file_is_replaced_only_in_the_version_that_was_read(opened: Open) -> None:
    files = opened()
    await files.create("manifests/a.json", b"1")
    first = await files.read("manifests/a.json")
    assert first is not None
    assert await files.replace("manifests/a.json", b"2", version=first.version)
    assert not await opened().replace("manifests/a.json", b"3", version=first.version)
    second = await files.read("manifests/a.json")
    assert second is not None
    assert second.data == b"2"


async def test_keys_are_listed_in_their_order_and_continued(opened: Open) -> None:
    files = opened()
    keys = [f"manifests/2026-03-{day:02d}.json" for day in range(1, 13)]
    for key in ("runs/year=2026/month=03/day=01/part-00001.ndjson.gz", *reversed(keys), "manifests2/x"):
        await files.create(key, b"x")
    seen: list[str] = []
    while page := await files.keys("manifests/", after=seen[-1] if seen else "", limit=5):
        seen += page
    assert seen == keys
    assert await files.keys("nothing/") == []


@pytest.mark.parametrize("key", ["", "/a", "../a", "a/../b", "a\x00", "ü", "a b"])
async def test_a_key_that_could_lead_elsewhere_is_refused(opened: Open, key: str) -> None:
    with pytest.raises(InternalError):
        await opened().create(key, b"x")


async def test_a_folder_holds_nothing_but_the_files(tmp_path: Path) -> None:
    files = FolderFiles(tmp_path / "archive")
    await files.create("a/b", b"x")
    await files.create("a/b", b"y")
    assert [path.name for path in (tmp_path / "archive").rglob("*") if path.is_file()] == ["b"]


async def test_a_folder_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(Unavailable):
        await FolderFiles(tmp_path / "file").create("a", b"x")
