"""The engineer on call: the page alone leads from a fault to the command that helps.

A local fleet runs with a worker, a front and real API servers. Each test injects one
fault. On the first screen of the page it finds the object at fault, one sentence of
cause and a command, runs that command as printed, and repairs the fault.
"""

import asyncio
import copy
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from ruamel.yaml import YAML

from client.local.front import front_port, front_url
from client.local.processes import WORKER
from testbed.fleet.fleet_file import FleetFile
from testbed.temporal import TEMPORAL
from testbed.testbed import Testbed
from tests.client.commands.local_fleet import DEMO, modelplane, processes_of
from tests.front.browser import Browser, Tab
from tests.front.shown_page import CONNECTED, shows
from tests.workflows.environment.harness import eventually

pytestmark = [pytest.mark.testbed, pytest.mark.soak, pytest.mark.timeout(1800)]

Json = dict[str, Any]
FLEET = """
control: false
classes:
  small:
    devices:
      - name: gpu
        driver: gpu.nvidia.com
        deviceClassName: gpu.nvidia.com
        count: 2
        capacity: {memory: {value: 81559Mi}}
clusters:
  - name: eu
    labels: {modelplane.ai/region: eu-west}
    pools: [{name: small, class: small, nodes: 2}]
  - name: us
    labels: {modelplane.ai/region: us-east}
    pools: [{name: small, class: small, nodes: 2}]
"""
API = "modelplane.ai/v1alpha1"
SETTINGS = {
    "MODELPLANE_TEARDOWN__DRAIN_SECONDS": "0",
    # No hub is reachable.
    "HTTPS_PROXY": "http://127.0.0.1:1",
    "NO_PROXY": "127.0.0.1,localhost",
}
FAIL = "testbed.modelplane.ai/fail"
SCREEN = 900
"""The height of the tab in pixels."""
NOTICED_SECONDS = 600
# The first screen: rows of the list of problems that are visible without scrolling.
VISIBLE = f"""
[...document.querySelectorAll('#problems .problem')]
  .filter((row) => row.getBoundingClientRect().bottom <= {SCREEN})
  .map((row) => [
    row.querySelector('.problem-head').innerText,
    row.querySelector('.cause').innerText,
    [...row.querySelectorAll('.next code')].map((each) => each.innerText),
  ])
"""


@dataclass(frozen=True)
class LocalFleet:
    """A fleet of `modelplane up`."""

    home: Path

    @property
    def testbed(self) -> Testbed:
        return Testbed(self.home, FleetFile.load(self.home / "fleet.yaml"))

    @property
    def page(self) -> str:
        return f"{front_url(front_port(self.home))}/"

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return modelplane(self.home, *words, **SETTINGS)

    def must(self, *words: str) -> str:
        ended = self.run(*words)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def apply(self, *trees: Json) -> None:
        file = self.home / "applied.json"
        for tree in trees:
            file.write_text(json.dumps(tree))
            self.must("apply", "-f", str(file))


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalFleet]:
    folder = tmp_path_factory.mktemp("faults")
    file = folder / "fleet.yaml"
    file.write_text(FLEET)
    fleet = LocalFleet(folder / "home")
    try:
        fleet.must("up", "--no-data-plane", "--fleet", str(file), "--wait")
        yield fleet
    finally:
        fleet.run("down", "--wipe")
    assert processes_of(fleet.home) == []


def a_model(name: str, replicas: int, namespace: str = "ml") -> Json:
    """The deployment of the demo under another name."""
    tree: Json = YAML(typ="safe", pure=True).load(DEMO)
    tree["metadata"] = {"name": name, "namespace": namespace}
    tree["spec"]["replicas"] = replicas
    return tree


class Fault(NamedTuple):
    """A fault and its row on the page.

    `inject` injects it during the block. `after` is a text of the output of the
    command.
    """

    inject: Callable[[LocalFleet], Any]
    title: str
    cause: str
    command: str
    after: str


@contextmanager
def applied(fleet: LocalFleet, *trees: Json) -> Iterator[None]:
    fleet.apply(*trees)
    try:
        yield
    finally:
        for tree in reversed(trees):
            metadata = tree["metadata"]
            scope = ["-n", metadata["namespace"]] if "namespace" in metadata else []
            name = f"{tree['kind'].lower()}/{metadata['name']}"
            fleet.must("delete", name, *scope, "--wait")


@contextmanager
def silent_cluster(fleet: LocalFleet) -> Iterator[None]:
    pid = fleet.testbed.process_pid("us.kube-apiserver")
    assert pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def stopped(fleet: LocalFleet, process: str) -> Iterator[None]:
    fleet.testbed.stop_process(process)
    try:
        yield
    finally:
        fleet.must("up", "--no-data-plane")


@contextmanager
def quota_full(fleet: LocalFleet) -> Iterator[None]:
    before = fleet.must("policy", "get")
    file = fleet.home / "policy.yaml"
    file.write_text("quotas: [{namespace: team, maxNodes: 1}]")
    fleet.must("policy", "set", "-f", str(file))
    try:
        with applied(fleet, a_model("limited", 2, "team")):
            yield
    finally:
        file.write_text(before)
        fleet.must("policy", "set", "-f", str(file))


