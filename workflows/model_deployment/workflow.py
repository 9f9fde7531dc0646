"""ModelDeployment: how many complete copies of a model run, and with which template.

It requests placements of the scheduler, starts one ModelReplica per placement, updates their templates in the steps that the scheduler
orders, and counts them. Where replicas run is never decided here.
"""

from typing import Any

from temporalio import workflow

from api_types.messages.caches import CacheChanged
from api_types.messages.entities import ReplicaChanged, Scale
from api_types.messages.scheduling import Evict, PlacementResponse, ReplicaAccount, Resync, Revoke
from api_types.messages.signals import ModelDeploymentSignals
from api_types.resources.status import LastScale
from scheduler import deployment_view, to_wire
from workflows.entity.conditions import TRUE
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.model_deployment.adoption import Adoption
from workflows.model_deployment.cache import DeploymentCache
from workflows.model_deployment.placements import Placements
from workflows.model_deployment.plan import placement_inputs
from workflows.model_deployment.replicas import ReplicaController
from workflows.model_deployment.scaling import record_applied_replicas, record_revision, scale_problem
from workflows.model_deployment.state import DeploymentState, GenerationTimings
from workflows.model_deployment.status import conditions_of, status_of
from workflows.model_deployment.teardown import DeploymentTeardown


@workflow.defn(name="ModelDeployment")
class ModelDeploymentWorkflow(Entity[DeploymentState]):
    """Workflow id modeldeployment/<namespace>/<name>; ends when it is deleted and its last replica is gone."""

    kind = "ModelDeployment"

    @workflow.init
    def __init__(self, state: DeploymentState | None) -> None:
        super().__init__(state or DeploymentState())
        self.cache = DeploymentCache(self.context)
        self.replicas = ReplicaController(self.context)
        self.placements = Placements(self.context, self.replicas)
        self.adoption = Adoption(self.context, self.replicas)
        self.teardown = DeploymentTeardown(self.context, self.replicas)

    @workflow.run
    async def run(self, state: DeploymentState | None) -> None:
        """Run until all replicas are gone."""
        del state
        await self.run_until_deleted()

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Request placements, carry the answer out, count the replicas; or take the next steps of the teardown."""
        if not self.state.adopted:
            await self.adoption.run()
        await self.replicas.answer_revoked()
        await self.replicas.delete_orphans()
        await self.replicas.delete_preempted()
        if self.state.deleting:
            return await self.teardown.run()
        if self.state.spec is None:
            return False
        await self.replicas.resync()
        self.replicas.restart_lost()
        await self.request_placements()
        await self.placements.carry_out_answer()
        await self.replicas.start()
        await self.replicas.update_labels()
        self.record_conditions()
        self.state.observed_generation = self.state.generation
        return False

    async def request_placements(self) -> None:
        """Request placements if anything changed that the answer depends on."""
        cache = await self.cache.follow()
        inputs = placement_inputs(self.state, cache)
        if inputs != self.state.requested_inputs:
            await self.placements.request(inputs, to_wire(deployment_view(self.manifest(), cache or None)))

    def record_conditions(self) -> None:
        """Write the conditions, and how long the generation took to become Ready."""
        for kind, verdict in conditions_of(self.state):
            self.context.set_condition(kind, *verdict)
            if (kind, verdict.status) == ("Ready", TRUE) and self.state.timings and self.state.timings.ready_seconds is None:
                self.state.timings = self.state.timings.model_copy(update={"ready_seconds": workflow.time() - self.state.timings.accepted})

    # --- messages from users --------------------------------------------------------------------------------------------------------

    @handles(ModelDeploymentSignals.SCALE)
    def scale(self, message: Scale) -> None:
        """Change the replica count; the last accepted count holds and is recorded."""
        if not self.accept_request(message.request_id):
            return
        problem = scale_problem(self.state, message)
        if problem or self.state.spec is None:
            self.context.record_event("Warning", "ScaleRefused", problem)
            return
        before, count = self.state.spec["replicas"], message.replicas
        self.state.last_scale = LastScale(replicas=count, by=message.by, at=self.context.now(), request_id=message.request_id)
        if count != before:
            self.context.record_event("Normal", "Scaled", f"from {before} to {count} by {message.by or 'unknown'}")
            self.state.spec = {**self.state.spec, "replicas": count}
            self.state.generation += 1
            self.on_manifest_changed(new_generation=True)
        self.context.mark_changed()

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Keep the replica count that an autoscaler ordered, and the template that this spec replaces."""
        merged = record_applied_replicas(self.state, spec, self.context.now())
        record_revision(self.state, spec, self.context.now())
        return merged

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Measure how long a new generation takes."""
        if new_generation:
            self.state.timings = GenerationTimings(generation=self.state.generation, accepted=workflow.time())

    # --- messages from other entities -----------------------------------------------------------------------------------------------

    @handles(ModelDeploymentSignals.PLACED)
    def placed(self, message: PlacementResponse) -> None:
        """Store the scheduler's answer."""
        self.placements.record_answer(message)

    @handles(ModelDeploymentSignals.EVICT)
    def evict(self, message: Evict) -> None:
        """A replica is preempted."""
        self.placements.record_preemption(message)

    @handles(ModelDeploymentSignals.REVOKE)
    def revoke(self, message: Revoke) -> None:
        """A reservation is old: the scheduler asks whether it is used."""
        if message.epoch >= self.state.epoch:
            self.replicas.record_revoked(message.uid)

    @handles(ModelDeploymentSignals.REPLICA_CHANGED)
    def replica_changed(self, message: ReplicaChanged) -> None:
        """Store what a replica reports."""
        self.replicas.record_report(message)

    @handles(ModelDeploymentSignals.CACHE_CHANGED)
    def cache_changed(self, message: CacheChanged) -> None:
        """Store what the cache reports."""
        self.cache.record_change(message)

    @handles(ModelDeploymentSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Request placements again: of a scheduler that lost its state, or because a taint, an admission or `drain` may change them."""
        if message is None:
            self.repeat_reports()
        else:
            self.placements.record_new_scheduler(message)
        self.context.requeue()

    def repeat_reports(self) -> None:
        """Request placements again, and have the replicas report again, with the next pass."""
        self.state.requested_inputs = None
        self.replicas.request_resync()

    # --- queries ------------------------------------------------------------------------------------------------------------------

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give the placements that are not started yet, for a scheduler that lost its state."""
        waiting = [replica for replica in self.state.replicas.values() if not replica.started] if self.state.spec else []
        accounts = [
            ReplicaAccount(
                uid=replica.uid,
                namespace=self.namespace,
                deployment=self.name,
                name=replica.name,
                cluster=replica.cluster,
                index=replica.index,
                generation=replica.generation,
                entry=replica.entry,
            )
            for replica in waiting
        ]
        return {"unstarted": [account.wire() for account in accounts]}

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
