"""Addresses of Amazon's services, and those that are refused."""

import pytest

from horae.aws_api.address import is_loopback, parse_address
from horae.core.errors import Misconfigured


def test_an_address_names_region_prefix_endpoint_and_options() -> None:
    found = parse_address("dynamodb://eu-central-1/team-a", scheme="dynamodb", variable="HORAE_STORE")
    assert (found.region, found.prefix, found.endpoint, found.options) == ("eu-central-1", "team-a", None, {})
    found = parse_address("sqs://local/h?endpoint=http://127.0.0.1:9324&x=1", scheme="sqs", variable="HORAE_QUEUE")
    assert (found.region, found.prefix, found.endpoint) == ("local", "h", "http://127.0.0.1:9324")
    assert found.options == {"x": "1"}


@pytest.mark.parametrize(
    "url",
    [
        "sqs://eu-central-1",
        "sqs://eu-central-1/",
        "sqs:///horae",
        "sqs://EU/horae",
        "sqs://eu-central-1/a/b",
        "sqs://eu-central-1/a b",
        "dynamodb://eu-central-1/horae",
        "sqs://eu-central-1/horae?endpoint=127.0.0.1:9324",
        "sqs://eu-central-1/horae?endpoint=http://127.0.0.1:port",
        "sqs://eu-central-1/horae?endpoint=ftp://127.0.0.1",
        "sqs://eu-central-1/horae?endpoint=http://127.0.0.1/path",
    ],
)
def test_an_address_that_names_no_queue_is_refused(url: str) -> None:
    with pytest.raises(Misconfigured, match="HORAE_QUEUE"):
        parse_address(url, scheme="sqs", variable="HORAE_QUEUE")


def test_loopback_is_recognized() -> None:
    assert all(is_loopback(url) for url in ("http://127.0.0.1:8000", "http://[::1]", "http://localhost:4566"))
    assert not any(is_loopback(url) for url in ("https://sqs.us-east-1.amazonaws.com", "http://10.0.0.1", "http://db"))
