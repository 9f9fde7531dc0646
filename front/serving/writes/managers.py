"""Field managers: results of applies, and owners of fields after any write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.clock import timestamp, utc_now
from api_types.resources.kinds import KindInfo
from api_types.validation.legacy_shape import unflatten
from api_types.validation.manifests import InvalidManifest, check_part
from api_types.validation.normalize import (
    NotStorable,
    drop_server_fields,
    non_string_keys,
    without_nulls,
)
from front.applying import annotation, last_applied
from front.applying.fields import FieldSet
from front.applying.merging import Conflicts, Terms, applied, updated
from front.applying.owners import APPLY, NAME_MAX, UPDATE, FieldManager, Owners
from front.applying.shapes import shape_of
from front.applying.trees import fields_of
from front.serving import errors
from front.serving.requests import RequestedResource
from front.store.projection import Tree

_BEFORE = "before-first-apply"
OPTIONS: Mapping[str, str] = {
    "create": "CreateOptions",
    "update": "UpdateOptions",
    "patch": "PatchOptions",
    "delete": "DeleteOptions",
    "deletecollection": "DeleteOptions",
}
"""Kubernetes' names for the parameters of each verb."""
Stored = Callable[[Tree], Tree]
_METADATA = ("name", "labels", "annotations")


@dataclass(frozen=True)
class Manager:
    """The field manager of a request.

    With `force`, an apply may take over fields of other managers.
    """

    name: str
    force: bool = False

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, str],
        user_agent: str,
        verb: str,
        *,
        is_apply: bool,
    ) -> "Manager":
        """Parse the field manager of a request.

        Without a `fieldManager` parameter, the name is that of the client's program in
        the User-Agent header. Raises `RejectedRequest`.
        """
        options, name = OPTIONS[verb], parameters.get("fieldManager", "")
        if is_apply and not name:
            raise errors.invalid_option(
                options,
                "fieldManager",
                "FieldValueRequired",
                "Required value: is required for apply patch",
            )
        if "force" in parameters and verb == "patch" and not is_apply:
            raise errors.invalid_option(
                options,
                "force",
                "FieldValueForbidden",
                "Forbidden: may not be specified for non-apply patch",
            )
        if len(name.encode()) > NAME_MAX:
            problem = f"Too long: may not be more than {NAME_MAX} bytes"
            raise errors.invalid_option(
                options, "fieldManager", "FieldValueTooLong", problem
            )
        if not name.isprintable():
            problem = "Invalid value: should only contain printable characters"
            raise errors.invalid_option(
                options, "fieldManager", "FieldValueInvalid", problem
            )
        force = parameters.get("force", "false").lower() not in ("false", "0")
        program = "".join(filter(str.isprintable, user_agent.partition("/")[0]))
        shortened = program.encode()[:NAME_MAX].decode(errors="ignore")
        return cls(name or shortened, force)

    def owner(self, info: KindInfo, operation: str) -> FieldManager:
        """Return the owner of the fields that this manager writes."""
        return FieldManager(self.name, operation, info.api_version)


def owners_of(tree: Tree) -> Owners:
    return Owners.of_entries(tree["metadata"].get("managedFields") or [])


def after_update(
    info: KindInfo, before: Tree, document: Tree, manifest: Tree, manager: Manager
) -> Owners:
    """Return the owners after a write other than an apply.

    An object that was never applied has no owners. A document may contain
    `managedFields`, for example if one manager takes over from another. A single empty
    entry removes all owners. Raises `RejectedRequest` if the owners exceed the space
    for them.
    """
    owners = _chosen(before, document)
    if not owners:
        return owners
    owner = manager.owner(info, UPDATE)
    fields, changed = updated(
        shape_of(info.kind), _written(before), _written(manifest), owners.fields, owner
    )
    time = timestamp(utc_now()) if changed else owners.times.get(owner, "")
    return owners.written(fields, owner, time)


def _chosen(before: Tree, document: Tree) -> Owners:
    given = document["metadata"].get("managedFields")
    present = before["metadata"].get("managedFields")
    if given == [{}]:
        return Owners()
    if given == present:
        return owners_of(before)
    try:
        annotation.check_size(given)
        return Owners.of_entries(given) or owners_of(before)
    except annotation.TooMuch as problem:
        raise _too_much(document, problem) from None
    except (ValueError, RecursionError):
        # Clients that do not know this field may send anything.
        return owners_of(before)


def configuration(info: KindInfo, document: Tree, manager: Manager) -> Tree:
    """Return the part of a document that can be applied.

    Call this before the merge, so that an invalid configuration is rejected early: a
    merge may take seconds and is repeated in each attempt. Raises `RejectedRequest`.
    """
    if document["metadata"].get("managedFields") is not None:
        raise errors.bad_request("metadata.managedFields must be nil")
    for at, problem in non_string_keys(document):
        raise errors.bad_request(f"{'.'.join(map(str, at)) or '<root>'}: {problem}")
    try:
        config = without_nulls(document)
    except NotStorable as error:
        raise errors.bad_request(f"the object {error}") from None
    drop_server_fields(config)
    if info.kind == "ModelDeployment":
        layout = unflatten(config.get("spec"))
        if layout.was_flat and not layout.problems:
            config["spec"] = layout.spec
    try:
        check_part(config, str(config["metadata"].get("namespace", "")))
    except InvalidManifest as refusal:
        raise errors.invalid(
            info.group, info.kind, str(config["metadata"].get("name", "")), refusal
        ) from refusal
    owned = fields_of(shape_of(info.kind), _written(config))
    with_owners({**config, "spec": {}}, Owners({manager.owner(info, APPLY): owned}))
    return config


