"""Object stores by address: options, errors in words, and the deletion of old logs."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
import structlog
import uvloop
from aiohttp import web
from structlog.testing import capture_logs

from horae.adapters import blobs_to_prune, make_archive, make_blobs, try_object_stores
from horae.blobs import objects
from horae.blobs.object_store import advice_on, open_bucket
from horae.blobs.objects import ObjectBlobs, ObjectFiles
from horae.core.errors import Misconfigured, Unavailable
from horae.core.ids import Ids
from horae.ports.store import Store
from tests.archive.places import bucket_url
from tests.engines.servers import ministack_url

NOW = datetime.now(UTC)


@pytest.mark.parametrize(
    ("address", "what"),
    [
        ("s3://", "must be like s3://bucket/prefix"),
        ("s3:///prefix", "must be like"),
        ("s3://bucket?sse=aes", "sse must be s3 or kms"),
        ("s3://bucket?kms_key=1", "goes with sse=kms"),
        ("s3://bucket?regoin=eu-west-1", "no option 'regoin'"),
        ("gs://bucket?region=eu", "no option 'region'"),
        ("s3://bucket?endpoint=127.0.0.1:9000", "must be http://HOST:PORT"),
    ],
)
def test_an_address_that_cannot_work_is_refused_in_words(address: str, what: str) -> None:
    with pytest.raises(Misconfigured, match=what):
        make_archive(address)


@pytest.mark.parametrize("address", ["ftp://a/b", "relative/folder", "file://host/x"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_ARCHIVE"):
        make_archive(address)


@pytest.mark.parametrize(
    "address",
    [
        "s3://bucket/a/b?region=eu-central-1&sse=s3",
        "s3://bucket?sse=kms&kms_key=arn:aws:kms:eu-central-1:1:key/2",
        "gs://bucket/prefix?endpoint=http://127.0.0.1:9",
        "az://container/prefix?account=mine&endpoint=https://mine.blob.core.windows.net",
    ],
)
def test_an_address_with_its_options_is_opened_without_asking_the_service(address: str) -> None:
    assert make_archive(address) is not None
    blobs = make_blobs(address, Store)  # type: ignore[arg-type]
    assert blobs_to_prune(blobs) is blobs


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("404 Not Found <Code>NoSuchBucket</Code>", "there is no such bucket"),
        ("403 <Code>AccessDenied</Code>", "access is denied"),
        ("400 AuthorizationHeaderMalformed: expecting 'eu-west-1'", "another region"),
        ("403 <Code>ExpiredToken</Code>", "credentials"),
        ("connection refused", "did not answer"),
    ],
)
def test_errors_of_services_say_what_to_do(said: str, advice: str) -> None:
    assert advice in advice_on(said)


async def test_an_absent_bucket_is_named_by_every_verb() -> None:
    blobs = ObjectBlobs(open_bucket(f"s3://horae-absent/x?endpoint={ministack_url()}", "HORAE_BLOBS"))
    for call in (blobs.put([("a", b"x")]), blobs.get("a"), blobs.under("a/")):
        with pytest.raises(Unavailable, match="s3://horae-absent/x: there is no such bucket"):
            await call


async def test_a_node_says_at_its_start_what_is_wrong_with_its_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    address = f"s3://horae-absent/x?endpoint={ministack_url()}"
    monkeypatch.setattr("horae.adapters.log", structlog.get_logger())  # one that nothing has used and configured before
    with capture_logs() as lines:
        await try_object_stores(make_blobs(address, Store), make_archive(address))  # type: ignore[arg-type]
    assert len([line for line in lines if "there is no such bucket" in line["reason"]]) == 2


async def test_a_service_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.blobs.object_store.RETRIES", {"max_retries": 0})
    blobs = ObjectBlobs(open_bucket("s3://bucket?endpoint=http://127.0.0.1:9", "HORAE_BLOBS"))
    with pytest.raises(Unavailable, match="did not answer"):
        await blobs.put([("a", b"x")])


async def test_old_logs_go_in_bounded_steps_and_young_ones_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "MAX_LOOK", 10)
    blobs = ObjectBlobs(open_bucket(bucket_url("ministack", monkeypatch), "HORAE_BLOBS"))

    def key(age: timedelta) -> str:
        return f"logs/{Ids(wall=lambda: (NOW - age).timestamp())()}/00000001/000001"

    old, young = [key(timedelta(days=2)) for _ in range(25)], [key(-timedelta(days=1)) for _ in range(5)]
    await blobs.put([(each, b"x") for each in (*old, *young, "params/a")])
    steps = 0
    while await blobs.prune("logs/", before=datetime.now(UTC) + timedelta(hours=1), limit=7):
        steps += 1
        assert steps < 20
    assert steps >= 4
    assert [each for each, _ in await blobs.under("")] == [*sorted(young), "params/a"]


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ("", {}),
        ("&sse=s3", {"x-amz-server-side-encryption": "AES256"}),
        (
            "&sse=kms&kms_key=alias/horae",
            {
                "x-amz-server-side-encryption": "aws:kms",
                "x-amz-server-side-encryption-aws-kms-key-id": "alias/horae",
                "x-amz-server-side-encryption-bucket-key-enabled": "true",
            },
        ),
    ],
)
async def test_every_write_asks_for_the_encryption_of_the_address(options: str, sent: dict[str, str]) -> None:
    seen: list[dict[str, str]] = []

    async def answer(request: web.BaseRequest) -> web.Response:
        await request.read()
        seen.append({name.lower(): value for name, value in request.headers.items()})
        return web.Response(headers={"ETag": '"1"'})

    server = web.Server(answer)
    runner = web.ServerRunner(server)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    address = f"s3://bucket?endpoint=http://127.0.0.1:{runner.addresses[0][1]}{options}"
    try:
        await ObjectBlobs(open_bucket(address, "HORAE_BLOBS")).put([("logs/a", b"x")])
        assert await ObjectFiles(open_bucket(address, "HORAE_ARCHIVE")).create("runs/a", b"x")
    finally:
        await runner.cleanup()
    asked = [{name: value for name, value in each.items() if "encryption" in name} for each in seen]
    assert asked == [sent, sent]
    assert seen[1]["if-none-match"] == "*"


def test_it_works_on_the_event_loop_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        blobs = ObjectBlobs(open_bucket(bucket_url("ministack", monkeypatch), "HORAE_BLOBS"))
        await blobs.put([(f"logs/{n}", b"x" * n) for n in range(100)])
        assert len(await blobs.under("logs/", limit=200)) == 100
        slow = asyncio.create_task(blobs.get("logs/9"))
        await asyncio.sleep(0)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert await blobs.get("logs/9") == b"x" * 9

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scenario())
