"""FleetScheduler: the singleton that places the replicas of all deployments.

Entities signal it and are answered by signals. It reads what arrived in one batch, decides in a local activity over its ledger, charges
the ledger, and answers. As nothing else places replicas, no capacity is promised twice.

A scheduler that starts without state draws a new epoch and asks every cluster, class, replica and deployment for its account. It places
nothing before that, and nothing on a cluster while one of its replicas has not answered.
"""

import asyncio
from datetime import timedelta
from heapq import nsmallest
from typing import Any, ClassVar

from temporalio import workflow

from activities.messaging.search_attributes import KIND, NAME, PHASE
from api_types.messages.signals import FleetSchedulerSignals
from scheduler import Decision, from_wire, pool_report, to_wire, write_policy
from workflows.entity.handles import receives
from workflows.fleet_scheduler import outgoing
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.continue_as_new import TASK_PAUSE, load, pack
from workflows.fleet_scheduler.deciding import charge, decide_requests
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.ledger_audit import LedgerAudit
from workflows.fleet_scheduler.rebuild import Rebuild
from workflows.fleet_scheduler.sending import report_occupied, revoke_expired, send, send_resyncs

# How soon entities are asked again that did not answer a rebuild.
UNRESPONSIVE_RETRY = timedelta(seconds=5)

