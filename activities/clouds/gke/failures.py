"""Translate errors of Google Cloud into errors of `api_types.errors`.

The text is more reliable than the code: Google reports an exhausted quota as a missing
permission, and a rate limit as a quota. Everything that looks like a credential is
removed from texts, because a workflow's history keeps errors.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import grpc
from google.api_core import exceptions as api
from google.auth import exceptions as auth

from activities.clouds.clock import clock_wrong
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
    re.compile(
        r'(?i)"?(private_key|access_token|id_token|assertion)"?\s*[=:]\s*"?[^\s"&,}]+'
    ),
)
_TEXT_MAX = 600
_SEARCHED_MAX = 16_384


@dataclass(frozen=True)
class _Rule:
    """A pattern of Google Cloud's messages, its error class, and the next step.

    `deleting` is the class for a rejected deletion, if it is another one.
    """

    pattern: re.Pattern[str]
    kind: type[ModelplaneError]
    next_step: str = ""
    deleting: type[ModelplaneError] | None = None


# The first rule that matches decides. Messages about a rate limit or a limit of
# operations also contain the word quota, and one about machines also names the zone.
_RULES = (
    _Rule(
        re.compile(
            r"(?i)per (minute|second|100 seconds|day) per"
            r"|requests per (minute|second|day|user)"
            r"|rate.?limit.?exceeded|too many requests"
        ),
        Throttled,
    ),
    _Rule(
        re.compile(r"(?i)concurrent operations? quota|too many operations"),
        Busy,
    ),
    _Rule(
        re.compile(
            r"(?i)ZONE_RESOURCE_POOL_EXHAUSTED|GCE_STOCKOUT|stockout"
            r"|not have enough resources available|currently unavailable in the \S+ zone"
        ),
        CapacityUnavailable,
    ),
    _Rule(
        re.compile(r"(?i)IP_SPACE_EXHAUSTED|IP space of '[^']*' is exhausted"),
        InvalidInput,
        "the address range is used up: remove nodes, or create another cluster with "
        "larger ranges in the settings gke.nodeCidr and gke.podCidr",
    ),
    _Rule(
        re.compile(
            r"(?i)insufficient (\w+ )?quota|quota[\w' ]* (was |has been |is )?exceeded"
            r"|exceeded .*\bquota|QUOTA_EXCEEDED|quotaExceeded"
        ),
        QuotaExceeded,
    ),
    _Rule(
        re.compile(
            r"(?i)currently"
            r" (creating|deleting|updating|upgrading|repairing|being|undergoing)"
            r"|being created, deleted, updated or repaired|incompatible operation"
            r"|already has (an )?operation|CLUSTER_ALREADY_HAS_OPERATION"
            r"|operation .{0,80}in progress"
        ),
        Busy,
    ),
    _Rule(
        re.compile(r"(?i)constraints?/[\w.]+|organi[sz]ation policy"),
        PermissionDenied,
        "ask the administrators of the organization policy for an exception for the "
        "project",
    ),
    _Rule(
        re.compile(r"(?i)\bbilling (account|must be enabled)|billing to be enabled"),
        PermissionDenied,
        "enable billing for the project",
    ),
    _Rule(
        re.compile(r"(?i)not have access to service account"),
        PermissionDenied,
        "grant the credential the role iam.serviceAccountUser",
    ),
    _Rule(
        re.compile(
            r"NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS|GKE_SERVICE_ACCOUNT_DELETED"
        ),
        PermissionDenied,
    ),
    _Rule(
        # IAM shows a new account to other services late.
        re.compile(
            r"(?i)service account \S+ does not exist|Gaia id not found for email"
        ),
        NotYet,
    ),
    _Rule(
        re.compile(
            r"(?i)resourceInUseByAnotherResource|RESOURCE_IN_USE_BY_ANOTHER_RESOURCE"
            r"|already being used by"
        ),
        Busy,
        deleting=Dependency,
    ),
    _Rule(
        re.compile(r"(?i)resourceNotReady|RESOURCE_NOT_READY|is not ready\b"),
        Busy,
        deleting=Dependency,
    ),
    _Rule(
        re.compile(r"(?i)(master|node) version .*(unsupported|must be one of)"),
        InvalidInput,
        "use a kubernetesVersion that GKE offers",
    ),
    _Rule(
        re.compile(
            r"(?i)features are not compatible|disk type cannot be used"
            r"|acceleratorTypes/\S+ was not found|machine type \(\S+\) with GPUs"
        ),
        InvalidInput,
        "use another machineType or accelerator in the InferenceClass",
    ),
    _Rule(
        re.compile(r"(?i)nodes out of \d+ (have registered|are unhealthy)"),
        CloudObjectBroken,
        "check firewall rules, organization policies and the rights of the node service "
        "account",
    ),
    # Operations report invalid requests without a code.
    _Rule(
        re.compile(r"(?i)invalid value for field|version .*cannot be greater"),
        InvalidInput,
    ),
)
_REFUSED_LOGIN = re.compile(
    r"(?i)invalid_grant|invalid_client|unauthorized_client|account not found|invalid jwt"
    r"|invalid_target|iam\.serviceAccounts\.getAccessToken|metadata\.google\.internal"
    r"|File '[^']{1,300}' was not found"
)
# What to do about some of these.
_LOGIN_ADVICE = {
    "invalid_target": (
        "; create the workload identity pool and provider in audience, or enable them"
    ),
    "iam.serviceaccounts.getaccesstoken": (
        "; grant the identity roles/iam.workloadIdentityUser or "
        "roles/iam.serviceAccountTokenCreator on the service account"
    ),
    "metadata.google.internal": (
        "; the worker has no identity of Google Cloud: attach a service account to its "
        "machine, or store another credential"
    ),
}
# "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable
# timeframe. Check your iat and exp values in the JWT claim."
_CLOCK = re.compile(
    r"(?i)invalid jwt.{0,200}(iat and exp|reasonable timeframe)", re.DOTALL
)
# Reasons of a call to an API that the project has not enabled, in both protocols.
_DISABLED = ("SERVICE_DISABLED", "accessNotConfigured")
_SHORT_OF = re.compile(
    r"resource \"(?P<name>\w+)\": request requires '(?P<need>[\d.]+)'"
    r".*? with '(?P<has>[\d.]+)' available",
    re.DOTALL,
)

_BY_CODE: dict[str, type[ModelplaneError]] = {
    "UNAUTHENTICATED": CredentialsInvalid,
    "PERMISSION_DENIED": PermissionDenied,
    "RESOURCE_EXHAUSTED": Throttled,
    "INVALID_ARGUMENT": InvalidInput,
    "OUT_OF_RANGE": InvalidInput,
    "FAILED_PRECONDITION": InvalidInput,
    "UNIMPLEMENTED": Unsupported,
    # The parent was just created.
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
class GcpErrorInfo:
    """The parts of an error response: gRPC code, reason of its details, and text."""

    code: str
    text: str
    reason: str = ""
    service: str = ""
    after: timedelta | None = None


def class_of(signal: GcpErrorInfo, *, deleting: bool = False) -> type[ModelplaneError]:
    """Return the error class for a response.

    `deleting` is True for a rejected deletion.
    """
    rule = _rule_of(signal)
    if rule is None:
        return _BY_CODE.get(signal.code, ServerError)
    return (deleting and rule.deleting) or rule.kind


def _rule_of(signal: GcpErrorInfo) -> _Rule | None:
    words = f"{signal.reason} {signal.text}"
    if signal.reason in _DISABLED:
        return None
    return next((each for each in _RULES if each.pattern.search(words)), None)


def failure(
    signal: GcpErrorInfo, doing: str, *, deleting: bool = False
) -> ModelplaneError:
    """Return the error for a response. `doing` describes the rejected call."""
    kind = class_of(signal, deleting=deleting)
    text = redacted(signal.text) or signal.reason or signal.code
    short = _SHORT_OF.search(text) if kind is QuotaExceeded else None
    if short:
        need, has = _number(short["need"]), _number(short["has"])
        text = f"{short['name']} needs {need}, has {has}: {text}"
    text = _with_next_step(text, signal)
    if signal.reason in _DISABLED:
        api_name = signal.service or "that the message names"
        text = f"enable the API {api_name} in the project: {text}"
    return kind(f"{doing}: {text}", after=signal.after)


def _with_next_step(text: str, signal: GcpErrorInfo) -> str:
    rule = _rule_of(signal)
    return f"{text}; {rule.next_step}" if rule and rule.next_step else text


def failure_of(
    error: Exception, doing: str, *, deleting: bool = False
) -> ModelplaneError:
    """Return the error for an exception of a client.

    A ModelplaneError is returned as it is.
    """
    if isinstance(error, ModelplaneError):
        return error
    if isinstance(error, auth.GoogleAuthError):
        return _login_failure(error, doing)
    if isinstance(error, api.RetryError) and isinstance(
        error.cause, api.GoogleAPICallError
    ):
        error = error.cause
    if isinstance(error, api.GoogleAPICallError):
        text = str(error.message)
        if _CLOCK.search(text):
            return clock_wrong(doing, "Google", None)
        if _REFUSED_LOGIN.search(text) and "metadata from plugin" in text:
            return CredentialsInvalid(
                f"{doing}: Google rejects the credential: {_word(text)}"
            )
        return failure(signal_of(error), doing, deleting=deleting)
    return ServerError(f"{doing}: no answer from Google Cloud ({type(error).__name__})")


def signal_of(error: api.GoogleAPICallError) -> GcpErrorInfo:
    """Read a client's exception. The REST client has its reason only in `errors[0]`."""
    code = (
        error.grpc_status_code.name
        if isinstance(error.grpc_status_code, grpc.StatusCode)
        else ""
    )
    reasons = [
        str(each.get("reason", "")) for each in error.errors if isinstance(each, dict)
    ]
    reason = str(error.reason or next(iter(reasons), "") or "")
    if code in ("", "UNKNOWN") or reasons:
        code = _BY_STATUS.get(int(error.code or 0), code)
    metadata = (
        error.metadata
        if isinstance(error.metadata, dict)
        else dict(error.metadata or {})
    )
    return GcpErrorInfo(
        code, str(error.message), reason, str(metadata.get("service", "")), _hint(error)
    )


