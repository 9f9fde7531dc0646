"""Validates the documents that clients write, and returns the manifests to store."""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from api_types.labels import MANAGED_FIELDS
from api_types.resources.kinds import KindInfo
from api_types.validation.manifests import (
    Admitted,
    InvalidManifest,
    admit,
    admit_update,
    dump,
    is_taken_while_deleting,
    load,
    without_unknown_fields,
)
from fleet_client.checks import CHECKS
from fleet_client.refs.tree import deleting
from front.serving import errors
from front.serving.requests import RequestedResource
from front.serving.writes.managers import OPTIONS
from front.store.projection import Tree

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
"""How unknown fields are handled: rejected, dropped with a warning, or dropped."""
_REFUSED = {
    "finalizers": "objects have no finalizers of users; remove the field",
    "ownerReferences": "objects are not deleted with an owner; remove the field, and "
    "delete this object with its owner",
}
_NAME_SUFFIX = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_VERSION_DIGITS_MAX = 20


def validation_of(parameters: Mapping[str, str], verb: str) -> str:
    """Return how a write handles unknown fields.

    The default is to reject them. Kubernetes would drop them, but then the object would
    differ from the writer's intention. Raises `RejectedRequest`.
    """
    given = parameters.get("fieldValidation") or STRICT
    if given not in (STRICT, WARN, IGNORE):
        problem = (
            f'Unsupported value: "{given[:64]}": supported values: "{IGNORE}", '
            f'"{STRICT}", "{WARN}"'
        )
        raise errors.invalid_option(
            OPTIONS[verb], "fieldValidation", "FieldValueNotSupported", problem
        )
    return given


def of_path(resource: RequestedResource, document: Tree) -> Tree:
    """Check the kind, namespace and name against the path, and fill in defaults.

    The annotation with the field owners is dropped, because users may not write it.
    Raises `RejectedRequest`.
    """
    info = resource.info
    if not info.user_may_apply:
        raise errors.method_not_allowed(
            f"writes to {info.kind}, which the control plane creates from "
            f"{info.written_instead},"
        )
    metadata = document.get("metadata")
    if metadata is None:
        metadata = {}
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata: must be an object with a name")
    _check_type(info, document, str(metadata.get("name") or ""))
    filled = {**metadata}
    if info.namespaced and filled.get("namespace") in (None, ""):
        filled["namespace"] = resource.namespace
    if info.namespaced and filled["namespace"] != resource.namespace:
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on "
            "the request"
        )
    if (
        not resource.name
        and not filled.get("name")
        and isinstance(filled.get("generateName"), str)
    ):
        filled["name"] = filled["generateName"] + "".join(
            secrets.choice(_ALPHABET) for _ in range(_NAME_SUFFIX)
        )
    filled.pop("generateName", None)
    if not resource.name and not filled.get("name"):
        raise errors.invalid_field(
            info.group,
            info.kind,
            "",
            errors.FieldProblem(
                "metadata.name",
                "FieldValueRequired",
                "Required value: name or generateName is required",
            ),
        )
    if resource.name and not filled.get("name"):
        raise errors.bad_request("the object has no name: name must be provided")
    if resource.name and filled["name"] != resource.name:
        raise errors.bad_request(
            "the name of the object does not match the name on the URL"
        )
    _check_refused(info, filled)
    annotations = filled.get("annotations")
    if isinstance(annotations, dict):
        filled["annotations"] = {
            key: value for key, value in annotations.items() if key != MANAGED_FIELDS
        }
    return {
        **document,
        "apiVersion": info.api_version,
        "kind": info.kind,
        "metadata": filled,
    }


