"""How many lists of endpoints are sent in a burst of changes: pure, with a clock of its own."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from workflows.endpoint_directory.pace import LISTS_MAX, LISTS_WITHIN, Pace

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=20)
INTERVAL_PATCH, BURST_PATCH = "two-lists-a-second", "six-lists-in-three-seconds"


def sent_in_a_flood(*patches: str, lists: int = 12) -> list[timedelta]:
    """Give when lists are sent, from the first one on, while there is always one to send."""
    pace, now, sent = Pace(lambda patch: patch in patches), START, list[timedelta]()
    while len(sent) < lists:
        if pace.wait(now) <= timedelta():
            pace.sent(now)
            sent.append(now - START)
        now += TICK
    return sent


def test_a_few_changes_are_told_without_a_wait_and_many_six_in_three_seconds() -> None:
    sent = sent_in_a_flood(BURST_PATCH)
    assert sent[:LISTS_MAX] == [TICK * number for number in range(LISTS_MAX)]
    assert {later - earlier for earlier, later in zip(sent, sent[LISTS_MAX:], strict=False)} == {LISTS_WITHIN}


@pytest.mark.parametrize(("patches", "milliseconds"), [((), 1000), ((INTERVAL_PATCH,), 500)])
def test_histories_of_before_have_the_same_time_between_all_lists(patches: tuple[str, ...], milliseconds: int) -> None:
    sent = sent_in_a_flood(*patches)
    assert {later - earlier for earlier, later in pairwise(sent)} == {timedelta(milliseconds=milliseconds)}
