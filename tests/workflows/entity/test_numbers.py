"""Numbers of messages rise, over attempts at a workflow task that left no trace too."""

from datetime import UTC, datetime, timedelta

from workflows.entity.context import EntityContext
from workflows.entity.state import EntityState

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def context_at(now: datetime) -> EntityContext[EntityState]:
    return EntityContext("ModelReplica", EntityState(), lambda: None, "modelreplica/ml/qwen-0", lambda: now)


def test_two_messages_of_one_moment_have_different_numbers() -> None:
    context = context_at(BEGINNING)
    first = context.next_number(0)
    assert context.next_number(first) > first


def test_a_message_of_the_second_attempt_at_a_task_has_a_greater_number_than_those_of_the_first() -> None:
    known = context_at(BEGINNING).next_number(0)
    lost_at = BEGINNING + timedelta(seconds=1)
    lost = context_at(lost_at).next_number(known)
    repeated_at = lost_at + timedelta(milliseconds=2)
    assert context_at(repeated_at).next_number(known) > context_at(lost_at).next_number(lost)


def test_a_clock_that_is_set_back_makes_no_smaller_number() -> None:
    known = context_at(BEGINNING).next_number(0)
    assert context_at(BEGINNING - timedelta(hours=1)).next_number(known) == known + 1
