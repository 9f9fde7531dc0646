"""How a deployment adopts replicas that it finds, and asks those again that do not answer."""

from collections.abc import AsyncIterator, Iterable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.messages import Survey, SurveyResult
from workflows.model_deployment import adoption
from workflows.model_deployment.adoption import Adoption

FIRST, LATE, MUTE = "modelreplica/ml/first", "modelreplica/ml/late", "modelreplica/ml/mute"


class Recorded:
    """The calls that a deployment makes, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def silent(*workflow_ids: str) -> dict[str, str]:
    return dict.fromkeys(workflow_ids, "no answer")


def round_of(seconds: int, *asked: str) -> list[tuple[Any, ...]]:
    """Return the calls of a wait after which nobody answers."""
    return [("sleep", seconds), ("query", list(asked)), ("adopt", {})]


@pytest.mark.parametrize(
    ("pages", "again", "calls"),
    [
        ([SurveyResult(answers={FIRST: "a"})], [], [("adopt", {FIRST: "a"})]),
        (
            [SurveyResult(answers={FIRST: "a"}, unresponsive=silent(LATE)), SurveyResult(unresponsive=silent(MUTE))],
            [
                SurveyResult(unresponsive=silent(LATE, MUTE)),
                SurveyResult(answers={LATE: "b"}, unresponsive=silent(MUTE)),
                SurveyResult(answers={MUTE: "c"}),
            ],
            [
                ("adopt", {FIRST: "a"}),
                ("adopt", {}),
                *round_of(2, LATE, MUTE),
                ("sleep", 4),
                ("query", [LATE, MUTE]),
                ("adopt", {LATE: "b"}),
                ("sleep", 8),
                ("query", [MUTE]),
                ("adopt", {MUTE: "c"}),
            ],
        ),
        (
            [SurveyResult(unresponsive=silent(MUTE))],
            [SurveyResult(unresponsive=silent(MUTE))] * 3,
            [
                ("adopt", {}),
                *round_of(2, MUTE),
                *round_of(4, MUTE),
                *round_of(8, MUTE),
                ("record_unknown", ["mute"]),
                (
                    "record_event",
                    "Warning",
                    "ReplicasNotResponding",
                    f"replicas do not answer and are not adopted yet: {MUTE}",
                ),
            ],
        ),
    ],
    ids=["all answer", "some answer later", "one never answers"],
)  # fmt: skip
async def test_replicas_that_do_not_answer_are_asked_three_times_more(
    monkeypatch: pytest.MonkeyPatch,
    pages: list[SurveyResult],
    again: list[SurveyResult],
    calls: list[tuple[Any, ...]],
) -> None:
    made, answers = Recorded(), iter(again)

    async def call_entities(*_: Any, **__: Any) -> SurveyResult:
        return SurveyResult(after="more")

    async def query_pages(survey: Survey, _: str) -> AsyncIterator[SurveyResult]:
        assert (survey.namespace, survey.deployment, survey.query) == ("ml", "qwen", "account")
        for page in pages:
            yield page

    async def query_each(workflow_ids: Iterable[str], query: str, _: str) -> SurveyResult:
        assert query == "account"
        made.query(list(workflow_ids))
        return next(answers)

    async def sleep(duration: timedelta, **_: Any) -> None:
        made.sleep(duration.total_seconds())

    monkeypatch.setattr(adoption, "call_entities", call_entities)
    monkeypatch.setattr(adoption, "query_pages", query_pages)
    monkeypatch.setattr(adoption, "query_each", query_each)
    monkeypatch.setattr(workflow, "sleep", sleep)
    context: Any = SimpleNamespace(
        namespace="ml",
        name="qwen",
        state=SimpleNamespace(adopted=False),
        record_event=made.record_event,
    )
    await Adoption(context, made).run()  # type: ignore[arg-type]
    assert context.state.adopted
    assert [call for call in made.calls if call[0] != "record_ended"] == [
        *calls,
        ("request_resync",),
    ]
