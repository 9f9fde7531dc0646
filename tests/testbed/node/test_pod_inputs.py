"""The variables, arguments and files of a container, without a cluster."""

import asyncio
import base64
from pathlib import Path
from typing import Any

import httpx
import pytest

from testbed.cluster.kube import KubeClient, KubeError
from testbed.node.images import is_real, program_of
from testbed.node.pod_inputs import SourceMissing, environment_of, expanded, mounts_of

POD = {
    "metadata": {
        "name": "picker-1",
        "namespace": "ml-team",
        "annotations": {"zone": "a"},
    },
    "spec": {
        "serviceAccountName": "picker",
        "volumes": [
            {"name": "config", "configMap": {"name": "picker"}},
            {
                "name": "certs",
                "secret": {
                    "secretName": "certs",
                    "items": [{"key": "tls.crt", "path": "folder/cert"}],
                },
            },
            {"name": "maybe", "configMap": {"name": "absent", "optional": True}},
            {"name": "absent", "configMap": {"name": "absent"}},
            {
                "name": "token",
                "projected": {
                    "sources": [
                        {"serviceAccountToken": {"path": "token"}},
                        {
                            "downwardAPI": {
                                "items": [
                                    {
                                        "path": "namespace",
                                        "fieldRef": {"fieldPath": "metadata.namespace"},
                                    }
                                ]
                            }
                        },
                    ]
                },
            },
        ],
    },
    "status": {"podIP": "10.244.0.7"},
}
OBJECTS: dict[tuple[str, str], dict[str, Any]] = {
    ("ConfigMap", "picker"): {
        "data": {"config.yaml": "a: 1"},
        "binaryData": {"raw": base64.b64encode(b"\0").decode()},
    },
    ("Secret", "certs"): {
        "data": {
            "tls.crt": base64.b64encode(b"certificate").decode(),
            "other": "",
        }
    },
}


class Cluster(KubeClient):
    """A cluster with these objects."""

    def __init__(self) -> None:
        """Open no connection."""

    async def get(
        self,
        api_version: str,  # noqa: ARG002 - as in the real client
        kind: str,
        namespace: str,
        name: str,
    ) -> dict[str, Any]:
        assert namespace == "ml-team"
        if (kind, name) not in OBJECTS:
            raise KubeError("get", httpx.Response(404, json={"message": "not found"}))
        return OBJECTS[kind, name]

    async def token(
        self, namespace: str, account: str, audience: str | None, seconds: int
    ) -> str:
        return f"{namespace}/{account}/{audience}/{seconds}"


def mounted(folder: Path, volume: str) -> dict[str, bytes]:
    """Return the files of a volume."""
    container = {"volumeMounts": [{"name": volume, "mountPath": "/at"}]}
    mounts = asyncio.run(mounts_of(Cluster(), POD, container, folder))
    root = Path(mounts["/at"])
    return {
        str(file.relative_to(root)): file.read_bytes()
        for file in root.rglob("*")
        if file.is_file()
    }


@pytest.mark.parametrize(
    ("volume", "files"),
    [
        ("config", {"config.yaml": b"a: 1", "raw": b"\0"}),
        ("certs", {"folder/cert": b"certificate"}),
        ("maybe", {}),
        ("token", {"token": b"ml-team/picker/None/3600", "namespace": b"ml-team"}),
    ],
)
def test_volumes_have_the_files_of_their_sources(
    tmp_path: Path, volume: str, files: dict[str, bytes]
) -> None:
    assert mounted(tmp_path, volume) == files


def test_a_missing_source_is_awaited(tmp_path: Path) -> None:
    with pytest.raises(SourceMissing, match="ConfigMap ml-team/absent"):
        mounted(tmp_path, "absent")


def test_variables_come_from_values_fields_and_earlier_variables() -> None:
    def field(path: str) -> dict[str, Any]:
        return {"fieldRef": {"fieldPath": path}}

    container = {
        "env": [
            {"name": "NAME", "valueFrom": field("metadata.name")},
            {"name": "IP", "valueFrom": field("status.podIP")},
            {"name": "ZONE", "valueFrom": field("metadata.annotations['zone']")},
            {"name": "NONE", "valueFrom": field("metadata.labels['zone']")},
            {"name": "BOTH", "value": "$(NAME) at $(IP), $(LATER)"},
        ]
    }
    found = asyncio.run(environment_of(Cluster(), POD, container))
    assert found == {
        "NAME": "picker-1",
        "IP": "10.244.0.7",
        "ZONE": "a",
        "NONE": "",
        "BOTH": "picker-1 at 10.244.0.7, $(LATER)",
    }
    assert expanded("--id=$(NAME)", found) == "--id=picker-1"


@pytest.mark.parametrize(
    ("image", "program"),
    [
        ("docker.io/envoyproxy/envoy:distroless-v1.38.1", "envoy"),
        ("mirror.example/docker.io/envoyproxy/gateway:v1.8.1", "envoy-gateway"),
        (
            "ghcr.io/llm-d/llm-d-router-endpoint-picker@sha256:0",
            "endpoint-picker",
        ),
        ("acme/envoyproxy/envoy-other:1", None),
        ("vllm/vllm-openai:v0.10", None),
    ],
)
def test_images_of_the_request_path_run_programs(
    image: str, program: str | None
) -> None:
    pod = {"spec": {"containers": [{"image": image}]}}
    assert (program_of(image), is_real(pod)) == (program, program is not None)
