"""A request to a model goes through two gateways: the control cluster's takes a replica, the workload cluster's one of its pods.

The objects are those of spec/stack-and-routing.md 5.2 and 6.4, written by hand.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from testbed.cluster.kube import Kube, collection, path_of
from testbed.cluster.pki import Authority
from testbed.dataplane.names import PROVIDER, PROVIDER_ADDRESS, gateway_host
from testbed.fleet.fleet_file import FleetFile
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.environment.waiting import machine_seconds
from tests.testbed.conftest import control_of

pytestmark = pytest.mark.testbed("shared")

FLEET = """
classes:
  two:
    devices: [{name: gpu, driver: gpu.example.com, deviceClassName: gpu.example.com, count: 2}]
clusters:
  - {name: eu, pools: [{name: gpus, class: two, nodes: 1}]}
  - {name: us, pools: [{name: gpus, class: two, nodes: 1}]}
"""
CLUSTERS = ("eu", "us")
NAMESPACE = "ml-team"
REQUESTS, AT_ONCE = 1_000, 16
# How long something is awaited that takes a fraction of a second, so that a failure does not take minutes.
LOOK_SECONDS = 30.0
# Of each change, and of all five but the slowest: with Traefik's default, every second one takes two seconds.
LIVE_SECONDS_MAX, MOST_LIVE_SECONDS_MAX = 2.0, 1.0

Document = dict[str, Any]


def service(name: str, port: int = 80, *, selector: Mapping[str, str] | None = None, protocol: str | None = None) -> Document:
    """A Service without a name for its port."""
    ports = [{"port": port, "protocol": "TCP", "targetPort": 8000 if selector else port, **({"appProtocol": protocol} if protocol else {})}]
    spec = {"ports": ports, **({"selector": dict(selector)} if selector else {})}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def endpoints(name: str, address: str, port: int = 80, kind: str = "IPv4") -> Document:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"kubernetes.io/service-name": name}},
        "addressType": kind,
        "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }


def rewrite(prefix: str, host: str | None = None) -> Document:
    path = {"type": "ReplacePrefixMatch", "replacePrefixMatch": prefix}
    return {"type": "URLRewrite", "urlRewrite": {"path": path, **({"hostname": host} if host else {})}}


def backend(name: str, *filters: Document, weight: int = 1, port: int = 80) -> Document:
    return {"name": name, "port": port, "weight": weight, **({"filters": list(filters)} if filters else {})}


def route(name: str, gateway: str, prefix: str, *backends: Document, filters: tuple[Document, ...] = ()) -> Document:
    rule = {"matches": [{"path": {"type": "PathPrefix", "value": prefix}}], "backendRefs": list(backends), "filters": list(filters)}
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
        self.gateways = {name: running.clusters[name].gateway_address for name in CLUSTERS}
        self._kubes = kubes

    def pods(self, cluster: str) -> set[str]:
        pods = self._kubes[cluster].list(collection("v1", "Pod", NAMESPACE))
        return {pod["status"]["podIP"] for pod in pods if _ready(pod)}

    def start_model(self, cluster: str) -> None:
        """A replica of a workload cluster: pods, a Service, and its route at the cluster's gateway."""
        kube, name = self._kubes[cluster], f"qwen-{cluster}"
        container = {"name": "engine", "image": "engine:1", "args": ["--model=Qwen/Qwen3-8B"], "ports": [{"containerPort": 8000}]}
        for number in range(2):
            metadata = {"name": f"{name}-{number}", "namespace": NAMESPACE, "labels": {"app": name}}
            spec = {"containers": [container], "tolerations": [{"operator": "Exists"}]}
            kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
        kube.apply(service(name, selector={"app": name}))
        kube.apply(route(name, "inference-gateway", f"/{NAMESPACE}/{name}/", backend(name), filters=(rewrite("/"),)))

    def publish(self, name: str, *backends: Document) -> str:
        """A service of the control cluster's gateway; answers its address."""
        self.control.apply(route(f"ms-{name}", "modelplane", f"/{NAMESPACE}/{name}/", *backends))
        return f"{self.url}/{NAMESPACE}/{name}"


