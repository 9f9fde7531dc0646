"""Writes of whole manifests: create, update, patch and apply.

Each computes a manifest from the present object and the document of the client, and sends
it with the version that it was computed from. If the object has changed meanwhile, the
write is computed again, unless the client named a version.
"""

import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from api_types.clock import timestamp, utc_now
from api_types.messages.entities import Replace
from api_types.validation.manifests import dump
from fleet_client.refs.tree import deleting
from fleet_client.requests import new_request_id
from front.access.recorded import recorded
from front.applying.last_applied import FORMER_MANAGER, last_applied_of
from front.applying.owners import Owners
from front.audit.event import AuditEvent
from front.serving import bodies, errors
from front.serving.requests import RequestedResource
from front.serving.writes.admission import (
    STRICT,
    admit_document,
    check_identity,
    is_taken,
    is_there,
    named_version,
    of_path,
    stored_form,
)
from front.serving.writes.managers import (
    Manager,
    after_apply,
    after_update,
    configuration,
    is_same,
    with_owners,
)
from front.serving.writes.object_workflows import ObjectWorkflows
from front.serving.writes.scale import ScaleWrites, chosen_count, has_count
from front.serving.writes.turns import WriteTurns, repeated
from front.store.projection import Tree, shown

# The errors of an apply while other clients create or delete its object.
_CHANGED_BY_OTHERS = ("AlreadyExists", "NotFound")
_NOT_FOUND = 404
_NO_VERSION = (None, "", "0")
# The field managers of programs with client-side apply. Repeating the same manifest
# must not undo an autoscaler's count. A client-side apply under another manager name is
# recognized by its change of the last-applied annotation.
_APPLY_AT_CLIENT = (FORMER_MANAGER, "argocd-controller")
_REPLACED = ("labels", "annotations", "managedFields")
ResultT = TypeVar("ResultT")
Answer = tuple[Tree, tuple[str, ...]]
"""An object with warnings."""


@dataclass(frozen=True)
class _Admitted:
    """A validated manifest with the owners of its fields.

    `version` is the version of the object from which the owners were computed. The write
    must fail if the object has changed since, even if it had no owners.
    """

    manifest: Tree
    owners: Owners
    warnings: tuple[str, ...]
    version: str


