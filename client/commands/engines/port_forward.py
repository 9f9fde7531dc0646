"""`modelplane port-forward`: forward ports of this machine to a pod of an engine."""

import asyncio
import sys
from typing import Annotated

import typer

from client.commands import options
from client.engines.forwarding import forward, port_pair
from client.engines.pods import engine_pods
from client.engines.workloads import EngineChoice, engines_target
from fleet_client.configuration import load_settings


def port_forward(
    *,
    word: Annotated[
        str, typer.Argument(metavar="md/NAME|mr/NAME", help="A deployment or replica.")
    ],
    ports: Annotated[
        list[str],
        typer.Argument(
            metavar="[LOCAL:]REMOTE...",
            help="A port of the pod, with the port of this machine if it is another.",
        ),
    ],
    namespace: options.Namespace = None,
    replica: options.Replica = "",
    engine: options.Engine = "",
    member: options.EngineMember = None,
) -> None:
    """Forward ports of this machine to a pod of an engine; end with Ctrl-C.

    If several pods are chosen, connections go to a ready one. Only programs on
    this machine can connect.

    For example:
      modelplane port-forward md/qwen 8080:8000 -n ml
      modelplane port-forward mr/qwen-1414d327 :8000 -n ml --member leader
    """
    target = engines_target(word, namespace)
    pairs = [port_pair(each) for each in ports]

    async def serve() -> None:
        async with engine_pods(
            load_settings(),
            "port-forward",
            target,
            EngineChoice(replica, engine),
            member,
        ) as pods:
            if len(pods) > 1:
                print(
                    f"to 1 of {len(pods)} pods: choose with --replica, --engine and "
                    "--member",
                    file=sys.stderr,
                )
            await forward(pods[0], pairs)

    asyncio.run(serve())
