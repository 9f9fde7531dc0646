"""The text of the answers that `modelplane plan` gives to questions."""

from collections.abc import Sequence

from api_types.limits import REPLICAS_MAX
from client.output.plan_text import price_text
from client.output.tables import INDENT, columns, indented
from client.planning.questions import CAN_DRAIN, HEADROOM
from client.refs.tree import Tree


def answer_lines(tree: Tree) -> list[str]:
    """Give the lines of an answer."""
    if tree["question"] == HEADROOM:
        return _room_lines(tree)
    return _drain_lines(tree) if tree["question"] == CAN_DRAIN else _choice_lines(tree)


def _room_lines(tree: Tree) -> list[str]:
    count = f"{tree['headroom']}{' or more' if tree['headroom'] >= REPLICAS_MAX else ''}"
    lines = [f"ModelDeployment {tree['namespace']}/{tree['name']}: headroom {count}, wanted {tree['wanted']}"]
    if tree["clusters"]:
        lines += indented(columns(["CLUSTER", "REPLICAS"], [[cluster, str(number)] for cluster, number in tree["clusters"].items()]))
    return [*lines, f"{INDENT}Next replica: {tree['message']}"] if tree["message"] else lines


def _choice_lines(tree: Tree) -> list[str]:
    title = f"ModelDeployment {tree['namespace']}/{tree['name']}"
    if not tree["missing"]:
        return [f"{title}: all {tree['wanted']} replicas are placed; no cluster is needed"]
    head = f"{title}: {tree['missing']} of {tree['wanted']} replicas are not placed"
    verdict = f"the cheapest sufficient cluster is {tree['cheapest']}" if tree["cheapest"] else "none of these clusters is sufficient alone"
    rows = [
        [
            offer["cluster"],
            f"{offer['replicas']} of {tree['missing']}",
            ", ".join(f"{pool} x{nodes}" for pool, nodes in offer["nodes"].items()) or "-",
            price_text(offer["costMilli"]) if offer["nodes"] else "-",
            offer["message"] or "sufficient",
        ]
        for offer in tree["offers"]
    ]
    table = columns(["CLUSTER", "REPLICAS", "NODES", "COST/H", "RESULT"], rows) if rows else []
    return [f"{head}; {verdict}", *indented(table)]


def _drain_lines(tree: Tree) -> list[str]:
    verdict = "can be drained now" if tree["possible"] else "cannot be drained now: some replicas would not be placed again"
    rows = [[_owner(move), _count(move["leaves"]), _where(move["comes"]), move["message"] or "-"] for move in tree["moves"]]
    stays = [
        [_owner(one), one["replica"], "its deployment tolerates the taint" if one["tolerates"] else "its deployment is unknown"]
        for one in tree["stays"]
    ]
    lines = [f"InferenceCluster {tree['cluster']} {verdict}"]
    if rows:
        lines += indented(columns(["DEPLOYMENT", "EVICTED", "PLACED ON", "SHORTFALL"], rows))
    if stays:
        lines += [f"{INDENT}Not evicted:", *indented(columns(["DEPLOYMENT", "REPLICA", "REASON"], stays))]
    return lines


def _owner(tree: Tree) -> str:
    return f"{tree['namespace']}/{tree['name']}"


def _count(replicas: Sequence[str]) -> str:
    return str(len(replicas))


def _where(clusters: Sequence[str]) -> str:
    return ", ".join(f"{cluster} x{clusters.count(cluster)}" for cluster in dict.fromkeys(clusters)) or "-"
