"""The command line on a fleet that `modelplane up` started.

Temporal, worker, front, API servers and gateways are real. One fleet serves all tests
of this file.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import pytest
from kubernetes.client import ApiClient
from ruamel.yaml import YAML

from activities.clients.secrets.directory import SecretDirectory
from api_types.clock import utc_now
from api_types.environment import HOME_VARIABLE
from client.failures import ExitCode
from client.local.front import FRONT
from client.local.gateway import local_gateway_url
from client.local.processes import WORKER
from fleet_client import requests
from fleet_client.configuration import read_settings
from fleet_client.requests import current_user
from testbed.fleet.fleet_file import FleetFile
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.client.commands.local_fleet import DEMO, kubectl, modelplane, processes_of
from tests.client.conftest import Cli
from tests.environment.waiting import TIMEOUT_SECONDS, pauses
from tests.workflows.environment.harness import connected
from tests.workflows.environment.replaying import replay_all

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

FLEET = """
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
    pools: [{name: small, class: small, nodes: 4}]
  - name: us
    labels: {modelplane.ai/region: us-east}
    pools: [{name: small, class: small, nodes: 4}]
"""
CLUSTERS = ["eu", "us"]
ROOT = Path(__file__).parents[3]
TOO_BIG = ROOT / "examples" / "testbed" / "too-big.yaml"
WAIT = ("--wait", "--timeout", str(TIMEOUT_SECONDS))
HOLD = "example.com/hold"
INTERRUPTED = 130
# No requests flow here, so a leaving replica waits for nothing.
SETTINGS = {"MODELPLANE_TEARDOWN__DRAIN_SECONDS": "0"}
SeenT = TypeVar("SeenT")


@dataclass(frozen=True)
class Fleet:
    """A fleet, and the output of the command that started it."""

    home: Path
    up: str

    @property
    def testbed(self) -> Testbed:
        return Testbed(self.home, FleetFile.load(self.home / "fleet.yaml"))

    @property
    def running(self) -> Running:
        running = self.testbed.running()
        assert running
        return running


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Start a fleet with a Ready model.

    At the end every run of a workflow is replayed, and `down --wipe` leaves nothing.
    """
    folder = tmp_path_factory.mktemp("fleet")
    home, file = folder / "home", folder / "fleet.yaml"
    file.write_text(FLEET)
    began = utc_now()
    try:
        words = ("--fleet", str(file), "--apply", str(DEMO), "--wait")
        up = modelplane(home, "up", *words, **SETTINGS)
        assert up.returncode == 0, up.stderr
        assert "front: DEVELOPMENT MODE: no users, no tokens, no TLS;" in up.stderr
        started = Fleet(home, up.stdout)
        yield started
        for program in (FRONT, WORKER):
            started.testbed.stop_process(program)
        asyncio.run(
            _replay(started.running, began, tmp_path_factory.mktemp("histories"))
        )
    finally:
        wiped = modelplane(home, "down", "--wipe")
    assert wiped.returncode == 0, wiped.stderr
    assert not home.exists()
    assert processes_of(home) == []


async def _replay(running: Running, since: datetime, folder: Path) -> None:
    async with connected(running) as client:
        await replay_all(client, since, folder)


