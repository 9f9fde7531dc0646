"""Plans from manifests alone, and the contract of `plan -o json`."""

from typing import Any

import pytest

from api_types.names import replica_name
from scheduler.hardware import node_fitting
from scheduler.model.policy import SchedulerOptions
from scheduler.planning.offline import offline_cluster, plan_offline
from tests.scheduler.builders import at_least

Tree = dict[str, Any]


def a_class(
    name: str = "h200",
    memory: str = "141Gi",
    count: int = 8,
    annotations: Tree | None = None,
) -> Tree:
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": count,
    }
    return {
        "kind": "InferenceClass",
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": {"devices": [{**device, "capacity": {"memory": {"value": memory}}}]},
    }


def a_cluster(name: str, *pools: Tree, status: Tree | None = None, **spec: Any) -> Tree:
    cluster: Tree = {
        "kind": "InferenceCluster",
        "metadata": {"name": name, "labels": {"region": name}},
        "spec": {"cluster": {"source": "GKE"}, "nodePools": list(pools), **spec},
    }
    return {**cluster, "status": status} if status is not None else cluster


def a_pool(name: str = "p", class_name: str = "h200", **counts: int) -> Tree:
    return {"name": name, "className": class_name, **counts}


def a_deployment(
    name: str = "m",
    replicas: int = 1,
    memory: str = "141Gi",
    spec: Tree | None = None,
    **fields: Any,
) -> Tree:
    member = {
        "nodeSelector": {
            "devices": [{"name": "gpu", "selectors": [{"cel": at_least(memory)}]}]
        },
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}},
    }
    template = {"engines": [{"name": "main", "members": [member]}], **fields}
    return {
        "kind": "ModelDeployment",
        "metadata": {"name": name, "namespace": "ml"},
        "spec": {"replicas": replicas, "template": {"spec": template}, **(spec or {})},
    }


def a_replica(
    name: str, deployment: str, cluster: str, index: int, pool: str = "p"
) -> Tree:
    request = {
        "name": "gpu",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
        "selectors": [{"cel": at_least("141Gi")}],
    }
    member = {
        "nodePoolName": pool,
        "deviceRequests": [request],
        "template": {"spec": {"containers": [{"name": "engine", "image": "vllm:1"}]}},
    }
    return {
        "kind": "ModelReplica",
        "metadata": {
            "name": name,
            "namespace": "ml",
            "labels": {
                "modelplane.ai/deployment": deployment,
                "modelplane.ai/replica-index": str(index),
            },
        },
        "spec": {
            "clusterName": cluster,
            "engines": [{"name": "main", "members": [member]}],
        },
    }


def planned(*documents: Tree, options: SchedulerOptions | None = None) -> list[Tree]:
    return list(plan_offline(documents, options)["decisions"])


COUNTS = [
    ("101 the maximum counts, not the start", {"nodeCount": 0, "maxNodeCount": 4}, 4),
    ("101 without a maximum the fixed size counts", {"nodeCount": 2}, 2),
    ("the default is one node", {}, 1),
    ("a fixed size of zero hosts nothing", {"nodeCount": 0}, 0),
]


@pytest.mark.parametrize(
    ("story", "counts", "nodes"), COUNTS, ids=[row[0] for row in COUNTS]
)
def test_capacity_is_the_ceiling(
    story: str, counts: dict[str, Any], nodes: int
) -> None:
    del story
    decision = planned(
        a_class(), a_cluster("a", a_pool(**counts)), a_deployment(replicas=9)
    )[0]
    assert len(decision["placements"]) == nodes


def test_a_pool_whose_class_is_missing_is_not_published() -> None:
    decision = planned(a_cluster("a", a_pool()), a_deployment())[0]
    assert (decision["shortfall"], decision["clusters"]["a"]["reason"]) == (
        1,
        "NoPools",
    )


