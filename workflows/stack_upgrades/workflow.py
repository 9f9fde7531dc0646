"""StackUpgrades: grants InferenceClusters turns to upgrade their serving stacks.

There is only one such workflow. The first cluster that requests a turn starts it, and
it never ends. It is idle while no cluster waits.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from temporalio import workflow

from api_types import clock
from api_types.base import Message
from api_types.messages.delivery import Delivery
from api_types.messages.entities import CancelRequested
from api_types.messages.signals import StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest
from api_types.names import STACK_UPGRADES_ID
from workflows.entity.calls.delivery import undelivered
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.calls.sending import LOCAL_CALLS_MAX, send_all
from workflows.entity.conditions import (
    CANCEL_REFUSED,
    MALFORMED,
    RECEIVER_REFUSES,
    REFUSALS_KEPT,
    with_event,
)
from workflows.entity.handles import handles
from workflows.entity.memo import memo_to_carry
from workflows.entity.start import check_only_id, read_carried
from workflows.entity.timers.requeue_timer import RequeueTimer
from workflows.entity.timers.steady_time import SteadyTime
from workflows.stack_upgrades.state import UpgradesState
from workflows.stack_upgrades.survey import survey
from workflows.stack_upgrades.turns import UpgradeTurns

NAMES_SHOWN = 100


@workflow.defn(name="StackUpgrades")
class StackUpgradesWorkflow:
    """Workflow id stackupgrades/default."""

    kind: ClassVar[str] = "StackUpgrades"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        check_only_id(self.kind, STACK_UPGRADES_ID)
        self.state = read_carried(arguments, UpgradesState) or UpgradesState()
        self.events = list(self.state.events)
        self.turns = UpgradeTurns(
            self.state,
            self._next_number,
            lambda reason, message: self._record("Normal", reason, message),
        )
        self.arrivals: Counter[str] = Counter()
        self.queued = True
        self._time = SteadyTime(self.state.time)
        self._timer = RequeueTimer("end of a lease", self._requeue, self._time)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Grant turns until this run continues as new."""
        del arguments
        if not self.state.surveyed:
            await survey(self.turns, self._time)
            self.state = self.state.model_copy(update={"surveyed": True})
        while not workflow.info().is_continue_as_new_suggested():
            await workflow.wait_condition(lambda: self.queued)
            self.queued = False
            self.turns.advance(self._time.now())
            await self._send_answers()
            self._timer.update(self.turns.next_end())
            self._publish()
        self._timer.cancel()
        await workflow.wait_condition(workflow.all_handlers_finished)
        state = self.turns.carried(self.state).model_copy(
            update={"events": self.events, "time": self._time.now().isoformat()}
        )
        workflow.continue_as_new(state, memo=memo_to_carry())

    async def _send_answers(self) -> None:
        if answers := self.turns.answers():
            asked = {cluster: self.turns.requests[cluster].uid for cluster in answers}
            summary = f"report the turns to {len(answers)} clusters"
            missing = await send_all(
                list(answers.values()), summary, local=len(answers) <= LOCAL_CALLS_MAX
            )
            for cluster, answer in answers.items():
                if answer.workflow_id in missing:
                    self.turns.drop(cluster, uid=asked[cluster])
                    self._requeue()

    # Messages

    @handles(StackUpgradesSignals.REQUEST_UPGRADE)
    def request_upgrade(self, message: UpgradeRequest) -> None:
        """Record that a cluster requests a turn, makes progress, or is done."""
        self.turns.request(message, self._time.now())
        self._requeue()

    @handles(StackUpgradesSignals.CANCEL_REQUESTED)
    def cancel_requested(self, message: CancelRequested) -> None:
        """Refuse the cancellation: clusters would wait for turns."""
        reason = f" ({message.reason})" if message.reason else ""
        self._record(
            "Warning",
            CANCEL_REFUSED,
            f"a request to cancel the workflow{reason} was ignored: "
            "clusters need it to upgrade",
        )

    @handles(StackUpgradesSignals.DELIVERY)
    def delivery(self, message: Delivery) -> None:
        """Record that another workflow refuses the signals of this one."""
        if message.problem:
            self._record("Warning", RECEIVER_REFUSES, undelivered(message))

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument could not be read."""
        self._record(
            "Warning",
            MALFORMED,
            f"a {message.__name__} message was ignored: {problems}",
        )

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call was refused and is retried."""
        self._record("Warning", "CallRefused", f"{summary}: {problem}")

    def call_accepted(self, summary: str) -> None:
        """Do nothing: the event of a refused call stays."""

    async def before_next_call(self, delay: timedelta) -> None:
        await workflow.sleep(delay, summary=NEXT_CALL)

    # Queries

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return the first upgrading and waiting clusters, and the events."""
        return {
            "kind": self.kind,
            "metadata": {"name": "default"},
            "status": {
                "upgrading": self.turns.holders[:NAMES_SHOWN],
                "waiting": self.turns.waiting[:NAMES_SHOWN],
                "events": [
                    event.model_dump(mode="json", by_alias=True)
                    for event in self.events
                ],
            },
        }

    # Temporal UI

    def _publish(self) -> None:
        rows = (("upgrading", self.turns.holders), ("waiting", self.turns.waiting))
        lines = [
            f"| {what} | {', '.join(names[:NAMES_SHOWN])} |" for what, names in rows
        ]
        workflow.set_current_details(
            "\n".join(["**StackUpgrades**", "", "| | |", "|---|---|", *lines])
        )

    def _requeue(self) -> None:
        self.queued = True

    def _record(self, kind: str, reason: str, message: str) -> None:
        now = clock.timestamp(workflow.now())
        kept = {} if kind == "Normal" else {"of_reason_max": REFUSALS_KEPT}
        self.events = with_event(self.events, kind, reason, message, now=now, **kept)

    def _next_number(self, last: int) -> int:
        return max(last + 1, int(workflow.time() * 1000))
