"""Ledger entries have the policy of their deployment's latest decision."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from scheduler.decide import apply, decide
from scheduler.fleet.fleet import Fleet
from scheduler.fleet.snapshots import snapshot
from scheduler.fleet.snapshots.ledger_rows import pack_rows, unpack_rows
from scheduler.model.inputs import DeploymentView, LedgerEntry, ScheduleRequest
from scheduler.model.policy import (
    STRICT_ORDER,
    AffinityTerm,
    PlacementPolicy,
    SchedulerOptions,
)
from scheduler.model.wire import from_wire, to_wire
from scheduler.planning.settle import settle
from scheduler.planning.whatif import Changes, with_changes
from tests.scheduler.builders import (
    NOW,
    actions,
    cluster,
    decided,
    deployment,
    fleet,
    places,
    settled,
)

OPTIONS = SchedulerOptions(priority_classes={"high": 100, "top": 1000})


def vip(**policy: Any) -> DeploymentView:
    return deployment(name="vip", policy=PlacementPolicy(**policy))


def urgent(name: str = "urgent") -> DeploymentView:
    return deployment(
        name=name,
        policy=PlacementPolicy(priority_class="high", preemption="LowerPriority"),
    )


def apart_from(**labels: str) -> PlacementPolicy:
    return PlacementPolicy(anti_affinity=(AffinityTerm(labels),))


def entry_of(world: Fleet, name: str = "vip") -> LedgerEntry:
    (entry,) = world.owned("ml", name).values()
    return entry


def placed(
    view: DeploymentView, options: SchedulerOptions = OPTIONS, nodes: int = 1
) -> Fleet:
    """A fleet of one cluster where a deployment has been placed."""
    world = fleet(cluster("a", nodes), options=options)
    settled(world, view, request_id="first")
    return world


PROTECTED: Mapping[str, Mapping[str, Any]] = {
    "its priority": {"priority_class": "top"},
    "minAvailable": {"min_available": 1},
}


@pytest.mark.parametrize("policy", PROTECTED.values(), ids=PROTECTED)
def test_later_protection_of_a_deployment_protects_its_replicas(
    policy: Mapping[str, Any],
) -> None:
    world = placed(vip())
    assert decided(world, urgent()).victims
    settled(world, vip(**policy), request_id="edited")
    assert not decided(world, urgent()).victims


def test_withdrawn_protection_ends() -> None:
    world = placed(vip(priority_class="top", min_available=1))
    assert not decided(world, urgent()).victims
    settled(world, vip(), request_id="edited")
    assert decided(world, urgent()).victims


def test_later_requests_of_a_batch_see_the_policy_of_earlier_ones() -> None:
    world = placed(vip())
    requests = [
        ScheduleRequest("edited", vip(min_available=1)),
        ScheduleRequest("asks", urgent()),
    ]
    together = decide(world, requests, NOW)
    assert together[1].victims == ()
    alone = []
    for request in requests:
        alone += decide(world, [request], NOW)
        apply(world, alone[-1])
    assert alone == together


def test_a_question_does_not_change_the_policy() -> None:
    world = placed(vip())
    requests = [
        ScheduleRequest("asks", vip(min_available=1), dry_run=True),
        ScheduleRequest("urgent", urgent()),
    ]
    assert decide(world, requests, NOW)[1].victims
    settled(world, vip(min_available=1), dry_run=True)
    assert entry_of(world).min_available == 0


def test_anti_affinity_that_is_added_later_keeps_others_away() -> None:
    world = placed(vip(), nodes=2)
    other = deployment(name="other", labels={"app": "noisy"})
    assert places(decided(world, other)) == ["a/0"]
    settled(world, replace(vip(), policy=apart_from(app="noisy")), request_id="edited")
    assert places(decided(world, other)) == []


def test_labels_that_are_added_later_are_found_by_the_terms_of_others() -> None:
    world = placed(vip(), nodes=2)
    other = deployment(name="other", policy=apart_from(app="vip"))
    assert places(decided(world, other)) == ["a/0"]
    settled(world, replace(vip(), labels={"app": "vip"}), request_id="edited")
    assert places(decided(world, other)) == []


def test_a_releasing_replica_gets_the_policy_too() -> None:
    world = placed(vip())
    entry = entry_of(world)
    world.put_replica(entry.as_releasing(NOW))
    settled(world, replace(vip(), policy=apart_from(app="noisy")), request_id="edited")
    assert [known.avoids for known in world.entries()] == [
        (("", (), (("app", "noisy"),)),)
    ] * 2


def test_a_policy_change_alone_keeps_replicas_and_changes_the_fleet_once() -> None:
    world = placed(vip())
    before = world.version
    seen = []
    for number in range(3):
        decision = decided(
            world, vip(priority_class="high"), request_id=f"edited-{number}"
        )
        assert actions(decision) == {"a/0": "Keep"}
        apply(world, decision)
        seen.append(world.version)
    assert seen == [before + 1] * 3
    assert world.audit() == []


def test_a_changed_priority_class_applies_to_running_replicas() -> None:
    world = placed(vip(priority_class="top"))
    assert entry_of(world).priority == 1000
    world.set_options(replace(OPTIONS, priority_classes={"high": 100, "top": 50}))
    assert (entry_of(world).priority, entry_of(world).priority_class) == (50, "top")
    assert decided(world, urgent()).victims
    world.set_options(replace(OPTIONS, priority_classes={"high": 100}))
    assert entry_of(world).priority == 0


def test_a_changed_priority_class_reorders_waiting_deployments() -> None:
    options = replace(OPTIONS, queue_order=STRICT_ORDER)
    world = placed(deployment(name="full"), options)
    settled(world, vip(priority_class="high"))
    world.set_options(replace(options, priority_classes={"high": 7}))
    assert [waiting.priority for waiting in world.queue_reservations.values()] == [7]


def test_a_plan_sees_edited_deployments_in_any_order_of_decisions() -> None:
    world = placed(vip())
    edited = Changes(deployments=(vip(min_available=1),))
    assert places(
        settle(with_changes(world, Changes(), NOW), [vip(), urgent()], NOW).decisions[
            "ml", "urgent"
        ]
    ) == ["a/0"]
    assert (
        places(
            settle(
                with_changes(world, edited, NOW), [*edited.deployments, urgent()], NOW
            ).decisions["ml", "urgent"]
        )
        == []
    )
    assert entry_of(world).min_available == 0


def test_the_policy_is_carried_over_and_recorded() -> None:
    view = replace(vip(priority_class="top", min_available=1), labels={"app": "vip"})
    world = placed(
        replace(
            view,
            policy=replace(
                view.policy, anti_affinity=apart_from(app="noisy").anti_affinity
            ),
        )
    )
    entry = entry_of(world)
    assert (entry.priority, entry.priority_class, entry.min_available) == (
        1000,
        "top",
        1,
    )
    assert entry_of(snapshot.load(snapshot.dump(world))) == entry
    assert from_wire(LedgerEntry, to_wire(entry)) == entry


def test_a_row_without_a_priority_class_keeps_its_priority_until_the_next_decision() -> (
    None
):
    world = placed(vip(priority_class="top"))
    tree = pack_rows(list(world.entries()))
    tree["rest"] = [item[:4] for item in tree["rest"]]
    (old,) = unpack_rows(tree)
    assert (old.priority, old.priority_class) == (1000, "")
    world.put_replica(old)
    world.set_options(replace(OPTIONS, priority_classes={"high": 100, "top": 5}))
    assert entry_of(world).priority == 1000
    settled(world, vip(priority_class="top"), request_id="again")
    assert (entry_of(world).priority, entry_of(world).priority_class) == (5, "top")
