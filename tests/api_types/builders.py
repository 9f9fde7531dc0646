"""Valid documents for tests to change: each builder states only what a test is about.

`CUT` as a value removes the field. A dict merges into the existing value; anything else
replaces it.
"""

import copy
import re
from typing import Any

from api_types.validation.manifests import Admitted, Checks, InvalidManifest, admit
from fleet_client.checks import CHECKS

CUT = object()
GROUP_VERSION = "modelplane.ai/v1alpha1"


def merged(base: Any, change: Any) -> Any:
    """Return a document with a change merged into it."""
    if not isinstance(base, dict) or not isinstance(change, dict):
        return copy.deepcopy(change) if isinstance(change, dict | list) else change
    out = copy.deepcopy(base)
    for key, value in change.items():
        if value is CUT:
            out.pop(key, None)
        else:
            out[key] = merged(out.get(key), value)
    return out


def a_document(
    kind: str, name: str = "x", spec: Any = None, **metadata: Any
) -> dict[str, Any]:
    group = (
        "infrastructure.modelplane.ai/v1alpha1"
        if kind == "ServingStack"
        else GROUP_VERSION
    )
    return {
        "apiVersion": group,
        "kind": kind,
        "metadata": {"name": name, **metadata},
        "spec": spec,
    }


CONTAINER = {"name": "engine", "image": "registry.example/vllm:1"}
TEMPLATE = {"spec": {"containers": [CONTAINER]}}
REQUEST = {"name": "gpu", "selectors": [{"cel": "true"}]}
MEMBER = {"nodeSelector": {"devices": [REQUEST]}, "template": TEMPLATE}


def a_member(**change: Any) -> dict[str, Any]:
    out: dict[str, Any] = merged(MEMBER, change)
    return out


def a_container(**change: Any) -> dict[str, Any]:
    """Return a member with a changed container."""
    return a_member(template={"spec": {"containers": [merged(CONTAINER, change)]}})


def an_engine(
    *members: dict[str, Any], name: str = "a", **change: Any
) -> dict[str, Any]:
    """Return an engine with the given members, by default one Standalone member."""
    out: dict[str, Any] = merged(
        {"name": name, "members": list(members) or [a_member()]}, change
    )
    return out


def a_deployment(
    *engines: dict[str, Any], top: dict[str, Any] | None = None, **template_spec: Any
) -> dict[str, Any]:
    """Return a ModelDeployment with these engines.

    `top` changes `spec`; other arguments change `spec.template.spec`.
    """
    spec = {
        "replicas": 1,
        "template": {"spec": {"engines": list(engines) or [an_engine()]}},
    }
    spec = merged(spec, {"template": {"spec": template_spec}})
    return a_document(
        "ModelDeployment", "qwen", merged(spec, top or {}), namespace="ml"
    )


GANG_LEADER = {**MEMBER, "role": "Leader"}
GANG_WORKER = {"role": "Worker", "template": TEMPLATE}

DEVICE = {
    "name": "gpu",
    "driver": "gpu.nvidia.com",
    "deviceClassName": "gpu.nvidia.com",
}


def a_class(*devices: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return a_document(
        "InferenceClass", "h200", merged({"devices": list(devices) or [DEVICE]}, spec)
    )


ORIGINS: dict[str, dict[str, Any]] = {
    "Existing": {"existing": {"secretRef": {"name": "kube"}}},
    "GKE": {"gke": {"region": "europe-west4"}},
    "EKS": {"eks": {"region": "us-east-2"}},
    "AKS": {"aks": {"location": "westeurope"}},
    "Nebius": {"nebius": {}},
    "Vultr": {"vultr": {"region": "ewr"}},
}
POOL = {"name": "p", "className": "h200"}
ZONED = {"GKE": ["z-a"], "EKS": ["z-a"]}


def a_pool(source: str = "Existing", **change: Any) -> dict[str, Any]:
    """Return a pool that its source accepts."""
    zones = {"zones": ZONED[source]} if source in ZONED else {}
    out: dict[str, Any] = merged({**POOL, **zones}, change)
    return out


def a_cluster(
    *pools: dict[str, Any], source: str = "Existing", cluster: Any = None, **spec: Any
) -> dict[str, Any]:
    base = {
        "cluster": {"source": source, **ORIGINS[source]},
        "nodePools": list(pools) or [a_pool(source)],
    }
    return a_document(
        "InferenceCluster",
        "eu-1",
        merged(merged(base, {"cluster": cluster or {}}), spec),
    )


def a_service(*entries: dict[str, Any], **spec: Any) -> dict[str, Any]:
    entry = {"selector": {"matchLabels": {"modelplane.ai/deployment": "qwen"}}}
    return a_document(
        "ModelService",
        "chat",
        merged({"endpoints": list(entries) or [entry]}, spec),
        namespace="ml",
    )


def an_endpoint(**spec: Any) -> dict[str, Any]:
    """Return the ModelEndpoint of a user."""
    return a_document(
        "ModelEndpoint",
        "out",
        merged({"url": "https://api.example.com/v1"}, spec),
        namespace="ml",
    )


def a_cache(hugging_face: Any = None, **spec: Any) -> dict[str, Any]:
    base = {
        "source": "HuggingFace",
        "huggingFace": merged(
            {"repo": "acme/model", "sizeGiB": 10}, hugging_face or {}
        ),
    }
    return a_document("ModelCache", "weights", merged(base, spec), namespace="ml")


def a_gateway(
    name: str = "default", traefik: Any = None, **spec: Any
) -> dict[str, Any]:
    base = {"backend": "Traefik", "traefik": {"version": "41.0.2"}}
    return a_document(
        "InferenceGateway",
        name,
        merged(merged(base, {"traefik": traefik} if traefik else {}), spec),
    )


def an_envoy_gateway(**envoy: Any) -> dict[str, Any]:
    block = {"envoy": envoy} if envoy else {}
    return a_document("InferenceGateway", "default", {"backend": "Envoy", **block})


RESOLVED = {"name": "gpu", "deviceClassName": "gpu.nvidia.com"}
REPLICA_MEMBER = {
    "nodePoolName": "p",
    "deviceRequests": [RESOLVED],
    "template": TEMPLATE,
}


def a_replica(**member: Any) -> dict[str, Any]:
    """Return a ModelReplica with one engine of one member."""
    spec = {
        "clusterName": "eu-1",
        "engines": [{"name": "a", "members": [merged(REPLICA_MEMBER, member)]}],
    }
    return a_document("ModelReplica", "qwen-1", spec, namespace="ml")


def a_stack(**spec: Any) -> dict[str, Any]:
    base = {"secrets": [{"type": "Kubeconfig", "name": "eu-1", "key": "kubeconfig"}]}
    return a_document(
        "ServingStack", "eu-1", merged(base, spec), namespace="modelplane-system"
    )


def problems(document: dict[str, Any], checks: Checks = CHECKS) -> list[str]:
    """Return the problems of a document as `<field>: <problem>`."""
    try:
        admit(document, checks)
    except InvalidManifest as error:
        return [f"{one.field}: {one.problem}" for one in error.problems]
    return []


def accepted(document: dict[str, Any], checks: Checks = CHECKS) -> Admitted:
    """Admit a document, which must be accepted."""
    return admit(document, checks)


def warnings(document: dict[str, Any]) -> list[str]:
    """Return the warnings about an accepted document, without the object's name."""
    title = re.compile(r"^\w+ \S+: ")
    return [title.sub("", line, count=1) for line in admit(document, CHECKS).warnings]
