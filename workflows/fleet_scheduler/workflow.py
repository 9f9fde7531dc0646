"""FleetScheduler: the one that decides.

Everybody tells it by signal and hears from it by signal. It takes what waits in one batch, decides in a local activity over its ledger,
charges the ledger, and answers. Capacity is promised once, because nobody else promises.

A scheduler that starts without memory draws a new epoch and asks every cluster, class, replica and deployment for its account. It places
nothing before that, and nothing on a cluster of which one replica has not answered.
"""

import asyncio
from datetime import timedelta
from heapq import nsmallest
from typing import Any, ClassVar

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError
from temporalio.workflow import LocalActivityConfig

from activities.messaging import KIND, NAME, PHASE, AskEach, EntityClient, Survey
from api_types.errors import error_message
from api_types.messages.delivery import Broadcast, SignalBatch, SignalBatchResult, SignalRequest
from api_types.messages.entities import Place, Resync, Revoked
from scheduler import Decision, DeploymentView, apply, from_wire, pool_report, reasons, registry, to_wire, write_policy
from workflows.entity import activity_options
from workflows.fleet_scheduler import outgoing as tells
from workflows.fleet_scheduler.cache import SchedulerCache, SchedulerState, owner_of
from workflows.fleet_scheduler.carry_over import CacheOrder, PackedFleet, audit_books, pack_books
from workflows.fleet_scheduler.decide_activity import Decided, DecideOrder, decide_batch

# More requests than this wait for the next batch: a decision must fit one payload and one short activity.
BATCH_REQUESTS = 256
BATCH_REPLICAS = 2000

# Repeated requests are answered verbatim for as long as their askers may repeat them.
ANSWERS_KEPT = 512

# Nobody's account is lost for good: entities that are slow to answer are asked again.
ASK_AGAIN = timedelta(seconds=5)

# Answers of so many at once fit one payload.
ASKED_AT_ONCE = 200

# What a small fleet is packed into, and the pause between the parts of a large one.
PARTS_AT_ONCE = 3
BREATH = timedelta(milliseconds=1)

# A walk over all books: seconds with 100,000 replicas, more on a machine that has other work.
OVER_ALL_BOOKS = LocalActivityConfig(
    start_to_close_timeout=timedelta(minutes=2),
    retry_policy=RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_attempts=3),
)

# How often the ledger is recounted, and what may be recounted while somebody waits for a query.
AUDIT_EVERY = timedelta(hours=1)
AUDITED_AT_ONCE = 10_000