@pytest.fixture(autouse=True)
def here(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Running:
    """Make the commands of a test use the fleet."""
    monkeypatch.setenv(HOME_VARIABLE, str(fleet.home))
    for variable, value in SETTINGS.items():
        monkeypatch.setenv(variable, value)
    # On a slow machine the worker takes longer than a user at a terminal waits.
    monkeypatch.setattr(requests, "ANSWER_SECONDS", TIMEOUT_SECONDS)
    return fleet.running


@pytest.fixture
def tenant(cli: Cli) -> Iterator[str]:
    """A namespace for the test. Its deployments are deleted after the test."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    yield name
    left = cli("get", "md", "-n", name, "-o", "name").out.split()
    if left:
        assert cli("delete", *left, "-n", name, *WAIT).code == ExitCode.DONE


def manifest(tenant: str, file: Path = DEMO, **spec: object) -> str:
    """Return the text of an example for a namespace."""
    tree = YAML(typ="safe", pure=True).load(file)
    tree["metadata"]["namespace"] = tenant
    tree["spec"] |= spec
    return json.dumps(tree)


def eventually(look: Callable[[], SeenT], holds: Callable[[SeenT], bool]) -> SeenT:
    """Repeat `look` until the result holds. Fail with the last result."""
    for pause in pauses():
        if holds(seen := look()):
            return seen
        time.sleep(pause)
    raise AssertionError(seen)


def clusters_of(cli: Cli, tenant: str) -> list[str]:
    shown = json.loads(cli("get", "mr", "-n", tenant, "-o", "json").out)
    return sorted(replica["spec"]["clusterName"] for replica in shown["items"])


def decision_about(cli: Cli, tenant: str, *words: str) -> dict[str, Any]:
    """Return the decision of a plan about the deployment `demo` of a namespace."""
    planned = cli("plan", "-n", tenant, "-o", "json", *words)
    assert planned.code == 0, planned.err
    decisions = json.loads(planned.out)["decisions"]
    (found,) = [
        each
        for each in decisions
        if (each["namespace"], each["name"]) == (tenant, "demo")
    ]
    decision: dict[str, Any] = found
    return decision


# up and down


def test_down_leaves_no_process_and_up_continues_with_the_data(
    fleet: Fleet, cli: Cli
) -> None:
    home = fleet.home
    for line in (
        r"eu +Existing +10\.245\.\d+\.1 +True",
        r"default +demo +2 +True",
        r"default +demo-\w{8} +us +True",
        r"demo in the Temporal UI: http://127\.0\.0\.1:\d+/namespaces/default/workflows/\S+",
        r"Temporal CLI +/\S+/temporal --address 127\.0\.0\.1:\d+",
    ):
        assert re.search(line, fleet.up), fleet.up
    gateway = re.search(r"^Gateway +(http://127\.0\.0\.1:\d+)$", fleet.up, re.MULTILINE)
    assert gateway, fleet.up
    assert local_gateway_url(home) == gateway[1]
    # It answers, and has no route yet.
    answer = httpx.get(f"{gateway[1]}/v1/models", trust_env=False, timeout=60)
    assert answer.status_code == httpx.codes.NOT_FOUND
    development = (
        r"^Front +(http://127\.0\.0\.1:\d+) +\(development mode: no users, no tokens;"
    )
    front = re.search(development, fleet.up, re.MULTILINE)
    assert front, fleet.up
    kubeconfig = home / "front.kubeconfig"
    assert f"kubectl       KUBECONFIG={kubeconfig}\n" in fleet.up
    here = f"{sys.executable} -m client.main"
    assert (
        f"Next          {here} get all, {here} describe md/demo, {here} down\n"
        in fleet.up
    )
    name = "modeldeployment.modelplane.ai/demo\n"
    assert kubectl(kubeconfig, "get", "md/demo", "-o", "name") == name
    kubectl(kubeconfig, "config", "set-context", "--current", "--namespace=ml-team")
    scaled = modelplane(
        home, "--server", front[1], "scale", "md/demo", "--replicas", "2"
    )
    assert scaled.returncode == 0, scaled.stderr
    audit = (home / "logs" / "front-audit.log").read_text()
    assert "/modeldeployments/demo/scale" in audit
    reference = cast(
        dict[str, str], read_settings(home / "config.yaml")["controlCluster"]
    )
    secret = asyncio.run(SecretDirectory(home / "secrets").get(**reference))
    assert b"current-context: control" in secret
    before = json.loads(cli("get", "md/demo", "-o", "json").out)

    down = modelplane(home, "down")
    assert down.returncode == 0, down.stderr
    assert processes_of(home) == []
    assert local_gateway_url(home) is None
    assert modelplane(home, "get", "md").returncode == ExitCode.UNREACHABLE
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{front[1]}/healthz", trust_env=False, timeout=60)

    # Without --fleet the fleet is the same as before, not the built-in one. A Temporal
    # server in the environment belongs to another fleet, and so do variables of a
    # front: the front of this fleet has neither users nor TLS.
    others = {
        "MODELPLANE_TEMPORAL__ADDRESS": "127.0.0.1:1",
        "MODELPLANE_FRONT__ACCESS_FILE": str(home / "fleet.yaml"),
    }
    again = modelplane(home, "up", "--no-data-plane", **others)
    assert again.returncode == 0, again.stderr
    assert f"Front         {front[1]} " in again.stdout, (
        "kubeconfigs were copied with this address"
    )
    assert kubectl(kubeconfig, "get", "md/demo", "-n", "default", "-o", "name") == name
    assert not re.search("^Gateway", again.stdout, re.MULTILINE)
    assert "inferencecluster/eu unchanged" in again.stdout
    after = json.loads(cli("get", "md/demo", "-o", "json").out)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    listed = cli("get", "ic", "-o", "name").out.split()
    assert set(listed) >= {f"inferencecluster/{each}" for each in CLUSTERS}
    assert "inferencecluster/prod-eu" not in listed


def test_without_a_worker_objects_are_listed_from_their_search_attributes_and_requests_are_accepted(
    cli: Cli,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet.testbed.stop_process(WORKER)
    # No worker will answer.
    monkeypatch.setattr(requests, "ANSWER_SECONDS", 1.0)
    try:
        result = eventually(lambda: cli("get", "ic"), lambda seen: "?" in seen.out)
        assert {line.split()[0] for line in result.out.splitlines()[1:]} >= set(
            CLUSTERS
        )
        assert "True?" in result.out
        assert "is a worker running?" in result.err
        assert cli("describe", "ic/eu").code == ExitCode.UNREACHABLE
        assert "start a worker" in cli("get", "ic/eu").err
        # Temporal accepts a change of an object, and knows whether the object exists.
        retried = cli("retry", "ic/eu")
        accepted = (
            "inferencecluster/eu accepted by Temporal, not yet seen by a worker\n"
        )
        assert (retried.code, retried.out) == (0, accepted)
        assert cli("scale", "md/missing", "--replicas", "1").code == ExitCode.NOT_FOUND
    finally:
        assert cli("up", "--no-data-plane").code == 0


# The life of a deployment


def test_a_deployment_is_planned_applied_shown_scaled_and_deleted(
    cli: Cli,
    tenant: str,
    written: Callable[[str], str],
    here: Running,
) -> None:
    file = written(manifest(tenant))
    planned = decision_about(cli, tenant, "-f", file)["placements"]
    applied = cli("apply", "-f", file, *WAIT)
    assert (applied.code, applied.out) == (0, "modeldeployment/demo created\n")
    assert "✓ modeldeployment/demo: Ready" in applied.err
    assert cli("apply", "-f", file).out == "modeldeployment/demo unchanged\n"
    assert (
        clusters_of(cli, tenant)
        == sorted(each["cluster"] for each in planned)
        == CLUSTERS
    )

    titles, row = cli("get", "md", "-n", tenant).out.splitlines()
    assert titles.split() == ["NAME", "REPLICAS", "READY", "AGE"]
    assert row.split()[:3] == ["demo", "2", "True"]
    shown = json.loads(cli("get", "md/demo", "-n", tenant, "-o", "json").out)
    assert shown["status"]["replicas"] == {"ready": 2, "total": 2}
    assert sorted(each["cluster"] for each in shown["status"]["placements"]) == CLUSTERS
    replicas = [
        line.split()[1] for line in cli("get", "mr", "-n", tenant).out.splitlines()[1:]
    ]
    assert sorted(replicas) == CLUSTERS
    described = cli("describe", "md", "demo", "-n", tenant).out
    parts = [
        "Phase:       Ready",
        "Conditions:",
        "Replicas:",
        "Events:",
        "Temporal: http://",
    ]
    assert [each for each in (*parts, *CLUSTERS) if each not in described] == []
    explained = json.loads(cli("explain", "md/demo", "-n", tenant, "-o", "json").out)[
        "replicas"
    ]
    assert sorted(each["cluster"] for each in explained) == CLUSTERS
    assert {(each["action"], each["ready"]) for each in explained} == {("Keep", True)}

    # Answers about the fleet agree with a plan.
    room = json.loads(
        cli("plan", "-n", tenant, "-o", "json", "--headroom", "md/demo").out
    )
    most = room["headroom"]
    assert most > room["wanted"] == 2
    for replicas, shortfall in ((most, 0), (most + 1, 1)):
        decision = decision_about(cli, tenant, "--scale", f"md/demo={replicas}")
        assert decision["shortfall"] == shortfall
    full = ("--scale", f"md/demo={most}", "--fail-on-shortfall")
    refused = cli("plan", "-n", tenant, "--can-drain", "eu", *full)
    assert (refused.code, refused.out.splitlines()[0]) == (
        1,
        "InferenceCluster eu cannot be drained now: some replicas would not be placed again",
    )

    # The example program finds the deployment, and scales it.
    program = [
        sys.executable,
        str(ROOT / "examples" / "deploy_and_scale.py"),
        file,
        "3",
    ]
    environment = {**os.environ, "MODELPLANE_TEMPORAL__ADDRESS": here.temporal_address}
    ended = subprocess.run(
        program,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    lines = ended.stdout.splitlines()
    assert lines[-1].startswith("3 of 3 Ready"), ended.stderr
    assert any(line.startswith("2 of 2 Ready") for line in lines)
    # The file still says 2. An unchanged manifest does not undo the later count.
    assert cli("apply", "-f", file).out == "modeldeployment/demo unchanged\n"
    assert cli("get", "md/demo", "-n", tenant).out.split()[-3:-1] == ["3", "True"]
    events = cli("events", "-n", tenant, "md/demo").out.splitlines()[1:]
    assert {"SpecChanged", "Scheduled", "Scaled"} <= {
        line.split()[2] for line in events
    }

    scaled = cli("scale", "md/demo", "--replicas", "0", "-n", tenant, *WAIT)
    assert (scaled.code, scaled.out) == (0, "modeldeployment/demo scaled to 0\n")
    assert "✓ modeldeployment/demo: scaled to zero" in scaled.err
    deleted = cli("delete", "md/demo", "-n", tenant, *WAIT)
    assert (deleted.code, deleted.out) == (
        0,
        "modeldeployment/demo deletion requested\n",
    )
    assert "✓ modeldeployment/demo: gone" in deleted.err
    assert cli("get", "md/demo", "-n", tenant).code == ExitCode.NOT_FOUND
    assert "No resources found" in cli("get", "mr", "-n", tenant).err


def test_a_foreign_finalizer_blocks_a_teardown_until_it_is_forced(
    cli: Cli,
    tenant: str,
    written: Callable[[str], str],
    here: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    file = written(manifest(tenant, replicas=1))
    assert cli("apply", "-f", file, *WAIT).code == 0
    titles, row = cli("get", "mr", "-n", tenant).out.splitlines()
    replica, cluster = row.split()[0], row.split()[titles.split().index("CLUSTER")]
    hold = workload(kube(here.clusters[cluster]), here.clusters[cluster].server, tenant)
    hold([HOLD])
    try:
        cli("delete", "md/demo", "-n", tenant)
        described = eventually(
            lambda: cli("describe", "mr", replica, "-n", tenant),
            lambda seen: HOLD in step(seen.out, 7),
        ).out
        assert "Teardown:" in described
        waits = rf"delete the engines +waiting .*\(finalizer {HOLD}"
        assert re.search(waits, step(described, 7))
        for words in (
            ["apply", "-f", file],
            ["scale", "md/demo", "-n", tenant, "--replicas", "1"],
        ):
            refused = cli(*words)
            assert refused.code == ExitCode.CONFLICT, words
            assert f"ModelDeployment {tenant}/demo is being deleted" in refused.err
        late = cli("delete", "md/demo", "-n", tenant, "--wait", "--timeout", "1")
        assert late.code == ExitCode.TIMED_OUT
        assert HOLD in late.err
        force = ("--force", "--reason", "its owner is gone", "--timeout", "90")
        forced = cli("delete", "md/demo", "-n", tenant, *force)
        assert forced.code == ExitCode.DONE, forced.err
        assert "modeldeployment/demo left 1 object behind:" in forced.out
        assert forced.out.splitlines()[-1].split()[:3] == [
            cluster,
            "Deployment",
            tenant,
        ]
    finally:
        hold([])


def step(described: str, number: int) -> str:
    """Return the line of a teardown's current step, or an empty string."""
    lines = described.splitlines()
    return next((line for line in lines if line.split()[:1] == [str(number)]), "")


def workload(
    api: ApiClient, server: str, namespace: str
) -> Callable[[list[str]], None]:
    """Find the only engine of a namespace.

    Return a function that sets its finalizers.
    """
    base = f"{server}/apis/apps/v1/namespaces/{namespace}/deployments"
    found: Any = api.call_api("GET", base, header_params={"Accept": "application/json"})
    (item,) = json.loads(found.read())["items"]

    def set_finalizers(finalizers: list[str]) -> None:
        body = {"metadata": {"finalizers": finalizers or None}}
        headers = {"Content-Type": "application/merge-patch+json"}
        path = f"{base}/{item['metadata']['name']}"
        api.call_api("PATCH", path, header_params=headers, body=body).read()

    return set_finalizers


def test_every_command_explains_an_unplaced_deployment(
    cli: Cli,
    tenant: str,
    written: Callable[[str], str],
) -> None:
    result = cli(
        "apply", "-f", written(manifest(tenant, TOO_BIG)), "--wait", "--timeout", "4"
    )
    assert result.code == ExitCode.TIMED_OUT
    title = f"ModelDeployment {tenant}/too-big"
    assert f"{title}: ReplicasScheduled: InsufficientCapacity" in result.err
    assert "0/2 clusters are available" in result.err
    assert "next: free or add nodes" in result.err
    explained = cli("explain", "md/too-big", "-n", tenant)
    assert explained.code == 0
    nowhere = "0/2 clusters are available: 2 had no pool for engine main (best: "
    assert nowhere in explained.out
    assert "SelectorNoMatch" in explained.out
    assert "InsufficientCapacity" in explained.out.partition("Conditions:")[2]
    changed = cli("apply", "-f", written(manifest(tenant, TOO_BIG, replicas=2)))
    assert changed.out == "modeldeployment/too-big configured\n"
    tree = json.loads(cli("get", "md/too-big", "-n", tenant, "-o", "json").out)
    assert tree["metadata"]["generation"] == 2


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Let children of this process obey SIGINT, as at a terminal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_a_watch_prints_what_changes_until_it_is_interrupted(
    tenant: str,
    written: Callable[[str], str],
    cli: Cli,
    fleet: Fleet,
) -> None:
    command = [sys.executable, "-m", "client.main", "get", "md", "-n", tenant, "-w"]
    environment = {**os.environ, HOME_VARIABLE: str(fleet.home)}
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=environment, stdout=pipe, stderr=pipe, text=True
    ) as watch:
        assert watch.stdout
        assert watch.stderr
        assert "No resources found" in watch.stderr.readline()
        cli("apply", "-f", written(manifest(tenant, TOO_BIG)))
        assert watch.stdout.readline().split() == ["NAME", "REPLICAS", "READY", "AGE"]
        assert watch.stdout.readline().split()[0] == "too-big"
        cli("delete", "md/too-big", "-n", tenant, *WAIT)
        assert any(
            "too-big is gone" in line for line in iter(watch.stderr.readline, "")
        )
        watch.send_signal(signal.SIGINT)
        assert watch.wait(TIMEOUT_SECONDS) == INTERRUPTED


