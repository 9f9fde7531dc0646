"""Reading the live fleet, including the scheduler's state besides its ledger."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from api_types.clock import now_ms
from api_types.payloads.packing import pack
from api_types.resources.kinds import BY_KIND, KindInfo
from client.planning import live_fleet
from client.planning.explanation import explanation
from client.planning.live_fleet import LiveFleet, read_live
from fleet_client.errors import NoAnswer, NotFound
from fleet_client.refs.seen import ListedObject
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
    pack_rows,
    read_policy,
    sort_documents,
    write_policy,
)
from tests.client.fleetfiles import Tree, a_class, a_deployment
from tests.client.planning.test_live_plan import published, stored

STRICT = read_policy({"queueOrder": "StrictOrder"})


class FakePlane:
    """Objects that describe themselves, and a scheduler that returns one replica of its
    ledger per page.
    """

    def __init__(
        self,
        fleet: Fleet,
        *trees: Tree,
        without_state: bool = False,
        changing: bool = False,
        incomplete_reads: int = 0,
    ) -> None:
        self.fleet = fleet
        self.trees = trees
        self.without_state = without_state
        self.changing = changing
        self.incomplete_reads = incomplete_reads
        self.rebuilding_reads = 0

    async def list(self, kind: KindInfo, namespace: str | None) -> list[ListedObject]:
        del namespace
        found = [tree for tree in self.trees if tree["kind"] == kind.kind]
        return [
            ListedObject(
                Target.of(
                    kind, tree["metadata"].get("namespace"), tree["metadata"]["name"]
                ),
                tree,
            )
            for tree in found
        ]

    async def query(self, target: Target, name: str, after: str = "") -> Any:
        del target
        if name == "policy":
            return {"policy": write_policy(self.fleet.options)}
        if name == "describe":
            self.rebuilding_reads -= 1
            return {"status": {"rebuilding": self.rebuilding_reads >= 0}}
        if self.changing:
            self.fleet.version += 1
        left = sorted(
            (entry for entry in self.fleet.entries() if entry.uid > after),
            key=lambda entry: entry.uid,
        )
        if self.incomplete_reads:
            self.incomplete_reads -= 1
            return {
                "version": self.fleet.version,
                "complete": False,
                "entries": pack(pack_rows([])),
                "after": "",
            }
        page = {
            "version": self.fleet.version,
            "entries": pack(pack_rows(left[:1])),
            "after": left[0].uid if len(left) > 1 else "",
        }
        return (
            page
            if after or self.without_state
            else {**page, "state": pack(decision_state(self.fleet))}
        )

    async def rows(self, query: str) -> AsyncIterator[Any]:
        del query
        nothing: tuple[Any, ...] = ()
        for row in nothing:
            yield row


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
