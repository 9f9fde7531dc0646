"""What clients write, as documents: whether each is of its path and of the object that is there, and what would be stored of it.

The `scale` subresource is one too, which kubectl, HPA and KEDA read and write.
"""

import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from api_types.labels import MANAGED_FIELDS
from api_types.validation.manifests import (
    Admitted,
    InvalidManifest,
    admit,
    admit_scale,
    admit_update,
    dump,
    is_taken_while_deleting,
    load,
    without_unknown_fields,
)
from client.manifests.checks import CHECKS
from client.refs.tree import at_path, deleting
from front.serving import errors
from front.serving.managers import OPTIONS
from front.serving.requests import Resource
from front.store.projection import Tree

STRICT, WARN, IGNORE = "Strict", "Warn", "Ignore"
"""What is done about fields that a kind does not have: they are refused, or left out and told, or left out."""
API_VERSION, KIND = "autoscaling/v1", "Scale"
_SCALE_METADATA = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
_NAME_SUFFIX = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_VERSION_DIGITS_MAX = 20


def validation_of(parameters: Mapping[str, str], verb: str) -> str:
    """Read from the parameters of a write what is done about unknown fields. Raises `Refused`.

    Who says nothing gets them refused: an API server would leave them out, and the object would not be what its writer means.
    """
    given = parameters.get("fieldValidation") or STRICT
    if given not in (STRICT, WARN, IGNORE):
        problem = f'Unsupported value: "{given[:64]}": supported values: "{IGNORE}", "{STRICT}", "{WARN}"'
        raise errors.invalid_option(OPTIONS[verb], "fieldValidation", "FieldValueNotSupported", problem)
    return given


def of_path(resource: Resource, document: Tree) -> Tree:
    """Check that a document is of the kind, namespace and name of its path, and fill in what it leaves out. Raises `Refused`.

    The annotation that says who owns what is not the user's to write.
    """
    info = resource.info
    if not info.user_may_apply:
        raise errors.method_not_allowed(f"writing of {info.kind}, which the control plane makes from {info.written_instead}")
    metadata = document.get("metadata")
    if not isinstance(metadata, dict):
        raise errors.bad_request("metadata: must be an object with the name")
    for field, expected in (("apiVersion", info.api_version), ("kind", info.kind)):
        if document.get(field, expected) != expected:
            raise errors.bad_request(f"{field}: the path is of {expected}, and the object says {str(document[field])[:128]!r}")
    filled = {**metadata}
    if info.namespaced and filled.setdefault("namespace", resource.namespace) != resource.namespace:
        raise errors.bad_request("the namespace of the provided object does not match the namespace sent on the request")
    if not resource.name and not filled.get("name") and isinstance(filled.get("generateName"), str):
        filled["name"] = filled["generateName"] + "".join(secrets.choice(_ALPHABET) for _ in range(_NAME_SUFFIX))
    filled.pop("generateName", None)
    if resource.name and filled.setdefault("name", resource.name) != resource.name:
        raise errors.bad_request("the name of the object does not match the name on the URL")
    if isinstance(annotations := filled.get("annotations"), dict):
        filled["annotations"] = {key: value for key, value in annotations.items() if key != MANAGED_FIELDS}
    return {**document, "apiVersion": info.api_version, "kind": info.kind, "metadata": filled}


def admit_document(resource: Resource, document: Tree, before: Tree | None = None, validation: str = STRICT) -> Admitted:
    """Check a document in full. Raises `Refused`. `before`: the object that it changes."""
    info = resource.info
    wanted: Mapping[str, Any] = {key: value for key, value in document.items() if key != "status"}
    unknown: tuple[str, ...] = ()
    if validation != STRICT:
        wanted, unknown = without_unknown_fields(wanted)
    try:
        admitted = admit(wanted, CHECKS, resource.namespace)
        if before and before.get("spec"):
            admit_update(load(before), admitted.manifest)
    except InvalidManifest as refusal:
        raise errors.invalid(info.group, info.kind, str(document["metadata"].get("name", "")), refusal) from refusal
    told = tuple(f'unknown field "{path}"' for path in unknown) if validation == WARN else ()
    return replace(admitted, warnings=(*told, *admitted.warnings))