# Clusters


@pytest.fixture
def uncordoned(cli: Cli) -> Iterator[None]:
    """Uncordon all clusters after the test."""
    yield
    assert [cli("uncordon", name).code for name in CLUSTERS] == [0, 0]


@pytest.mark.usefixtures("uncordoned")
def test_a_drain_follows_its_plan_and_a_cordon_keeps_running_replicas(
    cli: Cli,
    written: Callable[[str], str],
) -> None:
    tenant = "default"
    file = written(manifest(tenant, drain={"maxUnavailable": 1}))
    assert cli("apply", "-f", file, *WAIT).code == 0
    planned = decision_about(cli, tenant, "--drain", "eu")
    assert [eviction["cluster"] for eviction in planned["evictions"]] == ["eu"]
    assert clusters_of(cli, tenant) == CLUSTERS, "a plan changes nothing"
    result = cli("drain", "eu", *WAIT)
    requested = "inferencecluster/eu drain requested\n"
    assert (result.code, result.out) == (0, requested), result.err
    assert ": gone" in result.err
    placements = [placement["cluster"] for placement in planned["placements"]]
    assert clusters_of(cli, tenant) == placements == ["us", "us"]
    assert cli("drain", "eu").out == "inferencecluster/eu is drained already\n"

    # The next drain would lose replicas.
    assert cli("apply", "-f", file, *WAIT).code == 0
    _refuses_to_lose_replicas(cli)
    assert clusters_of(cli, tenant) == ["us", "us"]

    loss = ("--allow-loss", "--reason", "power cut", "--wait", "--timeout", "2")
    lost = cli("drain", "us", *loss)
    assert (lost.code, lost.out) == (5, "inferencecluster/us drain requested\n"), (
        lost.err
    )
    warning = "warning: some replicas of InferenceCluster us find no other place"
    assert warning in lost.err
    # A second replica may not be unavailable while the first has no place.
    eventually(lambda: clusters_of(cli, tenant), lambda seen: seen == ["us"])
    assert condition_of(cli, "us") == ("Drained", "power cut")

    assert cli("uncordon", "us").out == "inferencecluster/us uncordoned\n"
    neither = "inferencecluster/us was neither drained nor cordoned\n"
    assert cli("uncordon", "us").out == neither
    eventually(lambda: clusters_of(cli, tenant), lambda seen: seen == ["us", "us"])
    assert cli("uncordon", "eu").out == "inferencecluster/eu uncordoned\n"
    eventually(
        lambda: _clusters_of_three(cli, tenant),
        lambda seen: seen == ["eu", "us", "us"],
    )

    # Nothing leaves a cordoned cluster, and nothing new is placed there.
    assert (
        cli("cordon", "eu", "--reason", "new rack").out
        == "inferencecluster/eu cordoned\n"
    )
    assert cli("cordon", "eu").out == "inferencecluster/eu already takes no replicas\n"
    assert condition_of(cli, "eu") == ("Cordoned", "new rack")
    titles, row = cli("get", "ic", "eu").out.splitlines()
    assert row.split()[titles.split().index("READY")] == "True,SchedulingDisabled"
    assert cli("scale", "md/demo", "--replicas", "4", *WAIT).code == 0
    assert clusters_of(cli, tenant) == ["eu", "us", "us", "us"]
    cli("uncordon", "eu")
    reasons = [line.split()[2] for line in cli("events", "ic/eu").out.splitlines()[1:]]
    ours = [reason for reason in reasons if reason in {"Cordoned", "Uncordoned"}]
    assert ours[-2:] == ["Cordoned", "Uncordoned"]
    assert "SchedulingDisabled" not in cli("get", "ic", "eu").out


