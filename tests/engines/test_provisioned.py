"""The servers of `make engines`, where they are: they answer, and listen on the loopback alone."""

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.engines import __main__ as provisioning
from tests.engines import aws_client
from tests.engines.provisioned import S3_ACCESS, S3_SECRET, dynamodb_local_url, elasticmq_url, redis_url, s3_url
from tests.engines.servers import own_name
from tests.engines.test_servers import ask_redis, listening


@pytest.mark.parametrize("url_of", [dynamodb_local_url, elasticmq_url, s3_url, redis_url])
def test_a_provisioned_server_listens_on_the_loopback_alone(url_of: Callable[[], str]) -> None:
    assert listening(urlsplit(url_of()).port or 0) <= {"127.0.0.1", "::ffff:127.0.0.1"}
    assert listening(urlsplit(url_of()).port or 0)


def test_dynamodb_local_keeps_tables() -> None:
    name = own_name()
    key = {
        "AttributeDefinitions": [{"AttributeName": "id", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "id", "KeyType": "HASH"}],
    }
    body = {"TableName": name, "BillingMode": "PAY_PER_REQUEST", **key}
    aws_client.call(dynamodb_local_url(), "dynamodb", "CreateTable", body)
    assert aws_client.tables(dynamodb_local_url(), name) == [name]
    aws_client.delete_tables(dynamodb_local_url(), name)
    assert aws_client.tables(dynamodb_local_url(), name) == []


def test_elasticmq_keeps_queues() -> None:
    name = own_name()
    aws_client.call(elasticmq_url(), "sqs", "CreateQueue", {"QueueName": name})
    [found] = aws_client.queues(elasticmq_url(), name)
    assert found.endswith(name)
    aws_client.delete_queues(elasticmq_url(), name)
    assert aws_client.queues(elasticmq_url(), name) == []


def test_the_s3_server_takes_its_own_key_alone() -> None:
    aws_client.create_bucket(s3_url(), own_name(), access=S3_ACCESS, secret=S3_SECRET)
    with pytest.raises(AssertionError, match="403"):
        aws_client.create_bucket(s3_url(), own_name(), access=S3_ACCESS, secret="wrong")


def test_the_machines_redis_answers() -> None:
    assert ask_redis(redis_url(), "PING") == b"+PONG\r\n"


def test_what_a_machine_has_no_tool_for_is_named_and_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HORAE_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(provisioning.os, "geteuid", lambda: 1000)
    assert provisioning.main() == 0
    said = capsys.readouterr().out
    assert "DynamoDB Local 2.6.1: left out; it needs a Java development kit" in said
    assert "(`go` is not on the path)" in said
    assert "apt-get install redis-server" in said
    assert not (tmp_path / "engines").exists()


def test_an_installation_that_fails_leaves_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("java", "javac", "mvn"):
        (tmp_path / name).write_text("#!/bin/sh\necho no such artifact\nexit 3\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("HORAE_ENGINES", str(tmp_path / "engines"))
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(provisioning.os, "geteuid", lambda: 1000)
    assert provisioning.main() == 1
    assert "no such artifact" in capsys.readouterr().out
    assert list((tmp_path / "engines").iterdir()) == []