def test_a_class_missing_in_the_documents_is_reported_with_the_nearest() -> None:
    decision = planned(
        a_class("h200"), a_cluster("a", a_pool("p", "h20")), a_deployment()
    )[0]
    assert (
        decision["clusters"]["a"]["detail"]
        == "publish no pools; pool p: InferenceClass h20 does not exist, nearest: h200"
    )
    published = offline_cluster(
        a_cluster("a", a_pool("p", "h200"), a_pool("q", "h20")),
        {"h200": a_class("h200")},
    )
    assert published.unpublished == (("q", "h20"),)


def test_the_whole_contract_of_one_decision() -> None:
    decision = planned(
        a_class(),
        a_class("l4", "24Gi"),
        a_cluster("b", a_pool("small", "l4"), a_pool("big", nodeCount=1)),
        a_cluster(
            "a",
            a_pool(nodeCount=1),
            status={"conditions": [{"type": "Ready", "status": "False"}]},
        ),
        a_deployment(replicas=2),
    )[0]
    assert decision == {
        "namespace": "ml",
        "name": "m",
        "desired": 2,
        "shortfall": 1,
        "message": (
            "1 of 2 replicas scheduled (checked 2 clusters). 0/2 clusters are "
            "available: 1 aren't Ready, "
            "1 had too few free nodes for engine main (best: needs 1, 0 free on b/big). "
            "One more replica would fit with one more node in b/big."
        ),
        "warnings": [],
        "suggestions": [
            {
                "kind": "Nodes",
                "text": "one more node in b/big",
                "cluster": "b",
                "nodes": {"big": 1},
                "costMilli": -1,
            },
        ],
        "placements": [
            {
                "replica": replica_name("ml", "m", "b", 0),
                "cluster": "b",
                "index": 0,
                "action": "Create",
                "engines": [{"name": "main", "pool": "big", "nodes": 1}],
                "reason": {
                    "text": "placed here: no other cluster fits one",
                    "nextBest": "",
                    "score": "",
                    "value": 0,
                    "nextBestValue": 0,
                },
            }
        ],
        "evictions": [],
        "clusters": {
            "a": {
                "reason": "NotReady",
                "detail": "aren't Ready",
                "needs": [],
                "pools": {"p": {"reason": "", "detail": "", "selectors": []}},
            },
            "b": {
                "reason": "InsufficientNodes",
                "detail": "had too few free nodes for engine main (best: needs 1, 0 free on b/big)",
                "needs": [
                    {
                        "pool": "big",
                        "nodes": 1,
                        "free": 0,
                        "engines": [{"name": "main", "nodes": 1}],
                    }
                ],
                "pools": {
                    "small": {
                        "reason": "SelectorNoMatch",
                        "detail": "engine main: Standalone: request gpu: selector 1 "
                        f"matched 0 of 1 entries: {at_least('141Gi')}; "
                        "closest device gpu: memory is 24Gi, wanted at least 141Gi",
                        "selectors": [
                            {
                                "engine": "main",
                                "member": "Standalone",
                                "request": "gpu",
                                "selector": 1,
                                "text": at_least("141Gi"),
                                "device": "gpu",
                                "differences": [
                                    {
                                        "name": "memory",
                                        "has": "24Gi",
                                        "wants": "at least 141Gi",
                                        "known": [],
                                    }
                                ],
                            }
                        ],
                    },
                    "big": {
                        "reason": "InsufficientNodes",
                        "detail": "engine main: needs 1, 0 free of 1, reserved 1",
                        "selectors": [],
                    },
                },
            },
        },
        "clustersAfter": "",
    }


def test_a_placed_deployment_is_explained_for_one_more_replica() -> None:
    decision = planned(a_class(), a_cluster("a", a_pool(nodeCount=2)), a_deployment())[
        0
    ]
    assert decision["clusters"] == {
        "a": {
            "reason": "",
            "detail": "",
            "needs": [],
            "pools": {"p": {"reason": "", "detail": "", "selectors": []}},
        }
    }
    assert (decision["shortfall"], decision["evictions"]) == (0, [])


