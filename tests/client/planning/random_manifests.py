"""Random small fleets as manifests, with every policy.

Each follows from one number. A fleet has two phases: deployments that are placed first,
and deployments that are applied while the first replicas run. All inputs of a later
decision are in manifests, so that a plan from files can know them.
"""

import random
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from api_types import labels
from api_types.validation.manifests import NO_CHECKS, admit, dump

Tree = dict[str, Any]
API = "modelplane.ai/v1alpha1"
PRIORITIES = {"mid": 50, "high": 100}
# Devices of a class: memory, count and claim.
CLASSES: Mapping[str, tuple[tuple[str, int, str], ...]] = {
    "h8": (("141Gi", 8, "DRA"),),
    "l4": (("80Gi", 4, "DRA"),),
    "s2": (("40Gi", 2, "DRA"),),
    "pair": (("80Gi", 4, "DRA"), ("80Gi", 4, "DRA")),
    "fake": (("141Gi", 8, "Synthetic"), ("80Gi", 4, "DRA")),
}
PRICES: Mapping[str, str] = {"h8": "30", "l4": "8", "s2": "2.5"}


class Dice(random.Random):
    """A source of random numbers."""

    def chance(self, share: float) -> bool:
        return self.random() < share


@dataclass(frozen=True)
class FleetManifests:
    """Canonical manifests and a policy.

    `first` and `later` are deployments in the order of their application.
    """

    number: int
    policy: Tree
    classes: tuple[Tree, ...]
    clusters: tuple[Tree, ...]
    later_clusters: tuple[Tree, ...]
    first: tuple[Tree, ...]
    later: tuple[Tree, ...]


def random_manifests(number: int) -> FleetManifests:
    """Build a fleet from its number.

    Its names contain the number, so that many fleets can be told apart.
    """
    dice = Dice(number)
    prefix = f"f{number}"
    namespaces = (f"{prefix}-ml", f"{prefix}-ml", f"{prefix}-web")
    policy = _policy(dice, namespaces)
    clusters = [
        _cluster(dice, f"{prefix}-{name}") for name in "abcde"[: dice.randint(1, 5)]
    ]
    first = [
        _deployment(dice, f"d{i}", dice.choice(namespaces))
        for i in range(dice.randint(1, 4))
    ]
    later = [_edited(dice, each) for each in first if dice.chance(0.9)]
    later += [
        _arriving(dice, f"n{i}", dice.choice(namespaces))
        for i in range(dice.randint(0, 3))
    ]
    dice.shuffle(later)
    return FleetManifests(
        number,
        policy,
        tuple(canonical(_class(name)) for name in CLASSES),
        tuple(map(canonical, clusters)),
        tuple(canonical(_changed_cluster(dice, each)) for each in clusters),
        tuple(map(canonical, first)),
        () if _packs(policy) else tuple(map(canonical, later)),
    )


def _packs(policy: Tree) -> bool:
    """Return whether pods get slots.

    No manifest has the nodes of running replicas, so a plan from files cannot know
    them.
    """
    return policy["packedEnforced"] and "device-packed" in (
        policy["accounting"],
        *policy["classAccounting"].values(),
    )


def canonical(document: Tree) -> Tree:
    """Return the stored form of an applied manifest, to which a status is added."""
    status = document.get("status")
    admitted = dump(
        admit(
            {key: value for key, value in document.items() if key != "status"},
            NO_CHECKS,
        ).manifest
    )
    return {**admitted, "status": status} if status else admitted


def _class(name: str) -> Tree:
    devices = [
        {
            "name": f"gpu-{at}",
            "driver": "gpu.nvidia.com",
            "deviceClassName": "gpu.nvidia.com",
            "claim": claim,
            "count": count,
            "capacity": {"memory": {"value": memory}},
        }
        for at, (memory, count, claim) in enumerate(CLASSES[name])
    ]
    annotations = (
        {"annotations": {labels.PRICE_PER_NODE_HOUR: PRICES[name]}}
        if name in PRICES
        else {}
    )
    return {
        "apiVersion": API,
        "kind": "InferenceClass",
        "metadata": {"name": name, **annotations},
        "spec": {"devices": devices},
    }


