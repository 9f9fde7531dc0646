"""The listings and accounts that a rebuild reads, step by step, with answers from the test.

These tests need no server.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from temporalio import workflow

from activities.messaging.querying import QueryResults
from api_types.payloads.packing import pack, unpack
from tests.scheduler.builders import cluster, deployment
from tests.workflows.environment.protocol_fleet import ReportedCluster
from tests.workflows.fleet_scheduler.cache.builders import Clock, cache_with, cycle
from tests.workflows.fleet_scheduler.cycle import LOG
from tests.workflows.fleet_scheduler.requests import place
from workflows.fleet_scheduler.inbox import Inbox
from workflows.fleet_scheduler.rebuild import activities
from workflows.fleet_scheduler.rebuild.accounts import Accounts, PackedAccounts
from workflows.fleet_scheduler.rebuild.activities import (
    AccountsPage,
    EntityPage,
    ListEntities,
    ReadAccounts,
)
from workflows.fleet_scheduler.rebuild.adoption import AccountAdoption
from workflows.fleet_scheduler.rebuild.survey import Rebuild
from workflows.fleet_scheduler.rebuild.unresponsive import MissingAccounts


class Fleet:
    """Deployments, some of which the first listing omits and some of which do not answer."""

    def __init__(self, *deployments: str, omitted: str = "", silent: str = "") -> None:
        self.deployments, self.omitted, self.silent = deployments, omitted, silent
        self.listings = 0
        self.read: list[str] = []

    async def execute_activity(
        self, _: Any, wanted: ListEntities | ReadAccounts, **__: Any
    ) -> EntityPage | AccountsPage:
        if isinstance(wanted, ReadAccounts):
            asked = list(unpack(wanted.entities))
            self.read += asked
            answered = {
                each.partition("/")[2]: f"uid-{each}"
                for each in asked
                if each != self.silent
            }
            silent = {each: "" for each in asked if each == self.silent}
            return AccountsPage(
                accounts=PackedAccounts(deployments=answered), unresponsive=silent
            )
        if wanted.kinds != ["ModelDeployment"]:
            return EntityPage()
        self.listings += 1
        listed = [
            each
            for each in self.deployments
            if self.listings > 1 or each != self.omitted
        ]
        return EntityPage(entities=pack(dict.fromkeys(listed, "")))


@pytest.mark.parametrize("silent", ["", "modeldeployment/ml/a"])
def test_a_deployment_omitted_by_one_listing_sees_the_epoch_and_none_is_read_twice(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    """This holds however long the deployment has run.

    Unstarted placements by the lost scheduler become void only from then on.
    """
    fleet = Fleet(
        "modeldeployment/ml/a",
        "modeldeployment/ml/b",
        omitted="modeldeployment/ml/b",
        silent=silent,
    )

    async def wait(*_: Any, **__: Any) -> None:
        assert fleet.listings == 1, "the second listing is of a later time"

    monkeypatch.setattr(
        workflow,
        "info",
        lambda: SimpleNamespace(is_continue_as_new_suggested=lambda: False),
    )
    monkeypatch.setattr(workflow, "execute_activity", fleet.execute_activity)
    monkeypatch.setattr(workflow, "sleep", wait)
    made = cache_with(Clock())
    rebuild = Rebuild(made, AccountAdoption(made, Inbox(made, LOG), LOG))
    rebuild.begin()
    asyncio.run(rebuild.run())
    assert made.state.survey is None
    assert fleet.read == ["modeldeployment/ml/a", "modeldeployment/ml/b"]


def test_a_cluster_named_only_by_a_late_account_is_queried_before_any_eviction_on_it() -> (
    None
):
    placed = cache_with(Clock(), cluster("a", 1))
    cycle(placed, ("place", place(deployment())))
    made = cache_with(Clock())
    missing = MissingAccounts(made.state, AccountAdoption(made, Inbox(made, LOG), LOG))
    made.state.unresponsive["modeldeployment/ml/m"] = []
    (entry,) = placed.fleet.entries()
    late = Accounts(entries={entry.uid: entry}).packed()
    missing._arrived.append(
        (0, AccountsPage(accounts=late, answered=["modeldeployment/ml/m"]))
    )
    missing.adopt()
    assert (made.state.unresponsive, made.fleet.awaited) == (
        {"inferencecluster/a": ["a"]},
        frozenset({"a"}),
    )
    # The cluster reports itself gone, so there is nothing left to query.
    made.clusters.end("a", "uid-a")
    made.state.unresponsive.clear()
    missing._adoption.await_unknown_clusters(made.fleet.entries())
    assert made.state.unresponsive == {}


def test_a_cluster_with_an_account_older_than_its_successors_report_is_queried_again() -> (
    None
):
    made = cache_with(Clock())
    inbox = Inbox(made, LOG)
    missing = MissingAccounts(made.state, AccountAdoption(made, inbox, LOG))
    asked_at, made.messages_read = made.messages_read, made.messages_read + 1
    inbox.report_cluster(ReportedCluster("a", {"p": 1}).report(1, "second"))
    made.state.unresponsive["inferencecluster/a"] = ["a"]
    read = Accounts()
    read.add(
        "inferencecluster/a", ReportedCluster("a", {"p": 1}).report(9, "first").wire()
    )
    missing._arrived.append(
        (
            asked_at,
            AccountsPage(accounts=read.packed(), answered=["inferencecluster/a"]),
        )
    )
    missing.adopt()
    assert (made.clusters["a"].uid, made.state.unresponsive) == (
        "second",
        {"inferencecluster/a": ["a"]},
    )


@pytest.mark.parametrize(
    ("workflow_id", "account", "listed", "cluster"),
    [
        ("modelreplica/ml/a", {"cluster": "eu-1"}, "us-1", "eu-1"),
        ("modelreplica/ml/a", {"cluster": 7}, "us-1", "us-1"),
        ("modelreplica/ml/a", ["no account"], "us-1", "us-1"),
        ("modelreplica/ml/a", None, "", ""),
        ("inferencecluster/eu-1", {"cluster": "us-1"}, "us-1", "eu-1"),
    ],
    ids=[
        "by the account",
        "by visibility",
        "no account at all",
        "not known",
        "by the id",
    ],
)
def test_an_unreadable_account_names_its_cluster(
    workflow_id: str, account: Any, listed: str, cluster: str
) -> None:
    """No replica is placed on that cluster until the account can be read."""
    page, answered = activities._page(
        QueryResults(by_id={workflow_id: account}), {workflow_id: listed}
    )
    assert (page.unresponsive, answered) == ({workflow_id: cluster}, [])
