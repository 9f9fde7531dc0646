"""Errors of Google Cloud as errors of this project (spec/provisioning.md 4.2).

The text is read before the code: a quota that is used up arrives as a missing right, and a rate limit as a quota. Whatever looks like a
credential is taken out of texts, because errors are kept in a workflow's history.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import grpc
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from api_types.errors import (
    Busy,
    CapacityUnavailable,
    CloudObjectBroken,
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
    Throttled,
    Unsupported,
)

_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]+-----.*?(-----END [A-Z ]+-----|\Z)", re.DOTALL),
    re.compile(r"\beyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?"),
    re.compile(r"\bya29\.[\w.-]+"),
    re.compile(r"(?i)\bbearer\s+[\w.~+/=-]{8,}"),
    re.compile(r'(?i)"?(private_key|access_token|id_token|assertion)"?\s*[=:]\s*"?[^\s"&,}]+'),
)
_TEXT_MAX = 600
_SEARCHED_MAX = 16_384

# What the texts of Google Cloud are about, in this order: a rate limit and a limit of operations also call themselves a quota.
_RATE = re.compile(r"(?i)per (minute|second|100 seconds|day) per|requests per (minute|second|day)|rate.?limit.?exceeded|too many requests")
_OPERATIONS = re.compile(r"(?i)concurrent operations? quota|too many operations")
_STOCK_OUT = re.compile(r"(?i)ZONE_RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|not have enough resources available|stockout")
_QUOTA = re.compile(
    r"(?i)insufficient \w+ quota|quota[\w' ]* (was |has been |is )?exceeded|exceeded .*\bquota|QUOTA_EXCEEDED|quotaExceeded"
)
_RUNNING = re.compile(
    r"(?i)currently (creating|deleting|updating|upgrading|repairing|being|undergoing)|being created, deleted, updated or repaired"
    r"|incompatible operation|already has (an )?operation|CLUSTER_ALREADY_HAS_OPERATION|operation .{0,80}in progress"
)
_POLICY = re.compile(r"(?i)constraints?/[\w.]+|organi[sz]ation policy|NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS|GKE_SERVICE_ACCOUNT_DELETED")
_IN_USE = re.compile(r"(?i)resourceInUseByAnotherResource|RESOURCE_IN_USE_BY_ANOTHER_RESOURCE|already being used by")
_NOT_READY = re.compile(r"(?i)resourceNotReady|RESOURCE_NOT_READY|is not ready\b")
_REFUSED_LOGIN = re.compile(r"(?i)invalid_grant|invalid_client|unauthorized_client|account not found|invalid jwt")
_SHORT_OF = re.compile(r"resource \"(?P<name>\w+)\": request requires '(?P<need>[\d.]+)'.*? with '(?P<has>[\d.]+)' available", re.DOTALL)

_BY_CODE: dict[str, type[ModelplaneError]] = {
    "UNAUTHENTICATED": CredentialsInvalid,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": Throttled,
    "INVALID_ARGUMENT": InvalidInput,
    "OUT_OF_RANGE": InvalidInput,
    "FAILED_PRECONDITION": InvalidInput,
    "UNIMPLEMENTED": Unsupported,
    # The parent was created just now.
    "NOT_FOUND": NotYet,
}
_BY_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    412: "FAILED_PRECONDITION",
    429: "RESOURCE_EXHAUSTED",
    501: "UNIMPLEMENTED",
}
_BY_CONDITION: dict[str, type[ModelplaneError]] = {
    "GCE_STOCKOUT": CapacityUnavailable,
    "GCE_QUOTA_EXCEEDED": QuotaExceeded,
    "GKE_SERVICE_ACCOUNT_DELETED": PermissionDenied,
    "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS": PermissionDenied,
    "CLOUD_KMS_KEY_ERROR": PermissionDenied,
}


@dataclass(frozen=True)
class Signal:
    """What is read of a refusal: code (that of gRPC), the reason of its details, and the text."""

    code: str
    text: str
    reason: str = ""
    service: str = ""
    after: timedelta | None = None


def class_of(signal: Signal, *, deleting: bool = False) -> type[ModelplaneError]:
    """Give the class of a refusal. `deleting`: what was refused is a delete."""
    words = f"{signal.reason} {signal.text}"
    if signal.reason != "SERVICE_DISABLED":
        for pattern, kind in _texts(deleting=deleting):
            if pattern.search(words):
                return kind
    return _BY_CODE.get(signal.code, ServerError)


def _texts(*, deleting: bool) -> Sequence[tuple[re.Pattern[str], type[ModelplaneError]]]:
    return (
        (_RATE, Throttled),
        (_OPERATIONS, Busy),
        (_STOCK_OUT, CapacityUnavailable),
        (_QUOTA, QuotaExceeded),
        (_RUNNING, Busy),
        (_POLICY, PermissionDenied),
        (_IN_USE, Dependency if deleting else Busy),
        (_NOT_READY, Dependency if deleting else Busy),
    )


def failure(signal: Signal, doing: str, *, deleting: bool = False) -> ModelplaneError:
    """Give the error of a refusal; `doing` says what was refused."""
    kind = class_of(signal, deleting=deleting)
    text = redacted(signal.text) or signal.reason or signal.code
    if kind is QuotaExceeded and (short := _SHORT_OF.search(text)):
        text = f"{short['name']} needs {_number(short['need'])}, has {_number(short['has'])}: {text}"
    if signal.reason == "SERVICE_DISABLED":
        text = f"enable the API {signal.service or 'that is named'} in the project: {text}"
    return kind(f"{doing}: {text}", after=signal.after)


def failure_of(error: Exception, doing: str, *, deleting: bool = False) -> ModelplaneError:
    """Give the error for what a client raised. An error of this project is given as it is."""
    if isinstance(error, ModelplaneError):
        return error
    if isinstance(error, auth.GoogleAuthError):
        return _login_failure(error, doing)
    if isinstance(error, api.RetryError) and isinstance(error.cause, api.GoogleAPICallError):
        error = error.cause
    if isinstance(error, api.GoogleAPICallError):
        if _REFUSED_LOGIN.search(str(error.message)) and "metadata from plugin" in str(error.message):
            return CredentialsInvalid(f"{doing}: Google refuses the credential: {_word(str(error.message))}")
        return failure(signal_of(error), doing, deleting=deleting)
    return ServerError(f"{doing}: no answer from Google Cloud ({type(error).__name__})")


def signal_of(error: api.GoogleAPICallError) -> Signal:
    """Read what a client raised; the REST client has its reason only in the first of `errors`."""
    code = error.grpc_status_code.name if isinstance(error.grpc_status_code, grpc.StatusCode) else ""
    reasons = [str(each.get("reason", "")) for each in error.errors if isinstance(each, dict)]
    reason = str(error.reason or next(iter(reasons), "") or "")
    if code in ("", "UNKNOWN") or reasons:
        code = _BY_STATUS.get(int(error.code or 0), code)
    metadata = error.metadata if isinstance(error.metadata, dict) else dict(error.metadata or {})
    return Signal(code, str(error.message), reason, str(metadata.get("service", "")), _hint(error))


def condition_failure(code: str, text: str, doing: str) -> ModelplaneError:
    """Give the error of a condition of a cluster or pool."""
    kind = _BY_CONDITION.get(code)
    if kind is None:
        found = class_of(Signal("", text))
        kind = CloudObjectBroken if found is ServerError else found
    return kind(f"{doing}: {code + ': ' if code else ''}{redacted(text)}")


def is_there_already(error: Exception) -> bool:
    """Whether a client says that an object of this name exists. A race of etags is no such answer."""
    if isinstance(error, api.Aborted) or not isinstance(error, api.Conflict):
        return False
    return isinstance(error, api.AlreadyExists) or signal_of(error).reason in ("", "alreadyExists")


def redacted(text: str) -> str:
    """Take out what looks like a credential, and cut the text."""
    text = text[:_SEARCHED_MAX]
    for pattern in _SECRETS:
        text = pattern.sub("[redacted]", text)
    return " ".join(text.split())[:_TEXT_MAX]


@contextmanager
def translated(doing: str, *, deleting: bool = False) -> Iterator[None]:
    """Raise errors of clients as errors of this project."""
    try:
        yield
    except ModelplaneError:
        raise
    except (api.GoogleAPIError, auth.GoogleAuthError, grpc.RpcError, OSError) as error:
        # Not from the error: what a library holds of the request is kept out of the history.
        raise failure_of(error, doing, deleting=deleting) from None


def _login_failure(error: auth.GoogleAuthError, doing: str) -> ModelplaneError:
    if isinstance(error, auth.TransportError) or getattr(error, "retryable", False):
        return ServerError(f"{doing}: no token from Google ({type(error).__name__})")
    return CredentialsInvalid(f"{doing}: Google refuses the credential: {_word(str(error))}")


def _word(text: str) -> str:
    """Give the code of OAuth that a text has, and nothing else of it."""
    found = _REFUSED_LOGIN.search(text)
    return found[0] if found else "no reason is given"


def _hint(error: api.GoogleAPICallError) -> timedelta | None:
    """Give the delay that the server asks for."""
    for detail in error.details or ():
        delay = getattr(detail, "retry_delay", None)
        if delay is not None and delay.ByteSize():
            return timedelta(seconds=min(float(delay.seconds), 3600.0))
    return None


def _number(text: str) -> str:
    return text.removesuffix(".0")
