"""Convert responses of an API server into the errors of this project.

The error class decides what happens next, so it depends on the status code and the
reason, never on the message. The message is kept for users, without text that resembles
a secret.
"""

import re
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from activities.clients.kubernetes.redact import redact
from activities.clients.outward.answers import read_object
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    PermissionDenied,
    ServerError,
    Throttled,
)

_INVALID = frozenset(
    {
        HTTPStatus.BAD_REQUEST,
        HTTPStatus.UNPROCESSABLE_ENTITY,
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        HTTPStatus.METHOD_NOT_ALLOWED,
    }
)
# A longer Retry-After is ignored, and the activity's retry policy applies.
_RETRY_AFTER_SECONDS_MAX = 60
_SECONDS = re.compile(r"[0-9]{1,4}")
# Enough text to recognize the program that responded, such as a proxy.
_QUOTED_BYTES = 4096
_NAMESPACE_TERMINATING = "NamespaceTerminating"


def failure(
    status: int,
    body: bytes | Mapping[str, Any],
    headers: Mapping[str, str],
    cluster: str,
    doing: str,
    *,
    identity: str = "",
) -> ModelplaneError:
    """Return the error for a refused request.

    `doing` names the request, such as `apply apps/v1/Deployment/ns/name`. `identity` is
    the cloud credential whose tokens are used; it is empty for credentials of a
    kubeconfig.
    """
    status_object = _status_object(body)
    where = f"cluster {cluster}: {doing}"
    text = _text(status_object, status, doing)
    if status == HTTPStatus.UNAUTHORIZED:
        remedy = "put a valid kubeconfig into the secret store"
        if identity:
            remedy = f"see whether {identity} may still log in to the cluster"
        return CredentialsInvalid(
            f"{where}: the API server does not accept this credential (401); {remedy}"
        )
    if status == HTTPStatus.FORBIDDEN:
        if _NAMESPACE_TERMINATING in _causes(status_object):
            return ServerError(
                f"{where}: {text}; the namespace is being deleted and can be used again "
                "when it is gone"
            )
        return PermissionDenied(
            f"{where}: {text}; "
            f"grant the permission to {identity or 'the user of the kubeconfig'}"
        )
    if status in _INVALID:
        return InvalidInput(f"{where}: {text}")
    if status == HTTPStatus.TOO_MANY_REQUESTS or (
        status == HTTPStatus.SERVICE_UNAVAILABLE and headers.get("Retry-After")
    ):
        return Throttled(f"{where}: {text}", after=_retry_after(headers))
    return ServerError(f"{where}: {text}")


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the Retry-After header. A date, or too long a time, is ignored."""
    seconds = headers.get("Retry-After", "").strip()
    if not (
        _SECONDS.fullmatch(seconds) and 0 < int(seconds) <= _RETRY_AFTER_SECONDS_MAX
    ):
        return None
    return timedelta(seconds=int(seconds))


def unreachable(error: Exception, cluster: str, server: str) -> ClusterUnreachable:
    """Return the error for a request without a response."""
    reason = redact(str(error)) or type(error).__name__
    return ClusterUnreachable(
        f"cluster {cluster}: no response from {server}: {reason}; "
        "check that the API server runs and that the worker can reach it"
    )


def is_missing_namespace(body: bytes) -> bool:
    """Return whether a 404 is about the namespace, not the object or the kind."""
    details = _status_object(body).get("details")
    return isinstance(details, Mapping) and details.get("kind") == "namespaces"


def _status_object(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    try:
        return read_object(body)
    except ValueError:
        return {"message": body[:_QUOTED_BYTES].decode(errors="replace")}


def _causes(status_object: Mapping[str, Any]) -> set[str]:
    details = status_object.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return {
        str(cause.get("reason"))
        for cause in (causes if isinstance(causes, list) else [])
        if isinstance(cause, Mapping)
    }


def _text(status_object: Mapping[str, Any], status: int, doing: str) -> str:
    if "/Secret/" in doing or "/ConfigMap/" in doing:
        # Validation messages quote values.
        return f"{status_object.get('reason') or 'refused'} ({status})"
    message = redact(
        str(status_object.get("message") or status_object.get("reason") or "")
    ).strip()
    return f"{message} ({status})" if message else f"status {status}"