def condition_failure(code: str, text: str, doing: str) -> ModelplaneError:
    """Return the error for a condition of a cluster or pool."""
    signal = GcpErrorInfo("", text)
    kind = _BY_CONDITION.get(code)
    if kind is None:
        found = class_of(signal)
        kind = CloudObjectBroken if found is ServerError else found
    told = _with_next_step(redacted(text), signal)
    return kind(": ".join(filter(None, (doing, code, told))))


def is_there_already(error: Exception) -> bool:
    """Return True if an exception says that an object of this name exists.

    A conflict of etags does not count.
    """
    if isinstance(error, api.Aborted) or not isinstance(error, api.Conflict):
        return False
    return isinstance(error, api.AlreadyExists) or signal_of(error).reason in (
        "",
        "alreadyExists",
    )


def redacted(text: str) -> str:
    """Remove everything that looks like a credential, and shorten the text."""
    text = text[:_SEARCHED_MAX]
    for pattern in _SECRETS:
        text = pattern.sub("[redacted]", text)
    return " ".join(text.split())[:_TEXT_MAX]


@contextmanager
def translated(doing: str, *, deleting: bool = False) -> Iterator[None]:
    """Translate exceptions of clients into errors of this project."""
    try:
        yield
    except ModelplaneError:
        raise
    except (api.GoogleAPIError, auth.GoogleAuthError, grpc.RpcError, OSError) as error:
        # Drop the original exception, so that no part of the request reaches the
        # history.
        raise failure_of(error, doing, deleting=deleting) from None


def _login_failure(error: auth.GoogleAuthError, doing: str) -> ModelplaneError:
    known = _REFUSED_LOGIN.search(str(error))
    if isinstance(error, auth.TransportError) or (
        getattr(error, "retryable", False) and not known
    ):
        return ServerError(f"{doing}: no token from Google ({type(error).__name__})")
    if _CLOCK.search(str(error)):
        return clock_wrong(doing, "Google", None)
    return CredentialsInvalid(
        f"{doing}: Google rejects the credential: {_word(str(error))}"
    )


def _word(text: str) -> str:
    """Return the reason in a text with the next step, without the rest of the text."""
    found = _REFUSED_LOGIN.search(text)
    if found is None:
        return "no reason is given"
    return found[0] + _LOGIN_ADVICE.get(found[0].lower(), "")


def _hint(error: api.GoogleAPICallError) -> timedelta | None:
    """Return the retry delay that the server asks for."""
    for detail in error.details or ():
        delay = getattr(detail, "retry_delay", None)
        if delay is not None and delay.ByteSize():
            return timedelta(seconds=min(float(delay.seconds), 3600.0))
    return None


def _number(text: str) -> str:
    return text.removesuffix(".0")
