"""What happens to a cache while it is being staged: deleted, changed, its cluster deleted, its class or its pull secret missing.

On the testbed's two API servers, with a real Temporal server and a worker process that is killed in between (spec/workloads.md 5 and 14).
"""

import asyncio
import base64
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from activities.secrets.store import SecretStore, StoredSecret
from testbed.cluster.objects import STORAGE_CLASS
from tests.environment.local_hub import LocalHub, Repo, a_commit
from tests.random_cases import generator
from tests.workflows.environment.caches import clean_up, clusters_of, engines, in_cluster, mounted, no_room_for_jobs, now, objects
from tests.workflows.environment.harness import ControlPlane, Json, a_cache, a_deployment, eventually, message, reason

pytestmark = pytest.mark.testbed

CLUSTER = "prod-eu"
DOCKER = "kubernetes.io/dockerconfigjson"


@pytest.fixture
def repo(hub: LocalHub, namespace: str) -> str:
    """A repository of the test's own, with two branches."""
    name = f"acme/{namespace}"
    hub.repos[name] = Repo()
    hub.repos[name].branches["next"] = a_commit("next")
    return name


async def killed(plane: ControlPlane) -> None:
    """Kill the worker, and start another."""
    plane.worker.kill()
    await asyncio.to_thread(plane.worker.start)


def claims(plane: ControlPlane, namespace: str) -> list[str]:
    return [name for name in objects(plane, CLUSTER, namespace) if name.startswith("persistentvolumeclaims/")]


async def waits_for_room(plane: ControlPlane, namespace: str) -> Json:
    seen: Json = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
    return seen