def _ready(pod: Document) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in pod.get("status", {}).get("conditions", ()))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory, eventually: Callable[..., None]) -> Iterator[Fleet]:
    folder = tmp_path_factory.mktemp("two")
    (folder / "fleet.yaml").write_text(FLEET)
    testbed = Testbed(folder / "home", FleetFile.load(folder / "fleet.yaml"))
    try:
        running = testbed.up(temporal=False, data_plane=True)
        with ExitStack() as stack:
            kubes = {each.name: stack.enter_context(_kube(each)) for each in running.all_clusters()}
            for kube in kubes.values():
                kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
            fleet = Fleet(running, kubes)
            for cluster in CLUSTERS:
                fleet.start_model(cluster)
                fleet.control.apply(service(f"me-{cluster}", protocol="http"))
                fleet.control.apply(endpoints(f"me-{cluster}", fleet.gateways[cluster]))
            eventually(lambda: [len(fleet.pods(cluster)) for cluster in CLUSTERS], equals=[2, 2])
            yield fleet
    finally:
        testbed.down()


def _kube(cluster: ClusterRunning) -> Kube:
    return Kube(cluster.server, Authority(cluster.kubeconfig.parent / "pki"))


def to(cluster: str, weight: int = 1) -> Document:
    """A backend of the control cluster's gateway: the replica of a workload cluster."""
    return backend(f"me-{cluster}", rewrite(f"/{NAMESPACE}/qwen-{cluster}/"), weight=weight)


def answers(url: str, count: int = 8) -> list[Document]:
    """What engines say that arrived; a refusal is its status alone."""
    with httpx.Client(trust_env=False, timeout=60) as client:
        said = [client.get(url) for _ in range(count)]
    return [each.json() if each.is_success else {"status": each.status_code} for each in said]


def status(url: str) -> int:
    return httpx.get(url, trust_env=False, timeout=60).status_code


def reaches(url: str, pods: set[str]) -> bool:
    return {each.get("pod") for each in answers(url)} == pods


def test_each_backend_has_its_own_prefix_and_the_rest_of_the_path_arrives(fleet: Fleet, eventually: Callable[..., None]) -> None:
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


NOTHING = "Not Found: GET "
# What a client asks for below the address of a service, and the path that the engine gets (7.1).
PATHS = [
    ("/v1/echo", "/v1/echo"),
    ("/v1/messages", "/v1/messages"),
    ("/metrics", "/metrics"),
    ("/v1/kept/", "/v1/kept/"),
    ("/", "/"),
    # The table has a 404 here; this Traefik takes the prefix away without its slash too.
    ("", "/"),
]


@pytest.mark.parametrize(("path", "arrives"), PATHS, ids=[f"stk-89 {path or 'no path'}" for path, _ in PATHS])
def test_the_path_that_arrives_is_that_of_the_table(path: str, arrives: str, fleet: Fleet, eventually: Callable[..., None]) -> None:
    url = fleet.publish("paths", to("eu"))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("eu")))
    assert arrived(f"{url}{path}") == arrives


# The prefix of a provider, and the path that it gets; none is given: what the client asks for arrives as it is.
PREFIXES = [
    ("/", "/v1/what"),
    ("/openai/", "/openai/v1/what"),
    ("/openai/v1/", "/openai/v1/v1/what"),
    ("", f"/{NAMESPACE}/prefixes/v1/what"),
]


@pytest.mark.parametrize(("prefix", "arrives"), PREFIXES, ids=[f"stk-89 {prefix or 'no prefix'}" for prefix, _ in PREFIXES])
def test_a_provider_gets_its_prefix_before_the_path(prefix: str, arrives: str, fleet: Fleet, eventually: Callable[..., None]) -> None:
    fleet.control.apply(service("me-prefixed", protocol="http"))
    fleet.control.apply(endpoints("me-prefixed", PROVIDER, kind="FQDN"))
    url = fleet.publish("prefixes", backend("me-prefixed", *([rewrite(prefix, PROVIDER)] if prefix else [])))
    eventually(lambda: arrived(f"{url}/v1/what"), equals=arrives)


