"""The questions that `modelplane plan` answers.

It can answer how many replicas fit, which cluster to add for the others, and whether a
cluster can be drained. An answer is a tree for `-o json` with `question` and `enough`.
If `enough` is False, `--fail-on-shortfall` fails.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from client.manifests.status_trees import read_trees
from fleet_client.errors import NotFound, Refused
from fleet_client.refs.targets import Target, kinds_and_names
from fleet_client.refs.tree import Tree
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
    """A question.

    `owner` is the deployment, `cluster` the cluster, and `offered` the manifests of
    classes and clusters to choose from.
    """

    kind: str
    owner: Owner = ("", "")
    cluster: str = ""
    offered: tuple[Tree, ...] = ()


@dataclass(frozen=True)
class QuestionContext:
    """The fleet of a question, its deployments in the order of arrival, its classes."""

    fleet: Fleet
    views: Mapping[Owner, DeploymentView]
    classes: Mapping[str, Mapping[str, Any]]


def read_question(
    room_for: str | None,
    offer_file: str | None,
    offer_for: str | None,
    drain: str | None,
    namespace: str | None,
) -> Question | None:
    """Return the question of the options, or None.

    Raise `Refused` for invalid options, and for two questions at once.
    """
    options = {HEADROOM: room_for, CHEAPEST_CLUSTER: offer_file, CAN_DRAIN: drain}
    asked = [f"--{name}" for name, given in options.items() if given is not None]
    if len(asked) > 1:
        raise Refused(
            f"{' and '.join(asked)} are separate questions",
            next_step="ask one at a time",
        )
    if (offer_file is None) != (offer_for is None):
        raise Refused(
            "--cheapest-cluster and --for go together",
            next_step="write --cheapest-cluster FILE --for md/NAME",
        )
    if room_for is not None:
        return Question(HEADROOM, _deployment("--headroom", room_for, namespace))
    if offer_file is not None and offer_for is not None:
        owner = _deployment("--for", offer_for, namespace)
        return Question(CHEAPEST_CLUSTER, owner, offered=_offered(offer_file))
    if drain is not None:
        return Question(CAN_DRAIN, cluster=drain.removeprefix("ic/"))
    return None


def _deployment(option: str, text: str, namespace: str | None) -> Owner:
    try:
        ((kind, name),) = kinds_and_names([text])
    except (Refused, ValueError) as error:
        raise Refused(
            f"{option} {text}: {error}", next_step=f"write {option} md/NAME"
        ) from error
    if kind.kind != "ModelDeployment" or name is None:
        raise Refused(
            f"{option} {text}: only a ModelDeployment can be named here",
            next_step=f"write {option} md/NAME",
        )
    target = Target.of(kind, namespace, name)
    return target.namespace, target.name


def _offered(file: str) -> tuple[Tree, ...]:
    trees = read_trees([file], None)
    others = sorted({tree["kind"] for tree in trees} - set(_OFFERED))
    if others:
        raise Refused(
            f"{file} contains {', '.join(others)}: only clusters and classes can be offered",
            next_step=(
                "keep only the InferenceClusters to choose from, or only "
                "InferenceClasses; name other objects with -f"
            ),
        )
    return tuple(trees)


def answer(question: Question, context: QuestionContext, now: int) -> Tree:
    """Answer a question after deciding every deployment.

    The fleet is only read. Raise `NotFound` for an unknown object, `Refused` for offers
    that cannot be used.
    """
    settled = replace(
        context, fleet=settle(context.fleet, context.views.values(), now).fleet
    )
    if question.kind == CAN_DRAIN:
        return _drain(question.cluster, settled, now)
    view = context.views.get(question.owner)
    if view is None:
        raise NotFound(
            f"ModelDeployment {'/'.join(question.owner)} is not part of the plan",
            next_step="check its name and -n, or add it with -f",
        )
    return (
        _headroom(view, settled, now)
        if question.kind == HEADROOM
        else _choice(view, question.offered, settled, now)
    )


def _headroom(view: DeploymentView, context: QuestionContext, now: int) -> Tree:
    found = headroom(context.fleet, view, now)
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


def _choice(
    view: DeploymentView, offered: Sequence[Tree], context: QuestionContext, now: int
) -> Tree:
    missing, ranked = offers(
        context.fleet, view, _clusters(view, offered, context), now
    )
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


def _clusters(
    view: DeploymentView, offered: Sequence[Tree], context: QuestionContext
) -> list[ClusterView]:
    """Return the clusters to choose from.

    Without clusters, each class becomes a cluster with one pool.
    """
    own = {
        tree["metadata"]["name"]: tree
        for tree in offered
        if tree["kind"] == "InferenceClass"
    }
    written = [tree for tree in offered if tree["kind"] == "InferenceCluster"]
    if not written:
        return [cluster_of_class(manifest, view) for manifest in own.values()]
    classes = {**context.classes, **own}
    taken, unknown = list[str](), list[str]()
    for tree in written:
        name = tree["metadata"]["name"]
        if name in context.fleet.clusters:
            taken.append(
                f"InferenceCluster {name} is already in the fleet; an offered cluster "
                "needs an unused name"
            )
        for pool in tree["spec"].get("nodePools") or ():
            if pool["className"] not in classes:
                unknown.append(
                    f"InferenceCluster {name}: class {pool['className']} of pool "
                    f"{pool['name']} is not known"
                )
    if taken or unknown:
        raise Refused(
            "these clusters cannot be offered",
            details=[*taken, *unknown],
            next_step="fix the file; it may contain their classes too",
        )
    return [offline_cluster(tree, classes) for tree in written]


def _drain(cluster: str, context: QuestionContext, now: int) -> Tree:
    if cluster not in context.fleet.clusters:
        raise NotFound(
            f"InferenceCluster {cluster} is not part of the plan",
            next_step="`modelplane get ic` lists the clusters of the fleet",
        )
    found = can_drain(context.fleet, cluster, list(context.views.values()), now)
    return {
        "question": CAN_DRAIN,
        "enough": found.possible,
        "cluster": cluster,
        "possible": found.possible,
        "moves": [_move(cluster, diff) for diff in found.moves],
        "stays": [
            {
                "namespace": entry.namespace,
                "name": entry.deployment,
                "replica": entry.name,
                "tolerates": tolerates,
            }
            for entry, tolerates in found.stays
        ],
    }


def _move(cluster: str, diff: DeploymentDiff) -> Tree:
    """Return one deployment's replicas that leave the cluster, and the new clusters."""
    before = {placement.uid for placement in diff.before}
    return {
        "namespace": diff.namespace,
        "name": diff.name,
        "leaves": [
            placement.replica_name
            for placement in diff.before
            if placement.cluster == cluster
        ],
        "comes": sorted(
            placement.cluster for placement in diff.after if placement.uid not in before
        ),
        "missing": max(0, len(diff.before) - len(diff.after)),
        "message": diff.message if len(diff.after) < len(diff.before) else "",
    }
