"""What can go wrong with a request, as the caller has to know it.

HoraeError
├── Unavailable                try again later; the background loops do
│   ├── RequestThrottled       too much at once; nothing was done
│   ├── RequestConflict        another transaction holds the item; nothing was done
│   ├── NotSent                no connection, or no place in the pool; nothing was done
│   ├── OutcomeUnknown         sent, but not answered, or the service failed: it may have been done
│   └── AccessDenied           the keys are missing, wrong, or do not allow the action
└── RequestRefused             an answer that repeating does not change
    ├── ConditionFailed        the condition of a single write does not hold
    ├── TransactionCancelled   with a reason for each item
    ├── ResourceMissing        no such table or queue
    └── ResourceInUse          the table or queue exists, or is being changed
"""

from collections.abc import Mapping, Sequence
from typing import Any

from horae.core.errors import HoraeError, Unavailable
from horae.core.values import Value

_THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceeded",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "SlowDown",
        "Throttling",
        "ThrottlingError",
        "ThrottlingException",
        "TooManyRequestsException",
        "LimitExceededException",
        "OverLimit",
        "KmsThrottled",
    }
)
_CONFLICTS = frozenset({"TransactionConflict", "TransactionConflictException", "TransactionInProgressException"})
_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "IncompleteSignature",
        "IncompleteSignatureException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KmsAccessDenied",
        "MissingAuthenticationToken",
        "MissingAuthenticationTokenException",
        "NotAuthorized",
        "OptInRequired",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
EXPIRED = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})
_FAILED = frozenset({"InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable"})
_MISSING = frozenset({"ResourceNotFoundException", "QueueDoesNotExist", "TableNotFoundException"})
_IN_USE = frozenset(
    {"ResourceInUseException", "QueueNameExists", "QueueDeletedRecently", "TableAlreadyExistsException"}
)


class RequestThrottled(Unavailable):
    """Too much at once: the request was refused and did nothing."""


class RequestConflict(Unavailable):
    """Another transaction holds an item: the request did nothing."""


class NotSent(Unavailable):
    """The request never left, so it did nothing."""


class OutcomeUnknown(Unavailable):
    """The request left, and nobody knows whether it was done."""


class AccessDenied(Unavailable):
    """The keys do not allow the action, or there are none."""

    def __init__(self, detail: str, *, code: str = "") -> None:
        super().__init__(detail)
        self.code = code


class RequestRefused(HoraeError):
    """An answer that repeating the request does not change."""

    def __init__(self, detail: str, *, code: str = "", doubtful: bool = False) -> None:
        super().__init__(detail)
        self.code = code
        self.doubtful = doubtful  # an earlier send of the same request may have been done


class ConditionFailed(RequestRefused):
    """The condition of a single write does not hold."""

    def __init__(self, detail: str, *, code: str = "", doubtful: bool = False, item: Mapping[str, Any] | None) -> None:
        super().__init__(detail, code=code, doubtful=doubtful)
        self.item = item  # as it is, if the request asked for it


class ItemReason(Value, frozen=True, kw_only=True):
    """Why a transaction was cancelled, of one of its items."""

    code: str | None  # such as ConditionalCheckFailed; None: nothing is wrong with this item
    message: str = ""
    item: Mapping[str, Any] | None = None  # as it is, if the request asked for it


class TransactionCancelled(RequestRefused):
    """A transaction that did nothing, with a reason for each of its items."""

    def __init__(
        self, detail: str, *, code: str = "", doubtful: bool = False, reasons: Sequence[ItemReason] = ()
    ) -> None:
        super().__init__(detail, code=code, doubtful=doubtful)
        self.reasons = tuple(reasons)


class ResourceMissing(RequestRefused):
    """There is no such table or queue."""


class ResourceInUse(RequestRefused):
    """The table or queue exists already, or is being changed."""


def is_throttle(code: str) -> bool:
    """Whether the code of an item's error says that it was throttled or met a conflict: it may be sent again."""
    return code in _THROTTLED or code in _CONFLICTS


def error_of(action: str, status: int, body: Mapping[str, Any], *, doubtful: bool) -> HoraeError:
    """Return the error of an answer that is none of success."""
    code = str(body.get("__type") or body.get("code") or "").rpartition("#")[2].partition(":")[0]
    message = str(body.get("message") or body.get("Message") or "")
    detail = f"{action}: {code or status} {message}".rstrip()
    if code in _THROTTLED:
        return RequestThrottled(detail)
    if code in _CONFLICTS:
        return RequestConflict(detail)
    if code in _DENIED or code in EXPIRED:
        return AccessDenied(detail, code=code)
    if code == "ConditionalCheckFailedException":
        return ConditionFailed(detail, code=code, doubtful=doubtful, item=body.get("Item"))
    if code == "TransactionCanceledException":
        return _cancelled(detail, code, body, doubtful=doubtful)
    if status >= 500 or code in _FAILED:
        return OutcomeUnknown(detail)
    kind = ResourceMissing if code in _MISSING else ResourceInUse if code in _IN_USE else RequestRefused
    return kind(detail, code=code, doubtful=doubtful)


def _cancelled(detail: str, code: str, body: Mapping[str, Any], *, doubtful: bool) -> HoraeError:
    """Return the error of a cancelled transaction: a conflict, if nothing but conflicts and throttling stopped it."""
    reasons = [_reason(reason) for reason in body.get("CancellationReasons") or ()]
    codes = {reason.code for reason in reasons if reason.code is not None}
    if codes and codes <= _THROTTLED:
        return RequestThrottled(detail)
    if codes and codes <= _THROTTLED | _CONFLICTS:
        return RequestConflict(detail)
    return TransactionCancelled(detail, code=code, doubtful=doubtful, reasons=reasons)


def _reason(reason: Mapping[str, Any]) -> ItemReason:
    code = reason.get("Code")
    return ItemReason(
        code=None if code in (None, "None") else str(code),
        message=str(reason.get("Message") or ""),
        item=reason.get("Item"),
    )
