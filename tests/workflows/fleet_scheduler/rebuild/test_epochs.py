"""The epoch that a scheduler without state chooses, page by page, without a server."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from api_types.messages.scheduling import ReportClass
from api_types.payloads.packing import pack
from tests.workflows.fleet_scheduler.cycle import LOG
from workflows.fleet_scheduler.cache.scheduler_cache import SchedulerCache
from workflows.fleet_scheduler.cache.state import SchedulerState
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.rebuild.accounts import Accounts
from workflows.fleet_scheduler.rebuild.activities import (
    AccountsPage,
    EntityPage,
    ListEntities,
    ReadAccounts,
)
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.fleet_scheduler.rebuild.survey import Rebuild

NOW = 1_700_000_000_000


class Entities:
    """Two classes, one of which has seen an epoch.

    `told` has all announcements in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seen: int) -> None:
        self.seen = {"first": 0, "second": seen}
        self.told: list[int] = []
        monkeypatch.setattr(workflow, "execute_activity", self._execute)
        monkeypatch.setattr(
            workflow,
            "info",
            lambda: SimpleNamespace(is_continue_as_new_suggested=lambda: False),
        )
        monkeypatch.setattr(workflow, "sleep", self._sleep)

    async def _sleep(self, *_: Any, **__: Any) -> None:
        return

    async def _execute(
        self, _: Any, wanted: ListEntities | ReadAccounts, **__: Any
    ) -> EntityPage | AccountsPage:
        if isinstance(wanted, ListEntities):
            found = (
                {f"inferenceclass/{name}": "" for name in self.seen}
                if "InferenceClass" in wanted.kinds
                else {}
            )
            return EntityPage(entities=pack(found))
        self.told.append(wanted.epoch)
        read = Accounts()
        for name, seen in self.seen.items():
            self.seen[name] = max(seen, wanted.epoch)
            read.add(
                f"inferenceclass/{name}",
                ReportClass(
                    name=name, generation=1, epoch=self.seen[name], spec={}
                ).wire(),
            )
        return AccountsPage(accounts=read.packed())


def rebuilt(state: SchedulerState) -> SchedulerState:
    cache = SchedulerCache(state, lambda: NOW)
    rebuild = Rebuild(cache, AccountAdoption(cache, Inbox(cache, LOG), LOG))
    rebuild.begin()
    asyncio.run(rebuild.run())
    assert state.survey is None
    assert set(state.classes) == {"first", "second"}
    return state


@pytest.mark.parametrize(
    ("seen", "drawn"),
    [(0, NOW), (NOW, NOW), (NOW + 500, NOW + 501)],
    ids=["none", "the same", "a greater one"],
)
def test_an_epoch_is_the_time_or_exceeds_all_seen_epochs_and_is_announced_to_all(
    monkeypatch: pytest.MonkeyPatch, seen: int, drawn: int
) -> None:
    entities = Entities(monkeypatch, seen)
    state = rebuilt(SchedulerState())
    assert (state.epoch, state.announced, entities.told[-1]) == (drawn, drawn, drawn)
    # No account of a round with too small an epoch is adopted. Each entity receives the
    # final epoch before its account counts.
    assert entities.told.count(drawn) == 1


def test_a_rebuild_after_a_clock_step_back_chooses_a_greater_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Entities(monkeypatch, 0)
    assert rebuilt(SchedulerState(epoch=NOW + 7)).epoch == NOW + 8
