"""FleetScheduler: the singleton that places the replicas of all deployments.

Entities signal it and are answered by signals. It reads what arrived in one batch, decides in a local activity over its ledger, charges
the ledger, and answers. As nothing else places replicas, no capacity is promised twice.

A scheduler that starts without state continues that of the one before (`rebuild.takeover`). If there is none it draws a new epoch and reads
the accounts of all entities (`rebuild.survey`), and places nothing before that. It places nothing on a cluster about which something is
unknown.
"""

import asyncio
from collections import Counter
from datetime import timedelta
from heapq import nsmallest
from itertools import islice
from typing import Any, ClassVar

from temporalio import workflow

from activities.messaging.search_attributes import KIND, NAME, PHASE, PUBLISHED_MEMO
from api_types.base import Message
from api_types.errors import InvalidInput
from api_types.messages.signals import FleetSchedulerSignals
from api_types.names import FLEET_SCHEDULER_ID
from api_types.payloads.limits import split_by_size
from scheduler import pool_report, to_wire, write_policy
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.handles import answers, receives
from workflows.entity.memo import memo_to_carry
from workflows.entity.start import check_only_id, read_carried
from workflows.entity.timers.requeue_timer import RequeueTimer
from workflows.entity.timers.steady_time import SteadyTime
from workflows.fleet_scheduler.cache import cache_registry
from workflows.fleet_scheduler.cache.carry_over import in_payloads
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState, SecondPayload
from workflows.fleet_scheduler.calls import Announcer, carry_out, check_doubts, decide_requests
from workflows.fleet_scheduler.continue_as_new import TASK_PAUSE, load, pack
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.ledger_audit import LedgerAudit
from workflows.fleet_scheduler.policy_record import PolicyKeeper
from workflows.fleet_scheduler.rebuild.adoption import Adoption
from workflows.fleet_scheduler.rebuild.survey import Rebuild
from workflows.fleet_scheduler.rebuild.takeover import continued_state
from workflows.fleet_scheduler.rebuild.unresponsive import MissingAccounts

