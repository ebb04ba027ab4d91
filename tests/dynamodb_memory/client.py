"""The real client of the adapter, with the tables in memory at the other end instead of a network."""

import asyncio
from typing import Any

import msgspec

from horae.aws_api.client import ServiceClient
from horae.aws_api.counters import RequestTally
from horae.aws_api.errors import error_of
from horae.core.errors import HoraeError
from tests.dynamodb_memory.server import DynamoServer
from tests.dynamodb_memory.values import ServerError

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class MemoryClient(ServiceClient):
    """Sends what it would sign and post to a server in this process; each way takes half of the latency."""

    def __init__(self, server: DynamoServer, *, latency: float = 0.0, **options: Any) -> None:
        super().__init__("dynamodb", region="local", **options)
        self._server = server
        self._leg = latency / 2  # seconds

    async def open(self) -> None:
        """Do nothing: there is no connection."""

    async def close(self) -> None:
        """Do nothing: there is no connection."""

    async def _send(
        self, action: str, data: bytes, tally: RequestTally, timeout: float, *, doubtful: bool
    ) -> dict[str, Any]:
        if self._leg:
            await asyncio.sleep(self._leg)
        try:
            return self._server.call(action, _decode(data))
        except ServerError as exc:
            body = {"__type": exc.kind, "message": exc.message, **exc.fields}
            error = error_of(action, 400, body, doubtful=doubtful)
            if isinstance(error, HoraeError):
                tally.failed(error)
            raise error from exc
        finally:
            if self._leg:
                await asyncio.sleep(self._leg)
            tally.sent(len(data), 2 * self._leg)
