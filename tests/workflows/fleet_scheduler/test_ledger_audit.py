"""The periodic recount of the ledger and its result. No server is needed."""

from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from scheduler import LedgerEntry
from tests.scheduler.builders import cluster, deployment
from tests.workflows.fleet_scheduler.cache.builders import Clock, cache_with, cycle
from tests.workflows.fleet_scheduler.cycle import LOG
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler import ledger_audit
from workflows.fleet_scheduler.ledger_audit import LedgerAudit

FOUND = ["pool h100 of a: 2 nodes are charged, and 1 is used"]


class Recount:
    """A recount with a result or an error. It counts its calls."""

    def __init__(self, result: list[str] | ApplicationError) -> None:
        self.result, self.calls = result, 0

    async def read(self, *_: Any) -> list[str]:
        self.calls += 1
        if isinstance(self.result, ApplicationError):
            raise self.result
        return self.result


@pytest.mark.parametrize(
    ("due", "result", "shown"),
    [
        (True, FOUND, FOUND),
        (True, [], []),
        (
            True,
            ApplicationError("no memory"),
            ["the ledger could not be recounted: no memory"],
        ),
        (False, FOUND, ["before"]),
    ],
    ids=["a difference", "none", "a failure", "not due"],
)
async def test_a_due_recount_runs_once_and_its_differences_are_kept(
    monkeypatch: pytest.MonkeyPatch,
    *,
    due: bool,
    result: list[str] | ApplicationError,
    shown: list[str],
) -> None:
    cache, recount = cache_with(Clock()), Recount(result)
    monkeypatch.setattr(ledger_audit, "read_live", recount.read)
    monkeypatch.setattr(workflow, "logger", LOG)
    cache.state.audit = ["before"]
    audit = LedgerAudit(cache)
    audit.is_due = due
    for _ in range(2):
        await audit.run_if_due()
    assert (cache.state.audit, recount.calls, audit.is_due) == (shown, int(due), False)


@pytest.mark.parametrize(
    ("most", "shown"), [(1, []), (0, ["before"])], ids=["a small ledger", "a large one"]
)
def test_a_query_recounts_a_small_ledger_and_shows_the_last_recount_of_a_large_one(
    monkeypatch: pytest.MonkeyPatch, most: int, shown: list[str]
) -> None:
    monkeypatch.setattr(ledger_audit, "QUERY_ENTRIES_MAX", most)
    cache = cache_with(Clock(), cluster("a", 1))
    cycle(cache, ("place", place(deployment())))
    cache.state.audit = ["before"]
    assert LedgerAudit(cache).differences() == shown


@pytest.mark.parametrize("replicas", [0, 1])
async def test_an_empty_ledger_is_not_recounted(
    monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    cache = cache_with(Clock())
    for number in range(replicas):
        cache.fleet.put_replica(LedgerEntry(str(number), "ml", "m", "a", 0, "m-a", ()))
    audit = LedgerAudit(cache)

    async def stop(*_: Any, **__: Any) -> None:
        raise InterruptedError

    monkeypatch.setattr(workflow, "sleep", stop)
    with pytest.raises(InterruptedError):
        await audit.repeat()
    assert audit.is_due == bool(replicas)
