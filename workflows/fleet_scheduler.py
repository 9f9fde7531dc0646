"""FleetScheduler: the one that decides.

Everybody tells it by signal and hears from it by signal. It takes what waits in one batch, decides in a local activity over its ledger,
charges the ledger, and answers. Capacity is promised once, because nobody else promises.

A scheduler that starts without memory draws a new epoch and asks every cluster, class, replica and deployment for its account. It places
nothing before that, and nothing on a cluster of which one replica has not answered.
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel
from temporalio import workflow

from activities.messaging import KIND, NAME, PHASE, AskEach, Broadcast, Messaging, Survey
from api_types import names
from api_types.messages import (
    Bound,
    Forget,
    Occupied,
    Place,
    Placed,
    PlacedCondition,
    Released,
    ReplicaEviction,
    ReplicaPlacement,
    ReplicaState,
    ReportClass,
    ReportCluster,
    Resync,
    Revoke,
    Revoked,
    Tell,
    TellMany,
)
from scheduler import live
from scheduler.decide import apply
from scheduler.fleet import Fleet
from scheduler.types import Decision, ReplicaView
from scheduler.views import cluster_view
from scheduler.wire import from_wire, to_wire
from workflows import options
from workflows.deciding import Decided, DecideOrder, decide_batch
from workflows.packing import pack, pack_bytes, unpack, unpack_bytes

# More requests than this wait for the next batch: a decision must fit one payload and one short activity.
BATCH_REQUESTS = 256
BATCH_REPLICAS = 2000

# Repeated requests are answered verbatim for as long as their askers may repeat them.
ANSWERS_KEPT = 512

# A reservation that nobody used after this long is asked for.
RESERVATION_TTL = timedelta(minutes=10)

# Nobody's account is lost for good: entities that are slow to answer are asked again.
ASK_AGAIN = timedelta(seconds=5)


class SchedulerState(BaseModel):
    """All that the scheduler carries."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    epoch: int = 0
    fleet: str = ""
    inbox: list[tuple[str, Any]] = Field(default_factory=list)
    queue: list[Place] = Field(default_factory=list)
    unplaced: list[Place] = Field(default_factory=list)
    answers: str = ""
    clusters: dict[str, int] = Field(default_factory=dict)
    silent: dict[str, str] = Field(default_factory=dict)
    leaving: dict[str, list[str]] = Field(default_factory=dict)
    classes: dict[str, int] = Field(default_factory=dict)
    decided: int = 0
    placed: int = 0


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """The singleton."""

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, state: SchedulerState | None) -> None:
        self.born = state is None
        self.state = state or SchedulerState()
        self.fleet = Fleet.load(unpack_bytes(self.state.fleet)) if self.state.fleet else Fleet()
        self.answers: dict[str, dict[str, Any]] = unpack(self.state.answers) or {}
        self.state.fleet = self.state.answers = ""
        self.shown_phase = ""
        live.register(workflow.info().run_id, self.fleet)

    @workflow.run
    async def run(self, state: SchedulerState | None) -> None:
        """Decide for ever."""
        del state
        if self.born:
            await self.rebuild()
        self.publish()
        while not workflow.info().is_continue_as_new_suggested():
            await self._until_work()
            self.take_inbox()
            await self.tell_leaving_clusters()
            await self.ask_after_reservations()
            if self.state.silent:
                await self.ask_silent()
            while self.state.queue:
                await self.decide()
            self.publish()
        await workflow.wait_condition(workflow.all_handlers_finished)
        self.state.fleet = pack_bytes(self.fleet.dump())
        self.state.answers = pack(self.answers)
        workflow.continue_as_new(self.state)

    async def _until_work(self) -> None:
        reserved = next((True for entry in self.fleet.entries() if entry.state == "Reserved"), False)
        pause = ASK_AGAIN if self.state.silent else RESERVATION_TTL if reserved else None
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox or self.state.queue),
                timeout=pause,
                timeout_summary="look after silent entities and unused reservations",
            )
        except TimeoutError:
            return

    # --- messages: a handler only notes what arrived --------------------------------------------------------------------------------

    @workflow.signal
    def place(self, order: Any) -> None:
        """A deployment asks for placements."""
        self.state.inbox.append(("place", order))

    @workflow.signal
    def bound(self, order: Any) -> None:
        """Replicas were started."""
        self.state.inbox.append(("bound", order))

    @workflow.signal
    def released(self, order: Any) -> None:
        """A replica's objects are gone."""
        self.state.inbox.append(("released", order))

    @workflow.signal
    def revoked(self, order: Any) -> None:
        """A reservation will not be used."""
        self.state.inbox.append(("revoked", order))

    @workflow.signal
    def report_cluster(self, order: Any) -> None:
        """A cluster is new or different."""
        self.state.inbox.append(("report_cluster", order))

    @workflow.signal
    def report_class(self, order: Any) -> None:
        """A class is new or different."""
        self.state.inbox.append(("report_class", order))

    @workflow.signal
    def forget(self, order: Any) -> None:
        """An object is gone for good."""
        self.state.inbox.append(("forget", order))

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Give headline figures, the waiting requests and the ledger's size."""
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "epoch": self.state.epoch,
                "clusters": len(self.fleet.clusters),
                "classes": len(self.state.classes),
                "replicas": sum(1 for _ in self.fleet.entries()),
                "waiting": [f"{place.namespace}/{place.name}" for place in self.state.unplaced],
                "silent": sorted(self.state.silent),
                "decisions": self.state.decided,
                "placements": self.state.placed,
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """Name the deployments whose replicas are not all placed, and whose account a rebuild waits for."""
        return [f"{place.namespace}/{place.name} waits for capacity" for place in self.state.unplaced] + [
            f"waits for the account of {workflow_id}" for workflow_id in sorted(self.state.silent)
        ]

    @workflow.query
    def ledger(self) -> list[dict[str, Any]]:
        """Give every ledger entry, in order."""
        return [to_wire(entry) for entry in sorted(self.fleet.entries(), key=lambda entry: entry.uid)]

    @workflow.query
    def audit(self) -> list[str]:
        """Compare the ledger with one rebuilt from its entries; a difference is a bug, and is named."""
        return self.fleet.audit()

    # --- taking in ----------------------------------------------------------------------------------------------------------------

    def take_inbox(self) -> None:
        """Apply what arrived, in order; requests join the queue, and those that waited join it when capacity may have grown."""
        inbox, self.state.inbox = self.state.inbox, []
        handlers: dict[str, Callable[[Any], bool]] = {
            "place": self._take_place,
            "bound": self._take_bound,
            "released": self._take_released,
            "revoked": self._take_revoked,
            "report_cluster": self._take_cluster,
            "report_class": self._take_class,
            "forget": self._take_forget,
        }
        grown = False
        for kind, order in inbox:
            try:
                grown = handlers[kind](order) or grown
            except ValidationError as error:
                workflow.logger.warning("a malformed message was ignored", extra={"signal": kind, "problems": str(error)})
        if grown and self.state.unplaced:
            asked = {(place.namespace, place.name) for place in self.state.queue}
            self.state.queue += [place for place in self.state.unplaced if (place.namespace, place.name) not in asked]
            self.state.unplaced = []

    def _take_place(self, order: Any) -> bool:
        place = Place.model_validate(order)
        self.state.queue = [waiting for waiting in self.state.queue if (waiting.namespace, waiting.name) != (place.namespace, place.name)]
        self.state.queue.append(place)
        return False

    def _take_bound(self, order: Any) -> bool:
        for uid, wire in Bound.model_validate(order).entries.items():
            if self.fleet.replica(uid) is None:
                # Placed by a scheduler that was lost before anybody told us: what runs is charged, whatever we would have said.
                self.fleet.put_replica(replace(from_wire(ReplicaView, wire), since=self._ms()))
            self.fleet.bind(uid, self._ms())
        return False

    def _take_released(self, order: Any) -> bool:
        return self.fleet.release(Released.model_validate(order).uid)

    def _take_revoked(self, order: Any) -> bool:
        return self.fleet.release(Revoked.model_validate(order).uid)

    def _take_cluster(self, order: Any) -> bool:
        report = ReportCluster.model_validate(order)
        if report.sequence < self.state.clusters.get(report.name, 0):
            return False
        self.state.clusters[report.name] = report.sequence
        before = self.fleet.version
        accounted = report.name not in self.state.silent.values()
        self.fleet.put_cluster(cluster_view(report.manifest, accounted=accounted), self._ms())
        if "deletionTimestamp" in report.manifest["metadata"]:
            self.state.leaving[report.name] = ["?"]
        return self.fleet.version != before

    def _take_class(self, order: Any) -> bool:
        report = ReportClass.model_validate(order)
        self.state.classes[report.name] = report.generation
        return False

    def _take_forget(self, order: Any) -> bool:
        gone = Forget.model_validate(order)
        if gone.kind == "InferenceCluster":
            self.fleet.remove_cluster(gone.name)
            self.state.clusters.pop(gone.name, None)
            self.state.leaving.pop(gone.name, None)
        elif gone.kind == "InferenceClass":
            self.state.classes.pop(gone.name, None)
        elif gone.kind == "ModelDeployment":
            key = (gone.namespace, gone.name)
            self.state.queue = [place for place in self.state.queue if (place.namespace, place.name) != key]
            self.state.unplaced = [place for place in self.state.unplaced if (place.namespace, place.name) != key]
            unused = [entry.uid for entry in self.fleet.owned(*key).values() if entry.state == "Reserved"]
            released = [self.fleet.release(uid) for uid in unused]
            return any(released)
        return False

    # --- deciding -----------------------------------------------------------------------------------------------------------------

    def next_batch(self) -> list[Place]:
        """Take what waits, in order, as far as one decision can carry it."""
        batch: list[Place] = []
        replicas = 0
        while self.state.queue and len(batch) < BATCH_REQUESTS and (not batch or replicas + self.state.queue[0].wanted <= BATCH_REPLICAS):
            place = self.state.queue.pop(0)
            replicas += place.wanted
            batch.append(place)
        return batch

    async def decide(self) -> None:
        """Decide one batch, charge the ledger, answer."""
        batch = self.next_batch()
        fresh = [place for place in batch if place.request_id not in self.answers or self._was_unplaced(place)]
        repeated = [place for place in batch if place not in fresh]
        tells = [self._answer_to(place, self.answers[place.request_id]) for place in repeated]
        if fresh:
            order = DecideOrder(run_id=workflow.info().run_id, version=self.fleet.version, now=self._ms(), requests=fresh)
            decided: Decided = await workflow.execute_local_activity(
                decide_batch, order, **options.local(options.DECIDE, f"decide {len(fresh)} requests")
            )
            for place, wire in zip(fresh, decided.decisions, strict=True):
                tells += self._settle(place, from_wire(Decision, wire), decided.scheduler_version)
        if tells:
            await workflow.execute_activity_method(
                Messaging.tell_many, TellMany(tells=tells), **options.remote(options.TELL_MANY, f"answer {len(tells)} deployments")
            )

    def _was_unplaced(self, place: Place) -> bool:
        return bool(self.answers[place.request_id].get("shortfall"))

    def _settle(self, place: Place, decision: Decision, version: str) -> list[Tell]:
        apply(self.fleet, decision)
        self.state.decided += 1
        self.state.placed += sum(1 for placement in decision.placements if placement.action in ("Create", "Replace"))
        answer = placed_message(place, decision, self.fleet, self.state.epoch, version).wire()
        before = self.answers.get(place.request_id)
        self.answers[place.request_id] = answer
        while len(self.answers) > ANSWERS_KEPT:
            del self.answers[next(iter(self.answers))]
        if decision.shortfall:
            self.state.unplaced.append(place)
        # Who waits hears again only what is new to it.
        return [] if before == answer else [self._answer_to(place, answer)]

    def _answer_to(self, place: Place, answer: dict[str, Any]) -> Tell:
        workflow_id = names.workflow_id("ModelDeployment", place.namespace, place.name)
        return Tell(workflow_id=workflow_id, signal="placed", payload=answer)

    async def ask_after_reservations(self) -> None:
        """Ask the deployments of old reservations whether they are still wanted."""
        expired = self.fleet.expired(self._ms())
        tells = [
            Tell(
                workflow_id=names.workflow_id("ModelDeployment", entry.namespace, entry.deployment),
                signal="revoke",
                payload=Revoke(uid=entry.uid, epoch=self.state.epoch).wire(),
            )
            for entry in expired
        ]
        if not tells:
            return
        told = await workflow.execute_activity_method(
            Messaging.tell_many, TellMany(tells=tells), **options.remote(options.TELL_MANY, f"ask after {len(tells)} reservations")
        )
        for entry, tell in zip(expired, tells, strict=True):
            if tell.workflow_id in told.missing:
                self.state.inbox.append(("revoked", Revoked(uid=entry.uid).wire()))

    async def tell_leaving_clusters(self) -> None:
        """Tell clusters that are being deleted what the ledger still holds on them, when that changes."""
        tells: list[Tell] = []
        for cluster, told in self.state.leaving.items():
            held = sorted(f"{entry.namespace}/{entry.name}" for entry in self.fleet.entries() if entry.cluster == cluster)
            if held != told:
                self.state.leaving[cluster] = held
                occupied = Occupied(cluster=cluster, sequence=self.state.clusters[cluster], replicas=held)
                workflow_id = names.workflow_id("InferenceCluster", "", cluster)
                tells.append(Tell(workflow_id=workflow_id, signal="occupied", payload=occupied.wire()))
        if tells:
            await workflow.execute_activity_method(
                Messaging.tell_many, TellMany(tells=tells), **options.remote(options.TELL_MANY, "tell leaving clusters what they hold")
            )

    # --- rebuilding ---------------------------------------------------------------------------------------------------------------

    async def rebuild(self) -> None:
        """Collect everybody's account. A cluster takes nothing new while one of its replicas, or it itself, has not answered."""
        self.state.epoch = self._ms()
        self.fleet.rebuilding = True
        self.publish()
        for kinds in (["InferenceClass", "InferenceCluster"], ["ModelReplica"], ["ModelDeployment"]):
            await self._survey(kinds)
        self._settle_accounts()
        await workflow.execute_activity_method(
            Messaging.broadcast,
            Broadcast(
                kinds=["ModelDeployment", "InferenceCluster", "InferenceClass"],
                signal="resync",
                payload=Resync(epoch=self.state.epoch).wire(),
            ),
            **options.remote(options.TELL_MANY, f"announce epoch {self.state.epoch}"),
        )

    async def _survey(self, kinds: list[str]) -> None:
        after = ""
        while True:
            page = await workflow.execute_activity_method(
                Messaging.survey,
                Survey(kinds=kinds, query="account", after=after),
                **options.remote(options.TELL_MANY, f"read the accounts of {', '.join(kinds)}"),
            )
            for workflow_id, account in page.answers.items():
                self._take_account(workflow_id, account)
            self.state.silent |= page.silent
            after = page.after
            if not after:
                return

    async def ask_silent(self) -> None:
        """Ask those again who did not answer."""
        asked = list(self.state.silent)
        answered = await workflow.execute_activity_method(
            Messaging.ask_each,
            AskEach(workflow_ids=asked, query="account"),
            **options.remote(options.TELL_MANY, f"ask {len(asked)} silent entities for their account"),
        )
        for workflow_id, account in answered.answers.items():
            self._take_account(workflow_id, account)
        self.state.silent = answered.silent
        self._settle_accounts()

    def _settle_accounts(self) -> None:
        """Open the clusters whose account is whole, and hold the others."""
        held = {cluster for cluster in self.state.silent.values() if cluster}
        for name, slot in list(self.fleet.clusters.items()):
            if slot.view.accounted == (name in held):
                self.fleet.put_cluster(replace(slot.view, accounted=name not in held), self._ms())
                self.state.queue += self.state.unplaced
                self.state.unplaced = []
        self.fleet.rebuilding = any(workflow_id.startswith("inferencecluster/") for workflow_id in self.state.silent)

    def _take_account(self, workflow_id: str, account: Any) -> None:
        kind = workflow_id.split("/", 1)[0]
        if kind == "inferencecluster":
            self._take_cluster(account)
        elif kind == "inferenceclass":
            self._take_class(account)
        elif kind == "modelreplica":
            self._take_replica(account, "Bound")
        else:
            for unstarted in account["unstarted"]:
                self._take_replica(unstarted, "Reserved")

    def _take_replica(self, account: Any, state: str) -> None:
        replica = ReplicaState.model_validate(account)
        if replica.gone or not replica.entry or self.fleet.replica(replica.uid) is not None:
            return
        entry = from_wire(ReplicaView, replica.entry)
        state = "Releasing" if replica.deleting else state
        self.fleet.put_replica(replace(entry, state=state, since=self._ms(), ready=replica.ready, serving=replica.serving))

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Show the headline figures in the Temporal UI."""
        shown = self.describe()["status"]
        lines = [f"**FleetScheduler** epoch {shown['epoch']}", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {shown[name]} |" for name in ("clusters", "classes", "replicas", "decisions", "placements")]
        lines += ["", *(f"- {line}" for line in self.waiting())]
        workflow.set_current_details("\n".join(lines))
        phase = "Progressing" if self.fleet.rebuilding else "Ready"
        if phase != self.shown_phase:
            self.shown_phase = phase
            workflow.upsert_search_attributes([KIND.value_set(self.kind), NAME.value_set("default"), PHASE.value_set(phase)])

    def _ms(self) -> int:
        return int(workflow.time() * 1000)


def placed_message(place: Place, decision: Decision, fleet: Fleet, epoch: int, version: str) -> Placed:
    """Say a decision, which the fleet has taken over, in the words of the protocol.

    The deployment may never have seen an earlier answer: what it does not list among its own is told in full.
    """
    listed = {kept.uid for kept in place.kept}
    return Placed(
        request_id=place.request_id,
        epoch=epoch,
        generation=place.generation,
        placements=[
            ReplicaPlacement(
                uid=placement.uid,
                name=placement.replica_name,
                cluster=placement.cluster,
                index=placement.index,
                action=placement.action,
                entry=_entry(fleet, placement.uid) if placement.action != "Keep" or placement.uid not in listed else {},
                after=list(placement.after),
            )
            for placement in decision.placements
        ],
        evictions=[
            ReplicaEviction(uid=eviction.uid, name=eviction.replica_name, cluster=eviction.cluster, reason=eviction.reason)
            for eviction in decision.evictions
        ],
        shortfall=decision.shortfall,
        message=decision.message,
        conditions=[
            PlacedCondition(type=item.type, status=item.status, reason=item.reason, message=item.message) for item in decision.conditions
        ],
        # A replica that still carries an older template, or one too many, is a step that waits for the health of another.
        more=any(placement.template != place.need.get("template", "") for placement in decision.placements)
        or len(decision.placements) > decision.desired,
        scheduler_version=version,
    )


def _entry(fleet: Fleet, uid: str) -> dict[str, Any]:
    entry = fleet.replica(uid)
    return to_wire(entry) if entry else {}
