"""Manifests as the scheduler reads them, and their wire form."""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from scheduler.fleet.manifests import (
    cache_view,
    cluster_view,
    deployment_view,
    template_digest,
)
from scheduler.fleet.replica_manifests import ledger_entry
from scheduler.model.inputs import (
    CacheView,
    ClusterTaint,
    ClusterToleration,
    ClusterView,
    DeploymentView,
    EngineView,
    LedgerEntry,
    MemberView,
    RequestView,
    ScheduleRequest,
)
from scheduler.model.policy import (
    AffinityTerm,
    DrainPolicy,
    PlacementPolicy,
    RolloutPolicy,
    SpreadConstraint,
)
from scheduler.model.wire import from_wire, to_wire
from tests.scheduler.builders import (
    NOW,
    alone,
    ask,
    cluster,
    decided,
    deployment,
    engine,
    fleet,
    gpu,
    nic,
    places,
    pool,
    put_replicas,
    report_releasing,
    settled,
)

Tree = dict[str, Any]
CONTAINER = {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}}
NODE_SELECTOR = {
    "devices": [
        {"name": "gpu", "count": 4, "selectors": [{"cel": "device.driver == 'x'"}]}
    ]
}
TEMPLATE: Tree = {
    "clusterSelector": {"matchLabels": {"region": "us"}},
    "modelCacheRef": {"name": "w"},
    "serving": {"mode": "PrefillDecode"},
    "tolerations": [
        {"key": "k", "operator": "Exists", "effect": "NoExecute"},
        {"key": "v", "value": "1"},
    ],
    "engines": [
        {
            "name": "prefill",
            "copies": 2,
            "phase": "Prefill",
            "spanPools": True,
            "members": [
                {"role": "Leader", "template": CONTAINER},
                {
                    "role": "Worker",
                    "worker": {"nodes": 3},
                    "podsPerNode": 2,
                    "nodeSelector": NODE_SELECTOR,
                    "template": CONTAINER,
                },
            ],
        },
        {
            "name": "decode",
            "phase": "Decode",
            "members": [{"nodeSelector": NODE_SELECTOR, "template": CONTAINER}],
        },
    ],
}
DEPLOYMENT: Tree = {
    "metadata": {
        "name": "m",
        "namespace": "ml",
        "uid": "u",
        "generation": 3,
        "labels": {"app": "x"},
    },
    "spec": {
        "replicas": 2,
        "template": {"spec": TEMPLATE},
        "rollout": {
            "type": "AllAtOnce",
            "maxUnavailable": "50%",
            "maxSurge": 1,
            "partition": 1,
            "paused": True,
        },
        "drain": {"maxUnavailable": 1, "deadlineSeconds": 60},
        "scheduling": {
            "profile": "dense",
            "priorityClassName": "high",
            "preemptionPolicy": "LowerPriority",
            "minAvailable": 1,
            "topologySpread": [{"topologyKey": "zone", "maxSkew": 2}],
            "affinity": {
                "required": [
                    {"selector": {"matchLabels": {"a": "b"}}, "topologyKey": "zone"}
                ]
            },
            "antiAffinity": {
                "preferred": [
                    {
                        "selector": {"matchLabels": {"c": "d"}},
                        "weight": 5,
                        "namespaces": ["n"],
                    }
                ]
            },
            "networkDomain": "Required",
            "gangReplicas": 2,
            "cacheRequired": "Ready",
        },
    },
}


