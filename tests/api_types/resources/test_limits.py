"""Every bound is accepted at both ends and rejected one step beyond."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from api_types.validation.manifests import NO_CHECKS
from tests.api_types import builders
from tests.api_types.builders import (
    DEVICE,
    GANG_LEADER,
    GANG_WORKER,
    REQUEST,
    RESOLVED,
    TEMPLATE,
    a_cache,
    a_class,
    a_cluster,
    a_container,
    a_deployment,
    a_document,
    a_gateway,
    a_member,
    a_pool,
    a_replica,
    a_service,
    a_stack,
    an_endpoint,
    an_engine,
    an_envoy_gateway,
    merged,
)


def problems(document: dict[str, Any]) -> list[str]:
    """Return the problems of a document, without the scheduler's own checks."""
    return builders.problems(document, NO_CHECKS)


Make = Callable[[Any], dict[str, Any]]


@dataclass(frozen=True)
class Limit:
    """A field with its minimum and maximum; `field` is the end of its path."""

    story: str
    field: str
    make: Make
    low: int | None = None
    high: int | None = None


def followed(**change: Any) -> dict[str, Any]:
    wanted = {"mode": "Precise", "modelName": "m", "tokenizerUrl": "http://r"} | change
    return a_deployment(serving={"prefixCache": wanted})


def provisioned(cloud: str, **recipe: Any) -> dict[str, Any]:
    """Return a class with the provisioning parameters of a cloud."""
    base: dict[str, dict[str, Any]] = {
        "GKE": {"machineType": "a3"},
        "EKS": {"instanceType": "p5"},
        "AKS": {"vmSize": "nd"},
        "Nebius": {"platform": "gpu", "preset": "8gpu"},
        "Vultr": {"plan": "vcg"},
    }
    block = {**base[cloud], "accelerator": {"type": "h200", "count": 8}}
    return a_class(
        provisioning={"provider": cloud, cloud.lower(): merged(block, recipe)}
    )


def with_request(**change: Any) -> dict[str, Any]:
    """Return a deployment with a changed device request."""
    return a_deployment(
        an_engine(a_member(nodeSelector={"devices": [merged(REQUEST, change)]}))
    )


def with_liveness(**liveness: int) -> dict[str, Any]:
    """Return a deployment with a liveness check."""
    return a_deployment(an_engine(a_member(probes={"liveness": liveness})))


