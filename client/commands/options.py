"""Options that several commands share."""

import re
from typing import Annotated

import typer

from client.output.formats import Format
from fleet_client.errors import Refused

_SHOWN_MAX = 80


def _usable_namespace(given: str | None) -> str | None:
    from api_types.validation.rules.metadata import is_dns_label  # noqa: PLC0415 - slow to import

    if given and not is_dns_label(given):
        raise Refused(
            f"-n {given[:_SHOWN_MAX]!r} is not the name of a namespace",
            next_step=(
                "write lower-case letters, digits and hyphens, at most 63; "
                "`modelplane get all -A` shows those in use"
            ),
        )
    return given


Namespace = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace; `default` if none is given.",
        show_default=False,
        callback=_usable_namespace,
    ),
]
AllNamespaces = Annotated[
    bool, typer.Option("--all-namespaces", "-A", help="All namespaces.")
]
Labels = Annotated[
    str | None,
    typer.Option(
        "--selector",
        "-l",
        help="Label selector, such as `team=chat,tier!=gold`.",
        show_default=False,
    ),
]
Fields = Annotated[
    str | None,
    typer.Option(
        "--field-selector",
        help="Selector of metadata.name and metadata.namespace, as kubectl has it.",
        show_default=False,
    ),
]
Output = Annotated[Format, typer.Option("--output", "-o", help="Output format.")]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--filename",
        "-f",
        help=(
            "File or folder of manifests (YAML or JSON); `-` reads standard input. "
            "May be repeated."
        ),
        show_default=False,
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Wait until it is done, showing progress.")
]
_DURATION = re.compile(r"(?=.)(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?")


def _seconds(given: str | float) -> float:
    """Parse `90`, `90s`, `5m` or `1h30m`, as kubectl does, to seconds."""
    found = _DURATION.fullmatch(str(given))
    if found is None:
        raise Refused(
            f"{str(given)[:_SHOWN_MAX]!r} is no duration",
            next_step="write seconds, or a duration such as 90s, 5m or 1h30m",
        )
    hours, minutes, seconds = found.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        parser=_seconds,
        metavar="<duration>",
        show_default="10m",
        help="How long to wait, such as 90s or 5m; exit code 5 when it is over.",
    ),
]
Gateway = Annotated[
    str | None,
    typer.Option(
        "--gateway",
        help="Address of the gateway, where its own cannot be reached from here.",
        show_default=False,
    ),
]
Watch = Annotated[
    bool,
    typer.Option("--watch", "-w", help="Continue and print changes; end with Ctrl-C."),
]

WAIT_SECONDS = 600.0
