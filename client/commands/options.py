"""The options that several commands share, so that each means the same everywhere."""

from typing import Annotated

import typer

from client.errors import Refused
from client.output.formats import Format

_SHOWN_MAX = 80


def _usable_namespace(given: str | None) -> str | None:
    from api_types.validation.rules.metadata import is_dns_label  # noqa: PLC0415 - the rules would slow down --help

    if given and not is_dns_label(given):
        raise Refused(
            f"-n {given[:_SHOWN_MAX]!r} is not the name of a namespace",
            next_step="write lower-case letters, digits and hyphens, at most 63; `modelplane get all -A` shows those in use",
        )
    return given


Namespace = Annotated[
    str | None,
    typer.Option("--namespace", "-n", help="Namespace; `default` if none is given.", show_default=False, callback=_usable_namespace),
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")]
Labels = Annotated[str | None, typer.Option("--selector", "-l", help="Label selector, such as `team=chat,tier!=gold`.", show_default=False)]
Output = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        help="File or folder of manifests (YAML or JSON); `-` reads standard input. May be repeated.",
        show_default=False,
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done, showing progress.")]
Timeout = Annotated[float, typer.Option("--timeout", min=0, help="How long to wait, in seconds; exit code 5 when it is over.")]
Gateway = Annotated[
    str | None,
    typer.Option("--gateway", help="Address of the gateway, where its own cannot be reached from here.", show_default=False),
]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Continue and print what changes; end with Ctrl-C.")]

WAIT_SECONDS = 600.0