# What one plain answer shows at most: entries of the ledger, and names of those that wait.
LEDGER_SHOWN = 1_000
NAMES_SHOWN = 1_000


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """Workflow id fleetscheduler/default; runs for ever, and is started by the first signal that is sent to it."""

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        check_only_id(self.kind, FLEET_SCHEDULER_ID)
        state, second = read_carried(arguments, SchedulerState, most=2), read_carried(arguments, SecondPayload, 1, most=2)
        # An epoch is drawn before anything is carried; a state without one knows of nothing that runs.
        self.is_first_run = state is None or not state.epoch
        self.state = state or SchedulerState()
        self.state.take_over(second or SecondPayload())
        self.arrivals: Counter[str] = Counter()
        self.time = SteadyTime(self.state.time)
        self.cache = SchedulerCache(self.state, self._now_ms)
        self.inbox = Inbox(self.cache, workflow.logger)
        self.controller = SchedulerController(self.cache, self.inbox, workflow.logger)
        self.adoption = Adoption(self.cache, self.inbox, workflow.logger)
        self.rebuild = Rebuild(self.cache, self.adoption)
        self.missing = MissingAccounts(self.state, self.adoption)
        self.ledger_audit = LedgerAudit(self.cache)
        self.policy_keeper = PolicyKeeper(self.cache)
        self.announcer = Announcer(self.state)
        self.timer = RequeueTimer("check unused reservations and timeouts", self._requeue, self.time)
        self.queued = False
        cache_registry.register(workflow.info().run_id, self.cache)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Place replicas, for ever."""
        del arguments
        await load(self.cache)
        if self.is_first_run:
            self.policy_keeper.seek()
            await self._take_over()
        if self.is_first_run or self.state.rebuild:
            self.rebuild.begin()
        elif self.state.takeover is not None and not self.state.takeover.begun:
            self.adoption.begin_takeover(self.state.takeover)
        self._publish()
        if self.is_first_run:
            await self.policy_keeper.restore()
        await self._rebuild()
        background = [asyncio.create_task(self.ledger_audit.repeat()), asyncio.create_task(self._check_doubts())]
        self._publish()
        self.missing.ask()
        while not (self._ends() or self.state.rebuild):
            await self._until_work()
            while self._read():
                await workflow.sleep(TASK_PAUSE, summary="more messages than can be read at once")
            self.missing.adopt()
            if self.state.rebuild:
                break
            self.missing.ask()
            await carry_out(self.controller.due(), self.controller, self.announcer)
            self.missing.settle()
            while self.state.queue:
                batch = self.controller.next_batch()
                decided = await decide_requests(self.cache, batch.requests)
                await carry_out(self.controller.decided(batch, decided), self.controller, self.announcer)
                self.controller.in_hand = []
            await self.ledger_audit.run_if_due()
            self._publish()
        for task in background:
            task.cancel()
        self.announcer.stop()
        self.timer.cancel()
        await self.missing.stop()
        await workflow.wait_condition(workflow.all_handlers_finished)
        self.state.time = self.time.now().isoformat()
        packed = await pack(self.cache)
        # A signal that arrives in the very task that ends the run undoes that task, and a worker then reads the whole run anew. Packing
        # takes long, so it gets a task of its own: the next one takes no time, and carries what arrived meanwhile.
        await workflow.sleep(TASK_PAUSE, summary="the cache is packed")
        workflow.continue_as_new(args=in_payloads(self.cache.carried(packed)), memo=memo_to_carry())

    def _ends(self) -> bool:
        return workflow.info().is_continue_as_new_suggested() and not self.announcer.is_busy

    async def _take_over(self) -> None:
        """Continue the state of a scheduler that was lost, in a run of its own."""
        following = await continued_state(self.state, self._now_ms())
        if following is not None:
            workflow.continue_as_new(args=in_payloads(following), memo=memo_to_carry())

    async def _rebuild(self) -> None:
        if self.state.survey is None:
            return
        await self.rebuild.run()
        if self.state.survey is None:
            self.policy_keeper.rebuilt()
            self.policy_keeper.record()

    def _read(self) -> bool:
        """Read messages; True while there are more. A policy that a query shows is recorded."""
        more = self.inbox.read()
        self.policy_keeper.record()
        return more

    async def _until_work(self) -> None:
        delay = self.controller.delay()
        # When nothing is due any more, the timer is left: to stop it and to start another one costs more events than a pass in vain.
        if delay is not None:
            self.timer.update(self.time.now() + delay)
        await workflow.wait_condition(self._has_work)
        self.queued = False

    def _has_work(self) -> bool:
        # Resyncs wait for their turn, or the run before had no room for the requests.
        waiting = self.state.inbox or self.state.queue or self.cache.resyncs
        return bool(self.queued or waiting or self.missing.arrived or self.ledger_audit.is_due)

    def _requeue(self) -> None:
        self.queued = True

    async def _check_doubts(self) -> None:
        """Check replicas beside the decisions: one that does not answer must not delay them."""
        verification = self.cache.verification
        while True:
            delay = verification.delay(self._now_ms())
            due = self.time.now() + (delay or timedelta())
            try:
                await workflow.wait_condition(
                    lambda: bool(verification.due(self._now_ms())),
                    timeout=delay,
                    timeout_summary="check replicas again that did not answer",
                )
            except TimeoutError:
                self.time.reached(due)
            if verification.due(self._now_ms()):
                await check_doubts(self.controller)

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

    @receives(FleetSchedulerSignals.CANCEL_REQUESTED)
    def cancel_requested(self, payload: Any) -> None:
        """The workflow was to be cancelled."""
        self.inbox.append(FleetSchedulerSignals.CANCEL_REQUESTED, payload)

    @receives(FleetSchedulerSignals.DELIVERY)
    def delivery(self, payload: Any) -> None:
        """Another workflow takes no signals of this one, or takes them again."""
        self.inbox.append(FleetSchedulerSignals.DELIVERY, payload)

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument could not be read."""
        self.inbox.refuse(message.__name__, problems)

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call is refused, and is made again."""
        self.inbox.call_refused(summary, problem)

    def call_accepted(self, summary: str) -> None:
        """Nothing: what was refused is an event, and those stay."""

    async def before_next_call(self, delay: timedelta) -> None:
        """Wait for so long."""
        await workflow.sleep(delay, summary=NEXT_CALL)

    # --- queries ------------------------------------------------------------------------------------------------------------------

    @workflow.query
    def policy(self) -> dict[str, Any]:
        """Give the fleet policy in force, every field written out, the problem of the last one that was refused, and why one is lost."""
        state = self.state
        return {"policy": write_policy(self.cache.fleet.options), "problem": state.policy_problem, "lost": state.policy_lost}

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Give headline figures, the first of the waiting requests and silent entities, and the ledger's size."""
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "epoch": self.state.epoch,
                "policyLost": self.state.policy_lost,
                "rebuilding": not self.state.is_complete,
                "clusters": len(self.cache.fleet.clusters),
                "classes": len(self.state.classes),
                "replicas": self.cache.fleet.ledger.size,
                "waiting": [f"{place.namespace}/{place.name}" for place in islice(self.state.unplaced.values(), NAMES_SHOWN)],
                "silent": nsmallest(NAMES_SHOWN, self.state.unresponsive),
                "decisions": self.state.decided,
                "placements": self.state.placed,
                "events": [event.model_dump(mode="json", by_alias=True) for event in self.state.events],
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """Name the first of the deployments whose replicas are not all placed, and of the entities that a rebuild waits for."""
        unplaced = islice(self.state.unplaced.values(), NAMES_SHOWN)
        return [f"{place.namespace}/{place.name} waits for capacity" for place in unplaced] + [
            f"waits for the account of {workflow_id}" for workflow_id in nsmallest(NAMES_SHOWN, self.state.unresponsive)
        ]

    @workflow.query
    def ledger(self) -> list[dict[str, Any]]:
        """Give the ledger entries in order, the first of them in a large fleet: `ledger_page` gives them all."""
        entries = nsmallest(LEDGER_SHOWN, self.cache.fleet.entries(), key=lambda entry: entry.uid)
        return next(iter(split_by_size(map(to_wire, entries), name=lambda entry: f"ledger entry {entry['uid']}")), [])

    @answers
    def ledger_page(self, after: Any) -> dict[str, Any]:
        """Give the ledger entries whose uid comes after `after`, packed, with the ledger's version and the next `after` (empty: all)."""
        return self.cache.ledger_page(_text("ledger_page", "after", "" if after is None else after))

    @workflow.query
    def handover(self) -> dict[str, Any]:
        """Give all that this run knows, for a scheduler that continues it when this one is lost (`rebuild/takeover.py`)."""
        return self.controller.handover().wire()

    @answers
    def pools(self, cluster: Any) -> list[dict[str, Any]]:
        """Give what the ledger has for a cluster's pools: charged, free, and how fragmented their devices are."""
        return pool_report(self.cache.fleet, _text("pools", "cluster", cluster), self._now_ms())

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
        if self.state.policy_lost:
            lines.append(f"- the fleet policy is lost: {self.state.policy_lost}")
        workflow.set_current_details("\n".join(lines))
        phase = "Ready" if self.state.is_complete and not self.cache.fleet.rebuilding else "Progressing"
        started_with = workflow.memo_value(PUBLISHED_MEMO, None)
        known = self.state.phase or (started_with[0] if isinstance(started_with, list) and started_with else "")
        if phase != known:
            workflow.upsert_search_attributes([KIND.value_set(self.kind), NAME.value_set("default"), PHASE.value_set(phase)])
            self.state.phase = phase

    def _now_ms(self) -> int:
        return int(self.time.seconds() * 1000)


def _text(query: str, argument: str, value: Any) -> str:
    """Read the argument of a query. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(f"{query}: {argument}: must be a text, got {type(value).__name__}")
    return value
