"""FleetScheduler: the one that decides.

Everybody tells it by signal and hears from it by signal. It takes what waits in one batch, decides in a local activity over its ledger,
charges the ledger, and answers. Capacity is promised once, because nobody else promises.

A scheduler that starts without memory draws a new epoch and asks every cluster, class, replica and deployment for its account. It places
nothing before that, and nothing on a cluster of which one replica has not answered.
"""

from datetime import timedelta
from typing import Any, ClassVar

from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.messaging import KIND, NAME, PHASE, AskEach, Broadcast, Messaging, Survey
from api_types import names
from api_types.errors import error_message
from api_types.messages import (
    Evict,
    Occupied,
    Place,
    Placed,
    PlacedCondition,
    ReplicaEviction,
    ReplicaPlacement,
    Resync,
    Revoke,
    Revoked,
    Tell,
    TellMany,
)
from scheduler import live
from scheduler.decide import apply
from scheduler.fleet import Fleet
from scheduler.policydocument import write_policy
from scheduler.reasons import RESERVED
from scheduler.types import Decision, DeploymentView, Eviction
from scheduler.wire import from_wire, to_wire
from workflows import options
from workflows.deciding import Decided, DecideOrder, decide_batch
from workflows.scheduler_books import Books, SchedulerState

# More requests than this wait for the next batch: a decision must fit one payload and one short activity.
BATCH_REQUESTS = 256
BATCH_REPLICAS = 2000

# Repeated requests are answered verbatim for as long as their askers may repeat them.
ANSWERS_KEPT = 512

# A reservation that nobody used after this long is asked for.
RESERVATION_TTL = timedelta(minutes=10)

