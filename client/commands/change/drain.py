"""`modelplane drain`, `cordon` and `uncordon`.

Each changes one taint in the cluster's spec. The scheduler then moves replicas within
the drain budgets of their deployments, and the cluster's condition SchedulingDisabled
shows the reason. A drain is planned first, because it must not remove a replica that
has no other place.
"""

import asyncio
from collections.abc import Callable
from typing import Annotated

import typer

from api_types.resources.kinds import BY_KIND
from api_types.taints import with_cordon, with_taint, without_taint
from client.commands import options
from client.follow.drain_check import DRAIN, check_loss
from client.follow.drain_progress import until_drained
from client.follow.edit import change
from client.follow.results import request_each
from client.output.progress import Progress
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, kinds_and_names
from fleet_client.refs.tree import Tree
from fleet_client.temporal.control_plane import control_plane

Cluster = Annotated[
    str,
    typer.Argument(metavar="CLUSTER", help="An InferenceCluster: `oslo` or `ic/oslo`."),
]
Reason = Annotated[
    str,
    typer.Option(
        "--reason",
        help="The reason, which the condition SchedulingDisabled and the events show.",
    ),
]


def drain(
    cluster: Cluster,
    allow_loss: Annotated[
        bool,
        typer.Option(
            "--allow-loss",
            help="Also drain replicas that find no other place. Drain budgets still apply.",
        ),
    ] = False,
    reason: Reason = "",
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Move every replica off a cluster and place nothing there until `uncordon`.

    If a replica would find no other place, the command shows it, sends nothing, and
    exits with code 1, unless --allow-loss is given. `modelplane cordon` moves nothing;
    `modelplane plan --drain CLUSTER` shows in detail what a drain would do.

    For example:
      modelplane drain oslo --wait
      modelplane drain oslo --reason 'new kernel' --allow-loss
    """
    asyncio.run(
        _drain(
            _cluster(cluster), reason, allow_loss=allow_loss, wait=wait, seconds=timeout
        )
    )


def cordon(cluster: Cluster, reason: Reason = "") -> None:
    """Place nothing more on a cluster until `modelplane uncordon`. Its replicas stay.

    For example:
      modelplane cordon oslo --reason 'new kernel'
    """
    asyncio.run(
        _change(
            _cluster(cluster),
            with_cordon,
            reason,
            ("cordoned", "already takes no replicas"),
        )
    )


def uncordon(cluster: Cluster, reason: Reason = "") -> None:
    """Allow replicas on a drained or cordoned cluster again. Nothing moves back by itself.

    For example:
      modelplane uncordon oslo
    """
    asyncio.run(
        _change(
            _cluster(cluster),
            without_taint,
            reason,
            ("uncordoned", "was neither drained nor cordoned"),
        )
    )


def _cluster(word: str) -> Target:
    kind = BY_KIND["InferenceCluster"]
    ((found, name),) = kinds_and_names([word]) if "/" in word else [(kind, word)]
    if found != kind or not name:
        raise Refused(
            f"{word!r} is not an InferenceCluster",
            next_step="write the name of a cluster: `modelplane get ic` lists them",
        )
    return Target.of(kind, None, name)


async def _drain(
    target: Target, reason: str, *, allow_loss: bool, wait: bool, seconds: float
) -> None:
    why = (
        "it plans the drain from the scheduler's state; `modelplane cordon` works "
        "through the front, and moves nothing"
    )
    async with control_plane(load_settings(), why) as plane:
        await check_loss(plane, [target], DRAIN, allow_loss=allow_loss)
        await _request(
            plane, target, with_taint, reason, ("drain requested", "is drained already")
        )
        if wait:
            with Progress() as progress:
                await until_drained(plane, target.name, seconds, progress)


async def _change(
    target: Target,
    taint: Callable[[Tree], Tree],
    reason: str,
    outcomes: tuple[str, str],
) -> None:
    async with fleet_objects(load_settings()) as plane:
        await _request(plane, target, taint, reason, outcomes)


async def _request(
    plane: FleetObjects,
    target: Target,
    taint: Callable[[Tree], Tree],
    reason: str,
    outcomes: tuple[str, str],
) -> None:
    """Change the taints of a cluster.

    `outcomes` are the texts for a change and for no change.
    """
    done, already = outcomes
    await request_each(
        [target],
        lambda one: change(plane, one, lambda tree: taint(tree["spec"]), reason=reason),
        lambda one: done if one.request_id else already,
    )
