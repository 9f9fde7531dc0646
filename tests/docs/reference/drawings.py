"""The drawings of docs/concepts: lifecycles, drawn from the steps that the code runs.

`layered` draws steps below the steps that they need, and `exchange` the messages between
objects. A message that no receiver declares is an error.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import NamedTuple

from activities.render.objects import teardown
from activities.render.stack import install, removal
from api_types.messages import signals
from tests.docs.output import PROGRAM, output_of

_CHARACTER, _HEIGHT, _GAP = 7.4, 34, 26
_STYLE = (
    "text{font:13px ui-sans-serif,system-ui,sans-serif;fill:#1f2933}"
    ".box{fill:#eef2ff;stroke:#4f5fc4}.line{fill:none;stroke:#7b8794}"
    ".background{fill:#fff}"
)


class Message(NamedTuple):
    """A message of an exchange. A name with a space is an action and not a signal."""

    sender: str
    receiver: str
    name: str


def _text(x: float, y: float, text: str, anchor: str = "middle") -> str:
    return f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(title: str, width: float, height: float, parts: Sequence[str]) -> str:
    size = f"{width:.0f} {height:.0f}"
    arrow = (
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" '
        'markerHeight="8" orient="auto"><path d="M0 0 8 4 0 8z" fill="#7b8794"/></marker></defs>'
    )
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" width="{width:.0f}" '
        f'role="img" aria-label="{escape(title)}">'
    )
    background = '<rect class="background" width="100%" height="100%" rx="8"/>'
    return "\n".join(
        [head, f"<style>{_STYLE}</style>", arrow, background, *parts, "</svg>\n"]
    )


def _depths(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    depths: dict[str, int] = {}

    def depth(key: str) -> int:
        if key not in depths:
            depths[key] = 1 + max((depth(each) for each in needs[key]), default=-1)
        return depths[key]

    for key in needs:
        depth(key)
    return depths


def _direct(needs: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the needs of each step without those that another need implies."""

    def all_of(key: str) -> set[str]:
        return {key}.union(*(all_of(each) for each in needs[key]))

    return {
        key: [
            each
            for each in found
            if not any(each in all_of(other) for other in found if other != each)
        ]
        for key, found in needs.items()
    }


def layered(
    title: str, titles: Mapping[str, str], needs: Mapping[str, Sequence[str]]
) -> str:
    """Draw each step below the steps that it needs."""
    needs = _direct(needs)
    depths = _depths(needs)
    rows: list[list[str]] = [[] for _ in range(max(depths.values()) + 1)]
    for key, depth in depths.items():
        rows[depth].append(key)
    widths = {key: len(titles[key]) * _CHARACTER + 20 for key in needs}
    whole = max(sum(widths[key] + _GAP for key in row) for row in rows) + _GAP
    middles: dict[str, tuple[float, float]] = {}
    for index, row in enumerate(rows):
        x = (whole - sum(widths[key] + _GAP for key in row) + _GAP) / 2
        for key in row:
            middles[key] = x + widths[key] / 2, _GAP + index * (_HEIGHT + _GAP)
            x += widths[key] + _GAP
    parts = []
    for key, found in needs.items():
        x, y = middles[key]
        for need in found:
            above, top = middles[need]
            start = top + _HEIGHT
            middle = (start + y) / 2
            curve = f"C{above:.0f} {middle:.0f} {x:.0f} {middle:.0f} {x:.0f} {y:.0f}"
            path = f"M{above:.0f} {start:.0f}{curve}"
            parts.append(f'<path class="line" marker-end="url(#arrow)" d="{path}"/>')
    for key, (x, y) in middles.items():
        width = widths[key]
        left = x - width / 2
        parts.append(
            f'<rect class="box" x="{left:.0f}" y="{y:.0f}" width="{width:.0f}" '
            f'height="{_HEIGHT}" rx="6"/>'
        )
        parts.append(_text(x, y + 21, titles[key]))
    return _svg(title, whole, _GAP + len(rows) * (_HEIGHT + _GAP), parts)


def _check(message: Message) -> None:
    if " " in message.name:
        return
    receiver = getattr(signals, f"{message.receiver}Signals")
    known = signals.signals_of(receiver)
    assert message.name in known, f"{message.receiver} receives no {message.name}"


