"""The program `modelplane`: the table of its commands, and the exit code of a failure.

A command's module is imported only when the command runs, so that `--help` and most
commands start fast.
"""

import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from client.failures import ExitCode, exit_code_of, report
from client.output.terminal import escaping
from client.parsing.completion import with_completion
from client.parsing.global_options import use_global_options
from client.parsing.help_texts import with_examples
from client.parsing.usage_errors import UsageProblem, usage_report
from fleet_client.errors import CommandFailed, Refused
from fleet_client.temporal.shutdown import exit_process

_INTERRUPTED = 130
_PACKAGE = "modelplane-temporal"
_WORKERS = "only Temporal knows the builds of workers"
_LOCAL = "it manages the fleet on this machine, which has its own Temporal"


class Command(NamedTuple):
    """One command: its module below `client.commands`, its function, its help line.

    `needs_temporal` is the reason why the command cannot run through the front. It is
    empty for a command that can do so, or that checks this itself.
    """

    module: str
    attribute: str
    summary: str
    needs_temporal: str = ""


GROUPS = {
    "Objects": {
        "apply": Command(
            "change.apply", "apply", "Create or change objects from manifests."
        ),
        "get": Command("inspect.get", "get", "List objects, or show some of them."),
        "describe": Command("inspect.describe", "describe", "Show objects in detail."),
        "delete": Command("change.delete", "delete", "Delete objects in order."),
        "edit": Command("change.edit", "edit", "Change objects in an editor."),
        "set": Command(
            "change.set_image", "set_fields", "Set single fields of objects."
        ),
        "patch": Command(
            "change.patch", "patch", "Change fields of objects with a merge patch."
        ),
        "label": Command("change.metadata", "label", "Set and remove labels."),
        "annotate": Command(
            "change.metadata", "annotate", "Set and remove annotations."
        ),
        "diff": Command(
            "preview.diff", "diff", "Show what applying manifests would change."
        ),
        "wait": Command(
            "inspect.wait",
            "wait",
            "Wait until objects have a condition or a value, exist, or are gone.",
        ),
        "events": Command(
            "inspect.events",
            "show_events",
            "Show the events of objects, the latest last.",
        ),
        "undelete": Command(
            "change.undelete",
            "undelete",
            "Cancel a deletion that waits for users of the object.",
        ),
        "retry": Command("change.retry", "retry", "Retry failed steps of objects now."),
    },
    "The fleet": {
        "status": Command(
            "inspect.status", "status", "Show the state of the fleet on one screen."
        ),
        "top": Command(
            "inspect.top",
            "top",
            "Show the used, held, free and wasted capacity of the fleet.",
        ),
        "explain": Command(
            "inspect.explain",
            "explain",
            "Describe the fields of a kind, or why each replica is where it is.",
        ),
        "plan": Command(
            "preview.plan",
            "plan",
            "Show where replicas would be placed, without changing anything.",
        ),
        "policy": Command(
            "change.policy", "policy", "Show or replace the fleet's placement policy."
        ),
        "decisions": Command(
            "inspect.decisions",
            "decisions",
            "List what the scheduler decided about a deployment, and why.",
        ),
        "replay-decision": Command(
            "inspect.replay_decision",
            "replay_decision",
            "Repeat a past decision from its recorded inputs.",
        ),
    },
    "Models": {
        "scale": Command(
            "change.scale", "scale", "Set the number of replicas of a ModelDeployment."
        ),
        "rollout": Command(
            "change.rollout",
            "rollout",
            "Show and control the rollout of a changed template.",
        ),
        "service": Command(
            "change.service", "service", "Change where a ModelService sends requests."
        ),
        "logs": Command(
            "engines.logs",
            "logs",
            "Show the logs of engines, or of a part of the local fleet.",
        ),
        "exec": Command(
            "engines.exec", "run_in_pod", "Run a command in a container of an engine."
        ),
        "port-forward": Command(
            "engines.port_forward",
            "port_forward",
            "Forward ports of this machine to a pod of an engine.",
        ),
        "chat": Command("ask.chat", "chat", "Ask the model of a ModelService."),
        "curl": Command("ask.curl", "curl", "Send a request to a ModelService."),
    },
    "Clusters and workers": {
        "drain": Command(
            "change.drain",
            "drain",
            "Move every replica off a cluster, if all find another place.",
        ),
        "cordon": Command(
            "change.drain",
            "cordon",
            "Place nothing more on a cluster; its replicas stay.",
        ),
        "uncordon": Command(
            "change.drain",
            "uncordon",
            "Allow replicas on a drained or cordoned cluster again.",
        ),
        "force-finalizer": Command(
            "change.finalizer",
            "force_finalizer",
            "Remove a finalizer that holds the removal of a stack.",
        ),
        "workers": Command(
            "change.workers",
            "workers",
            "Show the builds of workers, and promote one of them.",
            _WORKERS,
        ),
    },
    "Manifests": {
        "validate": Command(
            "preview.validate",
            "validate",
            "Check manifests and report every error at once.",
        ),
        "render": Command(
            "preview.render",
            "render",
            "Print the Kubernetes objects that would be applied.",
        ),
        "schema": Command(
            "inspect.schema",
            "schema",
            "Print the JSON Schema of a kind, or list the kinds.",
        ),
        "api-resources": Command(
            "inspect.schema",
            "api_resources",
            "List the kinds, with their short names and scopes.",
        ),
    },
    "This machine": {
        "doctor": Command(
            "local.doctor",
            "doctor",
            "Check whether a fleet can start on this machine.",
        ),
        "up": Command(
            "local.up",
            "up",
            "Start Temporal, simulated GPU clusters, a worker and a front on this machine.",
            _LOCAL,
        ),
        "down": Command(
            "local.down", "down", "Stop the fleet on this machine.", _LOCAL
        ),
        "clouds": Command(
            "local.clouds",
            "clouds",
            "Show the objects at the fake clouds of the fleet on this machine.",
            _LOCAL,
        ),
        "ui": Command(
            "inspect.ui", "ui", "Print the address in the Temporal UI and open it."
        ),
        "completion": Command(
            "inspect.completion",
            "completion",
            "Print the script that completes commands in bash, zsh or fish.",
        ),
        "version": Command(
            "inspect.version",
            "version",
            "Show the versions of this program, the front, Temporal and the workers.",
        ),
    },
}
COMMANDS = {
    name: command for group in GROUPS.values() for name, command in group.items()
}


