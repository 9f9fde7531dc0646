"""Options that several commands share."""

import re
from enum import StrEnum
from typing import Annotated

import typer

from client.output.formats import Format
from fleet_client.errors import Refused

_SHOWN_MAX = 80


class MemberKind(StrEnum):
    """The kinds of pods of an engine."""

    STANDALONE = "standalone"
    LEADER = "leader"
    WORKER = "worker"


def _usable_namespace(given: str | None) -> str | None:
    if not given:
        return given
    from api_types.validation.rules.metadata import is_dns_label  # noqa: PLC0415 - slow to import

    if not is_dns_label(given):
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
Since = Annotated[
    float | None,
    typer.Option(
        "--since",
        parser=_seconds,
        metavar="<duration>",
        show_default=False,
        help="Only lines of this last time, such as 90s or 5m.",
    ),
]
Replica = Annotated[
    str,
    typer.Option(
        "--replica",
        help="One replica: its name, or the part after the deployment's.",
        show_default=False,
    ),
]
Engine = Annotated[
    str, typer.Option("--engine", help="One engine, by name.", show_default=False)
]
EngineMember = Annotated[
    MemberKind | None,
    typer.Option(
        "--member", help="One kind of pod of a gang or engine.", show_default=False
    ),
]
Container = Annotated[
    str | None,
    typer.Option(
        "--container", "-c", help="A container; default: the first.", show_default=False
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
