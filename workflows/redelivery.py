"""Redelivery: repeats refused signals to one receiver, so that no sender waits for it.

Each receiver that refuses signals has one Redelivery. The first refused batch starts
it. It ends when the receiver has accepted all signals, or no longer runs.
"""

import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field
from temporalio import workflow

from activities.messaging.entity_client import EntityClient
from api_types import clock, names
from api_types.base import Message
from api_types.errors import InvalidInput
from api_types.messages.delivery import (
    Delivery,
    EntityRef,
    HoldSignals,
    SignalBatch,
    SignalRequest,
)
from api_types.messages.entities import CancelRequested, RetryNow
from api_types.messages.signals import RECEIVERS, RedeliverySignals, SenderSignals
from api_types.payloads.limits import LIST_BYTES_MAX, split_by_size, wire_size
from api_types.resources.status import EventRecord
from workflows.entity import backoff
from workflows.entity.calls.refusals import NEXT_CALL
from workflows.entity.calls.sending import call_entities, send_all
from workflows.entity.conditions import (
    CALL_REFUSED,
    CANCEL_REFUSED,
    MALFORMED,
    REFUSALS_KEPT,
    with_event,
)
from workflows.entity.handles import handles
from workflows.entity.memo import memo_to_carry
from workflows.entity.start import read_carried

HELD_MAX = 200
SENDERS_MAX = 100
# A Redelivery that was started manually, without signals, ends after this time.
START_LIMIT = timedelta(hours=1)
# The overhead of a list of signals.
_MARGIN_BYTES = 4096
# The first part of the id of a workflow that accepts signals, and the possible numbers
# of further parts.
_RECEIVERS = frozenset({"cloud", *(kind.kind.lower() for kind in RECEIVERS)})
_NAME_PARTS = (1, 2)


class RedeliveryState(BaseModel):
    """The state of a Redelivery, which continue-as-new carries.

    Attributes:
        held: the refused signals, the oldest first.
        lost: the number of signals without room.
        senders: the senders that know of the refusal.
        unnotified: the senders that do not know it yet.
        problem: why the receiver refused the last attempt.
        since: when the refusal began.
        attempts: attempts in a row that the receiver refused.
        refusals: how often the receiver began to refuse signals.
        events: the last refused messages and calls.

    """

    model_config = ConfigDict(extra="ignore")

    held: list[SignalRequest] = Field(default_factory=list)
    lost: int = 0
    senders: list[str] = Field(default_factory=list)
    unnotified: list[str] = Field(default_factory=list)
    problem: str = ""
    since: str = ""
    attempts: int = 0
    refusals: int = 0
    events: list[EventRecord] = Field(default_factory=list)

    def hold(self, message: HoldSignals) -> None:
        """Keep signals, without duplicates.

        If there is no room, the oldest signals are dropped, because later signals carry
        the same information. A signal that does not fit into a payload is dropped
        alone.
        """
        wanted = [
            *(request for request in self.held if request not in message.signals),
            *message.signals,
        ]
        kept: list[SignalRequest] = []
        room = LIST_BYTES_MAX - _MARGIN_BYTES
        for request in reversed(wanted[-HELD_MAX:]):
            size = wire_size(request.wire())
            if size > LIST_BYTES_MAX - _MARGIN_BYTES:
                continue
            room -= size
            if room < 0:
                break
            kept.insert(0, request)
        self.lost += len(wanted) - len(kept)
        self.held, self.problem = kept, message.problem
        known = {*self.senders, *self.unnotified}
        if message.sender and message.sender not in known and len(known) < SENDERS_MAX:
            self.unnotified.append(message.sender)