STATUS: list[tuple[str, Tree | None, str]] = [
    ("no status at all", None, ""),
    (
        "Ready is Unknown",
        {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        "NotReady",
    ),
    (
        "another condition is False",
        {"conditions": [{"type": "BackendReady", "status": "False"}]},
        "",
    ),
    (
        "the gateway address is written and empty",
        {"gateway": {"address": ""}},
        "NoGateway",
    ),
    ("the gateway address is not written", {"gateway": {}}, ""),
]


@pytest.mark.parametrize(
    ("story", "status", "reason"), STATUS, ids=[row[0] for row in STATUS]
)
def test_a_cluster_counts_as_ready_unless_its_status_says_otherwise(
    story: str, status: Tree | None, reason: str
) -> None:
    del story
    decision = planned(
        a_class(), a_cluster("a", a_pool(nodeCount=2), status=status), a_deployment()
    )[0]
    assert decision["clusters"]["a"]["reason"] == reason


def test_published_pools_are_used_before_computed_ones() -> None:
    published = {
        "gpuPools": [{"name": "p", "nodes": 3, "devices": a_class()["spec"]["devices"]}]
    }
    decision = planned(
        a_cluster("a", a_pool(nodeCount=1), status=published), a_deployment(replicas=5)
    )[0]
    assert len(decision["placements"]) == 3


def test_existing_replicas_hold_their_place_and_their_nodes() -> None:
    documents = [
        a_class(),
        a_cluster("a", a_pool(nodeCount=2)),
        a_replica("m-old", "m", "a", 0),
        a_replica("x-old", "x", "a", 0),
    ]
    mine, other = planned(*documents, a_deployment(replicas=2), a_deployment("x"))
    assert [(p["replica"], p["action"]) for p in mine["placements"]] == [
        ("m-old", "Keep")
    ]
    assert (mine["shortfall"], [p["replica"] for p in other["placements"]]) == (
        1,
        ["x-old"],
    )


def test_a_scale_down_names_the_removed_replicas() -> None:
    replicas = [a_replica(f"m-{i}", "m", "a", i) for i in range(2)]
    decision = planned(
        a_class(), a_cluster("a", a_pool(nodeCount=2)), *replicas, a_deployment()
    )[0]
    assert decision["evictions"] == [
        {
            "replica": "m-1",
            "cluster": "a",
            "reason": "ScaledDown",
            "detail": "1 replicas wanted",
        }
    ]


def test_the_final_state_of_a_rollout_is_shown() -> None:
    replicas = [a_replica(f"m-{i}", "m", "a", i) for i in range(3)]
    edited = a_deployment(replicas=3, memory="100Gi")
    decision = planned(
        a_class(), a_cluster("a", a_pool(nodeCount=3)), *replicas, edited
    )[0]
    assert [p["action"] for p in decision["placements"]] == ["Update"] * 3


def test_priority_decides_first_and_documents_are_shown_in_their_order() -> None:
    options = SchedulerOptions(priority_classes={"high": 100})
    urgent = a_deployment("urgent", spec={"scheduling": {"priorityClassName": "high"}})
    low, high = planned(
        a_class(),
        a_cluster("a", a_pool(nodeCount=1)),
        a_deployment("calm"),
        urgent,
        options=options,
    )
    assert [(d["name"], len(d["placements"])) for d in (low, high)] == [
        ("calm", 0),
        ("urgent", 1),
    ]


def test_a_request_that_is_added_replaces_a_replica_whose_pool_has_no_such_device() -> (
    None
):
    wired = a_class("wired")
    wired["spec"]["devices"].append(
        {**wired["spec"]["devices"][0], "name": "nic", "driver": "nic.example.com"}
    )
    edited = a_deployment()
    devices = edited["spec"]["template"]["spec"]["engines"][0]["members"][0][
        "nodeSelector"
    ]["devices"]
    devices.append(
        {"name": "nic", "selectors": [{"cel": 'device.driver == "nic.example.com"'}]}
    )
    fleet = [
        a_class(),
        wired,
        a_cluster("a", a_pool("p", nodeCount=1), a_pool("q", "wired", nodeCount=1)),
        a_replica("m-0", "m", "a", 0),
    ]
    (placement,) = planned(*fleet, edited)[0]["placements"]
    assert (
        placement["action"],
        [engine["pool"] for engine in placement["engines"]],
    ) == ("Replace", ["q"])


PROTECTED: dict[str, Tree] = {
    "by its priority": {"priorityClassName": "top"},
    "by minAvailable": {"minAvailable": 1},
}


@pytest.mark.parametrize("scheduling", PROTECTED.values(), ids=PROTECTED)
def test_a_replica_is_protected_by_the_manifest_of_its_deployment(
    scheduling: Tree,
) -> None:
    """The manifest of the ModelReplica has neither: the preemptor is decided first, or
    the class has a priority above any default.
    """
    options = SchedulerOptions(priority_classes={"high": 100, "top": 1000})
    urgent = a_deployment(
        "urgent",
        spec={
            "scheduling": {
                "priorityClassName": "high",
                "preemptionPolicy": "LowerPriority",
            }
        },
    )
    vip = a_deployment("vip", spec={"scheduling": scheduling})
    fleet = [
        a_class(),
        a_cluster("a", a_pool(nodeCount=1)),
        a_replica("vip-0", "vip", "a", 0),
    ]
    one, other = planned(*fleet, urgent, vip, options=options)
    assert (one["placements"], one["evictions"]) == ([], [])
    assert [(p["replica"], p["action"]) for p in other["placements"]] == [
        ("vip-0", "Keep")
    ]
    unprotected, _ = planned(*fleet, urgent, a_deployment("vip"), options=options)
    assert [eviction["replica"] for eviction in unprotected["evictions"]] == ["vip-0"]


def test_a_cache_among_the_documents_narrows_and_a_missing_one_holds() -> None:
    cache = {
        "kind": "ModelCache",
        "metadata": {"name": "w", "namespace": "ml"},
        "spec": {"clusterSelector": {"matchLabels": {"region": "b"}}},
    }
    clusters = [a_cluster(name, a_pool(nodeCount=1)) for name in ("a", "b")]
    wants = a_deployment(modelCacheRef={"name": "w"})
    assert [
        p["cluster"]
        for p in planned(a_class(), *clusters, cache, wants)[0]["placements"]
    ] == ["b"]
    held = planned(a_class(), *clusters, wants)[0]
    assert (held["placements"], held["message"]) == (
        [],
        "0 of 1 replicas scheduled. ModelCache w not found; holding replica placement",
    )


STORAGE = [
    ("GKE", {"cluster": {"source": "GKE"}}, "modelplane-rwx"),
    ("Vultr never", {"cluster": {"source": "Vultr"}}, ""),
    (
        "existing with one",
        {
            "cluster": {
                "source": "Existing",
                "existing": {"cache": {"storageClassName": "nfs"}},
            }
        },
        "nfs",
    ),
    ("existing without", {"cluster": {"source": "Existing", "existing": {}}}, ""),
]


@pytest.mark.parametrize(
    ("story", "spec", "storage"), STORAGE, ids=[row[0] for row in STORAGE]
)
def test_the_storage_class_follows_from_the_source(
    story: str, spec: Tree, storage: str
) -> None:
    del story
    assert offline_cluster(a_cluster("a", **spec), {}).cache_storage_class == storage


@pytest.mark.parametrize(
    ("published", "milli"),
    [({}, 12_500), ({"priceMilli": 7}, 7)],
    ids=["of its class", "as published"],
)
def test_a_pool_has_a_price(published: Tree, milli: int) -> None:
    priced = a_class(annotations={"modelplane.ai/price-per-node-hour": "12.5"})
    status = {
        "gpuPools": [
            {"name": "p", "nodes": 3, "devices": priced["spec"]["devices"], **published}
        ]
    }
    view = offline_cluster(
        a_cluster("a", a_pool(), status=status), {priced["metadata"]["name"]: priced}
    )
    assert [pool.price_milli for pool in view.pools] == [milli]


def test_a_search_that_is_cut_short_is_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_fitting, "STEPS_MAX", 3)
    wide = a_deployment()
    engines = wide["spec"]["template"]["spec"]["engines"]
    # The first two engines fit the second pool together, which only a search finds.
    wide["spec"]["template"]["spec"]["engines"] = [
        {**engines[0], "name": f"e{copies}-{number}", "copies": copies}
        for number, copies in enumerate((2, 2, 3))
    ]
    pools = [a_pool("p0", nodeCount=3), a_pool("p1", nodeCount=4)]
    decision = planned(a_class(), a_cluster("a", *pools), wide)[0]
    assert decision["placements"] == []
    assert {pool["reason"] for pool in decision["clusters"]["a"]["pools"].values()} == {
        "Undecided"
    }
    assert "cut short" in decision["clusters"]["a"]["detail"]


