"""Traefik serves routes of each shape as the product requires.

The objects are hand-written: routes of the control cluster's gateway lead to gateways
of clusters, and theirs to pods.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from activities.render.services.route import RETRY_LATER
from testbed.cluster.kube import Kube, collection, path_of
from testbed.cluster.pki import Authority
from testbed.dataplane.names import PROVIDER, PROVIDER_ADDRESS, gateway_host
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.testbed.conftest import control_of

pytestmark = pytest.mark.testbed

CLUSTERS = ("eu", "us")
NAMESPACE = "by-hand"
Document = dict[str, Any]


def service(
    name: str,
    port: int = 80,
    *,
    selector: Mapping[str, str] | None = None,
    protocol: str | None = None,
) -> Document:
    """A Service whose port has no name."""
    ports = [
        {
            "port": port,
            "protocol": "TCP",
            "targetPort": 8000 if selector else port,
            **({"appProtocol": protocol} if protocol else {}),
        }
    ]
    spec = {"ports": ports, **({"selector": dict(selector)} if selector else {})}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


def endpoints(name: str, address: str, port: int = 80, kind: str = "IPv4") -> Document:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "labels": {"kubernetes.io/service-name": name},
        },
        "addressType": kind,
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }


def rewrite(prefix: str, host: str | None = None) -> Document:
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": prefix}
    return {
        "type": "URLRewrite",
        "urlRewrite": {"path": path, **({"hostname": host} if host else {})},
    }


def backend(name: str, *filters: Document, weight: int = 1, port: int = 80) -> Document:
    return {
        "name": name,
        "port": port,
        "weight": weight,
        **({"filters": list(filters)} if filters else {}),
    }


def route(
    name: str,
    gateway: str,
    prefix: str,
    *backends: Document,
    filters: tuple[Document, ...] = (),
) -> Document:
    rule = {
        "matches": [{"path": {"type": "PathPrefix", "value": prefix}}],
        "backendRefs": list(backends),
        "filters": list(filters),
    }
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "parentRefs": [{"name": gateway, "namespace": "modelplane-system"}],
            "rules": [{key: value for key, value in rule.items() if value}],
        },
    }


class Fleet:
    """A control cluster and two workload clusters with two pods of one model each."""

    def __init__(self, running: Running, kubes: Mapping[str, Kube]) -> None:
        self.control, self.url = kubes["control"], control_of(running).gateway_url
        self.gateways = {
            name: running.clusters[name].gateway_address for name in CLUSTERS
        }
        self._kubes = kubes

    def pods(self, cluster: str) -> set[str]:
        pods = self._kubes[cluster].list(collection("v1", "Pod", NAMESPACE))
        return {pod["status"]["podIP"] for pod in pods if _ready(pod)}

    def start_model(self, cluster: str) -> None:
        """A replica of a workload cluster: pods, a Service, and its route at the
        cluster's gateway.
        """
        kube, name = self._kubes[cluster], f"qwen-{cluster}"
        container = {
            "name": "engine",
            "image": "engine:1",
            "args": ["--model=Qwen/Qwen3-8B"],
            "ports": [{"containerPort": 8000}],
        }
        for number in range(2):
            metadata = {
                "name": f"{name}-{number}",
                "namespace": NAMESPACE,
                "labels": {"app": name},
            }
            spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
            kube.apply(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            )
        kube.apply(service(name, selector={"app": name}))
        kube.apply(
            route(
                name,
                "inference-gateway",
                f"/{NAMESPACE}/{name}/",
                backend(name),
                filters=(rewrite("/"),),
            )
        )

    def publish(self, name: str, *backends: Document) -> str:
        """Apply a service of the control cluster's gateway, and return its address."""
        self.control.apply(
            route(f"ms-{name}", "modelplane", f"/{NAMESPACE}/{name}/", *backends)
        )
        return f"{self.url}/{NAMESPACE}/{name}"


def _ready(pod: Document) -> bool:
    return any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in pod.get("status", {}).get("conditions", ())
    )


