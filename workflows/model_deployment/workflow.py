"""ModelDeployment: how many complete copies of a model run, and with which template.

It requests placements of the scheduler, starts one ModelReplica per placement, updates their templates in the steps that the scheduler
orders, and counts them. Where replicas run is never decided here.
"""

from typing import Any

from temporalio import workflow

from api_types import names
from api_types.messages.caches import CacheChanged
from api_types.messages.entities import CheckReplicas, RecordEvent, ReplicaChanged, Scale
from api_types.messages.scheduling import Evict, Forgotten, PlacementResponse, Released, Resync, Revoke
from api_types.messages.signals import FLEET_SCHEDULER, ModelDeploymentSignals
from api_types.resources.model_deployment import ModelDeployment
from api_types.validation.manifests import Manifest
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.start import read_carried
from workflows.model_deployment.adoption import Adoption
from workflows.model_deployment.cache import DeploymentCache
from workflows.model_deployment.calls import carry_out
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.decisions.account import deployment_account
from workflows.model_deployment.decisions.received import check_evicted, check_placed
from workflows.model_deployment.decisions.scaling import record_applied_replicas, record_revision
from workflows.model_deployment.decisions.status import status_of
from workflows.model_deployment.state import DeploymentState

REPEATED_PATCH = "repeated-reports-change-nothing"


@workflow.defn(name="ModelDeployment")
class ModelDeploymentWorkflow(Entity[DeploymentState]):
    """Workflow id modeldeployment/<namespace>/<name>; ends when it is deleted and its last replica is gone, for the scheduler too."""

    kind = "ModelDeployment"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, DeploymentState) or DeploymentState())
        self.controller = DeploymentController(self.context)
        self.cache = DeploymentCache(self.context)
        self.adoption = Adoption(self.context, self.controller.replicas)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until all replicas are gone."""
        del arguments
        await self.run_until_deleted()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Request placements, carry the answer out, count the replicas; or take the next steps of the teardown."""
        if not self.state.adopted:
            await self.adoption.run()
        cache = await self.cache.follow() if self.controller.is_active else {}
        await carry_out(self.controller.next_orders(cache), self.controller.replicas)
        self.controller.conclude()
        self.controller.show_writers(workflow.patched)
        return self.controller.is_gone

    # --- messages from users --------------------------------------------------------------------------------------------------------

    @handles(ModelDeploymentSignals.SCALE)
    def scale(self, message: Scale) -> None:
        """Change the replica count; the last accepted count holds and is recorded."""
        if self.accept_request(message.request_id):
            self.controller.scale(message)

    @handles(ModelDeploymentSignals.RECORD_EVENT)
    def record_event(self, message: RecordEvent) -> None:
        """Show what another system reports; nothing is decided by it."""
        if not self.accept_request(message.request_id):
            return
        if self.context.record_report(message.type, message.reason, message.message) or not workflow.patched(REPEATED_PATCH):
            self.context.mark_changed()
        else:
            # What was reported is known: no watch is told, and no user's change conflicts with it.
            self.context.requeue()

    def with_own_replicas(self, manifest: Manifest) -> Manifest:
        """Give it with the count that was applied last, which leaves that of an autoscaler as it is."""
        if not isinstance(manifest, ModelDeployment) or self.state.applied_replicas is None:
            return manifest
        return manifest.model_copy(update={"spec": manifest.spec.model_copy(update={"replicas": self.state.applied_replicas})})

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Keep the replica count that an autoscaler ordered, and the template that this spec replaces."""
        merged = record_applied_replicas(self.state, spec, self.context.now())
        record_revision(self.state, spec, self.context.now())
        return merged

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Measure how long a new generation takes."""
        if new_generation:
            self.controller.start_timing()

    # --- messages from other entities -----------------------------------------------------------------------------------------------

    @handles(ModelDeploymentSignals.PLACED)
    def placed(self, message: PlacementResponse) -> None:
        """Store the scheduler's answer."""
        check_placed(message)
        self.controller.placed(message)

    @handles(ModelDeploymentSignals.EVICT)
    def evict(self, message: Evict) -> None:
        """A replica is evicted."""
        check_evicted(message)
        self.controller.evict(message)

    @handles(ModelDeploymentSignals.REVOKE)
    def revoke(self, message: Revoke) -> None:
        """A reservation is old: the scheduler asks whether it is used."""
        self.controller.revoke(message)

    @handles(ModelDeploymentSignals.RELEASED)
    def released(self, message: Released) -> None:
        """A replica is gone whose nodes a placement waits for."""
        self.controller.released(message)

    @handles(ModelDeploymentSignals.FORGOTTEN)
    def forgotten(self, message: Forgotten) -> None:
        """Nothing is charged to this deployment, which is being deleted."""
        self.controller.forgotten(message)

    @handles(ModelDeploymentSignals.REPLICA_CHANGED)
    def replica_changed(self, message: ReplicaChanged) -> None:
        """Store what a replica reports."""
        self.controller.replicas.record_report(message)

    @handles(ModelDeploymentSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        """Store what the cache reports."""
        self.cache.record_change(message)

    @handles(ModelDeploymentSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Request placements again: of a scheduler that lost its state, or because a taint, an admission or `drain` may change them."""
        self.controller.resync(message)

    @handles(ModelDeploymentSignals.CHECK_REPLICAS)
    def check_replicas(self, message: CheckReplicas) -> None:
        """Find out with the next pass which replicas do not run; they are started again."""
        del message
        self.request_check()

    def on_retry_requested(self) -> None:
        """Look for a missing cache."""
        self.cache.followed.retry()

    def receivers(self) -> list[str]:
        """Name the scheduler, and the cache if one is used."""
        return [FLEET_SCHEDULER.workflow_id, *self.cache.followed.registered_at()]

    def dependents(self) -> list[str]:
        """Name the replicas."""
        return [names.workflow_id("ModelReplica", self.namespace, replica.name) for replica in self.state.started()]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Request placements of a scheduler that was started anew, register at a cache that was, start replicas that do not run."""
        self.controller.receivers_lost(workflow_ids)
        self.cache.followed.register_again(workflow_ids)

    # --- queries ------------------------------------------------------------------------------------------------------------------

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give every replica that this deployment holds, for a scheduler that does not know them."""
        return deployment_account(self.state, self.namespace, self.name).wire()

    @workflow.query
    def applied_replicas(self) -> int | None:
        """Give the replica count that was last applied; another one may have been ordered since. None if nothing was applied yet."""
        return self.state.applied_replicas

    @workflow.query
    def revisions(self) -> list[dict[str, Any]]:
        """Give the templates that were replaced, the oldest first."""
        return [revision.wire() for revision in self.state.revisions]

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def phase(self) -> str:
        """A deployment with some replicas ready is Degraded when it is not Ready."""
        phase = super().phase()
        return "Degraded" if phase == "Progressing" and any(replica.ready for replica in self.state.replicas.values()) else phase

    def status(self) -> dict[str, Any]:
        """Show counts, the scale selector and each replica."""
        return status_of(self.state, self.name)

    def details(self) -> list[str]:
        """List the replicas in the Temporal UI."""
        lines = ["| Replica | Cluster | Phase | Ready | |", "|---|---|---|---|---|"]
        lines += [
            f"| {replica.name} | {replica.cluster} | {replica.phase} | {replica.ready} | {replica.message.replace('|', '/')} |"
            for replica in self.state.by_name()
        ]
        return [*lines, ""]
