"""Google's error responses, for both protocols.

The gRPC clients read the code, and the reason in a detail of the status. The compute
client reads the HTTP status, and the reason in the first of `errors`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

ONLY_MESSAGE = "the error is only in the status message"
"""The reason of an error that an operation reports without a code."""

HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "UNKNOWN": 500,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
"""The HTTP status of each gRPC code that the services use."""

_HTTP_REASON = {
    "INVALID_ARGUMENT": "invalid",
    "FAILED_PRECONDITION": "failedPrecondition",
    "OUT_OF_RANGE": "invalid",
    "UNAUTHENTICATED": "authError",
    "PERMISSION_DENIED": "forbidden",
    "NOT_FOUND": "notFound",
    "ALREADY_EXISTS": "alreadyExists",
    "ABORTED": "conditionNotMet",
    "RESOURCE_EXHAUSTED": "rateLimitExceeded",
    "INTERNAL": "internalError",
    "UNIMPLEMENTED": "notImplemented",
    "UNAVAILABLE": "backendError",
}


class CloudError(Exception):
    """A refusal.

    `code` is the name of a gRPC code, `reason` is for the error-info detail, and
    `http_reason` for `errors` of HTTP.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        reason: str = "",
        domain: str = "googleapis.com",
        metadata: Mapping[str, str] | None = None,
        http_status: int | None = None,
        http_reason: str = "",
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.reason = reason
        self.domain = domain
        self.metadata = dict(metadata or {})
        self.http_status = http_status or HTTP_STATUS[code]
        self.http_reason = http_reason or _HTTP_REASON.get(code, "backendError")

    def body(self) -> dict[str, Any]:
        """Return the JSON body of an HTTP response."""
        error: dict[str, Any] = {
            "code": self.http_status,
            "message": self.message,
            "errors": [
                {
                    "message": self.message,
                    "domain": "global",
                    "reason": self.http_reason,
                }
            ],
        }
        if self.reason:
            detail = {
                "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                "reason": self.reason,
                "domain": self.domain,
            }
            error["details"] = [{**detail, "metadata": self.metadata}]
        return {"error": error}


class ConnectionCut(Exception):
    """The server ends the connection instead of answering."""


def not_found(name: str) -> CloudError:
    """Return the refusal of a read, change or deletion of a missing object."""
    return CloudError("NOT_FOUND", f"Not found: {name}.")


def already_exists(name: str) -> CloudError:
    """Return the refusal of a create with a taken name."""
    return CloudError("ALREADY_EXISTS", f"Already exists: {name}.")


def invalid(message: str) -> CloudError:
    """Return the refusal of an invalid request."""
    return CloudError("INVALID_ARGUMENT", message)


def throttled(service: str) -> CloudError:
    """Return the refusal of too many calls. The compute API uses status 403 for it."""
    return CloudError(
        "RESOURCE_EXHAUSTED",
        (
            "Quota exceeded for quota metric 'Requests' and limit 'Requests per "
            f"minute' of service '{service}'."
        ),
        reason="RATE_LIMIT_EXCEEDED",
        metadata={"service": service, "quota_limit": "RequestsPerMinutePerProject"},
        http_status=403,
        http_reason="rateLimitExceeded",
    )


def service_disabled(project: str, service: str) -> CloudError:
    """Return the refusal of a call to an API that the project has not enabled."""
    return CloudError(
        "PERMISSION_DENIED",
        f"{service} has not been used in project {project} before or it is disabled.",
        reason="SERVICE_DISABLED",
        metadata={"service": service, "consumer": f"projects/{project}"},
        http_reason="accessNotConfigured",
    )


def quota_exceeded(
    project: str, short: Sequence[tuple[str, int, int, int]]
) -> CloudError:
    """Return GKE's refusal of machines beyond quotas.

    Each quota has its metric, the need, the limit and the usage. The refusal has the
    code of a missing permission, and a number before each of several quotas.
    """
    texts = []
    for metric, needed, limit, used in short:
        free = max(0, limit - used)
        texts.append(
            f'nsufficient regional quota to satisfy request: resource "{metric}": '
            f"request requires '{needed}.0' and is short '{needed - free}.0'. project has "
            f"a quota of '{limit}.0' with '{free}.0' available. View and manage quotas at "
            f"https://console.cloud.google.com/iam-admin/quotas?usage=USED&project={project}"
        )
    many = len(texts) > 1
    lines = [f"({at}) i{text}" for at, text in enumerate(texts, 1)]
    message = "\n".join(lines) if many else f"I{texts[0]}"
    return CloudError("PERMISSION_DENIED", f"{message}.")


def in_use(name: str, by: str) -> CloudError:
    """Return compute's refusal to delete an object that another one names."""
    kind = {"networks": "network ", "subnetworks": "subnetwork "}.get(
        name.split("/")[-2], ""
    )
    message = f"The {kind}resource '{name}' is already being used by '{by}'"
    return CloudError(
        "FAILED_PRECONDITION", message, http_reason="resourceInUseByAnotherResource"
    )


def not_ready(name: str) -> CloudError:
    """Return compute's refusal to use an object that is being created or deleted."""
    return CloudError(
        "FAILED_PRECONDITION",
        f"The resource '{name}' is not ready",
        http_reason="resourceNotReady",
    )
