"""The rate of endpoint lists during a burst of changes.

These tests are pure and have their own clock.
"""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from temporalio import workflow

from tests.workflows.environment.serverless import NOW, Serverless
from workflows.endpoint_directory import workflow as directory_module
from workflows.endpoint_directory.pace import INTERVAL, LISTS_MAX, ListPace
from workflows.endpoint_directory.workflow import EndpointDirectoryWorkflow

START = datetime(2026, 1, 1, tzinfo=UTC)
TICK = timedelta(milliseconds=20)


def sent_in_a_flood(lists: int = 12) -> list[timedelta]:
    """Return the times, since the first list, at which lists are sent while there is
    always one to send.
    """
    pace, now, sent = ListPace(), START, list[timedelta]()
    while len(sent) < lists:
        if pace.wait(now) <= timedelta():
            pace.sent(now)
            sent.append(now - START)
        now += TICK
    return sent


def test_a_few_lists_are_sent_at_once_and_many_at_two_per_second() -> None:
    sent = sent_in_a_flood()
    assert sent[:LISTS_MAX] == [TICK * number for number in range(LISTS_MAX)]
    assert {later - earlier for earlier, later in pairwise(sent[LISTS_MAX:])} == {
        INTERVAL
    }
    assert sent[LISTS_MAX] == INTERVAL, (
        "the first one after the burst waits no longer than the others"
    )


def test_a_burst_is_allowed_again_after_a_pause() -> None:
    pace = ListPace()
    for _ in range(LISTS_MAX):
        pace.sent(START)
    assert pace.wait(START) == INTERVAL
    for number, later in enumerate([LISTS_MAX * INTERVAL] * LISTS_MAX):
        assert pace.wait(START + later) <= timedelta(), number
        pace.sent(START + later)
    assert pace.wait(START + LISTS_MAX * INTERVAL) == INTERVAL


class Namespace:
    """The directory's state of a namespace.

    A list to send, and an endpoint that is withdrawn meanwhile.
    """

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


async def test_a_withdrawal_is_answered_before_a_waiting_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "endpointdirectory/ml")
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
    assert known.done == ["answer", "lists"]
