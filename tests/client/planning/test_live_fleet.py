"""Reading the live fleet, including the scheduler's state besides its ledger."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from fleet_client.errors import NoAnswer, NotFound
from fleet_client.placement import live_fleet
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import LiveFleet, read_live
from fleet_client.refs.targets import Target
from fleet_client.temporal.control_plane import ControlPlane
from scheduler import (
    Fleet,
    ScheduleRequest,
    apply,
    decide,
    decision_state,
    deployment_view,
    offline_fleet,
    read_policy,
    sort_documents,
)
from tests.client.fleetfiles import Tree, a_class, a_deployment
from tests.client.planning.fake_plane import FakePlane
from tests.client.planning.test_live_plan import published, stored

STRICT = read_policy({"queueOrder": "StrictOrder"})


def waiting_fleet() -> tuple[Fleet, list[Tree]]:
    """Two of three nodes are used, one deployment waits for two nodes, and a later one
    would fit.
    """
    big = stored(a_deployment("big", 1))
    big["spec"]["template"]["spec"]["engines"][0]["copies"] = 2
    deployments = [
        stored(a_deployment("first", 2)),
        big,
        stored(a_deployment("small", 1)),
    ]
    trees = [a_class(), published("eu", ("h200", 3)), *deployments]
    fleet = offline_fleet(sort_documents(trees), STRICT)
    for tree in deployments:
        view = deployment_view(tree)
        apply(
            fleet, decide(fleet, [ScheduleRequest(view.name, view)], now_ms())[0], view
        )
    return fleet, trees


def read(plane: FakePlane) -> LiveFleet:
    return asyncio.run(read_live(cast("ControlPlane", plane)))


def test_it_is_the_fleet_that_the_scheduler_decides_about() -> None:
    fleet, trees = waiting_fleet()
    live = read(FakePlane(fleet, *trees))
    assert {entry.uid for entry in live.fleet.entries()} == {
        entry.uid for entry in fleet.entries()
    }
    assert decision_state(live.fleet) == decision_state(fleet)
    assert live.fleet.options == fleet.options
    assert live.fleet.class_names == frozenset(live.classes)


def test_an_explanation_names_the_deployment_that_waits_ahead() -> None:
    fleet, trees = waiting_fleet()
    explained = explanation(
        read(FakePlane(fleet, *trees)),
        Target.of(BY_KIND["ModelDeployment"], "ml", "small"),
        now_ms(),
    )
    assert (explained["shortfall"], explained["clusters"]["eu"]["reason"]) == (
        1,
        "Policy",
    )
    assert "StrictOrder: ml/big waits ahead" in explained["message"]


def test_a_scheduler_of_an_older_release_returns_only_its_ledger() -> None:
    fleet, trees = waiting_fleet()
    live = read(FakePlane(fleet, *trees, without_state=True))
    assert (len(list(live.fleet.entries())), live.fleet.queue_reservations) == (2, {})


def test_a_ledger_that_the_scheduler_itself_still_reads_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_fleet, "_LEDGER_PAUSE_SECONDS", 0.01)
    fleet, trees = waiting_fleet()
    live = read(FakePlane(fleet, *trees, incomplete_reads=2))
    assert {entry.uid for entry in live.fleet.entries()} == {
        entry.uid for entry in fleet.entries()
    }


def test_a_ledger_that_changes_during_every_read_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_fleet, "_LEDGER_PAUSE_SECONDS", 0.01)
    fleet, trees = waiting_fleet()
    with pytest.raises(NoAnswer, match="changed during every read"):
        read(FakePlane(fleet, *trees, changing=True))


class WithoutScheduler(FakePlane):
    """A plane whose scheduler has ended, with these rows of visibility.

    After its start it reports once that it is rebuilding.
    """

    def __init__(self, fleet: Fleet, *trees: Tree, rows: Sequence[Any]) -> None:
        super().__init__(fleet, *trees)
        self.found = rows
        self.runs = False

    async def query(self, target: Target, name: str, after: str = "") -> Any:
        if not self.runs:
            raise NotFound(f"{target.title} does not exist", next_step="none")
        if self.rebuilding_reads > 0:
            assert name == "describe", "a ledger that is being rebuilt is not read"
        return await super().query(target, name, after)

    async def start_scheduler(self) -> None:
        self.runs = True
        self.rebuilding_reads = 1

    async def rows(self, query: str) -> AsyncIterator[Any]:
        assert "ModelReplica" in query
        for row in self.found if not self.runs else ():
            yield row


def test_a_scheduler_that_has_ended_is_started_and_its_rebuilt_ledger_and_policy_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_fleet, "_LEDGER_PAUSE_SECONDS", 0.01)
    fleet, trees = waiting_fleet()
    live = read(WithoutScheduler(fleet, *trees, rows=["a replica"]))
    assert {entry.uid for entry in live.fleet.entries()} == {
        entry.uid for entry in fleet.entries()
    }
    assert live.fleet.options == fleet.options


def test_a_ledger_that_is_always_rebuilding_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(live_fleet, "_LEDGER_PAUSE_SECONDS", 0.01)
    fleet, trees = waiting_fleet()
    plane = FakePlane(fleet, *trees)
    plane.rebuilding_reads = 1000
    with pytest.raises(NoAnswer, match="is being rebuilt"):
        read(plane)


def test_a_fleet_without_replicas_needs_no_scheduler_yet() -> None:
    plane = WithoutScheduler(Fleet(STRICT), rows=[])
    assert (list(read(plane).fleet.entries()), plane.runs) == ([], False)