# Entries that one plain answer shows: each takes up to a kilobyte.
LEDGER_SHOWN = 1_000


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """Workflow id fleetscheduler/default; runs for ever, and is started by the first signal that is sent to it."""

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, state: SchedulerState | None) -> None:
        self.is_first_run = state is None
        self.state = state or SchedulerState()
        self.cache = SchedulerCache(self.state, self._now_ms)
        self.inbox = Inbox(self.cache, workflow.logger)
        self.rebuild = Rebuild(self.cache, self.inbox, workflow.logger)
        self.ledger_audit = LedgerAudit(self.cache)
        self.published_phase = ""
        cache_registry.register(workflow.info().run_id, self.cache)

    @workflow.run
    async def run(self, state: SchedulerState | None) -> None:
        """Place replicas, for ever."""
        del state
        await load(self.cache)
        if self.is_first_run or self.state.rebuild:
            await self._rebuild()
        audits = asyncio.create_task(self.ledger_audit.repeat())
        self._publish()
        while not workflow.info().is_continue_as_new_suggested():
            await self._until_work()
            while self.inbox.read():
                await workflow.sleep(TASK_PAUSE, summary="more messages than can be read at once")
            await report_occupied(self.cache)
            await send_resyncs(self.cache)
            await revoke_expired(self.cache, self.inbox)
            if self.state.unresponsive:
                await self.rebuild.query_unresponsive()
            while self.state.queue:
                await self._decide_batch()
                self.cache.requeue_unplaced()
            await self.ledger_audit.run_if_due()
            self._publish()
        audits.cancel()
        await workflow.wait_condition(workflow.all_handlers_finished)
        packed = await pack(self.cache)
        # A signal that arrives in the very task that ends the run undoes that task, and a worker then reads the whole run anew. Packing
        # takes long, so it gets a task of its own: the next one takes no time, and carries what arrived meanwhile.
        await workflow.sleep(TASK_PAUSE, summary="the cache is packed")
        workflow.continue_as_new(self.cache.carried(packed))

    async def _rebuild(self) -> None:
        self.state.epoch = self._now_ms()
        self.cache.fleet.rebuilding = True
        self._publish()
        await self.rebuild.run()

    async def _until_work(self) -> None:
        # A reservation that is not used after its time to live has to be asked about.
        time_to_live = timedelta(seconds=self.cache.fleet.options.reservation_ttl_seconds)
        delays = [
            UNRESPONSIVE_RETRY if self.state.unresponsive else None,
            time_to_live if self.cache.unbound else None,
            self.cache.next_timeout(),
        ]
        try:
            await workflow.wait_condition(
                lambda: bool(self.state.inbox or self.state.queue or self.ledger_audit.is_due),
                timeout=min((delay for delay in delays if delay is not None), default=None),
                timeout_summary="check unresponsive entities, unused reservations and timeouts",
            )
        except TimeoutError:
            return

    async def _decide_batch(self) -> None:
        """Decide one batch, charge the ledger, answer. A request that was answered before gets the same answer."""
        batch = self.cache.queue.next_batch()
        new = [place for place in batch if place.request_id not in self.cache.answers]
        requests = [
            outgoing.answer_to(place, self.cache.answers[place.request_id]) for place in batch if place.request_id in self.cache.answers
        ]
        decided = await decide_requests(self.cache, new)
        for place in new:
            if place.request_id in decided.decisions:
                decision = from_wire(Decision, decided.decisions[place.request_id])
                requests += charge(self.cache, place, decision, decided.scheduler_version)
            elif place.request_id in decided.problems:
                problem = decided.problems[place.request_id]
                workflow.logger.warning("an unreadable request was dropped", extra={"request": place.request_id, "problem": problem})
        await send(requests, f"answer {len(requests)} deployments")

    # --- signals: stored here, read by the inbox ------------------------------------------------------------------------------------

    @receives(FleetSchedulerSignals.PLACE)
    def place(self, payload: Any) -> None:
        """A deployment requests placements."""
        self.inbox.append(FleetSchedulerSignals.PLACE, payload)

    @receives(FleetSchedulerSignals.BOUND)
    def bound(self, payload: Any) -> None:
        """Replicas were started."""
        self.inbox.append(FleetSchedulerSignals.BOUND, payload)

    @receives(FleetSchedulerSignals.RELEASED)
    def released(self, payload: Any) -> None:
        """The objects of a replica are deleted."""
        self.inbox.append(FleetSchedulerSignals.RELEASED, payload)

    @receives(FleetSchedulerSignals.REVOKED)
    def revoked(self, payload: Any) -> None:
        """A reservation will not be used."""
        self.inbox.append(FleetSchedulerSignals.REVOKED, payload)

    @receives(FleetSchedulerSignals.REPORT_CLUSTER)
    def report_cluster(self, payload: Any) -> None:
        """A cluster is new or different."""
        self.inbox.append(FleetSchedulerSignals.REPORT_CLUSTER, payload)

    @receives(FleetSchedulerSignals.REPORT_CLASS)
    def report_class(self, payload: Any) -> None:
        """A class is new or different."""
        self.inbox.append(FleetSchedulerSignals.REPORT_CLASS, payload)

    @receives(FleetSchedulerSignals.FORGET)
    def forget(self, payload: Any) -> None:
        """An object is deleted."""
        self.inbox.append(FleetSchedulerSignals.FORGET, payload)

    @receives(FleetSchedulerSignals.SET_POLICY)
    def set_policy(self, payload: Any) -> None:
        """A user wrote the fleet policy."""
        self.inbox.append(FleetSchedulerSignals.SET_POLICY, payload)

    # --- queries ------------------------------------------------------------------------------------------------------------------

    @workflow.query
    def policy(self) -> dict[str, Any]:
        """Give the fleet policy in force, every field written out, and the problem of the last one that was refused."""
        return {"policy": write_policy(self.cache.fleet.options), "problem": self.state.policy_problem}

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Give headline figures, the waiting requests and the ledger's size."""
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "epoch": self.state.epoch,
                "clusters": len(self.cache.fleet.clusters),
                "classes": len(self.state.classes),
                "replicas": self.cache.fleet.ledger.size,
                "waiting": [f"{place.namespace}/{place.name}" for place in self.state.unplaced.values()],
                "silent": sorted(self.state.unresponsive),
                "decisions": self.state.decided,
                "placements": self.state.placed,
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """Name the deployments whose replicas are not all placed, and the entities that a rebuild waits for."""
        return [f"{place.namespace}/{place.name} waits for capacity" for place in self.state.unplaced.values()] + [
            f"waits for the account of {workflow_id}" for workflow_id in sorted(self.state.unresponsive)
        ]

    @workflow.query
    def ledger(self) -> list[dict[str, Any]]:
        """Give the ledger entries in order, the first of them in a large fleet: `ledger_page` gives them all."""
        return [to_wire(entry) for entry in nsmallest(LEDGER_SHOWN, self.cache.fleet.entries(), key=lambda entry: entry.uid)]

    @workflow.query
    def ledger_page(self, after: str = "") -> dict[str, Any]:
        """Give the ledger entries whose uid comes after `after`, packed, with the ledger's version and the next `after` (empty: all)."""
        return self.cache.ledger_page(after)

    @workflow.query
    def pools(self, cluster: str) -> list[dict[str, Any]]:
        """Give what the ledger has for a cluster's pools: charged, free, and how fragmented their devices are."""
        return pool_report(self.cache.fleet, cluster, self._now_ms())

    @workflow.query
    def audit(self) -> list[str]:
        """Give the differences between the ledger and one that is rebuilt from its entries; any is a bug."""
        return self.ledger_audit.differences()

    # --- showing ------------------------------------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Show the headline figures in the Temporal UI."""
        shown = self.describe()["status"]
        lines = [f"**FleetScheduler** epoch {shown['epoch']}", "", "| | |", "|---|---|"]
        lines += [f"| {name} | {shown[name]} |" for name in ("clusters", "classes", "replicas", "decisions", "placements")]
        lines += ["", *(f"- {line}" for line in self.waiting())]
        workflow.set_current_details("\n".join(lines))
        phase = "Progressing" if self.cache.fleet.rebuilding else "Ready"
        if phase != self.published_phase:
            self.published_phase = phase
            workflow.upsert_search_attributes([KIND.value_set(self.kind), NAME.value_set("default"), PHASE.value_set(phase)])

    def _now_ms(self) -> int:
        return int(workflow.time() * 1000)
