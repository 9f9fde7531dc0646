"""FleetScheduler: the singleton that places the replicas of all deployments.

Entities signal it, and it answers by signals. It reads the arrived messages in one
batch, decides in a local activity, records the decisions in its ledger, and answers. No
other workflow places replicas, so no capacity is promised twice.

A scheduler that starts without state continues with the state of the previous scheduler
(`rebuild.takeover`). If there is none, it draws a new epoch and reads the accounts of
all entities (`rebuild.survey`), and places nothing before that. It places nothing on a
cluster with unknown replicas.
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
from workflows.fleet_scheduler.calls import (
    Announcer,
    carry_out,
    check_doubts,
    decide_requests,
)
from workflows.fleet_scheduler.continue_as_new import TASK_PAUSE, load, pack
from workflows.fleet_scheduler.controller import SchedulerController
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.ledger_audit import LedgerAudit
from workflows.fleet_scheduler.policy_record import PolicyKeeper
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.fleet_scheduler.rebuild.survey import Rebuild
from workflows.fleet_scheduler.rebuild.takeover import continued_state
from workflows.fleet_scheduler.rebuild.unresponsive import MissingAccounts

# The limits of one plain answer: entries of the ledger, and names of waiting objects.
LEDGER_SHOWN = 1_000
NAMES_SHOWN = 1_000


@workflow.defn(name="FleetScheduler")
class FleetSchedulerWorkflow:
    """Workflow id fleetscheduler/default.

    It never ends, and its first signal starts it.
    """

    kind: ClassVar[str] = "FleetScheduler"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        check_only_id(self.kind, FLEET_SCHEDULER_ID)
        state, second = (
            read_carried(arguments, SchedulerState, most=2),
            read_carried(arguments, SecondPayload, 1, most=2),
        )
        # A scheduler draws an epoch before it carries anything. A state without an
        # epoch knows no running entity.
        self.is_first_run = state is None or not state.epoch
        self.state = state or SchedulerState()
        self.state.take_over(second or SecondPayload())
        self.arrivals: Counter[str] = Counter()
        self.time = SteadyTime(self.state.time)
        self.cache = SchedulerCache(self.state, self._now_ms)
        self.inbox = Inbox(self.cache, workflow.logger)
        self.controller = SchedulerController(self.cache, self.inbox, workflow.logger)
        self.adoption = AccountAdoption(self.cache, self.inbox, workflow.logger)
        self.rebuild = Rebuild(self.cache, self.adoption)
        self.missing = MissingAccounts(self.state, self.adoption)
        self.ledger_audit = LedgerAudit(self.cache)
        self.policy_keeper = PolicyKeeper(self.cache)
        self.announcer = Announcer(self.state)
        self.timer = RequeueTimer(
            "check unused reservations and timeouts", self._requeue, self.time
        )
        self.queued = False
        cache_registry.register(workflow.info().run_id, self.cache)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Place replicas until this run continues as new."""
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
        background = [
            asyncio.create_task(self.ledger_audit.repeat()),
            asyncio.create_task(self._check_doubts()),
        ]
        self._publish()
        self.missing.ask()
        while not (self._ends() or self.state.rebuild):
            await self._until_work()
            while self._read():
                await workflow.sleep(
                    TASK_PAUSE, summary="more messages than can be read at once"
                )
            self.missing.adopt()
            if self.state.rebuild:
                break
            self.missing.ask()
            await carry_out(self.controller.due(), self.controller, self.announcer)
            self.missing.settle()
            while self.state.queue:
                batch = self.controller.next_batch()
                decided = await decide_requests(self.cache, batch.requests)
                await carry_out(
                    self.controller.decided(batch, decided),
                    self.controller,
                    self.announcer,
                )
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
        # A signal that arrives in the last task of the run invalidates that task, and a
        # worker then replays the whole run. Packing takes long, so it has its own task.
        # The next task takes no time, and carries the messages that arrived meanwhile.
        await workflow.sleep(TASK_PAUSE, summary="the cache is packed")
        workflow.continue_as_new(
            args=in_payloads(self.cache.carried(packed)), memo=memo_to_carry()
        )

    def _ends(self) -> bool:
        return (
            workflow.info().is_continue_as_new_suggested()
            and not self.announcer.is_busy
        )

    async def _take_over(self) -> None:
        """Continue the state of a lost scheduler, in a new run."""
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
        """Read messages; return True while there are more.

        A policy that a query shows is recorded.
        """
        more = self.inbox.read()
        self.policy_keeper.record()
        return more

    async def _until_work(self) -> None:
        delay = self.controller.delay()
        # If nothing is due any more, keep the timer. Cancelling it and starting another
        # one would cost more events than a useless pass.
        if delay is not None:
            self.timer.update(self.time.now() + delay)
        await workflow.wait_condition(self._has_work)
        self.queued = False

    def _has_work(self) -> bool:
        # There may be deployments that wait for their resync, or requests for which the
        # previous run had no room.
        waiting = self.state.inbox or self.state.queue or self.cache.resyncs
        return bool(
            self.queued or waiting or self.missing.arrived or self.ledger_audit.is_due
        )

    def _requeue(self) -> None:
        self.queued = True

    async def _check_doubts(self) -> None:
        """Check replicas about which the ledger and their deployments disagree.

        This runs concurrently with decisions, so that a replica that does not answer
        does not delay them.
        """
        verification = self.cache.verification
        while True:
            delay = verification.delay(self._now_ms())
            due = self.time.now() + (delay or timedelta())
            try:
                await workflow.wait_condition(
                    lambda: bool(verification.due(self._now_ms())),
                    timeout=delay,
                    timeout_summary="check silent replicas again",
                )
            except TimeoutError:
                self.time.reached(due)
            if verification.due(self._now_ms()):
                await check_doubts(self.controller)

    # Signals, which the inbox reads later

    @receives(FleetSchedulerSignals.PLACE)
    def place(self, payload: Any) -> None:
        """Request placements for a deployment."""
        self.inbox.append(FleetSchedulerSignals.PLACE, payload)

    @receives(FleetSchedulerSignals.BOUND)
    def bound(self, payload: Any) -> None:
        """Report started replicas."""
        self.inbox.append(FleetSchedulerSignals.BOUND, payload)

    @receives(FleetSchedulerSignals.RELEASED)
    def released(self, payload: Any) -> None:
        """Report that the objects of a replica are deleted."""
        self.inbox.append(FleetSchedulerSignals.RELEASED, payload)

    @receives(FleetSchedulerSignals.REVOKED)
    def revoked(self, payload: Any) -> None:
        """Report that a reservation will not be used."""
        self.inbox.append(FleetSchedulerSignals.REVOKED, payload)

    @receives(FleetSchedulerSignals.REPORT_CLUSTER)
    def report_cluster(self, payload: Any) -> None:
        """Report a new or changed cluster."""
        self.inbox.append(FleetSchedulerSignals.REPORT_CLUSTER, payload)

    @receives(FleetSchedulerSignals.REPORT_CLASS)
    def report_class(self, payload: Any) -> None:
        """Report a new or changed class."""
        self.inbox.append(FleetSchedulerSignals.REPORT_CLASS, payload)

    @receives(FleetSchedulerSignals.FORGET)
    def forget(self, payload: Any) -> None:
        """Report a deleted object."""
        self.inbox.append(FleetSchedulerSignals.FORGET, payload)

    @receives(FleetSchedulerSignals.SET_POLICY)
    def set_policy(self, payload: Any) -> None:
        """Set the fleet policy."""
        self.inbox.append(FleetSchedulerSignals.SET_POLICY, payload)

    @receives(FleetSchedulerSignals.CANCEL_REQUESTED)
    def cancel_requested(self, payload: Any) -> None:
        """Refuse the cancellation of the workflow."""
        self.inbox.append(FleetSchedulerSignals.CANCEL_REQUESTED, payload)

    @receives(FleetSchedulerSignals.DELIVERY)
    def delivery(self, payload: Any) -> None:
        """Report whether another workflow refuses the signals of this one."""
        self.inbox.append(FleetSchedulerSignals.DELIVERY, payload)

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument could not be read."""
        self.inbox.refuse(message.__name__, problems)

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call was refused and is retried."""
        self.inbox.call_refused(summary, problem)

    def call_accepted(self, summary: str) -> None:
        """Do nothing: the event of a refused call stays."""

    async def before_next_call(self, delay: timedelta) -> None:
        await workflow.sleep(delay, summary=NEXT_CALL)

    # Queries

    @workflow.query
    def policy(self) -> dict[str, Any]:
        """Return the complete fleet policy in force, and the problems of the policy.

        These are the problem of the last refused policy, and why a policy is lost.
        """
        state = self.state
        return {
            "policy": write_policy(self.cache.fleet.options),
            "problem": state.policy_problem,
            "lost": state.policy_lost,
        }

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return figures, the size of the ledger, and the reasons for waits.

        The scheduler waits for capacity and for unresponsive entities. Both lists are
        limited.
        """
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "epoch": self.state.epoch,
                "policyLost": self.state.policy_lost,
                "rebuilding": not self.state.is_complete,
                "readyClusters": self.cache.fleet.ready_clusters(),
                **self._figures(),
                "waiting": [
                    f"{place.namespace}/{place.name}"
                    for place in islice(self.state.unplaced.values(), NAMES_SHOWN)
                ],
                "silent": nsmallest(NAMES_SHOWN, self.state.unresponsive),
                "events": [
                    event.model_dump(mode="json", by_alias=True)
                    for event in self.state.events
                ],
            },
        }

    @workflow.query
    def waiting(self) -> list[str]:
        """List the deployments that wait for capacity, and the unresponsive entities.

        Both lists are limited. A rebuild waits for the accounts of unresponsive
        entities.
        """
        unplaced = islice(self.state.unplaced.values(), NAMES_SHOWN)
        return [
            f"{place.namespace}/{place.name} waits for capacity" for place in unplaced
        ] + [
            f"waits for the account of {workflow_id}"
            for workflow_id in nsmallest(NAMES_SHOWN, self.state.unresponsive)
        ]

    @workflow.query
    def ledger(self) -> list[dict[str, Any]]:
        """Return the first ledger entries in order.

        `ledger_page` returns all entries.
        """
        entries = nsmallest(
            LEDGER_SHOWN, self.cache.fleet.entries(), key=lambda entry: entry.uid
        )
        pages = split_by_size(
            map(to_wire, entries), name=lambda entry: f"ledger entry {entry['uid']}"
        )
        return next(iter(pages), [])

    @answers
    def ledger_page(self, after: Any) -> dict[str, Any]:
        """Return the packed ledger entries with a uid after `after`.

        The answer has the version of the ledger and the next `after`, which is empty at
        the end.
        """
        return self.cache.ledger_page(
            _text("ledger_page", "after", "" if after is None else after)
        )

    @workflow.query
    def handover(self) -> dict[str, Any]:
        """Return the whole state of this run for a successor.

        `rebuild/takeover.py` reads it after this scheduler is lost.
        """
        return self.controller.handover().wire()

    @answers
    def pools(self, cluster: Any) -> list[dict[str, Any]]:
        """Return the usage of a cluster's pools.

        It includes charged and free devices, and their fragmentation.
        """
        return pool_report(
            self.cache.fleet, _text("pools", "cluster", cluster), self._now_ms()
        )

    @workflow.query
    def audit(self) -> list[str]:
        """Return the differences between the ledger and a recount; any is a bug."""
        return self.ledger_audit.differences()

    # Temporal UI

    def _figures(self) -> dict[str, int]:
        return {
            "clusters": len(self.cache.fleet.clusters),
            "classes": len(self.state.classes),
            "replicas": self.cache.fleet.ledger.size,
            "decisions": self.state.decided,
            "placements": self.state.placed,
        }

    def _publish(self) -> None:
        """Publish the headline figures."""
        lines = [
            f"**FleetScheduler** epoch {self.state.epoch}",
            "",
            "| | |",
            "|---|---|",
        ]
        lines += [f"| {name} | {figure} |" for name, figure in self._figures().items()]
        lines += ["", *(f"- {line}" for line in self.waiting())]
        if self.state.policy_lost:
            lines.append(f"- the fleet policy is lost: {self.state.policy_lost}")
        workflow.set_current_details("\n".join(lines))
        phase = (
            "Ready"
            if self.state.is_complete and not self.cache.fleet.awaited
            else "Progressing"
        )
        started_with = workflow.memo_value(PUBLISHED_MEMO, None)
        known = self.state.phase or (
            started_with[0] if isinstance(started_with, list) and started_with else ""
        )
        if phase != known:
            workflow.upsert_search_attributes(
                [
                    KIND.value_set(self.kind),
                    NAME.value_set("default"),
                    PHASE.value_set(phase),
                ]
            )
            self.state.phase = phase

    def _now_ms(self) -> int:
        return int(self.time.seconds() * 1000)


def _text(query: str, argument: str, value: Any) -> str:
    """Read the argument of a query. Raises InvalidInput."""
    if not isinstance(value, str):
        raise InvalidInput(
            f"{query}: {argument}: must be a string, got {type(value).__name__}"
        )
    return value
