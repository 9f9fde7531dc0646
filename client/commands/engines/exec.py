"""`modelplane exec`: run a command in a pod of an engine."""

import asyncio
import sys
from typing import Annotated

import typer

from client.commands import options
from client.engines.pods import engine_pods
from client.engines.remote_command import run_connected
from client.engines.workloads import EngineChoice, engines_target
from fleet_client.configuration import load_settings
from fleet_client.errors import Refused


def run_in_pod(
    *,
    word: Annotated[
        str, typer.Argument(metavar="md/NAME|mr/NAME", help="A deployment or replica.")
    ],
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="-- COMMAND", help="The command and its arguments."),
    ] = None,
    namespace: options.Namespace = None,
    replica: options.Replica = "",
    engine: options.Engine = "",
    member: options.EngineMember = None,
    container: options.Container = None,
    stdin: Annotated[
        bool, typer.Option("--stdin", "-i", help="Pass standard input on.")
    ] = False,
    terminal: Annotated[
        bool, typer.Option("--tty", "-t", help="The command gets a terminal.")
    ] = False,
) -> int:
    """Run a command in a container of an engine, and return its exit code.

    If several pods are chosen, it runs in a ready one.

    For example:
      modelplane exec md/qwen -n ml -- nvidia-smi
      modelplane exec mr/qwen-1414d327 -n ml --member leader -it -- bash
    """
    target = engines_target(word, namespace)
    if not command:
        raise Refused(
            "no command to run",
            next_step=f"write it after --, such as `exec {target.command} -- nvidia-smi`",
        )
    if terminal and not (stdin and sys.stdin.isatty()):
        print("no terminal for -t: it needs -i and a terminal here", file=sys.stderr)
        terminal = False

    async def execute() -> int:
        async with engine_pods(
            load_settings(), "exec", target, EngineChoice(replica, engine), member
        ) as pods:
            pod = pods[0]
            if len(pods) > 1:
                print(
                    f"in {pod.title}, 1 of {len(pods)} pods: choose with --replica, "
                    "--engine and --member",
                    file=sys.stderr,
                )
            return await run_connected(
                pod, pod.container(container), command, stdin=stdin, terminal=terminal
            )

    return asyncio.run(execute())