def test_a_deployment_whose_selector_does_not_compile_is_reported() -> None:
    broken = a_deployment()
    broken["spec"]["template"]["spec"]["engines"][0]["members"][0]["nodeSelector"][
        "devices"
    ][0]["selectors"] = [{"cel": "1"}]
    decision = planned(a_class(), a_cluster("a", a_pool()), broken)[0]
    assert decision["message"].startswith(
        "Invalid nodeSelector CEL expression: engine main"
    )
    assert decision["clusters"]["a"] == {
        "reason": "",
        "detail": "",
        "needs": [],
        "pools": {},
    }


def test_an_engine_that_may_span_pools_is_explained_member_by_member() -> None:
    """The leader fits the pool, the three workers do not; both have the name of their
    engine.
    """
    wide = a_deployment()
    engine = wide["spec"]["template"]["spec"]["engines"][0]
    alone = engine["members"][0]
    wide["spec"]["template"]["spec"]["engines"] = [
        {
            **engine,
            "spanPools": True,
            "members": [
                {**alone, "role": "Leader"},
                {**alone, "role": "Worker", "worker": {"nodes": 3}},
            ],
        }
    ]
    decision = planned(a_class(), a_cluster("a", a_pool(nodeCount=2)), wide)[0]
    assert decision["clusters"]["a"]["pools"]["p"] == {
        "reason": "InsufficientNodes",
        "detail": "needs 4 nodes together (main Leader 1, main Worker 3), 2 free of 2",
        "selectors": [],
    }


