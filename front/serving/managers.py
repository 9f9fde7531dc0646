"""Field managers in requests: who writes, what an object is after an apply, and who owns its fields after any write."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from api_types.clock import timestamp, utc_now
from api_types.resources.kinds import KindInfo
from api_types.validation.legacy_shape import unflatten
from api_types.validation.manifests import InvalidManifest, check_part
from api_types.validation.normalize import NotStorable, drop_server_fields, non_string_keys, without_nulls
from front.applying import annotation, last_applied
from front.applying.fields import FieldSet
from front.applying.merging import Conflicts, Terms, applied, updated
from front.applying.owners import APPLY, NAME_MAX, UPDATE, Owner, Owners
from front.applying.shapes import shape_of
from front.applying.trees import fields_of
from front.serving import errors
from front.serving.requests import Resource
from front.store.projection import Tree

_BEFORE = "before-first-apply"
OPTIONS: Mapping[str, str] = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}
"""What Kubernetes calls the parameters of each verb."""
Stored = Callable[[Tree], Tree]
_METADATA = ("name", "labels", "annotations")


@dataclass(frozen=True)
class Manager:
    """Who writes, as the client names it. `force`: an apply may take fields of others."""

    name: str
    force: bool = False

    @classmethod
    def of(cls, parameters: Mapping[str, str], user_agent: str, verb: str, *, is_apply: bool) -> "Manager":
        """Read it from a request; without a name it is that of the client's program. Raises `Refused`."""
        options, name = OPTIONS[verb], parameters.get("fieldManager", "")
        if is_apply and not name:
            raise errors.invalid_option(options, "fieldManager", "FieldValueRequired", "Required value: is required for apply patch")
        if "force" in parameters and verb == "patch" and not is_apply:
            raise errors.invalid_option(options, "force", "FieldValueForbidden", "Forbidden: may not be specified for non-apply patch")
        if len(name.encode()) > NAME_MAX:
            problem = f"Too long: may not be more than {NAME_MAX} bytes"
            raise errors.invalid_option(options, "fieldManager", "FieldValueTooLong", problem)
        if not name.isprintable():
            problem = "Invalid value: should only contain printable characters"
            raise errors.invalid_option(options, "fieldManager", "FieldValueInvalid", problem)
        force = parameters.get("force", "false").lower() not in ("false", "0")
        program = "".join(filter(str.isprintable, user_agent.partition("/")[0])).encode()[:NAME_MAX].decode(errors="ignore")
        return cls(name or program, force)

    def owner(self, info: KindInfo, operation: str) -> Owner:
        """Give who owns what it writes."""
        return Owner(self.name, operation, info.api_version)


def owners_of(tree: Tree) -> Owners:
    """Give who owns what of an object."""
    return Owners.of_entries(tree["metadata"].get("managedFields") or [])


def after_update(info: KindInfo, before: Tree, document: Tree, manifest: Tree, manager: Manager) -> Owners:
    """Give who owns what after any write but an apply; without owners while the object was never applied.

    A document may say it itself, as one does in which a manager takes over from another; one empty entry says that nobody owns anything.
    Raises `Refused` for more than can be kept.
    """
    owners = _chosen(before, document)
    if not owners:
        return owners
    owner = manager.owner(info, UPDATE)
    fields, changed = updated(shape_of(info.kind), _written(before), _written(manifest), owners.fields, owner)
    return owners.written(fields, owner, timestamp(utc_now()) if changed else owners.times.get(owner, ""))


def _chosen(before: Tree, document: Tree) -> Owners:
    given, present = document["metadata"].get("managedFields"), before["metadata"].get("managedFields")
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
        # Who does not know this field may send anything.
        return owners_of(before)


