"""Random writes of several managers, and CRDs for an API server that receives the same
writes.
"""

import random
from dataclasses import dataclass, field
from typing import Any

from api_types.resources.kinds import KindInfo
from api_types.validation.schema import json_schema
from tests.workflows.environment.harness import a_deployment
from tests.workflows.environment.simulated_clusters import (
    API_VERSION,
    a_class,
    a_cluster,
)

Json = dict[str, Any]
NAME, NAMESPACE = "one", "a"
MANAGERS = ("alpha", "beta", "gamma")
# The parts that an API server needs for server-side apply and defaults; the front does
# the validation.
_KEPT = (
    "type",
    "default",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-int-or-string",
)


@dataclass
class Write:
    """One write.

    `how` is apply, patch, scale, reset or replace.

    The `body` of a replace is a merge patch that the test applies itself.
    """

    how: str
    manager: str
    body: Json = field(default_factory=dict)
    force: bool = False


def a_definition(info: KindInfo) -> Json:
    """Return the CustomResourceDefinition of one of our kinds."""
    schema = _structural(json_schema(info.kind))
    schema["properties"] = {
        "spec": schema["properties"]["spec"],
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    subresources: Json = {"status": {}}
    if info.scale:
        subresources["scale"] = {
            "specReplicasPath": info.scale.spec,
            "statusReplicasPath": info.scale.status,
        }
    version = {
        "name": info.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": subresources,
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{info.plural}.{info.group}"},
        "spec": {
            "group": info.group,
            "names": {
                "kind": info.kind,
                "listKind": f"{info.kind}List",
                "plural": info.plural,
                "singular": info.singular,
            },
            "scope": "Namespaced" if info.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _structural(node: Json) -> Json:
    result = {key: node[key] for key in _KEPT if key in node}
    keys = (
        node.get("items", {}).get("required", [])
        if "x-kubernetes-list-map-keys" in node
        else []
    )
    if "properties" in node:
        result["properties"] = {
            name: _structural(held) for name, held in node["properties"].items()
        }
    if isinstance(node.get("additionalProperties"), dict):
        result["additionalProperties"] = _structural(node["additionalProperties"])
    if "items" in node:
        # Keys without a default must be required.
        result["items"] = _structural(node["items"]) | (
            {"required": keys} if keys else {}
        )
    return result


def the_first(kind: str) -> Json:
    """An object that the front admits."""
    made = {
        "InferenceClass": a_class(NAME),
        "InferenceCluster": a_cluster(NAME),
        "ModelDeployment": a_deployment(NAME, NAMESPACE),
    }
    return made[kind]


def writes(drawn: random.Random, kind: str, count: int) -> list[Write]:
    """Draw the writes after the first one; scaling never repeats a count."""
    return [_write(drawn, kind, number) for number in range(count)]


def _write(drawn: random.Random, kind: str, number: int) -> Write:
    manager = drawn.choice(MANAGERS)
    how = drawn.choices(
        ["apply", "patch", "replace", "reset", "scale"],
        [60, 20, 10, 2, 8 if kind == "ModelDeployment" else 0],
    )[0]
    match how:
        case "apply":
            return Write(
                how,
                manager,
                _identified(kind, _content(drawn, kind)),
                force=drawn.random() < 0.4,
            )
        case "scale":
            return Write(how, "root", {"spec": {"replicas": 10 + number}})
        case "reset":
            return Write("patch", manager, {"metadata": {"managedFields": [{}]}})
        case _:
            return Write(how, manager, _content(drawn, kind, removes=True))


def _identified(kind: str, content: Json) -> Json:
    namespace = {"namespace": NAMESPACE} if kind == "ModelDeployment" else {}
    metadata = {"name": NAME, **namespace, **content.get("metadata", {})}
    return {"apiVersion": API_VERSION, "kind": kind, **content, "metadata": metadata}


def _content(drawn: random.Random, kind: str, *, removes: bool = False) -> Json:
    def some(names: str, values: list[Any]) -> Json:
        chosen = drawn.sample(list(names), drawn.randint(0, len(names)))
        # A merge patch deletes fields with null.
        return {
            name: drawn.choice([*values, None]) if removes else drawn.choice(values)
            for name in chosen
        }

    def maybe(**fields: Any) -> Json:
        return {name: value for name, value in fields.items() if drawn.random() < 0.5}

    texts = ["1", "2"]
    metadata = maybe(labels=some("abc", texts), annotations=some("de", texts))
    match kind:
        case "InferenceClass":
            env = [
                {"name": name, "value": drawn.choice(texts)}
                for name in drawn.sample("XYZ", drawn.randint(0, 3))
            ]
            hugepages = [
                {"size": size, "amount": drawn.choice(["2Gi", "4Gi"])}
                for size in drawn.sample(["2Mi", "1Gi"], drawn.randint(0, 2))
            ]
            attributes = {
                name: {"int": drawn.randint(1, 2)}
                for name in drawn.sample("pqr", drawn.randint(0, 3))
            }
            device = {
                "name": "gpu",
                "driver": "gpu.nvidia.com",
                **maybe(count=drawn.randint(1, 4), attributes=attributes),
            }
            nic = {
                "name": "nic",
                "claim": "Synthetic",
                "driver": "nic.example",
                "count": drawn.randint(1, 2),
            }
            devices = drawn.choice([[device], [nic], [nic, device], [device, nic]])
            policy = maybe(
                env=env,
                hugepages=hugepages,
                capabilities=drawn.sample(
                    ["IPC_LOCK", "SYS_NICE"], drawn.randint(1, 2)
                ),
            )
            spec = maybe(description=drawn.choice(texts), podPolicy=policy)
            # A merge patch replaces lists as a whole.
            spec |= {} if removes else maybe(devices=devices)
        case "InferenceCluster":
            taints = [
                {"key": key, "effect": effect, **maybe(value=drawn.choice(texts))}
                for key in drawn.sample("xyz", drawn.randint(0, 3))
                for effect in drawn.sample(
                    ["NoSchedule", "NoExecute"], drawn.randint(1, 2)
                )
            ]
            pools = [
                {"name": name, "className": "h100-8x", "nodeCount": drawn.randint(1, 3)}
                for name in drawn.sample(["gpus", "more"], 1)
            ]
            spec = maybe(taints=taints) | ({} if removes else maybe(nodePools=pools))
        case _:
            spread = [
                {"topologyKey": key, **maybe(maxSkew=drawn.randint(1, 2))}
                for key in drawn.sample("xyz", drawn.randint(0, 3))
            ]
            match = {"matchLabels": some("uvw", texts)}
            engine = {
                "name": "main",
                **maybe(
                    copies=drawn.randint(1, 3), spanPools=drawn.choice([True, False])
                ),
            }
            rollout = maybe(
                maxUnavailable=drawn.choice([1, "25%"]),
                paused=drawn.choice([True, False]),
            )
            spec = maybe(
                replicas=drawn.randint(1, 3),
                rollout=rollout,
                scheduling=maybe(topologySpread=spread),
            )
            inner = maybe(clusterSelector=match) | (
                {} if removes else maybe(engines=[engine])
            )
            spec |= maybe(template={"spec": inner})
    return {"metadata": metadata, "spec": spec}