def _clusters_of_three(cli: Cli, tenant: str) -> list[str]:
    """Scale from 2 to 3, and return the clusters.

    Scale back if all are on one cluster: the scheduler may hear of the third replica
    before the other cluster reports to it that it takes replicas again.
    """
    assert cli("scale", "md/demo", "--replicas", "3", *WAIT).code == 0
    found = clusters_of(cli, tenant)
    if len(set(found)) == 1:
        assert cli("scale", "md/demo", "--replicas", "2", *WAIT).code == 0
        eventually(lambda: clusters_of(cli, tenant), lambda seen: len(seen) == 2)
    return found


def _refuses_to_lose_replicas(cli: Cli) -> None:
    refused = cli("drain", "us")
    lines = refused.err.splitlines()
    why = "some replicas would find no other place"
    assert (refused.code, refused.out) == (1, "")
    assert lines[0] == f"error: InferenceCluster us was not drained: {why}"
    assert any(line.split()[:2] == ["default/demo", "2"] for line in lines), refused.err
    assert "`modelplane drain us --allow-loss`" in lines[-1]
    refused = cli("delete", "ic/us", "--evict")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith(f"error: InferenceCluster us was not deleted: {why}")
    shown = json.loads(cli("get", "ic", "us", "-o", "json").out)
    assert "taints" not in shown["spec"]
    assert "deletionTimestamp" not in shown["metadata"]