def _check_type(info: KindInfo, document: Tree, name: str) -> None:
    """Raise `RejectedRequest` if a document has another type than its path."""
    if document.get("apiVersion") != info.api_version:
        raise errors.bad_request(
            f"the API version in the data ({str(document.get('apiVersion'))[:128]}) does "
            f"not match the expected API version ({info.api_version})"
        )
    kind = document.get("kind")
    if not isinstance(kind, str) or not kind:
        raise errors.bad_request(f"the object has no kind: it must be {info.kind}")
    if kind != info.kind:
        about = f'Invalid value: "{kind[:128]}": must be {info.kind}'
        problem = errors.FieldProblem("kind", "FieldValueInvalid", about)
        raise errors.invalid_field(info.group, kind[:128], name, problem)


def _check_refused(info: KindInfo, metadata: Tree) -> None:
    """Raise `RejectedRequest` for metadata that no workflow would honour."""
    for field, reason in _REFUSED.items():
        if metadata.get(field):
            problem = errors.FieldProblem(
                f"metadata.{field}", "FieldValueForbidden", f"Forbidden: {reason}"
            )
            raise errors.invalid_field(
                info.group, info.kind, str(metadata["name"]), problem
            )


def admit_document(
    resource: RequestedResource,
    document: Tree,
    before: Tree | None = None,
    validation: str = STRICT,
) -> Admitted:
    """Validate a document that changes `before`, if given. Raises `RejectedRequest`."""
    info = resource.info
    wanted: Mapping[str, Any] = {
        key: value for key, value in document.items() if key != "status"
    }
    unknown: tuple[str, ...] = ()
    if validation != STRICT:
        wanted, unknown = without_unknown_fields(wanted)
    try:
        admitted = admit(wanted, CHECKS, resource.namespace)
        if before and before.get("spec"):
            admit_update(load(before), admitted.manifest)
    except InvalidManifest as refusal:
        raise errors.invalid(
            info.group, info.kind, str(document["metadata"].get("name", "")), refusal
        ) from refusal
    if validation != WARN:
        return admitted
    about_unknown = tuple(f'unknown field "{path}"' for path in unknown)
    return replace(admitted, warnings=(*about_unknown, *admitted.warnings))


def stored_form(
    resource: RequestedResource, before: Tree | None, document: Tree
) -> Tree:
    """Return a document as it would be stored. Raises `RejectedRequest`."""
    return dump(admit_document(resource, document, before).manifest)


def named_version(resource: RequestedResource, document: Tree, before: Tree) -> str:
    """Return the version that a document names, or the current one.

    Raises `RejectedRequest` for a text that cannot be a version.
    """
    given = document["metadata"].get("resourceVersion")
    version = given or before["metadata"]["resourceVersion"]
    if (
        not isinstance(version, str)
        or len(version) > _VERSION_DIGITS_MAX
        or not (version.isascii() and version.isdecimal())
    ):
        raise errors.conflict(*resource.identity, errors.MODIFIED)
    return version


def check_identity(
    resource: RequestedResource, document: Tree, before: Tree, *, replaces: bool
) -> None:
    """Raise `RejectedRequest` if a document names another object than the stored one.

    The uid of a document that replaces an object is a precondition.
    """
    info = resource.info
    deletion = document["metadata"].get("deletionTimestamp")
    if deletion and deletion != before["metadata"].get("deletionTimestamp"):
        raise errors.immutable(
            info.group, info.kind, resource.name, "metadata.deletionTimestamp", deletion
        )
    given, present = document["metadata"].get("uid"), before["metadata"].get("uid")
    if given and given != present and not replaces:
        raise errors.immutable(
            info.group, info.kind, resource.name, "metadata.uid", given
        )
    if given and given != present:
        why = (
            f"Precondition failed: UID in precondition: {str(given)[:64]}, "
            f"UID in object meta: {present}"
        )
        raise errors.conflict(*resource.identity, why)


def is_there(tree: Tree) -> bool:
    """Return whether an object was accepted once, or is being deleted."""
    return bool(tree["metadata"].get("generation") or deleting(tree))


def is_taken(before: Tree, manifest: Tree) -> bool:
    """Return whether an object that is being deleted accepts a validated manifest."""
    return bool(before.get("spec")) and is_taken_while_deleting(
        load(before), load(manifest)
    )
