"""What the front refuses, in the words and with the exit codes that commands have at Temporal."""

from http import HTTPStatus
from typing import Any

from api_types.environment import TOKEN_VARIABLE
from client.errors import AlreadyExists, CommandFailed, Forbidden, Modified, NoAnswer, Refused, Unreachable
from client.refs.targets import Target
from client.temporal.control_plane import not_found
from client.through_front.requests import Answer

_REDIRECTED = range(300, 400)
_CAUSES_MAX = 200


def failure_of(answer: Answer, url: str, title: str, target: Target | None) -> CommandFailed:
    """Translate an answer that is no success. `title` names what the request was about, `target` is set if that is one object."""
    said = _message(answer.body)
    if not said or answer.status in _REDIRECTED:
        return Unreachable(
            f"the server at {url} answered {answer.status}, and not as a front does",
            next_step="check that --server or MODELPLANE_SERVER names a front; redirections are not followed",
        )
    match answer.status:
        case HTTPStatus.UNAUTHORIZED:
            return Unreachable(
                f"the front at {url} does not know you: the token is missing, unknown or expired",
                next_step=f"give your token with --token-file or {TOKEN_VARIABLE}, or a certificate with --client-cert and --client-key",
            )
        case HTTPStatus.FORBIDDEN:
            return Forbidden(f"you may not do this with {title}", details=[said], next_step="ask who administers the front for the right")
        case HTTPStatus.NOT_FOUND if target and _is_missing(answer.body, target):
            return not_found(target)
        case HTTPStatus.NOT_FOUND:
            return CommandFailed(
                f"the front at {url} does not serve {title}",
                details=[said],
                next_step="check that --server names a front, and use the version of modelplane that the front has",
            )
        case HTTPStatus.CONFLICT if _reason(answer.body) == "AlreadyExists":
            return AlreadyExists(f"{title} exists already", next_step="change it, or choose another name")
        case HTTPStatus.CONFLICT:
            return Modified(f"{title} cannot be changed now", details=[said], next_step="read the object again, and repeat the change")
        case HTTPStatus.TOO_MANY_REQUESTS:
            wait = f"run the command again in {answer.retry_after} s" if answer.retry_after else "run the command again later"
            return CommandFailed(f"the front at {url} has enough requests of you", details=[said], next_step=wait)
        case HTTPStatus.SERVICE_UNAVAILABLE | HTTPStatus.BAD_GATEWAY | HTTPStatus.GATEWAY_TIMEOUT:
            return NoAnswer(
                f"the front at {url} cannot answer about {title} now",
                details=[said],
                next_step="run the command again in a moment; if it does not help, no worker or Temporal is there: ask who runs the fleet",
            )
        case HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
            return Refused(f"{title} is too large for the front", details=[said], next_step="make the manifest smaller")
        case status if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR:
            return Refused(
                f"{title} was refused by the front", details=_causes(answer.body) or [said], next_step="fix what the message names"
            )
        case _:
            return CommandFailed(
                f"the front at {url} failed on a request about {title}",
                details=[said],
                next_step="run the command again; the log of the front says what happened",
            )


def _message(body: Any) -> str:
    """Give the message of a Status; empty for what is none."""
    if not isinstance(body, dict) or body.get("kind") != "Status":
        return ""
    message = body.get("message")
    return message if isinstance(message, str) and message else _reason(body) or "no message"


def _reason(body: Any) -> str:
    reason = body.get("reason") if isinstance(body, dict) else ""
    return reason if isinstance(reason, str) else ""


def _is_missing(body: Any, target: Target) -> bool:
    """Whether a Status says that this object does not exist. A server that does not know the path says NotFound too, without its name."""
    details = body.get("details")
    named = (details.get("kind"), details.get("name")) if isinstance(details, dict) else None
    return _reason(body) == "NotFound" and named == (target.kind.plural, target.name)


def _causes(body: Any) -> list[str]:
    """Give a line for each field that is wrong."""
    details = body.get("details")
    causes = details.get("causes") if isinstance(details, dict) else None
    found = [each for each in causes if isinstance(each, dict)] if isinstance(causes, list) else []
    return [": ".join(filter(None, (_text(each, "field"), _text(each, "message")))) for each in found[:_CAUSES_MAX]]


def _text(cause: dict[str, Any], field: str) -> str:
    value = cause.get(field)
    return value if isinstance(value, str) else ""
