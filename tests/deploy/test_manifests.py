"""The worker's manifests: valid on a real API server, and consistent with the worker."""

import ipaddress
import json
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from api_types.environment import CONFIG_VARIABLE
from api_types.settings import Settings
from testbed.running import ClusterRunning, Running

FOLDER = Path(__file__).parents[2] / "deploy" / "kubernetes"
DOCUMENTS = [
    document
    for file in sorted(FOLDER.glob("*.yaml"))
    for document in yaml.safe_load_all(file.read_text())
]

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "Pod": "/api/v1/namespaces/{namespace}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
}


def title(document: dict[str, Any]) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def the(kind: str) -> dict[str, Any]:
    """Return the only document of a kind."""
    (found,) = [document for document in DOCUMENTS if document["kind"] == kind]
    result: dict[str, Any] = found
    return result


def container() -> dict[str, Any]:
    """Return the worker's container."""
    (found,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = found
    return result


@pytest.mark.testbed("shared")
@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_a_real_api_server_accepts_every_manifest_strictly(
    document: dict[str, Any],
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    cluster = testbed.clusters["prod-eu"]
    status, answer = apply(kube(cluster), cluster.server, document)
    assert status in (HTTPStatus.OK, HTTPStatus.CREATED), answer


@pytest.mark.testbed("shared")
def test_the_api_server_rejects_a_misspelt_field(
    testbed: Running, kube: Callable[[ClusterRunning], ApiClient]
) -> None:
    broken = json.loads(json.dumps(the("Deployment")))
    broken["spec"]["template"]["spec"]["serviceAcountName"] = "x"
    cluster = testbed.clusters["prod-eu"]
    status, answer = apply(kube(cluster), cluster.server, broken)
    assert status in {HTTPStatus.INTERNAL_SERVER_ERROR, HTTPStatus.BAD_REQUEST}, answer
    assert "serviceAcountName" in answer


def apply(api: ApiClient, server: str, document: dict[str, Any]) -> tuple[int, str]:
    """Server-side apply as a dry run with strict field validation."""
    metadata = document["metadata"]
    path = PATHS[document["kind"]].format(namespace=metadata.get("namespace", ""))
    query = "dryRun=All&fieldValidation=Strict&fieldManager=test&force=true"
    response = api.call_api(
        "PATCH",
        f"{server}{path}/{metadata['name']}?{query}",
        header_params={
            "Content-Type": "application/apply-patch+yaml",
            "Accept": "application/json",
        },
        body=document,
    )
    return response.status, response.read().decode()


def test_the_config_map_has_valid_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(the("ConfigMap")["data"]["config.yaml"])
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    for entry in container()["env"]:
        monkeypatch.setenv(
            entry["name"],
            entry.get("value", "pod-name")
            if entry["name"] != CONFIG_VARIABLE
            else str(file),
        )
    settings = Settings()
    assert settings.secrets.store == "controlCluster"
    assert settings.worker.identity == "pod-name"
    assert settings.worker.deployment_name == "modelplane"
    assert (
        int(settings.worker.listen.rpartition(":")[2])
        == container()["ports"][0]["containerPort"]
    )


def test_the_settings_are_mounted_at_the_configured_path() -> None:
    (named,) = [
        entry["value"]
        for entry in container()["env"]
        if entry["name"] == CONFIG_VARIABLE
    ]
    (mount,) = [
        mount for mount in container()["volumeMounts"] if mount["name"] == "settings"
    ]
    (volume,) = [
        volume
        for volume in the("Deployment")["spec"]["template"]["spec"]["volumes"]
        if volume["name"] == "settings"
    ]
    assert volume["configMap"]["name"] == the("ConfigMap")["metadata"]["name"]
    assert named == f"{mount['mountPath']}/{next(iter(the('ConfigMap')['data']))}"


def test_the_pods_grace_period_exceeds_the_workers() -> None:
    assert (
        the("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        > Settings().worker.graceful_shutdown_seconds
    )


def test_services_add_no_variables_that_look_like_settings() -> None:
    assert the("Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_probes_use_the_health_page_on_the_metrics_port() -> None:
    probes = {
        name: container()[name]["httpGet"]
        for name in ("startupProbe", "readinessProbe", "livenessProbe")
    }
    health, readiness = (
        {"path": path, "port": "metrics"} for path in ("/healthz", "/readyz")
    )
    assert probes == {
        "startupProbe": health,
        "readinessProbe": readiness,
        "livenessProbe": health,
    }


def test_no_pod_of_the_current_build_ends_before_another_build_is_promoted() -> None:
    strategy = the("Deployment")["spec"]["strategy"]
    assert strategy == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0},
    }


def test_the_worker_runs_without_any_privilege() -> None:
    context, pod = (
        container()["securityContext"],
        the("Deployment")["spec"]["template"]["spec"]["securityContext"],
    )
    assert pod["runAsNonRoot"] is True
    assert context == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.testbed("shared")
@pytest.mark.parametrize(
    ("spoilt", "accepted"),
    [({}, True), ({"hostPID": True}, False)],
    ids=["the worker", "one that is privileged"],
)
def test_the_namespace_enforces_pod_security_and_accepts_the_worker(
    spoilt: dict[str, Any],
    *,
    accepted: bool,
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
) -> None:
    cluster = testbed.clusters["prod-eu"]
    with a_namespace(
        kube(cluster), cluster.server, the("Namespace")["metadata"]["labels"]
    ) as namespace:
        template = the("Deployment")["spec"]["template"]
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                **template["metadata"],
                "name": "worker",
                "namespace": namespace,
            },
            # Admission requires the named ServiceAccount, which is in another
            # namespace.
            "spec": {
                **template["spec"],
                "serviceAccountName": "default",
                "automountServiceAccountToken": False,
                **spoilt,
            },
        }
        status, answer = apply(kube(cluster), cluster.server, pod)
    assert (status == HTTPStatus.CREATED) == accepted, answer
    assert accepted or "violates PodSecurity" in answer


