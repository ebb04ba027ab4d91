"""Signatures equal botocore's, byte by byte."""

import random
import string
import time
from datetime import UTC, datetime
from unittest.mock import patch

import botocore.auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from horae.aws_api.signing import CONTENT_TYPE, Keys, Signer

HOSTS = {
    "dynamodb.eu-central-1.amazonaws.com": "https://dynamodb.eu-central-1.amazonaws.com/",
    "127.0.0.1:4566": "http://127.0.0.1:4566/",
    "sqs.cn-north-1.amazonaws.com.cn": "https://sqs.cn-north-1.amazonaws.com.cn/",
    "[::1]:8000": "http://[::1]:8000/",
    "localhost": "http://localhost:80/",
}
ACTIONS = ("DynamoDB_20120810.BatchExecuteStatement", "DynamoDB_20120810.Query", "AmazonSQS.SendMessageBatch")


def _by_botocore(
    *, service: str, region: str, url: str, target: str, body: bytes, keys: Keys, at: float
) -> dict[str, str]:
    request = AWSRequest(
        method="POST", url=url, data=body, headers={"Content-Type": CONTENT_TYPE, "X-Amz-Target": target}
    )
    signer = botocore.auth.SigV4Auth(Credentials(keys.access_key, keys.secret_key, keys.token), service, region)
    with patch.object(botocore.auth, "get_current_datetime", lambda: datetime.fromtimestamp(int(at), UTC)):
        signer.add_auth(request)
    return dict(request.headers.items())


def test_a_signature_is_the_one_that_botocore_makes() -> None:
    luck = random.Random(17)
    signers: dict[tuple[str, str, str], Signer] = {}
    for _ in range(500):
        service, region = luck.choice(["dynamodb", "sqs"]), luck.choice(["eu-central-1", "us-east-1", "local"])
        host = luck.choice(list(HOSTS))
        body = "".join(luck.choices(string.printable + "äß€\U0001f600", k=luck.randrange(2000))).encode()
        secret = "".join(luck.choices(string.ascii_letters + string.digits + "+/", k=40))
        keys = Keys(
            access_key="AKIA" + "".join(luck.choices(string.ascii_uppercase, k=16)),
            secret_key=secret,
            token=luck.choice([None, "".join(luck.choices(string.ascii_letters + "+/=", k=900))]),
        )
        at = time.time() + luck.uniform(-1e8, 1e8)
        target = luck.choice(ACTIONS)
        signer = signers.setdefault((service, region, host), Signer(service=service, region=region, host=host))
        for moment in (at, at + 0.2, at + 1):  # what is kept of the second and the day must not outlive them
            ours = signer.headers(target=target, body=body, keys=keys, at=moment)
            theirs = _by_botocore(
                service=service, region=region, url=HOSTS[host], target=target, body=body, keys=keys, at=moment
            )
            assert ours.pop("Host") == host
            assert ours == theirs


def test_a_signature_of_the_next_day_has_the_key_of_that_day() -> None:
    keys = Keys(access_key="AKIA", secret_key="secret")
    midnight = datetime(2027, 1, 1, tzinfo=UTC).timestamp()
    signer = Signer(service="sqs", region="us-east-1", host="sqs.us-east-1.amazonaws.com")
    for moment in (midnight - 1, midnight, midnight - 1):
        ours = signer.headers(target="AmazonSQS.ListQueues", body=b"{}", keys=keys, at=moment)
        theirs = _by_botocore(
            service="sqs",
            region="us-east-1",
            url="https://sqs.us-east-1.amazonaws.com/",
            target="AmazonSQS.ListQueues",
            body=b"{}",
            keys=keys,
            at=moment,
        )
        assert ours["Authorization"] == theirs["Authorization"]
