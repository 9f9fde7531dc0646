"""The text of what would be done at a cloud: a table of objects, and with `wide` the calls that create them."""

from collections import Counter
from collections.abc import Iterator

from api_types.prices import UNPRICED
from api_types.text.printable import escaped
from client.output.formats import as_yaml
from client.output.plan_text import price_text
from client.output.tables import columns, indented
from client.planning.cloud_changes import CHANGE, CREATE, KEEP, REPLACE
from client.refs.tree import Tree

_SIGNS = {CREATE: "+", CHANGE: "~", REPLACE: "-/+"}
_WORDS = {CREATE: "created", CHANGE: "changed in place", REPLACE: "to be replaced"}


def cloud_lines(cloud: Tree, *, wide: bool) -> list[str]:
    """Give the lines of one cluster in the form of `-o json`; `wide` adds calls with their parameters."""
    count = len(cloud["objects"])
    lines = [f"InferenceCluster {cloud['cluster']}: {_summary(cloud)}"]
    if _shown(cloud) or cloud["removed"]:
        lines += indented(_table(cloud))
    if cloud.get("costMilliMost") is not None and count:
        lines += ["", *indented(_cost_lines(cloud))]
    if replaced := [each for each in cloud["objects"] if each["action"] == REPLACE]:
        lines += ["", *indented(["Not changed, because no cloud can (ReplaceRequired): add another pool, then remove this one."])]
        lines += indented(indented(f"{each['key']}: {', '.join(each['changes'])}" for each in replaced))
    for title, problems in (("Refused:", cloud["refused"]), ("Warnings:", cloud["warnings"])):
        if problems:
            lines += ["", *indented([title, *indented(problem_text(each) for each in problems)])]
    if wide and _shown(cloud):
        lines += ["", *indented(["Calls:", *indented(_call_lines(cloud))])]
    if cloud["notes"] and _shown(cloud):
        lines += ["", *indented(["Notes:", *indented(cloud["notes"])])]
    return lines


def _summary(cloud: Tree) -> str:
    count, shown = len(cloud["objects"]), Counter(each["action"] for each in cloud["objects"])
    if shown[CREATE] == count and not cloud["removed"]:
        return f"{count} objects would be created on {cloud['source']}, in this order" if count else "nothing can be created"
    done = [f"{shown[action]} {word}" for action, word in _WORDS.items() if shown[action]]
    done += [f"{len(cloud['removed'])} deleted"] if cloud["removed"] else []
    stay = f"; {shown[KEEP]} stay as they are" if shown[KEEP] else ""
    return f"of its objects on {cloud['source']}, {', '.join(done)}{stay}" if done else f"nothing would change on {cloud['source']}"


def _shown(cloud: Tree) -> list[Tree]:
    """Give the objects with which something would be done."""
    return [each for each in cloud["objects"] if each["action"] != KEEP]


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
        for each in _shown(cloud)
    ]
    head = ["OBJECT", "KIND", "NAME", "NEEDS", "NODES", *(["COST/H"] if priced else [])]
    if len(rows) == len(cloud["objects"]) and all(each["action"] == CREATE for each in cloud["objects"]) and not cloud["removed"]:
        return columns(head, rows)
    rows = [[_SIGNS[each["action"]], *row] for each, row in zip(_shown(cloud), rows, strict=True)]
    rows += [
        [
            "-",
            each["key"],
            each["kind"],
            each["name"],
            "-",
            _nodes(each.get("machines")),
            *([_price(each.get("machines"))] if priced else []),
        ]
        for each in cloud["removed"]
    ]
    return columns(["", *head], rows)


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
    for each in _shown(cloud):
        yield f"{each['key']} waits for: {each['waitsFor']}"
        for call in each["calls"]:
            yield from indented([f"{call['service']} {call['operation']}", *indented(as_yaml(call["parameters"]).splitlines())])
