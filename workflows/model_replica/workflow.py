"""ModelReplica: one complete serving instance on one cluster, from its first object to the last one deleted.

It applies its template, follows what is observed on the cluster, publishes its endpoint while it can serve, repairs drift, and is torn
down in order. Nothing missing or unreadable ever makes it delete: only its own deletion does.
"""

from collections.abc import Callable
from typing import Any

from temporalio import workflow

from api_types import names
from api_types.errors import InvalidInput
from api_types.messages.caches import CacheChanged, CacheReport
from api_types.messages.entities import ClusterChanged, Delete, SecretsChanged, SetLabels, SetTemplate
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
from workflows.model_replica.controller import ReplicaController
from workflows.model_replica.copies_wait import CopiesWait
from workflows.model_replica.decisions.status import account_of, shared_phase, status_of
from workflows.model_replica.orders import Order
from workflows.model_replica.pruning import ReplicaPruning
from workflows.model_replica.reducers import messages
from workflows.model_replica.state import FirstStart, ModelReplicaState


@workflow.defn(name="ModelReplica")
class ModelReplicaWorkflow(Entity[ModelReplicaState]):
    """Workflow id modelreplica/<namespace>/<name>; ends when the last step of its teardown is complete."""

    kind = "ModelReplica"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        state = read_carried(arguments, ModelReplicaState) if is_continued(workflow.info()) else self._first_state(arguments)
        if state is None:
            raise InvalidInput("birth: is missing; its ModelDeployment starts a ModelReplica, and tells it what it is")
        super().__init__(state)
        if (state.start.namespace, state.start.name) != (self.namespace, self.name):
            raise InvalidInput(f"birth: is that of {state.start.namespace}/{state.start.name}, and this is {self.title}")
        self.controller = ReplicaController(self.context, workflow.patched)
        self.cache = ReplicaCache(self.context)
        self.pruning = ReplicaPruning(self.context)
        self.copies = CopiesWait(self.context, self.controller.copies_found)
        self.calls = ReplicaCalls(self.context, self.controller, self.cache, self.copies)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until torn down."""
        del arguments
        await self.run_until_deleted()

    @staticmethod
    def _first_state(arguments: tuple[Any, ...]) -> ModelReplicaState | None:
        """Read what a first run is told; of a state, which no run has carried there, only that."""
        first = read_first(arguments, FirstStart)
        return ModelReplicaState(start=first.start) if first else None

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Apply what changed, conclude from what is observed, report it; or take the next steps of the teardown."""
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
        """Carry out what is ordered, until nothing more is."""
        while orders := decide():
            for order in orders:
                await self.calls.carry_out(order)

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @handles(ModelReplicaSignals.SET_TEMPLATE)
    def set_template(self, message: SetTemplate) -> None:
        """Adopt a newer template."""
        check_spec(ModelReplicaSpec, message.spec)
        if messages.set_template(self.state, message):
            self.context.mark_changed()

    @handles(ModelReplicaSignals.SET_LABELS)
    def set_labels(self, message: SetLabels) -> None:
        """Follow labels of users, and flags of the endpoint picker."""
        if messages.set_labels(self.state, message):
            self.context.mark_changed()

    @handles(ModelReplicaSignals.CLUSTER_CHANGED)
    def cluster_changed(self, message: ClusterChanged) -> None:
        """Store the state of the cluster."""
        self.controller.cluster_changed(message)

    @handles(ModelReplicaSignals.OBSERVED)
    def observed(self, message: Observed) -> None:
        """Store what the watch of the cluster saw of this replica's objects."""
        if messages.observed(self.state, message):
            self.context.requeue()

    @handles(ModelReplicaSignals.CACHE_REPORT)
    def cache_report(self, message: CacheReport) -> None:
        """Store which claim to mount, or why there is none yet."""
        self.cache.record_report(message)

    @handles(ModelReplicaSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        """Register anew at a cache that was created or deleted."""
        self.cache.record_change(message)

    @handles(ModelReplicaSignals.SECRETS_CHANGED)
    def secrets_changed(self, message: SecretsChanged) -> None:
        """Compare copies of Secrets with their sources."""
        if messages.secrets_changed(self.state, message, self.context.moment()):
            self.context.requeue()

    @handles(ModelReplicaSignals.ENDPOINT_WITHDRAWN)
    def endpoint_withdrawn(self, message: EndpointWithdrawn) -> None:
        """Store that no route has the endpoint any more."""
        if self.controller.publication.record_withdrawn(message):
            self.context.requeue()

    @handles(ModelReplicaSignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store what the watch of the control cluster saw of the endpoint's backend."""
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
        """Give what this replica reports to the EndpointDirectory of its namespace."""
        report = self.controller.publication.report()
        return report.wire() if report else None

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what scheduler and deployment keep of a replica."""
        return account_of(self.state, gone=self.controller.teardown.gone).wire()

    # --- hooks of the entity ------------------------------------------------------------------------------------------------------

    def on_delete_requested(self, message: Delete) -> None:
        """Start the teardown at once, whatever the last apply was waiting for."""
        del message
        self.on_retry_requested()

    def on_retry_requested(self) -> None:
        """Retry at once, and compare copies of Secrets with their sources too."""
        self.controller.retry()
        self.cache.followed.retry()
        self.copies.stop()

    def repeat_reports(self) -> None:
        """Report to the deployment again with the next pass."""
        messages.repeat_reports(self.state)

    def receivers(self) -> list[str]:
        """Name the deployment, and the cache if one is used."""
        deployment = names.workflow_id("ModelDeployment", self.state.start.namespace, self.state.start.deployment)
        return [deployment, *self.cache.followed.registered_at(), *self.controller.publication.receivers()]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report to a deployment that was started anew, or record that there is none; register at a cache that was."""
        if self.receivers()[0] in workflow_ids:
            self.repeat_reports()
        if any(each in workflow_ids for each in self.controller.publication.receivers()):
            self.controller.publication.report_again()
        self.cache.followed.register_again(workflow_ids)

    def on_resync(self) -> None:
        """Compare copies of Secrets with their sources: what changed them on the cluster is not signalled, and a signal may be lost."""
        self.state.copies_due = self.context.now()

    def phase(self) -> str:
        """Map the phase of a replica onto those that all kinds share."""
        return shared_phase(self.state)

    def status(self) -> dict[str, Any]:
        """Show engines, routing, inventory, the cache, and how far a teardown is."""
        return status_of(self.state)

    def details(self) -> list[str]:
        """List the steps of the teardown in the Temporal UI."""
        return self.state.teardown.lines() if self.state.deleting else []
