"""Create, update, patch and delete: requests become updates and signals of the workflow that owns the object.

Each is checked in full before it is sent, and the answer is the object as its workflow has it then.
"""

import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import structlog

from api_types.messages.delivery import MessageT, ReceiverT, Signal
from api_types.messages.entities import Delete, RecordEvent, Replace, Scale
from api_types.messages.signals import EntitySignals, ModelDeploymentSignals
from api_types.validation.manifests import Admitted, InvalidManifest, admit, admit_update, dump, load
from client.errors import AlreadyExists, CommandFailed, Conflict, NoAnswer, NotFound, Refused
from client.follow.requests import new_request_id, until_applied
from client.manifests.checks import CHECKS
from client.refs.targets import Target
from client.refs.tree import deleting
from client.temporal.control_plane import ControlPlane
from front.access.recorded import recorded
from front.applying.owners import Owners
from front.audit.event import AuditEvent, Change
from front.serving import bodies, errors
from front.serving.managers import Manager, after_apply, after_update, configuration, is_same, with_owners
from front.serving.requests import Resource
from front.serving.scaling import scale_of, wanted_replicas
from front.store.projection import Projection, Tree, shown

log = structlog.get_logger("modelplane.front")

# A patch is made again when the object was changed meanwhile.
_ATTEMPTS = 5
_NAME_SUFFIX = 5
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
_NOT_FOUND = 404
_REPLACED = ("labels", "annotations", "managedFields")
_DELETED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}


