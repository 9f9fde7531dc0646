"""Create, update, patch and delete: requests become updates and signals of the workflow that owns the object.

Each is checked in full before it is sent, and the answer is the object as its workflow has it then.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import structlog

from api_types.messages.delivery import MessageT, ReceiverT, Signal
from api_types.messages.entities import Delete, RecordEvent, Replace, RetryNow, Scale
from api_types.messages.signals import EntitySignals, ModelDeploymentSignals
from api_types.validation.manifests import Admitted, dump
from client.errors import AlreadyExists, CommandFailed, Conflict, NoAnswer, NotFound, Refused
from client.follow.requests import new_request_id, until_applied
from client.refs.targets import Target
from client.refs.tree import deleting
from client.temporal.control_plane import ControlPlane
from front.access.recorded import recorded
from front.applying.annotation import WITH_WRITE
from front.applying.last_applied import FORMER_MANAGER, last_applied_of
from front.applying.owners import Owners
from front.audit.event import AuditEvent, Change
from front.serving import bodies, errors
from front.serving.managers import Manager, after_apply, after_update, configuration, is_same, with_owners
from front.serving.requests import Resource
from front.serving.written import (
    STRICT,
    admit_document,
    check_uid,
    chosen_count,
    has_count,
    is_taken,
    is_there,
    named_version,
    of_path,
    scale_of,
    stored_form,
    wanted_replicas,
)
from front.store.projection import Projection, Tree, shown, version_of
from front.store.turns import Turns

log = structlog.get_logger("modelplane.front")

# How long a write is made again because the object was changed between reading and writing, and the pauses between two attempts.
_REPEATED_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.02
_PAUSE_SECONDS_MAX = 0.5
_RANDOM = secrets.SystemRandom()
# What an apply meets where others create or delete its object at the same moment.
_CHANGED_BY_OTHERS = ("AlreadyExists", "NotFound")
_NOT_FOUND = 404
_MAY_BE_MADE = "no worker answers; Temporal may make the change once one does, unless the object was changed before: read it again then"
# What programs call themselves that apply at the client: the same manifest again does not undo the count of an autoscaler. Of the others,
# as `kubectl apply` under another name, what they send is known as applied if the annotation of what was applied last changes with it.
_APPLY_AT_CLIENT = (FORMER_MANAGER, "argocd-controller")
_REPLACED = ("labels", "annotations", "managedFields")
_DELETED = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
ResultT = TypeVar("ResultT")


class Writer:
    """Carries out what users request."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        """`projection`: what was written is there at once. Each method notes in `event` what it sends, and by whom."""
        self._plane, self._projection, self._turns = plane, projection, Turns(errors.Silent, _behind_silence)

    async def create(
        self, resource: Resource, document: Tree, event: AuditEvent, *, dry: bool, validation: str = STRICT
    ) -> tuple[Tree, tuple[str, ...]]:
        """Create an object; gives it with warnings. Raises `Refused`. `validation`: what is done about unknown fields."""
        named = of_path(resource, document)
        return await _repeated(lambda: self._create(resource, named, Owners(), event, dry=dry, validation=validation))

    async def _create(
        self, resource: Resource, document: Tree, owners: Owners, event: AuditEvent, *, dry: bool, validation: str = STRICT
    ) -> tuple[Tree, tuple[str, ...]]:
        event.name = str(document["metadata"].get("name") or "")
        if (document.get("metadata") or {}).get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        admitted = await bodies.apart(admit_document, resource, document, None, validation)
        named = Resource(resource.info, resource.namespace, admitted.manifest.metadata.name)
        target = _target(named)
        begun, version = await self._exists(target), ""
        if begun:
            held = await self.present(named)
            if is_there(held):
                raise errors.already_exists(resource.info.group, resource.info.plural, named.name)
            version = str(held["metadata"].get("resourceVersion") or "")
        manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
        if dry:
            return shown(manifest), admitted.warnings
        message = Replace(request_id=new_request_id(), by=recorded(event.user), resource_version=version, manifest=manifest)
        # A create that no worker answered has begun an object without a spec.
        change = event.sends(named.name, message.request_id, None)
        return await self._replaced(named, message, change, create=not begun), admitted.warnings

    async def update(
        self,
        resource: Resource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        *,
        dry: bool,
        reason: str = "",
        validation: str = STRICT,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Replace an object by what a client made of it; gives it with warnings. Raises `Refused`.

        `reason`: why, for kinds that record it; `validation`: what is done about unknown fields.
        """
        named = of_path(resource, document)
        names_version = bool(named["metadata"].get("resourceVersion"))

        async def of(before: Tree) -> tuple[Tree, tuple[str, ...]]:
            admitted, owners = await self._made(resource, named, before, manager, validation)
            # What is kept of the owners is of that state alone; an object without any may get some meanwhile.
            version = named_version(resource, named, before)
            manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
            tree = await self._update(resource, before, manifest, event, version=version, dry=dry, reason=reason)
            # Who names no version has not seen the present count, and may have chosen the one of a file long ago.
            count = chosen_count(before, manifest) if names_version else None
            return await self._with_count(resource, tree, count, event), admitted.warnings

        return await self._written(resource, of, event, names_version=names_version, asks_first=dry)

    async def patch(
        self, resource: Resource, kind: str, patch: Any, manager: Manager, event: AuditEvent, *, dry: bool, validation: str = STRICT
    ) -> tuple[Tree, tuple[str, ...]]:
        """Change some fields of an object; gives it with warnings. Raises `Refused`."""
        names_version = await bodies.apart(bodies.names_version, kind, patch)
        asks_first = dry or await bodies.apart(bodies.reads_status, kind, patch)

        async def of(before: Tree) -> tuple[Tree, tuple[str, ...]]:
            document = of_path(resource, await bodies.apart(bodies.patched, before, kind, patch))
            admitted, owners = await self._made(resource, document, before, manager, validation)
            version = named_version(resource, document, before)
            manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
            keeps = has_count(before, manifest)
            tree = await self._update(resource, before, manifest, event, version=version, keeps_replicas=keeps, dry=dry)
            is_applied = manager.name in _APPLY_AT_CLIENT or last_applied_of(manifest) != last_applied_of(before)
            count = None if is_applied else chosen_count(before, manifest)
            return await self._with_count(resource, tree, count, event), admitted.warnings

        return await self._written(resource, of, event, names_version=names_version, asks_first=asks_first)

    async def _written(
        self, resource: Resource, of: Callable[[Tree], Awaitable[ResultT]], event: AuditEvent, *, names_version: bool, asks_first: bool
    ) -> ResultT:
        """Write an object in turn, from what it is before. Raises `Refused`. `of`: makes the change of that.

        A change that is of any state is first made of the one that is known here, which spares a query. That may be old: the workflow finds
        out by its version, and what is refused before anything is sent is refused only if it is of the present state too.
        `asks_first`: it depends on more than labels, annotations and spec, of which alone the version is.
        """

        async def of_present() -> ResultT:
            return await of(await self.present(resource))

        async with self._turns.of(resource.key):
            if names_version:
                return await of_present()
            if known := None if asks_first else self._known(resource):
                try:
                    return await of(known)
                except errors.Refused as refusal:
                    if event.changes and refusal.code == _NOT_FOUND:
                        event.not_sent(resource.name)
                    elif event.changes and not isinstance(refusal, errors.Stale):
                        raise
            return await _repeated(of_present)

    def _known(self, resource: Resource) -> Tree | None:
        """Give an object as it is known here, None where a change cannot be made of that."""
        known = self._projection.get(resource.key)
        if known is None:
            return None
        # Who owns the count depends on who scaled last, which is no part of a manifest: its version is the same after it.
        return None if resource.info.scale and known.tree["metadata"].get("managedFields") else known.tree

    async def _made(self, resource: Resource, document: Tree, before: Tree, manager: Manager, validation: str) -> tuple[Admitted, Owners]:
        """Give what a document makes of an object, and who owns what then. Raises `Refused`."""
        check_uid(resource, document, before)
        admitted = await bodies.apart(admit_document, resource, document, before, validation)
        return admitted, await bodies.apart(after_update, resource.info, before, document, dump(admitted.manifest), manager)

    async def _update(
        self,
        resource: Resource,
        before: Tree,
        manifest: Tree,
        event: AuditEvent,
        *,
        version: str,
        dry: bool,
        keeps_replicas: bool = False,
        reason: str = "",
    ) -> Tree:
        """Write what was made of an object. `version`: at which its manifest has to be as it is now; `keeps_replicas` as in `Replace`."""
        if deleting(before) and not await bodies.apart(is_taken, before, manifest):
            why = "the object is being deleted; apply it again when it is gone"
            raise errors.conflict(resource.info.group, resource.info.plural, resource.name, why)
        if dry:
            await self._check_manifest(resource, before, version)
            metadata = {key: value for key, value in before["metadata"].items() if key not in _REPLACED}
            planned = shown(manifest)
            return {**before, **planned, "metadata": {**metadata, **planned["metadata"]}}
        message = Replace(
            request_id=new_request_id(),
            by=recorded(event.user),
            resource_version=version,
            keeps_replicas=keeps_replicas,
            manifest=manifest,
            reason=reason,
        )
        change = event.sends(resource.name, message.request_id, before)
        try:
            return await self._replaced(resource, message, change, create=False)
        except errors.Stale:
            # A client that reads it again now is to see at least this, unless another object has the name by now.
            self._projection.answered(resource.key, None, before)
            raise

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
        config = await bodies.apart(configuration, resource.info, of_path(resource, document), manager)
        names_version = bool(document["metadata"].get("resourceVersion"))

        async def once() -> tuple[Tree, tuple[str, ...], bool]:
            before = await self._held(resource)
            stored = partial(stored_form, resource, before)
            if before is None:
                await may_create()
                if document["metadata"].get("uid"):
                    raise errors.conflict(resource.info.group, resource.info.plural, resource.name, "there is no object with this uid")
                wanted, owners = await bodies.apart(after_apply, resource, config, None, manager, stored)
                given = document["metadata"].get("resourceVersion")
                created = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": given}}
                return *await self._create(resource, created, owners, event, dry=dry), True
            check_uid(resource, document, before)
            wanted, owners = await bodies.apart(after_apply, resource, config, before, manager, stored)
            version = named_version(resource, document, before)
            wanted = {**wanted, "metadata": {**wanted["metadata"], "resourceVersion": version}}
            return *await self._apply(resource, before, wanted, owners, event, config=config, dry=dry), False

        async with self._turns.of(resource.key):
            return await (once() if names_version else _repeated(once, _CHANGED_BY_OTHERS))

    async def _apply(
        self,
        resource: Resource,
        before: Tree,
        wanted: Tree,
        owners: Owners,
        event: AuditEvent,
        *,
        config: Tree,
        dry: bool,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Write what a configuration makes of an object."""
        admitted = await bodies.apart(admit_document, resource, wanted, before)
        manifest = dump(admitted.manifest)
        version = wanted["metadata"]["resourceVersion"]
        # Whether another version than the present one is of the same manifest, its workflow knows.
        if not deleting(before) and version == before["metadata"]["resourceVersion"] and is_same(before, manifest, owners):
            return before, admitted.warnings
        spec = config.get("spec")
        count = spec.get("replicas") if resource.info.scale and isinstance(spec, dict) else None
        keeps = count is None and has_count(before, manifest)
        manifest = await bodies.apart(with_owners, manifest, owners)
        tree = await self._update(resource, before, manifest, event, version=version, keeps_replicas=keeps, dry=dry)
        return await self._with_count(resource, tree, count, event), admitted.warnings

    async def _with_count(self, resource: Resource, tree: Tree, count: Any, event: AuditEvent) -> Tree:
        """Scale an object that was just written to the count that its writer chose, if it has another; gives it. Raises `Refused`.

        The workflow takes a count that was applied before for none of a user's own, and keeps that of an autoscaler.
        """
        if count is None or tree["spec"].get("replicas") == count:
            return tree
        message = Scale(request_id=f"{WITH_WRITE}{new_request_id()}", by=recorded(event.user), replicas=count)
        change = event.sends(resource.name, message.request_id, tree)
        return await self._signalled(resource, ModelDeploymentSignals.SCALE, message, change) or tree

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
        async with self._turns.of(resource.key):
            before = await self.present(resource)
            document = wanted(scale_of(resource, before))
            return await self._scaled(resource, before, document, event, dry=dry, request_id=request_id, reason=reason)

    async def patch_scale(self, resource: Resource, kind: str, patch: Any, event: AuditEvent, *, dry: bool) -> Tree:
        """Set the replica count by a patch of the Scale. Raises `Refused`."""
        async with self._turns.of(resource.key):
            before = await self.present(resource)
            document = await bodies.apart(bodies.patched, scale_of(resource, before), kind, patch)
            return await self._scaled(resource, before, document, event, dry=dry)

    async def _scaled(
        self, resource: Resource, before: Tree, document: Tree, event: AuditEvent, *, dry: bool, request_id: str = "", reason: str = ""
    ) -> Tree:
        count = wanted_replicas(resource, before, document)
        await self._check_manifest(resource, before, named_version(resource, document, before))
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
        target, known = _target(resource), self._projection.get(resource.key)
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
            raise errors.silent("Temporal has the request, and no worker has carried it out yet; it is done once one runs")
        change.after = shown(requested.tree)
        self._projection.answered(resource.key, known, change.after)
        return change.after

    async def retry(self, resource: Resource, event: AuditEvent) -> Tree:
        """Have failed steps of an object tried at once; gives it. Raises `Refused`."""
        before = await self.present(resource)
        message = RetryNow(request_id=new_request_id(), by=recorded(event.user))
        change = event.sends(resource.name, message.request_id, before)
        after = await self._signalled(resource, EntitySignals.RETRY_NOW, message, change)
        if after is None:
            raise errors.not_found(resource.info.group, resource.info.plural, resource.name)
        return after

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
        return shown(await self.asked(resource, lambda plane, target: plane.describe(target)))

    async def _check_manifest(self, resource: Resource, before: Tree, version: str) -> None:
        """Raise `Refused` if labels, annotations or spec of an object were changed since a version. `before`: as it was just read.

        Workflows of an earlier release do not say when that was: then it is in conflict with any change.
        """
        if version == before["metadata"]["resourceVersion"]:
            return
        held = await self.asked(resource, lambda plane, target: plane.describe(target))
        since = held.get("manifestVersion") or 0
        if not 0 < since <= int(version) <= version_of(held):
            raise errors.conflict(resource.info.group, resource.info.plural, resource.name, errors.MODIFIED)

    async def asked(self, resource: Resource, ask: Callable[[ControlPlane, Target], Awaitable[ResultT]]) -> ResultT:
        """Give what the workflows answer about an object, or about all of a kind. Raises `Refused`."""
        try:
            return await ask(self._plane, _target(resource))
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure

    async def _held(self, resource: Resource) -> Tree | None:
        """Give an object as its workflow has it now; None if there is none, or only one that was never accepted. Raises `Refused`."""
        try:
            held = await self.present(resource)
        except errors.Refused as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            return None
        return held if is_there(held) else None

    async def _exists(self, target: Target) -> bool:
        try:
            return await self._plane.exists(target)
        except CommandFailed as failure:
            log.warning("a request was not answered", problem=failure.message, details=failure.details)
            raise errors.silent("Temporal does not answer") from failure

    async def _replaced(self, resource: Resource, message: Replace, change: Change, *, create: bool) -> Tree:
        known = self._projection.get(resource.key)
        try:
            tree = await self._plane.replace(_target(resource), message, create=create)
        except NoAnswer as silence:
            raise errors.silent(_MAY_BE_MADE) from silence
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        change.after = shown(tree)
        self._projection.answered(resource.key, known, change.after)
        return change.after


def _target(resource: Resource) -> Target:
    return Target(resource.info, resource.namespace, resource.name)


def _behind_silence() -> errors.Silent:
    """Make the refusal of a write whose turn did not come because the one before got no answer."""
    return errors.silent("no worker answers: a write of this object before this one got no answer, and of this one nothing was sent")


async def _repeated(attempt: Callable[[], Awaitable[ResultT]], reasons: tuple[str, ...] = ()) -> ResultT:
    """Read and write until nobody has changed the object between the two; `reasons`: of refusals that come of such a change too.

    Raises `Refused`. Pauses are of random length: of several who write an object, each has its turn.
    """
    clock, pause = asyncio.get_running_loop().time, _FIRST_PAUSE_SECONDS
    end = clock() + _REPEATED_SECONDS
    while True:
        try:
            return await attempt()
        except errors.Refused as refusal:
            if not (isinstance(refusal, errors.Stale) or refusal.status["reason"] in reasons) or clock() + pause > end:
                raise
        await asyncio.sleep(pause * _RANDOM.random())
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def _refusal(resource: Resource, failure: CommandFailed) -> errors.Refused:
    group, plural = resource.info.group, resource.info.plural
    match failure:
        case AlreadyExists():
            return errors.already_exists(group, plural, resource.name)
        case NotFound():
            return errors.not_found(group, plural, resource.name)
        case Conflict():
            return errors.stale(group, plural, resource.name, failure.message)
        case Refused():
            return errors.Refused(422, "Invalid", f'{resource.info.kind}.{group} "{resource.name}" is invalid: {failure.message}')
        case _:
            log.warning("a request was not answered", problem=failure.message, details=failure.details)
            return errors.silent("no worker answers" if isinstance(failure, NoAnswer) else "Temporal does not answer")