def after_apply(
    resource: RequestedResource,
    config: Tree,
    before: Tree | None,
    manager: Manager,
    admitted: Stored,
) -> tuple[Tree, Owners]:
    """Apply a configuration to an object, or create one.

    Returns the unvalidated document and its owners. `admitted` returns the stored form
    of a document. Raises `RejectedRequest`.
    """
    info = resource.info
    shape = shape_of(info.kind)
    wanted = _written(config)
    owner = manager.owner(info, APPLY)
    now = timestamp(utc_now())
    if before:
        live = _written(before)
        owners = owners_of(before)
    else:
        live = {"metadata": {"name": wanted["metadata"]["name"]}}
        owners = Owners()

    def stored(tree: Tree) -> Tree | None:
        try:
            return _written(admitted(_document(config, tree)))
        except errors.RejectedRequest:
            return None

    def as_stored(tree: Tree) -> Tree:
        # Problems of the document are reported later, if there is no conflict.
        found = stored(tree)
        return tree if found is None else found

    by_kubectl = manager.name == last_applied.MANAGER
    begins = bool(before) and not owners
    as_before: FieldSet = frozenset()
    if by_kubectl or begins:
        as_before = last_applied.unchanged(shape, live, stored)
    if begins:
        owners = _of_earlier_managers(info, live, as_before, now)
    allowed = as_before if by_kubectl else frozenset()
    try:
        result, fields = applied(
            shape,
            live,
            wanted,
            owners.fields,
            owner,
            terms=Terms(manager.force, allowed, as_stored),
        )
    except Conflicts as found:
        raise errors.apply_conflict(found.conflicts) from None
    if by_kubectl:
        result = last_applied.rewritten(result, config)
    is_unchanged = result == live and fields == owners.fields
    time = owners.times.get(owner, now) if is_unchanged else now
    return _document(config, result), owners.written(fields, owner, time)


def _of_earlier_managers(
    info: KindInfo, live: Tree, as_applied: FieldSet, now: str
) -> Owners:
    """Return the owners of an object before its first apply.

    Fields with the value of the last client-side apply belong to kubectl, other fields
    to an unknown manager. kubectl takes over all fields of the manager that owns its
    annotation, so that manager must not own fields of others.
    """
    shape, unknown = (
        shape_of(info.kind),
        FieldManager(_BEFORE, UPDATE, info.api_version),
    )
    fields = updated(shape, {}, live, {}, unknown)[0]
    owners = Owners().written(fields, unknown, now)
    former = FieldManager(last_applied.FORMER_MANAGER, UPDATE, info.api_version)
    its_own = fields[unknown] & (as_applied | {last_applied.ANNOTATION})
    return owners.written(
        {unknown: fields[unknown] - its_own, former: its_own}, former, now
    )


def _document(config: Tree, written: Tree) -> Tree:
    """Combine the identity of a configuration with the written fields."""
    identity = {
        field: value
        for field, value in config["metadata"].items()
        if field not in _METADATA
    }
    return {
        **config,
        "metadata": {
            **identity,
            "name": config["metadata"]["name"],
            **_metadata(written),
        },
        "spec": written.get("spec"),
    }


def is_same(before: Tree, manifest: Tree, owners: Owners) -> bool:
    """Return whether a write would change nothing."""
    return (
        _written(before) == _written(manifest)
        and owners_of(before).fields == owners.fields
    )


def with_owners(manifest: Tree, owners: Owners) -> Tree:
    """Return the manifest with owners, as a workflow stores it.

    Raises `RejectedRequest`.
    """
    try:
        return annotation.kept(manifest, owners)
    except annotation.TooMuch as problem:
        raise _too_much(manifest, problem) from None


def _too_much(document: Tree, problem: annotation.TooMuch) -> errors.RejectedRequest:
    name = str(document["metadata"].get("name", ""))
    return errors.RejectedRequest(
        422,
        "Invalid",
        f'{document["kind"]} "{name}" is invalid: metadata.managedFields: {problem}',
    )


def _written(tree: Tree) -> Tree:
    """Return the fields that users write. No other field is owned."""
    written: Tree = {"metadata": _metadata(tree)}
    if tree.get("spec") is not None:
        written["spec"] = tree["spec"]
    return written


def _metadata(tree: Tree) -> dict[str, Any]:
    held = tree.get("metadata") or {}
    return {field: held[field] for field in _METADATA if held.get(field) is not None}
