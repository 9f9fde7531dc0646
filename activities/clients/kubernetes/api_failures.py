"""From what an API server answered to the errors of this project.

The class decides what happens next, so it is read from the status code and the reason, never from prose; the prose is kept for people,
without anything that looks like a secret.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

from activities.clients.kubernetes.redact import redact
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
    {HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.METHOD_NOT_ALLOWED}
)
# A server that asks for more is asked again by our own rules.
_PAUSE_SECONDS_MAX = 60
_NAMESPACE_ENDING = "NamespaceTerminating"


def failure(status: int, body: bytes | Mapping[str, Any], headers: Mapping[str, str], cluster: str, doing: str) -> ModelplaneError:
    """Make the error for a refused request. `doing` says in words what was asked for, such as `apply apps/v1/Deployment/ns/name`."""
    answer = _answer(body)
    where = f"cluster {cluster}: {doing}"
    text = _text(answer, status, doing)
    if status == HTTPStatus.UNAUTHORIZED:
        return CredentialsInvalid(
            f"{where}: the API server does not know this credential (401); put a valid kubeconfig into the secret store"
        )
    if status == HTTPStatus.FORBIDDEN:
        if _NAMESPACE_ENDING in _causes(answer):
            return ServerError(f"{where}: {text}; the namespace is being deleted and can be used again when it is gone")
        return PermissionDenied(f"{where}: {text}; grant the right to the user of the kubeconfig")
    if status in _INVALID:
        return InvalidInput(f"{where}: {text}")
    if status == HTTPStatus.TOO_MANY_REQUESTS or (status == HTTPStatus.SERVICE_UNAVAILABLE and headers.get("Retry-After")):
        return Throttled(f"{where}: {text}", after=_asked_pause(headers))
    return ServerError(f"{where}: {text}")


def _asked_pause(headers: Mapping[str, str]) -> timedelta | None:
    """Read for how long the server wants to be left alone; a date instead of seconds, or an absurd time, is not followed."""
    seconds = headers.get("Retry-After", "").strip()
    return timedelta(seconds=int(seconds)) if seconds.isascii() and seconds.isdecimal() and 0 < int(seconds) <= _PAUSE_SECONDS_MAX else None


def unreachable(error: Exception, cluster: str, server: str) -> ClusterUnreachable:
    """Make the error for a request that got no answer."""
    reason = redact(str(error)) or type(error).__name__
    return ClusterUnreachable(
        f"cluster {cluster}: no answer from {server}: {reason}; check that the API server runs and that the worker can reach it"
    )


def is_missing_namespace(body: bytes) -> bool:
    """Tell a 404 about the namespace from one about the object or the kind."""
    details = _answer(body).get("details")
    return isinstance(details, Mapping) and details.get("kind") == "namespaces"


def _answer(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    if isinstance(body, Mapping):
        return body
    try:
        found = json.loads(body)
    except ValueError:
        return {"message": body.decode(errors="replace")}
    return found if isinstance(found, Mapping) else {}


def _causes(answer: Mapping[str, Any]) -> set[str]:
    details = answer.get("details")
    causes = details.get("causes") if isinstance(details, Mapping) else None
    return {str(cause.get("reason")) for cause in causes or [] if isinstance(cause, Mapping)}


def _text(answer: Mapping[str, Any], status: int, doing: str) -> str:
    if "/Secret/" in doing:
        # Validation quotes values.
        return f"{answer.get('reason') or 'refused'} ({status})"
    message = redact(str(answer.get("message") or answer.get("reason") or "")).strip()
    return f"{message} ({status})" if message else f"status {status}"
