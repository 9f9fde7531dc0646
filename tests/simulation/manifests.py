"""Random manifests: the initial fleet of a script, and the documents that its users
apply.
"""

from collections.abc import Sequence
from random import Random
from typing import Any

from api_types import labels

Json = dict[str, Any]

API_VERSION = "modelplane.ai/v1alpha1"
NAMESPACES = ("ml", "web")
REGIONS = ("eu", "us")
DEVICES = {"h100-8x": (8, "80Gi"), "l4-4x": (4, "24Gi"), "old-2x": (2, "16Gi")}
"""The classes: GPUs of a node, and the memory of each."""
CLOUD_CLASS = "gke-l4"
"""The class of nodes at Google Cloud, with one GPU each."""
PRIORITIES = {"low": -10, "high": 100}
REGION = "modelplane.ai/region"


def a_class(name: str, *, price: str = "", gpus: int = 0, provisioning: Json | None = None) -> Json:
    """Return a class of nodes with GPUs. `gpus`: another count than usual."""
    count, memory = DEVICES[name]
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": gpus or count,
        "capacity": {"memory": {"value": memory}},
    }
    metadata = {
        "name": name,
        **({"annotations": {"modelplane.ai/price-per-node-hour": price}} if price else {}),
    }
    spec = {"devices": [device], **({"provisioning": provisioning} if provisioning else {})}
    return {"apiVersion": API_VERSION, "kind": "InferenceClass", "metadata": metadata, "spec": spec}


def a_pool(draw: Random, name: str, classes: Sequence[str] = tuple(DEVICES)) -> Json:
    """Return a pool of nodes of a drawn class."""
    return {
        "name": name,
        "className": draw.choice(classes),
        "nodeCount": draw.randint(1, 4),
    }


def a_cluster(
    name: str, pools: Sequence[Json], *, region: str = "eu", managed: bool = False
) -> Json:
    """Return an existing cluster with a storage class for caches.

    `managed`: with a serving stack that the control plane installs.
    """
    annotations = {} if managed else {labels.STACK: "external", labels.ROUTING: "service"}
    origin = {"secretRef": {"name": f"{name}-kubeconfig"}, "cache": {"storageClassName": "rwx"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {
            "name": name,
            "labels": {REGION: region},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {"cluster": {"source": "Existing", "existing": origin}, "nodePools": list(pools)},
    }


def a_cloud_class() -> Json:
    """Return a class of nodes that Google Cloud has."""
    device = {
        "name": "gpu",
        "claim": "DRA",
        "driver": "gpu.nvidia.com",
        "deviceClassName": "gpu.nvidia.com",
        "count": 1,
        "capacity": {"memory": {"value": "24Gi"}},
    }
    machine = {
        "machineType": "g2-standard-8",
        "diskSizeGb": 200,
        "accelerator": {"type": "nvidia-l4", "count": 1},
    }
    spec = {"devices": [device], "provisioning": {"provider": "GKE", "gke": machine}}
    metadata = {"name": CLOUD_CLASS}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceClass",
        "metadata": metadata,
        "spec": spec,
    }


def a_cloud_cluster(draw: Random) -> Json:
    """Return a cluster that is created at Google Cloud."""
    pool = {
        "name": "gpu",
        "className": CLOUD_CLASS,
        "nodeCount": draw.randint(1, 3),
        "zones": ["europe-west4-a"],
    }
    place = {"region": "europe-west4", "credentials": {"name": "gcp"}}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceCluster",
        "metadata": {"name": "gke-1", "labels": {REGION: "eu"}},
        "spec": {"cluster": {"source": "GKE", "gke": place}, "nodePools": [pool]},
    }


def a_gateway(*, managed: bool = False) -> Json:
    """Return the gateway of the control cluster."""
    metadata = {
        "name": "default",
        **({} if managed else {"annotations": {labels.STACK: "external"}}),
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceGateway",
        "metadata": metadata,
        "spec": {"backend": "Traefik", "traefik": {"version": "41.0.2"}},
    }


