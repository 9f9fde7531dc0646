"""ModelReplica: one complete serving instance on one cluster, from its first object to the last.

The workflow applies its template, follows observations of the cluster, publishes its
endpoint while it can serve, repairs drift, and removes its objects in order. Missing or
unreadable inputs delete nothing; only its own deletion does.
"""

from collections.abc import Callable
from typing import Any

from temporalio import workflow

from api_types import names
from api_types.errors import InvalidInput
from api_types.messages.caches import CacheChanged, CacheReport
from api_types.messages.entities import (
    ClusterChanged,
    Delete,
    SecretsChanged,
    SetLabels,
    SetTemplate,
)
from api_types.messages.gateway_work import ControlObserved
from api_types.messages.observations import Observed
from api_types.messages.routing import EndpointWithdrawn
from api_types.messages.scheduling import Resync
from api_types.messages.signals import ModelReplicaSignals
from api_types.resources.model_replica import ModelReplicaSpec
from workflows.entity.entity import Entity
from workflows.entity.handles import check_spec, handles
from workflows.entity.start import is_continued, read_carried, read_first
from workflows.model_replica.cache import ReplicaCache
from workflows.model_replica.calls import ReplicaCalls
from workflows.model_replica.controller import ModelReplicaController
from workflows.model_replica.copies_wait import CopiesWait
from workflows.model_replica.decisions.status import account_of, shared_phase, status_of
from workflows.model_replica.orders import Order
from workflows.model_replica.pruning import ReplicaPruning
from workflows.model_replica.reducers import messages
from workflows.model_replica.state import FirstStart, ModelReplicaState


