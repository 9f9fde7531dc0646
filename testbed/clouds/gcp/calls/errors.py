"""Refusals as Google words them, for both protocols.

The gRPC clients read the code, and the reason from a detail of the status; the compute client reads the HTTP status, and the reason from
the first of `errors`.
"""

from collections.abc import Mapping
from typing import Any

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
    """A refusal: `code` is the name of a gRPC code, `reason` goes into the error-info detail, `http_reason` into `errors` of HTTP."""

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
        """Give the JSON body of an HTTP answer."""
        error: dict[str, Any] = {
            "code": self.http_status,
            "message": self.message,
            "errors": [{"message": self.message, "domain": "global", "reason": self.http_reason}],
        }
        if self.reason:
            detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.reason, "domain": self.domain}
            error["details"] = [{**detail, "metadata": self.metadata}]
        return {"error": error}


class ConnectionCut(Exception):
    """The server ends the connection instead of answering."""


def not_found(name: str) -> CloudError:
    """Give the refusal of a read, change or deletion of what is not there."""
    return CloudError("NOT_FOUND", f"Not found: {name}.")


def already_exists(name: str) -> CloudError:
    """Give the refusal of a create with a name that is taken."""
    return CloudError("ALREADY_EXISTS", f"Already exists: {name}.")


def invalid(message: str) -> CloudError:
    """Give the refusal of a request that can never succeed."""
    return CloudError("INVALID_ARGUMENT", message)


def throttled(service: str) -> CloudError:
    """Give the refusal of a caller that calls too often; the compute API says it with status 403."""
    return CloudError(
        "RESOURCE_EXHAUSTED",
        f"Quota exceeded for quota metric 'Requests' and limit 'Requests per minute' of service '{service}'.",
        reason="RATE_LIMIT_EXCEEDED",
        metadata={"service": service, "quota_limit": "RequestsPerMinutePerProject"},
        http_status=403,
        http_reason="rateLimitExceeded",
    )


def service_disabled(project: str, service: str) -> CloudError:
    """Give the refusal of a call to an API that the project has not enabled."""
    return CloudError(
        "PERMISSION_DENIED",
        f"{service} has not been used in project {project} before or it is disabled.",
        reason="SERVICE_DISABLED",
        metadata={"service": service, "consumer": f"projects/{project}"},
        http_reason="accessNotConfigured",
    )


def quota_exceeded(metric: str, needed: int, limit: int, used: int, *, code: str = "PERMISSION_DENIED") -> CloudError:
    """Give GKE's refusal of machines beyond a quota, which comes with the code of missing rights."""
    free = max(0, limit - used)
    text = f"Insufficient regional quota to satisfy request: resource \"{metric}\": request requires '{needed}.0' and is short"
    return CloudError(code, f"{text} '{needed - free}.0'. project has a quota of '{limit}.0' with '{free}.0' available.")


def in_use(name: str, by: str) -> CloudError:
    """Give compute's refusal to delete what another resource names."""
    message = f"The resource '{name}' is already being used by '{by}'"
    return CloudError("FAILED_PRECONDITION", message, http_reason="resourceInUseByAnotherResource")


def not_ready(name: str) -> CloudError:
    """Give compute's refusal to use what is still being created or deleted."""
    return CloudError("FAILED_PRECONDITION", f"The resource '{name}' is not ready", http_reason="resourceNotReady")
