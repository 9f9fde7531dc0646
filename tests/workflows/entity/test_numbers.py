"""Sequence numbers of messages increase, even over workflow task attempts that left no history."""

from datetime import UTC, datetime, timedelta

from workflows.entity.context import WATCH_ATTEMPTS_MAX, EntityContext
from workflows.entity.state import EntityState

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def context_at(now: datetime) -> EntityContext[EntityState]:
    return EntityContext(
        "ModelReplica",
        EntityState(),
        lambda: None,
        "modelreplica/ml/qwen-0",
        lambda: now,
    )


def test_two_messages_at_the_same_time_have_different_numbers() -> None:
    context = context_at(BEGINNING)
    first = context.next_number(0)
    assert context.next_number(first) > first


def test_a_message_of_a_second_task_attempt_has_a_greater_number() -> None:
    known = context_at(BEGINNING).next_number(0)
    lost_at = BEGINNING + timedelta(seconds=1)
    lost = context_at(lost_at).next_number(known)
    repeated_at = lost_at + timedelta(milliseconds=2)
    assert context_at(repeated_at).next_number(known) > context_at(lost_at).next_number(
        lost
    )


def test_a_clock_that_is_set_back_does_not_decrease_numbers() -> None:
    known = context_at(BEGINNING).next_number(0)
    assert context_at(BEGINNING - timedelta(hours=1)).next_number(known) == known + 1


def test_a_watch_has_a_greater_number_than_all_attempts_of_the_one_before() -> None:
    """Even after the clock was set back, when a number grows only by one."""
    context = context_at(BEGINNING)
    first = context.next_watch(0)
    last_attempt = first + WATCH_ATTEMPTS_MAX
    context._clock = lambda: BEGINNING - timedelta(hours=1)
    assert context.next_watch(0) > last_attempt


def test_a_watch_has_a_greater_number_than_the_last_observation() -> None:
    """A watch that a reset started again is numbered by the clock, not by this object."""
    observed = int((BEGINNING + timedelta(hours=1)).timestamp() * 1000)
    assert context_at(BEGINNING).next_watch(observed) == observed + 1
