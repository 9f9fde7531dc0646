"""The turn of a cluster to upgrade its stack, which StackUpgrades gives: asked for, kept while there is progress, and given back.

Only an upgrade of a stack that was complete needs one. What is installed at first, or repaired later, does not wait.
"""

from collections.abc import Callable
from datetime import datetime, timedelta

from api_types.digests import short_hash
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest, UpgradeTurn
from workflows.entity.context import EntityContext
from workflows.inference_cluster.stack.plan import PREFLIGHT, is_upgrading
from workflows.inference_cluster.stack_state import TurnState
from workflows.inference_cluster.state import ClusterState

# A sixth of a lease: a step that ends sooner after the last report is reported with the next one.
REPORT_AFTER = timedelta(minutes=5)
_SAID_TO_NOBODY = "-"


class StackTurn:
    """Whether the cluster may upgrade. `takes_turns` is false in histories of before."""

    def __init__(self, context: EntityContext[ClusterState], takes_turns: Callable[[], bool]) -> None:
        self._context = context
        self._state = context.state
        self._takes_turns = takes_turns

    @property
    def _turn(self) -> TurnState:
        return self._state.stack.turn

    @property
    def waits(self) -> bool:
        """Whether an upgrade has to wait."""
        return bool(self._turn.number) and not self._turn.granted

    def follow(self, *, running: bool) -> None:
        """Want a turn where an upgrade needs one, and give it back when it does not any more.

        A cluster that does not answer wants none; if it has one, it keeps that while the lease lasts.
        """
        wanted = (running or self._turn.granted) and self._is_needed() and self._takes_turns()
        if wanted and not self._turn.number:
            self._turn.number = self._context.next_registration()
            self._context.mark_changed()
        elif not wanted:
            self.give_back()

    def give_back(self) -> None:
        """Want no turn any more."""
        if self._turn.number:
            self._turn.number, self._turn.granted, self._turn.holders = 0, False, []
            self._context.mark_changed()

    def _is_needed(self) -> bool:
        stack = self._state.stack
        retry_at = stack.retry_at.get(PREFLIGHT, "")
        may_plan = stack.replan and not (retry_at and self._context.is_future(retry_at))
        return stack.complete and (may_plan or is_upgrading(stack))

    # --- messages -----------------------------------------------------------------------------------------------------------------

    def answered(self, message: UpgradeTurn) -> None:
        """Record an answer."""
        if (message.uid, message.turn) != (self._state.uid, self._turn.number):
            # StackUpgrades knows an earlier cluster of this name, or an earlier request: it is told what is wanted now.
            self._turn.said = _SAID_TO_NOBODY
            self._context.requeue()
            return
        if message.sequence <= self._turn.answer:
            return
        self._turn.answer = message.sequence
        if (self._turn.granted, self._turn.holders) != (message.granted, message.holders):
            self._turn.granted, self._turn.holders = message.granted, message.holders
            self._context.mark_changed()

    def repeat(self) -> None:
        """Ask again with the next pass, if a turn is wanted."""
        if self._turn.number:
            self._turn.said = _SAID_TO_NOBODY
            self._context.requeue()

    def request(self) -> UpgradeRequest | None:
        """Give what StackUpgrades must be told and was not yet; it counts as told."""
        turn, found = self._turn, self.account()
        # With what it was told last, for an answer of a task that was executed twice may say what is not so any more.
        said = short_hash([found.turn, found.at_once, found.holds]) if found.turn else ""
        if said == turn.said and found.progress == turn.progress:
            return None
        if said == turn.said and self._context.is_future(turn.report_at):
            self._context.requeue_at(datetime.fromisoformat(turn.report_at))
            return None
        turn.said, turn.progress = said, found.progress
        turn.report_at = (self._context.moment() + REPORT_AFTER).isoformat()
        return found.model_copy(update={"sequence": self._context.next_registration()})

    def account(self) -> UpgradeRequest:
        """Give what the cluster wants now, numbered as its last message; a turn that is 0 is none."""
        turn, stack = self._turn, self._state.stack
        return UpgradeRequest(
            cluster=self._context.name,
            uid=self._state.uid,
            turn=turn.number,
            sequence=self._state.registration,
            wanted=bool(turn.number),
            at_once=stack.seen.upgrades_at_once if stack.seen else 1,
            holds=turn.granted,
            progress=f"{stack.plans}/{len(stack.done)}" if turn.granted else turn.progress,
            answer=turn.answer,
        )

    async def report(self) -> None:
        """Tell StackUpgrades what it must know."""
        if request := self.request():
            await self._context.signal_recorded(STACK_UPGRADES, StackUpgradesSignals.REQUEST_UPGRADE, request)