def condition_of(cli: Cli, cluster: str) -> tuple[str, str]:
    """Return the reason of the condition SchedulingDisabled, and the user's reason in
    it.
    """
    tree = json.loads(cli("get", "ic", cluster, "-o", "json").out)
    conditions = tree["status"]["conditions"]
    (found,) = [one for one in conditions if one["type"] == "SchedulingDisabled"]
    assert f" by {current_user()} at " in found["message"]
    return found["reason"], found["message"].rpartition(": ")[2]


def an_existing_cluster(name: str, **annotations: str) -> dict[str, Any]:
    """Return a cluster whose kubeconfig is in the Secret `<name>-kubeconfig`."""
    existing = {
        "source": "Existing",
        "existing": {"secretRef": {"name": f"{name}-kubeconfig"}},
    }
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {"cluster": existing},
    }


def test_a_cluster_that_does_not_answer_is_reported_with_its_address(
    cli: Cli,
    here: Running,
    written: Callable[[str], str],
) -> None:
    name = f"dead-{uuid.uuid4().hex[:6]}"
    works = here.clusters["eu"].kubeconfig.read_text()
    kubeconfig = re.sub(r"server: https://\S+", "server: https://127.0.0.1:9", works)
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": f"{name}-kubeconfig", "namespace": "modelplane-system"},
        "stringData": {"kubeconfig": kubeconfig},
    }
    cluster = an_existing_cluster(name, **{"modelplane.ai/stack": "external"})
    cli("apply", "-f", written(json.dumps(secret)))
    assert cli("apply", "-f", written(json.dumps(cluster))).code == 0
    silent = "no response from https://127.0.0.1:9"
    eventually(lambda: cli("describe", f"ic/{name}"), lambda seen: silent in seen.out)
    result = cli(
        "apply", "-f", written(json.dumps(cluster)), "--wait", "--timeout", "1"
    )
    assert result.code == ExitCode.TIMED_OUT
    assert silent in result.err
    described = cli("describe", f"ic/{name}").out
    assert "Failing steps, which are retried:\n  connect_cluster, attempt" in described
    forced = cli(
        "delete", f"ic/{name}", "--force", "--reason", "the rack is gone", *WAIT
    )
    assert forced.code == 0, forced.err
    deleted = cli("delete", "-f", written(json.dumps(secret)))
    assert deleted.out == f"secret/{name}-kubeconfig deleted\n"


