"""The plain manifests run the worker: a real API server takes them strictly, and they fit what the worker reads."""

import json
from collections.abc import Callable
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
DOCUMENTS = [document for file in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(file.read_text())]

PATHS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
    "ConfigMap": "/api/v1/namespaces/{namespace}/configmaps",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{namespace}/networkpolicies",
}


def title(document: dict[str, Any]) -> str:
    return f"{document['kind']}/{document['metadata']['name']}"


def the(kind: str) -> dict[str, Any]:
    """The one document of a kind."""
    (found,) = [document for document in DOCUMENTS if document["kind"] == kind]
    result: dict[str, Any] = found
    return result


def container() -> dict[str, Any]:
    """The worker's container."""
    (found,) = the("Deployment")["spec"]["template"]["spec"]["containers"]
    result: dict[str, Any] = found
    return result


@pytest.mark.testbed
@pytest.mark.parametrize("document", DOCUMENTS, ids=title)
def test_a_real_api_server_takes_every_manifest_strictly(
    document: dict[str, Any], testbed: Running, kube: Callable[[ClusterRunning], ApiClient]
) -> None:
    cluster = testbed.clusters["prod-eu"]
    status, answer = apply(kube(cluster), cluster.server, document)
    assert status in (HTTPStatus.OK, HTTPStatus.CREATED), answer


@pytest.mark.testbed
def test_the_api_server_refuses_a_field_that_is_spelt_wrong(testbed: Running, kube: Callable[[ClusterRunning], ApiClient]) -> None:
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
        header_params={"Content-Type": "application/apply-patch+yaml", "Accept": "application/json"},
        body=document,
    )
    return response.status, response.read().decode()


def test_the_settings_in_the_config_map_are_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(the("ConfigMap")["data"]["config.yaml"])
    monkeypatch.setenv(CONFIG_VARIABLE, str(file))
    for entry in container()["env"]:
        monkeypatch.setenv(entry["name"], entry.get("value", "pod-name") if entry["name"] != CONFIG_VARIABLE else str(file))
    settings = Settings()
    assert settings.secrets.store == "controlCluster"
    assert settings.worker.identity == "pod-name"
    assert int(settings.worker.listen.rpartition(":")[2]) == container()["ports"][0]["containerPort"]


def test_the_settings_are_mounted_where_the_worker_is_reported_to_look() -> None:
    (named,) = [entry["value"] for entry in container()["env"] if entry["name"] == CONFIG_VARIABLE]
    (mount,) = [mount for mount in container()["volumeMounts"] if mount["name"] == "settings"]
    (volume,) = [volume for volume in the("Deployment")["spec"]["template"]["spec"]["volumes"] if volume["name"] == "settings"]
    assert volume["configMap"]["name"] == the("ConfigMap")["metadata"]["name"]
    assert named == f"{mount['mountPath']}/{next(iter(the('ConfigMap')['data']))}"


def test_the_pod_is_given_longer_to_stop_than_the_worker_takes() -> None:
    assert the("Deployment")["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] > Settings().worker.graceful_shutdown_seconds


def test_a_service_beside_the_worker_gives_it_no_variables_that_look_like_settings() -> None:
    assert the("Deployment")["spec"]["template"]["spec"]["enableServiceLinks"] is False


def test_probes_ask_the_health_page_on_the_metrics_port() -> None:
    probes = [container()[name]["httpGet"] for name in ("startupProbe", "readinessProbe", "livenessProbe")]
    assert probes == [{"path": "/healthz", "port": "metrics"}] * 3


def test_the_worker_runs_without_any_privilege() -> None:
    context, pod = container()["securityContext"], the("Deployment")["spec"]["template"]["spec"]["securityContext"]
    assert pod["runAsNonRoot"] is True
    assert context == {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}


def test_the_service_account_may_not_read_secrets_of_the_whole_cluster() -> None:
    wide = {binding["roleRef"]["name"] for binding in DOCUMENTS if binding["kind"] == "ClusterRoleBinding"}
    roles = {role["metadata"]["name"]: role["rules"] for role in DOCUMENTS if role["kind"] == "ClusterRole"}
    assert wide
    assert {resource for name in wide for rule in roles[name] for resource in rule["resources"]} == {"namespaces"}


def test_selectors_of_deployment_budget_and_policy_meet_the_pods() -> None:
    labels = the("Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        the("Deployment")["spec"]["selector"],
        the("PodDisruptionBudget")["spec"]["selector"],
        the("NetworkPolicy")["spec"]["podSelector"],
    ):
        assert selector["matchLabels"].items() <= labels.items()