def stored_form(resource: Resource, before: Tree | None, document: Tree) -> Tree:
    """Give a document as it would be stored. Raises `Refused`."""
    return dump(admit_document(resource, document, before).manifest)


def named_version(resource: Resource, document: Tree, before: Tree) -> str:
    """Give the resource version that a document names, else the present one. Raises `Refused` for what never was one."""
    version = document["metadata"].get("resourceVersion") or before["metadata"]["resourceVersion"]
    if not isinstance(version, str) or len(version) > _VERSION_DIGITS_MAX or not (version.isascii() and version.isdecimal()):
        raise errors.conflict(resource.info.group, resource.info.plural, resource.name, errors.MODIFIED)
    return version


def check_uid(resource: Resource, document: Tree, before: Tree) -> None:
    """Raise `Refused` if a document is of another object of that name."""
    given, present = document["metadata"].get("uid"), before["metadata"].get("uid")
    if given and given != present:
        why = f"Precondition failed: UID in precondition: {str(given)[:64]}, UID in object meta: {present}"
        raise errors.conflict(resource.info.group, resource.info.plural, resource.name, why)


def is_there(tree: Tree) -> bool:
    """Whether an object was ever accepted, or is being deleted."""
    return bool(tree["metadata"].get("generation") or deleting(tree))


def has_count(before: Tree, manifest: Tree) -> bool:
    """Whether a write leaves the count of replicas as it is, where the kind has one."""
    count = manifest["spec"].get("replicas")
    return count is not None and count == (before.get("spec") or {}).get("replicas")


def chosen_count(before: Tree, manifest: Tree) -> Any:
    """Give the count of replicas that a write sets; None if it leaves it as it is, or the kind has none."""
    return None if has_count(before, manifest) else manifest["spec"].get("replicas")


def is_taken(before: Tree, manifest: Tree) -> bool:
    """Whether an object that is being deleted takes a checked manifest."""
    return bool(before.get("spec")) and is_taken_while_deleting(load(before), load(manifest))


def scale_of(resource: Resource, tree: Tree) -> Tree:
    """Write the Scale of an object."""
    paths = resource.info.scale
    if paths is None:
        raise TypeError(resource.info.kind)
    metadata = {field: tree["metadata"][field] for field in _SCALE_METADATA if field in tree["metadata"]}
    spec = {"replicas": at_path(tree, paths.spec) or 0}
    status: dict[str, Any] = {"replicas": at_path(tree, paths.status) or 0}
    if selector := at_path(tree, paths.selector):
        status["selector"] = selector
    return {"kind": KIND, "apiVersion": API_VERSION, "metadata": metadata, "spec": spec, "status": status}


def wanted_replicas(resource: Resource, before: Tree, wanted: Tree) -> int:
    """Give the count that a Scale says for an object as it is. Raises `Refused` for one of another object.

    Whether it is of another state, the writer finds out by the version that it names.
    """
    spec, metadata = wanted.get("spec"), wanted.get("metadata")
    if not isinstance(spec, dict) or not isinstance(metadata, dict):
        raise errors.bad_request("a Scale has metadata, and spec.replicas")
    for field in ("name", "namespace", "uid"):
        given, present = metadata.get(field), before["metadata"].get(field)
        if given and given != present:
            raise errors.conflict(resource.info.group, resource.info.plural, resource.name, f"its {field} is {present}")
    try:
        return admit_scale(resource.namespace, resource.name, spec.get("replicas", 0))
    except InvalidManifest as refusal:
        raise errors.invalid("autoscaling", KIND, resource.name, refusal) from refusal
