"""`modelplane render`: the Kubernetes objects that would be applied, without a server."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from activities.render.inputs.facts_file import GivenFacts, InvalidFactsFile, read_facts
from activities.render_settings import render_settings
from client.commands import options
from client.manifests.documents import title_of
from client.manifests.policy_file import read_policy_file
from client.manifests.status_trees import read_trees
from client.manifests.yaml_file import read_yaml
from client.output.formats import TreeFormat, as_json, as_yaml
from client.planning.rendering import Output, render_all
from fleet_client.configuration import load_settings
from fleet_client.errors import Refused


def render(
    files: options.Files = None,
    namespace: options.Namespace = None,
    cluster_facts: Annotated[
        Path | None,
        typer.Option(
            "--cluster-facts",
            help="File with `clusters: {NAME: {kubernetesVersion, …}}`.",
            show_default=False,
        ),
    ] = None,
    policy: Annotated[
        Path | None,
        typer.Option(
            "--policy",
            help="File with the fleet policy to place with.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        TreeFormat, typer.Option("--output", "-o", help="Form of the objects.")
    ] = TreeFormat.YAML,
) -> None:
    """Print the Kubernetes objects of replicas, caches and deployments.

    A deployment is placed on the clusters in the files. Without classes and clusters,
    one that fits is assumed. Caches in the files count as staged for engines that mount
    them. A ModelReplica needs only facts about its cluster. The data of Secrets is left
    out.

    For example:
      modelplane render -f model.yaml
      modelplane render -f fleet.yaml -f model.yaml -o json
    """
    given = _facts(cluster_facts) if cluster_facts else {}
    chosen = read_policy_file(policy) if policy else None
    outputs, warnings = render_all(
        read_trees(files, namespace), given, render_settings(load_settings()), chosen
    )
    for warning in warnings:
        print(f"warning: {warning}", file=sys.stderr)
    print(_yaml(outputs) if output == TreeFormat.YAML else _json(outputs))


def _facts(file: Path) -> dict[str, GivenFacts]:
    try:
        return read_facts(read_yaml(file, "facts"), title_of(str(file)))
    except InvalidFactsFile as error:
        raise Refused(
            f"{title_of(str(file))} has invalid facts",
            details=error.problems,
            next_step="fix these fields",
        ) from error


def _yaml(outputs: list[Output]) -> str:
    notes = "".join(
        f"# {note}\n"
        for note in dict.fromkeys(note for one in outputs for note in one.notes)
    )
    return notes + "\n".join(
        f"---\n# {one.title} on cluster {one.cluster}\n{as_yaml(tree)}"
        for one in outputs
        for tree in one.objects
    )


def _json(outputs: list[Output]) -> str:
    return as_json(
        {
            "apiVersion": "v1",
            "kind": "List",
            "items": [tree for one in outputs for tree in one.objects],
        }
    )
