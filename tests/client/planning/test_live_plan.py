"""Plans and explanations over a live fleet, which is built from manifests."""

from dataclasses import replace
from typing import Any

import pytest

from api_types.clock import now_ms
from api_types.resources.kinds import BY_KIND
from client.commands.inspect.explain import explanation_lines
from client.output.plan_text import suggestion_lines
from client.planning.live_plan import plan_live
from client.planning.proposed_changes import ProposedChanges, owner_of
from fleet_client.errors import NotFound, WriteConflict
from fleet_client.placement.explanation import explanation
from fleet_client.placement.live_fleet import LiveFleet
from fleet_client.refs.targets import Target
from scheduler.fleet.snapshots import snapshot
from scheduler.model.policy import Quota, SchedulerOptions
from scheduler.planning.offline import offline_fleet, sort_documents
from tests.client.fleetfiles import Tree, a_class, a_cluster, a_deployment, a_replica

READY = [{"type": "Ready", "status": "True"}]
CHAT = ("ml", "chat")


def published(name: str, *pools: tuple[str, int]) -> Tree:
    """A Ready cluster as its owner describes it, with an address and published pools."""
    device = a_class()["spec"]["devices"][0]
    status = {
        "conditions": READY,
        "gateway": {"address": "10.0.0.1"},
        "gpuPools": [
            {"name": pool, "nodes": nodes, "devices": [device]} for pool, nodes in pools
        ],
    }
    return a_cluster(name, pools=tuple(pool for pool, _ in pools), status=status)


def stored(tree: Tree) -> Tree:
    return {
        **tree,
        "metadata": {
            **tree["metadata"],
            "uid": f"uid-{tree['metadata']['name']}",
            "generation": 1,
        },
    }


def a_live(*trees: Tree) -> LiveFleet:
    documents = sort_documents(trees)
    return LiveFleet(
        offline_fleet(documents),
        {name: dict(tree) for name, tree in documents.classes.items()},
        {name: dict(tree) for name, tree in documents.clusters.items()},
        {owner_of(dict(tree)): dict(tree) for tree in documents.deployments},
        {name: dict(tree) for name, tree in documents.caches.items()},
    )


def two_sites(*more: Tree) -> LiveFleet:
    """Two clusters of two nodes. Each has one of two replicas."""
    chat = stored(a_deployment(replicas=2))
    return a_live(
        a_class(),
        published("eu", ("h200", 2)),
        published("us", ("h200", 2)),
        chat,
        a_replica("chat-e", "eu"),
        a_replica("chat-u", "us"),
        *more,
    )


def moves(tree: Any) -> tuple[list[tuple[str, str]], list[tuple[str, str]], int]:
    (decision,) = tree["decisions"]
    placed = [(each["action"], each["cluster"]) for each in decision["placements"]]
    return (
        placed,
        [(each["replica"], each["reason"]) for each in decision["evictions"]],
        decision["shortfall"],
    )


KEPT = [("Keep", "eu"), ("Keep", "us")]
PROPOSED = [
    (
        "a drain moves replicas",
        ProposedChanges(drained=("eu",)),
        [("Keep", "us"), ("Create", "us")],
        [("chat-e", "Drained")],
        0,
    ),
    (
        "a scale adds",
        ProposedChanges(scales={CHAT: 3}),
        [("Keep", "eu"), ("Create", "eu"), ("Keep", "us")],
        [],
        0,
    ),
    (
        "a scale to nothing evicts",
        ProposedChanges(scales={CHAT: 0}),
        [],
        [("chat-e", "ScaledDown"), ("chat-u", "ScaledDown")],
        0,
    ),
    (
        "a scale beyond the fleet falls short",
        ProposedChanges(scales={CHAT: 5}),
        None,
        [],
        1,
    ),
    (
        "a changed file counts as applied",
        ProposedChanges(trees=[a_deployment(replicas=3)]),
        [("Keep", "eu"), ("Create", "eu"), ("Keep", "us")],
        [],
        0,
    ),
    (
        "an unchanged file changes nothing",
        ProposedChanges(trees=[a_deployment(replicas=2)]),
        KEPT,
        [],
        0,
    ),
]


@pytest.mark.parametrize(
    ("proposed", "placed", "evicted", "short"),
    [row[1:] for row in PROPOSED],
    ids=[row[0] for row in PROPOSED],
)
def test_a_plan_lists_the_changes(
    proposed: ProposedChanges,
    placed: list[tuple[str, str]] | None,
    evicted: list[tuple[str, str]],
    short: int,
) -> None:
    found = moves(plan_live(two_sites(), proposed, None, now_ms()))
    assert found == (found[0] if placed is None else placed, evicted, short)


