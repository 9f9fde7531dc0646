"""`modelplane status`: the state of the whole fleet on one screen."""

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

import typer

from api_types.clock import now_ms, utc_now
from api_types.payloads.limits import shortened
from api_types.resources.kinds import SERVED, KindInfo
from api_types.text.age import age
from client.commands import options
from client.output.printer import warn_hidden, warn_unanswered
from client.output.tables import columns, indented
from fleet_client.advice import advice
from fleet_client.configuration import front_named, load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import CommandFailed
from fleet_client.lookup import find_objects
from fleet_client.placement.live_fleet import read_live
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.selectors import ObjectSelection
from fleet_client.refs.tree import SCALED_TO_ZERO, Tree, condition, deleting
from scheduler import PoolCapacityUse, pool_use

_PROBLEMS_SHOWN = 12
_MESSAGE_BYTES = 160
# The problem of a replica is also that of its deployment.
_PARTS_OF_OTHERS = {"ModelReplica"}


def status(
    namespace: options.Namespace = None,
    every: Annotated[
        bool,
        typer.Option("--all-problems", help="Show all problems, with whole messages."),
    ] = False,
) -> None:
    """Show how many objects are Ready, the capacity, and the problems of the fleet.

    With -n, show the objects of that namespace, and those without a namespace.

    A problem is an object that is not Ready, a cluster whose objects in a cloud have
    problems, or a blocked deletion, with the reason, and the next step where a person has
    to act. Objects with the same reason and message are one problem. The capacity of the
    fleet is shown to users with access to Temporal.

    For example:
      modelplane status
      modelplane status -n ml-team
      modelplane status --all-problems
    """
    asyncio.run(_status(namespace, every=every))


async def _status(namespace: str | None, *, every: bool) -> None:
    everything = [(kind, None) for kind in SERVED]
    async with fleet_objects(load_settings()) as plane:
        found, _, hidden = await find_objects(
            plane, everything, namespace, ObjectSelection.parse(everything, None)
        )
        lines = object_lines(found)
        if not front_named():
            try:
                live = await read_live(plane.temporal("it counts the ledger"))
                lines += capacity_lines(pool_use(live.fleet, now_ms()))
            except CommandFailed as failure:
                lines += ["", f"Capacity: unknown, because {failure.message}"]
    lines += problem_lines(found, utc_now(), every=every)
    print("\n".join(lines))
    warn_unanswered(found)
    warn_hidden(hidden)


def object_lines(found: Sequence[ListedObject]) -> list[str]:
    """Return a table of the kinds that exist, with the numbers of their objects."""
    rows = []
    for kind in SERVED:
        trees = [one.tree for one in found if one.target.kind == kind]
        if trees:
            leaving = sum(map(deleting, trees))
            ready = sum(not deleting(tree) and _is_reached(tree) for tree in trees)
            rest = len(trees) - leaving - ready
            rows.append([kind.kind, *map(str, (len(trees), ready, rest, leaving))])
    if not rows:
        return ["The fleet has no objects; `modelplane apply -f FILE` creates some"]
    return columns(["KIND", "TOTAL", "READY", "NOT-READY", "DELETING"], rows)


def capacity_lines(pools: Sequence[PoolCapacityUse]) -> list[str]:
    """Return one line per unit with the sums over the fleet."""
    lines = []
    for unit in dict.fromkeys(pool.unit for pool in pools):
        own = [pool for pool in pools if pool.unit == unit]
        sums = ", ".join(
            f"{sum(getattr(pool, part) for pool in own)} {part}"
            for part in ("used", "held", "free", "wasted")
        )
        lines.append(f"Capacity: {sum(pool.total for pool in own)} {unit}: {sums}")
    return ["", *lines, "`modelplane top clusters` shows where"] if lines else []


def problem_lines(
    found: Sequence[ListedObject], now: datetime, *, every: bool
) -> list[str]:
    """Return the problems in the order of kinds, those of the longest duration first."""
    causes: dict[tuple[KindInfo, str, str], list[ListedObject]] = {}
    for one in found:
        problem = _problem(one.tree)
        if problem and one.target.kind.kind not in _PARTS_OF_OTHERS:
            reason, message = (str(problem.get(key) or "") for key in _CAUSE)
            causes.setdefault((one.target.kind, reason, message), []).append(one)
    if not causes:
        return ["", "No problems"]
    shown = sorted(causes.items(), key=lambda item: _order(item[0][0], item[1]))
    left = 0 if every else max(0, len(shown) - _PROBLEMS_SHOWN)
    lines = ["", f"Problems: {len(causes)}"]
    for (_, reason, message), objects in shown[: len(shown) - left]:
        first = min(objects, key=_since)
        target, tree = first.target, first.tree
        more = f" and {len(objects) - 1} more" if len(objects) > 1 else ""
        since = age(_since(first), now)
        text = message if every else shortened(message, _MESSAGE_BYTES)
        lines += indented([f"{target.title}{more}: {reason} for {since}: {text}"])
        next_step = (
            advice(target, tree) or f"`modelplane describe {target.command}`"
        ).removeprefix("next: ")
        lines += indented(indented([f"next: {next_step}"]))
    if left:
        lines.append(f"{left} more: `modelplane status --all-problems` shows them")
    return lines


_CAUSE = ("reason", "message")
_BLOCKED = "DeletionBlocked"
_NOT_SEEN = {"reason": "Unknown", "message": "it has no condition Ready yet"}


def _problem(tree: Tree) -> Tree:
    """Return the condition of an object that explains its problem, or an empty tree.

    A deletion is a problem while a person has to act. A Ready cluster may have objects
    in its cloud with problems.
    """
    if deleting(tree):
        leaving = condition(tree, "Deleting")
        return leaving if leaving.get("reason") == _BLOCKED else {}
    if not _is_reached(tree):
        return condition(tree, "Ready") or _NOT_SEEN
    of_cloud = condition(tree, "CloudObjectsReady")
    return of_cloud if of_cloud.get("status") == "False" else {}


def _is_reached(tree: Tree) -> bool:
    ready = condition(tree, "Ready")
    return ready.get("status") == "True" or ready.get("reason") == SCALED_TO_ZERO


def _since(one: ListedObject) -> str:
    return str(_problem(one.tree).get("lastTransitionTime") or "")


def _order(kind: KindInfo, objects: Sequence[ListedObject]) -> tuple[int, str]:
    return SERVED.index(kind), min(map(_since, objects))