@pytest.mark.random
async def test_a_cache_that_is_deleted_and_applied_again_while_it_stages_has_one_volume(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    chance = generator()
    document = a_cache("qwen", namespace, repo, match=in_cluster(plane, CLUSTER))
    uids = list[str]()
    with no_room_for_jobs(plane, CLUSTER):
        for dies in (False, True, False):
            await plane.apply(document)
            await asyncio.sleep(chance.uniform(0, 2))
            await plane.delete("ModelCache", "qwen", namespace)
            if dies:
                await asyncio.sleep(chance.uniform(0, 1))
                await killed(plane)
            await plane.gone("ModelCache", "qwen", namespace)
            assert objects(plane, CLUSTER, namespace) == []
        await plane.apply(document)
        uids.append((await waits_for_room(plane, namespace))["metadata"]["uid"])
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert ready["metadata"]["uid"] == uids[0]
    assert claims(plane, namespace) == [f"persistentvolumeclaims/{clusters_of(ready)[CLUSTER]['claimName']}"]
    await clean_up(plane, "qwen", namespace)


async def test_wkl_95_another_revision_replaces_a_download_that_runs(plane: ControlPlane, namespace: str, repo: str) -> None:
    match = in_cluster(plane, CLUSTER)
    with no_room_for_jobs(plane, CLUSTER):
        await plane.apply(a_cache("qwen", namespace, repo, match=match, revision="main"))
        first = clusters_of(await waits_for_room(plane, namespace))[CLUSTER]["claimName"]
        await plane.apply(a_cache("qwen", namespace, repo, match=match, revision="next"))
        await killed(plane)
        await eventually(
            lambda: now(lambda: claims(plane, namespace)),
            lambda found: len(found) == 1 and found != [f"persistentvolumeclaims/{first}"],
            what="the volume of the other revision alone",
        )
        # And back, before the other one is complete.
        await plane.apply(a_cache("qwen", namespace, repo, match=match, revision="main"))
        await eventually(
            lambda: now(lambda: claims(plane, namespace)),
            lambda found: found == [f"persistentvolumeclaims/{first}"],
            what="the volume of the first revision alone",
        )
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert clusters_of(ready)[CLUSTER]["revision"] == ready["status"]["resolvedRevision"] == a_commit("first")
    await clean_up(plane, "qwen", namespace)


@pytest.mark.long
async def test_wkl_97_of_two_deployments_with_one_cache_the_one_that_stays_keeps_its_volume(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    await plane.apply(a_cache("qwen", namespace, repo, match=in_cluster(plane, CLUSTER)))
    for name in ("one", "two"):
        await plane.apply(a_deployment(name, namespace, modelCacheRef={"name": "qwen"}))
    for name in ("one", "two"):
        await plane.ready("ModelDeployment", name, namespace)
    claim = clusters_of(await plane.ready("ModelCache", "qwen", namespace))[CLUSTER]["claimName"]
    await plane.delete("ModelDeployment", "one", namespace)
    await plane.delete("ModelCache", "qwen", namespace)
    await killed(plane)
    await plane.gone("ModelDeployment", "one", namespace)
    await plane.until("ModelCache", "qwen", lambda seen: "ModelReplica two-" in message(seen, "Deleting"), namespace)
    assert claims(plane, namespace) == [f"persistentvolumeclaims/{claim}"]
    (engine,) = engines(plane, CLUSTER, namespace)
    assert mounted(engine) == [claim]
    await plane.delete("ModelDeployment", "two", namespace)
    await plane.gone("ModelDeployment", "two", namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    assert plane.our_objects(CLUSTER, namespace) == []


async def test_a_cluster_that_is_deleted_while_a_cache_is_staged_is_left_clean(plane: ControlPlane, namespace: str, repo: str) -> None:
    known = await plane.describe("InferenceCluster", CLUSTER)
    name = f"spare-{namespace}"
    metadata = {"name": name, "labels": {"spare": namespace}, "annotations": known["metadata"]["annotations"]}
    spec = {**known["spec"], "taints": [{"key": "spare", "effect": "NoSchedule"}]}
    await plane.apply({"apiVersion": known["apiVersion"], "kind": "InferenceCluster", "metadata": metadata, "spec": spec})
    await plane.ready("InferenceCluster", name)
    with no_room_for_jobs(plane, CLUSTER):
        await plane.apply(a_cache("qwen", namespace, repo, match={"spare": namespace}))
        await waits_for_room(plane, namespace)
        await plane.delete("InferenceCluster", name)
        await killed(plane)
        await plane.gone("InferenceCluster", name)
        assert objects(plane, CLUSTER, namespace) == []
    left = await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "ClustersMatched") == "NoClusters", namespace)
    assert message(left, "ClustersMatched") == f"no InferenceCluster has the labels of clusterSelector: spare={namespace}"
    await clean_up(plane, "qwen", namespace)


@asynccontextmanager
async def a_storage_class(plane: ControlPlane, name: str) -> AsyncIterator[None]:
    """A class whose volumes nobody makes."""
    manifest = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": name}, "provisioner": "test/none"}
    plane.call(CLUSTER, "POST", "/apis/storage.k8s.io/v1/storageclasses", manifest)
    yield
    plane.call(CLUSTER, "DELETE", f"/apis/storage.k8s.io/v1/storageclasses/{name}")


async def test_wkl_84_a_class_that_is_missing_is_named_and_one_that_appears_or_disappears_is_followed(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    document = a_cache("qwen", namespace, repo, match=in_cluster(plane, CLUSTER))
    other = copy.deepcopy(document)
    missing = other["spec"]["volume"] = {"storageClassName": f"slow-{namespace}"}
    await plane.apply(other)
    named = f"cluster {CLUSTER} has no StorageClass {missing['storageClassName']}"
    await plane.until("ModelCache", "qwen", lambda seen: named in message(seen, "ArtifactReady"), namespace)
    assert claims(plane, namespace) == []
    async with a_storage_class(plane, missing["storageClassName"]):
        bound = f"of storage class {missing['storageClassName']} is not bound"
        await plane.until("ModelCache", "qwen", lambda seen: bound in message(seen, "ArtifactReady"), namespace, within=150)
    assert len(claims(plane, namespace)) == 1
    document["spec"]["volume"] = {"storageClassName": STORAGE_CLASS}
    await plane.apply(document)
    ready = await plane.ready("ModelCache", "qwen", namespace)
    claim = clusters_of(ready)[CLUSTER]["claimName"]
    volume = plane.get(CLUSTER, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    assert volume["spec"]["storageClassName"] == STORAGE_CLASS
    await clean_up(plane, "qwen", namespace)


async def test_wkl_87_a_corrected_pull_secret_reaches_a_job_that_waits_within_a_minute(
    plane: ControlPlane, namespace: str, repo: str, store: SecretStore
) -> None:
    async def put(password: bytes) -> None:
        await store.put(StoredSecret(namespace, "mirror", {".dockerconfigjson": b'{"auths": {"r": "%s"}}' % password}, type=DOCKER))

    document = a_cache("qwen", namespace, repo, match=in_cluster(plane, CLUSTER))
    document["spec"]["hydration"] = {"imagePullSecrets": [{"name": "mirror"}]}
    await put(b"wrong")
    with no_room_for_jobs(plane, CLUSTER):
        await plane.apply(document)
        claim = clusters_of(await waits_for_room(plane, namespace))[CLUSTER]["claimName"]

        def copied() -> tuple[bytes, str]:
            secret = plane.get(CLUSTER, f"/api/v1/namespaces/{namespace}/secrets/{claim}-pull-0")
            job = plane.get(CLUSTER, f"/apis/batch/v1/namespaces/{namespace}/jobs/{claim}-hyd")
            return base64.b64decode(secret["data"][".dockerconfigjson"]), job["metadata"]["uid"]

        before, job = copied()
        assert b"wrong" in before
        await put(b"right")
        await eventually(lambda: now(copied), lambda found: b"right" in found[0] and found[1] == job, within=60, what="the corrected copy")
    await plane.ready("ModelCache", "qwen", namespace)
    await clean_up(plane, "qwen", namespace)
