"""Conditions and events as Kubernetes keeps them."""

from api_types.resources.status import Condition
from workflows.entity.conditions import (
    CONDITION_MESSAGE_MAX,
    EVENT_MESSAGE_MAX,
    EVENTS_KEPT,
    FALSE,
    TRUE,
    waiting_for,
    with_condition,
    with_event,
)

EARLY, LATE = "2026-11-21T14:00:00Z", "2026-11-21T15:00:00Z"
UNREADY = with_condition(
    [], "Ready", FALSE, "Creating", "no pods", now=EARLY, generation=1
)


def test_an_unchanged_condition_returns_the_same_list() -> None:
    assert (
        with_condition(
            UNREADY, "Ready", FALSE, "Creating", "no pods", now=LATE, generation=1
        )
        is UNREADY
    )


def test_the_transition_time_changes_only_with_the_status() -> None:
    (other_reason,) = with_condition(
        UNREADY, "Ready", FALSE, "Unavailable", "", now=LATE, generation=2
    )
    assert (other_reason.last_transition_time, other_reason.observed_generation) == (
        EARLY,
        2,
    )
    (ready,) = with_condition(
        UNREADY, "Ready", TRUE, "Available", "", now=LATE, generation=2
    )
    assert ready.last_transition_time == LATE


def test_a_long_message_is_truncated_and_stays_unchanged_when_it_is_set_again() -> None:
    long = "x" * (CONDITION_MESSAGE_MAX + 1)
    cut = with_condition(
        UNREADY, "Ready", FALSE, "Creating", long, now=LATE, generation=1
    )
    assert cut[0].message == "x" * (CONDITION_MESSAGE_MAX - 3) + "…"
    assert (
        with_condition(cut, "Ready", FALSE, "Creating", long, now=LATE, generation=1)
        is cut
    )


def test_a_long_event_is_truncated_in_bytes_and_counted_when_it_repeats() -> None:
    long = "ä" * EVENT_MESSAGE_MAX
    events = with_event(
        with_event([], "Warning", "A", long, now=EARLY), "Warning", "A", long, now=LATE
    )
    assert [
        (len(event.message.encode()), event.message[-2:], event.count)
        for event in events
    ] == [(EVENT_MESSAGE_MAX - 1, "ä…", 2)]


def test_a_repeated_event_is_counted_and_moves_to_the_end() -> None:
    events = with_event([], "Warning", "A", "a", now=EARLY)
    events = with_event(events, "Normal", "B", "b", now=EARLY)
    events = with_event(events, "Warning", "A", "a", now=LATE)
    assert [
        (event.reason, event.count, event.first, event.last) for event in events
    ] == [("B", 1, EARLY, EARLY), ("A", 2, EARLY, LATE)]


def test_only_the_newest_events_are_kept() -> None:
    events = with_event([], "Normal", "First", "", now=EARLY)
    for number in range(EVENTS_KEPT):
        events = with_event(events, "Normal", "Next", str(number), now=LATE)
    assert len(events) == EVENTS_KEPT
    assert {event.reason for event in events} == {"Next"}


def test_an_object_waits_for_false_conditions_and_a_teardown_reports_only_itself() -> (
    None
):
    conditions = [
        *UNREADY,
        Condition(
            type="Accepted",
            status=TRUE,
            reason="Accepted",
            message="",
            last_transition_time=EARLY,
            observed_generation=1,
        ),
        Condition(
            type="Deleting",
            status=FALSE,
            reason="InUse",
            message="used by eu",
            last_transition_time=EARLY,
            observed_generation=1,
        ),
    ]
    assert waiting_for(conditions[:2], deleting=False) == ["Ready: Creating (no pods)"]
    assert waiting_for(conditions, deleting=True) == ["InUse: used by eu"]
    assert waiting_for(UNREADY, deleting=True) == ["Ready: Creating (no pods)"]
