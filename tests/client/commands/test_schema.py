"""`modelplane schema`: the list of kinds, and the JSON Schema of each under all its
names.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from api_types.validation.schema import json_schema
from client.failures import ExitCode
from tests.client.conftest import Cli

Read = Callable[[str], Any]
FLEET, INFRASTRUCTURE = (
    "modelplane.ai/v1alpha1",
    "infrastructure.modelplane.ai/v1alpha1",
)


def test_without_a_kind_it_lists_every_kind_and_how_each_is_applied(cli: Cli) -> None:
    listed = cli("schema")
    assert (listed.code, listed.err) == (ExitCode.DONE, "")
    assert [line.split(maxsplit=5) for line in listed.out.splitlines()] == [
        ["NAME", "SHORTNAMES", "APIVERSION", "NAMESPACED", "KIND", "APPLIED"],
        ["inferenceclasses", "icl", FLEET, "false", "InferenceClass", "yes"],
        ["inferenceclusters", "ic", FLEET, "false", "InferenceCluster", "yes"],
        ["inferencegateways", "ig", FLEET, "false", "InferenceGateway", "yes"],
        ["modeldeployments", "md", FLEET, "true", "ModelDeployment", "yes"],
        ["modelreplicas", "mr", FLEET, "true", "ModelReplica", "as ModelDeployment"],
        ["modelservices", "ms", FLEET, "true", "ModelService", "yes"],
        ["modelendpoints", "me", FLEET, "true", "ModelEndpoint", "yes"],
        ["modelcaches", "mc", FLEET, "true", "ModelCache", "yes"],
        [
            "servingstacks",
            "ss",
            INFRASTRUCTURE,
            "true",
            "ServingStack",
            "as InferenceCluster",
        ],
    ]


@pytest.mark.parametrize("name", ["ModelService", "modelservices", "ms"])
@pytest.mark.parametrize(
    ("words", "read"),
    [([], json.loads), (["-o", "json"], json.loads), (["-o", "yaml"], yaml.safe_load)],
    ids=["by default", "as JSON", "as YAML"],
)
def test_it_prints_the_schema_of_a_kind(
    cli: Cli, name: str, words: list[str], read: Read
) -> None:
    printed = cli("schema", name, *words)
    assert (printed.code, printed.err) == (ExitCode.DONE, "")
    assert read(printed.out) == json_schema("ModelService")


def test_a_kind_that_does_not_exist_is_refused_with_the_nearest_one(cli: Cli) -> None:
    refused = cli("schema", "modelservce")
    assert (refused.code, refused.out) == (ExitCode.REFUSED, "")
    assert refused.err == (
        'error: unknown kind "modelservce", did you mean ModelService?\n'
        "next: `modelplane schema` lists the kinds; an object is written TYPE/NAME, "
        "such as `md/qwen`\n"
    )


def test_api_resources_lists_the_kinds_as_schema_does(cli: Cli) -> None:
    assert cli("api-resources").out == cli("schema").out != ""
