"""Where keys and endpoints come from."""

import json
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from horae.aws_api.client import ServiceClient
from horae.aws_api.credentials import DUMMY, Credentials, find_endpoint
from horae.aws_api.errors import AccessDenied
from tests.aws_api.scripted_service import Reply, error, scripted

ISSUE = """
import json, pathlib, sys
folder = pathlib.Path(sys.argv[1])
issued = folder / "issued"
count = int(issued.read_text()) + 1 if issued.exists() else 1
issued.write_text(str(count))
ends = json.loads((folder / "ends").read_text())
keys = {"AccessKeyId": f"KEY{count}", "SecretAccessKey": "secret", "SessionToken": f"TOKEN{count}"}
print(json.dumps({"Version": 1, **keys, "Expiration": ends[count - 1]}))
"""


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return tmp_path


def _issuer(folder: Path, *lasts: timedelta) -> None:
    """Temporary keys by a program that the profile names; each set lasts as long as is said."""
    ends = [(datetime.now(UTC) + last).isoformat() for last in lasts]
    (folder / "ends").write_text(json.dumps(ends))
    (folder / "issue.py").write_text(ISSUE)
    (folder / "config").write_text(f"[default]\ncredential_process = {sys.executable} {folder / 'issue.py'} {folder}\n")


async def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "token")
    keys = await Credentials().keys()
    assert (keys.access_key, keys.secret_key, keys.token) == ("AKIA", "secret", "token")


async def test_keys_come_from_a_profile(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "credentials").write_text("[work]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n")
    monkeypatch.setenv("AWS_PROFILE", "work")
    assert (await Credentials().keys()).access_key == "AKIA"


async def test_a_profile_that_is_not_there_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    with pytest.raises(AccessDenied, match="absent"):
        await Credentials().keys()


async def test_without_keys_only_an_emulator_is_asked() -> None:
    assert await Credentials(is_local=True).keys() == DUMMY
    with pytest.raises(AccessDenied, match="found no AWS credentials"):
        await Credentials().keys()


async def test_keys_that_expire_are_renewed_before(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("horae.aws_api.credentials.LOOK_EVERY", 0.0)
    _issuer(folder, timedelta(seconds=30), timedelta(seconds=30), timedelta(hours=1))
    credentials = Credentials()
    assert (await credentials.keys()).token == "TOKEN2"  # botocore renews what it has just got, too
    assert (await credentials.keys()).token == "TOKEN3"
    assert (await credentials.keys()).token == "TOKEN3"


async def test_keys_that_are_good_for_some_minutes_are_renewed_beside_the_requests(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("horae.aws_api.credentials.LOOK_EVERY", 0.0)
    _issuer(folder, timedelta(minutes=13), timedelta(minutes=13), timedelta(hours=1))
    credentials = Credentials()
    await credentials.open()
    assert (await credentials.keys()).token == "TOKEN2"
    await credentials.close()
    assert (await credentials.keys()).token == "TOKEN3"


async def test_keys_that_a_service_calls_expired_are_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIA")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    async with scripted(error("ExpiredTokenException"), Reply({"n": 1})) as service:
        client = ServiceClient("sqs", region="us-east-1", endpoint=service.url)
        await client.open()
        try:
            assert await client.call("ListQueues", {}) == {"n": 1}
        finally:
            await client.close()


@pytest.mark.parametrize(
    ("service", "region", "url"),
    [
        ("dynamodb", "eu-central-1", "https://dynamodb.eu-central-1.amazonaws.com/"),
        ("sqs", "us-east-1", "https://sqs.us-east-1.amazonaws.com/"),
        ("dynamodb", "cn-north-1", "https://dynamodb.cn-north-1.amazonaws.com.cn/"),
    ],
)
async def test_a_region_has_its_endpoints(service: str, region: str, url: str) -> None:
    found = await find_endpoint(service, region, None)
    assert (found.url, found.is_local) == (url, False)


async def test_an_endpoint_of_the_address_is_taken_as_it_is() -> None:
    found = await find_endpoint("sqs", "us-east-1", "http://127.0.0.1:9324")
    assert (found.url, found.host, found.is_local) == ("http://127.0.0.1:9324/", "127.0.0.1:9324", True)
    assert (await find_endpoint("sqs", "us-east-1", "https://sqs.example.com:443")).host == "sqs.example.com"
