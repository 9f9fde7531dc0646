"""ServingStacks are shown by `get` and `describe`, and what else is asked of one names the InferenceCluster (ruling 41)."""

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from client.commands.inspect.describe import stack_parts
from client.errors import ExitCode
from testbed.running import Running
from tests.client.commands.live import eventually
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS


def a_stack() -> dict[str, Any]:
    return {
        "apiVersion": "infrastructure.modelplane.ai/v1alpha1",
        "kind": "ServingStack",
        "metadata": {"name": "oslo", "namespace": "modelplane-system"},
        "spec": {"secrets": [{"type": "Kubeconfig", "name": "oslo", "key": "kubeconfig"}]},
    }


@pytest.mark.usefixtures("nowhere")
def test_applying_a_stack_is_refused_with_the_kind_to_use_instead(cli: Cli, written: Callable[[str], str]) -> None:
    result = cli("apply", "-f", written(json.dumps(a_stack())))
    assert result.code == ExitCode.REFUSED
    assert "ServingStack oslo: written by the control plane; write an InferenceCluster instead" in result.err


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
    assert "name the InferenceCluster that it belongs to: `ic/" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_file_with_a_stack_deletes_nothing(cli: Cli, written: Callable[[str], str]) -> None:
    result = cli("delete", "-f", written(json.dumps(a_stack())))
    assert result.code == ExitCode.REFUSED
    assert "`ic/oslo`" in result.err


@pytest.mark.usefixtures("nowhere")
def test_a_replica_is_not_scaled(cli: Cli) -> None:
    result = cli("scale", "mr/qwen-1a2b3c4d", "--replicas", "1")
    assert result.code == ExitCode.REFUSED
    assert "only a ModelDeployment can be scaled" in result.err


def test_the_parts_of_a_stack_are_tables() -> None:
    lws = {"name": "lws", "release": "mp-lws", "namespace": "lws-system", "version": "v1", "revision": 2, "stage": "S2c"}
    other = {"name": "dra", "release": "mp-dra", "namespace": "dra", "version": "0.4", "revision": 0, "stage": "S2c", "lag": ""}
    stages = [{"stage": "S2c", "title": "other components", "late": True, "message": "applies dra"}]
    assert stack_parts({"status": {"components": [{**lws, "lag": "0/1\nready"}, other], "stages": stages}}) == [
        "Components:",
        "  COMPONENT   RELEASE   NAMESPACE    VERSION   REVISION   STAGE   LAG",
        "  lws         mp-lws    lws-system   v1        2          S2c     0/1 ready",
        "  dra         mp-dra    dra          0.4       -          S2c     -",
        "Open stages:",
        "  STAGE   WHAT                      WAITS FOR",
        "  S2c     other components (late)   applies dra",
    ]
    assert stack_parts({}) == ["Components:", "  <none>"]


@pytest.mark.testbed
def test_the_stack_of_a_cluster_is_shown_under_its_name_and_that_of_others_is_not(
    cli: Cli, here: Running, written: Callable[[str], str]
) -> None:
    name = f"stack-{uuid.uuid4().hex[:6]}"
    existing = {"source": "Existing", "existing": {"secretRef": {"name": f"{name}-kubeconfig"}}}
    cluster = {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name},
        "spec": {"cluster": existing},
    }
    assert cli("apply", "-f", written(json.dumps(cluster))).code == 0
    eventually(lambda: cli("describe", f"ss/{name}"), lambda seen: "WaitingForCluster" in seen.out)
    rows = [line.split() for line in cli("get", "servingstacks").out.splitlines()]
    assert rows[0] == ["NAME", "GATEWAY", "READY", "AGE"]
    assert [name, "<none>", "False"] in [row[:3] for row in rows[1:]]
    # Those of the testbed bring their own, and -n changes nothing: all are in one namespace.
    assert not {row[0] for row in rows[1:]} & set(here.clusters)
    assert cli("get", "servingstack", name, "-n", "other", "-o", "name").out == f"servingstack/{name}\n"
    tree = json.loads(cli("get", f"ss/{name}", "-o", "json").out)
    assert (tree["kind"], tree["metadata"]["namespace"], tree["status"]["phase"]) == ("ServingStack", "modelplane-system", "Pending")
    assert tree["spec"] == {"secrets": [{"type": "Kubeconfig", "name": f"{name}-kubeconfig", "key": "kubeconfig"}]}
    described = cli("describe", f"ss/{name}").out
    assert "Components:\n  <none>" in described
    assert f"Next: see the cluster: `modelplane describe ic/{name}`" in described
    external = next(iter(here.clusters))
    result = cli("describe", f"ss/{external}")
    assert result.code == ExitCode.NOT_FOUND
    assert f"InferenceCluster {external} has none of this control plane" in result.err
    assert cli("get", "ss", "missing").code == ExitCode.NOT_FOUND
    assert cli("delete", f"ic/{name}", "--wait", "--timeout", str(TIMEOUT_SECONDS)).code == 0
