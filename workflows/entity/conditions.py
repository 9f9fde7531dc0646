"""Conditions and events, as every entity keeps them.

A condition changes its transition time only when its status changes; events that repeat are counted, and only the newest are kept.
"""

from typing import NamedTuple

from api_types.payloads.limits import shortened
from api_types.resources.status import Condition, EventRecord

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"

EVENTS_KEPT = 50

# The reasons of events for what was sent and is not done. A thousand may be sent, so few are kept: the others tell what happened.
MALFORMED = "MalformedMessage"
CANCEL_REFUSED = "CancelRefused"
REFUSALS_KEPT = 5

CALLS_ACCEPTED = "CallsAccepted"
"""The condition of an object that calls others, and that a worker refuses to call them; it is there only while that is so."""
CALL_REFUSED = "CallRefused"

SIGNALS_DELIVERED = "SignalsDelivered"
"""The condition of an object whose signals another workflow does not take; it is there only while that is so."""
RECEIVER_REFUSES = "ReceiverRefuses"

# Bytes of UTF-8: an object carries some fifteen conditions and fifty events, and shows them with everything else.
CONDITION_MESSAGE_MAX = 2000
EVENT_MESSAGE_MAX = 1024


class Verdict(NamedTuple):
    """Status, reason and message of one condition."""

    status: str
    reason: str
    message: str = ""


def with_condition(
    conditions: list[Condition], kind: str, status: str, reason: str, message: str, *, now: str, generation: int
) -> list[Condition]:
    """Set one condition; gives the same list when nothing changes."""
    message = shortened(message, CONDITION_MESSAGE_MAX)
    old = condition_of(conditions, kind)
    if old and (old.status, old.reason, old.message, old.observed_generation) == (status, reason, message, generation):
        return conditions
    since = old.last_transition_time if old and old.status == status else now
    new = Condition(type=kind, status=status, reason=reason, message=message, last_transition_time=since, observed_generation=generation)
    if old:
        return [new if condition.type == kind else condition for condition in conditions]
    return [*conditions, new]


def condition_of(conditions: list[Condition], kind: str) -> Condition | None:
    """Find a condition by its type."""
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: list[Condition], kind: str) -> bool:
    """Tell whether a condition is there and True."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == TRUE


def waiting_for(conditions: list[Condition], *, deleting: bool) -> list[str]:
    """List what an object waits for: its conditions that are not True; during a teardown, only how far that is."""
    if deleting and (progress := condition_of(conditions, "Deleting")):
        return [f"{progress.reason}: {progress.message}"]
    return [f"{c.type}: {c.reason}{f' ({c.message})' if c.message else ''}" for c in conditions if c.status != TRUE]


def with_event(
    events: list[EventRecord], kind: str, reason: str, message: str, *, now: str, of_reason_max: int = EVENTS_KEPT
) -> list[EventRecord]:
    """Add an event; one that repeats an earlier one raises its count and moves to the end. Of its reason at most so many are kept."""
    message = shortened(message, EVENT_MESSAGE_MAX)
    same = next((event for event in events if (event.type, event.reason, event.message) == (kind, reason, message)), None)
    new = EventRecord(
        type=kind,
        reason=reason,
        message=message,
        count=same.count + 1 if same else 1,
        first=same.first if same else now,
        last=now,
    )
    others = [event for event in events if event is not same]
    alike = [event for event in others if event.reason == reason]
    dropped = alike[: max(0, len(alike) + 1 - of_reason_max)]
    return [*(event for event in others if event not in dropped), new][-EVENTS_KEPT:]
