"""How many lists of endpoints are sent in a burst of changes: pure, with a clock of its own."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from temporalio import workflow

from tests.workflows.environment.serverless import NOW, Serverless
from workflows.endpoint_directory import workflow as directory_module
from workflows.endpoint_directory.pace import BURST_PATCH, INTERVAL, LISTS_MAX, Pace
from workflows.endpoint_directory.workflow import EndpointDirectoryWorkflow

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=20)
INTERVAL_PATCH = "two-lists-a-second"


def sent_in_a_flood(*patches: str, lists: int = 12) -> list[timedelta]:
    """Give when lists are sent, from the first one on, while there is always one to send."""
    pace, now, sent = Pace(lambda patch: patch in patches), START, list[timedelta]()
    while len(sent) < lists:
        if pace.wait(now) <= timedelta():
            pace.sent(now)
            sent.append(now - START)
        now += TICK
    return sent


def test_a_few_changes_are_told_without_a_wait_and_many_two_in_a_second() -> None:
    sent = sent_in_a_flood(BURST_PATCH)
    assert sent[:LISTS_MAX] == [TICK * number for number in range(LISTS_MAX)]
    assert {later - earlier for earlier, later in pairwise(sent[LISTS_MAX:])} == {INTERVAL}
    assert sent[LISTS_MAX] == INTERVAL, "the first one after the burst waits no longer than the others"


def test_a_burst_is_allowed_again_after_a_while() -> None:
    pace = Pace(lambda _: True)
    for _ in range(LISTS_MAX):
        pace.sent(START)
    assert pace.wait(START) == INTERVAL
    for number, later in enumerate([LISTS_MAX * INTERVAL] * LISTS_MAX):
        assert pace.wait(START + later) <= timedelta(), number
        pace.sent(START + later)
    assert pace.wait(START + LISTS_MAX * INTERVAL) == INTERVAL


class Namespace:
    """What a directory knows of its namespace: here a list to send, and an endpoint that is withdrawn while it waits."""

    dirty = True

    def __init__(self) -> None:
        self.pending: list[str] = []
        self.done: list[str] = []

    def answers(self) -> list[str]:
        taken, self.pending = self.pending, []
        return taken

    def lists(self) -> dict[str, object]:
        self.done.append("lists")
        return {}


@pytest.mark.parametrize("patched", [True, False], ids=["now", "a history of before"])
async def test_an_endpoint_that_is_withdrawn_while_a_list_waits_is_answered_before_it(
    monkeypatch: pytest.MonkeyPatch, patched: bool
) -> None:
    Serverless(monkeypatch, "endpointdirectory/ml")
    monkeypatch.setattr(workflow, "patched", lambda _: patched)
    directory, known = EndpointDirectoryWorkflow(), Namespace()

    async def sleep(*_: object, **__: object) -> None:
        known.pending.append("answer")

    async def send_all(requests: list[str], *_: object, **__: object) -> list[str]:
        known.done.extend(requests)
        return []

    monkeypatch.setattr(workflow, "sleep", sleep)
    monkeypatch.setattr(directory_module, "send_all", send_all)
    monkeypatch.setattr(directory, "directory", known)
    for _ in range(LISTS_MAX):
        directory.pace.sent(NOW)
    await directory._send_lists()
    assert known.done == (["answer", "lists"] if patched else ["lists"])


@pytest.mark.parametrize(("patches", "milliseconds"), [((), 1000), ((INTERVAL_PATCH,), 500)])
def test_histories_of_before_have_the_same_time_between_all_lists(patches: tuple[str, ...], milliseconds: int) -> None:
    sent = sent_in_a_flood(*patches)
    assert {later - earlier for earlier, later in pairwise(sent)} == {timedelta(milliseconds=milliseconds)}