@pytest.fixture(scope="module")
def fleet(wired: Testbed, eventually: Callable[..., None]) -> Iterator[Fleet]:
    running = wired.running()
    assert running
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": NAMESPACE},
    }
    with ExitStack() as stack:
        kubes = {
            each.name: stack.enter_context(_kube(each))
            for each in running.all_clusters()
        }
        for kube in kubes.values():
            kube.apply(namespace)
        fleet = Fleet(running, kubes)
        for cluster in CLUSTERS:
            fleet.start_model(cluster)
            fleet.control.apply(service(f"me-{cluster}", protocol="http"))
            fleet.control.apply(endpoints(f"me-{cluster}", fleet.gateways[cluster]))
        eventually(
            lambda: [len(fleet.pods(cluster)) for cluster in CLUSTERS], equals=[2, 2]
        )
        yield fleet
        for kube in kubes.values():
            kube.delete(path_of(namespace))


def _kube(cluster: ClusterRunning) -> Kube:
    return Kube(cluster.server, Authority(cluster.kubeconfig.parent / "pki"))


def to(cluster: str, weight: int = 1) -> Document:
    """Return a backend of the control cluster's gateway: the replica of a workload
    cluster.
    """
    return backend(
        f"me-{cluster}", rewrite(f"/{NAMESPACE}/qwen-{cluster}/"), weight=weight
    )


