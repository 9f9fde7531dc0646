"""The questions that `modelplane plan` answers about one object: how many more fit, what to add for the rest, whether a cluster can go.

An answer is a tree for `-o json` with `question`, and `enough`: False fails a command that was told to fail on a shortfall.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from client.errors import NotFound, Refused
from client.manifests.status_trees import read_trees
from client.refs.targets import kinds_and_names, target
from client.refs.tree import Tree
from scheduler import (
    ClusterView,
    DeploymentDiff,
    DeploymentView,
    Fleet,
    Offer,
    Owner,
    can_drain,
    cluster_of_class,
    headroom,
    offers,
    offline_cluster,
    settle,
)

HEADROOM, CHEAPEST_CLUSTER, CAN_DRAIN = "headroom", "cheapest-cluster", "can-drain"
_OFFERED = ("InferenceClass", "InferenceCluster")


@dataclass(frozen=True)
class Question:
    """What is asked: `owner` is the deployment, `cluster` the cluster, `offered` the manifests of classes and clusters to choose from."""

    kind: str
    owner: Owner = ("", "")
    cluster: str = ""
    offered: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class World:
    """What a question is asked about: clusters with what stands on them, every deployment, and the classes by name."""

    fleet: Fleet
    views: Mapping[Owner, DeploymentView]
    classes: Mapping[str, Mapping[str, Any]]


def read_question(
    room_for: str | None, offer_file: str | None, offer_for: str | None, drain: str | None, namespace: str | None
) -> Question | None:
    """Read what is asked, None if nothing is. Raises `Refused` for what cannot be read, and for two questions at once."""
    asked = [name for name, given in ((HEADROOM, room_for), (CHEAPEST_CLUSTER, offer_file), (CAN_DRAIN, drain)) if given is not None]
    if len(asked) > 1:
        raise Refused(f"{' and '.join(f'--{name}' for name in asked)} are several questions", next_step="ask one at a time")
    if (offer_file is None) != (offer_for is None):
        raise Refused("--cheapest-cluster and --for go together", next_step="write --cheapest-cluster FILE --for md/NAME")
    if room_for is not None:
        return Question(HEADROOM, _deployment("--headroom", room_for, namespace))
    if offer_file is not None and offer_for is not None:
        owner = _deployment("--for", offer_for, namespace)
        return Question(CHEAPEST_CLUSTER, owner, offered=_offered(offer_file))
    return Question(CAN_DRAIN, cluster=drain.removeprefix("ic/")) if drain is not None else None


def _deployment(option: str, text: str, namespace: str | None) -> Owner:
    try:
        ((kind, name),) = kinds_and_names([text])
    except (Refused, ValueError) as error:
        raise Refused(f"{option} {text}: {error}", next_step=f"write {option} md/NAME") from error
    if kind.kind != "ModelDeployment" or name is None:
        raise Refused(f"{option} {text}: this is asked about a ModelDeployment", next_step=f"write {option} md/NAME")
    wanted = target(kind, namespace, name)
    return wanted.namespace, wanted.name


def _offered(file: str) -> tuple[Tree, ...]:
    trees = read_trees([file], None)
    others = sorted({tree["kind"] for tree in trees} - set(_OFFERED))
    if others:
        raise Refused(
            f"{file} holds {', '.join(others)}: only clusters and classes can be chosen from",
            next_step="leave in it the InferenceClusters to choose from, or InferenceClasses alone; name the rest with -f",
        )
    return tuple(trees)


def answer(question: Question, world: World, now: int) -> Tree:
    """Answer a question once everything that is wanted has been placed; the world is only read.

    Raises `NotFound` for an unknown object, `Refused` for offers that cannot be used.
    """
    settled = replace(world, fleet=settle(world.fleet, world.views.values(), now).fleet)
    if question.kind == CAN_DRAIN:
        return _drain(question.cluster, settled, now)
    view = world.views.get(question.owner)
    if view is None:
        raise NotFound(
            f"ModelDeployment {'/'.join(question.owner)} is not among those planned", next_step="check its name and -n, or add it with -f"
        )
    return _room(view, settled, now) if question.kind == HEADROOM else _choice(view, question.offered, settled, now)


def _room(view: DeploymentView, world: World, now: int) -> Tree:
    found = headroom(world.fleet, view, now)
    return {
        "question": HEADROOM,
        "enough": found.replicas >= view.replicas,
        "namespace": view.namespace,
        "name": view.name,
        "wanted": view.replicas,
        "headroom": found.replicas,
        "clusters": dict(found.clusters),
        "message": found.message,
    }


def _choice(view: DeploymentView, offered: Sequence[Tree], world: World, now: int) -> Tree:
    missing, ranked = offers(world.fleet, view, _clusters(view, offered, world), now)
    best = ranked[0].view.name if ranked and ranked[0].enough else ""
    return {
        "question": CHEAPEST_CLUSTER,
        "enough": not missing or bool(best),
        "namespace": view.namespace,
        "name": view.name,
        "wanted": view.replicas,
        "missing": missing,
        "cheapest": best,
        "offers": [_offer_tree(offer) for offer in ranked],
    }


def _offer_tree(offer: Offer) -> Tree:
    return {
        "cluster": offer.view.name,
        "replicas": offer.placed,
        "enough": offer.enough,
        "nodes": dict(offer.nodes),
        "costMilli": offer.cost_milli,
        "message": offer.message,
    }


def _clusters(view: DeploymentView, offered: Sequence[Tree], world: World) -> list[ClusterView]:
    """Give the clusters to choose from; classes alone stand for clusters of one pool each."""
    own = {tree["metadata"]["name"]: tree for tree in offered if tree["kind"] == "InferenceClass"}
    written = [tree for tree in offered if tree["kind"] == "InferenceCluster"]
    if not written:
        return [cluster_of_class(manifest, view) for manifest in own.values()]
    classes = {**world.classes, **own}
    problems = [
        f"InferenceCluster {tree['metadata']['name']} is in the fleet already; an offer needs a name of its own"
        for tree in written
        if tree["metadata"]["name"] in world.fleet.clusters
    ]
    problems += [
        f"InferenceCluster {tree['metadata']['name']}: class {pool['className']} of pool {pool['name']} is not known"
        for tree in written
        for pool in tree["spec"].get("nodePools") or ()
        if pool["className"] not in classes
    ]
    if problems:
        raise Refused("these clusters cannot be offered", details=problems, next_step="mend the file; classes may stand in it too")
    return [offline_cluster(tree, classes) for tree in written]


def _drain(cluster: str, world: World, now: int) -> Tree:
    if cluster not in world.fleet.clusters:
        raise NotFound(f"InferenceCluster {cluster} is not among those planned", next_step="`modelplane get ic` lists those of the fleet")
    found = can_drain(world.fleet, cluster, list(world.views.values()), now)
    return {
        "question": CAN_DRAIN,
        "enough": found.possible,
        "cluster": cluster,
        "possible": found.possible,
        "moves": [_move(cluster, diff) for diff in found.moves],
        "stays": [
            {"namespace": entry.namespace, "name": entry.deployment, "replica": entry.name, "tolerates": tolerates}
            for entry, tolerates in found.stays
        ],
    }


def _move(cluster: str, diff: DeploymentDiff) -> Tree:
    """Say what becomes of one deployment: its replicas that leave the cluster, and where new ones come."""
    before = {placement.uid for placement in diff.before}
    return {
        "namespace": diff.namespace,
        "name": diff.name,
        "leaves": [placement.replica_name for placement in diff.before if placement.cluster == cluster],
        "comes": sorted(placement.cluster for placement in diff.after if placement.uid not in before),
        "missing": max(0, len(diff.before) - len(diff.after)),
        "message": diff.message if len(diff.after) < len(diff.before) else "",
    }
