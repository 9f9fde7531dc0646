"""`modelplane force-finalizer`: remove a finalizer that blocks a stack's removal."""

import asyncio
from typing import Annotated

import typer

from api_types.messages.entities import ForceFinalizer
from api_types.messages.signals import InferenceClusterSignals
from client.commands import options
from client.follow.results import request_each
from fleet_client.configuration import load_settings
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target, objects_named
from fleet_client.requests import current_user, new_request_id, until_applied
from fleet_client.temporal.control_plane import control_plane


def force_finalizer(
    *,
    cluster: Annotated[
        str,
        typer.Argument(help="The cluster that is being deleted, such as `ic/oslo`."),
    ],
    held: Annotated[
        str,
        typer.Argument(
            metavar="OBJECT",
            help="`KIND/NAMESPACE/NAME`, as the condition `Deleting` names it.",
        ),
    ],
    finalizer: Annotated[str, typer.Argument(help="The finalizer to remove.")],
    reason: Annotated[
        str, typer.Option("--reason", help="The reason, which the events show.")
    ],
    accept_leak: Annotated[
        bool,
        typer.Option(
            "--accept-leak",
            help=(
                "Accept that objects of its controller, such as a load balancer, may "
                "stay and cost money."
            ),
        ),
    ] = False,
    namespace: options.Namespace = None,
) -> None:
    """Remove a finalizer from an object that the removal of a stack waits for.

    Objects that the finalizer's controller would have deleted may stay.

    For example:
      modelplane force-finalizer ic/oslo Service/ns/lb example.com/x --reason 'no controller'
    """
    (target,) = objects_named([cluster], namespace)
    if target.kind.kind != "InferenceCluster":
        raise Refused(
            f"{target.title} has no stack",
            next_step="name the cluster: `modelplane force-finalizer ic/NAME OBJECT FINALIZER`",
        )
    if not reason.strip():
        raise Refused(
            "--reason is empty",
            next_step="give a reason, which helps to find the remaining objects later",
        )
    message = ForceFinalizer(
        request_id=new_request_id(),
        by=current_user(),
        object=held,
        finalizer=finalizer,
        reason=reason,
        accept_leak=accept_leak,
    )
    asyncio.run(_send(target, message))


async def _send(target: Target, message: ForceFinalizer) -> None:
    async with control_plane(
        load_settings(), "it is a signal to the workflow of a cluster"
    ) as plane:
        await plane.signal(target, InferenceClusterSignals.FORCE_FINALIZER, message)
        requested = until_applied(plane, target, message.request_id)
        await request_each(
            [target],
            lambda _: requested,
            lambda _: (
                f"requested; `modelplane events {target.command}` shows the result"
            ),
        )
