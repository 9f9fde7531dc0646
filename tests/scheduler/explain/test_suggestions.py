"""Suggestions that make one more replica fit, and the reasons for placed replicas."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from api_types import labels
from scheduler.decide import ExplainedDecision, apply, decide, decide_and_explain
from scheduler.explain.suggestions import Suggestion
from scheduler.fleet.fleet import Fleet
from scheduler.hardware.node_fitting import Trial
from scheduler.model.inputs import (
    CacheView,
    ClusterView,
    DeploymentView,
    EngineView,
    PoolObservation,
    QueueView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    AffinityTerm,
    PlacementPolicy,
    Quota,
    SchedulerOptions,
    SpreadConstraint,
)
from scheduler.placement.trials import Trials
from scheduler.planning.trees import PAGE_CHARACTERS, decision_tree
from tests.random_cases import SEED, cases
from tests.scheduler.builders import (
    DRIVER,
    NOW,
    alone,
    ask,
    at_least,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gang,
    gpu,
    message,
    pool,
    put_replicas,
    relabelled,
    tolerate,
)
from tests.scheduler.laws.fleets import random_world


def explained(world: Fleet, view: DeploymentView) -> ExplainedDecision:
    return decide_and_explain(world, [ScheduleRequest("1", view)], NOW)[0]


def suggested(world: Fleet, view: DeploymentView) -> list[str]:
    return [found.text for found in explained(world, view).suggestions]


US = {"region": "us"}
DEDICATED = ["dedicated=ml:NoSchedule"]
MODES = f'device.driver == "{DRIVER}" && {at_least("141Gi")}'
H100 = replace(gpu("80Gi"), attributes=(("productName", "string", "H100"),))
SUGGESTED: list[tuple[str, list[ClusterView], DeploymentView, list[str]]] = [
    ("a node", [cluster("a", 0)], deployment(), ["one more node in a/p"]),
    (
        "no node of a pool that its cloud does not provide",
        [cluster("a", pool("p", 0, shortage="no machines"))],
        deployment(),
        [],
    ),
    (
        "a node of another pool or cluster if a cloud has none",
        [
            cluster("a", pool("p", 0, shortage="no machines"), pool("q", 0)),
            cluster("b", pool("p", 1, shortage="no machines")),
            cluster("c", 0),
        ],
        deployment(gang(2)),
        ["3 more nodes in a/q", "3 more nodes in c/p"],
    ),
    (
        "nodes for all engines together",
        [cluster("a", 3)],
        deployment(engine("x", copies=2), engine("y", copies=3)),
        ["2 more nodes in a/p"],
    ),
    (
        "the fewest nodes",
        [cluster("a", 1), cluster("b", 2)],
        deployment(gang(3)),
        ["2 more nodes in b/p", "3 more nodes in a/p"],
    ),
    (
        "the cheapest nodes, unknown prices last",
        [
            cluster("a", pool("p", 0)),
            cluster("b", pool("p", 0, price_milli=9_000)),
            cluster("c", pool("p", 0, price_milli=2_000)),
        ],
        deployment(),
        ["one more node in c/p", "one more node in b/p", "one more node in a/p"],
    ),
    (
        "a toleration",
        [cluster("a", 1, taints=DEDICATED), cluster("b", 0)],
        deployment(),
        ["a toleration for dedicated=ml:NoSchedule", "one more node in b/p"],
    ),
    (
        "both taints",
        [cluster("a", 1, taints=[*DEDICATED, "x:NoExecute"])],
        deployment(tolerations=(tolerate("y"),)),
        ["a toleration for dedicated=ml:NoSchedule and x:NoExecute"],
    ),
    (
        "only the taint that is not tolerated",
        [cluster("a", 1, taints=[*DEDICATED, "x:NoExecute"])],
        deployment(tolerations=(tolerate("x"),)),
        ["a toleration for dedicated=ml:NoSchedule"],
    ),
    (
        "no toleration where there are too few nodes",
        [cluster("a", 0, taints=DEDICATED)],
        deployment(),
        [],
    ),
    (
        "no toleration of a drain",
        [cluster("a", 1, taints=[f"{labels.MAINTENANCE}:NoExecute"])],
        deployment(),
        [],
    ),
    (
        "no toleration of a cluster that is not ready",
        [cluster("a", 1, taints=DEDICATED, ready=False)],
        deployment(),
        [],
    ),
    (
        "a mistyped value",
        [cluster("a", 1, labels={"region": "us-east"})],
        deployment(match_labels={"region": "us-eats"}),
        [
            "clusterSelector region=us-east instead of region=us-eats",
            "label region=us-eats on cluster a",
        ],
    ),
    (
        "a label",
        [cluster("a", 1)],
        deployment(match_labels=US),
        ["label region=us on cluster a"],
    ),
    (
        "no second label",
        [cluster("a", 1)],
        deployment(match_labels={**US, "tier": "gold"}),
        [],
    ),
    (
        "a label that others have comes after nodes",
        [cluster("a", 1), cluster("b", 0, labels=US)],
        deployment(match_labels=US),
        ["one more node in b/p", "label region=us on cluster a"],
    ),
    (
        "less memory",
        [
            cluster("a", pool("p", 1, gpu("80Gi"))),
            cluster("b", pool("p", 1, gpu("24Gi"))),
        ],
        deployment(),
        [
            "memory lowered to 80Gi in request gpu",
            "memory lowered to 24Gi in request gpu",
        ],
    ),
    (
        "less memory beside another condition",
        [cluster("a", pool("p", 1, gpu("80Gi")))],
        deployment(engine("main", alone(ask(MODES)))),
        ["memory lowered to 80Gi in request gpu"],
    ),
    (
        "a mistyped attribute",
        [cluster("a", pool("p", 1, H100))],
        deployment(
            engine(
                "main", alone(ask(f'device.attributes["{DRIVER}"].product == "H100"'))
            )
        ),
        ["productName instead of product in request gpu"],
    ),
    (
        "a mistyped attribute in brackets",
        [cluster("a", pool("p", 1, H100))],
        deployment(
            engine(
                "main",
                alone(ask(f'device.attributes["{DRIVER}"]["product"] == "H100"')),
            )
        ),
        ["productName instead of product in request gpu"],
    ),
    (
        "no attribute with another value",
        [cluster("a", pool("p", 1, H100))],
        deployment(
            engine(
                "main", alone(ask(f'device.attributes["{DRIVER}"].product == "H200"'))
            )
        ),
        [],
    ),
    (
        "not another kind of device",
        [cluster("a", pool("p", 1, gpu("80Gi")))],
        deployment(
            engine("main", alone(ask('device.driver == "other"', at_least("141Gi"))))
        ),
        [],
    ),
    (
        "no weaker request where a pool fits",
        [cluster("a", pool("p", 1, gpu("80Gi"))), cluster("b", 0)],
        deployment(),
        ["one more node in b/p"],
    ),
    (
        "nodes for the rest of a gang",
        [cluster("a", 2)],
        deployment(gang(1), want=3, policy=PlacementPolicy(gang_replicas=3)),
        ["4 more nodes in a/p"],
    ),
    (
        "no toleration for one replica of a gang",
        [cluster("a", 9, taints=DEDICATED)],
        deployment(want=3, policy=PlacementPolicy(gang_replicas=3)),
        [],
    ),
    (
        "engines on the pools that lack the fewest nodes",
        [cluster("a", pool("p", 3), pool("q", 3))],
        deployment(*(engine(name, copies=2) for name in "xyz")),
        ["one more node in a/p"],
    ),
    (
        "observed nodes",
        [
            cluster(
                "a",
                pool("p", 4, observed=PoolObservation(schedulable=0, observed_at=NOW)),
            )
        ],
        deployment(),
        ["one more node in a/p"],
    ),
    (
        "no nodes where a queue admits none",
        [
            cluster(
                "a",
                0,
                queues=(QueueView("q", ("modelplane-ml",), (), 0),),
                observed_at=NOW,
            )
        ],
        deployment(),
        [],
    ),
]


@pytest.mark.parametrize(
    ("story", "clusters", "view", "texts"), SUGGESTED, ids=[row[0] for row in SUGGESTED]
)
def test_the_cheapest_changes_are_suggested_first(
    story: str, clusters: list[ClusterView], view: DeploymentView, texts: list[str]
) -> None:
    del story
    world = fleet(*clusters)
    assert suggested(world, view) == texts
    told = message(decided(world, view))
    who = "The gang" if view.policy.gang_replicas > 1 else "One more replica"
    # Prices are compared for an explanation only.
    if not any(known.price_milli >= 0 for each in clusters for known in each.pools):
        assert told.partition(". " + who)[2] == (
            f" would fit with {texts[0]}." if texts else ""
        )


def test_at_most_three_changes_are_suggested() -> None:
    assert (
        len(suggested(fleet(*(cluster(f"c{i}", 0) for i in range(9))), deployment()))
        == 3
    )


def test_no_nodes_are_suggested_against_a_quota() -> None:
    world = fleet(
        cluster("a", 0), options=SchedulerOptions(quotas=(Quota("ml", max_nodes=0),))
    )
    assert suggested(world, deployment()) == []


@pytest.mark.parametrize(
    ("options", "policy"),
    [
        (
            SchedulerOptions(quotas=(Quota("ml", max_nodes=2),)),
            PlacementPolicy(gang_replicas=3),
        ),
        (
            SchedulerOptions(),
            PlacementPolicy(
                gang_replicas=3,
                topology_spread=(SpreadConstraint("region", max_skew=2),),
            ),
        ),
    ],
    ids=["quota", "spread"],
)
def test_nodes_for_only_part_of_a_gang_are_not_suggested(
    options: SchedulerOptions, policy: PlacementPolicy
) -> None:
    clusters = (
        cluster("a", 0, labels=US),
        cluster("b", pool("p", 9, gpu("1Gi")), labels={"region": "eu"}),
    )
    assert (
        suggested(fleet(*clusters, options=options), deployment(want=3, policy=policy))
        == []
    )
    # The spread limits the gang: two replicas would fit.
    assert suggested(
        fleet(*clusters, options=options),
        deployment(want=2, policy=replace(policy, gang_replicas=2)),
    ) == ["2 more nodes in a/p"]


def test_a_placed_deployment_needs_no_change() -> None:
    assert (
        explained(fleet(cluster("a", 1), cluster("b", 0)), deployment()).suggestions
        == ()
    )


@pytest.mark.random
def test_every_suggested_node_and_toleration_makes_a_replica_fit() -> None:
    """Apply each suggestion and decide again: one more replica is placed."""
    tried = 0
    for seed in range(SEED, SEED + cases(150)):
        world = random_world(seed)
        for view in world.deployments:
            built = world.build()
            before = explained(built, view)
            apply(built, before.decision)
            # A replica whose growth or replacement is blocked would get the place
            # first.
            blocked = any(
                note.reason in {"ReplacementBlocked", "ResizeBlocked"}
                for note in before.decision.notes
            )
            for found in () if blocked else before.suggestions:
                changed, asked = carried_out(built, view, found)
                tried += 1
                assert decided(changed, asked).shortfall < before.decision.shortfall, (
                    world,
                    view.name,
                    found,
                )
    assert tried > cases(150) * 2 // 15


def carried_out(
    world: Fleet, view: DeploymentView, found: Suggestion
) -> tuple[Fleet, DeploymentView]:
    made = fleet(*(info.view for info in world.clusters.values()))
    for entry in world.entries():
        made.put_replica(entry)
    cluster_view = made.clusters[found.cluster].view
    if found.kind == "Nodes":
        more = dict(found.nodes)
        pools = tuple(
            replace(known, nodes=known.nodes + more.pop(known.name, 0))
            for known in cluster_view.pools
        )
        made.put_cluster(replace(cluster_view, pools=pools))
    elif found.kind == "Toleration":
        view = replace(
            view,
            tolerations=(
                *view.tolerations,
                *(tolerate(taint.key) for taint in cluster_view.taints),
            ),
        )
    elif found.kind == "ClusterLabel":
        made.put_cluster(
            relabelled(cluster_view, {**cluster_view.labels, **view.match_labels})
        )
    else:
        assert found.kind == "Request"
        memory = found.text.split()[3]
        lower = tuple(
            replace(
                each,
                members=tuple(
                    replace(
                        member,
                        requests=tuple(
                            replace(request, selectors=(at_least(memory),))
                            for request in member.requests
                        ),
                    )
                    for member in each.members
                ),
            )
            for each in view.engines
        )
        view = replace(view, engines=lower)
    return made, view


@pytest.mark.random
def test_an_explanation_changes_no_decision() -> None:
    for seed in range(SEED, SEED + cases(150)):
        world = random_world(seed)
        requests = [ScheduleRequest(view.name, view) for view in world.deployments]
        built = world.build()
        first = decide(built, requests, NOW)
        assert [
            each.decision for each in decide_and_explain(built, requests, NOW)
        ] == first, world
        assert decide(built, requests, NOW) == first, world
        assert built.audit() == []


@pytest.mark.random
def test_the_counts_add_up_to_the_clusters() -> None:
    for seed in range(SEED, SEED + cases(150)):
        world = random_world(seed)
        for gang_size in (0, 2, 3):
            for view in world.deployments:
                decision = decided(
                    world.build(),
                    replace(view, policy=PlacementPolicy(gang_replicas=gang_size)),
                )
                if decision.shortfall:
                    assert sum(
                        group.count for group in decision.diagnosis.groups
                    ) == len(world.clusters), world


@pytest.mark.parametrize(
    "shape",
    [[engine("main", copies=40)], [engine("x", copies=3), engine("y", copies=40)]],
    ids=["one engine", "two engines"],
)
def test_a_headline_tries_each_cluster_once_more_at_most(
    shape: list[EngineView], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0
    on = Trials.on

    def counted(self: Trials, *args: Any, **kwargs: Any) -> Trial:
        nonlocal calls
        calls += 1
        return on(self, *args, **kwargs)

    monkeypatch.setattr(Trials, "on", counted)
    us = {"region": "us"}
    others = [
        cluster(f"t{i:03}", 50, labels=us, taints=[f"x{i}:NoSchedule"])
        for i in range(2)
    ]
    world = fleet(*(cluster(f"c{i:03}", 4, labels=us) for i in range(200)), *others)
    assert decided(world, deployment(*shape, match_labels=us)).shortfall == 1
    assert calls <= 2 * 200 + 20


def reasons_of(world: Fleet, view: DeploymentView) -> dict[str, str]:
    found = explained(world, view)
    return {
        f"{p.cluster}/{p.index}": found.placements[p.uid].text
        for p in found.decision.placements
    }


PROFILES: list[tuple[str, Mapping[str, object], list[ClusterView], str]] = [
    (
        "by name",
        {},
        [cluster("a", 2), cluster("b", 2)],
        "placed here and not on b: equal scores, first by name",
    ),
    (
        "alone",
        {},
        [cluster("a", 2), cluster("b", 0)],
        "placed here: no other cluster fits one",
    ),
    (
        "balanced",
        {"profile": "balanced"},
        [cluster("a", pool("p", 4)), cluster("b", pool("p", 2))],
        "placed here and not on b: 75% of the nodes stay free, 50% there",
    ),
    (
        "dense",
        {"profile": "dense"},
        [cluster("a", pool("p", 2)), cluster("b", pool("p", 4))],
        "placed here and not on b: 1 nodes stay free in its pools, 3 there",
    ),
    (
        "cheap",
        {"profile": "cheap"},
        [cluster("a", pool("p", 1, price_milli=2_500)), cluster("b", pool("p", 1))],
        "placed here and not on b: its nodes cost 2.50 per hour, an unknown price there",
    ),
    (
        "near",
        {"profile": "near"},
        [cluster("a", 1), cluster("b", 1)],
        "placed here and not on b: ModelCache w is Ready here, not staged there",
    ),
    (
        "preferred affinity",
        {"affinity": (AffinityTerm({"app": "x"}, weight=5),)},
        [cluster("a", 2), cluster("b", 2)],
        (
            "placed here and not on b: preferred affinity and spread are met better (-5 "
            "against 0, lower is better)"
        ),
    ),
]


@pytest.mark.parametrize(
    ("story", "policy", "clusters", "text"), PROFILES, ids=[row[0] for row in PROFILES]
)
def test_a_placed_replica_is_compared_with_the_next_best_cluster(
    story: str, policy: Mapping[str, object], clusters: list[ClusterView], text: str
) -> None:
    del story
    cache = (
        CacheView("Present", "w", phases={"a": "Ready"})
        if policy.get("profile") == "near"
        else CacheView()
    )
    view = deployment(policy=PlacementPolicy(**policy), cache=cache)  # type: ignore[arg-type]
    clusters = [replace(each, cache_storage_class="nfs") for each in clusters]
    world = fleet(*clusters)
    if "affinity" in policy:
        put_replicas(
            world,
            deployment(name="x", labels={"app": "x"}),
            "a/0",
            labels=(("app", "x"),),
        )
    assert reasons_of(world, view) == {"a/0": text}


def test_each_of_several_replicas_is_compared_with_the_fleet_before_it() -> None:
    found = reasons_of(fleet(cluster("a", 3), cluster("b", 1)), deployment(want=3))
    assert found == {
        "a/0": "placed here and not on b: equal scores, first by name",
        "b/0": "placed here and not on a: 0 replicas of this deployment are here, 1 there",
        "a/1": "placed here: no other cluster fits one",
    }


def test_a_kept_replica_reports_why_its_cluster_rejects_new_ones() -> None:
    world = fleet(
        cluster("a", 1, labels={"region": "eu"}, taints=DEDICATED),
        cluster("b", 1, labels=US),
    )
    view = deployment(match_labels=US, want=2)
    put_replicas(world, view, "a/0", "b/0")
    assert reasons_of(world, view) == {
        "a/0": "placed replicas are not moved; its cluster would reject a new one: "
        "wants region=us, has eu, had untolerated taint {dedicated=ml:NoSchedule}",
        "b/0": "placed replicas are not moved",
    }


def test_a_preemptor_reports_that_no_other_cluster_fits() -> None:
    world = fleet(
        cluster("a", 1), options=SchedulerOptions(priority_classes={"high": 10})
    )
    put_replicas(world, deployment(name="low"), "a/0")
    view = deployment(
        policy=PlacementPolicy(priority_class="high", preemption="LowerPriority")
    )
    assert reasons_of(world, view) == {"a/0": "placed here: no other cluster fits one"}


WARNINGS = [
    ({"priority_class": "hihg"}, "so the priority is 0; nearest: high"),
    (
        {"profile": "chep"},
        (
            "spec.scheduling.profile: there is no profile chep, so the profile is "
            "default, nearest: cheap"
        ),
    ),
]


@pytest.mark.parametrize(
    ("policy", "text"), WARNINGS, ids=["priority class", "profile"]
)
def test_an_unknown_name_is_a_warning(policy: Mapping[str, str], text: str) -> None:
    world = fleet(
        cluster("a", 1), options=SchedulerOptions(priority_classes={"high": 10})
    )
    assert (
        explained(world, deployment(policy=PlacementPolicy(**policy)))  # type: ignore[arg-type]
        .warnings[0]
        .endswith(text)
    )


@pytest.mark.slow
def test_a_page_holds_at_most_a_megabyte_and_the_next_one_continues() -> None:
    many = [pool(f"p{i}", 0, gpu("24Gi")) for i in range(8)]
    found = explained(
        fleet(*(cluster(f"c{i:04}", *many) for i in range(400))), deployment()
    )
    seen: list[str] = []
    after, pages = "", 0
    while pages == 0 or after:
        tree = decision_tree(found, after)
        assert len(json.dumps(tree)) <= 1_000_000
        seen += tree["clusters"]
        after, pages = tree["clustersAfter"], pages + 1
    assert (seen, pages > 1) == (sorted(found.clusters), True)
    assert PAGE_CHARACTERS < 1_000_000
