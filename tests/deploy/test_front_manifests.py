"""The front's manifests: valid on a real API server, consistent with the front and
KEDA.
"""

import re
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml
from kubernetes.client import ApiClient

from api_types.environment import CONFIG_VARIABLE
from api_types.settings import Settings
from testbed.running import ClusterRunning, Running
from tests.deploy import test_manifests

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "front"
FILES = {
    file.relative_to(FOLDER).as_posix(): list(yaml.safe_load_all(file.read_text()))
    for file in sorted(FOLDER.rglob("*.yaml"))
}
FRONTS = [
    name
    for name, documents in FILES.items()
    if any(each["kind"] == "Deployment" for each in documents)
]
PATHS = {
    "Service": "/api/v1/namespaces/{namespace}/services",
    "APIService": "/apis/apiregistration.k8s.io/v1/apiservices",
}
KEDA = "keda/front.yaml"


def one(file: str, kind: str) -> dict[str, Any]:
    """Return the only document of a kind in a file."""
    (found,) = [document for document in FILES[file] if document["kind"] == kind]
    result: dict[str, Any] = found
    return result


def pod(file: str) -> dict[str, Any]:
    """Return the pod spec of a file."""
    result: dict[str, Any] = one(file, "Deployment")["spec"]["template"]["spec"]
    return result


@pytest.mark.testbed("shared")
@pytest.mark.parametrize(
    "document",
    [document for documents in FILES.values() for document in documents],
    ids=test_manifests.title,
)
def test_a_real_api_server_accepts_every_manifest_strictly(
    document: dict[str, Any],
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(test_manifests, "PATHS", test_manifests.PATHS | PATHS)
    namespace = document["metadata"].get("namespace")
    cluster = testbed.clusters["prod-eu"]
    # A dry run does not create the namespace of the manifests.
    here = {
        **document,
        "metadata": {
            **document["metadata"],
            **({"namespace": "default"} if namespace else {}),
        },
    }
    status, answer = test_manifests.apply(kube(cluster), cluster.server, here)
    assert status in (HTTPStatus.OK, HTTPStatus.CREATED), answer


@pytest.mark.parametrize("file", FRONTS)
def test_the_environment_has_valid_settings_with_mounted_files(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (container,) = pod(file)["containers"]
    config = tmp_path / "config.yaml"
    config.write_text(test_manifests.the("ConfigMap")["data"]["config.yaml"])
    for entry in container["env"]:
        monkeypatch.setenv(
            entry["name"],
            str(config) if entry["name"] == CONFIG_VARIABLE else entry["value"],
        )
    settings = Settings().front
    mounted = [mount["mountPath"] for mount in container["volumeMounts"]]
    for each in (
        settings.tls_cert,
        settings.tls_key,
        settings.access_file,
        settings.scaler_client_ca,
        settings.request_header_ca,
    ):
        assert each is None or str(each.parent) in mounted
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod(file)["volumes"]
    }
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    listens = {
        "https": settings.listen,
        **({"grpc": settings.scaler_listen} if settings.scaler_listen else {}),
    }
    assert ports == {
        name: int(address.rpartition(":")[2]) for name, address in listens.items()
    }
    assert {
        port["targetPort"] for port in one(file, "Service")["spec"]["ports"]
    } == set(ports)


@pytest.mark.parametrize("file", FRONTS)
def test_services_select_the_pods_of_their_file_and_add_no_setting_variables(
    file: str,
) -> None:
    labels = one(file, "Deployment")["spec"]["template"]["metadata"]["labels"]
    for selector in (
        one(file, "Service")["spec"]["selector"],
        one(file, "Deployment")["spec"]["selector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert pod(file)["enableServiceLinks"] is False
    others = [
        one(other, "Service")["spec"]["selector"] for other in FRONTS if other != file
    ]
    assert not any(selector.items() <= labels.items() for selector in others), (
        "numbers told of a deployment are in the memory of one"
    )


def test_the_front_for_keda_has_one_replica_because_metrics_are_in_memory() -> None:
    spec = one(KEDA, "Deployment")["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_only_keda_reaches_the_grpc_port() -> None:
    policy = one(KEDA, "NetworkPolicy")["spec"]
    assert (
        policy["podSelector"]["matchLabels"] == one(KEDA, "Service")["spec"]["selector"]
    )
    open_to = {
        port["port"]: rule.get("from")
        for rule in policy["ingress"]
        for port in rule["ports"]
    }
    assert open_to == {
        "https": None,
        "grpc": [
            {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "keda"}
                }
            }
        ],
    }


def test_the_examples_name_existing_services_and_ports() -> None:
    service = one(KEDA, "Service")
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    ports = {port["name"]: port["port"] for port in service["spec"]["ports"]}
    named = []
    for file in sorted((ROOT / "examples" / "keda").glob("*.yaml")):
        for scheme, address in re.findall(
            r"(?:(https)://|scalerAddress: )(\S+\.svc\S*)", file.read_text()
        ):
            parts = urlsplit(f"{scheme or 'grpc'}://{address}")
            named.append((parts.hostname, parts.port or 443, scheme or "grpc"))
    assert {port for _, port, _ in named} == set(ports.values())
    assert all(found == (host, ports[found[2]], found[2]) for found in named)
    assert host in (FOLDER / KEDA).read_text(), (
        "the certificate that is asked for has this name"
    )