def _cluster(dice: Dice, name: str) -> Tree:
    own = {"region": dice.choice(("us", "eu")), "zone": dice.choice(("z1", "z2", "z3"))}
    if dice.chance(0.3):
        own[labels.NETWORK_DOMAIN] = dice.choice(("n1", "n2"))
    pools: list[Tree] = [
        {
            "name": f"p{i}",
            "className": dice.choice(("h8", "h8", *CLASSES)),
            "nodeCount": dice.choice((1, 1, 2, 2, 3, 4)),
        }
        for i in range(dice.choice((1, 1, 2, 3)))
    ]
    for pool in pools:
        if dice.chance(0.2):
            pool["maxNodeCount"], pool["minNodeCount"] = pool["nodeCount"] + 1, 0
    taints = (
        [{"key": "x", "value": "y", "effect": dice.choice(("NoSchedule", "NoExecute"))}]
        if dice.chance(0.15)
        else []
    )
    existing = {
        "secretRef": {"name": "kubeconfig"},
        "cache": {"storageClassName": "rwx"},
    }
    return {
        "apiVersion": API,
        "kind": "InferenceCluster",
        "metadata": {
            "name": name,
            "labels": {key: value for key, value in own.items() if dice.chance(0.9)},
        },
        "spec": {
            "cluster": {"source": "Existing", "existing": existing},
            "nodePools": pools,
            **({"taints": taints} if taints else {}),
        },
        **(
            {
                "status": {
                    "conditions": [
                        {"type": "Ready", "status": "False", "reason": "Unavailable"}
                    ]
                }
            }
            if dice.chance(0.05)
            else {}
        ),
    }


def _changed_cluster(dice: Dice, cluster: Tree) -> Tree:
    changed = deepcopy(cluster)
    if dice.chance(0.2):
        for pool in changed["spec"]["nodePools"]:
            pool["nodeCount"] += dice.choice((0, 1))
            pool.pop("maxNodeCount", None)
            pool.pop("minNodeCount", None)
    if dice.chance(0.1):
        changed["spec"]["taints"] = [
            {
                "key": "x",
                "value": "y",
                "effect": dice.choice(("NoSchedule", "NoExecute")),
            }
        ]
    return changed


def _engine(dice: Dice, name: str) -> Tree:
    memory = dice.choice(("40Gi", "40Gi", "80Gi", "141Gi"))
    cel = (
        f'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("{memory}")) >= 0'
    )
    request = {
        "name": "gpu",
        "count": dice.choice((1, 1, 2, 4, 8)),
        "selectors": [{"cel": cel}],
    }
    pod = {
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "engine",
                        "image": "example.com/vllm:1",
                        "args": ["--model=a/b"],
                    }
                ]
            }
        }
    }
    claims = {"nodeSelector": {"devices": [request]}}
    if dice.chance(0.7):
        return {
            "name": name,
            "copies": dice.choice((1, 1, 1, 2)),
            "members": [{**claims, **pod}],
        }
    leader = {"role": "Leader", **({} if dice.chance(0.3) else claims), **pod}
    worker: Tree = {
        "role": "Worker",
        "worker": {"nodes": dice.randint(1, 2)},
        **claims,
        **pod,
    }
    if dice.chance(0.3):
        worker["podsPerNode"] = 2
    return {
        "name": name,
        "copies": dice.choice((1, 1, 2)),
        **({"spanPools": True} if dice.chance(0.5) else {}),
        "members": [leader, worker],
    }


def _deployment(dice: Dice, name: str, namespace: str) -> Tree:
    split = dice.chance(0.2)
    engines = [
        _engine(dice, f"e{i}") for i in range(2 if split or dice.chance(0.1) else 1)
    ]
    if split:
        for engine, phase in zip(engines, ("Prefill", "Decode"), strict=True):
            engine["phase"] = phase
    template: Tree = {
        "engines": engines,
        **({"serving": {"mode": "PrefillDecode"}} if split else {}),
    }
    if dice.chance(0.1):
        template["clusterSelector"] = {"matchLabels": {"region": "us"}}
    if dice.chance(0.3):
        template["tolerations"] = [{"key": "x", "operator": "Exists"}]
    return {
        "apiVersion": API,
        "kind": "ModelDeployment",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": {"app": name, "tier": dice.choice(("x", "y"))},
        },
        "spec": {
            "replicas": dice.choice((0, 1, 1, 2, 2, 3, 4)),
            "template": {"spec": template},
            # A plan shows the end of a rollout, and a decision of the live scheduler
            # its first step.
            "rollout": {
                "type": "AllAtOnce",
                **({"partition": 1} if dice.chance(0.2) else {}),
            },
            "scheduling": _scheduling(dice, split=split),
        },
    }


