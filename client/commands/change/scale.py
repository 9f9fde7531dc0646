"""`modelplane scale`: set the number of replicas by a signal, as an autoscaler does."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import Scale
from api_types.validation.manifests import InvalidManifest, admit_scale
from client.commands import options
from client.follow.edit import raise_if_deleted, raise_without_spec
from client.follow.results import request_each
from client.follow.waiting import Goal, wait_until_ready
from fleet_client.configuration import load_settings
from fleet_client.connection import fleet_objects
from fleet_client.errors import Refused, WriteConflict
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target, objects_named
from fleet_client.refs.tree import Tree, at_path
from fleet_client.requests import Requested, current_user, new_request_id, until_applied


def scale(
    objects: Annotated[
        list[str], typer.Argument(help="Deployments: `md/qwen`, or `md qwen`.")
    ],
    replicas: Annotated[
        int, typer.Option("--replicas", help="How many replicas to run.")
    ],
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Set the number of replicas of a ModelDeployment.

    With --wait the command ends when all replicas are Ready and the removed ones are
    gone.

    For example:
      modelplane scale md/qwen --replicas 3
      modelplane scale md/qwen --replicas 0 --wait
    """
    targets = objects_named(objects, namespace)
    for target in targets:
        if target.kind.scale is not None:
            continue
        raise Refused(
            f"{target.title} has no replicas to scale",
            next_step=(
                "only a ModelDeployment can be scaled: `modelplane scale md/NAME "
                "--replicas N`"
            ),
        )
    for target in targets:
        _check(target, replicas)
    asyncio.run(_scale(targets, replicas, wait=wait, seconds=timeout))


def _check(target: Target, replicas: int) -> None:
    try:
        admit_scale(target.namespace, target.name, replicas)
    except InvalidManifest as error:
        raise Refused(
            str(error), next_step="give another --replicas; nothing was sent"
        ) from error


async def _scale(
    targets: list[Target], replicas: int, *, wait: bool, seconds: float
) -> None:
    async with fleet_objects(load_settings()) as plane:
        requested = await request_each(
            targets,
            lambda target: request_scale(plane, target, replicas),
            lambda _: f"scaled to {replicas}",
        )
        if wait:
            await wait_until_ready(
                plane, [Goal.of(one, exact=True) for one in requested], seconds
            )


async def request_scale(
    plane: FleetObjects, target: Target, replicas: int
) -> Requested:
    """Send the count and wait until it is applied.

    Raise `Refused`, `NotFound` or `WriteConflict`.
    """
    message = Scale(request_id=new_request_id(), by=current_user(), replicas=replicas)
    await plane.scale(target, message)
    requested = await until_applied(plane, target, message.request_id)
    raise_if_deleted(requested)
    if requested.tree:
        raise_without_spec(target, requested.tree)
        _check_count(target, requested.tree, replicas)
    return requested


def _check_count(target: Target, tree: Tree, replicas: int) -> None:
    if at_path(tree, ".spec.replicas") != replicas:
        raise WriteConflict(
            f"{target.title} has {at_path(tree, '.spec.replicas')} replicas: it "
            "was scaled again after this request",
            next_step=f"`modelplane events {target.command}` shows who did it",
        )
