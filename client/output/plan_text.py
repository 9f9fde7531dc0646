"""The text of a plan: the changes of each deployment's replicas, and reasons."""

from collections.abc import Iterator, Sequence

from client.output.tables import INDENT, columns, indented
from fleet_client.refs.tree import Tree

_EVICT = "Evict"
# The text for an unknown price, as opposed to 0.
_UNKNOWN = "unknown"


def plan_lines(plan: Tree, *, wide: bool) -> list[str]:
    """Return the lines of a whole plan.

    `wide` adds the reasons of all clusters, and the steps.
    """
    lines: list[str] = []
    for decision in plan["decisions"]:
        lines += [*decision_lines(decision, wide=wide), ""]
    if plan.get("pools"):
        lines += ["Nodes:", *indented(_pool_lines(plan["pools"])), ""]
    if wide and plan.get("steps"):
        lines += ["Steps:", *indented(_step_lines(plan["steps"])), ""]
    return lines[:-1]


def decision_lines(decision: Tree, *, wide: bool) -> list[str]:
    placed = len(decision["placements"])
    lines = [
        (
            f"ModelDeployment {decision['namespace']}/{decision['name']}: {placed} "
            f"of {decision['desired']} replicas placed"
        )
    ]
    rows = [
        [
            each["action"],
            each["replica"],
            each["cluster"],
            pools_text(each["engines"]),
            (wide and each["reason"]["text"]) or "-",
        ]
        for each in decision["placements"]
    ]
    rows += [
        [_EVICT, each["replica"], each["cluster"], "-", each["reason"]]
        for each in decision["evictions"]
    ]
    if rows:
        lines += indented(
            columns(["ACTION", "REPLICA", "CLUSTER", "POOLS", "REASON"], rows)
        )
    if decision["shortfall"]:
        lines += [
            f"{INDENT}{decision['message']}",
            *indented(suggestion_lines(decision["suggestions"])),
        ]
    if wide and decision["clusters"]:
        lines += ["", *indented(cluster_lines(decision["clusters"]))]
    return lines


def suggestion_lines(suggestions: Sequence[Tree]) -> list[str]:
    """Return the changes that make room for one more replica, the cheapest first.

    A single change is already in the message of the decision.
    """
    if len(suggestions) < 2:  # noqa: PLR2004
        return []
    return [
        "One more replica would fit with:",
        *indented([_suggestion_line(each) for each in suggestions]),
    ]


def _suggestion_line(each: Tree) -> str:
    price = (
        f", {price_text(each['costMilli'])} per hour"
        if each["nodes"] and each["costMilli"] > 0
        else ""
    )
    return f"{each['text']} (cluster {each['cluster']}{price})"


def cluster_lines(clusters: Tree) -> list[str]:
    """Return a table of clusters and pools, with the reason why a replica does not fit."""
    rows: list[list[str]] = []
    for cluster, found in clusters.items():
        rows.append(
            [
                cluster,
                "-",
                found["reason"] or "-",
                found["detail"] or "fits one more replica",
            ]
        )
        rows += [
            [cluster, pool, seen["reason"] or "-", seen["detail"] or "fits"]
            for pool, seen in found["pools"].items()
        ]
    return columns(["CLUSTER", "POOL", "REASON", "DETAIL"], rows)


def pools_text(engines: Sequence[Tree]) -> str:
    """Return a replica's pools with its nodes there: `main: h200 x2, aux: h100 x1`."""
    return ", ".join(
        f"{engine['name']}: {engine['pool'] or '-'} x{engine['nodes']}"
        for engine in engines
    )


def _pool_lines(pools: Sequence[Tree]) -> list[str]:
    rows = [
        [
            pool["cluster"],
            pool["pool"],
            str(pool["nodesBefore"]),
            str(pool["nodesAfter"]),
        ]
        for pool in pools
    ]
    titles = ["CLUSTER", "POOL", "BEFORE", "AFTER"]
    if any(pool["costMilliBefore"] > 0 or pool["costMilliAfter"] > 0 for pool in pools):
        titles += ["COST/H BEFORE", "COST/H AFTER"]
        rows = [
            [
                *row,
                price_text(pool["costMilliBefore"]),
                price_text(pool["costMilliAfter"]),
            ]
            for row, pool in zip(rows, pools, strict=True)
        ]
    return columns(titles, rows)


def price_text(milli: int) -> str:
    """Return a price in thousandths per hour as money. A negative price is unknown."""
    return _UNKNOWN if milli < 0 else f"{milli / 1000:.2f}"


def _step_lines(steps: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, step in enumerate(steps, start=1):
        for at, line in enumerate(step):
            label = f"{number}." if at == 0 else ""
            yield f"{label:<4}{line}"
