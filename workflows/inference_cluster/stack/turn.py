"""The turn of a cluster to upgrade its stack: request it, report progress, return it.

StackUpgrades grants the turns. Only the upgrade of a complete stack needs one. The
first installation and later repairs do not wait for a turn.
"""

from datetime import timedelta

from api_types.digests import short_hash
from api_types.messages.signals import STACK_UPGRADES, StackUpgradesSignals
from api_types.messages.upgrades import UpgradeRequest, UpgradeTurn
from workflows.entity.context import EntityContext
from workflows.inference_cluster.stack.plan import PREFLIGHT, is_upgrading
from workflows.inference_cluster.stack_state import TurnState
from workflows.inference_cluster.state import ClusterState

# A sixth of a lease. The progress of a step that ends sooner is reported with the next
# step.
REPORT_AFTER = timedelta(minutes=5)
_SAID_TO_NOBODY = "-"


class StackTurn:
    """Decides whether the cluster may upgrade its stack."""

    def __init__(self, context: EntityContext[ClusterState]) -> None:
        self._context = context
        self._state = context.state

    @property
    def _turn(self) -> TurnState:
        return self._state.stack.turn

    @property
    def waits(self) -> bool:
        return bool(self._turn.number) and not self._turn.granted

    def follow(self, *, running: bool) -> None:
        """Request a turn if an upgrade needs one.

        Otherwise return it. An unreachable cluster requests no turn. If it has one, it
        keeps it until the lease ends.
        """
        wanted = (running or self._turn.granted) and self._is_needed()
        if wanted and not self._turn.number:
            self._turn.number = self._context.next_registration()
            self._context.mark_changed()
        elif not wanted:
            self.give_back()

    def give_back(self) -> None:
        """Cancel the request, or return the turn."""
        if self._turn.number:
            self._turn.number, self._turn.granted, self._turn.holders = 0, False, []
            self._context.mark_changed()

    def _is_needed(self) -> bool:
        stack = self._state.stack
        waits = self._context.is_future(stack.retry_at.get(PREFLIGHT, ""))
        may_plan = stack.replan and not waits
        return stack.complete and (may_plan or is_upgrading(stack))

    # Messages

    def answered(self, message: UpgradeTurn) -> None:
        """Record an answer."""
        if (message.uid, message.turn) != (self._state.uid, self._turn.number):
            # StackUpgrades knows an earlier cluster of this name or an earlier request,
            # so send the current request again.
            self._turn.said = _SAID_TO_NOBODY
            self._context.requeue()
            return
        if message.sequence <= self._turn.answer:
            return
        self._turn.answer = message.sequence
        if (self._turn.granted, self._turn.holders) != (
            message.granted,
            message.holders,
        ):
            self._turn.granted, self._turn.holders = message.granted, message.holders
            self._context.mark_changed()

    def repeat(self) -> None:
        """Send the request again in the next pass if a turn is requested."""
        if self._turn.number:
            self._turn.said = _SAID_TO_NOBODY
            self._context.requeue()

    def request(self) -> UpgradeRequest | None:
        """Return the request if it is new to StackUpgrades, and record it as sent."""
        turn, found = self._turn, self.account()
        # The digest contains `at_once` and `holds` as last sent, because a query that
        # was executed twice may return an outdated answer.
        said = (
            short_hash([found.turn, found.at_once, found.holds]) if found.turn else ""
        )
        if said == turn.said and found.progress == turn.progress:
            return None
        if said == turn.said and self._context.waits_until(turn.report_at):
            return None
        turn.said, turn.progress = said, found.progress
        turn.report_at = (self._context.moment() + REPORT_AFTER).isoformat()
        return found.model_copy(update={"sequence": self._context.next_registration()})

    def account(self) -> UpgradeRequest:
        """Return the current request with the number of the last message.

        A turn of 0 means that no turn is requested.
        """
        turn, stack = self._turn, self._state.stack
        progress = turn.progress
        if turn.granted:
            progress = f"{stack.plans}/{len(stack.done)}"
        return UpgradeRequest(
            cluster=self._context.name,
            uid=self._state.uid,
            turn=turn.number,
            sequence=self._state.registration,
            wanted=bool(turn.number),
            at_once=stack.seen.upgrades_at_once if stack.seen else 1,
            holds=turn.granted,
            progress=progress,
            answer=turn.answer,
        )

    async def report(self) -> None:
        """Send the request to StackUpgrades if it is new."""
        if request := self.request():
            await self._context.signal_recorded(
                STACK_UPGRADES, StackUpgradesSignals.REQUEST_UPGRADE, request
            )