def numbered(item: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Return a number of items with unique names."""
    return [{**item, "name": f"n{index}"} for index in range(count)]


def keys(count: int, value: Any = "v") -> dict[str, Any]:
    """Return a map with a number of keys."""
    return {f"k{index}": value for index in range(count)}


def pod(**metadata: Any) -> dict[str, Any]:
    return a_deployment(
        an_engine(a_member(template={**TEMPLATE, "metadata": metadata}))
    )


def constrained(*constraints: dict[str, Any], named: int = 0) -> dict[str, Any]:
    """Return a deployment with constrained devices and two members."""
    wanted = [
        {"matchAttribute": "a.example/b", **constraint} for constraint in constraints
    ]
    requests = [{**REQUEST, "name": f"r{index}"} for index in range(named)] or [REQUEST]
    leader, worker = (
        {**member, "nodeSelector": {"devices": asked}}
        for member, asked in ((GANG_LEADER, requests[:8]), (GANG_WORKER, requests[-9:]))
    )
    return a_deployment(
        an_engine(leader, worker, topology={"deviceConstraints": wanted})
    )


COUNTS = [
    Limit("replicas", "replicas", lambda n: a_deployment(top={"replicas": n}), 0, 1000),
    Limit("copies", "copies", lambda n: a_deployment(an_engine(copies=n)), 1, 64),
    Limit(
        "worker nodes",
        "worker.nodes",
        lambda n: a_deployment(
            an_engine(GANG_LEADER, {**GANG_WORKER, "worker": {"nodes": n}})
        ),
        1,
        63,
    ),
    Limit(
        "time to load",
        "startupSeconds",
        lambda n: a_deployment(an_engine(a_member(probes={"startupSeconds": n}))),
        30,
        21_600,
    ),
    Limit(
        "period of liveness",
        "periodSeconds",
        lambda n: with_liveness(periodSeconds=n),
        5,
        300,
    ),
    Limit(
        "time-out of liveness",
        "timeoutSeconds",
        lambda n: with_liveness(timeoutSeconds=n),
        1,
        120,
    ),
    Limit(
        "failures of liveness",
        "failureThreshold",
        lambda n: with_liveness(failureThreshold=n),
        1,
        60,
    ),
    Limit(
        "ranks of a pod",
        "dataParallel.size",
        lambda n: a_deployment(an_engine(dataParallel={"size": n})),
        1,
        8,
    ),
    Limit(
        "waiting requests",
        "flowControl.maxRequests",
        lambda n: a_deployment(serving={"flowControl": {"maxRequests": n}}),
        1,
        1_000_000,
    ),
    Limit(
        "seconds of waiting",
        "flowControl.queueSeconds",
        lambda n: a_deployment(serving={"flowControl": {"queueSeconds": n}}),
        1,
        3600,
    ),
    Limit(
        "port of events",
        "prefixCache.eventsPort",
        lambda n: followed(eventsPort=n),
        1024,
        65535,
    ),
    Limit(
        "letters of a model's name",
        "prefixCache.modelName",
        lambda n: followed(modelName="m" * n),
        1,
        253,
    ),
    Limit(
        "letters of a tokenizer's address",
        "prefixCache.tokenizerUrl",
        lambda n: followed(tokenizerUrl="http://r/".ljust(n, "a")),
        high=1024,
    ),
    Limit(
        "pods per node",
        "podsPerNode",
        lambda n: a_deployment(an_engine(a_member(podsPerNode=n))),
        1,
        64,
    ),
    Limit(
        "sleep before a stop",
        "preStopSeconds",
        lambda n: a_deployment(an_engine(drain={"preStopSeconds": n})),
        0,
        3600,
    ),
    Limit(
        "grace period",
        "graceSeconds",
        lambda n: a_deployment(an_engine(drain={"graceSeconds": n})),
        1,
        7200,
    ),
    Limit("requested devices", "count", lambda n: with_request(count=n), 1, 64),
    Limit(
        "resolved devices",
        "count",
        lambda n: a_replica(deviceRequests=[{**RESOLVED, "count": n}]),
        1,
        64,
    ),
    Limit(
        "devices of a class", "count", lambda n: a_class({**DEVICE, "count": n}), 1, 64
    ),
    Limit(
        "accelerators",
        "accelerator.count",
        lambda n: provisioned("GKE", accelerator={"count": n}),
        1,
        16,
    ),
    Limit(
        "disk of a GKE node",
        "diskSizeGb",
        lambda n: provisioned("GKE", diskSizeGb=n),
        10,
        65536,
    ),
    Limit(
        "disk of an EKS node",
        "diskSizeGb",
        lambda n: provisioned("EKS", diskSizeGb=n),
        10,
        65536,
    ),
    Limit(
        "disk of an AKS node",
        "diskSizeGb",
        lambda n: provisioned("AKS", diskSizeGb=n),
        10,
        65536,
    ),
    Limit(
        "disk of a Nebius node",
        "diskSizeGb",
        lambda n: provisioned("Nebius", diskSizeGb=n),
        10,
        65536,
    ),
    Limit(
        "64-bit attribute",
        "attributes.a.int",
        lambda n: a_class({**DEVICE, "attributes": {"a": {"int": n}}}),
        -(2**63),
        2**63 - 1,
    ),
    Limit("nodes of a pool", "nodeCount", lambda n: a_cluster(a_pool(nodeCount=n)), 0),
    Limit(
        "nodes of an EKS pool",
        "nodeCount",
        lambda n: a_cluster(a_pool("EKS", nodeCount=n), source="EKS"),
        0,
        1000,
    ),
    Limit(
        "nodes of a Vultr pool",
        "nodeCount",
        lambda n: a_cluster(a_pool("Vultr", nodeCount=n), source="Vultr"),
        1,
        1000,
    ),
    Limit(
        "least nodes of a pool",
        "minNodeCount",
        lambda n: a_cluster(a_pool(minNodeCount=n)),
        0,
    ),
    Limit(
        "least nodes of a Vultr pool",
        "minNodeCount",
        lambda n: a_cluster(
            a_pool("Vultr", minNodeCount=n, maxNodeCount=5), source="Vultr"
        ),
        1,
        5,
    ),
    Limit(
        "most nodes of a pool",
        "maxNodeCount",
        lambda n: a_cluster(a_pool(maxNodeCount=n)),
        1,
    ),
    Limit(
        "most nodes of a GKE pool",
        "maxNodeCount",
        lambda n: a_cluster(a_pool("GKE", maxNodeCount=n), source="GKE"),
        1,
        1000,
    ),
    Limit(
        "weight",
        "weight",
        lambda n: a_service({"weight": n, "selector": {"matchLabels": {"a": "b"}}}),
        1,
        1_000_000,
    ),
    Limit("cache size", "sizeGiB", lambda n: a_cache({"sizeGiB": n}), 1, 100_000),
    Limit(
        "port of a listener",
        "port",
        lambda n: a_stack(
            gateway={"listeners": [{"name": "a", "port": n, "protocol": "TCP"}]}
        ),
        1,
        65535,
    ),
    Limit(
        "partition",
        "rollout.partition",
        lambda n: a_deployment(top={"rollout": {"partition": n}}),
        0,
    ),
    Limit(
        "drain deadline",
        "drain.deadlineSeconds",
        lambda n: a_deployment(top={"drain": {"deadlineSeconds": n}}),
        0,
    ),
    Limit(
        "unavailable replicas",
        "rollout.maxUnavailable",
        lambda n: a_deployment(top={"rollout": {"maxUnavailable": n}}),
        0,
    ),
    Limit(
        "replicas left by preemption",
        "minAvailable",
        lambda n: a_deployment(top={"scheduling": {"minAvailable": n}}),
        0,
    ),
    Limit(
        "gang of replicas",
        "gangReplicas",
        lambda n: a_deployment(top={"scheduling": {"gangReplicas": n}}),
        1,
    ),
    Limit(
        "skew",
        "maxSkew",
        lambda n: a_deployment(
            top={
                "scheduling": {
                    "topologySpread": [{"topologyKey": "zone", "maxSkew": n}]
                }
            }
        ),
        1,
    ),
]

ITEMS = [
    Limit(
        "engines",
        "engines",
        lambda n: a_deployment(
            engines=[an_engine(name=f"e{index}") for index in range(n)]
        ),
        1,
        8,
    ),
    Limit(
        "device requests",
        "devices",
        lambda n: a_deployment(
            an_engine(a_member(nodeSelector={"devices": numbered(REQUEST, n)}))
        ),
        1,
        16,
    ),
    Limit(
        "selectors",
        "selectors",
        lambda n: with_request(selectors=[{"cel": "true"}] * n),
        1,
        8,
    ),
    Limit(
        "device constraints",
        "deviceConstraints",
        lambda n: constrained(*[{}] * n),
        1,
        8,
    ),
    Limit(
        "constrained requests",
        "requests",
        lambda n: constrained(
            {"requests": [f"r{index}" for index in range(n)]}, named=n
        ),
        1,
        16,
    ),
    Limit(
        "resolved requests",
        "deviceRequests",
        lambda n: a_replica(deviceRequests=numbered(RESOLVED, n)),
        1,
        16,
    ),
    Limit(
        "resolved selectors",
        "selectors",
        lambda n: a_replica(
            deviceRequests=[{**RESOLVED, "selectors": [{"cel": "true"}] * n}]
        ),
        0,
        8,
    ),
    Limit("devices", "devices", lambda n: a_class(devices=numbered(DEVICE, n)), 1, 16),
    Limit(
        "attributes",
        "attributes",
        lambda n: a_class({**DEVICE, "attributes": keys(n, {"bool": True})}),
        0,
        32,
    ),
    Limit(
        "capacities",
        "capacity",
        lambda n: a_class({**DEVICE, "capacity": keys(n, {"value": "1"})}),
        0,
        32,
    ),
    Limit(
        "pools", "nodePools", lambda n: a_cluster(nodePools=numbered(a_pool(), n)), 1, 8
    ),
    Limit(
        "zones on GKE",
        "zones",
        lambda n: a_cluster(a_pool("GKE", zones=["z"] * n), source="GKE"),
        1,
        8,
    ),
    Limit(
        "zones on EKS",
        "zones",
        lambda n: a_cluster(a_pool("EKS", zones=["z"] * n), source="EKS"),
        0,
        8,
    ),
    Limit(
        "zones on AKS",
        "zones",
        lambda n: a_cluster(a_pool("AKS", zones=["1"] * n), source="AKS"),
        0,
        3,
    ),
    Limit(
        "service entries",
        "endpoints",
        lambda n: a_service(endpoints=[{"selector": {"matchLabels": {"a": "b"}}}] * n),
        1,
    ),
    Limit(
        "stack secrets",
        "secrets",
        lambda n: a_stack(
            secrets=[{"type": "Kubeconfig", "name": "a", "key": "k"}] * n
        ),
        1,
        8,
    ),
    Limit(
        "listeners",
        "listeners",
        lambda n: a_stack(
            gateway={"listeners": numbered({"port": 80, "protocol": "HTTP"}, n)}
        ),
        0,
        8,
    ),
    Limit(
        "replica labels",
        "labels",
        lambda n: a_deployment(top={"template": {"metadata": {"labels": keys(n)}}}),
        0,
        32,
    ),
    Limit("pod labels", "labels", lambda n: pod(labels=keys(n)), 0, 32),
    Limit("pod annotations", "annotations", lambda n: pod(annotations=keys(n)), 0, 32),
]

LENGTHS = [
    Limit(
        "object name",
        "metadata.name",
        lambda s: a_document("ModelCache", s, a_cache()["spec"]),
        1,
        63,
    ),
    Limit(
        "namespace",
        "metadata.namespace",
        lambda s: merged(a_cache(), {"metadata": {"namespace": s}}),
        1,
        63,
    ),
    Limit("engine name", "name", lambda s: a_deployment(an_engine(name=s)), 1, 63),
    Limit("request name", "name", lambda s: with_request(name=s), 1, 63),
    Limit("CEL", "cel", lambda s: with_request(selectors=[{"cel": s}]), 1, 10240),
    Limit(
        "image",
        "image",
        lambda s: a_deployment(an_engine(a_container(image=s))),
        1,
    ),
    Limit("annotation value", "k", lambda s: pod(annotations={"k": s}), 0, 8192),
    Limit("label value", "labels.k", lambda s: pod(labels={"k": s}), 0, 63),
    Limit("device name", "name", lambda s: a_class({**DEVICE, "name": s}), 1, 63),
    Limit("driver", "driver", lambda s: a_class({**DEVICE, "driver": s}), 1, 253),
    Limit(
        "device class",
        "deviceClassName",
        lambda s: a_class({**DEVICE, "deviceClassName": s}),
        1,
        253,
    ),
    Limit(
        "string attribute",
        "string",
        lambda s: a_class({**DEVICE, "attributes": {"a": {"string": s}}}),
        0,
        253,
    ),
    Limit(
        "accelerator type",
        "type",
        lambda s: provisioned("GKE", accelerator={"type": s}),
        1,
        63,
    ),
    Limit(
        "machine type",
        "machineType",
        lambda s: provisioned("GKE", machineType=s),
        1,
        63,
    ),
    Limit(
        "instance type",
        "instanceType",
        lambda s: provisioned("EKS", instanceType=s),
        1,
        63,
    ),
    Limit("VM size", "vmSize", lambda s: provisioned("AKS", vmSize=s), 1, 63),
    Limit("platform", "platform", lambda s: provisioned("Nebius", platform=s), 1, 63),
    Limit(
        "drivers preset",
        "driversPreset",
        lambda s: provisioned("Nebius", driversPreset=s),
        1,
        63,
    ),
    Limit("plan", "plan", lambda s: provisioned("Vultr", plan=s), 1, 63),
    Limit("pool name", "name", lambda s: a_cluster(a_pool(name=s)), 1, 40),
    Limit(
        "AKS pool name",
        "name",
        lambda s: a_cluster(a_pool("AKS", name=s), source="AKS"),
        1,
        12,
    ),
    Limit("class name", "className", lambda s: a_cluster(a_pool(className=s)), 1, 253),
    Limit(
        "GKE zone",
        "zones[0]",
        lambda s: a_cluster(a_pool("GKE", zones=[s]), source="GKE"),
        1,
        63,
    ),
    Limit(
        "AKS zone",
        "zones[0]",
        lambda s: a_cluster(a_pool("AKS", zones=[s]), source="AKS"),
        1,
        8,
    ),
    Limit(
        "region",
        "region",
        lambda s: a_cluster(source="GKE", cluster={"gke": {"region": s}}),
        1,
        32,
    ),
    Limit(
        "version",
        "kubernetesVersion",
        lambda s: a_cluster(source="GKE", cluster={"gke": {"kubernetesVersion": s}}),
        1,
        16,
    ),
    Limit(
        "kubeconfig Secret",
        "name",
        lambda s: a_cluster(cluster={"existing": {"secretRef": {"name": s}}}),
        1,
        253,
    ),
    Limit(
        "storage class",
        "storageClassName",
        lambda s: a_cluster(cluster={"existing": {"cache": {"storageClassName": s}}}),
        1,
        253,
    ),
    Limit(
        "fabric",
        "fabric",
        lambda s: a_cluster(
            a_pool(
                "Nebius", fabric={"type": "InfiniBand", "infiniband": {"fabric": s}}
            ),
            source="Nebius",
        ),
        1,
        63,
    ),
    Limit(
        "taint key",
        "key",
        lambda s: a_cluster(taints=[{"key": s, "effect": "NoExecute"}]),
        1,
    ),
    Limit(
        "cache reference", "name", lambda s: a_deployment(modelCacheRef={"name": s}), 1
    ),
    Limit(
        "cluster of a replica",
        "clusterName",
        lambda s: merged(a_replica(), {"spec": {"clusterName": s}}),
        1,
    ),
    Limit("pool of a replica", "nodePoolName", lambda s: a_replica(nodePoolName=s), 1),
    Limit("repository", "repo", lambda s: a_cache({"repo": s}), 1),
    Limit(
        "driver root", "nvidiaDriverRoot", lambda s: a_stack(nvidiaDriverRoot=s), 0, 512
    ),
    Limit("pin", "certManager", lambda s: a_stack(versions={"certManager": s}), 1, 32),
    Limit(
        "gateway class", "className", lambda s: a_stack(gateway={"className": s}), 1, 63
    ),
]

RESERVATION = "capacityBlock.capacityReservationId"


def at_the_ends(limits: list[Limit]) -> list[Any]:
    """Return the bounds of each limit, which must be accepted."""
    return [
        pytest.param(limit, size, id=f"{limit.story} of {size}")
        for limit in limits
        for size in (limit.low, limit.high)
        if size is not None
    ]


def beyond_the_ends(limits: list[Limit], floor: int | None = None) -> list[Any]:
    """Return one step beyond each bound, which must be rejected."""
    steps = [
        (limit, limit.low - 1)
        for limit in limits
        if limit.low is not None and (floor is None or limit.low > floor)
    ]
    steps += [(limit, limit.high + 1) for limit in limits if limit.high is not None]
    return [
        pytest.param(limit, size, id=f"{limit.story} of {size}")
        for limit, size in steps
    ]


def only_problem(limit: Limit, value: Any) -> str:
    """Return the path of the only rejected field."""
    (problem,) = problems(limit.make(value))
    return problem.partition(": ")[0]


@pytest.mark.parametrize(("limit", "size"), at_the_ends(COUNTS + ITEMS))
def test_a_number_at_its_bound_is_accepted(limit: Limit, size: int) -> None:
    assert problems(limit.make(size)) == []


@pytest.mark.parametrize(
    ("limit", "size"), [*beyond_the_ends(COUNTS), *beyond_the_ends(ITEMS, floor=0)]
)
def test_a_number_beyond_its_bound_is_refused_at_its_field(
    limit: Limit, size: int
) -> None:
    assert only_problem(limit, size).endswith(limit.field)


@pytest.mark.parametrize(("limit", "size"), at_the_ends(LENGTHS))
def test_a_text_at_its_bound_is_accepted(limit: Limit, size: int) -> None:
    assert problems(limit.make("a" * size)) == []


@pytest.mark.parametrize(("limit", "size"), beyond_the_ends(LENGTHS, floor=0))
def test_a_text_beyond_its_bound_is_refused_at_its_field(
    limit: Limit, size: int
) -> None:
    assert only_problem(limit, "a" * size).endswith(limit.field)


RESERVATIONS = [
    ("cr-", False),
    ("cr-0", True),
    ("cr-" + "a" * 61, True),
    ("cr-" + "a" * 62, False),
    ("cr-xyz", False),
    ("xcr-0", False),
]


@pytest.mark.parametrize(
    ("text", "accepted"),
    RESERVATIONS,
    ids=[f"{text[:8]} of {len(text)}" for text, _ in RESERVATIONS],
)
def test_a_reservation_id_has_its_form_and_length(text: str, accepted: bool) -> None:
    document = a_cluster(
        a_pool("EKS", capacityBlock={"capacityReservationId": text}), source="EKS"
    )
    assert (problems(document) == []) is accepted


PERCENTAGES = [
    ("0%", True),
    ("25%", True),
    ("100%", True),
    ("101%", False),
    ("-1%", False),
    ("half", False),
    ("25", False),
    (1.5, False),
    (True, False),
]


@pytest.mark.parametrize(
    ("value", "accepted"),
    PERCENTAGES,
    ids=[f"{value}" for value, _ in PERCENTAGES],
)
def test_a_budget_is_a_count_or_a_percentage(value: Any, accepted: bool) -> None:
    document = a_deployment(top={"rollout": {"maxSurge": value}})
    want = (
        []
        if accepted
        else [
            (
                "spec.rollout.maxSurge: must be a whole number of at least 0, or a "
                'percentage such as "25%"'
            )
        ]
    )
    assert problems(document) == want


CHOICES: list[tuple[str, Make, tuple[str, ...], str]] = [
    ("source", lambda v: a_cluster(cluster={"source": v}), (), "spec.cluster.source"),
    (
        "effect of a taint",
        lambda v: a_cluster(taints=[{"key": "a", "effect": v}]),
        ("NoSchedule", "NoExecute"),
        "spec.taints[0].effect",
    ),
    (
        "claim",
        lambda v: a_class({**DEVICE, "claim": v, "resourceName": "acme.example/gpu"}),
        ("DRA", "Synthetic", "DevicePlugin"),
        ".claim",
    ),
    (
        "provider",
        lambda v: a_class(provisioning={"provider": v}),
        (),
        "spec.provisioning.provider",
    ),
    (
        "rollout type",
        lambda v: a_deployment(top={"rollout": {"type": v}}),
        ("Rolling", "AllAtOnce"),
        "spec.rollout.type",
    ),
    (
        "profile",
        lambda v: a_deployment(top={"scheduling": {"profile": v}}),
        ("default", "balanced", "dense", "cheap", "near", "resilient"),
        "spec.scheduling.profile",
    ),
    (
        "preemption",
        lambda v: a_deployment(top={"scheduling": {"preemptionPolicy": v}}),
        ("Never", "LowerPriority"),
        "preemptionPolicy",
    ),
    (
        "network domain",
        lambda v: a_deployment(top={"scheduling": {"networkDomain": v}}),
        ("Required", "Preferred", "Ignore"),
        "networkDomain",
    ),
    (
        "backend",
        lambda v: an_envoy_gateway() if v == "Envoy" else a_gateway(backend=v),
        ("Traefik", "Envoy"),
        "spec.backend",
    ),
    (
        "protocol",
        lambda v: a_stack(
            gateway={"listeners": [{"name": "a", "port": 1, "protocol": v}]}
        ),
        ("HTTP", "TCP"),
        "protocol",
    ),
]


@pytest.mark.parametrize(
    ("make", "allowed", "field"),
    [case[1:] for case in CHOICES],
    ids=[f"choice of {case[0]}" for case in CHOICES],
)
def test_a_choice_takes_its_values_and_no_other(
    make: Make, allowed: tuple[str, ...], field: str
) -> None:
    for value in allowed:
        assert problems(make(value)) == []
    (problem,) = problems(make("Other"))
    assert f"{field}: must be " in problem
    assert problem.endswith('got "Other"')


def test_an_endpoint_url_of_one_character_is_refused_for_its_host_and_not_its_length() -> (
    None
):
    assert problems(an_endpoint(url="a")) == [
        "spec.url: has no host; write it as https://host[:port]/path"
    ]