# Nobody's account is lost for good: entities that are slow to answer are asked again.
ASK_AGAIN = timedelta(seconds=5)


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """The singleton."""

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, state: SchedulerState | None) -> None:
        self.born = state is None
        self.state = state or SchedulerState()
        self.books = Books(self.state, self._ms, workflow.logger)
        self.shown_phase = ""
        live.register(workflow.info().run_id, self.books.fleet)

    @workflow.run
    async def run(self, state: SchedulerState | None) -> None:
        """Decide for ever."""
        del state
        if self.born:
            await self.rebuild()
        self.publish()
        while not workflow.info().is_continue_as_new_suggested():
            await self._until_work()
            self.books.take_inbox()
            await self.tell_leaving_clusters()
            await self.tell_drained()
            await self.ask_after_reservations()
            if self.state.silent:
                await self.ask_silent()
            while self.state.queue:
                await self.decide()
            self.publish()
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new(self.books.carried())

    async def _until_work(self) -> None:
        pauses = [ASK_AGAIN if self.state.silent else None, RESERVATION_TTL if self.books.unbound else None, self.books.holds_end_after()]
        pause = min((pause for pause in pauses if pause is not None), default=None)
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox or self.state.queue),
                timeout=pause,
                timeout_summary="look after silent entities, unused reservations and held capacity",
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

    @workflow.signal
    def set_policy(self, order: Any) -> None:
        """Somebody wrote the fleet policy."""
        self.state.inbox.append(("set_policy", order))

    @workflow.query
    def policy(self) -> dict[str, Any]:
        """Give the fleet policy in force, every field written out, and what was wrong with the last one that was not taken."""
        return {"policy": write_policy(self.books.fleet.options), "problem": self.state.policy_problem}

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Give headline figures, the waiting requests and the ledger's size."""
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "epoch": self.state.epoch,
                "clusters": len(self.books.fleet.clusters),
                "classes": len(self.state.classes),
                "replicas": sum(1 for _ in self.books.fleet.entries()),
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
        return [to_wire(entry) for entry in sorted(self.books.fleet.entries(), key=lambda entry: entry.uid)]

    @workflow.query
    def audit(self) -> list[str]:
        """Compare the ledger with one rebuilt from its entries; a difference is a bug, and is named."""
        return self.books.fleet.audit()

    # --- deciding -----------------------------------------------------------------------------------------------------------------

    def next_batch(self) -> list[Place]:
        """Take what waits, by priority and then arrival, as far as one decision can carry it."""
        classes = self.books.fleet.options.priority_classes
        self.state.queue.sort(key=lambda place: -classes.get(place.need.get("policy", {}).get("priorityClass", ""), 0))
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
        fresh = [place for place in batch if place.request_id not in self.books.answers]
        repeated = [place for place in batch if place not in fresh]
        tells = [self._answer_to(place, self.books.answers[place.request_id]) for place in repeated]
        decided = await self._decided(fresh) if fresh else Decided()
        for place in fresh:
            if place.request_id in decided.decisions:
                tells += self._settle(place, from_wire(Decision, decided.decisions[place.request_id]), decided.scheduler_version)
            elif place.request_id in decided.problems:
                problem = decided.problems[place.request_id]
                workflow.logger.warning("an unreadable request was dropped", extra={"request": place.request_id, "problem": problem})
        if tells:
            await workflow.execute_activity_method(
                Messaging.tell_many, TellMany(tells=tells), **options.remote(options.TELL_MANY, f"answer {len(tells)} deployments")
            )

    async def _decided(self, places: list[Place]) -> Decided:
        """Have a batch decided. One that fails is cut in half, until the request is found that cannot be decided: that one is dropped."""
        order = DecideOrder(run_id=workflow.info().run_id, version=self.books.fleet.version, now=self._ms(), requests=places)
        try:
            decided: Decided = await workflow.execute_local_activity(
                decide_batch, order, **options.local(options.DECIDE, f"decide {len(places)} requests")
            )
        except ActivityError as error:
            workflow.logger.exception("a decision failed", extra={"requests": [place.request_id for place in places]})
            if len(places) == 1:
                return Decided(problems={places[0].request_id: error_message(error)})
            half = len(places) // 2
            self.state.queue = [*places[half:], *self.state.queue]
            return await self._decided(places[:half])
        return decided

    def _settle(self, place: Place, decision: Decision, version: str) -> list[Tell]:
        asked = from_wire(DeploymentView, place.need) if decision.waiting_since >= 0 else None
        apply(self.books.fleet, decision, asked)
        self.state.decided += 1
        self.state.placed += sum(1 for placement in decision.placements if placement.action in ("Create", "Replace"))
        answer = placed_message(place, decision, self.books.fleet, self.state.epoch, version).wire()
        before = self.books.superseded.pop(place.request_id, None)
        self.books.answers[place.request_id] = answer
        while len(self.books.answers) > ANSWERS_KEPT:
            del self.books.answers[next(iter(self.books.answers))]
        if decision.waits_for_capacity:
            self.state.unplaced.append(place)
        for placement in decision.placements:
            entry = self.books.fleet.replica(placement.uid)
            if entry is not None and entry.state == RESERVED:
                self.books.unbound[placement.uid] = None
        evictions = [self._eviction(victim) for victim in decision.victims]
        # Who waits hears again only what is new to it.
        return evictions if before == answer else [*evictions, self._answer_to(place, answer)]

    def _eviction(self, victim: Eviction) -> Tell:
        eviction = ReplicaEviction(uid=victim.uid, name=victim.replica_name, cluster=victim.cluster, reason=victim.detail or victim.reason)
        return Tell(
            workflow_id=names.workflow_id("ModelDeployment", victim.namespace, victim.deployment),
            signal="evict",
            payload=Evict(epoch=self.state.epoch, eviction=eviction).wire(),
        )

    def _answer_to(self, place: Place, answer: dict[str, Any]) -> Tell:
        workflow_id = names.workflow_id("ModelDeployment", place.namespace, place.name)
        return Tell(workflow_id=workflow_id, signal="placed", payload=answer)

    async def ask_after_reservations(self) -> None:
        """Ask the deployments of old reservations whether they are still wanted."""
        expired = self.books.fleet.expired(self._ms()) if self.books.unbound else []
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

    async def tell_drained(self) -> None:
        """Have deployments ask anew whose replicas a new taint sends away."""
        drained, self.books.drained = self.books.drained, {}
        tells = [
            Tell(workflow_id=names.workflow_id("ModelDeployment", namespace, name), signal="resync") for namespace, name in sorted(drained)
        ]
        if tells:
            await workflow.execute_activity_method(
                Messaging.tell_many,
                TellMany(tells=tells),
                **options.remote(options.TELL_MANY, f"a taint moves {len(tells)} deployments"),
            )

    async def tell_leaving_clusters(self) -> None:
        """Tell clusters that are being deleted what the ledger still holds on them, when that changes."""
        tells: list[Tell] = []
        for cluster, told in self.state.leaving.items():
            held = sorted(f"{entry.namespace}/{entry.name}" for entry in self.books.fleet.on_cluster(cluster).values())
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
        self.books.fleet.rebuilding = True
        self.publish()
        # Deployments before replicas: one that is started between the two surveys is seen by either.
        for kinds in (["InferenceClass", "InferenceCluster"], ["ModelDeployment"], ["ModelReplica"]):
            await self._survey(kinds)
        self.books.settle_accounts()
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
                self.books.take_account(workflow_id, account)
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
            self.books.take_account(workflow_id, account)
        self.state.silent = answered.silent
        self.books.settle_accounts()

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def publish(self) -> None:
        """Show the headline figures in the Temporal UI."""
        shown = self.describe()["status"]
        lines = [f"**FleetScheduler** epoch {shown['epoch']}", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {shown[name]} |" for name in ("clusters", "classes", "replicas", "decisions", "placements")]
        lines += ["", *(f"- {line}" for line in self.waiting())]
        workflow.set_current_details("\n".join(lines))
        phase = "Progressing" if self.books.fleet.rebuilding else "Ready"
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
        more=decision.more,
        scheduler_version=version,
    )


def _entry(fleet: Fleet, uid: str) -> dict[str, Any]:
    entry = fleet.replica(uid)
    return to_wire(entry) if entry else {}