AS_RESOLVED = [
    ("as the class says", {"selectors": [{"cel": at_least("141Gi")}]}, 7),
    ("no longer matched by the class", {"selectors": [{"cel": at_least("200Gi")}]}, 0),
    ("claimed otherwise than by the class", {"deviceClassName": "mig.nvidia.com"}, 0),
]


@pytest.mark.parametrize(
    ("request_fields", "count"),
    [row[1:] for row in AS_RESOLVED],
    ids=[row[0] for row in AS_RESOLVED],
)
def test_a_replica_that_exists_holds_the_devices_that_it_requests_and_no_whole_node(
    request_fields: Tree, count: int
) -> None:
    existing = a_replica("m-a-0", "m", "a", 0)
    existing["spec"]["engines"][0]["members"][0]["deviceRequests"][0].update(
        request_fields
    )
    options = SchedulerOptions(accounting="device-safe")
    decision = planned(
        a_class(),
        a_cluster("a", a_pool(nodeCount=1)),
        existing,
        a_deployment("n", 9),
        options=options,
    )[0]
    assert len(decision["placements"]) == count


def test_a_replica_whose_selector_does_not_compile_holds_a_whole_node() -> None:
    existing = a_replica("m-a-0", "m", "a", 0)
    existing["spec"]["engines"][0]["members"][0]["deviceRequests"][0]["selectors"] = [
        {"cel": "device."}
    ]
    options = SchedulerOptions(accounting="device-safe")
    decision = planned(
        a_class(),
        a_cluster("a", a_pool(nodeCount=2)),
        existing,
        a_deployment("n", 9),
        options=options,
    )[0]
    assert len(decision["placements"]) == 1