class Writer:
    """Carries out what users request."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        """`projection`: what was written is there at once. Each method notes in `event` what it sends, and by whom."""
        self._plane, self._projection = plane, projection

    async def create(self, resource: Resource, document: Tree, event: AuditEvent, *, dry: bool) -> tuple[Tree, tuple[str, ...]]:
        """Create an object; gives it with warnings. Raises `Refused`."""
        return await self._create(resource, _named(resource, document), Owners(), event, dry=dry)

    async def _create(
        self, resource: Resource, document: Tree, owners: Owners, event: AuditEvent, *, dry: bool
    ) -> tuple[Tree, tuple[str, ...]]:
        event.name = str(document["metadata"].get("name") or "")
        if (document.get("metadata") or {}).get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        admitted = await bodies.apart(_admitted, resource, document)
        named = Resource(resource.info, resource.namespace, admitted.manifest.metadata.name)
        target = _target(named)
        begun = await self._exists(target)
        if begun:
            held = await self.present(named)
            if _is_there(held):
                raise errors.already_exists(resource.info.group, resource.info.plural, named.name)
        manifest = with_owners(dump(admitted.manifest), owners)
        if dry:
            return shown(manifest), admitted.warnings
        message = Replace(request_id=new_request_id(), by=recorded(event.user), manifest=manifest)
        # A create that no worker answered has begun an object without a spec.
        change = event.sends(named.name, message.request_id, None)
        return await self._replaced(named, message, change, create=not begun), admitted.warnings

    async def update(
        self, resource: Resource, document: Tree, manager: Manager, event: AuditEvent, *, dry: bool
    ) -> tuple[Tree, tuple[str, ...]]:
        """Replace an object by what a client made of it; gives it with warnings. Raises `Refused`."""
        document = _named(resource, document)
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self.present(resource)
            _check_identity(resource, document, before)
            admitted = await bodies.apart(_admitted, resource, document, before)
            owners = await bodies.apart(after_update, resource.info, before, document, dump(admitted.manifest), manager)
            # What is kept of the owners is of that state alone.
            version = str(document["metadata"].get("resourceVersion") or (before["metadata"]["resourceVersion"] if owners else ""))
            try:
                return await self._update(resource, before, admitted, owners, event, version=version, dry=dry), admitted.warnings
            except errors.Refused as refusal:
                if not _is_stale(refusal) or attempt == _ATTEMPTS or not owners or document["metadata"].get("resourceVersion"):
                    raise
        raise AssertionError(_ATTEMPTS)

    async def _update(
        self, resource: Resource, before: Tree, admitted: Admitted, owners: Owners, event: AuditEvent, *, version: str, dry: bool
    ) -> Tree:
        manifest = with_owners(dump(admitted.manifest), owners)
        if dry:
            metadata = {key: value for key, value in before["metadata"].items() if key not in _REPLACED}
            planned = shown(manifest)
            return {**before, **planned, "metadata": {**metadata, **planned["metadata"]}}
        message = Replace(request_id=new_request_id(), by=recorded(event.user), resource_version=version, manifest=manifest)
        change = event.sends(resource.name, message.request_id, before)
        return await self._replaced(resource, message, change, create=False)

    async def patch(
        self, resource: Resource, kind: str, patch: Any, manager: Manager, event: AuditEvent, *, dry: bool
    ) -> tuple[Tree, tuple[str, ...]]:
        """Change some fields of an object; gives it with warnings. Raises `Refused`."""
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self.present(resource)
            document = await bodies.apart(bodies.patched, before, kind, patch)
            metadata = document.get("metadata")
            theirs = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
            try:
                return await self.update(resource, document, manager, event, dry=dry)
            except errors.Refused as refusal:
                # One that names a version is meant for that state alone.
                if not _is_stale(refusal) or attempt == _ATTEMPTS or theirs != before["metadata"]["resourceVersion"]:
                    raise
        raise AssertionError(_ATTEMPTS)

    async def apply(
        self,
        resource: Resource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        may_create: Callable[[], Awaitable[None]],
        *,
        dry: bool,
    ) -> tuple[Tree, tuple[str, ...], bool]:
        """Apply a configuration; gives the object with warnings, and whether it was created. Raises `Refused`.

        `may_create`: raises `Refused` if the user may not create the object; it is asked where there is none.
        """
        config = await bodies.apart(configuration, resource.info, _named(resource, document))
        spec = config.get("spec")
        count = spec.get("replicas") if resource.info.scale and isinstance(spec, dict) else None
        given = {field: document["metadata"].get(field) for field in ("uid", "resourceVersion")}
        for attempt in range(1, _ATTEMPTS + 1):
            before = await self._held(resource)
            stored = partial(_stored, resource, before)
            try:
                if before is None:
                    await may_create()
                    if given["uid"]:
                        raise errors.conflict(resource.info.group, resource.info.plural, resource.name, "there is no object with this uid")
                    wanted, owners = await bodies.apart(after_apply, resource, config, None, manager, stored)
                    created = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": given["resourceVersion"]}}
                    return *await self._create(resource, created, owners, event, dry=dry), True
                _check_identity(resource, document, before)
                wanted, owners = await bodies.apart(after_apply, resource, config, before, manager, stored)
                return *await self._apply(resource, before, wanted, owners, event, count=count, dry=dry), False
            except errors.Refused as refusal:
                if not _is_stale(refusal) or attempt == _ATTEMPTS or any(given.values()):
                    raise
        raise AssertionError(_ATTEMPTS)

    async def _apply(
        self, resource: Resource, before: Tree, wanted: Tree, owners: Owners, event: AuditEvent, *, count: Any, dry: bool
    ) -> tuple[Tree, tuple[str, ...]]:
        """Write what was made of an object. `count`: of replicas, if the configuration says it."""
        admitted = await bodies.apart(_admitted, resource, wanted, before)
        manifest = dump(admitted.manifest)
        if is_same(before, manifest, owners):
            return before, admitted.warnings
        version = before["metadata"]["resourceVersion"]
        tree = await self._update(resource, before, admitted, owners, event, version=version, dry=dry)
        if dry or count is None or tree["spec"]["replicas"] == count:
            return tree, admitted.warnings
        # The workflow takes a count that was applied before for none of a user's own, and keeps that of an autoscaler.
        message = Scale(request_id=new_request_id(), by=recorded(event.user), replicas=count)
        change = event.sends(resource.name, message.request_id, before)
        return await self._signalled(resource, ModelDeploymentSignals.SCALE, message, change) or tree, admitted.warnings

    async def delete(self, resource: Resource, options: Mapping[str, Any], event: AuditEvent, *, dry: bool) -> Tree:
        """Request the deletion of an object; gives it as it is then, or a Status if it is gone. Raises `Refused`."""
        if options.get("propagationPolicy") == "Orphan" or options.get("orphanDependents"):
            raise errors.bad_request("propagationPolicy: Orphan is not possible here: what belongs to an object is deleted with it")
        before = await self.present(resource)
        metadata = before["metadata"]
        wanted = options.get("preconditions")
        for field, value in (wanted if isinstance(wanted, dict) else {}).items():
            if field in ("uid", "resourceVersion") and value and value != metadata.get(field):
                why = f"the {field} in the precondition ({str(value)[:64]}) does not match the {field} in record ({metadata.get(field)})"
                raise errors.conflict(resource.info.group, resource.info.plural, resource.name, why)
        if dry or deleting(before):
            return before
        message = Delete(request_id=new_request_id(), by=recorded(event.user), uid=metadata["uid"])
        change = event.sends(resource.name, message.request_id, before)
        return await self._signalled(resource, EntitySignals.DELETE, message, change) or _DELETED

    async def scale(
        self,
        resource: Resource,
        wanted: Callable[[Tree], Tree],
        event: AuditEvent,
        *,
        dry: bool = False,
        request_id: str = "",
        reason: str = "",
    ) -> Tree:
        """Set the replica count; `wanted` makes the Scale that is requested of the one that there is. Raises `Refused`.

        `request_id`: the same again changes nothing; empty for a request that is never repeated.
        """
        before = await self.present(resource)
        document = wanted(scale_of(resource, before))
        return await self._scaled(resource, before, document, event, dry=dry, request_id=request_id, reason=reason)

    async def patch_scale(self, resource: Resource, kind: str, patch: Any, event: AuditEvent, *, dry: bool) -> Tree:
        """Set the replica count by a patch of the Scale. Raises `Refused`."""
        before = await self.present(resource)
        document = await bodies.apart(bodies.patched, scale_of(resource, before), kind, patch)
        return await self._scaled(resource, before, document, event, dry=dry)

    async def _scaled(
        self, resource: Resource, before: Tree, document: Tree, event: AuditEvent, *, dry: bool, request_id: str = "", reason: str = ""
    ) -> Tree:
        count = wanted_replicas(resource, before, document)
        if dry:
            return {**scale_of(resource, before), "spec": {"replicas": count}}
        message = Scale(request_id=request_id or new_request_id(), by=recorded(event.user), replicas=count, reason=reason)
        change = event.sends(resource.name, message.request_id, before)
        after = await self._signalled(resource, ModelDeploymentSignals.SCALE, message, change)
        if after is None:
            raise errors.not_found(resource.info.group, resource.info.plural, resource.name)
        return scale_of(resource, after)

    async def _signalled(self, resource: Resource, signal: Signal[ReceiverT, MessageT], message: MessageT, change: Change) -> Tree | None:
        """Send a signal and wait until it is applied; gives the object then, None if it is gone. Raises `Refused`."""
        target = _target(resource)
        try:
            await self._plane.signal(target, signal, message)
            requested = await until_applied(self._plane, target, change.request_id)
        except NotFound:
            return None
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        if requested.gone:
            return None
        if requested.tree is None:
            raise errors.unavailable("Temporal has the request, and no worker has carried it out yet; it is done once one runs")
        change.after = shown(requested.tree)
        return self._projection.put(resource.key, change.after).tree

    async def record_event(self, resource: Resource, message: RecordEvent, event: AuditEvent) -> bool:
        """Have an event recorded; False if the object does not exist. Does not wait for a worker. Raises `Refused`."""
        event.sends(resource.name, message.request_id, None)
        try:
            await self._plane.signal(_target(resource), ModelDeploymentSignals.RECORD_EVENT, message)
        except NotFound:
            event.not_sent(resource.name)
            return False
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        return True

    async def present(self, resource: Resource) -> Tree:
        """Give an object as its workflow has it now. Raises `Refused`."""
        try:
            tree = await self._plane.describe(_target(resource))
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        return shown(tree)

    async def _held(self, resource: Resource) -> Tree | None:
        """Give an object as its workflow has it now; None if there is none, or only one that was never accepted. Raises `Refused`."""
        try:
            held = await self.present(resource)
        except errors.Refused as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            return None
        return held if _is_there(held) else None

    async def _exists(self, target: Target) -> bool:
        try:
            return await self._plane.exists(target)
        except CommandFailed as failure:
            log.warning("a request was not answered", problem=failure.message, details=failure.details)
            raise errors.unavailable("Temporal does not answer") from failure

    async def _replaced(self, resource: Resource, message: Replace, change: Change, *, create: bool) -> Tree:
        try:
            tree = await self._plane.replace(_target(resource), message, create=create)
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        change.after = shown(tree)
        return self._projection.put(resource.key, change.after).tree


def _target(resource: Resource) -> Target:
    return Target(resource.info, resource.namespace, resource.name)


def _named(resource: Resource, document: Tree) -> Tree:
    """Check that a document is of the kind, namespace and name of its path, and fill in what it leaves out. Raises `Refused`."""
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
    return {**document, "apiVersion": info.api_version, "kind": info.kind, "metadata": filled}


def _admitted(resource: Resource, document: Tree, before: Tree | None = None) -> Admitted:
    info = resource.info
    try:
        admitted = admit({key: value for key, value in document.items() if key != "status"}, CHECKS, resource.namespace)
        if before and before.get("spec"):
            admit_update(load(before), admitted.manifest)
    except InvalidManifest as refusal:
        raise errors.invalid(info.group, info.kind, str(document["metadata"].get("name", "")), refusal) from refusal
    return admitted


def _stored(resource: Resource, before: Tree | None, document: Tree) -> Tree:
    """Give a document as it would be stored. Raises `Refused`."""
    return dump(_admitted(resource, document, before).manifest)


def _check_identity(resource: Resource, document: Tree, before: Tree) -> None:
    """Raise `Refused` if a document is of another object of that name, or of another state of it."""
    for field in ("uid", "resourceVersion"):
        given, present = document["metadata"].get(field), before["metadata"].get(field)
        if given and given != present:
            why = errors.MODIFIED
            if field == "uid":
                why = f"Precondition failed: UID in precondition: {str(given)[:64]}, UID in object meta: {present}"
            raise errors.conflict(resource.info.group, resource.info.plural, resource.name, why)


def _is_there(tree: Tree) -> bool:
    """Whether an object was ever accepted, or is being deleted."""
    return bool(tree["metadata"].get("generation") or deleting(tree))


def _is_stale(refusal: errors.Refused) -> bool:
    """Whether a request may be carried out once the object is read again; a conflict of managers stays."""
    return refusal.status["reason"] in ("Conflict", "AlreadyExists") and "causes" not in refusal.status.get("details", {})


def _refusal(resource: Resource, failure: CommandFailed) -> errors.Refused:
    group, plural = resource.info.group, resource.info.plural
    match failure:
        case AlreadyExists():
            return errors.already_exists(group, plural, resource.name)
        case NotFound():
            return errors.not_found(group, plural, resource.name)
        case Conflict():
            return errors.conflict(group, plural, resource.name, failure.message)
        case Refused():
            return errors.Refused(422, "Invalid", f'{resource.info.kind}.{group} "{resource.name}" is invalid: {failure.message}')
        case _:
            log.warning("a request was not answered", problem=failure.message, details=failure.details)
            return errors.unavailable("no worker answers" if isinstance(failure, NoAnswer) else "Temporal does not answer")
