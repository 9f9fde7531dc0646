"""The fleet in terms of objects instead of workflows.

Lists come from Temporal's visibility store, and details from a query to each workflow,
because only the workflow has the current state. Lists contain objects even if no worker
runs: an object whose workflow does not answer in time is shown with its search
attributes.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any, Self

from temporalio.client import (
    Client,
    RPCError,
    WithStartWorkflowOperation,
    WorkflowExecution,
    WorkflowExecutionStatus,
    WorkflowHistory,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.common import QueryRejectCondition, WorkflowIDConflictPolicy
from temporalio.exceptions import TemporalError, WorkflowAlreadyStartedError
from temporalio.service import RPCStatusCode

from activities.messaging.search_attributes import (
    NAME,
    NAMESPACE,
    PHASE,
    READY,
    identity_at_start,
    visibility_query,
)
from activities.messaging.sending import ensure_scheduler
from api_types import errors, queues
from api_types.clock import timestamp
from api_types.errors import error_message, error_type
from api_types.messages.delivery import MessageT, ReceiverT, Signal
from api_types.messages.entities import Delete, Replace, RetryNow, Scale, SetSpec
from api_types.messages.signals import EntitySignals, ModelDeploymentSignals
from api_types.payloads.unreadable import UnreadablePayload
from api_types.resources.kinds import KindInfo
from api_types.settings import Settings
from fleet_client.configuration import require_temporal
from fleet_client.errors import (
    AlreadyExists,
    CommandFailed,
    NoAnswer,
    NotFound,
    Refused,
    WriteConflict,
)
from fleet_client.refs.seen import ANSWER_WAIT, Execution, ListedObject, not_found
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree
from fleet_client.temporal.connection import connect, unreachable
from fleet_client.temporal.execution import execution_of
from fleet_client.temporal.failures import UNANSWERED, TemporalFailures

QUERIES_AT_ONCE = 32
# How long a caller waits for the result of a change.
WRITE_WAIT = timedelta(seconds=20)
_REPLACE = "replace"
# The default reason why a command needs Temporal.
_WHY = "the front serves only objects"

# The queries for kinds without their own workflow. The workflow of another kind answers
# them.
SHOWS = {"ServingStack": "serving_stack"}


class ControlPlane:
    """A connection to Temporal, in terms of objects."""

    def __init__(
        self, client: Client, settings: Settings, answer_wait: timedelta = ANSWER_WAIT
    ) -> None:
        """Wrap a connected client. Queries time out after `answer_wait`."""
        self.client = client
        self.settings = settings
        self._answer_wait = answer_wait
        self._gate = asyncio.Semaphore(QUERIES_AT_ONCE)
        self.failures = TemporalFailures(client, settings)

    def temporal(self, why: str) -> Self:
        """Return this connection; see `fleet_client/objects.py`."""
        del why
        return self

    async def describe(self, target: Target) -> Tree:
        """Return the object as its manifest with status.

        Raise `NotFound`, `NoAnswer` or `Unreachable`.
        """
        if not target.kind.shown_by:
            tree: Tree = await self._query(target, "describe")
            return tree
        shown: Tree = await self._query(target, SHOWS[target.kind.kind])
        if not shown:
            raise NotFound(
                f"{target.title} does not exist: {target.owner.title} has no "
                "stack of this control plane",
                next_step=(
                    f"see `modelplane describe {target.owner.command}`: another tool "
                    "installs its stack, or nothing does"
                ),
            )
        return shown

    async def find(self, target: Target) -> Tree | None:
        """Return the object, or None if it does not exist.

        Raise `NoAnswer` or `Unreachable`.
        """
        try:
            return await self.describe(target)
        except NotFound:
            return None

    async def exists(self, target: Target) -> bool:
        """Return whether the object's workflow is running.

        This needs no worker. Raise `Unreachable`.
        """
        try:
            found = await self.client.get_workflow_handle(target.workflow_id).describe()
        except RPCError as error:
            failure = self.failures.of(error, target)
            if isinstance(failure, NotFound):
                return False
            raise failure from error
        return found.status == WorkflowExecutionStatus.RUNNING

    async def waiting(self, target: Target) -> list[str]:
        """Return the conditions that block the object, one sentence each.

        Raise `NotFound`, `NoAnswer` or `Unreachable`.
        """
        lines: list[str] = await self._query(target, "waiting")
        return lines

    async def last_state(self, target: Target) -> Tree | None:
        """Return the current or last state of an object, or None if no worker answers.

        Raise `Unreachable`.
        """
        handle = self.client.get_workflow_handle(target.workflow_id)
        try:
            tree: Tree = await handle.query("describe", rpc_timeout=self._answer_wait)
        except WorkflowQueryFailedError:
            return None
        except RPCError as error:
            if error.status in {RPCStatusCode.NOT_FOUND, *UNANSWERED}:
                return None
            raise self.failures.of(error, target) from error
        return tree

    async def query(self, target: Target, name: str, *arguments: Any) -> Any:
        """Query a running workflow. Raise `NotFound`, `NoAnswer` or `Unreachable`."""
        return await self._query(target, name, *arguments)

    async def rows(self, query: str) -> AsyncIterator[WorkflowExecution]:
        """Yield rows of the visibility store, without querying workflows.

        Raise `Unreachable`.
        """
        try:
            async for row in self.client.list_workflows(query):
                yield row
        except RPCError as error:
            raise self.failures.of(error, None) from error

    async def history(self, target: Target, run_id: str) -> WorkflowHistory:
        """Return the history of one run of a workflow.

        Raise `NotFound` or `Unreachable`.
        """
        try:
            return await self.client.get_workflow_handle(
                target.workflow_id, run_id=run_id
            ).fetch_history()
        except RPCError as error:
            raise self.failures.of(error, target) from error

    async def signal(
        self, target: Target, signal: Signal[ReceiverT, MessageT], message: MessageT
    ) -> None:
        """Send a signal to a running workflow. Raise `NotFound` or `Unreachable`."""
        request = signal.request(target.receiving(signal), message)
        try:
            await self.client.get_workflow_handle(request.workflow_id).signal(
                request.signal, request.payload
            )
        except RPCError as error:
            raise self.failures.of_sending(error, target) from error

    async def start_scheduler(self) -> None:
        """Start the scheduler if it is not running.

        Every program that signals the scheduler does so first. Raise `Unreachable`.
        """
        try:
            await ensure_scheduler(self.client)
        except RPCError as error:
            raise unreachable(self.settings, error) from error

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        """Create or change an object by signal-with-start. Raise `Unreachable`."""
        kind = target.kind.kind
        request = EntitySignals.SET_SPEC.request(
            target.receiving(EntitySignals.SET_SPEC), message
        )
        try:
            await self.client.start_workflow(
                kind,
                None,
                id=target.workflow_id,
                task_queue=queues.WORKFLOWS,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                static_summary=target.title,
                start_signal=request.signal,
                start_signal_args=[request.payload],
                **identity_at_start(kind, target.namespace, target.name),
            )
        except RPCError as error:
            raise self.failures.of_sending(error, target) from error

    async def check_spec(self, target: Target, message: SetSpec) -> None:
        """Do nothing: only the workflow can check its spec."""

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        """Send a new manifest to an existing object.

        The last writer wins, so `read` is not compared. Raise `NotFound` or
        `Unreachable`.
        """
        del read
        await self.signal(target, EntitySignals.SET_SPEC, message)

    async def scale(self, target: Target, message: Scale) -> None:
        """Send a replica count to a deployment. Raise `NotFound` or `Unreachable`."""
        await self.signal(target, ModelDeploymentSignals.SCALE, message)

    async def retry(self, target: Target, message: RetryNow) -> None:
        """Retry failed steps of an object now. Raise `NotFound` or `Unreachable`."""
        await self.signal(target, EntitySignals.RETRY_NOW, message)

    async def revisions(self, target: Target) -> Sequence[Tree]:
        """Return the earlier templates of a deployment.

        Each has `generation` and `template`. Raise `NotFound`, `NoAnswer` or
        `Unreachable`.
        """
        found: Sequence[Tree] = await self._query(target, "revisions")
        return found

    async def delete(self, target: Target, message: Delete) -> None:
        """Request the deletion of an object. Raise `NotFound` or `Unreachable`."""
        await self.signal(target, EntitySignals.DELETE, message)

    async def execution(self, target: Target) -> Execution:
        """Describe the workflow of an object.

        If Temporal does not answer, return only the link to the workflow's page.
        """
        return await execution_of(self.client, self.settings, target)

    async def replace(self, target: Target, message: Replace, *, create: bool) -> Tree:
        """Change an object and return its new state.

        With `create`, the object must not exist yet. Raise `AlreadyExists`,
        `WriteConflict` if the object was changed after it was read, `Refused`,
        `NotFound`, `NoAnswer` or `Unreachable`.
        """
        try:
            write = self._create if create else self._replace
            tree: Tree = await write(target, message)
        except WorkflowAlreadyStartedError as error:
            raise AlreadyExists(
                f"{target.title} exists already",
                next_step="change it, or choose another name",
            ) from error
        except WorkflowUpdateFailedError as error:
            is_conflict = error_type(error.cause) == errors.Conflict.__name__
            failure = WriteConflict if is_conflict else Refused
            raise failure(
                error_message(error.cause),
                next_step="read the object again, and repeat the change",
            ) from error
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise await self.failures.silence(target) from error
        except RPCError as error:
            raise await self.failures.of_answer(error, target) from error
        return tree

    async def _replace(self, target: Target, message: Replace) -> Any:
        handle = self.client.get_workflow_handle(target.workflow_id)
        return await handle.execute_update(
            _REPLACE, message.wire(), id=message.request_id, rpc_timeout=WRITE_WAIT
        )

    async def _create(self, target: Target, message: Replace) -> Any:
        kind = target.kind.kind
        start = WithStartWorkflowOperation[Any, Any](
            kind,
            None,
            id=target.workflow_id,
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=target.title,
            **identity_at_start(kind, target.namespace, target.name),
        )
        try:
            return await self.client.execute_update_with_start_workflow(
                _REPLACE,
                message.wire(),
                start_workflow_operation=start,
                id=message.request_id,
                rpc_timeout=WRITE_WAIT,
            )
        finally:
            # The start fails together with the update. Retrieve its exception, or
            # asyncio logs that nobody did. A cancelled call has no exception yet.
            with suppress(TemporalError, TimeoutError):
                async with asyncio.timeout(0):
                    await start.workflow_handle()

    async def list(
        self, kind: KindInfo, namespace: str | None, *, deployment: str = ""
    ) -> Sequence[ListedObject]:
        """Return all objects of a kind, sorted by namespace and name.

        Namespace None means all. Raise `Unreachable`.
        """
        scope = namespace or "" if kind.namespaced and not kind.shown_by else ""
        query = visibility_query(
            [kind.shown_by or kind.kind], namespace=scope, deployment=deployment
        )
        try:
            rows = [row async for row in self.client.list_workflows(query)]
        except RPCError as error:
            raise self.failures.of(error, None) from error
        found = await asyncio.gather(*(self._seen(kind, row) for row in rows))
        return sorted(
            (seen for seen in found if seen),
            key=lambda seen: (seen.target.namespace, seen.target.name),
        )

    async def _seen(
        self, kind: KindInfo, row: WorkflowExecution
    ) -> ListedObject | None:
        attributes = row.typed_search_attributes
        target = Target.of(
            kind,
            attributes.get(NAMESPACE),
            attributes.get(NAME) or row.id.rpartition("/")[2],
        )
        try:
            return ListedObject(target, await self.describe(target))
        except NotFound:
            return None  # the workflow ended between the list and the query
        except NoAnswer:
            # The attributes describe the object that owns the workflow, not an object
            # that the workflow shows.
            phase, ready = attributes.get(PHASE), attributes.get(READY)
            if kind.shown_by:
                phase = ready = None
            tree = _from_attributes(target, phase, ready, timestamp(row.start_time))
            return ListedObject(target, tree, answered=False)

    async def _query(self, target: Target, name: str, *arguments: Any) -> Any:
        handle = self.client.get_workflow_handle(target.workflow_id)
        async with self._gate:
            try:
                # A closed workflow could still answer from its history, but its object
                # no longer exists.
                return await handle.query(
                    name,
                    args=arguments,
                    reject_condition=QueryRejectCondition.NOT_OPEN,
                    rpc_timeout=self._answer_wait,
                )
            except WorkflowQueryRejectedError as error:
                raise not_found(target) from error
            except (UnreadablePayload, KeyError) as error:
                # Without any key the converter does not know the encoding, and raises
                # KeyError.
                raise CommandFailed(
                    f"{target.title} is encrypted with a key that this program does not have",
                    details=[str(error.args[0])],
                    next_step="add the keys of the workers to `encryption.keys` in the settings",
                ) from error
            except WorkflowQueryFailedError as error:
                raise NoAnswer(
                    f"the workflow of {target.title} cannot answer: {error}",
                    next_step=(
                        "see its workflow in the Temporal UI: `modelplane ui "
                        f"{target.command}`"
                    ),
                ) from error
            except RPCError as error:
                raise await self.failures.of_answer(error, target) from error


@asynccontextmanager
async def control_plane(
    settings: Settings, why: str = _WHY
) -> AsyncIterator[ControlPlane]:
    """Connect to Temporal while a command runs.

    Raise `Refused` if commands go through the front. `why` completes the message "this
    command needs Temporal: ".
    """
    require_temporal(why)
    yield ControlPlane(await connect(settings), settings)


def _from_attributes(
    target: Target, phase: str | None, ready: str | None, started: str
) -> Tree:
    metadata = {"name": target.name, "creationTimestamp": started}
    if target.namespace:
        metadata["namespace"] = target.namespace
    last_known = {
        "type": "Ready",
        "status": ready,
        "reason": "NoAnswer",
        "message": "last known; no worker answers",
    }
    status = {"phase": phase or "", "conditions": [last_known] if ready else []}
    return {
        "apiVersion": target.kind.api_version,
        "kind": target.kind.kind,
        "metadata": metadata,
        "status": status,
    }
