"""A cluster without a serving stack, charts for one, and a stand-in for Envoy Gateway."""

import contextlib
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from testbed.cluster.kube import trust
from testbed.cluster.pki import Authority
from testbed.fleet.fleet_file import FleetFile
from testbed.running import ClusterRunning, Running
from testbed.testbed import Testbed
from tests.environment.charts import ChartRepository
from tests.environment.envoy_stand_in import EnvoyStandIn
from tests.environment.patient_http import patient_client
from tests.environment.shared_testbed import started
from tests.environment.stack_charts import gateway_definitions, stack_charts
from tests.environment.summary import Summary

Json = dict[str, Any]

CLUSTER = "bare"
FLEET = f"""
classes:
  h100-8x:
    devices:
      - name: gpu
        driver: gpu.nvidia.com
        deviceClassName: gpu.nvidia.com
        count: 8
clusters:
  - name: {CLUSTER}
    stack: false
    routing: service
    labels: {{modelplane.ai/region: eu-west}}
    pools: [{{name: gpus, class: h100-8x, nodes: 2}}]
control: false
"""
# Paths of objects that a test may leave, in the order of deletion.
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_CONTENTS = {
    "/apis/apps/v1": (
        "deployments",
        "daemonsets",
        "statefulsets",
        "replicasets",
        "controllerrevisions",
    ),
    "/api/v1": (
        "pods",
        "services",
        "secrets",
        "configmaps",
        "serviceaccounts",
        "resourcequotas",
        "endpoints",
        "events",
    ),
    "/apis/discovery.k8s.io/v1": ("endpointslices",),
}
_MANAGED_BY_HELM = "labelSelector=app.kubernetes.io%2Fmanaged-by%3DHelm"
_KEPT_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")


@dataclass
class StackCluster:
    """The cluster, with manual operations for tests."""

    running: Running
    cluster: ClusterRunning
    owner: Testbed
    authority: Authority
    charts: ChartRepository
    envoy: EnvoyStandIn
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        context: ssl.SSLContext = trust(self.authority)
        self.http = patient_client(self.cluster.server, context, timeout=30)

    def close(self) -> None:
        self.http.close()

    def get(self, path: str) -> Json | None:
        """Return an object, or None if it does not exist."""
        answer = self.http.get(path)
        if answer.status_code == httpx.codes.NOT_FOUND:
            return None
        answer.raise_for_status()
        found: Json = answer.json()
        return found

    def items(self, path: str) -> list[Json]:
        """Return the items of a collection; empty if the kind is not served."""
        found = self.get(path)
        return list(found["items"]) if found else []

    def names(self, path: str) -> list[str]:
        """Return the names of the objects of a collection."""
        return sorted(item["metadata"]["name"] for item in self.items(path))

    def create(self, path: str, document: Json) -> None:
        """Create an object.

        The path determines its apiVersion; custom resources must name their kind.
        """
        version = path.removeprefix("/apis/").removeprefix("/api/").split("/")
        api_version = "/".join(version[:2]) if path.startswith("/apis/") else version[0]
        answer = self.http.post(path, json={"apiVersion": api_version, **document})
        assert answer.is_success, answer.text

    def patch(self, path: str, change: Json) -> None:
        """Apply a merge patch to an object."""
        answer = self.http.patch(
            path, json=change, headers={"content-type": "application/merge-patch+json"}
        )
        answer.raise_for_status()

    def delete(self, path: str) -> None:
        """Delete an object; ignore a missing object."""
        answer = self.http.delete(path)
        if answer.status_code != httpx.codes.NOT_FOUND:
            answer.raise_for_status()

    def releases(self) -> dict[str, str]:
        """Map each Helm release to the status of its newest revision."""
        return {name: status for name, (_, status) in self._newest_revisions().items()}

    def revisions(self) -> dict[str, int]:
        """Map each Helm release to the number of its newest revision."""
        return {name: number for name, (number, _) in self._newest_revisions().items()}

    def _newest_revisions(self) -> dict[str, tuple[int, str]]:
        found: dict[str, tuple[int, str]] = {}
        for secret in self.items("/api/v1/secrets?labelSelector=owner%3Dhelm"):
            marks = secret["metadata"]["labels"]
            revision = int(marks["version"]), marks["status"]
            found[marks["name"]] = max(found.get(marks["name"], (0, "")), revision)
        return found

    def gateway_definitions(self) -> list[Json]:
        """Return the Gateway API definitions that Envoy Gateway's chart contains."""
        return gateway_definitions()

    def clear(self) -> None:
        """Delete namespaces, definitions, and cluster-scoped objects of charts."""
        for path in (
            "/apis/gateway.networking.k8s.io/v1/gateways",
            "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
        ):
            for item in self.items(path):
                self._remove(_own(path, item))
        for item in self.items("/api/v1/services"):
            if item["metadata"].get("finalizers"):
                self._remove(_own("/api/v1/services", item))
        for path in (
            "/apis/resource.k8s.io/v1/deviceclasses",
            "/apis/rbac.authorization.k8s.io/v1/clusterroles?" + _MANAGED_BY_HELM,
        ):
            for item in self.items(path):
                self.delete(_own(path.partition("?")[0], item))
        for item in self.items(_CRDS):
            self.delete(_own(_CRDS, item))
        for item in self.items("/api/v1/namespaces"):
            if item["metadata"]["name"] not in _KEPT_NAMESPACES:
                self._remove_namespace(item)

    def is_clear(self) -> bool:
        """Return whether the definitions and namespaces of tests are gone."""
        return not self.items(_CRDS) and set(self.names("/api/v1/namespaces")) == set(
            _KEPT_NAMESPACES
        )

    def _remove_namespace(self, item: Json) -> None:
        """Delete a namespace and its contents.

        The namespace controller would start only after five seconds.
        """
        path = _own("/api/v1/namespaces", item)
        # From here on the API server rejects new objects in the namespace.
        self.delete(path)
        for version, plurals in _CONTENTS.items():
            for plural in plurals:
                self.delete(
                    f"{version}/namespaces/{item['metadata']['name']}/{plural}?gracePeriodSeconds=0"
                )
        if not self.items(f"{path}/pods"):
            self.http.put(f"{path}/finalize", json={**item, "spec": {"finalizers": []}})

    def _remove(self, path: str) -> None:
        with contextlib.suppress(httpx.HTTPStatusError):
            self.patch(path, {"metadata": {"finalizers": None}})
        self.delete(path)


def _own(path: str, item: Json) -> str:
    """Return the path of an object that was listed across all namespaces."""
    base, _, plural = path.rpartition("/")
    namespace = item["metadata"].get("namespace")
    return (
        f"{base}/namespaces/{namespace}/{plural}/{item['metadata']['name']}"
        if namespace
        else f"{path}/{item['metadata']['name']}"
    )


@contextlib.contextmanager
def stack_cluster(home: Path, summary: Summary) -> Iterator[StackCluster]:
    """Start a testbed of one bare cluster, serve the charts, and run the stand-in."""
    file = home / "fleet.yaml"
    home.mkdir(parents=True, exist_ok=True)
    file.write_text(FLEET)
    owner = Testbed(home, FleetFile.load(file))
    try:
        running = started(owner, summary)
        cluster = running.clusters[CLUSTER]
        authority = Authority(home / "clusters" / CLUSTER / "pki")
        envoy = EnvoyStandIn(cluster.server, authority)
        with ChartRepository(*stack_charts()) as charts, envoy.running():
            world = StackCluster(running, cluster, owner, authority, charts, envoy)
            yield world
            world.close()
    finally:
        owner.down()
