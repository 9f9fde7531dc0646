"""A cache's life on two real API servers: pinned once, staged on each, handed to those who wait, and gone only when nobody mounts it.

spec/workloads.md 5 and 14, cases 61, 62, 85, 87 to 92 and 95 to 99.
"""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from activities.secrets import SecretStore, StoredSecret
from api_types import labels
from tests.local_hub import LocalHub, Repo, a_commit
from tests.workflows.harness import ControlPlane, Json, a_deployment, condition, eventually, message, reason

pytestmark = pytest.mark.testbed


@pytest.fixture
def namespace() -> str:
    """A tenant of the test's own."""
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def repo(hub: LocalHub, namespace: str) -> str:
    """A repository of the test's own."""
    name = f"acme/{namespace}"
    hub.repos[name] = Repo()
    return name


def a_cache(name: str, namespace: str, repo: str, *, match: dict[str, str] | None = None, refresh: str = "", **block: Any) -> Json:
    """A ModelCache of a repository of the hub, 20 GiB."""
    selector = {"clusterSelector": {"matchLabels": match}} if match else {}
    annotations = {"annotations": {labels.REFRESH: refresh}} if refresh else {}
    return {
        "apiVersion": "modelplane.ai/v1alpha1",
        "kind": "ModelCache",
        "metadata": {"name": name, "namespace": namespace, **annotations},
        "spec": {"source": "HuggingFace", "huggingFace": {"repo": repo, "sizeGiB": 20, **block}, **selector},
    }


def clusters_of(seen: Json) -> dict[str, Json]:
    return {row["name"]: row for row in seen["status"].get("clusters", ())}


def objects(plane: ControlPlane, cluster: str, namespace: str) -> list[str]:
    """What of caches is in a namespace of a cluster."""
    found = []
    for base, plural in (("/api/v1", "persistentvolumeclaims"), ("/apis/batch/v1", "jobs"), ("/api/v1", "secrets"), ("/api/v1", "pods")):
        listed = plane.get(cluster, f"{base}/namespaces/{namespace}/{plural}") or {"items": []}
        found += [f"{plural}/{item['metadata']['name']}" for item in listed["items"] if labels.CACHE in (item["metadata"]["labels"] or {})]
    return sorted(found)


async def clean_up(plane: ControlPlane, name: str, namespace: str) -> None:
    await plane.delete("ModelCache", name, namespace)
    await plane.gone("ModelCache", name, namespace)
    for cluster in plane.running.clusters:
        assert objects(plane, cluster, namespace) == []
        assert plane.our_objects(cluster, namespace) == []


async def test_wkl_85_wkl_89_every_cluster_stages_the_commit_that_the_branch_meant_once(
    plane: ControlPlane, namespace: str, repo: str, hub: LocalHub
) -> None:
    await plane.apply(a_cache("qwen", namespace, repo, revision="main"))
    seen = await plane.ready("ModelCache", "qwen", namespace)
    commit = hub.repos[repo].branches["main"]
    assert seen["status"]["summary"] == {"ready": f"{len(plane.running.clusters)}/{len(plane.running.clusters)}"}
    assert seen["status"]["resolvedRevision"] == commit
    assert {row["revision"] for row in clusters_of(seen).values()} == {commit}
    assert (reason(seen, "ArtifactReady"), reason(seen, "RevisionPinned"), reason(seen, "ClustersMatched")) == (
        "Staged",
        "Resolved",
        "Matched",
    )

    def left() -> dict[str, list[str]]:
        return {cluster: objects(plane, cluster, namespace) for cluster in plane.running.clusters}

    claims = {name: [f"persistentvolumeclaims/{row['claimName']}"] for name, row in clusters_of(seen).items()}
    await eventually(lambda: _now(left), lambda found: found == claims, what="everything but the volumes gone")
    hub.repos[repo].branches["main"] = a_commit("moved")
    await plane.handle("ModelCache", "qwen", namespace).signal("resync", None)
    await asyncio.sleep(1)
    assert (await plane.describe("ModelCache", "qwen", namespace))["status"]["resolvedRevision"] == commit
    await clean_up(plane, "qwen", namespace)


async def _now(look: Callable[[], Any]) -> Any:
    return look()