# Entries that one plain answer shows: each takes up to a kilobyte.
LEDGER_SHOWN = 1_000


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """The singleton."""

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, state: SchedulerState | None) -> None:
        self.born = state is None
        self.state = state or SchedulerState()
        self.books = SchedulerCache(self.state, self._ms, workflow.logger)
        self.shown_phase = ""
        self.audit_due = False
        registry.register(workflow.info().run_id, self.books)

    @workflow.run
    async def run(self, state: SchedulerState | None) -> None:
        """Decide for ever."""
        del state
        await self.load()
        if self.born or self.state.rebuild:
            await self.rebuild()
        reminding = asyncio.create_task(self.remind())
        self.publish()
        while not workflow.info().is_continue_as_new_suggested():
            await self._until_work()
            while self.books.take_inbox():
                await workflow.sleep(BREATH, summary="more messages than can be read at once")
            await self.tell_leaving_clusters()
            await self.tell_drained()
            await self.ask_after_reservations()
            if self.state.silent:
                await self.ask_silent()
            while self.state.queue:
                await self.decide()
                self.books.requeue()
            await self.audit_when_due()
            self.publish()
        reminding.cancel()
        await workflow.wait_condition(workflow.all_handlers_finished)
        packed = await self.pack()
        # A signal that arrives in the very task that ends the run undoes that task, and a worker then reads the whole run anew. Packing
        # takes long, so it gets a task of its own: the next one takes no time, and carries what arrived meanwhile.
        await workflow.sleep(BREATH, summary="the books are packed")
        workflow.continue_as_new(self.books.carried(packed))

    async def pack(self) -> PackedFleet:
        """Pack the books; what cannot be packed is asked for again by the next run, as after a loss."""
        try:
            packed: PackedFleet = await workflow.execute_local_activity(
                pack_books, self._books_order(), **activity_options.local(OVER_ALL_BOOKS, "pack the books for the next run")
            )
        except ActivityError as error:
            workflow.logger.exception("the books could not be packed", extra={"problem": error_message(error)})
            return PackedFleet(too_large=True)
        return packed

    async def load(self) -> None:
        """Read the carried fleet; a large one a part at a time, because nothing may block the worker for long."""
        large = self.books.parts_left > PARTS_AT_ONCE
        while self.books.parts_left:
            self.books.read_part()
            if large:
                registry.freeze_objects()
            if large and self.books.parts_left:
                await workflow.sleep(BREATH, summary=f"{self.books.parts_left} parts of the fleet left to read")

    def _books_order(self) -> CacheOrder:
        return CacheOrder(run_id=workflow.info().run_id, version=self.books.fleet.version)

    async def remind(self) -> None:
        """Have the ledger recounted now and then."""
        while True:
            self.audit_due = self.books.fleet.ledger.size > 0
            await workflow.sleep(AUDIT_EVERY, summary="recount the ledger")

    async def audit_when_due(self) -> None:
        """Compare the ledger with a recount of itself; a difference is a bug, and is told."""
        if not self.audit_due:
            return
        self.audit_due = False
        try:
            self.state.audit = await workflow.execute_local_activity(
                audit_books, self._books_order(), **activity_options.local(OVER_ALL_BOOKS, "recount the ledger")
            )
        except ActivityError as error:
            self.state.audit = [f"the ledger could not be recounted: {error_message(error)}"]
        for difference in self.state.audit:
            workflow.logger.error("the ledger differs from a recount", extra={"difference": difference})

    async def _until_work(self) -> None:
        # A reservation that is not used after its time to live has to be asked about.
        time_to_live = timedelta(seconds=self.books.fleet.options.reservation_ttl_seconds)
        pauses = [ASK_AGAIN if self.state.silent else None, time_to_live if self.books.unbound else None, self.books.look_again_after()]
        pause = min((pause for pause in pauses if pause is not None), default=None)
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox or self.state.queue or self.audit_due),
                timeout=pause,
                timeout_summary="look after silent entities, unused reservations, held and refused capacity",
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
                "replicas": self.books.fleet.ledger.size,
                "waiting": [f"{place.namespace}/{place.name}" for place in self.state.unplaced.values()],
                "silent": sorted(self.state.silent),
                "decisions": self.state.decided,
                "placements": self.state.placed,
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """Name the deployments whose replicas are not all placed, and whose account a rebuild waits for."""
        return [f"{place.namespace}/{place.name} waits for capacity" for place in self.state.unplaced.values()] + [
            f"waits for the account of {workflow_id}" for workflow_id in sorted(self.state.silent)
        ]

    @workflow.query
    def ledger(self) -> list[dict[str, Any]]:
        """Give the ledger entries in order, the first of them in a large fleet: `ledger_page` gives them all."""
        return [to_wire(entry) for entry in nsmallest(LEDGER_SHOWN, self.books.fleet.entries(), key=lambda entry: entry.uid)]

    @workflow.query
    def ledger_page(self, after: str = "") -> dict[str, Any]:
        """Give the ledger entries whose uid comes after `after`, packed, with the ledger's version and where to go on (empty: all)."""
        return self.books.ledger_page(after)

    @workflow.query
    def pools(self, cluster: str) -> list[dict[str, Any]]:
        """Give what the books say of a cluster's pools: charged, free, and how fragmented their devices are."""
        return pool_report(self.books.fleet, cluster, self._ms())

    @workflow.query
    def audit(self) -> list[str]:
        """Compare the ledger with one rebuilt from its entries; a difference is a bug. Of a large one, the last hourly look."""
        return self.books.fleet.audit() if self.books.fleet.ledger.size <= AUDITED_AT_ONCE else self.state.audit

    # --- deciding -----------------------------------------------------------------------------------------------------------------

    def next_batch(self) -> list[Place]:
        """Take what waits, by priority and then arrival, as far as one decision can carry it."""
        classes = self.books.fleet.options.priority_classes
        batch: list[Place] = []
        replicas = 0
        for place in sorted(
            self.state.queue.values(), key=lambda place: -classes.get(place.need.get("policy", {}).get("priorityClass", ""), 0)
        ):
            if batch and (len(batch) == BATCH_REQUESTS or replicas + place.wanted > BATCH_REPLICAS):
                break
            replicas += place.wanted
            batch.append(place)
            del self.state.queue[owner_of(place)]
        return batch

    async def decide(self) -> None:
        """Decide one batch, charge the ledger, answer."""
        batch = self.next_batch()
        fresh = [place for place in batch if place.request_id not in self.books.answers]
        said = [tells.answer_to(place, self.books.answers[place.request_id]) for place in batch if place.request_id in self.books.answers]
        decided = await self._decided(fresh) if fresh else Decided()
        for place in fresh:
            if place.request_id in decided.decisions:
                said += self._settle(place, from_wire(Decision, decided.decisions[place.request_id]), decided.scheduler_version)
            elif place.request_id in decided.problems:
                problem = decided.problems[place.request_id]
                workflow.logger.warning("an unreadable request was dropped", extra={"request": place.request_id, "problem": problem})
        await self._tell(said, f"answer {len(said)} deployments")

    async def _decided(self, places: list[Place]) -> Decided:
        """Have a batch decided. One that fails is cut in half, until the request is found that cannot be decided: that one is dropped."""
        order = DecideOrder(run_id=workflow.info().run_id, version=self.books.fleet.version, now=self._ms(), requests=places)
        try:
            decided: Decided = await workflow.execute_local_activity(
                decide_batch, order, **activity_options.local(activity_options.DECIDE, f"decide {len(places)} requests")
            )
        except ActivityError as error:
            workflow.logger.exception("a decision failed", extra={"requests": [place.request_id for place in places]})
            if len(places) == 1:
                return Decided(problems={places[0].request_id: error_message(error)})
            half = len(places) // 2
            # What was asked meanwhile is newer than what goes back.
            self.state.queue = {**{owner_of(place): place for place in places[half:]}, **self.state.queue}
            return await self._decided(places[:half])
        return decided

    def _settle(self, place: Place, decision: Decision, version: str) -> list[SignalRequest]:
        if decision.waiting_since < 0:
            self.books.end_hold(place.namespace, place.name)
        asked = from_wire(DeploymentView, place.need) if decision.waiting_since >= 0 else None
        apply(self.books.fleet, decision, asked)
        for placement in decision.placements:
            if placement.action == "Update":
                # A replica that shrank has given nodes up, for its own deployment's next decision too.
                self.books.grown.on(placement.cluster)
        self.state.decided += 1
        self.state.placed += sum(1 for placement in decision.placements if placement.action in ("Create", "Replace"))
        answer = tells.placed_message(place, decision, self.books.fleet, self.state.epoch, version).wire()
        before = self.books.superseded.pop(place.request_id, None)
        self.books.answers[place.request_id] = answer
        while len(self.books.answers) > ANSWERS_KEPT:
            del self.books.answers[next(iter(self.books.answers))]
        if decision.waits_for_capacity:
            self.state.unplaced[owner_of(place)] = place
        for placement in decision.placements:
            entry = self.books.fleet.replica(placement.uid)
            if entry is not None and entry.state == reasons.RESERVED:
                self.books.unbound[placement.uid] = None
        evictions = [tells.eviction(victim, self.state.epoch) for victim in decision.victims]
        # Its deployment forgets what it has not started, or never heard of it: only an answer tells that the nodes are free.
        taken_back = [entry for e in (*decision.evictions, *decision.victims) if (entry := self.books.unbound_entry(e.uid))]
        evictions += [tells.revoke(entry, self.state.epoch) for entry in taken_back]
        # Who waits hears again only what is new to it.
        return evictions if before == answer else [*evictions, tells.answer_to(place, answer)]

    async def _tell(self, said: list[SignalRequest], summary: str) -> SignalBatchResult:
        """Say it to all of them; nothing is sent where there is nothing to say."""
        missing: list[str] = []
        for part in tells.in_parts(said):
            told = await workflow.execute_activity_method(
                EntityClient.tell_many, SignalBatch(signals=part), **activity_options.remote(activity_options.ENTITY_BATCH, summary)
            )
            missing += told.missing
        return SignalBatchResult(missing=missing)

    async def ask_after_reservations(self) -> None:
        """Ask the deployments of old reservations whether they are still wanted."""
        expired = self.books.expired()
        said = [tells.revoke(entry, self.state.epoch) for entry in expired]
        told = await self._tell(said, f"ask after {len(said)} reservations")
        for entry, tell in zip(expired, said, strict=True):
            if tell.workflow_id in told.missing:
                self.state.inbox.append(("revoked", Revoked(uid=entry.uid).wire()))

    async def tell_drained(self) -> None:
        """Have deployments ask anew whose replicas a new taint sends away."""
        drained, self.books.drained = self.books.drained, {}
        said = [tells.ask_anew(*owner) for owner in sorted(drained)]
        await self._tell(said, f"a taint moves {len(said)} deployments")

    async def tell_leaving_clusters(self) -> None:
        """Tell clusters that are being deleted what the ledger still holds on them, when that changes."""
        said: list[SignalRequest] = []
        for cluster, told in self.state.leaving.items():
            held = sorted(f"{entry.namespace}/{entry.name}" for entry in self.books.fleet.on_cluster(cluster).values())
            if held != told:
                self.state.leaving[cluster] = held
                said.append(tells.occupied(cluster, self.state.clusters[cluster], held))
        await self._tell(said, "tell leaving clusters what they hold")

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
            EntityClient.broadcast,
            Broadcast(
                kinds=["ModelDeployment", "InferenceCluster", "InferenceClass"],
                signal="resync",
                payload=Resync(epoch=self.state.epoch).wire(),
            ),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"announce epoch {self.state.epoch}"),
        )

    async def _survey(self, kinds: list[str]) -> None:
        after = ""
        while True:
            page = await workflow.execute_activity_method(
                EntityClient.survey,
                Survey(kinds=kinds, query="account", after=after),
                **activity_options.remote(activity_options.ENTITY_BATCH, f"read the accounts of {', '.join(kinds)}"),
            )
            for workflow_id, account in page.answers.items():
                self.books.take_account(workflow_id, account)
            self.state.silent |= page.silent
            after = page.after
            if not after:
                return

    async def ask_silent(self) -> None:
        """Ask those again who did not answer."""
        # Who does not answer again goes to the end, so that everybody's turn comes.
        asked = list(self.state.silent)[:ASKED_AT_ONCE]
        waiting = {workflow_id: self.state.silent[workflow_id] for workflow_id in list(self.state.silent)[ASKED_AT_ONCE:]}
        answered = await workflow.execute_activity_method(
            EntityClient.ask_each,
            AskEach(workflow_ids=asked, query="account"),
            **activity_options.remote(activity_options.ENTITY_BATCH, f"ask {len(asked)} silent entities for their account"),
        )
        for workflow_id, account in answered.answers.items():
            self.books.take_account(workflow_id, account)
        self.state.silent = {**waiting, **answered.silent}
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
