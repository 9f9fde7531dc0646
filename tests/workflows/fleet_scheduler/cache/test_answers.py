"""The answers that the scheduler keeps are bounded, however many requests are decided
again and never answered.
"""

from typing import Any

import pytest

from workflows.fleet_scheduler.cache import answers
from workflows.fleet_scheduler.cache.answers import ANSWERS_KEPT, AnswerCache


def kept(cache: AnswerCache) -> int:
    return len(cache.by_request) + len(cache._superseded)


def test_superseded_requests_without_a_decision_are_forgotten() -> None:
    cache = AnswerCache({})
    for number in range(3 * ANSWERS_KEPT):
        assert cache.record(f"r{number}", {"n": number})
        cache.supersede(f"r{number}")
    assert kept(cache) == ANSWERS_KEPT
    # The newest answers are still known, so the same answer is not sent again.
    assert not cache.record(f"r{3 * ANSWERS_KEPT - 1}", {"n": 3 * ANSWERS_KEPT - 1})
    assert cache.record("r0", {"n": 0})


def test_an_answer_that_differs_only_in_its_number_is_not_sent() -> None:
    cache = AnswerCache({})
    for sequence, shortfall, is_new in ((1, 3, True), (2, 3, False), (3, 2, True)):
        assert (
            cache.record("r", {"sequence": sequence, "shortfall": shortfall}) is is_new
        )
        cache.supersede("r")


def test_large_answers_are_kept_up_to_a_size_and_the_last_one_always(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(answers, "ANSWERS_BYTES_MAX", 1_000)
    earlier: dict[str, dict[str, Any]] = {"before": {"text": "x" * 600}}
    cache = AnswerCache(earlier)
    cache.record("one", {"text": "x" * 600})
    assert list(cache.by_request) == ["one"]
    cache.record("huge", {"text": "x" * 5_000})
    assert list(cache.by_request) == ["huge"]
    # An answer that is recorded again is counted once.
    for _ in range(5):
        cache.record("huge", {"text": "x" * 300})
    cache.record("two", {"text": "x" * 300})
    assert list(cache.by_request) == ["huge", "two"]