@pytest.mark.parametrize(
    ("applied", "written", "planned"),
    [(2, 2, 3), (2, 1, 1), (None, 2, 2)],
    ids=["the applied count again", "another count", "unknown"],
)
def test_applying_the_same_count_again_keeps_a_scale_since_then(
    applied: int | None, written: int, planned: int
) -> None:
    """Two replicas were applied, and an autoscaler has set three since."""
    live = two_sites()
    live.deployments[CHAT]["spec"]["replicas"] = 3
    live = replace(live, applied={} if applied is None else {CHAT: applied})
    tree = plan_live(
        live, ProposedChanges(trees=[a_deployment(replicas=written)]), None, now_ms()
    )
    assert tree["decisions"][0]["desired"] == planned


def test_a_plan_uses_the_observed_state_of_the_fleet() -> None:
    eu, us = published("eu", ("h200", 2)), published("us", ("h200", 2))
    seen = {
        "observedAt": now_ms(),
        "pools": [{"name": "h200", "nodesTotal": 2, "nodesSchedulable": 1}],
    }
    eu["status"]["capacity"] = seen
    live = a_live(a_class(), eu, us, stored(a_deployment(replicas=4)))
    proposed = ProposedChanges(trees=[a_deployment(replicas=4)])
    assert moves(plan_live(live, proposed, None, now_ms())) == (
        [("Create", "eu"), ("Create", "us"), ("Create", "us")],
        [],
        1,
    )
    edited = {
        **a_cluster("eu", pools=("h200",)),
        "metadata": {"name": "eu", "labels": {"tier": "gold"}},
    }
    assert (
        moves(
            plan_live(
                live,
                ProposedChanges(trees=[edited, a_deployment(replicas=4)]),
                None,
                now_ms(),
            )
        )[2]
        == 1
    )


def test_planning_changes_nothing() -> None:
    live = two_sites()
    before = snapshot.dump(live.fleet)
    plan_live(live, ProposedChanges(drained=("eu",), scales={CHAT: 4}), None, now_ms())
    assert snapshot.dump(live.fleet) == before


def test_replicas_of_a_removed_pool_move_to_another() -> None:
    chat = stored(a_deployment(replicas=1))
    live = a_live(
        a_class(),
        published("eu", ("h200", 1), ("spare", 1)),
        chat,
        a_replica("chat-e", "eu"),
    )
    tree = plan_live(live, ProposedChanges(pools=(("eu", "h200"),)), None, now_ms())
    assert tree["decisions"][0]["placements"][0]["engines"] == [
        {"name": "main", "pool": "spare", "nodes": 1}
    ]
    assert [
        (pool["pool"], pool["nodesBefore"], pool["nodesAfter"])
        for pool in tree["pools"]
    ] == [("h200", 1, 0), ("spare", 0, 1)]


def test_a_new_cluster_in_a_file_takes_replicas() -> None:
    chat = stored(a_deployment(replicas=2))
    live = a_live(
        a_class(), published("eu", ("h200", 1)), chat, a_replica("chat-e", "eu")
    )
    assert moves(
        plan_live(live, ProposedChanges(trees=[a_cluster("new")]), None, now_ms())
    )[0] == [("Keep", "eu"), ("Create", "new")]


