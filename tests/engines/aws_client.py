"""A few plain requests to servers of DynamoDB, SQS and S3, by which tests set up and clear away."""

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx2
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

Document = dict[str, Any]

REGION = "us-east-1"
TARGETS = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}


def call(url: str, service: str, verb: str, body: Document) -> Document:
    """Send one request to DynamoDB or SQS; local servers look at the name of the key alone."""
    response = httpx2.post(url, json=body, headers=headers_of(service, verb), trust_env=False, timeout=30)
    assert response.is_success, f"{verb} {body} answered {response.status_code}: {response.text}"
    found: Document = response.json() if response.content else {}
    return found


def headers_of(service: str, verb: str) -> dict[str, str]:
    """The headers of a request that nobody has signed."""
    credential = f"Credential=test/20260101/{REGION}/{service}/aws4_request"
    return {
        "X-Amz-Target": f"{TARGETS[service]}.{verb}",
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Date": "20260101T000000Z",
        "Authorization": f"AWS4-HMAC-SHA256 {credential}, SignedHeaders=host;x-amz-date, Signature=none",
    }


def tables(url: str, prefix: str) -> list[str]:
    """The tables whose names begin so."""
    pages = _pages(url, "dynamodb", "ListTables", "LastEvaluatedTableName", "ExclusiveStartTableName")
    return [name for page in pages for name in page["TableNames"] if name.startswith(prefix)]


def delete_tables(url: str, prefix: str) -> None:
    """Delete the tables whose names begin so."""
    for name in tables(url, prefix):
        call(url, "dynamodb", "DeleteTable", {"TableName": name})


def queues(url: str, prefix: str) -> list[str]:
    """The addresses of the queues whose names begin so."""
    return list(call(url, "sqs", "ListQueues", {"QueueNamePrefix": prefix, "MaxResults": 1000}).get("QueueUrls", []))


def delete_queues(url: str, prefix: str) -> None:
    """Delete the queues whose names begin so."""
    for each in queues(url, prefix):
        call(url, "sqs", "DeleteQueue", {"QueueUrl": each})


def create_bucket(url: str, name: str, *, access: str = "test", secret: str = "test") -> None:
    """Create a bucket, signed with a key."""
    request = AWSRequest("PUT", f"{url}/{name}", headers={"Host": urlsplit(url).netloc}, data=b"")
    S3SigV4Auth(Credentials(access, secret), "s3", REGION).add_auth(request)
    signed = {name: value for name, value in request.headers.items() if name.lower() != "host"}
    response = httpx2.put(f"{url}/{name}", headers=signed, trust_env=False, timeout=30)
    assert response.is_success, f"bucket {name}: {response.status_code} {response.text}"


def _pages(url: str, service: str, verb: str, last: str, start: str) -> Iterator[Document]:
    body: Document = {}
    while True:
        page = call(url, service, verb, body)
        yield page
        if last not in page:
            return
        body = {start: page[last]}