@contextmanager
def a_namespace(api: ApiClient, server: str, labels: dict[str, str]) -> Iterator[str]:
    """Create a namespace with labels for the block."""
    name = f"deploy-{secrets.token_hex(4)}"
    headers = {"Content-Type": "application/json", "Accept": "application/json"}
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }
    api.call_api(
        "POST", f"{server}/api/v1/namespaces", header_params=headers, body=document
    ).read()
    try:
        yield name
    finally:
        api.call_api(
            "DELETE", f"{server}/api/v1/namespaces/{name}", header_params=headers
        ).read()


def test_temporary_files_of_the_worker_stay_in_memory() -> None:
    volumes = {
        volume["name"]: volume
        for volume in the("Deployment")["spec"]["template"]["spec"]["volumes"]
    }
    writable = [
        mount for mount in container()["volumeMounts"] if not mount.get("readOnly")
    ]
    assert [mount["mountPath"] for mount in writable] == ["/tmp"]  # noqa: S108 -- of the pod
    assert volumes[writable[0]["name"]]["emptyDir"]["medium"] == "Memory"
    assert volumes[writable[0]["name"]]["emptyDir"]["sizeLimit"]


# Network


def egress(port: int) -> list[dict[str, Any]]:
    """Return the allowed destinations of a worker on a port."""
    return [
        peer
        for rule in the("NetworkPolicy")["spec"]["egress"]
        for peer in rule["to"]
        if port in [one["port"] for one in rule["ports"]]
    ]


def reaches(address: str, port: int) -> bool:
    """Return whether an address block allows the worker's connections."""
    ip = ipaddress.ip_address(address)
    blocks = [peer["ipBlock"] for peer in egress(port) if "ipBlock" in peer]
    return any(
        ip in ipaddress.ip_network(block["cidr"])
        and not any(ip in ipaddress.ip_network(one) for one in block.get("except", []))
        for block in blocks
    )


def test_only_prometheus_may_connect_to_a_worker() -> None:
    (rule,) = the("NetworkPolicy")["spec"]["ingress"]
    assert rule["ports"] == [{"port": "metrics"}]
    assert rule["from"]
    assert all(
        peer["podSelector"]["matchLabels"] and peer["namespaceSelector"]["matchLabels"]
        for peer in rule["from"]
    )


def test_a_worker_may_connect_to_the_temporal_of_its_settings() -> None:
    host, _, port = Settings(
        **yaml.safe_load(the("ConfigMap")["data"]["config.yaml"])
    ).temporal.address.rpartition(":")
    (peer,) = egress(int(port))
    assert peer["namespaceSelector"]["matchLabels"] == {
        "kubernetes.io/metadata.name": host.split(".")[1]
    }


@pytest.mark.parametrize("address", ["203.0.113.7", "10.1.2.3", "2001:db8::7"])
def test_a_worker_may_connect_to_api_servers_and_registries(address: str) -> None:
    assert reaches(address, 443)
    assert reaches(address, 6443)
    assert not reaches(address, 80)


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "fe80::a9fe:a9fe",
        "fd00:ec2::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
    ],
)
def test_a_worker_may_not_connect_to_the_metadata_service_of_a_cloud(
    address: str,
) -> None:
    assert [port for port in (53, 80, 443, 6443, 7233) if reaches(address, port)] == []


def test_every_rule_of_the_policy_has_destinations_and_ports() -> None:
    policy = the("NetworkPolicy")["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert all(rule["to"] and rule["ports"] for rule in policy["egress"])


def test_selectors_of_deployment_budget_and_policy_match_the_pods() -> None:
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        the("Deployment")["spec"]["selector"],
        the("PodDisruptionBudget")["spec"]["selector"],
        the("NetworkPolicy")["spec"]["podSelector"],
    ):
        assert selector["matchLabels"].items() <= labels.items()
