"""The text of a plan at a cloud: a table of objects, and with `wide` their calls."""

from collections import Counter
from collections.abc import Iterator

from api_types.text.printable import escaped
from client.output.formats import as_yaml
from client.output.tables import columns, indented
from client.planning.cloud_changes import CHANGE, CREATE, KEEP, REPLACE
from fleet_client.refs.tree import Tree

_SIGNS = {CREATE: "+", CHANGE: "~", REPLACE: "-/+"}
_WORDS = {CREATE: "created", CHANGE: "changed in place", REPLACE: "to be replaced"}


def cloud_lines(cloud: Tree, *, wide: bool) -> list[str]:
    """Return the lines of one cluster's plan.

    `wide` adds calls with their parameters.
    """
    count = len(cloud["objects"])
    lines = [f"InferenceCluster {cloud['cluster']}: {_summary(cloud)}"]
    if _shown(cloud) or cloud["removed"]:
        lines += indented(_table(cloud))
    if count and (_shown(cloud) or cloud["removed"]):
        lines += ["", *indented(_cost_lines(cloud["costs"], wide=wide))]
    replaced = [each for each in cloud["objects"] if each["action"] == REPLACE]
    if replaced:
        lines += [
            "",
            *indented(
                [
                    (
                        "No cloud can change these parameters (ReplaceRequired): add "
                        "another pool, then remove this one."
                    )
                ]
            ),
        ]
        lines += indented(
            indented(
                f"{each['key']}: {', '.join(each['changes'])}" for each in replaced
            )
        )
    for title, problems in (
        ("Refused:", cloud["refused"]),
        ("Warnings:", cloud["warnings"]),
    ):
        if problems:
            lines += [
                "",
                *indented([title, *indented(problem_text(each) for each in problems)]),
            ]
    if wide and _shown(cloud):
        lines += ["", *indented(["Calls:", *indented(_call_lines(cloud))])]
    if cloud["notes"] and _shown(cloud):
        lines += ["", *indented(["Notes:", *indented(cloud["notes"])])]
    return lines


def _summary(cloud: Tree) -> str:
    count = len(cloud["objects"])
    shown = Counter(each["action"] for each in cloud["objects"])
    if shown[CREATE] == count and not cloud["removed"]:
        if not count:
            return "nothing can be created"
        return f"{count} objects would be created on {cloud['source']}, in this order"
    done = [
        f"{shown[action]} {word}" for action, word in _WORDS.items() if shown[action]
    ]
    if cloud["removed"]:
        done.append(f"{len(cloud['removed'])} deleted")
    if not done:
        return f"nothing would change on {cloud['source']}"
    stay = f"; {shown[KEEP]} stay as they are" if shown[KEEP] else ""
    return f"of its objects on {cloud['source']}, {', '.join(done)}{stay}"


def _shown(cloud: Tree) -> list[Tree]:
    """Return the objects that would be created, changed or replaced."""
    return [each for each in cloud["objects"] if each["action"] != KEEP]


def problem_text(problem: Tree) -> str:
    """Return one line for a refusal or a warning."""
    at = f"{problem['at']}: " if problem["at"] else ""
    return escaped(f"{problem['reason']}: {at}{problem['message']}")


def _table(cloud: Tree) -> list[str]:
    head = ["OBJECT", "KIND", "NAME", "NEEDS", "NODES"]
    rows = [_row(each, ", ".join(each["needs"]) or "-") for each in _shown(cloud)]
    all_new = all(each["action"] == CREATE for each in cloud["objects"])
    if all_new and not cloud["removed"]:
        return columns(head, rows)
    rows = [
        [_SIGNS[each["action"]], *row]
        for each, row in zip(_shown(cloud), rows, strict=True)
    ]
    rows += [["-", *_row(each, "-")] for each in cloud["removed"]]
    return columns(["", *head], rows)


def _row(each: Tree, needs: str) -> list[str]:
    nodes = _nodes(each.get("machines"))
    return [each["key"], each["kind"], each["name"], needs, nodes]


def _nodes(machines: Tree | None) -> str:
    if machines is None:
        return "-"
    count = _span(str(machines["start"]), str(machines["most"]))
    return f"{machines['type']} x{count}"


def _span(first: str, last: str) -> str:
    return first if first == last else f"{first}..{last}"


def _cost_lines(costs: Tree, *, wide: bool) -> Iterator[str]:
    yield "Costs in US dollars, at list prices unless --prices names others:"
    head = ["COST OF", "OBJECT", "COUNT", "PER HOUR", "PER MONTH"]
    rows = [
        [
            each["item"],
            each["object"],
            _span(str(each["start"]), str(each["most"])),
            _money(each["perHour"], 3),
            _money(each["perMonth"], 2),
        ]
        for each in costs["items"]
    ]
    if wide:
        head.append("SOURCE OF THE PRICE")
        for row, each in zip(rows, costs["items"], strict=True):
            source = each.get("source", "-")
            row.append(f"{source} ({each['dated']})" if each.get("dated") else source)
    total = [_money(costs["perHour"], 3), _money(costs["perMonth"], 2)]
    rows.append(["sum of known prices", "-", "-", *total, *(["-"] if wide else [])])
    yield from indented(columns(head, rows))
    if costs["unknown"]:
        missing = ", ".join(costs["unknown"])
        yield f"Not in the sum, because no price is known: {missing}."
    if costs["usage"]:
        yield f"Not in the sum, because it depends on use: {'; '.join(costs['usage'])}."
    yield f"Not included: {'; '.join(costs['leftOut'])}."


def _money(span: Tree | None, decimals: int) -> str:
    if span is None:
        return "unknown"
    first, last = (f"{float(span[at]):.{decimals}f}" for at in ("start", "most"))
    return _span(first, last)


def _call_lines(cloud: Tree) -> Iterator[str]:
    for each in _shown(cloud):
        yield f"{each['key']} waits for: {each['waitsFor']}"
        for call in each["calls"]:
            yield from indented(
                [
                    f"{call['service']} {call['operation']}",
                    *indented(as_yaml(call["parameters"]).splitlines()),
                ]
            )