def exchange(title: str, messages: Sequence[Message]) -> str:
    """Draw messages between objects, from the first one at the top to the last one."""
    objects = list(dict.fromkeys(name for each in messages for name in each[:2]))
    lane = 170
    places = {name: lane / 2 + index * lane + 10 for index, name in enumerate(objects)}
    height = 70 + len(messages) * 40
    parts = []
    for name, x in places.items():
        parts += [
            f'<rect class="box" x="{x - 75:.0f}" y="12" width="150" height="{_HEIGHT}" rx="6"/>',
            _text(x, 33, name),
            f'<path class="line" stroke-dasharray="3 4" d="M{x:.0f} 46V{height - 12}"/>',
        ]
    for index, message in enumerate(messages):
        _check(message)
        y = 84 + index * 40
        start, end = places[message.sender], places[message.receiver]
        if start == end:
            parts.append(_text(start + 8, y, message.name, "start"))
            continue
        parts.append(
            f'<path class="line" marker-end="url(#arrow)" d="M{start:.0f} {y}H{end:.0f}"/>'
        )
        parts.append(_text((start + end) / 2, y - 6, message.name))
    return _svg(title, len(objects) * lane + 20, height, parts)


def _chain(title: str, titles: Sequence[str]) -> str:
    keys = [str(number) for number, _ in enumerate(titles)]
    needs = {key: keys[max(0, index - 1) : index] for index, key in enumerate(keys)}
    numbered = {
        key: f"{index}. {titles[index - 1]}" for index, key in enumerate(keys, 1)
    }
    return layered(title, numbered, needs)


def replica_teardown() -> str:
    """Draw the order in which the objects of a replica are deleted."""
    return _chain("Teardown of a replica", [step.title for step in teardown.STEPS])


def stack_install() -> str:
    """Draw the order in which a serving stack is installed."""
    titles = {step.key: f"{step.stage.title}: {step.key}" for step in install.INSTALL}
    needs = {step.key: step.needs for step in install.INSTALL}
    return layered("Installation of a serving stack", titles, needs)


def stack_removal() -> str:
    """Draw the order in which a serving stack is removed."""
    return _chain("Removal of a serving stack", [step.title for step in removal.STEPS])


def cloud_cluster(cloud: str) -> str:
    """Draw the cloud objects of the first cluster at a cloud, below the objects that they need."""
    file = f"examples/clouds/first-{cloud}.yaml"
    plan = json.loads(output_of(f"{PROGRAM} plan --offline -f {file} -o json"))
    objects = plan["clouds"][0]["objects"]
    titles = {each["key"]: f"{each['kind']} {each['key']}" for each in objects}
    needs = {
        each["key"]: [key for key in each["needs"] if key in titles] for each in objects
    }
    return layered(f"Objects of a cluster on {cloud.upper()}", titles, needs)


PLACEMENT = (
    Message("user", "ModelDeployment", "apply a manifest"),
    Message("ModelDeployment", "FleetScheduler", "place"),
    Message("FleetScheduler", "ModelDeployment", "placed"),
    Message("ModelDeployment", "ModelReplica", "start its workflow"),
    Message("ModelDeployment", "FleetScheduler", "bound"),
    Message("ModelReplica", "InferenceCluster", "apply the objects"),
    Message("InferenceCluster", "ModelReplica", "report ready pods"),
    Message("ModelReplica", "EndpointDirectory", "report_endpoint"),
    Message("EndpointDirectory", "ModelService", "endpoints_changed"),
    Message("ModelService", "EndpointDirectory", "routed"),
)
WITHDRAWAL = (
    Message("ModelDeployment", "ModelReplica", "delete"),
    Message("ModelReplica", "EndpointDirectory", "report_endpoint"),
    Message("EndpointDirectory", "ModelService", "endpoints_changed"),
    Message("ModelService", "EndpointDirectory", "routed"),
    Message("EndpointDirectory", "ModelReplica", "endpoint_withdrawn"),
    Message("ModelReplica", "InferenceCluster", "delete the objects"),
    Message("ModelReplica", "ModelDeployment", "replica_changed"),
    Message("ModelDeployment", "FleetScheduler", "released"),
)

DRAWINGS: Mapping[str, Callable[[], str]] = {
    f"docs/concepts/drawings/{name}.svg": draw
    for name, draw in (
        (
            "placement",
            partial(exchange, "From a manifest to a served replica", PLACEMENT),
        ),
        ("withdrawal", partial(exchange, "The end of a replica", WITHDRAWAL)),
        ("replica-teardown", replica_teardown),
        ("stack-install", stack_install),
        ("stack-removal", stack_removal),
        ("cluster-gke", partial(cloud_cluster, "gke")),
        ("cluster-eks", partial(cloud_cluster, "eks")),
    )
}