class LazyCommands(TyperGroup):
    """The commands of the table. Each is imported on first use."""

    def list_commands(self, _ctx: Any) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _ctx: Any, cmd_name: str) -> Any:
        """Import a command. Return None if no command has that name."""
        if cmd_name not in COMMANDS:
            return None
        command = COMMANDS[cmd_name]
        member = getattr(
            import_module(f"client.commands.{command.module}"), command.attribute
        )
        if not isinstance(member, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(cmd_name)(member)
            member = single
        return with_completion(with_examples(typer.main.get_command(member)))

    def format_commands(self, _ctx: Any, formatter: Any) -> None:
        """List the commands in the help text without importing them."""
        width = max(map(len, COMMANDS))
        for title, group in GROUPS.items():
            with formatter.section(title):
                # The names have one width, so that the columns of all groups line up.
                formatter.write_dl(
                    [
                        (name.ljust(width), command.summary)
                        for name, command in group.items()
                    ]
                )


app = typer.Typer(
    name="modelplane",
    cls=LazyCommands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    help=(
        "The control plane for fleets of GPU inference clusters. Settings come "
        "from MODELPLANE_* variables and the file named by "
        "MODELPLANE_CONFIG; without one, from the fleet that `modelplane up` "
        "started on this machine, while it is up. "
        "Exit codes: 0 done, 1 failed, 2 bad usage or refused input, 3 not "
        "found, 4 conflict or being deleted, 5 wait timed out, "
        "6 control plane unreachable."
    ),
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(version(_PACKAGE))
        raise typer.Exit


def _refuse_token(given: str | None) -> None:
    if given is not None:
        raise Refused(
            "--token is not accepted: other users of this machine can read it",
            next_step=(
                "write a new token into a file for --token-file, or set "
                "MODELPLANE_TOKEN; revoke this one"
            ),
        )


def _from_front(title: str, option: str) -> Any:
    return typer.Option(option, help=title, show_default=False)


@app.callback()
def common(
    *,
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            help="Settings file; also MODELPLANE_CONFIG.",
            show_default=False,
        ),
    ] = None,
    server: Annotated[
        str | None,
        _from_front(
            "Address of a front that commands go through instead of Temporal; "
            "also MODELPLANE_SERVER.",
            "--server",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        _from_front(
            "File with the token for the front; also MODELPLANE_TOKEN_FILE, or "
            "the token in MODELPLANE_TOKEN.",
            "--token-file",
        ),
    ] = None,
    ca_file: Annotated[
        Path | None,
        _from_front(
            "CA certificates that verify the front's certificate; also MODELPLANE_CA_FILE.",
            "--ca-file",
        ),
    ] = None,
    client_cert: Annotated[
        Path | None,
        _from_front(
            "Your certificate for the front, in place of a token; also MODELPLANE_CLIENT_CERT.",
            "--client-cert",
        ),
    ] = None,
    client_key: Annotated[
        Path | None,
        _from_front(
            "The key of that certificate; also MODELPLANE_CLIENT_KEY.", "--client-key"
        ),
    ] = None,
    token: Annotated[
        str | None, typer.Option("--token", hidden=True, callback=_refuse_token)
    ] = None,
    show_version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version.",
        ),
    ] = False,
) -> None:
    """Apply the options that precede the command."""
    del show_version, token
    options = {
        "config": config,
        "server": server,
        "token_file": token_file,
        "ca_file": ca_file,
        "client_cert": client_cert,
        "client_key": client_key,
    }
    if use_global_options(options):
        from api_types.environment import SERVER_VARIABLE  # noqa: PLC0415 - slow to import
        from fleet_client.configuration import front_named  # noqa: PLC0415 - as above

        if not front_named():
            raise Refused(
                "--token-file, --ca-file, --client-cert and --client-key apply "
                "to a front, and no front is named",
                next_step=(
                    f"name the front with --server or {SERVER_VARIABLE}, "
                    "or remove these options to use Temporal"
                ),
            )
    command = COMMANDS.get(context.invoked_subcommand or "")
    if command and command.needs_temporal:
        from fleet_client.configuration import require_temporal  # noqa: PLC0415 - as above

        require_temporal(command.needs_temporal)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Report its failure on standard error.
    """
    try:
        with escaping():
            code = _run(arguments)
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader closed the pipe, as in `modelplane get … | head`. Discard the rest
        # of the buffer, which Python would write at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.DONE
    return code


def _run(arguments: Sequence[str] | None) -> int:
    words = list(arguments) if arguments is not None else None
    try:
        # The parser raises its errors instead of printing them, and returns exit codes.
        code = app(args=words, prog_name="modelplane", standalone_mode=False)
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):
            raise ended.__context__ from ended
        return ended.code if isinstance(ended.code, int) else ExitCode.DONE
    except UsageProblem as problem:
        print(usage_report(problem, COMMANDS, words or sys.argv[1:]), file=sys.stderr)
        return ExitCode.REFUSED
    except CommandFailed as failure:
        print(report(failure), file=sys.stderr)
        return exit_code_of(failure)
    except (KeyboardInterrupt, typer.Abort):
        return _INTERRUPTED
    return code if isinstance(code, int) else ExitCode.DONE


def main() -> None:
    exit_process(run())


if __name__ == "__main__":
    main()
