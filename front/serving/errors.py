"""Errors in Kubernetes' form: a `Status` with a reason and causes."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from api_types.validation.problems import InvalidManifest
from front.applying.merging import FieldConflict
from front.applying.owners import UPDATE, FieldManager
from front.store.projection import Tree

MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and "
    "try again"
)
MISSING = "required field is missing"
"""The problem of a required field that is not given."""
_MESSAGE_MAX = 4096
_OPTIONS_GROUP = "meta.k8s.io"


class FieldProblem(NamedTuple):
    """A problem of one parameter: its name, Kubernetes' reason and a text."""

    field: str
    reason: str
    about: str


class RejectedRequest(Exception):
    """A rejected request.

    `status` is the body of the response, `code` the HTTP status.
    """

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        """Build the Status.

        `details` are fields of `StatusDetails`. With `retryAfterSeconds`, clients
        repeat the request automatically.
        """
        super().__init__(message)
        self.code, self.retry_after = code, int(details.get("retryAfterSeconds", 0))
        self.status: Tree = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": message[:_MESSAGE_MAX],
            "reason": reason,
            "code": code,
        }
        if details:
            self.status["details"] = details


class Stale(RejectedRequest):
    """The object has changed since it was read.

    The same change may succeed after another read.
    """


class Silent(RejectedRequest):
    """No worker answers for the object, or Temporal itself does not answer."""


def not_found(group: str, plural: str, name: str) -> RejectedRequest:
    return RejectedRequest(
        404,
        "NotFound",
        f'{_qualified(group, plural)} "{name}" not found',
        name=name,
        group=group,
        kind=plural,
    )


def already_exists(group: str, plural: str, name: str) -> RejectedRequest:
    message = f'{_qualified(group, plural)} "{name}" already exists'
    return RejectedRequest(
        409, "AlreadyExists", message, name=name, group=group, kind=plural
    )


def deleted(group: str, plural: str, name: str, uid: str) -> Tree:
    """Return the Status of an object that is gone."""
    details = {"name": name, "group": group, "kind": plural, "uid": uid}
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    }


def conflict(group: str, plural: str, name: str, why: str) -> RejectedRequest:
    """Return the error for a change that does not fit the object's state."""
    return RejectedRequest(
        409,
        "Conflict",
        _unfulfilled(group, plural, name, why),
        name=name,
        group=group,
        kind=plural,
    )


def stale(group: str, plural: str, name: str, why: str) -> Stale:
    """Return the error for a change of an object that was modified meanwhile."""
    return Stale(
        409,
        "Conflict",
        _unfulfilled(group, plural, name, why),
        name=name,
        group=group,
        kind=plural,
    )


def _unfulfilled(group: str, plural: str, name: str, why: str) -> str:
    return (
        f'Operation cannot be fulfilled on {_qualified(group, plural)} "{name}": {why}'
    )


def invalid(
    group: str, kind: str, name: str, refusal: InvalidManifest
) -> RejectedRequest:
    """Return the error for an invalid object, with one cause per problem."""
    problems = [
        FieldProblem(each.field or "<root>", _reason(each.problem), each.problem)
        for each in refusal.problems
    ]
    return _invalid(f'{kind}.{group} "{name}"', problems, _named(group, kind, name))


def invalid_field(
    group: str, kind: str, name: str, problem: FieldProblem
) -> RejectedRequest:
    """Return the error for one invalid field of an object."""
    return _invalid(f'{kind}.{group} "{name}"', [problem], _named(group, kind, name))


def immutable(
    group: str, kind: str, name: str, field: str, value: Any
) -> RejectedRequest:
    """Return the error for a change of a field that never changes."""
    about = f'Invalid value: "{str(value)[:64]}": field is immutable'
    return invalid_field(
        group, kind, name, FieldProblem(field, "FieldValueInvalid", about)
    )


def _reason(problem: str) -> str:
    return "FieldValueRequired" if problem == MISSING else "FieldValueInvalid"


def _named(group: str, kind: str, name: str) -> Tree:
    """Return the details that name an object, or only its kind."""
    details = {"group": group, "kind": kind}
    return {"name": name, **details} if name else details


def _invalid(
    what: str, problems: Sequence[FieldProblem], details: Tree
) -> RejectedRequest:
    causes = [
        {"reason": each.reason, "message": each.about, "field": each.field}
        for each in problems
    ]
    described = [f"{each.field}: {each.about}" for each in problems]
    told = described[0] if len(described) == 1 else f"[{', '.join(described)}]"
    return RejectedRequest(
        422, "Invalid", f"{what} is invalid: {told}", **details, causes=causes
    )


def invalid_option(
    options: str, field: str, reason: str, problem: str
) -> RejectedRequest:
    """Return the error for an invalid query parameter of a write.

    `options` is Kubernetes' name for the parameters of the verb, such as
    `PatchOptions`.
    """
    return invalid_options(options, [FieldProblem(field, reason, problem)])


def invalid_options(options: str, problems: Sequence[FieldProblem]) -> RejectedRequest:
    """Return the error for invalid query parameters, with one cause per problem."""
    return _invalid(
        f'{options}.{_OPTIONS_GROUP} ""',
        problems,
        _named(_OPTIONS_GROUP, options, ""),
    )