def test_a_deployment_is_read_with_all_fields() -> None:
    request = RequestView("gpu", 4, ("device.driver == 'x'",))
    assert deployment_view(DEPLOYMENT) == DeploymentView(
        "ml",
        "m",
        "u",
        3,
        2,
        {"region": "us"},
        (
            ClusterToleration("k", "Exists", "", "NoExecute"),
            ClusterToleration("v", "Equal", "1"),
        ),
        CacheView("Unresolved", "w"),
        "PrefillDecode",
        (
            EngineView(
                "prefill",
                (MemberView("Leader"), MemberView("Worker", 3, (request,), 2)),
                2,
                "Prefill",
                span_pools=True,
            ),
            EngineView("decode", (MemberView(requests=(request,)),), 1, "Decode"),
        ),
        template_digest(TEMPLATE),
        {"app": "x"},
        PlacementPolicy(
            RolloutPolicy("AllAtOnce", "50%", 1, 1, paused=True),
            DrainPolicy(1, 60),
            "dense",
            "high",
            "LowerPriority",
            1,
            (SpreadConstraint("zone", 2),),
            (AffinityTerm({"a": "b"}, "zone"),),
            (AffinityTerm({"c": "d"}, "", ("n",), 5),),
            "Required",
            2,
            "Ready",
        ),
        ("inferencePools", "multiNode"),
    )


@pytest.mark.parametrize("block", ["rollout", "drain", "scheduling"])
@pytest.mark.parametrize("written", [None, {}], ids=["left out", "empty"])
def test_omitted_policy_fields_have_defaults(block: str, written: Tree | None) -> None:
    spec = {"replicas": 2, "template": DEPLOYMENT["spec"]["template"], block: written}
    view = deployment_view({**DEPLOYMENT, "spec": spec})
    assert (view.policy, view.replicas) == (PlacementPolicy(), 2)


def test_a_spread_has_its_own_defaults() -> None:
    spread = {"topologySpread": [{"topologyKey": "zone"}]}
    spec = {
        "replicas": 2,
        "template": DEPLOYMENT["spec"]["template"],
        "scheduling": spread,
    }
    policy = deployment_view({**DEPLOYMENT, "spec": spec}).policy
    assert policy == PlacementPolicy(
        topology_spread=(SpreadConstraint("zone", 1, "DoNotSchedule", 0),)
    )


def placed_spec() -> Tree:
    """The same template in a replica."""
    request = {"name": "gpu", "deviceClassName": "gpu", "count": 4}
    engines = []
    for written in TEMPLATE["engines"]:
        members = []
        for member in written["members"]:
            kept = {
                key: value for key, value in member.items() if key != "nodeSelector"
            }
            claims = {"deviceRequests": [request]} if "nodeSelector" in member else {}
            members.append({**kept, "nodePoolName": "p", **claims})
        engines.append({**written, "members": members})
    return {
        "clusterName": "a",
        "modelCacheRef": {"name": "w"},
        "serving": {"mode": "PrefillDecode"},
        "engines": engines,
    }


def test_template_and_replica_have_the_same_digest() -> None:
    assert template_digest(placed_spec()) == template_digest(TEMPLATE)


EDITS: list[tuple[str, Tree, bool]] = [
    ("the cluster selector", {"clusterSelector": {}}, False),
    ("tolerations", {"tolerations": []}, False),
    ("the cache", {"modelCacheRef": {"name": "other"}}, True),
    (
        "the image",
        {
            "engines": [
                {**TEMPLATE["engines"][1], "members": [{"template": {"spec": {}}}]}
            ]
        },
        True,
    ),
    ("the order of engines", {"engines": TEMPLATE["engines"][::-1]}, False),
]


@pytest.mark.parametrize(
    ("story", "edit", "restarts"), EDITS, ids=[row[0] for row in EDITS]
)
def test_only_what_replicas_copy_is_digested(
    story: str, edit: Tree, restarts: bool
) -> None:
    del story
    assert (
        template_digest({**TEMPLATE, **edit}) != template_digest(TEMPLATE)
    ) is restarts


