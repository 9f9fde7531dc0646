"""The text of what would be created at a cloud: a table of objects, and with `wide` the calls that create them."""

from collections.abc import Iterator

from api_types.prices import UNPRICED
from api_types.text.printable import escaped
from client.output.formats import as_yaml
from client.output.plan_text import price_text
from client.output.tables import columns, indented
from client.refs.tree import Tree


def cloud_lines(cloud: Tree, *, wide: bool) -> list[str]:
    """Give the lines of one cluster in the form of `-o json`; `wide` adds calls with their parameters."""
    count = len(cloud["objects"])
    would = f"{count} objects would be created on {cloud['source']}, in this order" if count else "nothing can be created"
    lines = [f"InferenceCluster {cloud['cluster']}: {would}"]
    if count:
        lines += indented(_table(cloud))
    if cloud.get("costMilliMost") is not None and count:
        lines += ["", *indented(_cost_lines(cloud))]
    for title, problems in (("Refused:", cloud["refused"]), ("Warnings:", cloud["warnings"])):
        if problems:
            lines += ["", *indented([title, *indented(problem_text(each) for each in problems)])]
    if wide and count:
        lines += ["", *indented(["Calls:", *indented(_call_lines(cloud))])]
    if cloud["notes"]:
        lines += ["", *indented(["Notes:", *indented(cloud["notes"])])]
    return lines


def problem_text(problem: Tree) -> str:
    """Give one line for something that is refused, or for a warning."""
    at = f"{problem['at']}: " if problem["at"] else ""
    return escaped(f"{problem['reason']}: {at}{problem['message']}")


def _table(cloud: Tree) -> list[str]:
    priced = cloud.get("costMilliMost") is not None
    rows = [
        [
            each["key"],
            each["kind"],
            each["name"],
            ", ".join(each["needs"]) or "-",
            _nodes(each.get("machines")),
            *([_price(each.get("machines"))] if priced else []),
        ]
        for each in cloud["objects"]
    ]
    return columns(["OBJECT", "KIND", "NAME", "NEEDS", "NODES", *(["COST/H"] if priced else [])], rows)


def _nodes(machines: Tree | None) -> str:
    return "-" if machines is None else f"{machines['type']} x{_span(str(machines['start']), str(machines['most']))}"


def _price(machines: Tree | None) -> str:
    return "-" if machines is None else _span(price_text(machines["costMilliStart"]), price_text(machines["costMilliMost"]))


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first}..{last}"


def _cost_lines(cloud: Tree) -> Iterator[str]:
    machines = [each["machines"] for each in cloud["objects"] if "machines" in each]
    missing = dict.fromkeys(f"{each['type']} in {each['region']}" for each in machines if each["priceMilli"] == UNPRICED)
    if missing:
        yield f"The prices have none of {', '.join(missing)}."
    else:
        start, most = price_text(cloud["costMilliStart"]), price_text(cloud["costMilliMost"])
        yield f"The machines cost {start} per hour at the start and at most {most}; what else the cloud charges is not in it."


def _call_lines(cloud: Tree) -> Iterator[str]:
    for each in cloud["objects"]:
        yield f"{each['key']} waits for: {each['waitsFor']}"
        for call in each["calls"]:
            yield from indented([f"{call['service']} {call['operation']}", *indented(as_yaml(call["parameters"]).splitlines())])