def apply_conflict(conflicts: Sequence[FieldConflict]) -> RejectedRequest:
    """Return the error for an apply that conflicts with other managers.

    It has one cause per field.
    """
    causes = [
        {
            "reason": "FieldManagerConflict",
            "message": f"conflict with {_owner(each.owner)}",
            "field": each.field,
        }
        for each in conflicts
    ]
    if len(conflicts) == 1:
        return RejectedRequest(
            409,
            "Conflict",
            f"Apply failed with 1 conflict: {causes[0]['message']}: {causes[0]['field']}",
            causes=causes,
        )
    lines = [f"Apply failed with {len(conflicts)} conflicts: "]
    for owner in dict.fromkeys(each.owner for each in conflicts):
        lines.append(f"conflicts with {_owner(owner)}:")
        lines += [f"- {each.field}" for each in conflicts if each.owner == owner]
    return RejectedRequest(
        409, "Conflict", lines[0] + "\n".join(lines[1:]), causes=causes
    )


def _owner(owner: FieldManager) -> str:
    name = json.dumps(owner.name, ensure_ascii=False)
    name += f' with subresource "{owner.subresource}"' if owner.subresource else ""
    return f"{name} using {owner.api_version}" if owner.operation == UPDATE else name


def bad_request(message: str) -> RejectedRequest:
    return RejectedRequest(400, "BadRequest", message)


def unauthorized(message: str = "Unauthorized") -> RejectedRequest:
    return RejectedRequest(401, "Unauthorized", message)


def forbidden(group: str, plural: str, name: str, message: str) -> RejectedRequest:
    who = f'{_qualified(group, plural)} "{name}"' if name else _qualified(group, plural)
    return RejectedRequest(
        403,
        "Forbidden",
        f"{who} is forbidden: {message}",
        name=name,
        group=group,
        kind=plural,
    )


def no_namespaces(name: str) -> RejectedRequest:
    """Return the error for a request for a namespace.

    If kubectl does not find an object, it requests the object's namespace. If that is
    not found either, kubectl reports only the namespace.
    """
    return forbidden(
        "",
        "namespaces",
        name,
        "this server does not store namespaces; objects may use any namespace name",
    )


def method_not_allowed(
    method: str, group: str = "", plural: str = ""
) -> RejectedRequest:
    details = {"group": group, "kind": plural} if plural else {}
    return RejectedRequest(
        405,
        "MethodNotAllowed",
        f"the server does not allow {method} on the requested resource",
        **details,
    )


def not_acceptable(message: str) -> RejectedRequest:
    """Return the error for an Accept header without a form that this server has."""
    return RejectedRequest(406, "NotAcceptable", message)


def too_large_version(wanted: int, known: int) -> RejectedRequest:
    """Return the error for a version that this front has not seen."""
    told = f"Too large resource version: {wanted}, current: {known}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": told}]
    return RejectedRequest(
        504, "Timeout", f"Timeout: {told}", causes=causes, retryAfterSeconds=1
    )


def unsupported_media_type(accepted: Sequence[str]) -> RejectedRequest:
    message = (
        "the body of the request was in an unknown format - accepted media types "
        f"include: {', '.join(accepted)}"
    )
    return RejectedRequest(415, "UnsupportedMediaType", message)


def compressed() -> RejectedRequest:
    return RejectedRequest(
        415,
        "UnsupportedMediaType",
        "compressed bodies are not supported; send it without Content-Encoding",
    )


def expired(what: str = "watch") -> RejectedRequest:
    return RejectedRequest(
        410, "Expired", f"The resourceVersion for the provided {what} is too old."
    )


def unavailable(message: str) -> RejectedRequest:
    return RejectedRequest(503, "ServiceUnavailable", message)


def not_yet(message: str) -> RejectedRequest:
    """Return an error after which clients repeat the request automatically.

    Use it only for requests that had no effect. A write with an unknown result must not
    be repeated blindly.
    """
    return RejectedRequest(503, "ServiceUnavailable", message, retryAfterSeconds=1)


def silent(message: str) -> Silent:
    """Return the error for a request to an object for which no worker answers."""
    return Silent(503, "ServiceUnavailable", message)


def undecided() -> RejectedRequest:
    """Return the error for a request that no authorizer has decided."""
    return not_yet(
        "the API server that authorizes users does not answer; try again in a moment"
    )


def too_many(message: str, seconds: int) -> RejectedRequest:
    return RejectedRequest(429, "TooManyRequests", message, retryAfterSeconds=seconds)


def too_large(limit: int) -> RejectedRequest:
    return RejectedRequest(
        413, "RequestEntityTooLarge", f"the request is larger than {limit} bytes"
    )


def too_many_operations(limit: int, given: int) -> RejectedRequest:
    """Return the error for a JSON patch with too many operations."""
    return RejectedRequest(
        413,
        "RequestEntityTooLarge",
        "Request entity too large: The allowed maximum operations in a JSON patch is "
        f"{limit}, got {given}",
    )


def _qualified(group: str, plural: str) -> str:
    return f"{plural}.{group}" if group else plural