@contextmanager
def bad_image(fleet: LocalFleet) -> Iterator[None]:
    """Roll out an image that no node can pull."""
    good = a_model("chat", 2)
    fleet.apply(good)
    fleet.must("wait", "md/chat", "-n", "ml", "--for=condition=Ready")
    bad = copy.deepcopy(good)
    (member,) = bad["spec"]["template"]["spec"]["engines"][0]["members"]
    member["template"]["metadata"] = {"annotations": {FAIL: "image"}}
    member["template"]["spec"]["containers"][0]["image"] = "vllm/vllm-openai:typo"
    with applied(fleet, bad):
        yield


def a_cluster_with_a_typo() -> Json:
    return {
        "apiVersion": API,
        "kind": "InferenceCluster",
        "metadata": {"name": "apac"},
        "spec": {
            "cluster": {
                "source": "Existing",
                "existing": {"secretRef": {"name": "us-kubeconfig"}},
            },
            "nodePools": [{"name": "small", "className": "smal", "nodeCount": 2}],
        },
    }


def a_cache_without_a_hub() -> Json:
    """A cache of a hub that the worker cannot reach, by the settings of the fleet."""
    return {
        "apiVersion": API,
        "kind": "ModelCache",
        "metadata": {"name": "weights", "namespace": "ml"},
        "spec": {
            "source": "HuggingFace",
            "huggingFace": {"repo": "Qwen/Qwen3-8B", "sizeGiB": 40},
        },
    }


def a_service() -> Json:
    selected = {"matchLabels": {"modelplane.ai/deployment": "chat"}}
    return {
        "apiVersion": API,
        "kind": "ModelService",
        "metadata": {"name": "chat", "namespace": "ml"},
        "spec": {"endpoints": [{"name": "all", "selector": selected}]},
    }


FAULTS = {
    "a cluster is silent": Fault(
        silent_cluster,
        "InferenceCluster us",
        "no answer since",
        "modelplane describe ic/us",
        "Unreachable",
    ),
    "a quota is full": Fault(
        quota_full,
        "ModelDeployment team/limited",
        "were over quota (used 1 of 1 nodes, needs 1 more)",
        "modelplane explain md/limited -n team",
        "QuotaExceeded",
    ),
    "an image cannot be pulled": Fault(
        bad_image,
        "ModelDeployment ml/chat",
        "cannot pull image vllm/vllm-openai:typo",
        "modelplane rollout undo md/chat -n ml",
        "rolled back",
    ),
    "no capacity is left": Fault(
        lambda fleet: applied(fleet, a_model("big", 9)),
        "ModelDeployment ml/big",
        "had too few free nodes for engine chat",
        "modelplane explain md/big -n ml",
        "InsufficientNodes",
    ),
    "a class name has a typo": Fault(
        lambda fleet: applied(fleet, a_cluster_with_a_typo()),
        "InferenceCluster apac",
        "InferenceClass smal does not exist",
        "modelplane get icl",
        "small",
    ),
    "the source of a cache is unreachable": Fault(
        lambda fleet: applied(fleet, a_cache_without_a_hub()),
        "ModelCache ml/weights",
        "no usable answer from huggingface.co",
        "modelplane retry mc/weights -n ml",
        "retry requested",
    ),
    "there is no gateway": Fault(
        lambda fleet: applied(fleet, a_service()),
        "ModelService ml/chat",
        "InferenceGateway default does not exist",
        "modelplane get ig",
        "",
    ),
    "the worker is down": Fault(
        lambda fleet: stopped(fleet, WORKER),
        "Workers",
        "no worker takes work",
        "modelplane workers status",
        "Silent",
    ),
    "Temporal is down": Fault(
        lambda fleet: stopped(fleet, TEMPORAL),
        "Temporal",
        "Temporal does not answer",
        "modelplane up",
        "Temporal UI",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
async def test_the_page_leads_from_a_fault_to_the_command_that_helps(
    browser: Browser, local: LocalFleet, name: str
) -> None:
    fault = FAULTS[name]
    async with browser.tab(local.page) as tab:
        await shows(tab, CONNECTED, "#connection")
        await shows(tab, "No problems.", "#problems-notes")
        manager = fault.inject(local)
        await asyncio.to_thread(manager.__enter__)
        try:
            cause, commands = await found_on_first_screen(tab, fault)
            assert fault.cause in cause
            # One sentence: the page shortens messages of several.
            assert ". " not in cause
            assert fault.command in commands
            ended = await asyncio.to_thread(local.run, *shlex.split(fault.command)[1:])
            assert ended.returncode == 0, ended.stderr
            assert fault.after in ended.stdout
        finally:
            await asyncio.to_thread(manager.__exit__, None, None, None)
        await eventually(
            lambda: tab.text("#problems-notes"),
            lambda text: "No problems." in text,
            what=f"the end of the problem: {name}",
            within=NOTICED_SECONDS,
        )
        assert tab.problems == []


async def found_on_first_screen(tab: Tab, fault: Fault) -> tuple[str, list[str]]:
    """Return the cause and the commands of the problem that a person has to solve."""

    async def look() -> list[tuple[str, list[str]]]:
        rows = await tab.value(VISIBLE)
        return [
            (cause, commands)
            for head, cause, commands in rows
            if head.startswith(f"Act {fault.title}")
        ]

    found = await eventually(
        look, bool, what=f"{fault.title} on the first screen", within=NOTICED_SECONDS
    )
    cause, commands = found[0]
    return cause, commands
