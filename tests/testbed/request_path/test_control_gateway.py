"""The control cluster with Envoy Gateway and Envoy, which reach an endpoint elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from activities.cluster_objects import kinds
from activities.observe.control import ClassSeen, read_class, read_gateway
from api_types.labels import CONTROL_GATEWAY_NAME, SYSTEM_NAMESPACE
from client.local.envoy import envoy_stack
from testbed.cluster.kube import Kube, collection
from testbed.cluster.pki import Authority
from testbed.dataplane.names import PROVIDER, PROVIDER_ADDRESS, PROVIDER_MODEL
from testbed.fleet.fleet_file import CONTROL, FleetFile
from testbed.running import ClusterRunning
from testbed.testbed import Testbed
from tests.testbed.request_path.request_path import FLEET, eventually

pytestmark = [pytest.mark.testbed, pytest.mark.soak]

Json = dict[str, Any]

NAMESPACE = "ml-team"
GATEWAY_API = "gateway.networking.k8s.io/v1"
BACKEND = {"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "provider"}
SERVICE = {"kind": "Service", "name": "provider", "port": 80}


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    folder = tmp_path_factory.mktemp("control")
    (folder / "fleet.yaml").write_text(FLEET.replace("control: false", ""))
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        testbed.up(temporal=False, envoy=envoy_stack())
        yield testbed
    finally:
        testbed.down()


@pytest.fixture(scope="module")
def kube(testbed: Testbed) -> Iterator[Kube]:
    found = running(testbed)
    folder: Path = found.kubeconfig.parent
    with Kube(found.server, Authority(folder / "pki")) as kube:
        yield kube


def running(testbed: Testbed) -> ClusterRunning:
    """Return the control cluster."""
    found = testbed.running()
    assert found
    assert found.control
    assert found.control.name == CONTROL
    return found.control


def gateway_of(kube: Kube) -> Json:
    gateways = collection(GATEWAY_API, "Gateway", SYSTEM_NAMESPACE)
    found = kube.get(f"{gateways}/{CONTROL_GATEWAY_NAME}")
    assert found
    return found


def test_the_product_reads_the_gateway_and_its_timeouts(
    testbed: Testbed, kube: Kube
) -> None:
    seen = read_gateway(gateway_of(kube))
    assert (seen.accepted, seen.address, seen.gateway_class) == (
        True,
        running(testbed).gateway_address,
        "envoy",
    )
    gateway_class = kube.get(f"{collection(GATEWAY_API, 'GatewayClass')}/envoy")
    assert gateway_class
    assert read_class(gateway_class) == ClassSeen(request=True, backend_request=True)


@pytest.mark.parametrize("reference", [BACKEND, SERVICE], ids=["backend", "service"])
def test_a_route_reaches_a_host_name_and_an_address(
    testbed: Testbed, kube: Kube, reference: Json
) -> None:
    prefix = f"/{NAMESPACE}/{reference['kind'].lower()}/"
    for each in objects(prefix, reference):
        kube.apply(each)

    def models() -> list[str]:
        answer = httpx.get(f"{running(testbed).gateway_url}{prefix}v1/models")
        return (
            [each["id"] for each in answer.json()["data"]] if answer.is_success else []
        )

    eventually(lambda: models() == [PROVIDER_MODEL], "a route to the provider")


def objects(prefix: str, reference: Json) -> list[Json]:
    """Return an HTTPRoute, and the endpoint as a Backend and as a Service."""
    name = reference["kind"].lower()
    metadata = {"name": "provider", "namespace": NAMESPACE}
    rewrite = {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}}
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "filters": [{"type": "URLRewrite", "urlRewrite": rewrite}],
        "backendRefs": [reference],
    }
    parent = {"name": CONTROL_GATEWAY_NAME, "namespace": SYSTEM_NAMESPACE}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        {
            "apiVersion": kinds.BACKEND.api_version,
            "kind": kinds.BACKEND.kind,
            "metadata": metadata,
            "spec": {"endpoints": [{"fqdn": {"hostname": PROVIDER, "port": 80}}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": metadata,
            "spec": {"ports": [{"name": "http", "port": 80}]},
        },
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                **metadata,
                "labels": {"kubernetes.io/service-name": "provider"},
            },
            "addressType": "IPv4",
            "ports": [{"name": "http", "port": 80}],
            "endpoints": [{"addresses": [PROVIDER_ADDRESS]}],
        },
        {
            "apiVersion": GATEWAY_API,
            "kind": "HTTPRoute",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"parentRefs": [parent], "rules": [rule]},
        },
    ]


def test_the_testbed_returns_to_traefik(testbed: Testbed) -> None:
    testbed.up(temporal=False, data_plane=True)
    found = running(testbed)
    with Kube(found.server, Authority(found.kubeconfig.parent / "pki")) as kube:
        assert gateway_of(kube)["spec"]["gatewayClassName"] == "traefik"
    answer = httpx.get(f"{found.gateway_url}/none")
    assert answer.status_code == httpx.codes.NOT_FOUND
    assert answer.text == "404 page not found\n"
