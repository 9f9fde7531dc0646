"""Conditions and events of every entity.

The transition time of a condition changes only with its status. Repeated events are
counted, and only the newest events are kept.
"""

from typing import NamedTuple

from api_types.payloads.limits import shortened
from api_types.resources.status import Condition, EventRecord

TRUE = "True"
FALSE = "False"
UNKNOWN = "Unknown"

EVENTS_KEPT = 50

# Event reasons of ignored messages. A thousand may arrive, so few of these events are
# kept, and other events stay visible.
MALFORMED = "MalformedMessage"
CANCEL_REFUSED = "CancelRefused"
REFUSALS_KEPT = 5

CALLS_ACCEPTED = "CallsAccepted"
"""The type of the condition that a worker refuses calls of this object.

It is present only while the refusal lasts.
"""
CALL_REFUSED = "CallRefused"

SIGNALS_DELIVERED = "SignalsDelivered"
"""The type of the condition that a receiver refuses signals of this object.

It is present only while the refusal lasts.
"""
RECEIVER_REFUSES = "ReceiverRefuses"

# Limits in bytes of UTF-8. An object carries some fifteen conditions and fifty events,
# and shows them with everything else.
CONDITION_MESSAGE_MAX = 2000
EVENT_MESSAGE_MAX = 1024


class Verdict(NamedTuple):
    """Status, reason and message of one condition."""

    status: str
    reason: str
    message: str = ""


def with_condition(
    conditions: list[Condition],
    kind: str,
    status: str,
    reason: str,
    message: str,
    *,
    now: str,
    generation: int,
) -> list[Condition]:
    """Return the conditions with one set; the same list if nothing changes."""
    message = shortened(message, CONDITION_MESSAGE_MAX)
    old = condition_of(conditions, kind)
    if old and (old.status, old.reason, old.message, old.observed_generation) == (
        status,
        reason,
        message,
        generation,
    ):
        return conditions
    since = old.last_transition_time if old and old.status == status else now
    new = Condition(
        type=kind,
        status=status,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=generation,
    )
    if old:
        return [
            new if condition.type == kind else condition for condition in conditions
        ]
    return [*conditions, new]


def condition_of(conditions: list[Condition], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_true(conditions: list[Condition], kind: str) -> bool:
    """Return whether a condition exists and is True."""
    found = condition_of(conditions, kind)
    return found is not None and found.status == TRUE


def waiting_for(conditions: list[Condition], *, deleting: bool) -> list[str]:
    """List why an object waits: its conditions that are not True.

    During a teardown, list only its progress.
    """
    if deleting and (progress := condition_of(conditions, "Deleting")):
        return [f"{progress.reason}: {progress.message}"]
    reasons = []
    for condition in conditions:
        if condition.status != TRUE:
            detail = f" ({condition.message})" if condition.message else ""
            reasons.append(f"{condition.type}: {condition.reason}{detail}")
    return reasons


def with_event(
    events: list[EventRecord],
    kind: str,
    reason: str,
    message: str,
    *,
    now: str,
    of_reason_max: int = EVENTS_KEPT,
) -> list[EventRecord]:
    """Add an event; a repeated event raises its count and moves to the end.

    At most `of_reason_max` events with the same reason are kept.
    """
    message = shortened(message, EVENT_MESSAGE_MAX)
    same = next(
        (
            event
            for event in events
            if (event.type, event.reason, event.message) == (kind, reason, message)
        ),
        None,
    )
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


def with_events(
    events: list[EventRecord], newer: list[EventRecord]
) -> list[EventRecord]:
    """Add newer events of another object, which counts their repeats itself."""
    keys = {(event.type, event.reason, event.message) for event in newer}
    others = [
        event
        for event in events
        if (event.type, event.reason, event.message) not in keys
    ]
    return [*others, *newer][-EVENTS_KEPT:]
