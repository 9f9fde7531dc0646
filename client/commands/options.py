"""The options that several commands share, so that each means the same everywhere."""

from typing import Annotated

import typer

from client.output.formats import Format

Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Namespace; `default` if none is given.", show_default=False)]
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
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Continue and print what changes; end with Ctrl-C.")]

WAIT_SECONDS = 600.0
