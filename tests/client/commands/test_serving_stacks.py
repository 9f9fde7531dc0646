"""`get` and `describe` show ServingStacks.

Every other command refers to the InferenceCluster.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from client.commands.inspect.describe import stack_parts
from client.failures import ExitCode
from tests.client.conftest import Cli


def a_stack() -> dict[str, Any]:
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "ServingStack",
        "metadata": {"name": "oslo", "namespace": "modelplane-system"},
        "spec": {
            "secrets": [{"type": "Kubeconfig", "name": "oslo", "key": "kubeconfig"}]
        },
    }


@pytest.mark.usefixtures("nowhere")
def test_applying_a_stack_is_refused_with_the_kind_to_use_instead(
    cli: Cli, written: Callable[[str], str]
) -> None:
    result = cli("apply", "-f", written(json.dumps(a_stack())))
    assert result.code == ExitCode.REFUSED
    assert (
        "ServingStack oslo: written by the control plane; write an InferenceCluster instead"
        in result.err
    )


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(
    "words",
    [
        ["delete", "ss/oslo"],
        ["delete", "servingstack", "oslo"],
        ["delete", "ss", "-l", "a=b"],
        ["scale", "ss/oslo", "--replicas", "1"],
        ["retry", "ss/oslo"],
        ["rollout", "restart", "ss/oslo"],
    ],
    ids=" ".join,
)
def test_a_stack_can_only_be_shown(cli: Cli, words: list[str]) -> None:
    result = cli(*words)
    assert result.code == ExitCode.REFUSED
    assert "ServingStack" in result.err
    assert "name its InferenceCluster: `ic/" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_file_with_a_stack_deletes_nothing(
    cli: Cli, written: Callable[[str], str]
) -> None:
    result = cli("delete", "-f", written(json.dumps(a_stack())))
    assert result.code == ExitCode.REFUSED
    assert "`ic/oslo`" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_replica_is_not_scaled(cli: Cli) -> None:
    result = cli("scale", "mr/qwen-1a2b3c4d", "--replicas", "1")
    assert result.code == ExitCode.REFUSED
    assert "only a ModelDeployment can be scaled" in result.err


def test_the_parts_of_a_stack_are_tables() -> None:
    lws = {
        "name": "lws",
        "release": "mp-lws",
        "namespace": "lws-system",
        "version": "v1",
        "revision": 2,
        "stage": "S2c",
    }
    other = {
        "name": "dra",
        "release": "mp-dra",
        "namespace": "dra",
        "version": "0.4",
        "revision": 0,
        "stage": "S2c",
        "lag": "",
    }
    stages = [
        {
            "stage": "S2c",
            "title": "other components",
            "late": True,
            "message": "applies dra",
        }
    ]
    assert stack_parts(
        {
            "status": {
                "components": [{**lws, "lag": "0/1\nready"}, other],
                "stages": stages,
            }
        }
    ) == [
        "Components:",
        "  COMPONENT   RELEASE   NAMESPACE    VERSION   REVISION   STAGE   LAG",
        "  lws         mp-lws    lws-system   v1        2          S2c     0/1 ready",
        "  dra         mp-dra    dra          0.4       -          S2c     -",
        "Open stages:",
        "  STAGE   WHAT                      WAITS FOR",
        "  S2c     other components (late)   applies dra",
    ]
    assert stack_parts({}) == ["Components:", "  <none>"]
