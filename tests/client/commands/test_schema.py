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


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("word", "lines"),
    [
        (
            "md.spec.replicas",
            [
                "KIND:     ModelDeployment",
                "VERSION:  modelplane.ai/v1alpha1",
                "",
                "FIELD: replicas <integer> -required-",
                "",
                "DESCRIPTION:",
            ],
        ),
        (
            "ic.spec.nodePools.nodeCount",
            ["  Fixed size, or initial size with autoscaling. At least 0. Default: 1."],
        ),
        ("InferenceClass", ["KIND:     InferenceClass", "FIELDS:"]),
        # The items of a list and the values of a map have the fields.
        ("md.spec.template.spec.engines.name", ["FIELD: name <string> -required-"]),
        (
            "md.spec.template.spec.engines.phase",
            ["  Its role with PrefillDecode. One of: Prefill, Decode."],
        ),
        ("md.metadata.labels", ["FIELD: labels <map[string]string>"]),
        ("md.spec.template.spec", ["  engines <[]Object> -required-"]),
    ],
)
def test_explain_describes_a_kind_or_one_of_its_fields(
    cli: Cli, word: str, lines: list[str]
) -> None:
    shown = cli("explain", word)
    assert shown.code == ExitCode.DONE, shown
    assert [line for line in lines if line not in shown.out.splitlines()] == []


@pytest.mark.usefixtures("nowhere")
def test_explain_lists_all_fields_below_one(cli: Cli) -> None:
    lines = cli("explain", "ic.spec", "--recursive").out.splitlines()
    at = lines.index("  nodePools <[]Object>")
    assert "    name <string> -required-" in lines[at:]
    assert not any("At least" in line for line in lines)


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["md.spec.replica"], "md.spec has no field 'replica'; did you mean replicas?"),
        (["md.spec.replicas.x"], "md.spec.replicas has no fields"),
        (["modeldeploymnet.spec"], "did you mean ModelDeployment?"),
        (["ic/oslo"], "is not placed by the scheduler"),
    ],
)
def test_explain_names_the_nearest_field_or_kind(
    cli: Cli, words: list[str], said: str
) -> None:
    shown = cli("explain", *words)
    assert (shown.code, said in shown.err) == (ExitCode.REFUSED, True), shown
    assert "next: " in shown.err
