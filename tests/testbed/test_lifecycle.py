"""Starting, stopping, crashing and restarting: no data are lost, and nothing is left
behind.
"""

import base64
import os
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config
from ruamel.yaml import YAML
from urllib3.exceptions import HTTPError

from testbed.cluster.kube import Kube
from testbed.cluster.pki import Authority
from testbed.fleet.fleet_file import FleetFile
from testbed.process.processes import SUPERVISOR, ProcessFiles, ProcessIdentity
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from testbed.waiting import StartFailed

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

FLEET = """
control: false
classes:
  two:
    devices:
      - name: gpu
        driver: gpu.example.com
        deviceClassName: gpu.example.com
        count: GPUS
clusters:
  - name: lab
    labels: {modelplane.ai/region: lab}
    pools: [{name: gpus, class: two, nodes: NODES}]
"""


NODES = ["lab-gpus-0", "lab-gpus-1", "lab-system"]


def fleet(folder: Path, nodes: int = 2, gpus: int = 2) -> FleetFile:
    (folder / "fleet.yaml").write_text(
        FLEET.replace("NODES", str(nodes)).replace("GPUS", str(gpus))
    )
    return FleetFile.load(folder / "fleet.yaml")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shared fleet file and home of these tests.

    Each test starts it, which is cheap while it runs.
    """
    return tmp_path_factory.mktemp("lab")


@pytest.fixture(scope="module")
def said() -> list[str]:
    """The messages of the shared testbed."""
    return []


@pytest.fixture(scope="module")
def lab(folder: Path, said: list[str]) -> Iterator[Testbed]:
    """A testbed of one cluster, running or not."""
    testbed = Testbed(folder / "home", fleet(folder), said.append)
    yield testbed
    testbed.down()


def alive(home: Path) -> list[ProcessIdentity]:
    """Return every process of a testbed, including the supervisor."""
    files = ProcessFiles(home)
    found = (files.identity(name) for name in [*files.specs(), SUPERVISOR])
    return [identity for identity in found if identity]


def mentioning(home: Path) -> list[str]:
    """Return the command lines of all processes on this machine that name the home."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").replace("\0", " ")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if f"{home}/" in words or words.rstrip().endswith(str(home)):
            lines.append(words)
    return lines


def core(
    cluster: ClusterRunning,
) -> "client.CoreV1Api":  # quoted, because importing it takes a second
    return client.CoreV1Api(config.new_client_from_config(str(cluster.kubeconfig)))


def test_stored_objects_survive_down_and_up_and_a_taken_port_is_replaced(
    lab: Testbed, said: list[str], eventually: Callable[..., None]
) -> None:
    before = lab.up(temporal=False)
    assert before.control is None
    core(before.clusters["lab"]).create_namespaced_config_map(
        "default", {"metadata": {"name": "kept"}, "data": {"a": "b"}}
    )
    assert len(mentioning(before.home)) > 5
    lab.down()
    assert mentioning(before.home) == []
    assert lab.running() is None

    with socket.socket() as squatter:
        squatter.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        squatter.bind(
            ("127.0.0.1", int(before.clusters["lab"].server.rpartition(":")[2]))
        )
        squatter.listen()
        running = lab.up(temporal=False)
        is_chosen_anew_and_said(before.clusters["lab"], running, said)
        again = core(running.clusters["lab"])
        assert again.read_namespaced_config_map("kept", "default").data == {"a": "b"}
        a_pod_runs_at_once(again, eventually)
        nothing_changes_while_all_runs(lab)


def is_chosen_anew_and_said(
    before: ClusterRunning, running: Running, said: list[str]
) -> None:
    after = running.clusters["lab"]
    port = before.server.rpartition(":")[2]
    assert after.server != before.server
    assert answers(after) == NODES
    assert any(
        line.startswith(f"port {port} of lab/kube-apiserver was taken") for line in said
    )
    secrets = YAML(typ="safe").load_all(
        (running.manifests / "secrets.yaml").read_text()
    )
    kept = {
        each["metadata"]["name"]: base64.b64decode(each["data"]["kubeconfig"]).decode()
        for each in secrets
    }
    assert after.server in kept["lab-kubeconfig"]