def configuration(info: KindInfo, document: Tree, manager: Manager) -> Tree:
    """Give what of a document can be applied. Raises `Refused`.

    What no object could take is refused here, before it is merged with one: merging it may take seconds, and is done at each attempt.
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
    if info.kind == "ModelDeployment" and (layout := unflatten(config.get("spec"))).was_flat and not layout.problems:
        config["spec"] = layout.spec
    try:
        check_part(config, str(config["metadata"].get("namespace", "")))
    except InvalidManifest as refusal:
        raise errors.invalid(info.group, info.kind, str(config["metadata"].get("name", "")), refusal) from refusal
    owned = fields_of(shape_of(info.kind), _written(config))
    with_owners({**config, "spec": {}}, Owners({manager.owner(info, APPLY): owned}))
    return config


def after_apply(resource: Resource, config: Tree, before: Tree | None, manager: Manager, admitted: Stored) -> tuple[Tree, Owners]:
    """Apply a configuration to an object, or to nothing; gives the document, which is not checked yet, and its owners. Raises `Refused`.

    `admitted`: gives a document as it would be stored. Raises `Refused`.
    """
    info, shape = resource.info, shape_of(resource.info.kind)
    wanted, owner, now = _written(config), manager.owner(resource.info, APPLY), timestamp(utc_now())
    live = _written(before) if before else {"metadata": {"name": wanted["metadata"]["name"]}}
    owners = owners_of(before) if before else Owners()

    def stored(tree: Tree) -> Tree | None:
        try:
            return _written(admitted(_document(config, tree)))
        except errors.Refused:
            return None

    def as_stored(tree: Tree) -> Tree:
        # What is wrong with it is told when there is no conflict.
        found = stored(tree)
        return tree if found is None else found

    by_kubectl = manager.name == last_applied.MANAGER
    begins = bool(before) and not owners
    as_before = last_applied.unchanged(shape, live, stored) if by_kubectl or begins else frozenset()
    if begins:
        owners = _of_earlier_managers(info, live, as_before, now)
    allowed = as_before if by_kubectl else frozenset()
    try:
        result, fields = applied(shape, live, wanted, owners.fields, owner, terms=Terms(manager.force, allowed, as_stored))
    except Conflicts as found:
        raise errors.apply_conflict(found.conflicts) from None
    if by_kubectl:
        result = last_applied.rewritten(result, config)
    same = result == live and fields == owners.fields
    return _document(config, result), owners.written(fields, owner, owners.times.get(owner, now) if same else now)


def _of_earlier_managers(info: KindInfo, live: Tree, as_applied: FieldSet, now: str) -> Owners:
    """Say who owns what there was before the first apply: kubectl what is as it applied it, else managers of whom nothing is known.

    kubectl takes over what the manager has that owns its annotation, so nothing of others may be with it.
    """
    shape, unknown = shape_of(info.kind), Owner(_BEFORE, UPDATE, info.api_version)
    fields = updated(shape, {}, live, {}, unknown)[0]
    owners = Owners().written(fields, unknown, now)
    former = Owner(last_applied.FORMER_MANAGER, UPDATE, info.api_version)
    its_own = fields[unknown] & (as_applied | {last_applied.ANNOTATION})
    return owners.written({unknown: fields[unknown] - its_own, former: its_own}, former, now)


def _document(config: Tree, written: Tree) -> Tree:
    """Give a document with the identity of a configuration and with all else that is written."""
    identity = {field: value for field, value in config["metadata"].items() if field not in _METADATA}
    return {**config, "metadata": {**identity, "name": config["metadata"]["name"], **_metadata(written)}, "spec": written.get("spec")}


def is_same(before: Tree, manifest: Tree, owners: Owners) -> bool:
    """Whether a write would change nothing."""
    return _written(before) == _written(manifest) and owners_of(before).fields == owners.fields


def with_owners(manifest: Tree, owners: Owners) -> Tree:
    """Give what a workflow stores. Raises `Refused`."""
    try:
        return annotation.kept(manifest, owners)
    except annotation.TooMuch as problem:
        raise _too_much(manifest, problem) from None


def _too_much(document: Tree, problem: annotation.TooMuch) -> errors.Refused:
    name = str(document["metadata"].get("name", ""))
    return errors.Refused(422, "Invalid", f'{document["kind"]} "{name}" is invalid: metadata.managedFields: {problem}')


def _written(tree: Tree) -> Tree:
    """Give what users write of an object: no other field is owned."""
    written: Tree = {"metadata": _metadata(tree)}
    return written | ({"spec": tree["spec"]} if tree.get("spec") is not None else {})


def _metadata(tree: Tree) -> dict[str, Any]:
    held = tree.get("metadata") or {}
    return {field: held[field] for field in _METADATA if held.get(field) is not None}
