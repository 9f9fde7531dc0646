"""How a ModelDeployment keeps its replicas: it starts them, hands templates on, sends them away, and finds again what it lost."""

from datetime import timedelta
from typing import Any

from pydantic import Field
from temporalio import workflow

from activities.messaging import AskEach, EntityClient, Survey
from api_types import labels, names
from api_types.messages.delivery import SignalBatch, SignalRequest
from api_types.messages.entities import (
    Bound,
    Delete,
    Forget,
    Placed,
    PlacedCondition,
    ReplicaEviction,
    ReplicaState,
    Revoked,
    SetLabels,
    SetTemplate,
    StartReplica,
    StartReplicas,
)
from api_types.resources.parts.replica_spec import replica_spec
from api_types.resources.status import LastScale, LeftBehind
from api_types.validation.picker_flags import picker_flags
from workflows.entity import activity_options, backoff
from workflows.entity.conditions import FALSE
from workflows.model_deployment.cache import DeploymentCaches, WithCache
from workflows.model_deployment.revisions import Revision
from workflows.model_deployment.status import Pace, TrackedReplica

# A replica that ends says so first, and that takes no longer than this to arrive.
LAST_WORD = timedelta(seconds=2)

# More messages than this are no local activity's work: it has to end within seconds.
FEW = 16

# A replica whose worker is just starting answers at the second or third question.
ASKED_AGAIN = 3

# A condition names so many of the replicas that are waited for, and counts the others.
NAMED_MAX = 5

# A replica of that name may still be leaving; it tells us when it is gone, this is the net below.
NAME_HELD_ATTEMPT = 1


class DeploymentState(WithCache):
    """What a deployment carries."""

    replicas: dict[str, TrackedReplica] = Field(default_factory=dict)
    applied_replicas: int | None = None
    last_scale: LastScale | None = None
    asks: int = 0
    asked: str = ""
    asked_for: list[Any] = Field(default_factory=list)
    answer: Placed | None = None
    answered: bool = True
    shortfall: int = 0
    message: str = ""
    scheduled: list[PlacedCondition] = Field(default_factory=list)
    more: bool = False
    epoch: int = 0
    pace: Pace | None = None
    adopted: bool = False
    told_labels: dict[str, str] = Field(default_factory=dict)
    told_flags: str = ""
    template_generation: int = 0
    revisions: list[Revision] = Field(default_factory=list)
    evictions: list[ReplicaEviction] = Field(default_factory=list)
    forgotten: bool = False
    orphans: list[str] = Field(default_factory=list)