def a_pod_runs_at_once(
    pods: "client.CoreV1Api", eventually: Callable[..., None]
) -> None:
    """A stopped kwok cannot release its nodes.

    Unless their leases are deleted, the next one would wait 40 s.
    """
    spec = {
        "containers": [{"name": "main", "image": "main:1"}],
        "tolerations": [{"operator": "Exists"}],
    }
    pods.create_namespaced_pod("default", {"metadata": {"name": "early"}, "spec": spec})
    eventually(
        lambda: pods.read_namespaced_pod("early", "default").status.phase,
        equals="Running",
        within=35,
    )


def nothing_changes_while_all_runs(lab: Testbed) -> None:
    running = lab.up(temporal=False)
    before = alive(running.home)
    assert lab.up(temporal=False) == running
    assert alive(running.home) == before
    assert len(before) > 5


def test_a_crashed_part_is_started_again(
    lab: Testbed, eventually: Callable[..., None]
) -> None:
    running = lab.up(temporal=False)
    victim = lab.process_pid("lab.kube-apiserver")
    assert victim
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: lab.process_pid("lab.kube-apiserver") not in (None, victim))
    eventually(lambda: answers(running.clusters["lab"]), equals=NODES)
    eventually(lab.running, equals=running)


def answers(cluster: ClusterRunning) -> list[str] | None:
    """Return the names of the nodes, or None if the API server does not answer."""
    try:
        return [
            node.metadata.name
            for node in core(cluster).list_node(_request_timeout=5).items
        ]
    except (client.ApiException, HTTPError):
        return None


