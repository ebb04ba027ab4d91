"""The emulator of DynamoDB, SQS and S3; it lives in `tests/engines/servers.py` now."""

from tests.engines.servers import ministack_url

__all__ = ["ministack_url"]
