"""Replicas about which the ledger and other objects disagree.

Their own workflows decide whether their nodes are in use. A deployment that does not
run can confirm nothing, and a recreated deployment does not know yet which replicas an
earlier one started. If the scheduler freed nodes on their word, it could assign nodes
that are still in use.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, NamedTuple

from pydantic import ValidationError

from api_types import names
from api_types.base import Message
from api_types.messages.delivery import Signal
from api_types.messages.scheduling import Bound, Released, ReplicaAccount
from api_types.messages.signals import FleetSchedulerSignals
from scheduler import LedgerEntry
from workflows.entity import backoff
from workflows.fleet_scheduler.cache.state import ReceivedSignal

# Each query may take up to its timeout, and 32 replicas are queried at the same time.
CHECKED_AT_ONCE = 100


class Doubt(Message):
    """A replica to query: the id of its workflow, and the due time in milliseconds."""

    uid: str
    workflow_id: str
    attempts: int = 0
    due: int = 0


class Facts(NamedTuple):
    """The consequences of answers: messages, and the uids of existing replicas."""

    messages: list[ReceivedSignal]
    present: list[str]


class Verification:
    """The replicas to query, by uid."""

    def __init__(self) -> None:
        self.doubts: dict[str, Doubt] = {}

    def add(self, entry: LedgerEntry) -> None:
        """Schedule a query of a replica, unless one is pending."""
        if entry.uid not in self.doubts:
            workflow_id = names.workflow_id("ModelReplica", entry.namespace, entry.name)
            self.doubts[entry.uid] = Doubt(uid=entry.uid, workflow_id=workflow_id)

    def discard(self, uid: str) -> None:
        """Forget a replica whose nodes are free."""
        self.doubts.pop(uid, None)

    def due(self, now: int) -> list[Doubt]:
        """Return the replicas to query now."""
        return [doubt for doubt in self.doubts.values() if doubt.due <= now][
            :CHECKED_AT_ONCE
        ]

    def delay(self, now: int) -> timedelta | None:
        """Return the time until the next query is due; None for never."""
        next_due = min((doubt.due for doubt in self.doubts.values()), default=None)
        return (
            None if next_due is None else timedelta(milliseconds=max(0, next_due - now))
        )

    def facts(
        self,
        checked: Sequence[Doubt],
        answers: Mapping[str, Any],
        unresponsive: Collection[str],
        now: int,
    ) -> Facts:
        """Return the consequences of the answers.

        Unresponsive replicas are queried again at growing intervals.
        """
        found = Facts([], [])
        for doubt in checked:
            if doubt.uid not in self.doubts:
                continue
            account = _read(answers.get(doubt.workflow_id))
            if doubt.workflow_id in unresponsive or (
                account is None and doubt.workflow_id in answers
            ):
                wait = backoff.after_retries(doubt.attempts)
                self.doubts[doubt.uid] = doubt.model_copy(
                    update={
                        "attempts": doubt.attempts + 1,
                        "due": now + int(wait.total_seconds() * 1000),
                    }
                )
                continue
            del self.doubts[doubt.uid]
            if account is not None and account.uid == doubt.uid and not account.gone:
                found.messages.append(
                    _received(
                        FleetSchedulerSignals.BOUND,
                        Bound(entries={doubt.uid: account.entry}),
                    )
                )
                found.present.append(doubt.uid)
            else:
                found.messages.append(
                    _received(FleetSchedulerSignals.RELEASED, Released(uid=doubt.uid))
                )
        return found

    def wire(self) -> list[Any]:
        """Return the state as a JSON tree."""
        return [doubt.wire() for doubt in self.doubts.values()]

    def load(self, tree: Sequence[Any]) -> None:
        """Load the state that `wire` returned."""
        self.doubts = {doubt.uid: doubt for doubt in map(Doubt.model_validate, tree)}


def _read(account: Any) -> ReplicaAccount | None:
    try:
        return None if account is None else ReplicaAccount.model_validate(account)
    except ValidationError:
        return None


def _received(
    signal: Signal[FleetSchedulerSignals, Any], message: Message
) -> ReceivedSignal:
    return ReceivedSignal(signal.name, message.wire())