def test_a_cluster_without_its_secret_is_reported_and_its_stack_is_shown_under_its_name(
    cli: Cli,
    written: Callable[[str], str],
) -> None:
    name = f"stack-{uuid.uuid4().hex[:6]}"
    applied = written(json.dumps(an_existing_cluster(name)))
    result = cli("apply", "-f", applied, "--wait", "--timeout", "5")
    assert result.code == ExitCode.TIMED_OUT
    assert "CredentialsInvalid" in result.err
    assert (
        "put a working kubeconfig into the Secret that the cluster names" in result.err
    )
    eventually(
        lambda: cli("describe", f"ss/{name}"),
        lambda seen: "WaitingForCluster" in seen.out,
    )
    rows = [line.split() for line in cli("get", "servingstacks").out.splitlines()]
    assert rows[0] == ["NAME", "GATEWAY", "READY", "AGE"]
    assert [name, "<none>", "False"] in [row[:3] for row in rows[1:]]
    # The testbed installs the stacks of its clusters. All stacks are in one namespace.
    assert not {row[0] for row in rows[1:]} & set(CLUSTERS)
    shown = cli("get", "servingstack", name, "-n", "other", "-o", "name").out
    assert shown == f"servingstack/{name}\n"
    tree = json.loads(cli("get", f"ss/{name}", "-o", "json").out)
    seen = (tree["kind"], tree["metadata"]["namespace"], tree["status"]["phase"])
    assert seen == ("ServingStack", "modelplane-system", "Pending")
    kubeconfig = {
        "type": "Kubeconfig",
        "name": f"{name}-kubeconfig",
        "key": "kubeconfig",
    }
    assert tree["spec"] == {"secrets": [kubeconfig]}
    described = cli("describe", f"ss/{name}").out
    assert "Components:\n  <none>" in described
    assert f"Next: see the cluster: `modelplane describe ic/{name}`" in described
    external = cli("describe", "ss/eu")
    assert external.code == ExitCode.NOT_FOUND
    assert "InferenceCluster eu has no stack of this control plane" in external.err
    assert cli("get", "ss", "missing").code == ExitCode.NOT_FOUND
    assert cli("delete", f"ic/{name}", *WAIT).code == 0


