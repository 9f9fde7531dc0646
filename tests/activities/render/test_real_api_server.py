"""Every golden object on a real API server with the real LeaderWorkerSet webhooks.

The server must know every field, and no field may be missing.
"""

import base64
import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client

from activities.clients.kubernetes.discovery import AGGREGATED
from activities.render.objects.manifest import Json
from activities.render.objects.propagation import PropagatedCopy
from activities.render_settings import render_settings
from api_types.pins import apiversions
from api_types.settings import Settings
from api_types.text.quantity import parse_quantity
from testbed.cluster.webhooks import custom_resources
from testbed.programs.install import Installer
from testbed.programs.versions import ADD_ONS
from testbed.running import ClusterRunning, Running
from testbed.waiting import wait_until
from tests.activities.render.builders import a_gang, render, render_pair
from tests.activities.render.settings_cases import CASES, SCENARIOS
from tests.activities.render.topologies import TOPOLOGIES
from tests.environment.waiting import TIMEOUT_SECONDS, pauses

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
LIVE = "render-live"
RACK = "topology.acme.example/rack"
NAMESPACES = ("ml-team", LIVE)
# Fields in which an API server normalizes a quantity: `1024Mi` becomes `1Gi`.
QUANTITIES = re.compile(r"(^|\.)(limits|requests)\.[^.]+(\.[^.]+)*$|(^|\.)sizeLimit$")
GPU = [{"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}]
ADDED_KINDS = {"PodMonitor", "PodGroup", "DestinationRule"}

pytestmark = pytest.mark.testbed


def a_definition(api_version: str, kind: str, plural: str, spec: Json) -> Json:
    """Return a definition for a namespaced kind of another project.

    It stands for a definition that is not available. `spec` is the schema of its spec.
    """
    group, _, version = api_version.partition("/")
    schema = {"type": "object", "properties": {"spec": spec}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": version,
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


# The Go module of the NVIDIA DRA driver is not available from the module proxy. These
# are the fields and rules of its ComputeDomain.
COMPUTE_DOMAINS = a_definition(
    apiversions.COMPUTE_DOMAIN,
    "ComputeDomain",
    "computedomains",
    {
        "type": "object",
        "required": ["channel"],
        "x-kubernetes-validations": [
            {"rule": "self == oldSelf", "message": "A computeDomain.spec is immutable"}
        ],
        "properties": {
            "numNodes": {"type": "integer", "minimum": 0, "default": 0},
            "channel": {
                "type": "object",
                "required": ["resourceClaimTemplate"],
                "properties": {
                    "allocationMode": {
                        "type": "string",
                        "enum": ["All", "Single"],
                        "default": "Single",
                    },
                    "resourceClaimTemplate": {
                        "type": "object",
                        "required": ["name"],
                        "properties": {"name": {"type": "string"}},
                    },
                },
            },
        },
    },
)


def in_the_group_of_the_router(definition: Json) -> Json:
    """Return the llm-d-router definition of a kind: the same schema, another group.

    The Go module of the router is not available from the module proxy.
    """
    group = apiversions.LLM_D_GROUP
    name = f"{definition['spec']['names']['plural']}.{group}"
    annotations = {"api-approved.kubernetes.io": "unapproved, for tests"}
    return {
        **definition,
        "metadata": {"name": name, "annotations": annotations},
        "spec": {**definition["spec"], "group": group},
    }


class Server:
    """The few calls that the tests need, as plain requests."""

    def __init__(self, api: client.ApiClient) -> None:
        self.host = api.configuration.host
        self.pool = api.rest_client.pool_manager
        self.plurals: dict[str, dict[str, str]] = {}

    def call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> tuple[int, Any]:
        sent = json.dumps(body) if body is not None else None
        headers = {"Content-Type": content_type, "Accept": accept}
        answer = self.pool.request(
            method, f"{self.host}{path}", body=sent, headers=headers
        )
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(
            answer.data
        ) if is_json else answer.data.decode()

    def path(self, manifest: Json) -> str:
        """Return the path of an object, or "" if its kind is not served."""
        version = manifest["apiVersion"]
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if version not in self.plurals:
            status, found = self.call("GET", prefix)
            resources = found["resources"] if status == 200 else []
            self.plurals[version] = {
                resource["kind"]: resource["name"]
                for resource in resources
                if "/" not in resource["name"]
            }
        plural = self.plurals[version].get(manifest["kind"])
        if plural is None:
            return ""
        namespace = manifest["metadata"].get("namespace")
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{prefix}{where}/{plural}/{manifest['metadata']['name']}"

    def apply(self, manifest: Json, *, dry_run: bool = False) -> tuple[int, Any]:
        query = "?fieldManager=modelplane&force=true&fieldValidation=Strict"
        if dry_run:
            query += "&dryRun=All"
        return self.call(
            "PATCH",
            self.path(manifest) + query,
            manifest,
            "application/apply-patch+yaml",
        )

    def pods(self, namespace: str) -> list[Json]:
        return list(
            self.call("GET", f"/api/v1/namespaces/{namespace}/pods")[1]["items"]
        )


def differences(sent: Any, stored: Any, at: str = "") -> Iterator[str]:
    """Return the sent values that are not stored, or are stored with another value.

    Values that the server adds do not count. Lists are compared by position.
    """
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, value in sent.items():
            path = f"{at}.{key}" if at else key
            if key in stored:
                yield from differences(value, stored[key], path)
            elif value != "":  # An empty text equals an absent one.
                yield f"{path}: sent {value!r}, and is not stored"
    elif isinstance(sent, list) and isinstance(stored, list):
        if len(sent) != len(stored):
            yield f"{at}: sent {len(sent)} items, stored {len(stored)}"
        for index, (each, found) in enumerate(zip(sent, stored, strict=False)):
            yield from differences(each, found, f"{at}[{index}]")
    elif sent != stored and not (
        QUANTITIES.search(at)
        and parse_quantity(str(sent)) == parse_quantity(str(stored))
    ):
        yield f"{at}: sent {sent!r}, stored {stored!r}"


def filled(copy: PropagatedCopy) -> Json:
    """Return a copy as the activity completes it, with a meaningless value."""
    data = dict.fromkeys(
        copy.keys or (".dockerconfigjson",), base64.b64encode(b"{}").decode()
    )
    return {**copy.manifest, "data": data}


@pytest.fixture(scope="module")
def server(
    testbed: Running, kube: Callable[[ClusterRunning], client.ApiClient]
) -> Server:
    server = Server(kube(next(iter(testbed.clusters.values()))))
    for name in NAMESPACES:
        status, answer = server.call(
            "POST", "/api/v1/namespaces", {"metadata": {"name": name}}
        )
        assert status in (201, 409), answer
    return server


@pytest.fixture(scope="module")
def with_add_ons(server: Server) -> Iterator[Server]:
    """Yield the server with the definitions of add-ons that only some clusters have."""
    installer = Installer()
    definitions = [
        crd
        for each in ADD_ONS
        for crd in custom_resources(installer.definitions(each.name))
    ]
    wanted = [crd for crd in definitions if crd["spec"]["names"]["kind"] in ADDED_KINDS]
    assert {crd["spec"]["names"]["kind"] for crd in wanted} == ADDED_KINDS
    wanted += [
        in_the_group_of_the_router(crd)
        for crd in custom_resources(installer.definitions("inference-extension"))
        if crd["spec"]["names"]["kind"] == "InferenceModelRewrite"
    ]
    wanted.append(COMPUTE_DOMAINS)
    for crd in wanted:
        status, answer = server.call("POST", CRD, crd)
        assert status in (201, 409), answer
    try:
        for crd in wanted:
            until_established(server, crd["metadata"]["name"])
        server.plurals.clear()
        yield server
    finally:
        for crd in wanted:
            server.call("DELETE", f"{CRD}/{crd['metadata']['name']}")
        until_forgotten(
            server,
            {(crd["spec"]["group"], crd["spec"]["names"]["kind"]) for crd in wanted},
        )


def until_forgotten(server: Server, kinds: set[tuple[str, str]]) -> None:
    """Wait until discovery lists none of the kinds, by group.

    The next client would otherwise rely on them.
    """

    def served() -> set[tuple[str, str]]:
        groups = server.call("GET", "/apis", accept=AGGREGATED)[1]["items"]
        return {
            (group["metadata"]["name"], resource["responseKind"]["kind"])
            for group in groups
            for version in group["versions"]
            for resource in version.get("resources", ())
        }

    wait_until(
        lambda: not kinds & served(),
        TIMEOUT_SECONDS,
        lambda: f"{kinds & served()} are still served",
    )


def until_established(server: Server, name: str) -> None:
    def established() -> bool:
        conditions = (
            server.call("GET", f"{CRD}/{name}")[1].get("status", {}).get("conditions")
            or []
        )
        return any(
            each["type"] == "Established" and each["status"] == "True"
            for each in conditions
        )

    wait_until(established, TIMEOUT_SECONDS, lambda: f"{name} is not established")


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_object_of_a_topology_is_stored_unchanged(
    with_add_ons: Server, name: str
) -> None:
    rendered = TOPOLOGIES[name]()
    manifests = [filled(copy) for copy in rendered.copies] + [
        item.manifest for item in rendered.objects
    ]
    for manifest in manifests:
        assert with_add_ons.path(manifest), (
            f"{manifest['apiVersion']} {manifest['kind']} is not served"
        )
        status, answer = with_add_ons.apply(manifest, dry_run=True)
        assert status in (200, 201), answer
        assert list(differences(manifest, answer)) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_object_with_every_setting_is_stored_unchanged(
    with_add_ons: Server, name: str
) -> None:
    groups: dict[str, dict[str, Any]] = {}
    for case in CASES:
        group, _, key = case.key.partition(".")
        # Admission that these settings enable rejects the scenarios, and the namespace
        # is that of the test.
        if case.key not in ("workloads.refusedAnnotations", "workloads.namespace"):
            groups.setdefault(group, {})[key] = case.value
    for item in SCENARIOS[name](
        render_settings(Settings.model_validate(groups))
    ).objects:
        status, answer = with_add_ons.apply(item.manifest, dry_run=True)
        assert status in (200, 201), answer
        assert list(differences(item.manifest, answer)) == []


def test_a_difference_between_sent_and_stored_objects_is_found() -> None:
    sent = {
        "a": {"b": [{"c": 1}, {"c": 2}]},
        "resources": {"limits": {"memory": "1024Mi", "cpu": 2}},
        "absent": 0,
        "empty": "",
        "size": "1",
    }
    stored = {
        "a": {"b": [{"c": 1, "new": 3}, {}], "new": 4},
        "resources": {"limits": {"memory": "1Gi", "cpu": "2"}},
        "size": "1.0",
    }
    assert list(differences(sent, stored)) == [
        "a.b[1].c: sent 2, and is not stored",
        "absent: sent 0, and is not stored",
        "size: sent '1', stored '1.0'",
    ]
    assert list(differences({"a": [1]}, {"a": [1, 2]})) == ["a: sent 1 items, stored 2"]
    assert list(differences({"limits": {"cpu": "1"}}, {"limits": {"cpu": "2"}})) == [
        "limits.cpu: sent '1', stored '2'"
    ]


@pytest.mark.parametrize("kind", [*sorted(ADDED_KINDS), "ComputeDomain"])
def test_an_add_on_would_have_noticed_a_field_that_does_not_exist(
    with_add_ons: Server, kind: str
) -> None:
    rendered = (make() for make in TOPOLOGIES.values())
    manifest = next(
        item.manifest
        for each in rendered
        for item in each.objects
        if item.manifest["kind"] == kind
    )
    status, answer = with_add_ons.apply(
        {**manifest, "spec": {**manifest["spec"], "surely": "not"}}, dry_run=True
    )
    assert status in {400, 500}
    assert "surely" in answer["message"]


def test_the_server_would_have_noticed_a_field_that_does_not_exist(
    server: Server,
) -> None:
    deployment = next(
        item.manifest
        for item in TOPOLOGIES["standalone"]().objects
        if item.manifest["kind"] == "Deployment"
    )
    status, answer = server.apply(
        {**deployment, "spec": {**deployment["spec"], "replica": 1}}, dry_run=True
    )
    assert status in {400, 500}
    assert "replica" in answer["message"]


def is_ready(pod: Json) -> bool:
    return any(
        state["type"] == "Ready" and state["status"] == "True"
        for state in pod.get("status", {}).get("conditions", [])
    )


def until_ready(server: Server, wanted: int) -> dict[str, Json]:
    """Wait for this number of ready engine pods. Returns them by role and name."""
    for pause in pauses():
        pods = {pod["metadata"]["name"]: pod for pod in server.pods(LIVE)}
        ready = {name: pod for name, pod in pods.items() if is_ready(pod)}
        if len(ready) == wanted:
            return ready
        time.sleep(pause)
    raise AssertionError({name: pod.get("status") for name, pod in pods.items()})


def end_pods(server: Server) -> list[Json]:
    """Let the pods end whose deletion was requested. Returns all pods."""
    change = {"metadata": {"annotations": {"testbed.modelplane.ai/delete-after": "0s"}}}
    pods = server.pods(LIVE)
    for metadata in (
        pod["metadata"] for pod in pods if "deletionTimestamp" in pod["metadata"]
    ):
        server.call(
            "PATCH",
            f"/api/v1/namespaces/{LIVE}/pods/{metadata['name']}",
            change,
            "application/merge-patch+json",
        )
    return pods


@pytest.fixture
def live(server: Server) -> Iterator[Server]:
    """Yield the server, and empty the namespace afterwards."""
    yield server
    for group, plural in (
        ("apps", "deployments"),
        ("leaderworkerset.x-k8s.io", "leaderworkersets"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("policy", "poddisruptionbudgets"),
    ):
        server.call(
            "DELETE",
            f"/apis/{group}/v1/namespaces/{LIVE}/{plural}?propagationPolicy=Foreground",
        )
    wait_until(lambda: not end_pods(server), TIMEOUT_SECONDS, lambda: "pods do not end")


def test_a_gang_and_a_pair_become_ready_on_simulated_gpus(live: Server) -> None:
    member = {"pool": "h100", "requests": GPU}
    gang = render(
        a_gang(leader=member, worker={**member, "nodes": 2}, copies=2),
        namespace=LIVE,
        name="gang",
    )
    pair = render_pair(decode=member, prefill=member, namespace=LIVE, name="pair")
    for rendered in (gang, pair):
        for item in rendered.objects:
            if item.key.startswith(("model-serving-", "resource-claim-")):
                status, answer = live.apply(item.manifest)
                assert status in (200, 201), answer

    pods = until_ready(live, wanted=2 * 3 + 2)
    name = gang.engines[0].workload_name
    follower = pods[f"{name}-1-2"]
    # The controller's variables precede ours, which refer to them.
    assert [
        (entry["name"], entry["value"])
        for entry in follower["spec"]["containers"][0]["env"]
    ] == [
        ("LWS_LEADER_ADDRESS", f"{name}-1.{name}.{LIVE}"),
        ("LWS_GROUP_SIZE", "3"),
        ("LWS_WORKER_INDEX", "2"),
        ("MODELPLANE_LEADER_ADDRESS", "$(LWS_LEADER_ADDRESS)"),
        ("MODELPLANE_RANK", "$(LWS_WORKER_INDEX)"),
    ]
    serving = {
        pod
        for pod, manifest in pods.items()
        if manifest["metadata"]["labels"].get("modelplane.ai/serving")
        == gang.workload_name
    }
    assert serving == {f"{name}-0", f"{name}-1"}
    hashes = {
        pod: manifest["metadata"]["annotations"]["modelplane.ai/template-hash"]
        for pod, manifest in pods.items()
    }
    assert (hashes[f"{name}-0"], hashes[f"{name}-0-1"]) == gang.engines[
        0
    ].template_hashes
    decode = next(
        manifest
        for manifest in pods.values()
        if manifest["metadata"]["labels"].get("llm-d.ai/role") == "decode"
    )
    assert [entry["name"] for entry in decode["spec"]["initContainers"]] == [
        "pd-sidecar"
    ]


@pytest.fixture
def racks(live: Server) -> Iterator[Server]:
    """Yield the server with the nodes of a pool in two racks."""
    nodes = live.call("GET", "/api/v1/nodes?labelSelector=modelplane.ai/pool%3Dh100")[
        1
    ]["items"]
    names = sorted(node["metadata"]["name"] for node in nodes)
    assert len(names) == 4

    def put(rack_of: Callable[[int], str | None]) -> None:
        for index, name in enumerate(names):
            change = {"metadata": {"labels": {RACK: rack_of(index)}}}
            status, answer = live.call(
                "PATCH", f"/api/v1/nodes/{name}", change, "application/merge-patch+json"
            )
            assert status == 200, answer

    put(lambda index: "ab"[index % 2])
    yield live
    put(lambda _: None)


@pytest.mark.parametrize("exclusive", [False, True], ids=["shared", "exclusive"])
def test_the_pods_of_a_copy_are_in_one_rack(racks: Server, *, exclusive: bool) -> None:
    member = {"pool": "h100", "requests": [{**GPU[0], "count": 2}]}
    topology = {"domain": {"nodeLabel": RACK, "exclusive": exclusive}}
    gang = a_gang(
        leader=member, worker={**member, "nodes": 3}, copies=2, topology=topology
    )
    # A name of its own: a set that is still being deleted would receive the next apply,
    # and then be gone.
    for item in render(
        gang, namespace=LIVE, name="alone" if exclusive else "close"
    ).objects:
        if item.key.startswith(("model-serving-", "resource-claim-")):
            status, answer = racks.apply(item.manifest)
            assert status in (200, 201), answer

    pods = until_ready(racks, wanted=2 * 4)
    found = racks.call("GET", "/api/v1/nodes")[1]["items"]
    rack_of = {
        node["metadata"]["name"]: node["metadata"]["labels"].get(RACK) for node in found
    }
    by_copy: dict[str, set[str | None]] = {"0": set(), "1": set()}
    for manifest in pods.values():
        by_copy[
            manifest["metadata"]["labels"]["leaderworkerset.sigs.k8s.io/group-index"]
        ].add(rack_of[manifest["spec"]["nodeName"]])
    assert [len(used) for used in by_copy.values()] == [1, 1]
    assert by_copy["0"] <= {"a", "b"}
    assert not exclusive or by_copy["0"] != by_copy["1"]


def test_a_budget_counts_groups_whichever_of_their_pods_are_evicted(
    live: Server,
) -> None:
    # Pods end only when the test lets them: until then their group is lost.
    member = {
        "pool": "h100",
        "requests": GPU,
        "annotations": {"testbed.modelplane.ai/delete-after": "1h"},
    }
    engine = a_gang(leader=member, worker={**member, "nodes": 2}, copies=2)
    gang = render(
        namespace=LIVE,
        name="kept",
        spec={
            "clusterName": "eu-1",
            "engines": [engine],
            "disruption": {"minAvailable": 1},
        },
    )
    for item in gang.objects:
        if item.key.startswith(
            ("model-serving-", "resource-claim-", "disruption-budget-")
        ):
            status, answer = live.apply(item.manifest)
            assert status in (200, 201), answer
    name, before = gang.engines[0].workload_name, until_ready(live, wanted=6)

    def evict(pod: str) -> int:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": LIVE},
        }
        return live.call(
            "POST", f"/api/v1/namespaces/{LIVE}/pods/{pod}/eviction", body
        )[0]

    def restarted() -> bool:
        ready = {
            pod["metadata"]["name"]: pod
            for pod in end_pods(live)
            if is_ready(pod) and "deletionTimestamp" not in pod["metadata"]
        }
        return (
            len(ready) == 6
            and ready[f"{name}-0"]["metadata"]["uid"]
            != before[f"{name}-0"]["metadata"]["uid"]
        )

    wait_until(
        lambda: evict(f"{name}-0-1") == 201,
        TIMEOUT_SECONDS,
        lambda: "no group may be lost",
    )
    assert [evict(pod) for pod in (f"{name}-1", f"{name}-1-1", f"{name}-1-2")] == [
        429,
        429,
        429,
    ]
    wait_until(restarted, TIMEOUT_SECONDS, lambda: "the group does not start again")
    wait_until(
        lambda: evict(f"{name}-1-2") == 201,
        TIMEOUT_SECONDS,
        lambda: "the other group may not be lost after it",
    )