def a_cache(draw: Random, namespace: str, name: str) -> Json:
    """Return a cache with a drawn source, for all clusters or for one region."""
    source = draw.choice(("HuggingFace", "HuggingFace", "S3", "OCI"))
    blocks = {
        "HuggingFace": {
            "huggingFace": {
                "repo": f"acme/{name}",
                "sizeGiB": 20,
                "authSecret": {"name": "hub", "key": "token"},
            }
        },
        "S3": {
            "s3": {
                "bucket": "acme",
                "prefix": name,
                "region": "eu-central-1",
                "sizeGiB": 20,
                "authSecret": {"name": "bucket"},
            }
        },
        "OCI": {"oci": {"image": f"registry.example/{name}:1", "sizeGiB": 20}},
    }
    spec: Json = {"source": source, **blocks[source]}
    if draw.random() < 0.4:
        spec["clusterSelector"] = {"matchLabels": {REGION: draw.choice(REGIONS)}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def a_deployment(draw: Random, namespace: str, name: str, caches: Sequence[str] = ()) -> Json:
    """Return a deployment of a drawn shape with a drawn policy."""
    template: Json = {"engines": _engines(draw)}
    if any("phase" in engine for engine in template["engines"]):
        template["serving"] = {"mode": "PrefillDecode"}
    if draw.random() < 0.3:
        template["clusterSelector"] = {"matchLabels": {REGION: draw.choice(REGIONS)}}
    if caches and draw.random() < 0.5:
        template["modelCacheRef"] = {"name": draw.choice(list(caches))}
    if draw.random() < 0.2:
        template["tolerations"] = [{"key": "example.com/reserved", "operator": "Exists"}]
    spec: Json = {"replicas": draw.choice((0, 1, 1, 2, 2, 3, 4)), "template": {"spec": template}}
    if draw.random() < 0.6:
        spec["rollout"] = a_rollout(draw)
    if draw.random() < 0.6:
        spec["scheduling"] = _scheduling(draw)
    if draw.random() < 0.2:
        spec["drain"] = {
            "maxUnavailable": draw.choice((1, "50%")),
            "deadlineSeconds": draw.choice((60, 3600)),
        }
    metadata = {"name": name, "namespace": namespace, "labels": {"tier": draw.choice(("x", "y"))}}
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelDeployment",
        "metadata": metadata,
        "spec": spec,
    }


def a_rollout(draw: Random) -> Json:
    """Return a strategy of rollouts."""
    return draw.choice(
        (
            {"type": "AllAtOnce"},
            {"type": "Rolling"},
            {"type": "Rolling", "maxUnavailable": 2},
            {"type": "Rolling", "maxUnavailable": 0, "maxSurge": 1},
            {"type": "Rolling", "maxUnavailable": "50%", "maxSurge": "25%"},
            {"type": "Rolling", "partition": 1},
        )
    )


def a_policy(draw: Random) -> Json:
    """Return a policy of the fleet."""
    policy: Json = {
        "priorityClasses": PRIORITIES,
        "accounting": draw.choice(("node", "node", "device-safe", "device-packed")),
    }
    if draw.random() < 0.5:
        policy["profile"] = draw.choice(("balanced", "dense", "cheap", "near", "resilient"))
    if draw.random() < 0.4:
        policy["quotas"] = [{"namespace": draw.choice(NAMESPACES), "maxNodes": draw.randint(0, 6)}]
    if draw.random() < 0.3:
        policy["classAccounting"] = {draw.choice(tuple(DEVICES)): "device-safe"}
    if draw.random() < 0.3:
        policy |= {"queueOrder": "StrictOrder", "holdForSeconds": draw.choice((0, 300))}
    if draw.random() < 0.3:
        policy["preemptionCooldownSeconds"] = 0
    return policy


def a_service(
    draw: Random, namespace: str, name: str, deployments: Sequence[str], providers: Sequence[str]
) -> Json:
    """Return a service over deployments and external endpoints."""
    selected = [
        {labels.DEPLOYMENT: each}
        for each in draw.sample(list(deployments), min(len(deployments), draw.randint(1, 2)))
    ]
    selected += [
        {"modelplane.ai/external-provider": each}
        for each in draw.sample(list(providers), min(len(providers), draw.randint(0, 1)))
    ]
    entries = [
        {"selector": {"matchLabels": pairs}, "weight": draw.randint(1, 9)}
        for pairs in selected or [{}]
    ]
    if len(entries) > 1 and draw.random() < 0.4:
        entries[-1]["priority"] = 1
    spec: Json = {"endpoints": entries}
    if draw.random() < 0.3:
        spec["retries"] = {"attempts": 2, "codes": [503]}
    if draw.random() < 0.3:
        spec["timeouts"] = {"request": "300s"}
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": spec,
    }


