"""`modelplane scale`: set a replica count by signal, as an autoscaler does."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import Scale
from api_types.validation.manifests import InvalidManifest, admit_scale
from client.commands import options
from client.configuration import load_settings
from client.errors import Conflict, Refused
from client.fleet.connection import fleet_objects
from client.fleet.objects import Objects
from client.follow.edit import raise_if_deleted, raise_without_spec
from client.follow.requests import Requested, current_user, new_request_id, request_each, until_applied
from client.follow.waiting import Goal, wait_until_ready
from client.refs.targets import Target, objects_named
from client.refs.tree import Tree, at_path


def scale(
    objects: Annotated[list[str], typer.Argument(help="Deployments: `md/qwen`, or `md qwen`.")],
    replicas: Annotated[int, typer.Option("--replicas", help="How many replicas to run.")],
    namespace: options.Namespace = None,
    wait: options.Wait = False,
    timeout: options.Timeout = options.WAIT_SECONDS,
) -> None:
    """Set the number of replicas of a ModelDeployment. With --wait it ends when all are Ready and those that leave are gone."""
    targets = objects_named(objects, namespace)
    if other := next((target for target in targets if target.kind.scale is None), None):
        raise Refused(
            f"{other.title} has no replicas to scale",
            next_step="only a ModelDeployment can be scaled: `modelplane scale md/NAME --replicas N`",
        )
    for target in targets:
        _check(target, replicas)
    asyncio.run(_scale(targets, replicas, wait=wait, seconds=timeout))


def _check(target: Target, replicas: int) -> None:
    try:
        admit_scale(target.namespace, target.name, replicas)
    except InvalidManifest as error:
        raise Refused(str(error), next_step="give another --replicas; nothing was sent") from error


async def _scale(targets: list[Target], replicas: int, *, wait: bool, seconds: float) -> None:
    async with fleet_objects(load_settings()) as plane:
        requested = await request_each(targets, lambda target: request_scale(plane, target, replicas), lambda _: f"scaled to {replicas}")
        if wait:
            await wait_until_ready(plane, [Goal.of(one, exact=True) for one in requested], seconds)


async def request_scale(plane: Objects, target: Target, replicas: int) -> Requested:
    """Signal the count and wait until it is applied. Raises `Refused`, `NotFound`, `Conflict`."""
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
        raise Conflict(
            f"{target.title} has {at_path(tree, '.spec.replicas')} replicas by now: it was scaled again after this request",
            next_step=f"`modelplane events {target.command}` shows by whom",
        )
