"""Translates error responses of the front to the errors that Temporal would cause."""

from http import HTTPStatus
from typing import Any

from api_types.environment import TOKEN_VARIABLE
from fleet_client.errors import (
    AlreadyExists,
    CommandFailed,
    Forbidden,
    Modified,
    NoAnswer,
    Refused,
    Unreachable,
)
from fleet_client.refs.seen import not_found
from fleet_client.refs.targets import Target
from fleet_client.through_front.requests import FrontResponse

_REDIRECTED = range(300, 400)
_CAUSES_MAX = 200


def failure_of(
    answer: FrontResponse, url: str, title: str, target: Target | None
) -> CommandFailed:
    """Translate an error response.

    `title` names the subject of the request. `target` is set if the subject is one
    object.
    """
    said = _message(answer.body)
    if not said or answer.status in _REDIRECTED:
        return Unreachable(
            f"the server at {url} answered {answer.status}, and is not a front",
            next_step=(
                "check that --server or MODELPLANE_SERVER names a front; "
                "redirections are not followed"
            ),
        )
    match answer.status:
        case HTTPStatus.UNAUTHORIZED:
            return Unreachable(
                f"the front at {url} does not know you: the token is missing, unknown or expired",
                next_step=(
                    f"pass your token with --token-file or {TOKEN_VARIABLE}, or a "
                    "certificate with --client-cert and --client-key"
                ),
            )
        case HTTPStatus.FORBIDDEN:
            return Forbidden(
                f"you may not do this with {title}",
                details=[said],
                next_step="ask an administrator of the front for the right",
            )
        case HTTPStatus.NOT_FOUND if target and _is_missing(answer.body, target):
            return not_found(target)
        case HTTPStatus.NOT_FOUND:
            return CommandFailed(
                f"the front at {url} does not serve {title}",
                details=[said],
                next_step=(
                    "check that --server names a front, and use the front's version "
                    "of modelplane"
                ),
            )
        case HTTPStatus.CONFLICT if _reason(answer.body) == "AlreadyExists":
            return AlreadyExists(
                f"{title} exists already", next_step="change it, or choose another name"
            )
        case HTTPStatus.CONFLICT:
            return Modified(
                f"{title} cannot be changed now",
                details=[said],
                next_step="read the object again, and repeat the change",
            )
        case HTTPStatus.TOO_MANY_REQUESTS:
            wait = (
                f"run the command again in {answer.retry_after} s"
                if answer.retry_after
                else "run the command again later"
            )
            return CommandFailed(
                f"the front at {url} limits your requests",
                details=[said],
                next_step=wait,
            )
        case (
            HTTPStatus.SERVICE_UNAVAILABLE
            | HTTPStatus.BAD_GATEWAY
            | HTTPStatus.GATEWAY_TIMEOUT
        ):
            return NoAnswer(
                f"the front at {url} cannot answer about {title} now",
                details=[said],
                next_step=(
                    "run the command again in a moment; if this repeats, ask the "
                    "operator whether Temporal and a worker run"
                ),
            )
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return Refused(
                f"{title} is too large for the front",
                details=[said],
                next_step="make the manifest smaller",
            )
        case status if (
            HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
        ):
            return Refused(
                f"{title} was refused by the front",
                details=_causes(answer.body) or [said],
                next_step="fix the fields in the message",
            )
        case _:
            return CommandFailed(
                f"the front at {url} failed to handle a request about {title}",
                details=[said],
                next_step="run the command again; the log of the front has the cause",
            )


def _message(body: Any) -> str:
    """Return the message of a Status, or an empty string for any other response."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return ""
    message = body.get("message")
    if isinstance(message, str) and message:
        return message
    return _reason(body) or "no message"


def _reason(body: Any) -> str:
    reason = body.get("reason") if isinstance(body, dict) else ""
    return reason if isinstance(reason, str) else ""


def _is_missing(body: Any, target: Target) -> bool:
    """Return whether a Status says that this object does not exist.

    A server that does not know the path answers NotFound too, but without the object's
    name.
    """
    details = body.get("details")
    if _reason(body) != "NotFound" or not isinstance(details, dict):
        return False
    named = (details.get("kind"), details.get("name"))
    return named == (target.kind.plural, target.name)


def _causes(body: Any) -> list[str]:
    """Return a line for each invalid field."""
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    if not isinstance(causes, list):
        return []
    lines = []
    for cause in [each for each in causes if isinstance(each, dict)][:_CAUSES_MAX]:
        parts = (_text(cause, "field"), _text(cause, "message"))
        lines.append(": ".join(filter(None, parts)))
    return lines


def _text(cause: dict[str, Any], field: str) -> str:
    value = cause.get(field)
    return value if isinstance(value, str) else ""