def an_endpoint(draw: Random, namespace: str, name: str) -> Json:
    """Return an external endpoint."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"modelplane.ai/external-provider": name},
    }
    spec = {
        "url": f"https://{name}.example:{draw.choice((443, 8443))}/",
        **({"rewritePath": "/v1/"} if draw.random() < 0.5 else {}),
    }
    return {"apiVersion": API_VERSION, "kind": "ModelEndpoint", "metadata": metadata, "spec": spec}


def with_image(document: Json, image: str) -> Json:
    """Return a deployment with another image in every engine."""
    spec = document["spec"]["template"]["spec"]
    engines = [_engine_with_image(engine, image) for engine in spec["engines"]]
    template = {**document["spec"]["template"], "spec": {**spec, "engines": engines}}
    return {**document, "spec": {**document["spec"], "template": template}}


def _engine_with_image(engine: Json, image: str) -> Json:
    members = []
    for member in engine["members"]:
        containers = [
            {**container, "image": image} for container in member["template"]["spec"]["containers"]
        ]
        members.append(
            {
                **member,
                "template": {"spec": {**member["template"]["spec"], "containers": containers}},
            }
        )
    return {**engine, "members": members}


def _member(draw: Random, gpus: int, **more: Any) -> Json:
    memory = draw.choice(("16Gi", "16Gi", "24Gi", "80Gi"))
    selector = {
        "cel": f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) >= 0'
    }
    container: Json = {"name": "engine", "image": "registry.example/engine:1"}
    if draw.random() < 0.3:
        secret = {"secretKeyRef": {"name": "hub", "key": "token", "optional": True}}
        container["env"] = [{"name": "HF_TOKEN", "valueFrom": secret}]
    return {
        **more,
        "nodeSelector": {"devices": [{"name": "gpu", "count": gpus, "selectors": [selector]}]},
        "template": {"spec": {"containers": [container]}},
    }


def _engines(draw: Random) -> list[Json]:
    gpus = draw.choice((1, 1, 2, 4, 8))
    shape = draw.choice(("alone", "alone", "alone", "gang", "pair"))
    if shape == "alone":
        return [
            {"name": "main", "copies": draw.choice((1, 1, 2)), "members": [_member(draw, gpus)]}
        ]
    if shape == "gang":
        members = [
            _member(draw, gpus, role="Leader"),
            _member(draw, gpus, role="Worker", worker={"nodes": draw.randint(1, 2)}),
        ]
        return [{"name": "gang", "copies": draw.choice((1, 1, 2)), "members": members}]
    return [
        {
            "name": "read",
            "phase": "Prefill",
            "copies": draw.randint(1, 2),
            "members": [_member(draw, gpus)],
        },
        {"name": "write", "phase": "Decode", "copies": 1, "members": [_member(draw, gpus)]},
    ]


def _scheduling(draw: Random) -> Json:
    scheduling: Json = {}
    if draw.random() < 0.6:
        scheduling |= {
            "priorityClassName": draw.choice(tuple(PRIORITIES)),
            "preemptionPolicy": draw.choice(("Never", "LowerPriority")),
        }
    if draw.random() < 0.3:
        when = draw.choice(("DoNotSchedule", "ScheduleAnyway"))
        scheduling["topologySpread"] = [
            {"topologyKey": REGION, "maxSkew": draw.randint(1, 2), "whenUnsatisfiable": when}
        ]
    if draw.random() < 0.2:
        scheduling["antiAffinity"] = {
            "required": [{"selector": {"matchLabels": {"tier": draw.choice(("x", "y"))}}}]
        }
    if draw.random() < 0.2:
        scheduling["minAvailable"] = 1
    if draw.random() < 0.2:
        scheduling["gangReplicas"] = 2
    if draw.random() < 0.2:
        scheduling["profile"] = draw.choice(("dense", "balanced", "near"))
    return scheduling
