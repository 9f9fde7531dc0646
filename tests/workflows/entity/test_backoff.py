"""The backoff of a workflow: it doubles, and it is bounded for any number of attempts."""

from collections.abc import Callable
from datetime import timedelta

import pytest

from workflows.entity import backoff

SECONDS, MINUTES = timedelta(seconds=1), timedelta(minutes=1)


@pytest.mark.parametrize(
    ("wait", "first", "most"),
    [
        (backoff.transient, [2 * SECONDS, 4 * SECONDS, 8 * SECONDS], 2 * MINUTES),
        (
            backoff.after_retries,
            [8 * SECONDS, 16 * SECONDS, 32 * SECONDS],
            60 * MINUTES,
        ),
        (backoff.permanent, [1 * MINUTES, 2 * MINUTES, 4 * MINUTES], 30 * MINUTES),
        (backoff.repair, [2 * SECONDS, 4 * SECONDS, 8 * SECONDS], 5 * MINUTES),
        (
            backoff.poll_timeout,
            [10 * SECONDS, 20 * SECONDS, 40 * SECONDS],
            10 * MINUTES,
        ),
    ],
)
def test_waits_double_up_to_a_bound(
    wait: Callable[[int], timedelta], first: list[timedelta], most: timedelta
) -> None:
    assert [wait(attempt) for attempt in range(3)] == first
    assert wait(10) == wait(100_000) == most


def test_a_refused_call_is_retried_often_during_an_upgrade_and_rarely_later() -> None:
    waits = [backoff.refused(attempt) for attempt in range(1_000)]
    assert waits[:3] == [2 * SECONDS, 4 * SECONDS, 8 * SECONDS]
    often = [wait for wait in waits if wait <= 2 * MINUTES]
    assert often == waits[: len(often)]
    assert timedelta(hours=2) <= sum(often, timedelta()) <= timedelta(hours=3)
    assert set(waits[len(often) :]) == {timedelta(hours=1)}