@workflow.defn(name="Redelivery")
class RedeliveryWorkflow:
    """Workflow id redelivery/<workflow id of the receiver>."""

    kind: ClassVar[str] = "Redelivery"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        self.receiver = _receiver()
        self.state = read_carried(arguments, RedeliveryState) or RedeliveryState()
        self.retries_requested = 0
        self.arrivals: Counter[str] = Counter()

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Send the held signals again, at growing intervals, until all are accepted."""
        del arguments
        await self._await_signals()
        while self.state.held:
            self.state.since = self.state.since or clock.timestamp(workflow.now())
            self._publish()
            await self._notify_senders()
            await self.before_next_call(backoff.missing(self.state.attempts))
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(self.state, memo=memo_to_carry())
            await self._redeliver()
            if not self.state.held:
                await self._notify_of_recovery()

    async def _await_signals(self) -> None:
        """Wait for the first signals, which normally arrive with the start."""
        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                lambda: bool(self.state.held),
                timeout=START_LIMIT,
                timeout_summary="wait for signals",
            )

    async def _redeliver(self) -> None:
        batch = next(iter(split_by_size(self.state.held, name=str)))
        summary = f"send {len(batch)} signals to {self.receiver} again"
        result = await call_entities(
            EntityClient.redeliver, SignalBatch(signals=batch), summary
        )
        taken = self.state.held if result.missing else batch[: result.count]
        self.state.held = [
            request for request in self.state.held if request not in taken
        ]
        if result.problem:
            self.state.problem = result.problem
            self.state.attempts += 1
        else:
            self.state.attempts = 0

    async def _notify_senders(self) -> None:
        """Report the refusal to the senders that do not know it yet."""
        senders, self.state.unnotified = self.state.unnotified, []
        self.state.senders += senders
        await self._notify(senders, self.state.problem)

    async def _notify_of_recovery(self) -> None:
        """Report to all senders that the receiver accepted everything, or does not run.

        The receiver may refuse signals again meanwhile.
        """
        senders = self.state.senders + self.state.unnotified
        self.state.senders, self.state.unnotified = [], []
        self.state.problem, self.state.since, self.state.attempts = "", "", 0
        await self._notify(senders, "")
        self.state.refusals += 1

    async def _notify(self, senders: list[str], problem: str) -> None:
        run, refusal = workflow.info().first_execution_run_id, self.state.refusals
        delivery = Delivery(
            receiver=self.receiver, run=run, refusal=refusal, problem=problem
        )
        reports = [
            SenderSignals.DELIVERY.request(EntityRef(sender), delivery)
            for sender in senders
        ]
        if reports:
            summary = f"report to {len(reports)} senders about {self.receiver}"
            await send_all(reports, summary)

    # Messages

    @handles(RedeliverySignals.HOLD)
    def hold(self, message: HoldSignals) -> None:
        """Hold signals that the receiver refused."""
        own = [
            request
            for request in message.signals
            if request.workflow_id == self.receiver
        ]
        self.state.hold(message.model_copy(update={"signals": own}))

    @handles(RedeliverySignals.RETRY_NOW)
    def retry_now(self, message: RetryNow) -> None:
        """Make the next attempt now."""
        del message
        self.retries_requested += 1

    @handles(RedeliverySignals.CANCEL_REQUESTED)
    def cancel_requested(self, message: CancelRequested) -> None:
        """Refuse the cancellation: the held signals would be lost."""
        reason = f" ({message.reason})" if message.reason else ""
        self._record(
            CANCEL_REFUSED,
            f"a request to cancel the workflow{reason} was ignored: "
            f"{self.receiver} would lose its signals",
        )

    def refuse_malformed(self, message: type[Message], problems: str) -> None:
        """Record a signal whose argument could not be read."""
        self._record(MALFORMED, f"a {message.__name__} message was ignored: {problems}")

    def call_refused(self, summary: str, problem: str) -> None:
        """Record that a call was refused and is retried."""
        self._record(CALL_REFUSED, f"{summary}: {problem}")

    def call_accepted(self, summary: str) -> None:
        """Do nothing: the event of the refused call stays."""

    async def before_next_call(self, delay: timedelta) -> None:
        """Wait for the delay, a retry by a user, or the end of this run."""
        before = self.retries_requested

        def is_over() -> bool:
            is_full = workflow.info().is_continue_as_new_suggested()
            return is_full or self.retries_requested != before

        with contextlib.suppress(TimeoutError):
            await workflow.wait_condition(
                is_over, timeout=delay, timeout_summary=NEXT_CALL
            )

    # Queries and Temporal UI

    @workflow.query
    def describe(self) -> dict[str, Any]:
        """Return the receiver, the held signals, the refusal and the senders."""
        state = self.state
        return {
            "kind": self.kind,
            "metadata": {"name": self.receiver},
            "status": {
                "held": len(state.held),
                "lost": state.lost,
                "since": state.since,
                "attempts": state.attempts,
                "problem": state.problem,
                "senders": state.senders,
                "events": [
                    event.model_dump(mode="json", by_alias=True)
                    for event in state.events
                ],
            },
        }

    def _record(self, reason: str, message: str) -> None:
        now = clock.timestamp(workflow.now())
        self.state.events = with_event(
            self.state.events,
            "Warning",
            reason,
            message,
            now=now,
            of_reason_max=REFUSALS_KEPT,
        )

    def _publish(self) -> None:
        state = self.state
        rows = {
            "signals": len(state.held),
            "lost": state.lost,
            "since": state.since,
            "attempts": state.attempts,
            "problem": state.problem,
        }
        lines = [
            f"**Redelivery** to {self.receiver}",
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | {value} |" for name, value in rows.items()),
        ]
        workflow.set_current_details("\n".join(lines))


def _receiver() -> str:
    """Return the receiver in the id of this workflow. Raises InvalidInput."""
    workflow_id = workflow.info().workflow_id
    receiver = names.receiver_of_redelivery(workflow_id)
    kind, *parts = receiver.split("/")
    if kind not in _RECEIVERS or not all(parts) or len(parts) not in _NAME_PARTS:
        raise InvalidInput(
            f'id: must be redelivery/<workflow id of the receiver>, got "{workflow_id}"'
        )
    return receiver
