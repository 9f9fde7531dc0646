"""`modelplane drain` and `modelplane uncordon`.

Both change one taint in the cluster's spec and leave everything else to the scheduler, which moves replicas under the budgets of their
deployments. The manifest of the cluster shows why nothing runs there.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

import typer

from api_types import labels
from api_types.resources.kinds import BY_KIND
from client.commands import options
from client.configuration import load_settings
from client.errors import Refused
from client.follow.drain_progress import request_moves, until_drained
from client.follow.edit import as_manifest, change
from client.output.progress import Progress
from client.refs.targets import Target, kinds_and_names
from client.refs.tree import Tree, generation
from client.temporal.control_plane import ControlPlane, control_plane

Taints = list[dict[str, Any]]

_TAINT = {"key": labels.MAINTENANCE, "effect": "NoExecute"}
Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="An InferenceCluster: `oslo` or `ic/oslo`.")]


def drain(cluster: Cluster, wait: options.Wait = False, timeout: options.Timeout = options.WAIT_SECONDS) -> None:
    """Move every replica off a cluster and place nothing there until `modelplane uncordon`.

    `modelplane plan --drain CLUSTER` shows beforehand what would happen.
    """
    asyncio.run(_drain(_cluster(cluster), wait=wait, seconds=timeout))


def uncordon(cluster: Cluster) -> None:
    """Allow replicas on a drained cluster again. Nothing moves back by itself."""
    asyncio.run(_uncordon(_cluster(cluster)))


def with_maintenance(taints: Taints) -> Taints:
    """Add the taint, once; all others stay."""
    return taints if any(_is_maintenance(taint) for taint in taints) else [*taints, dict(_TAINT)]


def without_maintenance(taints: Taints) -> Taints:
    """Remove the taint of `drain`, whatever its effect; all others stay."""
    return [taint for taint in taints if taint.get("key") != labels.MAINTENANCE]


def with_taints(tree: Tree, change: Callable[[Taints], Taints]) -> Tree | None:
    """Give a described cluster as a manifest with other taints; None if that changes nothing."""
    before = list(tree["spec"].get("taints") or [])
    after = change(before)
    if after == before:
        return None
    spec = {key: value for key, value in tree["spec"].items() if key != "taints"} | ({"taints": after} if after else {})
    return as_manifest(tree, spec)


def _is_maintenance(taint: dict[str, Any]) -> bool:
    return taint.get("key") == labels.MAINTENANCE and taint.get("effect") == _TAINT["effect"]


def _cluster(word: str) -> Target:
    kind = BY_KIND["InferenceCluster"]
    ((found, name),) = kinds_and_names([word]) if "/" in word else [(kind, word)]
    if found != kind or not name:
        raise Refused(f"{word!r} is no InferenceCluster", next_step="write the name of a cluster: `modelplane get ic` lists them")
    return Target.of(kind, None, name)


async def _drain(target: Target, *, wait: bool, seconds: float) -> None:
    async with control_plane(load_settings()) as plane:
        changed = await _change_taints(plane, target, with_maintenance)
        print(f"{target.label} {'drain requested' if changed else 'is drained already'}", flush=True)
        await request_moves(plane, target, generation(await plane.describe(target)))
        if wait:
            with Progress() as progress:
                await until_drained(plane, target.name, seconds, progress)


async def _uncordon(target: Target) -> None:
    async with control_plane(load_settings()) as plane:
        changed = await _change_taints(plane, target, without_maintenance)
        print(f"{target.label} {'uncordoned' if changed else 'was not drained'}", flush=True)


async def _change_taints(plane: ControlPlane, target: Target, taints: Callable[[Taints], Taints]) -> bool:
    """Send the cluster with other taints; False if that changes nothing. Raises `NotFound`, `Conflict`, `Refused`, `NoAnswer`."""
    return await change(plane, target, lambda tree: (with_taints(tree, taints) or tree)["spec"]) is not None
