"""`modelplane schema`: the JSON Schema of a kind for editors, and the list of kinds."""

from typing import Annotated

import typer

from api_types.resources.kinds import KINDS, KindInfo
from api_types.validation.schema import json_schema
from client.output.formats import TreeFormat, as_json, as_yaml
from client.output.tables import columns
from fleet_client.refs.targets import kind_named


def schema(
    kind: Annotated[
        str | None,
        typer.Argument(
            help="A kind by any of its names; without one, the kinds are listed."
        ),
    ] = None,
    output: Annotated[
        TreeFormat, typer.Option("--output", "-o", help="Output format.")
    ] = TreeFormat.JSON,
) -> None:
    """Print the JSON Schema of a kind, or list the kinds.

    For example:
      modelplane schema
      modelplane schema md > modeldeployment.json
    """
    if kind is None:
        _list_kinds()
        return
    tree = json_schema(kind_named(kind).kind)
    print(as_json(tree) if output == TreeFormat.JSON else as_yaml(tree))


def api_resources() -> None:
    """List the kinds, with their short names and scopes.

    For example:
      modelplane api-resources
    """
    _list_kinds()


def _list_kinds() -> None:
    rows = [
        [
            info.plural,
            info.short,
            info.api_version,
            str(info.namespaced).lower(),
            info.kind,
            _applied(info),
        ]
        for info in KINDS
    ]
    for line in columns(
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "APPLIED"], rows
    ):
        print(line)


def _applied(info: KindInfo) -> str:
    return "yes" if info.user_may_apply else f"as {info.written_instead}"