def test_a_missing_class_is_reported_with_its_reason(
    cli: Cli,
    written: Callable[[str], str],
) -> None:
    name = f"new-{uuid.uuid4().hex[:6]}"
    tree = json.loads(cli("get", "ic/eu", "-o", "json").out)
    tree["metadata"] = {"name": name, "annotations": tree["metadata"]["annotations"]}
    pool = {"name": "pool", "className": "no-such-class", "nodeCount": 1}
    tree["spec"]["nodePools"] = [pool]
    result = cli("apply", "-f", written(json.dumps(tree)), "--wait", "--timeout", "5")
    assert result.code == ExitCode.TIMED_OUT
    assert "WaitingForClasses" in result.err
    assert "no-such-class" in result.err
    assert "apply the missing InferenceClass" in result.err
    assert cli("delete", f"ic/{name}", *WAIT).code == 0


def test_a_change_that_needs_a_new_object_is_refused_before_it_is_sent(
    cli: Cli,
    written: Callable[[str], str],
) -> None:
    tree = json.loads(cli("get", "ic/eu", "-o", "json").out)
    tree["spec"]["cluster"] = {"source": "GKE", "gke": {"region": "europe-west4"}}
    pools = tree["spec"]["nodePools"]
    tree["spec"]["nodePools"] = [
        {**pool, "zones": ["europe-west4-a"]} for pool in pools
    ]
    result = cli("apply", "-f", written(json.dumps(tree)))
    assert result.code == ExitCode.REFUSED
    assert "spec.cluster.source" in result.err