def arrived(url: str) -> str:
    """The path that an engine got; none has such a path but `/v1/echo`. Of a refusal by a gateway, its status."""
    answer = httpx.get(url, trust_env=False, timeout=60)
    if answer.is_success:
        return str(answer.json()["path"])
    message = answer.json()["error"]["message"] if "x-pod-ip" in answer.headers else f"{answer.status_code}"
    return str(message).removeprefix(NOTHING).partition(" at pod ")[0]


def test_requests_are_shared_by_weight(fleet: Fleet, eventually: Callable[..., None]) -> None:
    url = fleet.publish("weighed", to("eu", weight=70), to("us", weight=30))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("eu") | fleet.pods("us")))
    counted = asyncio.run(_pods_asked(f"{url}/v1/models", REQUESTS))
    share = sum(counted[pod] for pod in fleet.pods("eu")) / REQUESTS
    assert share == pytest.approx(0.7, abs=0.02)
    # A cluster's gateway takes its pods in turn.
    assert [counted[pod] / REQUESTS for pod in fleet.pods("us")] == pytest.approx([0.15, 0.15], abs=0.02)


async def _pods_asked(url: str, count: int) -> Counter[str]:
    """Which pod answered how many requests. Raises HTTPStatusError for the first that is refused."""
    pods: Counter[str] = Counter()
    left = iter(range(count))

    async def ask(client: httpx.AsyncClient) -> None:
        for _ in left:
            answer = (await client.get(url)).raise_for_status()
            pods[answer.headers["x-pod-ip"]] += 1

    async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
        await asyncio.gather(*(ask(client) for _ in range(AT_ONCE)))
    return pods


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_a_stream_arrives_word_by_word(path: str, fleet: Fleet, eventually: Callable[..., None]) -> None:
    url = fleet.publish("streamed", to("eu"))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("eu")))
    ask = {"model": "qwen", "prompt": "Hello", "stream": True, "max_tokens": 12, "seconds_per_token": 0.1}
    lines, seconds = [], []
    with httpx.stream("POST", f"{url}{path}", json=ask, trust_env=False, timeout=60) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in filter(None, answer.iter_lines()):
            lines.append(line.removeprefix("data: "))
            seconds.append(time.monotonic())
    assert lines.pop() == "[DONE]"
    chunks = [json.loads(line) for line in lines]
    words = [(chunk["choices"][0].get("delta", {}).get("content") or chunk["choices"][0].get("text")) for chunk in chunks]
    pod = answer.headers["x-pod-ip"]
    assert "".join(words).split() == (f"pod {pod} was asked at {path} " * 2).split()
    assert {chunk["model"] for chunk in chunks} == {"qwen"}
    # Eleven tokens follow the first one; one answer that was held back would come at once.
    assert seconds[-1] - seconds[0] > 0.5


def test_two_routes_to_one_backend_keep_their_own_prefixes(fleet: Fleet, eventually: Callable[..., None]) -> None:
    good = fleet.publish("shared-a", to("us"))
    other = fleet.publish("shared-b", backend("me-us", rewrite("/elsewhere/")))
    eventually(lambda: reaches(f"{good}/v1/echo", fleet.pods("us")))
    assert status(f"{other}/v1/echo") == 404
    assert reaches(f"{good}/v1/echo", fleet.pods("us"))


def test_stk_89_where_no_route_matches_it_is_404(fleet: Fleet, eventually: Callable[..., None]) -> None:
    url = fleet.publish("routed", to("us"))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("us")))
    assert status(f"{fleet.url}/{NAMESPACE}/unrouted/v1/models") == 404
    # A prefix ends where a part of the path ends.
    assert status(f"{url}-2/v1/models") == 404
    fleet.control.delete(path_of(route("ms-routed", "modelplane", "/")))
    eventually(lambda: status(f"{url}/v1/models"), equals=404, within=LOOK_SECONDS)


RETRY_LATER = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": [{"name": "retry-after", "value": "5"}]}}