CACHES: list[tuple[str, Tree | None, CacheView]] = [
    ("not read yet", None, CacheView("Unresolved", "w")),
    ("does not exist", {"name": "w", "state": "Absent"}, CacheView("Absent", "w")),
    (
        "its manifest",
        {
            "metadata": {"name": "w"},
            "spec": {"clusterSelector": {"matchLabels": {"a": "b"}}},
            "status": {"clusters": [{"name": "x", "phase": "Ready"}]},
        },
        CacheView("Present", "w", {"a": "b"}, {"x": "Ready"}),
    ),
    (
        "wrapped",
        {"name": "w", "state": "Present", "manifest": {"metadata": {}, "spec": {}}},
        CacheView("Present", "w"),
    ),
    (
        "being deleted",
        {
            "metadata": {"name": "w", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {},
        },
        CacheView("Absent", "w"),
    ),
]


@pytest.mark.parametrize(
    ("story", "tree", "view"), CACHES, ids=[row[0] for row in CACHES]
)
def test_a_cache_is_read_in_every_state(
    story: str, tree: Tree | None, view: CacheView
) -> None:
    del story
    assert cache_view("w", tree) == view


def test_without_a_reference_there_is_no_cache() -> None:
    assert cache_view("", {"metadata": {"name": "w"}}) == CacheView()


CLUSTER: Tree = {
    "metadata": {
        "name": "a",
        "labels": {"region": "us"},
        "generation": 2,
        "deletionTimestamp": "2026-01-01T00:00:00Z",
    },
    "spec": {
        "taints": [{"key": "k", "effect": "NoSchedule"}],
        "nodePools": [
            {"name": "plain", "className": "h200"},
            {"name": "fast", "className": "h200", "fabric": {"type": "EFA"}},
            {
                "name": "named",
                "className": "h200",
                "fabric": {"type": "InfiniBand", "infiniband": {"fabric": "fabric-7"}},
            },
        ],
    },
    "status": {
        "conditions": [{"type": "Ready", "status": "True"}],
        "gateway": {"address": "10.0.0.1"},
        "cache": {"storageClassName": "rwx"},
        "gpuPools": [
            {
                "name": "plain",
                "nodes": 4,
                "devices": [
                    {"name": "gpu", "driver": "d", "deviceClassName": "c", "count": 8}
                ],
            },
            {
                "name": "fast",
                "nodes": -1,
                "devices": [
                    {"name": "gpu", "driver": "d", "claim": "Synthetic", "count": -1}
                ],
            },
            {
                "name": "named",
                "devices": [{"name": "gpu", "driver": "d"}],
                "classMissing": True,
                "unusable": "its DeviceClass does not exist",
                "priceMilli": 5,
            },
        ],
        "missingFeatures": ["dataParallel", "teleport"],
    },
}


def test_a_cluster_is_read_with_all_fields() -> None:
    view = cluster_view(CLUSTER)
    assert (
        view.name,
        view.ready,
        view.deleting,
        view.gateway_address,
        view.cache_storage_class,
    ) == ("a", True, True, "10.0.0.1", "rwx")
    assert view.taints == (ClusterTaint("k", "", "NoSchedule"),)
    assert view.missing_features == ("dataParallel", "teleport")
    assert [(p.unusable, p.takes_new) for p in view.pools] == [
        ("", True),
        ("", True),
        ("its DeviceClass does not exist", False),
    ]
    assert [
        (p.name, p.nodes, p.class_missing, p.network_domain, p.price_milli)
        for p in view.pools
    ] == [
        ("plain", 4, False, "", -1),
        ("fast", 0, False, "a/fast", -1),
        ("named", 0, True, "fabric-7", 5),
    ]
    assert [
        (p.device_set.entries[0].claim, p.device_set.entries[0].count)
        for p in view.pools
    ] == [
        ("DRA", 8),
        ("Synthetic", 0),
        ("DRA", 0),
    ]


def test_equal_classes_are_one_device_set() -> None:
    pools = cluster_view(CLUSTER).pools
    world = fleet(
        cluster_view(CLUSTER), cluster_view({**CLUSTER, "metadata": {"name": "b"}})
    )
    assert (
        world.clusters["a"].pools[0].device_set
        is world.clusters["b"].pools[0].device_set
    )
    assert pools[0].device_set.digest != pools[1].device_set.digest


def test_a_network_label_joins_all_pools() -> None:
    labelled = {
        **CLUSTER,
        "metadata": {"name": "a", "labels": {"modelplane.ai/network-domain": "campus"}},
    }
    assert {p.network_domain for p in cluster_view(labelled).pools} == {"campus"}


def a_replica(**metadata: Any) -> Tree:
    own_labels = {"modelplane.ai/deployment": "m", "modelplane.ai/replica-index": "1"}
    return {
        "metadata": {
            "name": "m-1",
            "namespace": "ml",
            "uid": "u",
            "labels": own_labels,
            **metadata,
        },
        "spec": placed_spec(),
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def test_a_replica_is_read_with_all_fields() -> None:
    entry = ledger_entry(a_replica())
    assert replace(entry, engines=()) == LedgerEntry(
        "u",
        "ml",
        "m",
        "a",
        1,
        "m-1",
        (),
        state="Bound",
        ready=True,
        template=template_digest(TEMPLATE),
    )
    members = [
        (m.role, m.pool, m.pods, [r.name for r in m.requests])
        for e in entry.engines
        for m in e.members
    ]
    assert members == [
        ("Leader", "p", 1, []),
        ("Worker", "p", 3, ["gpu"]),
        ("Standalone", "p", 1, ["gpu"]),
    ]


def test_a_replica_that_is_being_deleted_is_releasing() -> None:
    assert (
        ledger_entry(a_replica(deletionTimestamp="2026-01-01T00:00:00Z")).state
        == "Releasing"
    )


@pytest.mark.parametrize(
    "value",
    [
        deployment_view(DEPLOYMENT),
        cluster_view(CLUSTER),
        cluster("a", pool("p", 3, gpu(), nic()), 4, taints=["x:NoExecute"]),
        ScheduleRequest("1", deployment(engine("main", alone(ask(), ask(name="b"))))),
        ledger_entry(a_replica()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_everything_survives_the_wire(value: Any) -> None:
    assert from_wire(type(value), json.loads(json.dumps(to_wire(value)))) == value


def test_an_old_payload_without_newer_fields_is_still_read() -> None:
    assert from_wire(ClusterView, {"name": "a", "unheardOf": 1}) == ClusterView("a")
    with pytest.raises(ValueError, match="invalid LedgerEntry"):
        from_wire(LedgerEntry, {"uid": "u"})


def test_a_duplicate_pool_name_counts_once() -> None:
    world = fleet(cluster("a", pool("p", 1), pool("p", 5)))
    assert places(decided(world, deployment(want=3))) == ["a/0"]
    assert world.clusters["a"].duplicates == ("p",)


def test_a_fleet_answers_queries() -> None:
    world = fleet(cluster("a", 2))
    uid = put_replicas(world, deployment(), "a/0")[0]
    settled(world, deployment(name="other"))
    assert {e.deployment for e in world.on_cluster("a").values()} == {"m", "other"}
    assert list(world.owned("ml", "m")) == [uid]
    assert (world.free("a"), world.free("nowhere")) == ({"p": 0}, {})
    assert [
        world.bind("x"),
        world.release("x"),
        world.observe("x", ready=True, serving=True),
    ] == [False] * 3


def test_every_change_raises_the_version_and_a_repeat_does_not() -> None:
    world = fleet()
    seen = [world.version]
    view = cluster("a", 2)
    entry = LedgerEntry("u", "ml", "m", "a", 0, "m-0", ())
    steps: list[Callable[[], object]] = [
        lambda: world.put_cluster(view, NOW),
        lambda: world.put_replica(entry),
        lambda: world.observe("u", ready=True, serving=True),
        lambda: report_releasing(world, "u"),
        lambda: world.release("u"),
        lambda: world.remove_cluster("a"),
    ]
    for step in steps:
        step()
        seen.append(world.version)
        step()
        assert world.version == seen[-1] or step is steps[1]
    assert seen == sorted(set(seen))