class ManifestWrites:
    """Writes manifests of users."""

    def __init__(
        self, workflows: ObjectWorkflows, turns: WriteTurns, scales: ScaleWrites
    ) -> None:
        self._workflows, self._turns, self._scales = workflows, turns, scales

    async def create(
        self,
        resource: RequestedResource,
        document: Tree,
        event: AuditEvent,
        *,
        validation: str = STRICT,
    ) -> Answer:
        """Create an object; return it with warnings.

        `validation` is the handling of unknown fields. Raises `RejectedRequest`.
        """
        named = of_path(resource, document)
        return await repeated(
            lambda: self._create(
                resource, named, Owners(), event, validation=validation
            )
        )

    async def _create(
        self,
        resource: RequestedResource,
        document: Tree,
        owners: Owners,
        event: AuditEvent,
        *,
        validation: str = STRICT,
    ) -> Answer:
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
        begun, version = await self._workflows.exists(named), ""
        if begun:
            held = await self._workflows.present(named)
            if is_there(held):
                raise errors.already_exists(*named.identity)
            version = str(held["metadata"].get("resourceVersion") or "")
        manifest = await bodies.apart(with_owners, dump(admitted.manifest), owners)
        if event.dry_run:
            return _planned(manifest), admitted.warnings
        message = Replace(
            request_id=new_request_id(),
            by=recorded(event.user),
            resource_version=version,
            manifest=manifest,
        )
        # If no worker answered an earlier create, the workflow exists without a spec.
        change = event.sends(named.name, message.request_id, None)
        tree = await self._workflows.replaced(named, message, change, create=not begun)
        return tree, admitted.warnings

    async def update(
        self,
        resource: RequestedResource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        *,
        reason: str = "",
        validation: str = STRICT,
    ) -> Answer:
        """Replace an object; return it with warnings.

        `reason` is recorded for kinds that record it. `validation` is the handling of
        unknown fields. Raises `RejectedRequest`.
        """
        named = of_path(resource, document)
        names_version = bool(named["metadata"].get("resourceVersion"))

        async def of(before: Tree) -> Answer:
            wanted = await self._admitted(
                resource, named, before, manager, validation, replaces=True
            )
            # A client that names no version has not seen the current count. Its count
            # may come from an old file.
            count = chosen_count(before, wanted.manifest) if names_version else None
            return await self._stored(
                resource, before, wanted, event, count=count, reason=reason
            )

        return await self._in_turn(
            resource,
            of,
            event,
            names_version=names_version,
            asks_first=event.dry_run,
        )

    async def patch(
        self,
        resource: RequestedResource,
        kind: str,
        patch: Any,
        manager: Manager,
        event: AuditEvent,
        *,
        validation: str = STRICT,
    ) -> Answer:
        """Patch an object; return it with warnings. Raises `RejectedRequest`."""
        names_version = await bodies.apart(bodies.names_version, kind, patch)
        reads_status = await bodies.apart(bodies.reads_status, kind, patch)

        async def of(before: Tree) -> Answer:
            changed = await bodies.apart(bodies.patched, before, kind, patch)
            document = of_path(resource, changed)
            wanted = await self._admitted(
                resource, document, before, manager, validation, replaces=False
            )
            is_applied = manager.name in _APPLY_AT_CLIENT or last_applied_of(
                wanted.manifest
            ) != last_applied_of(before)
            return await self._stored(
                resource,
                before,
                wanted,
                event,
                count=None if is_applied else chosen_count(before, wanted.manifest),
                keeps_replicas=has_count(before, wanted.manifest),
            )

        return await self._in_turn(
            resource,
            of,
            event,
            names_version=names_version,
            asks_first=event.dry_run or reads_status,
        )

    async def apply(
        self,
        resource: RequestedResource,
        document: Tree,
        manager: Manager,
        event: AuditEvent,
        may_create: Callable[[], Awaitable[None]],
    ) -> tuple[Tree, tuple[str, ...], bool]:
        """Apply a configuration to an object, or create it.

        Returns the object, warnings, and whether it was created. `may_create` is called
        before the object is created, and raises `RejectedRequest` if the user may not
        create it. Raises `RejectedRequest`.
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
                        *resource.identity, "there is no object with this uid"
                    )
            else:
                check_identity(resource, document, before, replaces=False)
            applied, owners = await bodies.apart(
                after_apply, resource, config, before, manager, stored
            )
            if before is None:
                given = document["metadata"].get("resourceVersion")
                created = {
                    **applied,
                    "metadata": {**applied["metadata"], "resourceVersion": given},
                }
                answer = await self._create(resource, created, owners, event)
                return *answer, True
            version = named_version(resource, document, before)
            admitted = await bodies.apart(admit_document, resource, applied, before)
            wanted = _Admitted(
                dump(admitted.manifest), owners, admitted.warnings, version
            )
            return *await self._apply(resource, before, wanted, event, config), False

        async with self._turns.of(resource.key):
            if names_version:
                return await once()
            return await repeated(once, _CHANGED_BY_OTHERS)

    async def _apply(
        self,
        resource: RequestedResource,
        before: Tree,
        wanted: _Admitted,
        event: AuditEvent,
        config: Tree,
    ) -> Answer:
        """Write the result of an apply."""
        # Only the workflow knows whether an older version has the same manifest.
        if (
            not deleting(before)
            and wanted.version == before["metadata"]["resourceVersion"]
            and is_same(before, wanted.manifest, wanted.owners)
        ):
            return before, wanted.warnings
        spec = config.get("spec")
        count = None
        if resource.info.scale and isinstance(spec, dict):
            count = spec.get("replicas")
        keeps = count is None and has_count(before, wanted.manifest)
        return await self._stored(
            resource, before, wanted, event, count=count, keeps_replicas=keeps
        )

    async def _held(self, resource: RequestedResource) -> Tree | None:
        """Query the current state; return None if no object exists.

        A workflow whose manifest was never accepted does not count as an object. Raises
        `RejectedRequest`.
        """
        try:
            held = await self._workflows.present(resource)
        except errors.RejectedRequest as refusal:
            if refusal.code != _NOT_FOUND:
                raise
            return None
        return held if is_there(held) else None

    async def _in_turn(
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
        cover: it covers labels, annotations and spec only. Raises `RejectedRequest`.
        """

        async def of_present() -> ResultT:
            return await of(await self._workflows.present(resource))

        async with self._turns.of(resource.key):
            if names_version:
                return await of_present()
            known = None if asks_first else self._workflows.known(resource)
            if known:
                try:
                    return await of(known)
                except errors.RejectedRequest as refusal:
                    if event.changes and refusal.code == _NOT_FOUND:
                        event.not_sent(resource.name)
                    elif event.changes and not isinstance(refusal, errors.Stale):
                        raise
            return await repeated(of_present)

    async def _admitted(
        self,
        resource: RequestedResource,
        document: Tree,
        before: Tree,
        manager: Manager,
        validation: str,
        *,
        replaces: bool,
    ) -> _Admitted:
        """Validate a document that replaces an object.

        Raises `RejectedRequest`.
        """
        check_identity(resource, document, before, replaces=replaces)
        admitted = await bodies.apart(
            admit_document, resource, document, before, validation
        )
        manifest = dump(admitted.manifest)
        owners = await bodies.apart(
            after_update, resource.info, before, document, manifest, manager
        )
        version = named_version(resource, document, before)
        return _Admitted(manifest, owners, admitted.warnings, version)

    async def _stored(
        self,
        resource: RequestedResource,
        before: Tree,
        wanted: _Admitted,
        event: AuditEvent,
        *,
        count: Any,
        keeps_replicas: bool = False,
        reason: str = "",
    ) -> Answer:
        """Write a manifest, and then the replica count that the client chose.

        `keeps_replicas` is explained in `Replace`.
        """
        manifest = await bodies.apart(with_owners, wanted.manifest, wanted.owners)
        if deleting(before) and not await bodies.apart(is_taken, before, manifest):
            why = "the object is being deleted; apply it again when it is gone"
            raise errors.conflict(*resource.identity, why)
        if event.dry_run:
            await self._workflows.check_manifest(resource, before, wanted.version)
            tree = _replaced(before, manifest)
        else:
            message = Replace(
                request_id=new_request_id(),
                by=recorded(event.user),
                resource_version=wanted.version,
                keeps_replicas=keeps_replicas,
                manifest=manifest,
                reason=reason,
            )
            change = event.sends(resource.name, message.request_id, before)
            tree = await self._workflows.replaced(
                resource, message, change, create=False
            )
        tree = await self._scales.with_count(resource, tree, count, event)
        return tree, wanted.warnings


def _replaced(before: Tree, manifest: Tree) -> Tree:
    """Return an object as its workflow would answer a replacement of the manifest."""
    metadata = {
        key: value for key, value in before["metadata"].items() if key not in _REPLACED
    }
    planned = shown(manifest)
    if planned["spec"] != before.get("spec"):
        metadata["generation"] = before["metadata"].get("generation", 0) + 1
    return {**before, **planned, "metadata": {**metadata, **planned["metadata"]}}


def _planned(manifest: Tree) -> Tree:
    """Return an object as a create would answer it."""
    planned = shown(manifest)
    created = {
        "uid": str(uuid.uuid4()),
        "generation": 1,
        "creationTimestamp": timestamp(utc_now()),
    }
    return {**planned, "metadata": {**planned["metadata"], **created}}
