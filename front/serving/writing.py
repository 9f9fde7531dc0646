"""Carries out writes: sends updates and signals to the workflow that owns the object.

A request is fully validated before it is sent. The response is the object in the state
that its workflow then has.
"""

import asyncio
import secrets
import uuid
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

import structlog

from api_types.clock import timestamp, utc_now
from api_types.messages.delivery import MessageT, ReceiverT, Signal
from api_types.messages.entities import Delete, RecordEvent, Replace, RetryNow, Scale
from api_types.messages.signals import EntitySignals, ModelDeploymentSignals
from api_types.validation.manifests import Admitted, dump
from fleet_client.errors import (
    AlreadyExists,
    CommandFailed,
    NoAnswer,
    NotFound,
    Refused,
    WriteConflict,
)
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import deleting
from fleet_client.requests import new_request_id, until_applied
from fleet_client.temporal.control_plane import ControlPlane
from front.access.recorded import recorded
from front.applying.annotation import WITH_WRITE
from front.applying.last_applied import FORMER_MANAGER, last_applied_of
from front.applying.owners import Owners
from front.audit.event import AuditEvent, Change
from front.serving import bodies, errors
from front.serving.managers import (
    Manager,
    after_apply,
    after_update,
    configuration,
    is_same,
    with_owners,
)
from front.serving.requests import RequestedResource
from front.serving.written import (
    STRICT,
    admit_document,
    check_identity,
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
from front.store.turns import WriteTurns

log = structlog.get_logger("modelplane.front")

# The time in which a write is repeated because the object changed between read and
# write, and the pauses between attempts.
_REPEATED_SECONDS = 10.0
_FIRST_PAUSE_SECONDS = 0.02
_PAUSE_SECONDS_MAX = 0.5
_RANDOM = secrets.SystemRandom()
# The errors of an apply while other clients create or delete its object.
_CHANGED_BY_OTHERS = ("AlreadyExists", "NotFound")
_NOT_FOUND = 404
_NO_VERSION = (None, "", "0")
_MAY_BE_MADE = (
    "no worker answers; the change may still be made once a worker runs, unless the "
    "object changes before: read the object again then"
)
# The field managers of programs with client-side apply. Repeating the same manifest
# must not undo an autoscaler's count. A client-side apply under another manager name is
# recognized by its change of the last-applied annotation.
_APPLY_AT_CLIENT = (FORMER_MANAGER, "argocd-controller")
_REPLACED = ("labels", "annotations", "managedFields")
ResultT = TypeVar("ResultT")


class Writer:
    """Carries out the writes of users."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        """Set the control plane and the projection, which is updated with every write.

        Each method records the messages that it sends in `event`.
        """
        self._plane = plane
        self._projection = projection
        self._turns = WriteTurns(errors.Silent, _behind_silence)

    async def create(
        self,
        resource: RequestedResource,
        document: Tree,
        event: AuditEvent,
        *,
        dry: bool,
        validation: str = STRICT,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Create an object; return it with warnings.

        `validation` is the handling of unknown fields. Raises `Refused`.
        """
        named = of_path(resource, document)
        return await _repeated(
            lambda: self._create(
                resource, named, Owners(), event, dry=dry, validation=validation
            )
        )

    async def _create(
        self,
        resource: RequestedResource,
        document: Tree,
        owners: Owners,
        event: AuditEvent,
        *,
        dry: bool,
        validation: str = STRICT,
    ) -> tuple[Tree, tuple[str, ...]]:
        event.name = str(document["metadata"].get("name") or "")
        if document["metadata"].get("resourceVersion") not in _NO_VERSION:
            raise errors.bad_request(
                "resourceVersion should not be set on objects to be created"
            )
        admitted = await bodies.apart(
            admit_document, resource, document, None, validation
        )
        named = RequestedResource(
            resource.info, resource.namespace, admitted.manifest.metadata.name
        )
        target = _target(named)
        begun, version = await self._exists(target), ""
        if begun:
            held = await self.present(named)
            if is_there(held):
                raise errors.already_exists(
                    resource.info.group, resource.info.plural, named.name
                )
            version = str(held["metadata"].get("resourceVersion") or "")
        manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
        if dry:
            return _planned(manifest), admitted.warnings
        message = Replace(
            request_id=new_request_id(),
            by=recorded(event.user),
            resource_version=version,
            manifest=manifest,
        )
        # If no worker answered an earlier create, the workflow exists without a spec.
        change = event.sends(named.name, message.request_id, None)
        tree = await self._replaced(named, message, change, create=not begun)
        return tree, admitted.warnings

    async def update(
        self,
        resource: RequestedResource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        *,
        dry: bool,
        reason: str = "",
        validation: str = STRICT,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Replace an object; return it with warnings.

        `reason` is recorded for kinds that record it. `validation` is the handling of
        unknown fields. Raises `Refused`.
        """
        named = of_path(resource, document)
        names_version = bool(named["metadata"].get("resourceVersion"))

        async def of(before: Tree) -> tuple[Tree, tuple[str, ...]]:
            admitted, owners = await self._made(
                resource, named, before, manager, validation, replaces=True
            )
            # The owners are computed from this version, so the write must fail if the
            # object has changed, even if it had no owners.
            version = named_version(resource, named, before)
            manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
            tree = await self._update(
                resource,
                before,
                manifest,
                event,
                version=version,
                dry=dry,
                reason=reason,
            )
            # A client that names no version has not seen the current count. Its count
            # may come from an old file.
            count = chosen_count(before, manifest) if names_version else None
            tree = await self._with_count(resource, tree, count, event)
            return tree, admitted.warnings

        return await self._written(
            resource, of, event, names_version=names_version, asks_first=dry
        )

    async def patch(
        self,
        resource: RequestedResource,
        kind: str,
        patch: Any,
        manager: Manager,
        event: AuditEvent,
        *,
        dry: bool,
        validation: str = STRICT,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Patch an object; return it with warnings. Raises `Refused`."""
        names_version = await bodies.apart(bodies.names_version, kind, patch)
        asks_first = dry or await bodies.apart(bodies.reads_status, kind, patch)

        async def of(before: Tree) -> tuple[Tree, tuple[str, ...]]:
            changed = await bodies.apart(bodies.patched, before, kind, patch)
            document = of_path(resource, changed)
            admitted, owners = await self._made(
                resource, document, before, manager, validation, replaces=False
            )
            version = named_version(resource, document, before)
            manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
            keeps = has_count(before, manifest)
            tree = await self._update(
                resource,
                before,
                manifest,
                event,
                version=version,
                keeps_replicas=keeps,
                dry=dry,
            )
            is_applied = manager.name in _APPLY_AT_CLIENT or last_applied_of(
                manifest
            ) != last_applied_of(before)
            count = None if is_applied else chosen_count(before, manifest)
            tree = await self._with_count(resource, tree, count, event)
            return tree, admitted.warnings

        return await self._written(
            resource, of, event, names_version=names_version, asks_first=asks_first
        )

    async def _written(
        self,
        resource: RequestedResource,
        of: Callable[[Tree], Awaitable[ResultT]],
        event: AuditEvent,
        *,
        names_version: bool,
        asks_first: bool,
    ) -> ResultT:
        """Compute a change from the object's state and write it, with exclusive access.

        `of` computes and sends the change. If the change applies to any version, the
        first attempt uses the projection and saves a query. The projection may be
        stale. In that case the workflow rejects the version, and an error found before
        sending is reported only if it also occurs with the current state. `asks_first`
        skips this attempt, for changes that depend on fields which the version does not
        cover: it covers labels, annotations and spec only. Raises `Refused`.
        """

        async def of_present() -> ResultT:
            return await of(await self.present(resource))

        async with self._turns.of(resource.key):
            if names_version:
                return await of_present()
            known = None if asks_first else self._known(resource)
            if known:
                try:
                    return await of(known)
                except errors.RejectedRequest as refusal:
                    if event.changes and refusal.code == _NOT_FOUND:
                        event.not_sent(resource.name)
                    elif event.changes and not isinstance(refusal, errors.Stale):
                        raise
            return await _repeated(of_present)

    def _known(self, resource: RequestedResource) -> Tree | None:
        """Return the object from the projection, or None if a query is needed."""
        known = self._projection.get(resource.key)
        if known is None:
            return None
        # The owner of the count depends on the last scaling. Scaling does not change
        # the manifest, so the version does not show it.
        if resource.info.scale and known.tree["metadata"].get("managedFields"):
            return None
        return known.tree

    async def _made(
        self,
        resource: RequestedResource,
        document: Tree,
        before: Tree,
        manager: Manager,
        validation: str,
        *,
        replaces: bool,
    ) -> tuple[Admitted, Owners]:
        """Return the manifest and owners that result from a document.

        Raises `Refused`.
        """
        check_identity(resource, document, before, replaces=replaces)
        admitted = await bodies.apart(
            admit_document, resource, document, before, validation
        )
        manifest = dump(admitted.manifest)
        owners = await bodies.apart(
            after_update, resource.info, before, document, manifest, manager
        )
        return admitted, owners

    async def _update(
        self,
        resource: RequestedResource,
        before: Tree,
        manifest: Tree,
        event: AuditEvent,
        *,
        version: str,
        dry: bool,
        keeps_replicas: bool = False,
        reason: str = "",
    ) -> Tree:
        """Write a new manifest of an object.

        `version` is the version whose manifest must still be current. `keeps_replicas`
        is explained in `Replace`.
        """
        if deleting(before) and not await bodies.apart(is_taken, before, manifest):
            why = "the object is being deleted; apply it again when it is gone"
            raise errors.conflict(
                resource.info.group, resource.info.plural, resource.name, why
            )
        if dry:
            await self._check_manifest(resource, before, version)
            metadata = {
                key: value
                for key, value in before["metadata"].items()
                if key not in _REPLACED
            }
            planned = shown(manifest)
            if planned["spec"] != before.get("spec"):
                metadata["generation"] = before["metadata"].get("generation", 0) + 1
            return {
                **before,
                **planned,
                "metadata": {**metadata, **planned["metadata"]},
            }
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
            # A client that reads the object again must see at least this state, unless
            # the name belongs to another object by now.
            self._projection.answered(resource.key, None, before)
            raise

    async def apply(
        self,
        resource: RequestedResource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        may_create: Callable[[], Awaitable[None]],
        *,
        dry: bool,
    ) -> tuple[Tree, tuple[str, ...], bool]:
        """Apply a configuration to an object, or create it.

        Returns the object, warnings, and whether it was created. `may_create` is called
        before the object is created, and raises `Refused` if the user may not create
        it. Raises `Refused`.
        """
        if document.get("kind") != resource.info.kind:
            raise errors.bad_request(
                f"invalid object type: {str(document.get('kind'))[:128]!r}; the path is "
                f"for {resource.info.kind}"
            )
        config = await bodies.apart(
            configuration, resource.info, of_path(resource, document), manager
        )
        names_version = bool(document["metadata"].get("resourceVersion"))

        async def once() -> tuple[Tree, tuple[str, ...], bool]:
            before = await self._held(resource)
            stored = partial(stored_form, resource, before)
            if before is None:
                await may_create()
                if document["metadata"].get("uid"):
                    raise errors.conflict(
                        resource.info.group,
                        resource.info.plural,
                        resource.name,
                        "there is no object with this uid",
                    )
                wanted, owners = await bodies.apart(
                    after_apply, resource, config, None, manager, stored
                )
                given = document["metadata"].get("resourceVersion")
                created = {
                    **wanted,
                    "metadata": {**wanted["metadata"], "resourceVersion": given},
                }
                tree, warnings = await self._create(
                    resource, created, owners, event, dry=dry
                )
                return tree, warnings, True
            check_identity(resource, document, before, replaces=False)
            wanted, owners = await bodies.apart(
                after_apply, resource, config, before, manager, stored
            )
            version = named_version(resource, document, before)
            wanted = {
                **wanted,
                "metadata": {**wanted["metadata"], "resourceVersion": version},
            }
            tree, warnings = await self._apply(
                resource, before, wanted, owners, event, config=config, dry=dry
            )
            return tree, warnings, False

        async with self._turns.of(resource.key):
            if names_version:
                return await once()
            return await _repeated(once, _CHANGED_BY_OTHERS)

    async def _apply(
        self,
        resource: RequestedResource,
        before: Tree,
        wanted: Tree,
        owners: Owners,
        event: AuditEvent,
        *,
        config: Tree,
        dry: bool,
    ) -> tuple[Tree, tuple[str, ...]]:
        """Write the result of an apply."""
        admitted = await bodies.apart(admit_document, resource, wanted, before)
        manifest = dump(admitted.manifest)
        version = wanted["metadata"]["resourceVersion"]
        # Only the workflow knows whether an older version has the same manifest.
        if (
            not deleting(before)
            and version == before["metadata"]["resourceVersion"]
            and is_same(before, manifest, owners)
        ):
            return before, admitted.warnings
        spec = config.get("spec")
        count = None
        if resource.info.scale and isinstance(spec, dict):
            count = spec.get("replicas")
        keeps = count is None and has_count(before, manifest)
        manifest = await bodies.apart(with_owners, manifest, owners)
        tree = await self._update(
            resource,
            before,
            manifest,
            event,
            version=version,
            keeps_replicas=keeps,
            dry=dry,
        )
        tree = await self._with_count(resource, tree, count, event)
        return tree, admitted.warnings

    async def _with_count(
        self, resource: RequestedResource, tree: Tree, count: Any, event: AuditEvent
    ) -> Tree:
        """Scale an object to the count that the client chose, if it differs.

        Call it after writing the object. The workflow ignores a count that was applied
        before, and keeps the count of an autoscaler. Raises `Refused`.
        """
        if count is None or tree["spec"].get("replicas") == count:
            return tree
        message = Scale(
            request_id=f"{WITH_WRITE}{new_request_id()}",
            by=recorded(event.user),
            replicas=count,
        )
        change = event.sends(resource.name, message.request_id, tree)
        scaled = await self._signalled(
            resource, ModelDeploymentSignals.SCALE, message, change
        )
        return scaled or tree

    async def delete(
        self,
        resource: RequestedResource,
        options: Mapping[str, Any],
        event: AuditEvent,
        *,
        dry: bool,
    ) -> Tree:
        """Delete an object; return it, or a Status if it is already gone.

        Raises `Refused`.
        """
        before = await self.present(resource)
        metadata = before["metadata"]
        preconditions = options.get("preconditions") or {}
        for field in ("uid", "resourceVersion"):
            value, actual = preconditions.get(field), metadata.get(field)
            if value and value != actual:
                why = (
                    f"the {field} in the precondition ({str(value)[:64]}) does not match "
                    f"the {field} in record ({actual})"
                )
                raise errors.conflict(
                    resource.info.group, resource.info.kind, resource.name, why
                )
        if dry or deleting(before):
            return before
        message = Delete(
            request_id=new_request_id(), by=recorded(event.user), uid=metadata["uid"]
        )
        change = event.sends(resource.name, message.request_id, before)
        deleted = await self._signalled(resource, EntitySignals.DELETE, message, change)
        return deleted or errors.deleted(
            resource.info.group, resource.info.plural, resource.name, metadata["uid"]
        )

    async def scale(
        self,
        resource: RequestedResource,
        wanted: Callable[[Tree], Tree],
        event: AuditEvent,
        *,
        dry: bool = False,
        request_id: str = "",
        reason: str = "",
    ) -> Tree:
        """Set the replica count; `wanted` computes the new Scale.

        A repeated `request_id` changes nothing. Leave it empty for requests that are
        never repeated. Raises `Refused`.
        """
        async with self._turns.of(resource.key):
            before = await self.present(resource)
            document = wanted(scale_of(resource, before))
            return await self._scaled(
                resource,
                before,
                document,
                event,
                dry=dry,
                request_id=request_id,
                reason=reason,
            )

    async def patch_scale(
        self,
        resource: RequestedResource,
        kind: str,
        patch: Any,
        event: AuditEvent,
        *,
        dry: bool,
    ) -> Tree:
        """Set the replica count with a patch of the Scale. Raises `Refused`."""
        async with self._turns.of(resource.key):
            before = await self.present(resource)
            document = await bodies.apart(
                bodies.patched, scale_of(resource, before), kind, patch
            )
            return await self._scaled(resource, before, document, event, dry=dry)

    async def _scaled(
        self,
        resource: RequestedResource,
        before: Tree,
        document: Tree,
        event: AuditEvent,
        *,
        dry: bool,
        request_id: str = "",
        reason: str = "",
    ) -> Tree:
        count = wanted_replicas(resource, before, document)
        await self._check_manifest(
            resource, before, named_version(resource, document, before)
        )
        if dry:
            return {**scale_of(resource, before), "spec": {"replicas": count}}
        message = Scale(
            request_id=request_id or new_request_id(),
            by=recorded(event.user),
            replicas=count,
            reason=reason,
        )
        change = event.sends(resource.name, message.request_id, before)
        after = await self._signalled(
            resource, ModelDeploymentSignals.SCALE, message, change
        )
        if after is None:
            raise errors.not_found(
                resource.info.group, resource.info.plural, resource.name
            )
        return scale_of(resource, after)

    async def _signalled(
        self,
        resource: RequestedResource,
        signal: Signal[ReceiverT, MessageT],
        message: MessageT,
        change: Change,
    ) -> Tree | None:
        """Send a signal and wait until it is applied.

        Returns the object afterwards, or None if it no longer exists. Raises `Refused`.
        """
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
            raise errors.silent(
                "Temporal has accepted the request, but no worker has carried it out yet; "
                "it is carried out once a worker runs"
            )
        change.after = shown(requested.tree)
        self._projection.answered(resource.key, known, change.after)
        return change.after

    async def retry(self, resource: RequestedResource, event: AuditEvent) -> Tree:
        """Retry failed steps of an object now; return the object. Raises `Refused`."""
        before = await self.present(resource)
        message = RetryNow(request_id=new_request_id(), by=recorded(event.user))
        change = event.sends(resource.name, message.request_id, before)
        after = await self._signalled(
            resource, EntitySignals.RETRY_NOW, message, change
        )
        if after is None:
            raise errors.not_found(
                resource.info.group, resource.info.plural, resource.name
            )
        return after

    async def record_event(
        self, resource: RequestedResource, message: RecordEvent, event: AuditEvent
    ) -> bool:
        """Record an event without waiting for a worker.

        Return False if the object does not exist. Raises `Refused`.
        """
        event.sends(resource.name, message.request_id, None)
        try:
            await self._plane.signal(
                _target(resource), ModelDeploymentSignals.RECORD_EVENT, message
            )
        except NotFound:
            event.not_sent(resource.name)
            return False
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure
        return True

    async def present(self, resource: RequestedResource) -> Tree:
        """Query the current state of an object. Raises `Refused`."""
        return shown(
            await self.asked(resource, lambda plane, target: plane.describe(target))
        )

    async def _check_manifest(
        self, resource: RequestedResource, before: Tree, version: str
    ) -> None:
        """Raise `Refused` if labels, annotations or spec have changed since a version.

        `before` is the current state. Workflows of earlier releases do not report when
        their manifest changed. Then every change is a conflict.
        """
        if version == before["metadata"]["resourceVersion"]:
            return
        held = await self.asked(resource, lambda plane, target: plane.describe(target))
        since = held.get("manifestVersion") or 0
        if not 0 < since <= int(version) <= version_of(held):
            raise errors.conflict(
                resource.info.group,
                resource.info.plural,
                resource.name,
                errors.MODIFIED,
            )

    async def asked(
        self,
        resource: RequestedResource,
        ask: Callable[[ControlPlane, Target], Awaitable[ResultT]],
    ) -> ResultT:
        """Query the workflow of an object, or all workflows of a kind.

        Raises `Refused`.
        """
        try:
            return await ask(self._plane, _target(resource))
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure

    async def _held(self, resource: RequestedResource) -> Tree | None:
        """Query the current state; return None if no object exists.

        A workflow whose manifest was never accepted does not count as an object. Raises
        `Refused`.
        """
        try:
            held = await self.present(resource)
        except errors.RejectedRequest as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            return None
        return held if is_there(held) else None

    async def _exists(self, target: Target) -> bool:
        try:
            return await self._plane.exists(target)
        except CommandFailed as failure:
            log.warning(
                "a request was not answered",
                problem=failure.message,
                details=failure.details,
            )
            raise errors.silent("Temporal does not answer") from failure

    async def _replaced(
        self,
        resource: RequestedResource,
        message: Replace,
        change: Change,
        *,
        create: bool,
    ) -> Tree:
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


def _planned(manifest: Tree) -> Tree:
    """Return an object as a create would answer it."""
    planned = shown(manifest)
    created = {
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": timestamp(utc_now()),
    }
    return {**planned, "metadata": {**planned["metadata"], **created}}


def _target(resource: RequestedResource) -> Target:
    return Target(resource.info, resource.namespace, resource.name)


def _behind_silence() -> errors.Silent:
    """Return the error for a write that was queued behind an unanswered write."""
    return errors.silent(
        "no worker answers: an earlier write of this object got no answer, and this one "
        "was not sent; try again"
    )


async def _repeated(
    attempt: Callable[[], Awaitable[ResultT]], reasons: tuple[str, ...] = ()
) -> ResultT:
    """Repeat reading and writing until the object does not change in between.

    Errors with one of `reasons` may also come from such a change. The pauses are
    random, so that several writers of one object all make progress. Raises `Refused`.
    """
    clock, pause = asyncio.get_running_loop().time, _FIRST_PAUSE_SECONDS
    end = clock() + _REPEATED_SECONDS
    while True:
        try:
            return await attempt()
        except errors.RejectedRequest as refusal:
            may_succeed = (
                isinstance(refusal, errors.Stale) or refusal.status["reason"] in reasons
            )
            if not may_succeed or clock() + pause > end:
                raise
        await asyncio.sleep(pause * _RANDOM.random())
        pause = min(2 * pause, _PAUSE_SECONDS_MAX)


def _refusal(
    resource: RequestedResource, failure: CommandFailed
) -> errors.RejectedRequest:
    group, plural = resource.info.group, resource.info.plural
    match failure:
        case AlreadyExists():
            return errors.already_exists(group, plural, resource.name)
        case NotFound():
            return errors.not_found(group, plural, resource.name)
        case WriteConflict():
            return errors.stale(group, plural, resource.name, failure.message)
        case Refused():
            title = f'{resource.info.kind}.{group} "{resource.name}"'
            return errors.RejectedRequest(
                422, "Invalid", f"{title} is invalid: {failure.message}"
            )
        case _:
            log.warning(
                "a request was not answered",
                problem=failure.message,
                details=failure.details,
            )
            if isinstance(failure, NoAnswer):
                return errors.silent("no worker answers")
            return errors.silent("Temporal does not answer")