def answers(url: str, count: int = 8) -> list[Document]:
    """Return the requests in the engines' answers. A refusal is its status."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        said = [client.get(url) for _ in range(count)]
    return [
        each.json() if each.is_success else {"status": each.status_code}
        for each in said
    ]


def status(url: str) -> int:
    return httpx.get(url, trust_env=False, timeout=60).status_code


def reaches(url: str, pods: set[str]) -> bool:
    return {each.get("pod") for each in answers(url)} == pods


def test_each_backend_has_its_own_prefix_and_the_rest_of_the_path_arrives(
    fleet: Fleet, eventually: Callable[..., None]
) -> None:
    url = fleet.publish("qwen", to("eu"), to("us"))
    everywhere = fleet.pods("eu") | fleet.pods("us")
    assert len(everywhere) == 4
    eventually(lambda: reaches(f"{url}/v1/echo", everywhere))
    said = answers(f"{url}/v1/echo?limit=2")
    assert {(each["path"], each["query"]) for each in said} == {("/v1/echo", "limit=2")}
    assert {each["pod"] for each in said} == everywhere
    answer = httpx.get(f"{url}/v1/models", trust_env=False, timeout=60)
    assert answer.headers["x-pod-ip"] in everywhere
    assert [model["id"] for model in answer.json()["data"]] == ["Qwen/Qwen3-8B"]


def test_two_routes_to_one_backend_keep_their_own_prefixes(
    fleet: Fleet, eventually: Callable[..., None]
) -> None:
    good = fleet.publish("shared-a", to("us"))
    other = fleet.publish("shared-b", backend("me-us", rewrite("/elsewhere/")))
    eventually(lambda: reaches(f"{good}/v1/echo", fleet.pods("us")))
    assert status(f"{other}/v1/echo") == 404
    assert reaches(f"{good}/v1/echo", fleet.pods("us"))


def test_where_no_route_matches_it_is_404(
    fleet: Fleet, eventually: Callable[..., None]
) -> None:
    url = fleet.publish("routed", to("us"))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("us")))
    assert status(f"{fleet.url}/{NAMESPACE}/unrouted/v1/models") == 404
    # A prefix ends at the end of a path segment.
    assert status(f"{url}-2/v1/models") == 404
    fleet.control.delete(path_of(route("ms-routed", "modelplane", "/")))
    eventually(lambda: status(f"{url}/v1/models"), equals=404)


@pytest.mark.parametrize(
    ("name", "backends", "filters", "want"),
    [
        # The Gateway API requires this. A filter that answers nothing by itself makes
        # Traefik balance over no backend, which is a 503.
        ("nothing", (), (), 500),
        ("nothing-yet", (), (RETRY_LATER,), 503),
        ("none-ready", (backend("me-unready"),), (), 503),
        ("all-zero", (to("eu", weight=0),), (), 503),
        ("no-service", (backend("me-missing"),), (), 500),
        ("no-slice", (backend("me-sliceless"),), (), 500),
        ("no-listener", (backend("me-dead"),), (), 502),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_route_without_a_backend_answers_with_an_error(
    name: str,
    backends: tuple[Document, ...],
    filters: tuple[Document, ...],
    want: int,
    *,
    fleet: Fleet,
    eventually: Callable[..., None],
) -> None:
    for each in ("me-unready", "me-sliceless", "me-dead"):
        fleet.control.apply(service(each))
    unready = endpoints("me-unready", fleet.gateways["eu"])
    unready["endpoints"][0]["conditions"]["ready"] = False
    fleet.control.apply(unready)
    fleet.control.apply(endpoints("me-dead", "10.245.200.1"))
    fleet.control.apply(
        route(
            f"ms-{name}",
            "modelplane",
            f"/{NAMESPACE}/{name}/",
            *backends,
            filters=filters,
        )
    )
    url = f"{fleet.url}/{NAMESPACE}/{name}/v1/models"
    eventually(lambda: status(url), equals=want)
    assert httpx.get(url, trust_env=False, timeout=60).headers.get("retry-after") == (
        "5" if filters else None
    )


def test_a_backend_without_a_ready_endpoint_keeps_its_share(
    fleet: Fleet, eventually: Callable[..., None]
) -> None:
    """So the endpoint has to leave the route before it ends."""
    slice_ = endpoints("me-half", fleet.gateways["eu"])
    fleet.control.apply(service("me-half"))
    fleet.control.apply(slice_)
    half = backend("me-half", rewrite(f"/{NAMESPACE}/qwen-eu/"))
    url = f"{fleet.publish('half', half, to('us'))}/v1/echo"
    eventually(lambda: reaches(url, fleet.pods("eu") | fleet.pods("us")))
    slice_["endpoints"][0]["conditions"]["ready"] = False
    fleet.control.apply(slice_)
    eventually(
        lambda: Counter(each.get("status", 200) for each in answers(url)),
        equals={200: 4, 503: 4},
    )
    fleet.publish("half", to("us"))
    eventually(lambda: reaches(url, fleet.pods("us")))


def test_an_endpoint_may_be_a_host_name(
    fleet: Fleet, eventually: Callable[..., None]
) -> None:
    host = gateway_host("us")
    fleet.control.apply(service("me-named", protocol="http"))
    fleet.control.apply(endpoints("me-named", host, kind="FQDN"))
    url = fleet.publish(
        "named", backend("me-named", rewrite(f"/{NAMESPACE}/qwen-us/", host))
    )
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("us")))
    assert {each["host"] for each in answers(f"{url}/v1/echo")} == {host}


@pytest.mark.parametrize(
    ("protocol", "port", "backend_port"), [("https", 80, 443), ("http", 443, 80)]
)
def test_the_app_protocol_of_a_backend_is_used(
    protocol: str,
    port: int,
    backend_port: int,
    fleet: Fleet,
    eventually: Callable[..., None],
) -> None:
    """The Service's port alone would mean the other protocol."""
    name = f"me-provider-{protocol}"
    fleet.control.apply(service(name, port, protocol=protocol))
    fleet.control.apply(endpoints(name, PROVIDER, backend_port, kind="FQDN"))
    url = fleet.publish(
        f"provided-{protocol}", backend(name, rewrite("/", PROVIDER), port=port)
    )
    arrived = {
        "pod": PROVIDER_ADDRESS,
        "path": "/v1/echo",
        "query": "",
        "host": PROVIDER,
        "scheme": protocol,
    }
    eventually(lambda: answers(f"{url}/v1/echo", 1), equals=[arrived])
