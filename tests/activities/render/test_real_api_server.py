"""Every golden object against a real API server, with the real LeaderWorkerSet webhooks: no field that it does not know, none missing."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes import client

from activities.render.manifest import Json
from activities.render.propagation import Copy
from testbed.testbed import ClusterRunning, Running
from tests.activities.render.topologies import TOPOLOGIES

# Kinds of add-ons that no testbed cluster carries. A kind that appears here without need fails the test.
ADD_ONS = {"PodMonitor", "PodGroup", "DestinationRule"}
NAMESPACES = ("ml-team",)

pytestmark = pytest.mark.testbed


class Server:
    """The few calls that the tests need, as plain requests."""

    def __init__(self, api: client.ApiClient) -> None:
        self.host = api.configuration.host
        self.pool = api.rest_client.pool_manager
        self.plurals: dict[str, dict[str, str]] = {}

    def call(self, method: str, path: str, body: Json | None = None, content_type: str = "application/json") -> tuple[int, Any]:
        sent = json.dumps(body) if body is not None else None
        answer = self.pool.request(method, f"{self.host}{path}", body=sent, headers={"Content-Type": content_type})
        is_json = "json" in answer.headers.get("Content-Type", "")
        return answer.status, json.loads(answer.data) if is_json else answer.data.decode()

    def path(self, manifest: Json) -> str:
        """Where an object lives; empty if its kind is not served."""
        version = manifest["apiVersion"]
        prefix = f"/api/{version}" if "/" not in version else f"/apis/{version}"
        if version not in self.plurals:
            status, found = self.call("GET", prefix)
            resources = found["resources"] if status == 200 else []
            self.plurals[version] = {resource["kind"]: resource["name"] for resource in resources if "/" not in resource["name"]}
        plural = self.plurals[version].get(manifest["kind"])
        if plural is None:
            return ""
        namespace = manifest["metadata"].get("namespace")
        return f"{prefix}{f'/namespaces/{namespace}' if namespace else ''}/{plural}/{manifest['metadata']['name']}"

    def try_out(self, manifest: Json) -> tuple[int, Any]:
        query = "?fieldManager=modelplane&force=true&dryRun=All&fieldValidation=Strict"
        return self.call("PATCH", self.path(manifest) + query, manifest, "application/apply-patch+yaml")


def filled(copy: Copy) -> Json:
    """A copy as the activity would complete it, with a value that means nothing."""
    data = dict.fromkeys(copy.keys or (".dockerconfigjson",), base64.b64encode(b"{}").decode())
    return {**copy.manifest, "data": data}


@pytest.fixture(scope="module")
def server(testbed: Running, kube: Callable[[ClusterRunning], client.ApiClient]) -> Server:
    server = Server(kube(next(iter(testbed.clusters.values()))))
    for name in NAMESPACES:
        status, answer = server.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        assert status in (201, 409), answer
    return server


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_object_of_a_topology_is_accepted_word_for_word(server: Server, name: str) -> None:
    rendered = TOPOLOGIES[name]()
    manifests = [filled(copy) for copy in rendered.copies] + [item.manifest for item in rendered.objects]
    for manifest in manifests:
        if not server.path(manifest):
            older_dra = manifest["apiVersion"] == "resource.k8s.io/v1beta1"
            assert manifest["kind"] in ADD_ONS or older_dra, f"{manifest['apiVersion']} {manifest['kind']} is not served"
            continue
        status, answer = server.try_out(manifest)
        assert status in (200, 201), answer
        assert answer["metadata"]["name"] == manifest["metadata"]["name"]


def test_the_server_would_have_noticed_a_field_that_does_not_exist(server: Server) -> None:
    deployment = next(item.manifest for item in TOPOLOGIES["standalone"]().objects if item.manifest["kind"] == "Deployment")
    status, answer = server.try_out({**deployment, "spec": {**deployment["spec"], "replica": 1}})
    assert status in {400, 500}
    assert "replica" in answer["message"]
