"""The desired objects of an InferenceCluster at its cloud, as a tree for `-o json`.

The same functions create the objects. Values that they would first ask the cloud for
(the project, zones, capacity blocks) appear as words in capitals, so a plan needs no
credentials.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from activities.clouds.desired.graph import (
    CloudCall,
    DesiredObject,
    Fact,
    arguments,
    deletion_order,
)
from activities.clouds.desired.owner import UNKNOWN_DIGITS, UNKNOWN_INSTALLATION
from activities.clouds.desired.plan import Desired, PlanProblem
from activities.clouds.eks.wanted.inputs import UNKNOWN_PRINCIPAL, EksFacts
from activities.clouds.eks.wanted.objects import eks_objects
from activities.clouds.gke.wanted.inputs import UNKNOWN_PROJECT, GkeFacts
from activities.clouds.gke.wanted.objects import gke_objects
from api_types.resources.inference_class import InferenceClass
from api_types.resources.inference_cluster import InferenceCluster
from api_types.settings import Settings
from api_types.validation.manifests import load
from client.manifests.price_file import Prices
from client.planning.cloud_changes import There, mark_changes, mark_new
from client.planning.cloud_costs import costs_of
from fleet_client.refs.tree import Tree

_UNKNOWN_TOKEN = "TOKEN"  # noqa: S105 - stands for what makes a repeated call safe
# The meaning of each placeholder.
_PLACEHOLDERS = {
    UNKNOWN_DIGITS: "eight digits of the cluster's identity",
    UNKNOWN_INSTALLATION: "the id of this installation",
    UNKNOWN_PROJECT: "the project of the credentials",
    UNKNOWN_PRINCIPAL: "the role of the credentials",
    _UNKNOWN_TOKEN: "the token by which a repeated call is recognized",
}

Plan = Callable[[InferenceCluster, Mapping[str, InferenceClass], Settings], Desired]


def _gke(
    cluster: InferenceCluster, classes: Mapping[str, InferenceClass], settings: Settings
) -> Desired:
    return gke_objects("", cluster, classes, settings.gke, GkeFacts())


def _eks(
    cluster: InferenceCluster, classes: Mapping[str, InferenceClass], settings: Settings
) -> Desired:
    return eks_objects("", cluster, classes, settings.eks, EksFacts())


_CLOUDS: Mapping[str, Plan] = {"GKE": _gke, "EKS": _eks}


def is_to_create(tree: Tree) -> bool:
    """Whether the control plane creates the cluster."""
    return bool(tree["spec"]["cluster"]["source"] != "Existing")


@dataclass(frozen=True)
class LiveClouds:
    """The classes of the fleet, and the present state of its clusters by name."""

    classes: Mapping[str, Tree]
    clusters: Mapping[str, There]


def plan_clouds(
    clusters: Sequence[Tree],
    classes: Mapping[str, Tree],
    settings: Settings,
    prices: Prices | None,
    live: LiveClouds,
) -> list[Tree]:
    """Plan each cluster. `prices` of machines take precedence over list prices."""
    return [_planned(tree, classes, settings, prices, live) for tree in clusters]


def _planned(
    tree: Tree,
    classes: Mapping[str, Tree],
    settings: Settings,
    prices: Prices | None,
    live: LiveClouds,
) -> Tree:
    cloud = _plan(tree, classes, settings, prices)
    there = live.clusters.get(tree["metadata"]["name"])
    if there is None or there.manifest["spec"]["cluster"]["source"] != cloud["source"]:
        mark_new(cloud)
    else:
        mark_changes(
            cloud,
            tree,
            _plan(there.manifest, live.classes, settings, prices),
            there.inventory,
        )
    return cloud


def _plan(
    tree: Tree, classes: Mapping[str, Tree], settings: Settings, prices: Prices | None
) -> Tree:
    cluster = cast("InferenceCluster", load(_manifest(tree)))
    known = {
        name: cast("InferenceClass", load(_manifest(each)))
        for name, each in classes.items()
        if each.get("spec")
    }
    return _tree(cluster, known, settings, prices)


def _tree(
    cluster: InferenceCluster,
    classes: Mapping[str, InferenceClass],
    settings: Settings,
    prices: Prices | None,
) -> Tree:
    source = cluster.spec.cluster.source
    plan = _CLOUDS.get(source)
    desired = plan(cluster, classes, settings) if plan else _not_supported(source)
    objects = [_object(each) for each in desired.objects]
    return {
        "cluster": cluster.metadata.name,
        "source": source,
        "objects": objects,
        "deletionOrder": [each.key for each in deletion_order(desired.objects)],
        "refused": [_problem(each) for each in desired.refused],
        "warnings": [_problem(each) for each in desired.warnings],
        "notes": _notes(objects),
        "costs": costs_of(source, _region(cluster), desired.objects, prices),
    }


def _region(cluster: InferenceCluster) -> str:
    block = cluster.spec.cluster.eks or cluster.spec.cluster.gke
    return block.region if block else ""


def _manifest(tree: Tree) -> Tree:
    """Return the manifest without status and uid.

    The uid would appear in names and marks.
    """
    return {field: tree[field] for field in ("apiVersion", "kind", "spec")} | {
        "metadata": {"name": tree["metadata"]["name"]}
    }


def _not_supported(source: str) -> Desired:
    text = (
        f"this release knows no objects of {source} clusters; create the cluster "
        "yourself and use source: Existing"
    )
    return Desired((), (PlanProblem("ProviderNotSupported", "", text),))


def _notes(objects: Sequence[Tree]) -> list[str]:
    if not objects:
        return []
    text = repr(objects)
    words = "; ".join(
        f"{word}: {meaning}" for word, meaning in _PLACEHOLDERS.items() if word in text
    )
    return [f"not known before it is created: {words}"]


def _object(each: DesiredObject) -> Tree:
    tree: Tree = {
        "key": each.key,
        "kind": each.kind,
        "name": each.name,
        "needs": list(each.needs),
        "waitsFor": each.waits_for,
        "calls": [_call(call) for call in each.calls],
    }
    if each.machines is None:
        return tree
    machines = each.machines
    tree["machines"] = {
        "type": machines.type,
        "region": machines.region,
        "start": machines.start,
        "most": machines.most,
    }
    return tree


def _call(call: CloudCall) -> Tree:
    return {
        "service": call.service,
        "operation": call.operation,
        "parameters": arguments(call, _placeholder, _UNKNOWN_TOKEN),
    }


def _placeholder(fact: Fact) -> str:
    return f"<{fact.name} of {fact.key}>"


def _problem(problem: PlanProblem) -> Tree:
    return {"reason": problem.reason, "at": problem.at, "message": problem.text}
