"""With a data plane a request really travels: gateway, route, Service, endpoint, pod."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client, config

from testbed.documents import load_all
from testbed.fleet.fleet_file import FleetFile
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.testbed.conftest import control_of

pytestmark = pytest.mark.testbed("shared")

FLEET = """
classes:
  two:
    devices: [{name: gpu, driver: gpu.example.com, deviceClassName: gpu.example.com, count: 2}]
clusters:
  - {name: lab, pools: [{name: gpus, class: two, nodes: 1}]}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    """A testbed; what is left of it at the end is a failure."""
    folder = tmp_path_factory.mktemp("wired")
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        yield testbed
    finally:
        testbed.down()
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(path)]
    assert left == []


@pytest.fixture(scope="module")
def plain(lab: Testbed) -> Running:
    """It runs without a data plane."""
    return lab.up(temporal=False)


@pytest.fixture(scope="module")
def gateway_before(plain: Running) -> dict[str, Any]:
    """The control cluster's Gateway as it was without a data plane."""
    return control_gateway(control_of(plain))


@pytest.fixture(scope="module")
def wired(lab: Testbed, gateway_before: dict[str, Any]) -> Running:
    """A data plane was added while it ran."""
    assert gateway_before
    return lab.up(temporal=False, data_plane=True)


def api(cluster: ClusterRunning) -> client.ApiClient:
    return config.new_client_from_config(str(cluster.kubeconfig))


def route(name: str, gateway: str, prefix: str, onward: str, *, service: str, port: int) -> dict[str, Any]:
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": onward}}}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "filters": [rewrite],
        "backendRefs": [{"name": service, "port": port}],
    }
    spec = {"parentRefs": [{"name": gateway, "namespace": "modelplane-system"}], "rules": [rule]}
    return {"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name}, "spec": spec}


def create_route(cluster: ClusterRunning, document: dict[str, Any]) -> None:
    client.CustomObjectsApi(api(cluster)).create_namespaced_custom_object(
        "gateway.networking.k8s.io", "v1", "default", "httproutes", document
    )


@pytest.fixture(scope="module")
def pods(wired: Running, eventually: Callable[..., None]) -> set[str]:
    """Two pods behind a Service and a route of the cluster's Gateway; answers their addresses."""
    lab = wired.clusters["lab"]
    core = client.CoreV1Api(api(lab))
    container = {"name": "engine", "image": "engine:1", "ports": [{"containerPort": 8000}]}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    for name in ("one", "two"):
        metadata = {"name": name, "labels": {"app": "engine"}}
        core.create_namespaced_pod("default", {"metadata": metadata, "spec": {"containers": [container], "tolerations": tolerations}})
    ports = [{"port": 80, "targetPort": 8000}]
    core.create_namespaced_service("default", {"metadata": {"name": "engine"}, "spec": {"selector": {"app": "engine"}, "ports": ports}})
    create_route(lab, route("engine", "inference-gateway", "/ml/engine", "/", service="engine", port=80))
    eventually(lambda: all(pod.status.pod_ip for pod in core.list_namespaced_pod("default").items))
    return {pod.status.pod_ip for pod in core.list_namespaced_pod("default").items}


def answers(url: str) -> tuple[set[str], set[str]]:
    """Ask eight times; answer which pods were reached, and at which paths."""
    answers = [httpx.get(url, trust_env=False, timeout=60) for _ in range(8)]
    if any(answer.status_code != httpx.codes.OK for answer in answers):
        return set(), {str(answer.status_code) for answer in answers}
    return {answer.json()["pod"] for answer in answers}, {answer.json()["path"] for answer in answers}


def test_a_request_to_the_gateway_reaches_every_pod_with_its_path_rewritten(
    wired: Running, pods: set[str], eventually: Callable[..., None]
) -> None:
    url = f"{wired.clusters['lab'].gateway_url}/ml/engine/v1/echo"
    eventually(lambda: answers(url), equals=(pods, {"/v1/echo"}))


def test_a_request_to_the_control_gateway_goes_through_the_clusters_gateway(
    wired: Running, pods: set[str], eventually: Callable[..., None]
) -> None:
    control = control_of(wired)
    core = client.CoreV1Api(api(control))
    core.create_namespaced_service("default", {"metadata": {"name": "remote"}, "spec": {"ports": [{"name": "http", "port": 80}]}})
    endpoints = {
        "metadata": {"name": "remote-0", "labels": {"kubernetes.io/service-name": "remote"}},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 80}],
        "endpoints": [{"addresses": [wired.clusters["lab"].gateway_address], "conditions": {"ready": True}}],
    }
    client.DiscoveryV1Api(api(control)).create_namespaced_endpoint_slice("default", endpoints)
    create_route(control, route("public", "modelplane", "/qwen", "/ml/engine", service="remote", port=80))
    url = f"{control.gateway_url}/qwen/v1/echo"
    eventually(lambda: answers(url), equals=(pods, {"/v1/echo"}))


def test_a_chat_completion_streams_through_the_gateway(wired: Running, pods: set[str], eventually: Callable[..., None]) -> None:
    url = f"{wired.clusters['lab'].gateway_url}/ml/engine/v1/chat/completions"
    eventually(lambda: httpx.post(url, json={"model": "qwen"}, trust_env=False, timeout=60).status_code, equals=200)
    with httpx.stream("POST", url, json={"model": "qwen", "stream": True}, trust_env=False) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines.pop() == "[DONE]"
    text = "".join(json.loads(line)["choices"][0]["delta"]["content"] for line in lines)
    assert any(text == f"pod {pod} was asked at /v1/chat/completions " for pod in pods)


def test_traefik_judges_the_gateway_and_the_testbed_leaves_it_alone(wired: Running) -> None:
    custom = client.CustomObjectsApi(api(wired.clusters["lab"]))
    gateway_class = custom.get_cluster_custom_object("gateway.networking.k8s.io", "v1", "gatewayclasses", "traefik")
    assert gateway_class["spec"]["controllerName"] == "traefik.io/gateway-controller"
    gateway = custom.get_namespaced_custom_object("gateway.networking.k8s.io", "v1", "modelplane-system", "gateways", "inference-gateway")
    assert [each["value"] for each in gateway["status"]["addresses"]] == [wired.clusters["lab"].gateway_address]


def control_gateway(control: ClusterRunning) -> dict[str, Any]:
    """The Gateway that stands before those of the clusters."""
    place = ("gateway.networking.k8s.io", "v1", "modelplane-system", "gateways", "modelplane")
    found: dict[str, Any] = client.CustomObjectsApi(api(control)).get_namespaced_custom_object(*place)
    return found


def test_a_data_plane_can_be_added_to_a_running_fleet(plain: Running, gateway_before: dict[str, Any], wired: Running) -> None:
    before = control_of(plain)
    assert before.gateway_url == ""
    assert gateway_before["status"]["addresses"] == [{"type": "IPAddress", "value": before.gateway_address}]
    secrets = {each["metadata"]["name"]: each["data"] for each in load_all((plain.manifests / "secrets.yaml").read_text())}
    assert before.server in base64.b64decode(secrets["control-kubeconfig"]["kubeconfig"]).decode()

    control = control_of(wired)
    assert control_gateway(control)["spec"]["gatewayClassName"] == "traefik"
    assert httpx.get(control.gateway_url, trust_env=False, timeout=60).headers["content-type"].startswith("text/plain")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""
