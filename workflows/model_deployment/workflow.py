"""ModelDeployment: how many whole copies of a model shall run, and with which template.

It asks the scheduler, starts one ModelReplica per placement, passes new templates on in the steps that the scheduler names, and counts.
Where replicas go is never decided here.
"""

from typing import Any

from temporalio import workflow

from api_types import labels, names
from api_types.limits import REPLICAS_MAX
from api_types.messages.entities import Evict, KnownReplica, Place, Placed, ReplicaChanged, ReplicaState, Resync, Revoke, Scale
from api_types.resources.status import LastScale
from scheduler import deployment_view, to_wire
from workflows.entity.conditions import TRUE
from workflows.model_deployment.replicas import DeploymentState, ReplicaController
from workflows.model_deployment.revisions import remember
from workflows.model_deployment.status import (
    Pace,
    Standing,
    TrackedReplica,
    ready_replicas_verdict,
    ready_verdict,
    rollout_progress,
    scheduled_verdict,
    without_retracted,
)


@workflow.defn(name="ModelDeployment")
class ModelDeploymentWorkflow(ReplicaController):
    """One deployment."""

    kind = "ModelDeployment"

    @workflow.init
    def __init__(self, state: DeploymentState | None) -> None:
        super().__init__(state or DeploymentState())

    @workflow.run
    async def run(self, state: DeploymentState | None) -> None:
        """Live until all replicas are gone."""
        del state
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @workflow.signal
    def scale(self, order: Any) -> None:
        """Order a replica count; the last accepted order wins and is recorded."""
        message = self.read(Scale, order)
        if message is None or not self.accept_request(message.request_id):
            return
        count = message.replicas
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= REPLICAS_MAX:
            self.event("Warning", "ScaleRefused", f"spec.replicas: must be between 0 and {REPLICAS_MAX}, got {count!r}")
            return
        if self.state.deleted or self.state.spec is None:
            self.event("Warning", "ScaleRefused", "the deployment is being deleted" if self.state.deleted else "there is no spec yet")
            return
        self.state.last_scale = LastScale(replicas=count, by=message.by, at=self.now(), request_id=message.request_id)
        if count != self.state.spec["replicas"]:
            self.event("Normal", "Scaled", f"from {self.state.spec['replicas']} to {count} by {message.by or 'somebody'}")
            self.state.spec = {**self.state.spec, "replicas": count}
            self.state.generation += 1
            self.on_spec_changed()
        self.touch()

    @workflow.signal
    def placed(self, order: Any) -> None:
        """Note the scheduler's answer; one that was overtaken by a newer question is void."""
        message = self.read(Placed, order)
        if message and message.request_id == self.state.asked and message.epoch >= self.state.epoch:
            self.state.epoch = message.epoch
            self.state.answer = message
            if self.state.pace and self.state.pace.placed_seconds is None:
                self.state.pace = self.state.pace.model_copy(update={"placed_seconds": workflow.time() - self.state.pace.accepted})
            self.requeue()

    @workflow.signal
    def replica_changed(self, order: Any) -> None:
        """Note what a replica tells; the highest sequence of a uid wins."""
        message = self.read(ReplicaChanged, order)
        if message is None:
            return
        held = self.state.replicas.get(message.uid)
        if held is None:
            if message.phase not in ("Gone", "Terminating") and self.state.adopted:
                # A start that was repeated after we let go of it: nobody wants this replica.
                self.state.orphans.append(message.name)
                self.requeue()
            return
        if message.sequence <= held.sequence:
            return
        if message.phase == "Gone":
            self.take_leave(held, message.left_behind)
            if not held.leaving:
                self.event("Warning", "ReplicaGone", f"{message.name} on {held.cluster} is gone; its place is asked for again")
        else:
            self.state.replicas[held.uid] = held.model_copy(
                update={
                    "sequence": message.sequence,
                    "phase": message.phase,
                    "ready": message.ready,
                    "serving": message.serving,
                    "applied_generation": message.generation,
                    "endpoint": message.endpoint,
                    "message": message.message,
                }
            )
        self.touch()

    @workflow.signal
    def revoke(self, order: Any) -> None:
        """A reservation is old: tell whether it is used."""
        message = self.read(Revoke, order)
        if message and message.epoch >= self.state.epoch:
            self.revoked.append(message.uid)
            self.requeue()

    @workflow.signal
    def evict(self, order: Any) -> None:
        """A replica loses its place to somebody else."""
        message = self.read(Evict, order)
        if message and message.epoch >= self.state.epoch and message.eviction.uid in self.state.replicas:
            self.state.evictions.append(message.eviction)
            self.requeue()

    def repeat_reports(self) -> None:
        """Ask the scheduler again, and look after the replicas, with the next pass."""
        self.state.asked_for = []
        self.look_after = True

    @workflow.signal
    def resync(self, order: Any = None) -> None:
        """Ask a scheduler again that lost its state."""
        message = self.read(Resync, order) if order is not None else None
        if message is None:
            self.repeat_reports()
        elif message.epoch > self.state.epoch:
            self.state.epoch, self.state.asked_for = message.epoch, []
            # What an earlier scheduler promised and we did not use yet is void: the new one may never have heard of it.
            self.state.replicas = {uid: held for uid, held in self.state.replicas.items() if held.started}
        self.requeue()

    @workflow.query
    def account(self) -> dict[str, Any]:
        """Give what the scheduler would have to know of placements that are not started yet."""
        waiting = [held for held in self.state.replicas.values() if not held.started]
        return {"unstarted": [self._state_of(held).wire() for held in waiting]} if self.state.spec else {"unstarted": []}

    @workflow.query
    def revisions(self) -> list[dict[str, Any]]:
        """Give the templates that were replaced, the oldest first."""
        return [revision.wire() for revision in self.state.revisions]

    def _state_of(self, held: TrackedReplica) -> ReplicaState:
        return ReplicaState(
            uid=held.uid,
            namespace=self.namespace,
            deployment=self.name,
            name=held.name,
            cluster=held.cluster,
            index=held.index,
            generation=held.generation,
            entry=held.entry,
        )

    # --- spec ---------------------------------------------------------------------------------------------------------------------

    def merge_spec(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Keep what an autoscaler ordered, unless the applied count itself is new."""
        written = spec["replicas"]
        kept = written
        if self.state.spec is not None and written == self.state.applied_replicas:
            kept = self.state.spec["replicas"]
        elif self.state.spec is not None:
            self.state.last_scale = LastScale(replicas=written, by="apply", at=self.now())
        self.state.applied_replicas = written
        self.keep_template(spec)
        return {**spec, "replicas": kept}

    def keep_template(self, spec: dict[str, Any]) -> None:
        """Remember the template that a new spec replaces, so that somebody can go back to it."""
        before = self.state.spec
        if before is not None and before["template"]["spec"] == spec["template"]["spec"]:
            return
        if before is not None:
            self.state.revisions = remember(self.state.revisions, self.state.template_generation, before["template"]["spec"], self.now())
        self.state.template_generation = self.state.generation + 1

    def on_spec_changed(self) -> None:
        """A new generation begins; how long it takes is shown."""
        self.state.pace = Pace(generation=self.state.generation, accepted=workflow.time())

    @property
    def wanted(self) -> int:
        """How many replicas are wanted."""
        return 0 if self.state.deleted or self.state.spec is None else int(self.state.spec["replicas"])

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Ask, follow the answer, count."""
        if not self.state.adopted:
            await self.adopt()
        await self.answer_revocations()
        await self.delete_orphans()
        await self.follow_evictions()
        if self.state.deleted:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        if self.look_after:
            self.look_after = False
            await self.tell_each([held for held in self.kept() if held.started], "resync", None)
        await self.find_lost()
        await self.ask()
        await self.follow_answer()
        await self.start_replicas()
        await self.hand_on_labels()
        self.judge()
        self.state.observed_generation = self.state.generation
        return False

    # --- the scheduler ------------------------------------------------------------------------------------------------------------

    async def ask(self) -> None:
        """Ask for placements when something that the answer depends on has changed."""
        cache = await self.cache()
        health: list[Any] = []
        if self.state.more:
            health = [[held.uid, held.current, held.serving] for held in self.kept()]
        question = [self.state.generation, self.state.epoch, self.identities(), health, cache]
        if question == self.state.asked_for:
            return
        self.state.asks += 1
        self.state.asked_for, self.state.answered = question, False
        self.state.asked = f"{self.state.uid}/{self.state.generation}/{self.state.asks}"
        place = Place(
            request_id=self.state.asked,
            epoch=self.state.epoch,
            namespace=self.namespace,
            name=self.name,
            uid=self.state.uid,
            generation=self.state.generation,
            wanted=self.wanted,
            need=to_wire(deployment_view(self.manifest(), cache or None)),
            kept=[
                KnownReplica(
                    uid=held.uid,
                    template=held.entry.get("template", ""),
                    ready=held.current,
                    serving=held.serving,
                    terminating=bool(held.leaving),
                )
                for held in self.kept()
            ],
        )
        await self.tell(names.FLEET_SCHEDULER_ID, "place", place)

    def identities(self) -> list[Any]:
        """Give what an answer depends on of the replicas: which there are, and which leave."""
        return [[held.uid, bool(held.leaving)] for held in self.kept()]

    async def follow_evictions(self) -> None:
        """Send away what must make room for others."""
        evictions, self.state.evictions = self.state.evictions, []
        leaving: list[TrackedReplica] = []
        for eviction in evictions:
            held = self.state.replicas.get(eviction.uid)
            if held:
                self.send_away(held, eviction.reason)
                leaving.append(held)
        await self.tell_each([held for held in leaving if held.started], "delete", self.order_to_leave())

    async def follow_answer(self) -> None:
        """Turn the newest answer into replicas to start, to change and to send away."""
        answer, self.state.answer = self.state.answer, None
        # What changed since it arrived was asked about anew, or will be in the next pass.
        if answer is None or (answer.request_id, answer.generation) != (self.state.asked, self.state.generation):
            return
        self.state.answered = True
        self.state.shortfall, self.state.message = answer.shortfall, answer.message
        still_true = without_retracted(self.state.conditions, self.state.scheduled, answer.conditions)
        if still_true != self.state.conditions:
            self.state.conditions = still_true
            self.touch()
        self.state.scheduled, self.state.more = answer.conditions, answer.more
        evicted = {eviction.uid: eviction for eviction in answer.evictions}
        for held in self.kept():
            if held.uid in evicted:
                self.send_away(held, evicted[held.uid].reason)
        created = self._take_placements(answer)
        if created:
            clusters = sorted({held.cluster for held in created})
            self.event("Normal", "Scheduled", f"Scheduled {len(created)} replicas across {len(clusters)} clusters: {', '.join(clusters)}")
        await self.hand_on_template([placement.uid for placement in answer.placements if placement.action == "Update"])
        leaving = [held for held in self.kept() if held.started and held.uid in evicted]
        await self.tell_each(leaving, "delete", self.order_to_leave())
        staying = {held.uid for held in self.state.replicas.values() if not held.leaving}
        if self.state.asked_for and staying == {placement.uid for placement in answer.placements}:
            # The scheduler knows what it has just ordered; asking about that would double its work.
            generation, epoch, _, *rest = self.state.asked_for
            self.state.asked_for = [generation, epoch, self.identities(), *rest]
        self.touch()

    def _take_placements(self, answer: Placed) -> list[TrackedReplica]:
        created: list[TrackedReplica] = []
        for placement in answer.placements:
            held = self.state.replicas.get(placement.uid)
            if held is None and not placement.entry:
                # It ended while the scheduler still counted on it: the next question says so.
                self.state.asked_for = []
            elif held is None:
                held = TrackedReplica(
                    uid=placement.uid,
                    name=placement.name,
                    cluster=placement.cluster,
                    index=placement.index,
                    entry=placement.entry,
                    after=placement.after,
                    generation=self.state.generation,
                )
                self.state.replicas[held.uid] = held
                created.append(held)
            elif placement.entry:
                self.change(held, entry=placement.entry, generation=self.state.generation)
        return created

    # --- judging ------------------------------------------------------------------------------------------------------------------

    def judge(self) -> None:
        """Count, and write the conditions."""
        for condition in self.state.scheduled:
            if condition.type != "ReplicasScheduled":
                self.condition(condition.type, condition.status, condition.reason, condition.message)
        standing = Standing(
            wanted=self.wanted,
            staying=[held for held in self.kept() if not held.leaving],
            answered=self.state.answered,
            shortfall=self.state.shortfall,
            more=self.state.more,
            said=next((c for c in self.state.scheduled if c.type == "ReplicasScheduled"), None),
        )
        self.condition("ReplicasScheduled", *scheduled_verdict(standing))
        self.condition("ReplicasReady", *ready_replicas_verdict(standing))
        verdict = ready_verdict(standing)
        self.condition("Ready", *verdict)
        if verdict[0] == TRUE and self.state.pace and self.state.pace.ready_seconds is None:
            self.state.pace = self.state.pace.model_copy(update={"ready_seconds": workflow.time() - self.state.pace.accepted})

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def phase(self) -> str:
        """A deployment with some replicas ready is Degraded when it is not Ready."""
        phase = super().phase()
        return "Degraded" if phase == "Progressing" and any(held.ready for held in self.state.replicas.values()) else phase

    def status(self) -> dict[str, Any]:
        """Show counts, the scale selector and each replica."""
        staying = [held for held in self.kept() if not held.leaving]
        status: dict[str, Any] = {
            "replicas": {"total": len(staying), "ready": sum(held.ready for held in staying)},
            "selector": f"{labels.DEPLOYMENT}={names.label_value(self.name)}",
            "placements": [
                {
                    "replica": held.name,
                    "cluster": held.cluster,
                    "index": held.index,
                    "phase": "Terminating" if held.leaving else held.phase,
                    "ready": held.ready,
                    "endpoint": held.endpoint,
                    "message": held.message,
                }
                for held in self.kept()
            ],
        }
        if self.state.spec:
            paused = bool((self.state.spec.get("rollout") or {}).get("paused"))
            status["rollout"] = rollout_progress(staying, self.state.template_generation, paused=paused)
            status["rollout"]["revisions"] = [revision.generation for revision in self.state.revisions]
        if self.state.pace:
            pace = self.state.pace
            status["pace"] = {
                "generation": pace.generation,
                "placedSeconds": None if pace.placed_seconds is None else round(pace.placed_seconds, 3),
                "readySeconds": None if pace.ready_seconds is None else round(pace.ready_seconds, 3),
            }
        if self.state.last_scale:
            status["lastScale"] = self.state.last_scale.wire()
        return status

    def details(self) -> list[str]:
        """List the replicas in the Temporal UI."""
        lines = ["| Replica | Cluster | Phase | Ready | |", "|---|---|---|---|---|"]
        lines += [f"| {held.name} | {held.cluster} | {held.phase} | {held.ready} | {held.message} |" for held in self.kept()]
        return [*lines, ""]