@pytest.mark.parametrize(
    ("name", "backends", "filters", "want"),
    [
        # As the Gateway API asks for. A filter that answers nothing by itself makes Traefik balance over no backend, which is a 503.
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
def test_what_a_route_answers_that_leads_nowhere(
    name: str, backends: tuple[Document, ...], filters: tuple[Document, ...], want: int, *, fleet: Fleet, eventually: Callable[..., None]
) -> None:
    for each in ("me-unready", "me-sliceless", "me-dead"):
        fleet.control.apply(service(each))
    unready = endpoints("me-unready", fleet.gateways["eu"])
    unready["endpoints"][0]["conditions"]["ready"] = False
    fleet.control.apply(unready)
    fleet.control.apply(endpoints("me-dead", "10.245.200.1"))
    fleet.control.apply(route(f"ms-{name}", "modelplane", f"/{NAMESPACE}/{name}/", *backends, filters=filters))
    url = f"{fleet.url}/{NAMESPACE}/{name}/v1/models"
    eventually(lambda: status(url), equals=want, within=LOOK_SECONDS)
    assert httpx.get(url, trust_env=False, timeout=60).headers.get("retry-after") == ("5" if filters else None)


def test_a_backend_without_a_ready_endpoint_keeps_its_share(fleet: Fleet, eventually: Callable[..., None]) -> None:
    """So it has to leave the route before its endpoint goes."""
    slice_ = endpoints("me-half", fleet.gateways["eu"])
    fleet.control.apply(service("me-half"))
    fleet.control.apply(slice_)
    url = f"{fleet.publish('half', backend('me-half', rewrite(f'/{NAMESPACE}/qwen-eu/')), to('us'))}/v1/echo"
    eventually(lambda: reaches(url, fleet.pods("eu") | fleet.pods("us")))
    slice_["endpoints"][0]["conditions"]["ready"] = False
    fleet.control.apply(slice_)
    eventually(lambda: Counter(each.get("status", 200) for each in answers(url)), equals={200: 4, 503: 4}, within=LOOK_SECONDS)
    fleet.publish("half", to("us"))
    eventually(lambda: reaches(url, fleet.pods("us")), within=LOOK_SECONDS)


def test_an_endpoint_may_be_a_host_name(fleet: Fleet, eventually: Callable[..., None]) -> None:
    host = gateway_host("us")
    fleet.control.apply(service("me-named", protocol="http"))
    fleet.control.apply(endpoints("me-named", host, kind="FQDN"))
    url = fleet.publish("named", backend("me-named", rewrite(f"/{NAMESPACE}/qwen-us/", host)))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("us")))
    assert {each["host"] for each in answers(f"{url}/v1/echo")} == {host}


@pytest.mark.parametrize(("protocol", "port", "backend_port"), [("https", 80, 443), ("http", 443, 80)])
def test_a_backend_is_called_as_its_app_protocol_says(
    protocol: str, port: int, backend_port: int, fleet: Fleet, eventually: Callable[..., None]
) -> None:
    """The Service's port alone would mean the other protocol."""
    name = f"me-provider-{protocol}"
    fleet.control.apply(service(name, port, protocol=protocol))
    fleet.control.apply(endpoints(name, PROVIDER, backend_port, kind="FQDN"))
    url = fleet.publish(f"provided-{protocol}", backend(name, rewrite("/", PROVIDER), port=port))
    arrived = {"pod": PROVIDER_ADDRESS, "path": "/v1/echo", "query": "", "host": PROVIDER, "scheme": protocol}
    eventually(lambda: answers(f"{url}/v1/echo", 1), equals=[arrived])


def test_a_changed_route_is_live_at_once(fleet: Fleet, eventually: Callable[..., None]) -> None:
    url = fleet.publish("moving", to("eu"))
    eventually(lambda: reaches(f"{url}/v1/echo", fleet.pods("eu")))
    pods = {cluster: fleet.pods(cluster) for cluster in CLUSTERS}
    took = []
    with httpx.Client(trust_env=False, timeout=60) as client:
        for number in range(1, 6):
            cluster = CLUSTERS[number % 2]
            fleet.publish("moving", to(cluster))
            began = machine_seconds()
            eventually(lambda cluster=cluster: client.get(f"{url}/v1/models").headers.get("x-pod-ip") in pods[cluster])
            took.append(machine_seconds() - began)
    *most, slowest = sorted(took)
    assert (slowest < LIVE_SECONDS_MAX, max(most) < MOST_LIVE_SECONDS_MAX) == (True, True), took
