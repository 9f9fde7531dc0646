"""Refusals as Kubernetes says them: a `Status` with a reason, and for an invalid object one cause per field."""

import json
from collections.abc import Sequence
from typing import Any

from api_types.validation.problems import InvalidManifest
from front.applying.merging import Conflict
from front.applying.owners import UPDATE, Owner
from front.store.projection import Tree

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"
_MESSAGE_MAX = 4096
_OPTIONS_GROUP = "meta.k8s.io"


class Refused(Exception):
    """A request that is not carried out; `status` is the answer's body, and its `code` that of HTTP."""

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        """Say why. `details`: name, kind, causes and so on, as in `StatusDetails`; with `retryAfterSeconds` clients ask again."""
        super().__init__(message)
        self.code, self.retry_after = code, int(details.get("retryAfterSeconds", 0))
        self.status: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message[:_MESSAGE_MAX],
            "reason": reason,
            **({"details": details} if details else {}),
            "code": code,
        }


class Stale(Refused):
    """The object was changed since it was read: what was wanted may be possible once it is read again."""


class Silent(Refused):
    """Nobody answers for the object: no worker, or Temporal does not."""


def not_found(group: str, plural: str, name: str) -> Refused:
    """Make the refusal for an object that does not exist."""
    return Refused(404, "NotFound", f'{_qualified(group, plural)} "{name}" not found', name=name, group=group, kind=plural)


def already_exists(group: str, plural: str, name: str) -> Refused:
    """Make the refusal to create what exists."""
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return Refused(409, "AlreadyExists", message, name=name, group=group, kind=plural)


def conflict(group: str, plural: str, name: str, why: str) -> Refused:
    """Make the refusal of a change to an object that is another one, or in another state, than the client means."""
    return Refused(409, "Conflict", _unfulfilled(group, plural, name, why), name=name, group=group, kind=plural)


def stale(group: str, plural: str, name: str, why: str) -> Stale:
    """Make the refusal of a change to an object that was changed meanwhile."""
    return Stale(409, "Conflict", _unfulfilled(group, plural, name, why), name=name, group=group, kind=plural)


def _unfulfilled(group: str, plural: str, name: str, why: str) -> str:
    return f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'


def invalid(group: str, kind: str, name: str, refusal: InvalidManifest) -> Refused:
    """Make the refusal of an invalid object, with a cause per problem."""
    causes = [
        {"reason": "FieldValueInvalid", "message": problem.problem, "field": problem.field or "<root>"} for problem in refusal.problems
    ]
    told = causes[0]["message"] if len(causes) == 1 else "[" + ", ".join(f"{each['field']}: {each['message']}" for each in causes) + "]"
    field = f"{causes[0]['field']}: " if len(causes) == 1 else ""
    message = f'{kind}.{group} "{name}" is invalid: {field}{told}'
    return Refused(422, "Invalid", message, name=name, group=group, kind=kind, causes=causes)


def invalid_option(options: str, field: str, reason: str, problem: str) -> Refused:
    """Make the refusal of a parameter of a write. `options`: what Kubernetes calls the parameters of its verb."""
    causes = [{"reason": reason, "message": problem, "field": field}]
    message = f'{options}.{_OPTIONS_GROUP} "" is invalid: {field}: {problem}'
    return Refused(422, "Invalid", message, group=_OPTIONS_GROUP, kind=options, causes=causes)


def apply_conflict(conflicts: Sequence[Conflict]) -> Refused:
    """Make the refusal of a server-side apply that would change what other managers own, with a cause per field."""
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {_named(each.owner)}", "field": each.field} for each in conflicts
    ]
    if len(conflicts) == 1:
        return Refused(409, "Conflict", f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}", causes=causes)
    lines = [f"Apply failed with {len(conflicts)} conflicts: "]
    for owner in dict.fromkeys(each.owner for each in conflicts):
        lines += [f"conflicts with {_named(owner)}:", *(f"- {each.field}" for each in conflicts if each.owner == owner)]
    return Refused(409, "Conflict", lines[0] + "\n".join(lines[1:]), causes=causes)


def _named(owner: Owner) -> str:
    name = json.dumps(owner.name, ensure_ascii=False)
    name += f' with subresource "{owner.subresource}"' if owner.subresource else ""
    return f"{name} using {owner.api_version}" if owner.operation == UPDATE else name


def bad_request(message: str) -> Refused:
    """Make the refusal of a request that cannot be read."""
    return Refused(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> Refused:
    """Make the refusal of a caller who is not known."""
    return Refused(401, "Unauthorized", message)


def forbidden(group: str, plural: str, name: str, message: str) -> Refused:
    """Make the refusal of a caller who may not do this."""
    who = f'{_qualified(group, plural)} "{name}"' if name else _qualified(group, plural)
    return Refused(403, "Forbidden", f"{who} is forbidden: {message}", name=name, group=group, kind=plural)


def no_namespaces(name: str) -> Refused:
    """Make the refusal to show a namespace.

    For an object that is not found kubectl asks for the namespace. If that is not found either, it tells of the namespace alone.
    """
    return forbidden("", "namespaces", name, "this server keeps no namespaces, and objects can be in one of any name")


def method_not_allowed(method: str) -> Refused:
    """Make the refusal of a method that a resource does not have."""
    return Refused(405, "MethodNotAllowed", f"the server does not allow {method} on the requested resource")


def unsupported_media_type(accepted: Sequence[str]) -> Refused:
    """Make the refusal of a body in a format that is not read."""
    message = f"the body of the request was in an unknown format - accepted media types include: {', '.join(accepted)}"
    return Refused(415, "UnsupportedMediaType", message)


def compressed() -> Refused:
    """Make the refusal of a body that is not sent as it is."""
    return Refused(415, "UnsupportedMediaType", "a compressed body is not read; send it without Content-Encoding")


def expired() -> Refused:
    """Make the refusal of a watch from a version that is too old."""
    return Refused(410, "Expired", "The resourceVersion for the provided watch is too old.")


def unavailable(message: str) -> Refused:
    """Make the refusal of what cannot be done at this moment."""
    return Refused(503, "ServiceUnavailable", message)


def not_yet(message: str) -> Refused:
    """Make the refusal of what is not done at all now, and may be in a second: clients ask again by themselves.

    Of nothing else: a write of which it is not known whether it was carried out must not be sent again unseen.
    """
    return Refused(503, "ServiceUnavailable", message, retryAfterSeconds=1)


def silent(message: str) -> Silent:
    """Make the refusal of what concerns an object for which nobody answers at this moment."""
    return Silent(503, "ServiceUnavailable", message)


def undecided() -> Refused:
    """Make the refusal of what nobody can say at this moment whether the caller may do it."""
    return not_yet("the API server that says what users may do does not answer; ask again in a moment")


def too_many(message: str, seconds: int) -> Refused:
    """Make the refusal of a caller who has reached a limit, who may ask again after some seconds."""
    return Refused(429, "TooManyRequests", message, retryAfterSeconds=seconds)


def too_large(limit: int) -> Refused:
    """Make the refusal of a body that is too large."""
    return Refused(413, "RequestEntityTooLarge", f"the request is larger than {limit} bytes")


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural
