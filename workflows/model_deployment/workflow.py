"""ModelDeployment: the number of complete copies of a model, and their template.

The workflow requests placements from the scheduler, starts one ModelReplica per
placement, updates their templates in the steps that the scheduler orders, and counts
them. The scheduler alone decides on clusters.
"""

from typing import Any

from temporalio import workflow

from api_types import names
from api_types.messages.caches import CacheChanged
from api_types.messages.entities import (
    CheckReplicas,
    RecordEvent,
    ReplicaChanged,
    Scale,
)
from api_types.messages.scheduling import (
    Evict,
    Forgotten,
    PlacementResponse,
    Released,
    Resync,
    Revoke,
)
from api_types.messages.signals import FLEET_SCHEDULER, ModelDeploymentSignals
from api_types.resources.model_deployment import ModelDeployment
from api_types.validation.manifests import Manifest
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.start import read_carried
from workflows.model_deployment.adoption import ReplicaAdoption
from workflows.model_deployment.cache import DeploymentCache
from workflows.model_deployment.calls import carry_out
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.decisions.account import deployment_account
from workflows.model_deployment.decisions.received import check_evicted, check_placed
from workflows.model_deployment.decisions.scaling import (
    record_applied_replicas,
    record_revision,
)
from workflows.model_deployment.decisions.status import status_of
from workflows.model_deployment.state import DeploymentState


@workflow.defn(name="ModelDeployment")
class ModelDeploymentWorkflow(Entity[DeploymentState]):
    """Workflow id modeldeployment/<namespace>/<name>.

    It ends when it is deleted and its last replica is gone, which the scheduler
    confirms.
    """

    kind = "ModelDeployment"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, DeploymentState) or DeploymentState())
        self.controller = DeploymentController(self.context)
        self.cache = DeploymentCache(self.context)
        self.adoption = ReplicaAdoption(self.context, self.controller.replicas)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until all replicas are gone."""
        del arguments
        await self.run_until_deleted()

    # One pass

    async def reconcile(self) -> bool:
        """Run one pass of the placements and replicas, or the next steps of the teardown."""
        if not self.state.adopted:
            await self.adoption.run()
        cache = await self.cache.follow() if self.controller.is_active else {}
        await carry_out(self.controller.next_orders(cache), self.controller.replicas)
        self.controller.conclude()
        self.controller.show_writers()
        return self.controller.is_gone

    # Requests of users

    @handles(ModelDeploymentSignals.SCALE)
    def scale(self, message: Scale) -> None:
        """Set the replica count and record the writer.

        The last accepted count is in force.
        """
        if self.accept_request(message.request_id):
            self.controller.scale(message)

    @handles(ModelDeploymentSignals.RECORD_EVENT)
    def record_event(self, message: RecordEvent) -> None:
        """Show the report of another system; it changes no decision."""
        if not self.accept_request(message.request_id):
            return
        if self.context.record_report(message.type, message.reason, message.message):
            self.context.mark_changed()
        else:
            # The report repeats a known one. So watches see no event, and changes of
            # users do not conflict with it.
            self.context.requeue()

    def with_own_replicas(self, manifest: Manifest) -> Manifest:
        """Return the manifest with the last applied count, so the count of an autoscaler stays."""
        if (
            not isinstance(manifest, ModelDeployment)
            or self.state.applied_replicas is None
        ):
            return manifest
        return manifest.model_copy(
            update={
                "spec": manifest.spec.model_copy(
                    update={"replicas": self.state.applied_replicas}
                )
            }
        )

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Keep the replica count of an autoscaler, and the template that this spec replaces."""
        merged = record_applied_replicas(self.state, spec, self.context.now())
        record_revision(self.state, spec, self.context.now())
        return merged

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Measure how long a new generation takes."""
        if new_generation:
            self.controller.start_timing()

    # Messages of other entities

    @handles(ModelDeploymentSignals.PLACED)
    def placed(self, message: PlacementResponse) -> None:
        check_placed(message)
        self.controller.placed(message)

    @handles(ModelDeploymentSignals.EVICT)
    def evict(self, message: Evict) -> None:
        check_evicted(message)
        self.controller.evict(message)

    @handles(ModelDeploymentSignals.REVOKE)
    def revoke(self, message: Revoke) -> None:
        """Record the scheduler's question whether an old reservation is used."""
        self.controller.revoke(message)

    @handles(ModelDeploymentSignals.RELEASED)
    def released(self, message: Released) -> None:
        """Record the end of a replica. A placement may wait for its nodes."""
        self.controller.released(message)

    @handles(ModelDeploymentSignals.FORGOTTEN)
    def forgotten(self, message: Forgotten) -> None:
        """Record that the scheduler charges nothing to this deployment, which is being deleted."""
        self.controller.forgotten(message)

    @handles(ModelDeploymentSignals.REPLICA_CHANGED)
    def replica_changed(self, message: ReplicaChanged) -> None:
        self.controller.replicas.record_report(message)

    @handles(ModelDeploymentSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        self.cache.record_change(message)

    @handles(ModelDeploymentSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Request placements again.

        The scheduler may have lost its state, or a taint, an admission or `drain` may
        change the answer.
        """
        self.controller.resync(message)

    @handles(ModelDeploymentSignals.CHECK_REPLICAS)
    def check_replicas(self, message: CheckReplicas) -> None:
        """Check with the next pass which replicas do not run, and restart them."""
        del message
        self.request_check()

    def on_retry_requested(self) -> None:
        """Look for a missing cache."""
        self.cache.followed.retry()

    def receivers(self) -> list[str]:
        """Return the ids of the scheduler and of the cache, if the deployment uses one."""
        return [FLEET_SCHEDULER.workflow_id, *self.cache.followed.registered_at()]

    def dependents(self) -> list[str]:
        """Return the ids of the replicas."""
        return [
            names.workflow_id("ModelReplica", self.namespace, replica.name)
            for replica in self.state.started()
        ]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Repeat requests and registrations to restarted receivers; start lost replicas."""
        self.controller.receivers_lost(workflow_ids)
        self.cache.followed.register_again(workflow_ids)

    # Queries

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Return every replica of this deployment, for a scheduler that lost its state."""
        return deployment_account(self.state, self.namespace, self.name).wire()

    @workflow.query
    def applied_replicas(self) -> int | None:
        """Return the last applied replica count, None before the first apply.

        `scale` may have ordered another count since.
        """
        return self.state.applied_replicas

    @workflow.query
    def revisions(self) -> list[dict[str, Any]]:
        """Return the replaced templates, the oldest first."""
        return [revision.wire() for revision in self.state.revisions]

    # Status

    def phase(self) -> str:
        """A deployment that is not Ready is Degraded if some of its replicas are Ready."""
        phase = super().phase()
        return (
            "Degraded"
            if phase == "Progressing"
            and any(replica.ready for replica in self.state.replicas.values())
            else phase
        )

    def status(self) -> dict[str, Any]:
        """Return counts, the scale selector and each replica."""
        return status_of(self.state, self.name)

    def details(self) -> list[str]:
        """Return the list of replicas for the Temporal UI."""
        lines = ["| Replica | Cluster | Phase | Ready | |", "|---|---|---|---|---|"]
        for replica in self.state.by_name():
            message = replica.message.replace("|", "/")
            cells = (
                replica.name,
                replica.cluster,
                replica.phase,
                replica.ready,
                message,
            )
            lines.append(f"| {' | '.join(map(str, cells))} |")
        return [*lines, ""]
