"""The text of the answers of `modelplane plan`."""

from collections import Counter
from collections.abc import Sequence

from api_types.limits import REPLICAS_MAX
from client.output.plan_text import price_text
from client.output.tables import INDENT, columns, indented
from client.planning.questions import CAN_DRAIN, HEADROOM
from fleet_client.refs.tree import Tree


def answer_lines(tree: Tree) -> list[str]:
    if tree["question"] == HEADROOM:
        return _room_lines(tree)
    return _drain_lines(tree) if tree["question"] == CAN_DRAIN else _choice_lines(tree)


def _room_lines(tree: Tree) -> list[str]:
    or_more = " or more" if tree["headroom"] >= REPLICAS_MAX else ""
    title = f"ModelDeployment {tree['namespace']}/{tree['name']}"
    lines = [f"{title}: headroom {tree['headroom']}{or_more}, wanted {tree['wanted']}"]
    if tree["clusters"]:
        rows = [[cluster, str(number)] for cluster, number in tree["clusters"].items()]
        lines += indented(columns(["CLUSTER", "REPLICAS"], rows))
    if tree["message"]:
        lines.append(f"{INDENT}Next replica: {tree['message']}")
    return lines


def _choice_lines(tree: Tree) -> list[str]:
    title = f"ModelDeployment {tree['namespace']}/{tree['name']}"
    if not tree["missing"]:
        return [
            f"{title}: all {tree['wanted']} replicas are placed; no cluster is needed"
        ]
    head = f"{title}: {tree['missing']} of {tree['wanted']} replicas are not placed"
    verdict = (
        f"the cheapest sufficient cluster is {tree['cheapest']}"
        if tree["cheapest"]
        else "none of these clusters is sufficient alone"
    )
    lines = [f"{head}; {verdict}"]
    rows = [_offer_row(offer, tree["missing"]) for offer in tree["offers"]]
    if rows:
        titles = ["CLUSTER", "REPLICAS", "NODES", "COST/H", "RESULT"]
        lines += indented(columns(titles, rows))
    return lines


def _offer_row(offer: Tree, missing: int) -> list[str]:
    nodes = ", ".join(f"{pool} x{count}" for pool, count in offer["nodes"].items())
    return [
        offer["cluster"],
        f"{offer['replicas']} of {missing}",
        nodes or "-",
        price_text(offer["costMilli"]) if nodes else "-",
        offer["message"] or "sufficient",
    ]


_TOLERATES = {
    True: "its deployment tolerates the taint",
    False: "its deployment is unknown",
}


def _drain_lines(tree: Tree) -> list[str]:
    verdict = (
        "can be drained now"
        if tree["possible"]
        else "cannot be drained now: some replicas would not be placed again"
    )
    rows = [
        [
            _owner(move),
            str(len(move["leaves"])),
            _where(move["comes"]),
            move["message"] or "-",
        ]
        for move in tree["moves"]
    ]
    stays = [
        [_owner(one), one["replica"], _TOLERATES[bool(one["tolerates"])]]
        for one in tree["stays"]
    ]
    lines = [f"InferenceCluster {tree['cluster']} {verdict}"]
    if rows:
        lines += indented(
            columns(["DEPLOYMENT", "EVICTED", "PLACED ON", "SHORTFALL"], rows)
        )
    if stays:
        lines += [
            f"{INDENT}Not evicted:",
            *indented(columns(["DEPLOYMENT", "REPLICA", "REASON"], stays)),
        ]
    return lines


def _owner(tree: Tree) -> str:
    return f"{tree['namespace']}/{tree['name']}"


def _where(clusters: Sequence[str]) -> str:
    counts = Counter(clusters)
    return ", ".join(f"{cluster} x{count}" for cluster, count in counts.items()) or "-"