# Existing and missing objects


def test_lists_can_be_narrowed_by_label_and_joined_over_kinds(cli: Cli) -> None:
    names = cli(
        "get", "ic", "-l", "modelplane.ai/region=eu-west", "-o", "name"
    ).out.split()
    assert names == ["inferencecluster/eu"]
    everything = cli("get", "ic,icl", "-o", "name").out.split()
    clusters = {f"inferencecluster/{name}" for name in CLUSTERS}
    assert set(everything) >= clusters | {"inferenceclass/small"}
    assert "modelplane.ai/region=eu-west" in cli("get", "ic", "--show-labels").out


def test_a_missing_object_has_its_own_exit_code(cli: Cli) -> None:
    deployment = (
        ["get", "md", "missing"],
        ["describe", "md/missing"],
        ["scale", "md/missing", "--replicas", "1"],
        ["delete", "md/missing"],
        ["explain", "md/missing"],
        ["plan", "--scale", "md/missing=1"],
        ["plan", "--headroom", "md/missing"],
        ["ui", "md/missing"],
    )
    cluster = (
        ["plan", "--drain", "missing"],
        ["plan", "--can-drain", "missing"],
        ["drain", "missing"],
        ["cordon", "missing"],
        ["uncordon", "missing"],
    )
    ended = {" ".join(words): cli(*words) for words in (*deployment, *cluster)}
    expected = (ExitCode.NOT_FOUND, "")
    seen = {words: (each.code, each.out) for words, each in ended.items()}
    assert seen == dict.fromkeys(ended, expected)
    missing = "ModelDeployment default/missing does not exist"
    assert [
        words for words in deployment[:4] if missing not in ended[" ".join(words)].err
    ] == []
    assert cli("delete", "md/missing", "--ignore-not-found").code == 0
    # The request reaches each existing owner.
    retried = cli("retry", "ic/eu", "md/missing")
    assert (retried.code, retried.out) == (3, "inferencecluster/eu retry requested\n")


def test_a_policy_is_set_and_read_back_and_a_bad_one_is_refused(
    cli: Cli,
    written: Callable[[str], str],
) -> None:
    before = written(cli("policy", "get", "-o", "json").out)
    wanted = {"priorityClasses": {"gold": 100}}
    changed = cli("policy", "set", "-f", written(json.dumps(wanted)))
    assert changed.out == "fleet policy configured\n"
    assert json.loads(cli("policy", "get", "-o", "json").out)["priorityClasses"] == {
        "gold": 100
    }
    refused = cli("policy", "set", "-f", written('{"profile": "nope"}'))
    assert (refused.code, "profile: must be one of" in refused.err) == (2, True)
    assert cli("policy", "set", "-f", before).code == 0


def test_links_and_logs_lead_to_the_workflow_and_the_worker(
    cli: Cli, here: Running
) -> None:
    link = cli("ui", "ic/eu").out.strip()
    page = f"{here.temporal_ui}/namespaces/default/workflows/inferencecluster%2Feu/"
    assert link.startswith(page)
    assert "worker" in {line.split()[0] for line in cli("logs").out.splitlines()[1:]}
    assert "serving" in cli("logs", "worker", "--tail", "1000").out
    assert "name one of" in cli("logs", "missing").err


def test_logs_of_a_model_come_from_the_clusters_of_its_replicas(
    cli: Cli, tenant: str, written: Callable[[str], str]
) -> None:
    # Another test may have stopped the data plane, which has the logs.
    assert cli("up").code == 0
    applied = cli("apply", "-f", written(manifest(tenant)), *WAIT)
    assert applied.code == 0, applied.err
    shown = cli("logs", "md/demo", "-n", tenant, "--timestamps")
    assert (shown.code, shown.err) == (0, "")
    started = r"^\[pod/demo-.*/engine\] \S+Z INFO: +Uvicorn running on"
    assert len(re.findall(started, shown.out, re.MULTILINE)) == 2
    ran = cli("exec", "md/demo", "-n", tenant, "--", "ls")
    assert (ran.code, ran.out) == (1, "")
    assert "no processes in which a command could run" in ran.err