def _arriving(dice: Dice, name: str, namespace: str) -> Tree:
    """A deployment that is applied while others run. Many preempt some of them."""
    deployment = _deployment(dice, name, namespace)
    if dice.chance(0.6):
        deployment["spec"]["scheduling"] |= {
            "priorityClassName": "high",
            "preemptionPolicy": "LowerPriority",
        }
        deployment["spec"]["replicas"] = dice.choice((1, 2))
    return deployment


def _scheduling(dice: Dice, *, split: bool) -> Tree:
    klass = dice.choice(("", "", "mid", "high"))
    found: Tree = (
        {"profile": dice.choice(("balanced", "dense", "cheap", "default"))}
        if dice.chance(0.3)
        else {}
    )
    if klass:
        found |= {
            "priorityClassName": klass,
            "preemptionPolicy": "LowerPriority" if dice.chance(0.7) else "Never",
        }
    if dice.chance(0.3):
        found["minAvailable"] = dice.choice((1, 2))
    if dice.chance(0.2):
        when = dice.choice(("DoNotSchedule", "DoNotSchedule", "ScheduleAnyway"))
        found["topologySpread"] = [
            {
                "topologyKey": dice.choice(("zone", "region")),
                "maxSkew": dice.randint(1, 2),
                "whenUnsatisfiable": when,
            }
        ]
    for field in ("affinity", "antiAffinity"):
        if dice.chance(0.15):
            term: Tree = {
                "selector": {"matchLabels": {"tier": dice.choice(("x", "y"))}}
            }
            term |= (
                {"topologyKey": dice.choice(("zone", "region"))}
                if dice.chance(0.5)
                else {}
            )
            found[field] = (
                {"required": [term]}
                if dice.chance(0.6)
                else {"preferred": [{**term, "weight": dice.randint(1, 10)}]}
            )
    if split:
        found["networkDomain"] = dice.choice(("Ignore", "Required", "Preferred"))
    if dice.chance(0.25):
        found["gangReplicas"] = dice.choice((2, 3))
    return found


def _edited(dice: Dice, deployment: Tree) -> Tree:
    """Return the deployment of the later apply: scaled, with other engines, with
    another policy, or unchanged.
    """
    edited = deepcopy(deployment)
    if dice.chance(0.4):
        edited["spec"]["replicas"] = dice.choice((0, 1, 2, 3, 4))
    if dice.chance(0.15):
        edited["spec"]["template"]["spec"]["engines"][0]["copies"] = dice.choice(
            (1, 2, 3)
        )
    if dice.chance(0.15):
        engine = edited["spec"]["template"]["spec"]["engines"][0]
        engine["members"][-1]["template"]["spec"]["containers"][0]["image"] = (
            "example.com/vllm:2"
        )
    if dice.chance(0.2):
        edited["spec"]["scheduling"] = _scheduling(
            dice, split="serving" in edited["spec"]["template"]["spec"]
        )
    return edited


def _policy(dice: Dice, namespaces: tuple[str, ...]) -> Tree:
    quotas = [
        {
            "namespace": dice.choice(namespaces),
            **dice.choice(
                (
                    {"maxNodes": dice.choice((1, 2, 3, 4, 6))},
                    {"maxDevices": dice.choice((4, 8, 16))},
                )
            ),
            **({"className": dice.choice(tuple(CLASSES))} if dice.chance(0.4) else {}),
            **(
                {"matchLabels": {"region": dice.choice(("us", "eu"))}}
                if dice.chance(0.3)
                else {}
            ),
            **({"priorityFloor": 50} if dice.chance(0.2) else {}),
        }
        for _ in range(dice.choice((0, 0, 1, 2)))
    ]
    return {
        "profile": dice.choice(("default", "default", "dense", "cheap", "balanced")),
        "accounting": dice.choice(
            ("node", "node", "node", "device-safe", "device-packed")
        ),
        "classAccounting": {"h8": dice.choice(("node", "device-safe", "device-packed"))}
        if dice.chance(0.2)
        else {},
        "packedEnforced": dice.chance(0.8),
        "priorityClasses": PRIORITIES,
        "quotas": quotas,
        # A fleet in files has no past, so nothing protects a deployment from another
        # preemption.
        "preemptionCooldownSeconds": 0,
    }
