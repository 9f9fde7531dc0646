"""Queries, updates and signals to the workflows that own objects.

Each method records the messages that it sends in an audit event, updates the projection
with the object that the workflow returns, and converts failures to a Status.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import structlog

from api_types.messages.delivery import MessageT, ReceiverT, Signal
from api_types.messages.entities import Delete, RecordEvent, Replace, RetryNow
from api_types.messages.signals import EntitySignals, ModelDeploymentSignals
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
from front.audit.event import AuditEvent, Change
from front.serving import errors
from front.serving.requests import RequestedResource
from front.store.projection import Projection, Tree, shown, version_of

log = structlog.get_logger("modelplane.front")

_MAY_BE_MADE = (
    "no worker answers; the change may still be made once a worker runs, unless the "
    "object changes before: read the object again then"
)
ResultT = TypeVar("ResultT")


class ObjectWorkflows:
    """The workflows of all objects, as the front reaches them."""

    def __init__(self, plane: ControlPlane, projection: Projection) -> None:
        """Set the control plane and the projection, which is updated with every write."""
        self._plane = plane
        self._projection = projection

    # Reads

    async def asked(
        self,
        resource: RequestedResource,
        ask: Callable[[ControlPlane, Target], Awaitable[ResultT]],
    ) -> ResultT:
        """Query the workflow of an object, or all workflows of a kind.

        Raises `RejectedRequest`.
        """
        try:
            return await ask(self._plane, _target(resource))
        except CommandFailed as failure:
            raise _refusal(resource, failure) from failure

    async def present(self, resource: RequestedResource) -> Tree:
        """Query the current state of an object. Raises `RejectedRequest`."""
        return shown(
            await self.asked(resource, lambda plane, target: plane.describe(target))
        )

    async def exists(self, resource: RequestedResource) -> bool:
        """Return whether an object has a workflow. Raises `Silent`."""
        try:
            return await self._plane.exists(_target(resource))
        except CommandFailed as failure:
            _log_unanswered(failure)
            raise errors.silent("Temporal does not answer") from failure

    def known(self, resource: RequestedResource) -> Tree | None:
        """Return the object from the projection, or None if a query is needed."""
        known = self._projection.get(resource.key)
        if known is None:
            return None
        # The owner of the count depends on the last scaling. Scaling does not change
        # the manifest, so the version does not show it.
        if resource.info.scale and known.tree["metadata"].get("managedFields"):
            return None
        return known.tree

    async def check_manifest(
        self, resource: RequestedResource, before: Tree, version: str
    ) -> None:
        """Raise `RejectedRequest` if a manifest has changed since a version.

        The manifest is the labels, annotations and spec; `before` is the current state.
        Workflows of earlier releases do not report when their manifest changed. Then
        every change is a conflict.
        """
        if version == before["metadata"]["resourceVersion"]:
            return
        held = await self.asked(resource, lambda plane, target: plane.describe(target))
        since = held.get("manifestVersion") or 0
        if not 0 < since <= int(version) <= version_of(held):
            raise errors.conflict(*resource.identity, errors.MODIFIED)

    # Updates and signals

    async def replaced(
        self,
        resource: RequestedResource,
        message: Replace,
        change: Change,
        *,
        create: bool,
    ) -> Tree:
        """Replace the manifest of an object; return the object.

        Raises `RejectedRequest`.
        """
        known = self._projection.get(resource.key)
        try:
            tree = await self._plane.replace(_target(resource), message, create=create)
        except NoAnswer as silence:
            raise errors.silent(_MAY_BE_MADE) from silence
        except CommandFailed as failure:
            refusal = _refusal(resource, failure)
            if isinstance(refusal, errors.Stale) and change.before is not None:
                # A client that reads the object again must see at least this state,
                # unless the name belongs to another object by now.
                self._projection.answered(resource.key, None, change.before)
            raise refusal from failure
        change.after = shown(tree)
        self._projection.answered(resource.key, known, change.after)
        return change.after

    async def signalled(
        self,
        resource: RequestedResource,
        signal: Signal[ReceiverT, MessageT],
        message: MessageT,
        change: Change,
    ) -> Tree | None:
        """Send a signal and wait until it is applied.

        Returns the object afterwards, or None if it no longer exists. Raises
        `RejectedRequest`.
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

    async def delete(
        self,
        resource: RequestedResource,
        options: Mapping[str, Any],
        event: AuditEvent,
    ) -> Tree:
        """Delete an object; return it, or a Status if it is already gone.

        Raises `RejectedRequest`.
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
        if event.dry_run or deleting(before):
            return before
        message = Delete(
            request_id=new_request_id(), by=recorded(event.user), uid=metadata["uid"]
        )
        change = event.sends(resource.name, message.request_id, before)
        deleted = await self.signalled(resource, EntitySignals.DELETE, message, change)
        return deleted or errors.deleted(*resource.identity, metadata["uid"])

    async def retry(self, resource: RequestedResource, event: AuditEvent) -> Tree:
        """Retry failed steps of an object now; return the object.

        Raises `RejectedRequest`.
        """
        before = await self.present(resource)
        message = RetryNow(request_id=new_request_id(), by=recorded(event.user))
        change = event.sends(resource.name, message.request_id, before)
        after = await self.signalled(resource, EntitySignals.RETRY_NOW, message, change)
        if after is None:
            raise errors.not_found(*resource.identity)
        return after

    async def record_event(
        self, resource: RequestedResource, message: RecordEvent, event: AuditEvent
    ) -> bool:
        """Record an event without waiting for a worker.

        Return False if the object does not exist. Raises `RejectedRequest`.
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


def _target(resource: RequestedResource) -> Target:
    return Target(resource.info, resource.namespace, resource.name)


def _refusal(
    resource: RequestedResource, failure: CommandFailed
) -> errors.RejectedRequest:
    match failure:
        case AlreadyExists():
            return errors.already_exists(*resource.identity)
        case NotFound():
            return errors.not_found(*resource.identity)
        case WriteConflict():
            return errors.stale(*resource.identity, failure.message)
        case Refused():
            title = f'{resource.info.kind}.{resource.info.group} "{resource.name}"'
            return errors.RejectedRequest(
                422, "Invalid", f"{title} is invalid: {failure.message}"
            )
        case _:
            _log_unanswered(failure)
            if isinstance(failure, NoAnswer):
                return errors.silent("no worker answers")
            return errors.silent("Temporal does not answer")


def _log_unanswered(failure: CommandFailed) -> None:
    log.warning(
        "a request was not answered", problem=failure.message, details=failure.details
    )