def test_an_existing_cluster_in_a_file_keeps_its_observed_state() -> None:
    broken = published("eu", ("h200", 1))
    broken["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    live = a_live(a_class(), broken, stored(a_deployment(replicas=1)))
    tree = plan_live(
        live,
        ProposedChanges(trees=[a_cluster("eu", nodes=9), a_deployment(replicas=1)]),
        None,
        now_ms(),
    )
    assert tree["decisions"][0]["clusters"]["eu"]["reason"] == "NotReady"


def test_another_policy_is_tried() -> None:
    policy = SchedulerOptions(quotas=(Quota("ml", max_nodes=2),))
    assert moves(
        plan_live(two_sites(), ProposedChanges(scales={CHAT: 3}), policy, now_ms())
    ) == (KEPT, [], 1)


def test_everything_that_does_not_exist_is_named_at_once() -> None:
    proposed = ProposedChanges(
        drained=("oslo",), pools=(("eu", "b200"),), scales={("ml", "nope"): 1}
    )
    with pytest.raises(NotFound) as caught:
        plan_live(two_sites(), proposed, None, now_ms())
    assert caught.value.details == (
        "InferenceCluster oslo",
        "node pool b200 of InferenceCluster eu, which has the pools h200",
        "ModelDeployment ml/nope",
    )
    assert "modelplane get ic/NAME -o yaml" in caught.value.next_step


def test_a_pool_of_an_unknown_cluster_is_reported_as_the_cluster_once() -> None:
    with pytest.raises(NotFound) as caught:
        plan_live(
            two_sites(),
            ProposedChanges(drained=("oslo",), pools=(("oslo", "h200"),)),
            None,
            now_ms(),
        )
    assert caught.value.details == ("InferenceCluster oslo",)


MD = Target.of(BY_KIND["ModelDeployment"], *CHAT)


def explained(live: LiveFleet) -> Any:
    return explanation(live, MD, now_ms())


def test_a_placed_replica_is_explained() -> None:
    first = explained(two_sites())["replicas"][0]
    assert (first["replica"], first["cluster"], first["action"], first["state"]) == (
        "chat-e",
        "eu",
        "Keep",
        "Bound",
    )
    assert first["why"] == (
        "already placed here; placed replicas are not moved; engine main: pool h200 "
        "(h200) allocates gpu 1 x gpu.nvidia.com; 1 of 2 replicas of this deployment "
        "are here (profile default)"
    )


def test_a_missing_replica_is_explained_per_cluster_and_pool() -> None:
    live = a_live(
        a_class(),
        published("eu", ("h200", 1)),
        stored(a_deployment(replicas=2)),
        a_replica("chat-e", "eu"),
    )
    tree = explained(live)
    assert (tree["shortfall"], tree["clusters"]["eu"]["pools"]["h200"]["reason"]) == (
        1,
        "InsufficientNodes",
    )
    lines = explanation_lines(tree, wide=False)
    assert (
        "0/1 clusters are available: 1 had too few free nodes for engine main"
        in "\n".join(lines)
    )


def test_changes_with_which_a_replica_would_fit_are_listed_with_their_price() -> None:
    live = a_live(
        a_class(),
        published("eu", ("h200", 0)),
        published("us", ("h200", 0)),
        stored(a_deployment(replicas=1)),
    )
    lines = [line.strip() for line in explanation_lines(explained(live), wide=False)]
    at = lines.index("One more replica would fit with:")
    assert lines[at + 1 : at + 3] == [
        "one more node in eu/h200 (cluster eu)",
        "one more node in us/h200 (cluster us)",
    ]
    suggestion = {
        "text": "2 more nodes in eu/h200",
        "cluster": "eu",
        "nodes": {"h200": 2},
        "costMilli": 25_000,
    }
    assert (
        suggestion_lines([suggestion, suggestion])[1].strip()
        == "2 more nodes in eu/h200 (cluster eu, 25.00 per hour)"
    )
    assert suggestion_lines([suggestion]) == []


def test_an_unknown_priority_class_is_a_warning_in_explanations() -> None:
    misspelt = a_deployment(
        replicas=1, spec={"scheduling": {"priorityClassName": "gold"}}
    )
    lines = explanation_lines(
        explained(a_live(a_class(), published("eu", ("h200", 1)), stored(misspelt))),
        wide=False,
    )
    assert (
        lines[1]
        .strip()
        .startswith(
            "warning: spec.scheduling.priorityClassName: the fleet's policy has "
            "no priority class gold"
        )
    )


def test_clusters_come_in_pages_that_say_where_the_next_one_begins() -> None:
    tree = explained(
        a_live(
            a_class(), published("eu", ("h200", 0)), stored(a_deployment(replicas=1))
        )
    )
    assert tree["clustersAfter"] == ""
    assert "  more clusters: --after eu" in explanation_lines(
        {**tree, "clustersAfter": "eu"}, wide=False
    )
    again = explanation(
        a_live(
            a_class(), published("eu", ("h200", 0)), stored(a_deployment(replicas=1))
        ),
        MD,
        now_ms(),
        after="eu",
    )
    assert again["clusters"] == {}


def test_a_replica_that_is_being_deleted_is_shown() -> None:
    leaving = a_replica(
        "chat-x", "eu", index=1, deletionTimestamp="2026-03-01T12:00:00Z"
    )
    assert [
        (row["replica"], row["state"], row["why"])
        for row in explained(two_sites(leaving))["replicas"]
    ][-1] == (
        "chat-x",
        "Releasing",
        "is being deleted; holds its nodes until its objects are gone",
    )


def test_a_deployment_that_is_being_deleted_is_not_explained() -> None:
    with pytest.raises(WriteConflict, match="is not scheduled"):
        explained(a_live(a_class()))
