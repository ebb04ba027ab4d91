"""The client of one service in one region: signs, sends, repeats what failed, and counts."""

import asyncio
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from horae.aws_api.counters import Counters, RequestTally
from horae.aws_api.credentials import Credentials, find_endpoint
from horae.aws_api.errors import (
    EXPIRED,
    AccessDenied,
    NotSent,
    OutcomeUnknown,
    RequestConflict,
    RequestThrottled,
    error_of,
)
from horae.aws_api.retries import RetryBudget, RetryRule
from horae.aws_api.signing import Signer
from horae.aws_api.transport import HttpAnswer, Transport
from horae.core.errors import HoraeError
from horae.core.values import Value

TARGETS = {"dynamodb": "DynamoDB_20120810", "sqs": "AmazonSQS"}
SKEWED = frozenset({"RequestTimeTooSkewed", "InvalidSignatureException", "SignatureDoesNotMatch", "RequestExpired"})
TOLERATED_SKEW = 60.0  # seconds; Amazon refuses five minutes
READS = ("BatchGetItem", "GetItem", "Query", "Scan", "TransactGetItems")
WRITES = ("BatchWriteItem", "DeleteItem", "PutItem", "TransactWriteItems", "UpdateItem")
STATEMENTS = ("BatchExecuteStatement", "ExecuteStatement", "ExecuteTransaction")
REPORTING = frozenset({*READS, *WRITES, *STATEMENTS})  # actions that report capacity units when they are asked to

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

Seen = Callable[[datetime, float, float], None]


class ServiceClient:
    """Calls actions of DynamoDB or SQS; belongs to the event loop that opens it."""

    def __init__(
        self,
        service: str,
        *,
        region: str,
        endpoint: str | None = None,
        connections: int = 32,
        timeout: float = 5.0,
        retries: RetryRule | None = None,
        counters: Counters | None = None,
        seen_date: Seen | None = None,
    ) -> None:
        self._service, self._region, self._given = service, region, endpoint
        self._target = TARGETS[service]
        self._connections = connections
        self._timeout = timeout  # seconds for one request
        self._budget = RetryBudget(retries)
        self._seen_date = seen_date  # called with the service's time and the monotonic times of question and answer
        self._ahead = 0.0  # seconds to add to our clock, once the service refused it
        self._service_ahead = 0.0  # seconds that the service's clock was ahead of ours at its last refusal
        self._transport: Transport | None = None
        self._signer: Signer | None = None
        self._credentials: Credentials | None = None
        self.counters = counters or Counters()

    @property
    def budget(self) -> RetryBudget:
        """The retries of this client, for callers that send what is left of a partial batch again."""
        return self._budget

    async def open(self) -> None:
        """Find endpoint and keys; raises `AccessDenied` when there are none. May be repeated."""
        if self._transport is not None:
            return
        found = await find_endpoint(self._service, self._region, self._given)
        self._credentials = Credentials(is_local=found.is_local)
        await self._credentials.open()
        self._signer = Signer(service=self._service, region=self._region, host=found.host)
        transport = Transport(found, connections=self._connections)
        await transport.open()
        self._transport = transport

    async def close(self) -> None:
        """Close every connection."""
        if self._transport is not None and self._credentials is not None:
            await self._transport.close()
            await self._credentials.close()
            self._transport = None

    async def call(
        self, action: str, body: Mapping[str, Any], *, timeout: float | None = None, repeat_unknown: bool = True
    ) -> dict[str, Any]:
        """Return the answer of an action; raises an error of `errors.py`.

        What certainly did nothing is sent again. What may have been done is sent again only if `repeat_unknown`; an
        error or answer that follows may then be the echo of the first send (see `ask`).
        """
        return (await self.ask(action, body, timeout=timeout, repeat_unknown=repeat_unknown)).body

    async def ask(
        self, action: str, body: Mapping[str, Any], *, timeout: float | None = None, repeat_unknown: bool = True
    ) -> "Answer":
        """Return the answer of an action, with whether an earlier send of it may have been done, too."""
        data = _encode({**body, "ReturnConsumedCapacity": "TOTAL"} if action in REPORTING else body)
        tally = self.counters.of(action)
        tally.calls += 1
        attempt, doubtful, corrected = 1, False, False
        while True:
            try:
                answer = await self._send(action, data, tally, timeout or self._timeout, doubtful=doubtful)
            except (NotSent, RequestThrottled, RequestConflict, OutcomeUnknown) as exc:
                doubtful = doubtful or isinstance(exc, OutcomeUnknown)
                delay = self._budget.delay(attempt) if repeat_unknown or not doubtful else None
                if delay is None:
                    raise OutcomeUnknown(str(exc)) if doubtful else exc from exc
                attempt += 1
                await asyncio.sleep(delay)
            except AccessDenied as exc:
                if corrected or not await self._corrected(exc):
                    raise
                corrected = True
            else:
                self._budget.succeeded()
                tally.consumed(action, _statement(body), answer)
                return Answer(body=answer, doubtful=doubtful)

    async def _send(
        self, action: str, data: bytes, tally: RequestTally, timeout: float, *, doubtful: bool
    ) -> dict[str, Any]:
        """Send a request once."""
        if self._transport is None or self._signer is None or self._credentials is None:
            raise NotSent(f"{self._service}: the client is not open")
        keys = await self._credentials.keys()
        headers = self._signer.headers(
            target=f"{self._target}.{action}", body=data, keys=keys, at=time.time() + self._ahead
        )
        asked_at = time.monotonic()
        try:
            answer = await self._transport.post(headers, data, timeout=timeout)
            self._note_date(answer, asked_at)
            return _body_of(action, answer, doubtful=doubtful)
        except HoraeError as exc:
            tally.failed(exc)
            raise
        finally:
            tally.sent(len(data), time.monotonic() - asked_at)

    def _note_date(self, answer: HttpAnswer, asked_at: float) -> None:
        if answer.date is None:
            return
        if self._seen_date is not None:
            self._seen_date(parsedate_to_datetime(answer.date), asked_at, time.monotonic())
        if answer.status == 403 or answer.status == 400:
            self._service_ahead = parsedate_to_datetime(answer.date).timestamp() - time.time()

    async def _corrected(self, denied: AccessDenied) -> bool:
        """Follow the service's clock if it refuses ours, or read keys again that expired; False if that was not it."""
        if denied.code in SKEWED and abs(self._service_ahead - self._ahead) > TOLERATED_SKEW:
            self._ahead = self._service_ahead
            return True
        if denied.code in EXPIRED and self._credentials is not None:
            await self._credentials.renew()
            return True
        return False


class Answer(Value, frozen=True, kw_only=True):
    """The answer of an action."""

    body: dict[str, Any]
    doubtful: bool  # an earlier send of the same request may have been done: this answer may be its echo


def _body_of(action: str, answer: HttpAnswer, *, doubtful: bool) -> dict[str, Any]:
    """Return what a service answered; raises what it refused."""
    try:
        body = _decode(answer.body) if answer.body else {}
    except msgspec.DecodeError as exc:
        if answer.status < 400:
            raise OutcomeUnknown(f"{action}: an answer that is not JSON") from exc
        body = {}  # of a proxy or load balancer: the status says enough
    if answer.status != 200:
        raise error_of(action, answer.status, body, doubtful=doubtful)
    return body


def _statement(body: Mapping[str, Any]) -> str:
    """Return the first PartiQL statement of a request: whether it reads or writes is what units depend on."""
    statements = body.get("Statements") or body.get("TransactStatements") or (body,)
    return str(statements[0].get("Statement", "")).lstrip()