class ReplicaController(DeploymentCaches[DeploymentState]):
    """The part of a deployment that deals with its replicas."""

    def __init__(self, state: DeploymentState) -> None:
        super().__init__(state)
        self.revoked: list[str] = []
        self.lost: list[str] = []
        self.look_after = False

    @workflow.query
    def applied_replicas(self) -> int | None:
        """Give the replica count that was last applied; another one may have been ordered since. None if nothing was applied yet."""
        return self.state.applied_replicas

    def kept(self) -> list[TrackedReplica]:
        """Give the replicas in name order; a successor may wait behind a namesake that leaves."""
        return sorted(self.state.replicas.values(), key=lambda held: (held.name, held.uid))

    def change(self, held: TrackedReplica, **fields: Any) -> None:
        """Note something new about a replica."""
        self.state.replicas[held.uid] = self.state.replicas[held.uid].model_copy(update=fields)

    def order_to_leave(self) -> dict[str, Any]:
        """Give the order that tears a replica down."""
        return Delete(by=f"ModelDeployment {self.name}").wire()

    def template(self) -> dict[str, Any]:
        """Give the replica template's spec."""
        template: dict[str, Any] = (self.state.spec or {})["template"]["spec"]
        return template

    def stamped(self, held: TrackedReplica) -> dict[str, Any]:
        """Give the spec of one replica."""
        return replica_spec(self.template(), held.cluster, held.entry["engines"])

    def template_labels(self) -> dict[str, str]:
        """Give the labels that users want on replicas and endpoints."""
        found: dict[str, str] = (self.state.spec or {})["template"].get("metadata", {}).get("labels", {})
        return found

    def picker_flags(self) -> dict[str, str]:
        """Give the extra flags of the endpoint pickers; those that cannot be read are told and left out."""
        text = self.state.annotations.get(labels.PICKER_FLAGS, "")
        try:
            return picker_flags(text)
        except ValueError as error:
            self.event("Warning", "InvalidAnnotation", f"{labels.PICKER_FLAGS}: {error}")
            return {}

    # --- finding --------------------------------------------------------------------------------------------------------------------

    async def adopt(self) -> None:
        """Take over replicas that outlived an earlier life of this deployment. Most have none, and that costs one local look."""
        look = Survey(kinds=["ModelReplica"], namespace=self.namespace, deployment=self.name)
        found = await workflow.execute_local_activity_method(
            EntityClient.survey, look, **activity_options.local(activity_options.ENTITY_CALL, "look for replicas of an earlier life")
        )
        if found.answers:
            await self._adopt_all(look)
        self.state.adopted = True

    async def _adopt_all(self, look: Survey) -> None:
        silent: list[str] = []
        after = ""
        while True:
            page = await workflow.execute_activity_method(
                EntityClient.survey,
                look.model_copy(update={"query": "account", "after": after}),
                **activity_options.remote(activity_options.ENTITY_BATCH, "ask replicas of an earlier life for their accounts"),
            )
            self._take_over(page.answers)
            silent += page.silent
            after = page.after
            if not after:
                break
        for attempt in range(ASKED_AGAIN):
            if not silent:
                break
            await workflow.sleep(backoff.transient(attempt), summary="replicas of an earlier life answer")
            again = await workflow.execute_activity_method(
                EntityClient.ask_each,
                AskEach(workflow_ids=silent, query="account"),
                **activity_options.remote(activity_options.ENTITY_BATCH, "ask silent replicas again for their accounts"),
            )
            self._take_over(again.answers)
            silent = sorted(again.silent)
        if silent:
            self.event("Warning", "Silent", f"replicas of an earlier life do not answer and are not taken over: {', '.join(silent)}")
        adopted = [held for held in self.state.replicas.values() if held.started]
        await self.tell_each(adopted, "resync", None)

    def _take_over(self, answers: dict[str, Any]) -> None:
        for answer in answers.values():
            state = ReplicaState.model_validate(answer)
            if state.gone or (state.namespace, state.deployment) != (self.namespace, self.name):
                continue
            self.state.generation = max(self.state.generation, state.generation)
            self.state.replicas[state.uid] = TrackedReplica(
                uid=state.uid,
                name=state.name,
                cluster=state.cluster,
                index=state.index,
                entry=state.entry,
                generation=state.generation,
                started=True,
                bound=True,
                leaving="Terminating" if state.deleting else "",
            )
            self.event("Normal", "Adopted", f"{state.name} on {state.cluster}")

    async def tell_each(self, replicas: list[TrackedReplica], signal: str, payload: Any) -> None:
        """Send the same signal to several replicas."""
        if replicas:
            tells = [
                SignalRequest(workflow_id=names.workflow_id("ModelReplica", self.namespace, held.name), signal=signal, payload=payload)
                for held in replicas
            ]
            await self.tell_many(tells, f"{signal} to {len(tells)} replicas")

    async def tell_many(self, tells: list[SignalRequest], summary: str) -> None:
        """Send signals to replicas, and note those that do not run."""
        order = SignalBatch(signals=tells)
        if len(tells) <= FEW:
            told = await workflow.execute_local_activity_method(
                EntityClient.tell_many, order, **activity_options.local(activity_options.ENTITY_CALL, summary)
            )
        else:
            told = await workflow.execute_activity_method(
                EntityClient.tell_many, order, **activity_options.remote(activity_options.ENTITY_BATCH, summary)
            )
        lost = [missing.rsplit("/", 1)[-1] for missing in told.missing]
        self.lost += [held.uid for held in self.kept() if held.name in lost and held.started]
        if self.lost:
            # Its last word may still be on the way; whoever is silent after that was lost, and what it applied is still there.
            self.requeue_after(LAST_WORD)

    async def find_lost(self) -> None:
        """Start a replica again whose workflow was terminated: nobody else can look after what it applied, or take it down."""
        lost, self.lost = [uid for uid in self.lost if uid in self.state.replicas], []
        for uid in lost:
            held = self.state.replicas[uid]
            self.event("Warning", "ReplicaLost", f"the workflow of {held.name} does not run; it is started again")
            self.change(held, started=False)

    async def answer_revocations(self) -> None:
        """Let go of reservations that were never used; confirm those that are."""
        while self.revoked:
            uid = self.revoked.pop(0)
            held = self.state.replicas.get(uid)
            if held and held.started:
                await self.tell(names.FLEET_SCHEDULER_ID, "bound", Bound(entries={uid: held.entry}))
                continue
            self.state.replicas.pop(uid, None)
            await self.tell(names.FLEET_SCHEDULER_ID, "revoked", Revoked(uid=uid))

    async def delete_orphans(self) -> None:
        """Delete replicas under our name that no placement asks for."""
        known = {held.name for held in self.state.replicas.values()}
        orphans, self.state.orphans = [name for name in self.state.orphans if name not in known], []
        order = self.order_to_leave()
        tells = [
            SignalRequest(workflow_id=names.workflow_id("ModelReplica", self.namespace, name), signal="delete", payload=order)
            for name in dict.fromkeys(orphans)
        ]
        if tells:
            await self.tell_many(tells, f"delete {len(tells)} unwanted replicas")

    # --- starting and changing ------------------------------------------------------------------------------------------------------

    async def start_replicas(self) -> None:
        """Start what was placed, as soon as what it replaces is gone."""
        taken = {held.name for held in self.state.replicas.values() if held.started}
        ready = [
            held
            for held in self.kept()
            if not held.started and held.name not in taken and not any(uid in self.state.replicas for uid in held.after)
        ]
        if ready:
            flags = self.picker_flags()
            births = [
                StartReplica(
                    uid=held.uid,
                    namespace=self.namespace,
                    name=held.name,
                    deployment=self.name,
                    deployment_uid=self.state.uid,
                    cluster=held.cluster,
                    index=held.index,
                    generation=held.generation,
                    spec=self.stamped(held),
                    entry=held.entry,
                    labels=self.template_labels(),
                    picker_flags=flags,
                )
                for held in ready
            ]
            order, summary = StartReplicas(replicas=births), f"start {len(births)} replicas of {self.name}"
            if len(births) <= FEW:
                started = await workflow.execute_local_activity_method(
                    EntityClient.start_replicas, order, **activity_options.local(activity_options.ENTITY_CALL, summary)
                )
            else:
                started = await workflow.execute_activity_method(
                    EntityClient.start_replicas, order, **activity_options.remote(activity_options.ENTITY_BATCH, summary)
                )
            for held in ready:
                if held.name in started.conflicts:
                    self.event("Warning", "NameConflict", f"{held.name} still runs with another uid; started when that is gone")
                    self.requeue_after(backoff.transient(NAME_HELD_ATTEMPT))
                else:
                    self.change(held, started=True)
            await self.tell_each([held for held in ready if held.leaving], "delete", self.order_to_leave())
        unbound = [held for held in self.kept() if held.started and not held.bound]
        if unbound:
            await self.tell(names.FLEET_SCHEDULER_ID, "bound", Bound(entries={held.uid: held.entry for held in unbound}))
            for held in unbound:
                if held.uid in self.state.replicas:
                    self.change(held, bound=True)

    async def hand_on_template(self, uids: list[str]) -> None:
        """Give the present template to replicas whose turn it is."""
        changed = [held for held in self.kept() if held.uid in uids and held.started]
        flags = self.picker_flags() if changed else {}
        tells = [
            SignalRequest(
                workflow_id=names.workflow_id("ModelReplica", self.namespace, held.name),
                signal="set_template",
                payload=SetTemplate(
                    generation=held.generation,
                    spec=self.stamped(held),
                    entry=held.entry,
                    labels=self.template_labels(),
                    picker_flags=flags,
                ).wire(),
            )
            for held in changed
        ]
        if tells:
            await self.tell_many(tells, f"new template for {len(tells)} replicas")

    async def hand_on_labels(self) -> None:
        """Give replicas the labels that users want on them, and the flags of their pickers; neither is part of the template."""
        wanted = self.template_labels()
        flags_text = self.state.annotations.get(labels.PICKER_FLAGS, "")
        if (wanted, flags_text) != (self.state.told_labels, self.state.told_flags):
            self.state.told_labels, self.state.told_flags = wanted, flags_text
            order = SetLabels(labels=wanted, picker_flags=self.picker_flags())
            await self.tell_each([held for held in self.kept() if held.started], "set_labels", order.wire())

    def send_away(self, held: TrackedReplica, reason: str) -> None:
        """Mark a replica as leaving; one that was never started is simply forgotten."""
        self.event("Normal", "Evicted", f"{held.name} leaves {held.cluster}: {reason}")
        if held.started:
            self.change(held, leaving=reason)
        else:
            del self.state.replicas[held.uid]

    # --- leaving ------------------------------------------------------------------------------------------------------------------

    def take_leave(self, held: TrackedReplica, left: list[LeftBehind]) -> None:
        """Forget a replica that is gone; what a forced teardown left of it is listed here, where somebody still looks."""
        del self.state.replicas[held.uid]
        if left:
            self.state.left_behind += left
            self.event("Warning", "LeftBehind", f"{held.name} left {len(left)} objects on {held.cluster}; see status.leftBehind")

    async def tear_down(self) -> bool:
        """Send every replica away and wait until the last is gone."""
        self.condition("Ready", FALSE, "Deleting", "")
        if not self.state.forgotten:
            self.state.replicas = {key: held for key, held in self.state.replicas.items() if held.started}
            unbound = {held.uid: held.entry for held in self.kept() if not held.bound}
            if unbound:
                await self.tell(names.FLEET_SCHEDULER_ID, "bound", Bound(entries=unbound))
            forget = Forget(kind=self.kind, name=self.name, namespace=self.namespace, uid=self.state.uid)
            await self.tell(names.FLEET_SCHEDULER_ID, "forget", forget)
            self.state.forgotten = True
        await self.find_lost()
        if any(not held.started for held in self.kept()):
            await self.start_replicas()
        staying = [held for held in self.kept() if not held.leaving]
        for held in staying:
            self.change(held, leaving="Deleted")
        await self.tell_each(staying, "delete", self.order_to_leave())
        if self.state.forced and self.state.replicas:
            force = {"scope": self.state.forced, "by": f"ModelDeployment {self.name}", "reason": "forced"}
            self.state.forced = ""
            await self.tell_each(self.kept(), "force", force)
        if self.state.replicas:
            left = [f"{held.name} on {held.cluster} ({held.message or held.phase})" for held in self.kept()]
            more = f"; and {len(left) - NAMED_MAX} more" if len(left) > NAMED_MAX else ""
            self.condition("Deleting", FALSE, "WaitingForReplicas", f"waits until gone: {'; '.join(left[:NAMED_MAX])}{more}")
            return False
        return True
