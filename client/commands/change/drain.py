"""`modelplane drain` and `modelplane uncordon`.

Both change one taint in the cluster's spec and leave everything else to the scheduler, which moves replicas under the budgets of their
deployments. The manifest of the cluster shows why nothing runs there.
"""

import asyncio
from typing import Annotated

import typer

from api_types.resources.kinds import BY_KIND
from api_types.taints import with_taint, without_taint
from client.commands import options
from client.configuration import load_settings
from client.errors import Refused
from client.follow.drain_progress import request_moves, until_drained
from client.follow.edit import change
from client.output.progress import Progress
from client.refs.targets import Target, kinds_and_names
from client.refs.tree import generation
from client.temporal.control_plane import control_plane

Cluster = Annotated[str, typer.Argument(metavar="CLUSTER", help="An InferenceCluster: `oslo` or `ic/oslo`.")]


def drain(cluster: Cluster, wait: options.Wait = False, timeout: options.Timeout = options.WAIT_SECONDS) -> None:
    """Move every replica off a cluster and place nothing there until `modelplane uncordon`.

    `modelplane plan --drain CLUSTER` shows beforehand what would happen.
    """
    asyncio.run(_drain(_cluster(cluster), wait=wait, seconds=timeout))


def uncordon(cluster: Cluster) -> None:
    """Allow replicas on a drained cluster again. Nothing moves back by itself."""
    asyncio.run(_uncordon(_cluster(cluster)))


def _cluster(word: str) -> Target:
    kind = BY_KIND["InferenceCluster"]
    ((found, name),) = kinds_and_names([word]) if "/" in word else [(kind, word)]
    if found != kind or not name:
        raise Refused(f"{word!r} is no InferenceCluster", next_step="write the name of a cluster: `modelplane get ic` lists them")
    return Target.of(kind, None, name)


async def _drain(target: Target, *, wait: bool, seconds: float) -> None:
    async with control_plane(load_settings()) as plane:
        changed = await change(plane, target, lambda tree: with_taint(tree["spec"]))
        print(f"{target.label} {'drain requested' if changed else 'is drained already'}", flush=True)
        await request_moves(plane, target, generation(await plane.describe(target)))
        if wait:
            with Progress() as progress:
                await until_drained(plane, target.name, seconds, progress)


async def _uncordon(target: Target) -> None:
    async with control_plane(load_settings()) as plane:
        changed = await change(plane, target, lambda tree: without_taint(tree["spec"]))
        print(f"{target.label} {'uncordoned' if changed else 'was not drained'}", flush=True)