@workflow.defn(name="ModelReplica")
class ModelReplicaWorkflow(Entity[ModelReplicaState]):
    """Workflow id modelreplica/<namespace>/<name>; ends after the last step of its teardown."""

    kind = "ModelReplica"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        state = (
            read_carried(arguments, ModelReplicaState)
            if is_continued(workflow.info())
            else self._first_state(arguments)
        )
        if state is None:
            raise InvalidInput(
                "start: is missing; only a ModelDeployment starts a ModelReplica"
            )
        super().__init__(state)
        if (state.start.namespace, state.start.name) != (self.namespace, self.name):
            raise InvalidInput(
                f"start: names {state.start.namespace}/{state.start.name}, "
                f"but the workflow is {self.title}"
            )
        self.controller = ModelReplicaController(self.context)
        self.cache = ReplicaCache(self.context)
        self.pruning = ReplicaPruning(self.context)
        self.copies = CopiesWait(self.context, self.controller.copies_found)
        self.calls = ReplicaCalls(
            self.context, self.controller, self.cache, self.copies
        )

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until torn down."""
        del arguments
        await self.run_until_deleted()

    @staticmethod
    def _first_state(arguments: tuple[Any, ...]) -> ModelReplicaState | None:
        """Read the argument of a first run.

        A first run uses only `start` of a state, because no previous run has carried
        the rest.
        """
        first = read_first(arguments, FirstStart)
        if first is None:
            return None
        return ModelReplicaState(start=first.start)

    # One pass

    async def reconcile(self) -> bool:
        """Run one pass: apply, conclude and report, or take the next steps of the teardown."""
        if not self.state.deleting:
            await self.cache.follow()
            await self.carry_out(self.controller.apply)
        if self.state.deleting:
            await self.carry_out(self.controller.tear_down)
        else:
            self.controller.conclude()
            await self.carry_out(self.controller.publish)
            await self.cache.follow()
            await self.pruning.step()
        await self.carry_out(self.controller.report)
        return self.controller.teardown.gone

    async def carry_out(self, decide: Callable[[], list[Order]]) -> None:
        """Carry out orders until none is left."""
        while orders := decide():
            for order in orders:
                await self.calls.carry_out(order)

    # Messages

    @handles(ModelReplicaSignals.SET_TEMPLATE)
    def set_template(self, message: SetTemplate) -> None:
        """Adopt a newer template."""
        check_spec(ModelReplicaSpec, message.spec)
        if messages.set_template(self.state, message):
            self.context.mark_changed()

    @handles(ModelReplicaSignals.SET_LABELS)
    def set_labels(self, message: SetLabels) -> None:
        """Store users' labels and the flags of the endpoint picker."""
        if messages.set_labels(self.state, message):
            self.context.mark_changed()

    @handles(ModelReplicaSignals.CLUSTER_CHANGED)
    def cluster_changed(self, message: ClusterChanged) -> None:
        self.controller.cluster_changed(message)

    @handles(ModelReplicaSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Store an observation of this replica's objects."""
        if messages.observed(self.state, message):
            self.context.requeue()

    @handles(ModelReplicaSignals.CACHE_REPORT)
    def cache_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or the reason why there is none yet."""
        self.cache.record_report(message)

    @handles(ModelReplicaSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        """Register again at a cache that was created or deleted."""
        self.cache.record_change(message)

    @handles(ModelReplicaSignals.SECRETS_CHANGED)
    def secrets_changed(self, message: SecretsChanged) -> None:
        """Compare copies of Secrets with their sources."""
        if messages.secrets_changed(self.state, message, self.context.moment()):
            self.context.requeue()

    @handles(ModelReplicaSignals.ENDPOINT_WITHDRAWN)
    def endpoint_withdrawn(self, message: EndpointWithdrawn) -> None:
        """Record that no route has the endpoint any more."""
        if self.controller.publication.record_withdrawn(message):
            self.context.requeue()

    @handles(ModelReplicaSignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store an observation of the endpoint's backend on the control cluster."""
        if self.controller.publication.record_observed(message):
            self.context.requeue()

    @handles(ModelReplicaSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again to a deployment that lost its state."""
        del message
        self.repeat_reports()
        self.context.requeue()

    @workflow.query
    def endpoint_report(self) -> dict[str, Any] | None:
        """Return the last report to the EndpointDirectory of the namespace."""
        report = self.controller.publication.report()
        return report.wire() if report else None

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Return the account of the replica for scheduler and deployment."""
        return account_of(self.state, gone=self.controller.teardown.gone).wire()

    # Hooks of the entity

    def on_delete_requested(self, message: Delete) -> None:
        """Start the teardown at once, even during an apply."""
        del message
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        """Retry at once, and compare copies of Secrets with their sources."""
        self.controller.retry()
        self.cache.followed.retry()
        self.copies.stop()

    def repeat_reports(self) -> None:
        """Report to the deployment again with the next pass."""
        messages.repeat_reports(self.state)

    def receivers(self) -> list[str]:
        """Return the ids of the deployment and of the cache, if the replica uses one."""
        deployment = names.workflow_id(
            "ModelDeployment", self.state.start.namespace, self.state.start.deployment
        )
        return [
            deployment,
            *self.cache.followed.registered_at(),
            *self.controller.publication.receivers(),
        ]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to a restarted deployment, and register at a restarted cache."""
        if self.receivers()[0] in workflow_ids:
            self.repeat_reports()
        if any(
            each in workflow_ids for each in self.controller.publication.receivers()
        ):
            self.controller.publication.report_again()
        self.cache.followed.register_again(workflow_ids)

    def on_resync(self) -> None:
        """Compare copies of Secrets with their sources.

        No signal reports changes of the copies on the cluster, and a signal about a
        source may be lost.
        """
        self.state.copies_due = self.context.now()

    def phase(self) -> str:
        """Map the phase of a replica to the shared phases."""
        return shared_phase(self.state)

    def status(self) -> dict[str, Any]:
        return status_of(self.state)

    def details(self) -> list[str]:
        """Return the steps of the teardown for the Temporal UI."""
        return self.state.teardown.lines() if self.state.deleting else []
