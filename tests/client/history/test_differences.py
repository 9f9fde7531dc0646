"""The differences between a recorded decision and its repetition."""

from dataclasses import replace

from client.history.differences import AnswerDifference, differences
from scheduler import Decision
from workflows.fleet_scheduler.recorded_decisions import DecisionOutcome

RECORDED = Decision("1", "ml", "chat", 1, message="Scheduled 1 replicas", now=1_000)


def differences_of(repeated: Decision) -> list[AnswerDifference]:
    return differences(DecisionOutcome(RECORDED), DecisionOutcome(repeated))


def test_a_repetition_may_have_another_time_and_another_version() -> None:
    assert differences_of(replace(RECORDED, now=9_500, scheduler_version="2")) == []


def test_a_repetition_with_another_answer_differs() -> None:
    other = replace(RECORDED, now=9_500, message="no cluster fits")
    assert differences_of(other) == [
        AnswerDifference("message", RECORDED.message, "no cluster fits")
    ]
