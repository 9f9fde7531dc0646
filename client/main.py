"""The program `modelplane`: the list of its commands, and the one place where a failure becomes an exit code."""

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated

import typer

from api_types.settings import CONFIG_VARIABLE
from client.commands import options
from client.commands.change.apply import apply
from client.commands.change.delete import delete
from client.commands.change.drain import drain, uncordon
from client.commands.change.policy import policy
from client.commands.change.retry import retry
from client.commands.change.rollout import rollout
from client.commands.change.scale import scale
from client.commands.inspect.describe import describe
from client.commands.inspect.events import show_events
from client.commands.inspect.explain import explain
from client.commands.inspect.get import get
from client.commands.inspect.logs import logs
from client.commands.inspect.schema import schema
from client.commands.inspect.ui import ui
from client.commands.local.down import down
from client.commands.local.up import up
from client.commands.preview.plan import plan
from client.commands.preview.render import render
from client.commands.preview.validate import validate
from client.errors import CommandFailed, ExitCode, report
from client.temporal.shutdown import leave

_INTERRUPTED = 130
_PACKAGE = "modelplane-temporal"

app = typer.Typer(
    name="modelplane",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    help=(
        "The control plane for fleets of GPU inference clusters. Settings come from MODELPLANE_* variables and the file named by "
        "MODELPLANE_CONFIG; without one, from the fleet that `modelplane up` started on this machine, while it is up. "
        "Exit codes: 0 done, 1 failed, 2 bad usage or refused input, 3 not found, 4 conflict or being deleted, 5 wait timed out, "
        "6 control plane unreachable."
    ),
)
app.command("apply")(apply)
app.command("get")(get)
app.command("describe")(describe)
app.command("explain")(explain)
app.command("plan")(plan)
app.command("render")(render)
app.add_typer(policy, name="policy")
app.command("scale")(scale)
app.add_typer(rollout, name="rollout")
app.command("drain")(drain)
app.command("uncordon")(uncordon)
app.command("retry")(retry)
app.command("delete")(delete)
app.command("events")(show_events)
app.command("validate")(validate)
app.command("schema")(schema)
app.command("up")(up)
app.command("down")(down)
app.command("logs")(logs)
app.command("ui")(ui)


def _say_version(wanted: bool) -> None:
    if wanted:
        print(version(_PACKAGE))
        raise typer.Exit


@app.callback()
def common(
    config: options.SettingsFile = None,
    show_version: Annotated[bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Take the options that stand before any command."""
    del show_version
    if config:
        os.environ[CONFIG_VARIABLE] = str(config)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and give its exit code; every failure that is not a bug has been told on standard error."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # `modelplane get … | head`: the reader has enough. What is still in the buffer must not be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    return code


def _run(arguments: Sequence[str] | None) -> int:
    try:
        app(args=list(arguments) if arguments is not None else None)
    except SystemExit as left:
        return left.code if isinstance(left.code, int) else ExitCode.DONE
    except CommandFailed as failure:
        print(report(failure), file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return _INTERRUPTED
    return ExitCode.DONE


def main() -> None:
    """Run the command of this process."""
    leave(run())


if __name__ == "__main__":
    main()