def test_a_silent_api_server_is_asked_again(
    lab: Testbed, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a machine that starts more processes than it has processors."""
    monkeypatch.setattr("testbed.cluster.kube.SECONDS", 0.3)
    cluster = lab.up(temporal=False).clusters["lab"]
    server = lab.process_pid("lab.kube-apiserver")
    assert server
    document = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "late", "namespace": "default"},
        "data": {"a": "b"},
    }
    with (
        Kube(
            cluster.server, Authority(folder / "home" / "clusters" / "lab" / "pki")
        ) as kube,
        ThreadPoolExecutor(1) as caller,
    ):
        os.kill(server, signal.SIGSTOP)
        try:
            request = caller.submit(kube.apply, document)
            with pytest.raises(TimeoutError):
                request.result(1.5)
            monkeypatch.setattr("testbed.cluster.kube.SILENCE_SECONDS", 1.0)
            with pytest.raises(
                StartFailed, match=rf"GET {cluster.server}/version: no answer for 1 s"
            ):
                kube.get("/version")
        finally:
            os.kill(server, signal.SIGCONT)
        assert request.result(60)["data"] == {"a": "b"}


def test_an_additional_process_is_supervised_with_the_fleet(
    lab: Testbed, eventually: Callable[..., None]
) -> None:
    home = lab.up(temporal=False).home
    argv = ["/bin/sh", "-c", 'echo "hello $WHO"; exec sleep 600']
    lab.start_process("worker", argv, {"WHO": "worker"})
    eventually((home / "logs" / "worker.log").read_text, equals="hello worker\n")
    first = lab.process_pid("worker")
    assert first

    with pytest.raises(StartFailed, match="already supervised"):
        lab.start_process("worker", argv, {})
    os.kill(first, signal.SIGKILL)
    eventually(lambda: lab.process_pid("worker") not in (None, first))
    lab.stop_process("worker", signal.SIGKILL)

    assert lab.process_pid("worker") is None
    assert "worker" not in lab.processes()
    lab.stop_process("worker")  # a second call is no error


def test_a_part_that_cannot_work_is_named_with_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file in place of etcd's data folder makes etcd end at once, again and again."""
    testbed = Testbed(tmp_path / "home", fleet(tmp_path))
    monkeypatch.setattr("testbed.process.supervision.STARTS_MAX", 3)
    (tmp_path / "home" / "clusters" / "lab").mkdir(parents=True)
    (tmp_path / "home" / "clusters" / "lab" / "etcd").write_text("in the way")
    try:
        with pytest.raises(
            StartFailed,
            match=(
                r"(?s)lab\.etcd .*the end of .*lab\.etcd\.log"
                r".*failed to list data dir.*Run `up` again"
            ),
        ):
            testbed.up(temporal=False)
        assert testbed.running() is None
    finally:
        testbed.down()


def test_a_process_cannot_be_started_while_nothing_is_up(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match="is not up"):
        Testbed(tmp_path / "home", fleet(tmp_path)).start_process(
            "worker", ["true"], {}
        )


def test_a_killed_supervisor_leaves_no_orphan_and_up_continues_with_a_changed_fleet_file(
    lab: Testbed, folder: Path, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    running = lab.up(temporal=False)
    core(running.clusters["lab"]).create_namespaced_config_map(
        "default", {"metadata": {"name": "survives"}}
    )
    before = gateway(running.clusters["lab"])
    supervisor = lab.process_pid(SUPERVISOR)
    assert supervisor
    os.kill(supervisor, signal.SIGKILL)
    eventually(lambda: mentioning(running.home), equals=[])
    assert lab.running() is None

    changed = Testbed(folder / "home", fleet(tmp_path, nodes=1, gpus=4))
    cluster = changed.up(temporal=False, data_plane=True).clusters["lab"]
    assert (
        core(cluster).read_namespaced_config_map("survives", "default").metadata.name
        == "survives"
    )
    assert answers(cluster) == ["lab-gpus-0", "lab-system"]
    eventually(lambda: addresses(gateway(cluster)), equals=addresses(before))
    traefik_serves_the_gateway(cluster)

    def devices() -> dict[str, int]:
        slices = (
            client.ResourceV1Api(core(cluster).api_client).list_resource_slice().items
        )
        return {each.spec.node_name: len(each.spec.devices) for each in slices}

    # The garbage collector deletes the slice of a deleted node.
    eventually(devices, equals={"lab-gpus-0": 4})
    wiping_leaves_nothing(changed, folder)


def gateway(cluster: ClusterRunning) -> dict[str, Any]:
    """Return the Gateway of a cluster."""
    place = (
        "gateway.networking.k8s.io",
        "v1",
        "modelplane-system",
        "gateways",
        "inference-gateway",
    )
    found: dict[str, Any] = client.CustomObjectsApi(
        core(cluster).api_client
    ).get_namespaced_custom_object(*place)
    return found


def addresses(found: dict[str, Any]) -> list[str]:
    """Return the addresses of a Gateway."""
    return [each["value"] for each in found["status"].get("addresses") or ()]


def traefik_serves_the_gateway(cluster: ClusterRunning) -> None:
    found = gateway(cluster)
    assert found["spec"]["gatewayClassName"] == "traefik"
    assert addresses(found) == [cluster.gateway_address]
    custom = client.CustomObjectsApi(core(cluster).api_client)
    gateway_class = custom.get_cluster_custom_object(
        "gateway.networking.k8s.io", "v1", "gatewayclasses", "traefik"
    )
    assert gateway_class["spec"]["controllerName"] == "traefik.io/gateway-controller"
    assert (
        httpx.get(cluster.gateway_url, trust_env=False, timeout=60)
        .headers["content-type"]
        .startswith("text/plain")
    )


def wiping_leaves_nothing(lab: Testbed, folder: Path) -> None:
    lab.down(wipe=True)
    assert not (folder / "home").exists()
    assert mentioning(folder / "home") == []


def test_the_manifests_describe_the_fleet_as_a_user_would(testbed: Running) -> None:
    def documents(name: str) -> list[dict[str, Any]]:
        return list(YAML(typ="safe").load_all((testbed.manifests / name).read_text()))

    eu = documents("clusters.yaml")[0]
    assert eu == {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "InferenceCluster",
        "metadata": {
            "name": "prod-eu",
            "labels": {"modelplane.ai/region": "eu-west", "tier": "prod"},
            "annotations": {
                "modelplane.ai/stack": "external",
                "modelplane.ai/routing": "service",
            },
        },
        "spec": {
            "cluster": {
                "source": "Existing",
                "existing": {
                    "secretRef": {"name": "prod-eu-kubeconfig"},
                    "cache": {"storageClassName": "testbed-rwx"},
                },
            },
            "nodePools": [
                {"name": "h100", "className": "h100-8x", "nodeCount": 4},
                {"name": "l40s", "className": "l40s-8x", "nodeCount": 4},
            ],
        },
    }
    assert [(each["kind"], each["metadata"]) for each in documents("classes.yaml")] == [
        ("InferenceClass", {"name": name}) for name in ("h100-8x", "h200-8x", "l40s-8x")
    ]
    assert {each["metadata"]["name"] for each in documents("secrets.yaml")} == {
        "prod-eu-kubeconfig",
        "prod-us-kubeconfig",
    }
    for private in (
        testbed.manifests / "secrets.yaml",
        testbed.clusters["prod-eu"].kubeconfig,
    ):
        assert stat.S_IMODE(private.stat().st_mode) == 0o600
