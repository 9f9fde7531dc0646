"""A cache on two real API servers: pinned once, staged on each, given to replicas that wait, and deleted only when no pod mounts it.

spec/workloads.md 5 and 14, cases 61, 62, 85, 87 to 92 and 95 to 99.
"""

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from activities.secrets.store import SecretStore, StoredSecret
from testbed.cluster.objects import STORAGE_CLASS
from tests.environment.local_hub import LocalHub, Repo, a_commit
from tests.environment.local_registry import local_registry
from tests.environment.waiting import SHORTEST_PAUSE_SECONDS
from tests.random_cases import generator
from tests.workflows.conftest import EVICT_GRACE_SECONDS
from tests.workflows.environment.caches import (
    clean_up,
    clusters_of,
    end_download,
    engines,
    in_cluster,
    mounted,
    no_room_for_jobs,
    now,
    objects,
)
from tests.workflows.environment.harness import ControlPlane, Json, a_cache, a_deployment, condition, eventually, message, reason, said
from tests.workflows.environment.together import together

pytestmark = pytest.mark.testbed


@dataclass(frozen=True)
class Tenant:
    """A namespace and a repository of one scenario's own."""

    plane: ControlPlane
    store: SecretStore
    hub: LocalHub
    namespace: str
    repo: str


@pytest.fixture
def repo(hub: LocalHub, namespace: str) -> str:
    """A repository of the test's own."""
    name = f"acme/{namespace}"
    hub.repos[name] = Repo()
    return name


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
    await eventually(lambda: now(left), lambda found: found == claims, what="everything but the volumes gone")
    hub.repos[repo].branches["main"] = a_commit("moved")
    # Another generation of the same source goes through a whole pass, in which the revision would be resolved if it were not pinned.
    await plane.apply(a_cache("qwen", namespace, repo, revision="main", match=in_cluster(plane, "prod-eu")))
    seen = await plane.until("ModelCache", "qwen", lambda now: now["status"]["observedGeneration"] == 2, namespace)
    assert seen["status"]["resolvedRevision"] == commit
    await plane.apply(a_cache("qwen", namespace, repo, revision="main", match=in_cluster(plane, "prod-eu"), refresh="now"))
    moved = hub.repos[repo].branches["main"]
    await plane.until("ModelCache", "qwen", lambda now: now["status"].get("resolvedRevision") == moved, namespace)
    await clean_up(plane, "qwen", namespace)


async def engines_wait(tenant: Tenant) -> None:
    plane, namespace, repo, store, hub = tenant.plane, tenant.namespace, tenant.repo, tenant.store, tenant.hub
    token = "hf_" + uuid.uuid4().hex
    hub.repos[repo] = Repo(token=token)
    match = in_cluster(plane, "prod-eu")
    await store.put(StoredSecret(namespace, "hub", {"HF_TOKEN": b""}))
    await plane.apply(a_cache("qwen", namespace, repo, match=match, authSecret={"name": "hub"}))
    await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}))
    held = await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "ArtifactReady") == "AuthSecretMissing", namespace)
    assert f"key 'HF_TOKEN' of Secret {namespace}/hub is empty" in message(held, "ArtifactReady")
    assert ("Warning", "AuthSecretMissing") in {(event["type"], event["reason"]) for event in held["status"]["events"]}
    assert [kind.partition("/")[0] for kind in objects(plane, "prod-eu", namespace)] == ["persistentvolumeclaims"]

    deployment = await plane.until(
        "ModelDeployment", "chat", lambda seen: len(seen.get("status", {}).get("placements", ())) == 1, namespace
    )
    (placement,) = deployment["status"]["placements"]
    assert placement["cluster"] == "prod-eu"
    hydrating = f"ModelCache {namespace}/qwen is Hydrating on prod-eu"
    replica = await plane.until(
        "ModelReplica", placement["replica"], lambda seen: hydrating in str(seen["status"]["conditions"]), namespace
    )
    assert (reason(replica, "ModelAccepted"), hydrating in message(replica, "ModelAccepted")) == ("WaitingForCache", True)
    assert engines(plane, "prod-eu", namespace) == []
    templates = plane.get("prod-eu", f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaimtemplates")["items"]
    assert len(templates) == 1

    await store.put(StoredSecret(namespace, "hub", {"HF_TOKEN": token.encode()}))
    seen = await plane.ready("ModelCache", "qwen", namespace)
    claim = clusters_of(seen)["prod-eu"]["claimName"]
    await plane.ready("ModelDeployment", "chat", namespace)
    (engine,) = engines(plane, "prod-eu", namespace)
    assert mounted(engine) == [claim]
    running = await plane.describe("ModelReplica", placement["replica"], namespace)
    assert running["status"]["cache"] == {
        "claimName": claim,
        "artefactKey": clusters_of(seen)["prod-eu"]["artefactKey"],
        "phase": "Ready",
    }
    await eventually(
        lambda: now(lambda: objects(plane, "prod-eu", namespace)),
        lambda found: found == [f"persistentvolumeclaims/{claim}"],
        what="token and Job gone",
    )
    for kind, name in (("ModelCache", "qwen"), ("ModelReplica", placement["replica"])):
        history = (await plane.handle(kind, name, namespace).fetch_history()).to_json_dict()
        words = "".join(said(history))
        assert "hub" in words or kind == "ModelReplica"
        assert token not in json.dumps(history) + words
    assert token not in plane.worker.log()

    await plane.delete("ModelCache", "qwen", namespace)
    deleting = await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "Deleting") == "InUse", namespace)
    assert placement["replica"] in message(deleting, "Deleting")
    await plane.apply(a_deployment("late", namespace, modelCacheRef={"name": "qwen"}))
    late = await plane.until("ModelDeployment", "late", lambda seen: condition(seen, "ModelCacheResolved") == "False", namespace)
    assert late["status"].get("placements", []) == []
    assert condition(await plane.describe("ModelDeployment", "chat", namespace), "Ready") == "True"
    assert [mounted(found) for found in engines(plane, "prod-eu", namespace)] == [[claim]]
    for name in ("chat", "late"):
        await plane.delete("ModelDeployment", name, namespace)
        await plane.gone("ModelDeployment", name, namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    assert objects(plane, "prod-eu", namespace) == plane.our_objects("prod-eu", namespace) == []


async def without_clusters(tenant: Tenant) -> None:
    plane, namespace, repo = tenant.plane, tenant.namespace, tenant.repo
    await plane.apply(a_cache("far", namespace, repo, match={"tier": "none-such"}, authSecret={"name": "none"}))
    seen = await plane.until("ModelCache", "far", lambda seen: reason(seen, "ArtifactReady") == "NoClusters", namespace)
    assert (reason(seen, "ClustersMatched"), seen["status"]["summary"]["ready"]) == ("NoClusters", "0/0")
    assert "AuthSecretMissing" not in {event["reason"] for event in seen["status"]["events"]}
    await clean_up(plane, "far", namespace)


async def no_common_cluster(tenant: Tenant) -> None:
    plane, namespace, repo = tenant.plane, tenant.namespace, tenant.repo
    await plane.apply(a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu")))
    elsewhere = {"matchLabels": in_cluster(plane, "prod-us")}
    await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}, clusterSelector=elsewhere))
    seen = await plane.until("ModelDeployment", "chat", lambda seen: reason(seen, "ReplicasScheduled") == "NoClusters", namespace)
    assert condition(seen, "ModelCacheResolved") == "True"
    assert "outside ModelCache qwen's footprint" in message(seen, "ReplicasScheduled")
    assert "didn't match clusterSelector" in message(seen, "ReplicasScheduled")
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await clean_up(plane, "qwen", namespace)


def since(seen: Json, kind: str) -> str:
    """When a condition last changed."""
    found: str = next(item["lastTransitionTime"] for item in seen["status"]["conditions"] if item["type"] == kind)
    return found


async def a_lost_volume(tenant: Tenant) -> None:
    plane, namespace, repo = tenant.plane, tenant.namespace, tenant.repo
    await plane.apply(a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu")))
    before = await plane.ready("ModelCache", "qwen", namespace)
    claim = clusters_of(before)["prod-eu"]["claimName"]
    volume = plane.get("prod-eu", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")["metadata"]["uid"]
    plane.call("prod-eu", "DELETE", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    await plane.until("ModelCache", "qwen", lambda seen: "VolumeLost" in {event["reason"] for event in seen["status"]["events"]}, namespace)
    after = await plane.ready("ModelCache", "qwen", namespace)
    assert since(after, "Ready") > since(before, "Ready")
    assert clusters_of(after)["prod-eu"]["attempts"] == 2
    again = plane.get("prod-eu", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")["metadata"]["uid"]
    assert again != volume
    await clean_up(plane, "qwen", namespace)


async def test_wkl_92_what_cannot_be_found_is_not_downloaded_again_until_a_user_retries_it(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    with no_room_for_jobs(plane, "prod-eu"):
        await plane.apply(a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu")))
        blocked = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
        assert clusters_of(blocked)["prod-eu"]["phase"] == "Hydrating"
        await end_download(plane, "prod-eu", namespace, 42, "acme/none does not exist")
        failed = await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "ArtifactReady") == "Failed", namespace)
    row = clusters_of(failed)["prod-eu"]
    assert (row["phase"], row["attempts"]) == ("Failed", 1)
    assert row["message"] == "exit code 42: acme/none does not exist (no further attempt until spec or credential change)"
    assert failed["status"]["phase"] == "Failed"
    await plane.handle("ModelCache", "qwen", namespace).signal("retry_now", {"by": "test"})
    retried = await plane.ready("ModelCache", "qwen", namespace)
    assert clusters_of(retried)["prod-eu"]["readyAt"]
    await clean_up(plane, "qwen", namespace)


async def a_refreshed_branch(tenant: Tenant) -> None:
    plane, namespace, repo, hub = tenant.plane, tenant.namespace, tenant.repo, tenant.hub
    match = in_cluster(plane, "prod-eu")
    await plane.apply(a_cache("qwen", namespace, repo, match=match))
    first = clusters_of(await plane.ready("ModelCache", "qwen", namespace))["prod-eu"]["claimName"]
    await plane.apply(a_deployment("chat", namespace, replicas=2, modelCacheRef={"name": "qwen"}))
    await plane.ready("ModelDeployment", "chat", namespace)
    assert {claim for engine in engines(plane, "prod-eu", namespace) for claim in mounted(engine)} == {first}

    commit = hub.repos[repo].branches["main"] = a_commit("second")
    await plane.apply(a_cache("qwen", namespace, repo, match=match, refresh="1"))
    fewest = 2
    both_volumes = False

    async def sample() -> tuple[Json, list[str]]:
        nonlocal fewest, both_volumes
        deployment = await plane.describe("ModelDeployment", "chat", namespace)
        fewest = min(fewest, deployment["status"]["replicas"]["ready"])
        claims = [name for name in objects(plane, "prod-eu", namespace) if name.startswith("persistentvolumeclaims/")]
        both_volumes = both_volumes or len(claims) == 2
        return await plane.describe("ModelCache", "qwen", namespace), claims

    seen, claims = await eventually(
        sample,
        lambda found: (
            found[0]["status"].get("resolvedRevision") == commit
            and found[1] == [f"persistentvolumeclaims/{clusters_of(found[0])['prod-eu']['claimName']}"]
        ),
        longest_pause=SHORTEST_PAUSE_SECONDS,
        what="one volume left, the new one",
    )
    second = clusters_of(seen)["prod-eu"]["claimName"]
    assert second != first
    assert both_volumes
    assert fewest == 1
    assert claims == [f"persistentvolumeclaims/{second}"]
    await plane.ready("ModelDeployment", "chat", namespace)
    assert [mounted(engine) for engine in engines(plane, "prod-eu", namespace)] == [[second], [second]]
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await clean_up(plane, "qwen", namespace)


async def test_wkl_99_caches_of_equal_name_in_two_namespaces_do_not_touch_each_other(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    other = f"{namespace}-other"
    for tenant in (namespace, other):
        await plane.apply(a_cache("qwen", tenant, repo))
    rows = [clusters_of(await plane.ready("ModelCache", "qwen", tenant))["prod-eu"] for tenant in (namespace, other)]
    assert rows[0]["artefactKey"] == rows[1]["artefactKey"]
    assert rows[0]["claimName"] != rows[1]["claimName"]
    await clean_up(plane, "qwen", namespace)
    left = clusters_of(await plane.ready("ModelCache", "qwen", other))
    assert left["prod-eu"]["claimName"] == rows[1]["claimName"]
    await clean_up(plane, "qwen", other)


@asynccontextmanager
async def a_spare_cluster(plane: ControlPlane, namespace: str) -> AsyncIterator[Json]:
    """A cluster of the scenario's own, Ready: another record of the API server behind `prod-eu`, so that it may be changed and deleted."""
    known = await plane.describe("InferenceCluster", "prod-eu")
    metadata = {"name": f"spare-{namespace}", "labels": {"spare": namespace}, "annotations": known["metadata"]["annotations"]}
    document = {"apiVersion": known["apiVersion"], "kind": "InferenceCluster", "metadata": metadata, "spec": known["spec"]}
    # Nothing else shall be placed there.
    document["spec"] = {**known["spec"], "taints": [{"key": "spare", "effect": "NoSchedule"}]}
    await plane.apply(document)
    await plane.ready("InferenceCluster", metadata["name"])
    yield document
    if await plane.describe("InferenceCluster", metadata["name"]):
        await plane.delete("InferenceCluster", metadata["name"])
        await plane.gone("InferenceCluster", metadata["name"])


async def a_cluster_without_its_storage_class(tenant: Tenant) -> None:
    plane, namespace, repo = tenant.plane, tenant.namespace, tenant.repo
    async with a_spare_cluster(plane, namespace) as spare:
        name = spare["metadata"]["name"]
        await plane.apply(a_cache("qwen", namespace, repo, match={"spare": namespace}))
        claim = clusters_of(await plane.ready("ModelCache", "qwen", namespace))[name]["claimName"]
        tolerations = [{"key": "spare", "operator": "Exists"}]
        await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}, tolerations=tolerations))
        await plane.ready("ModelDeployment", "chat", namespace)

        without_class = copy.deepcopy(spare)
        del without_class["spec"]["cluster"]["existing"]["cache"]
        await plane.apply(without_class)
        noted = await plane.until(
            "ModelCache", "qwen", lambda seen: "no storage class" in clusters_of(seen)[name].get("message", ""), namespace
        )
        assert (condition(noted, "Ready"), noted["status"]["summary"]["ready"]) == ("True", "1/1")

        # The storage class is declared again; the label by which the cache selected the cluster is removed.
        relabelled = copy.deepcopy(spare)
        relabelled["metadata"]["labels"] = {"spare": "no"}
        await plane.apply(relabelled)
        retained = await plane.until("ModelCache", "qwen", lambda seen: clusters_of(seen)[name].get("retained", False), namespace)
        assert retained["status"]["summary"]["ready"] == "0/0"
        await asyncio.sleep(EVICT_GRACE_SECONDS + 1)
        assert objects(plane, "prod-eu", namespace) == [f"persistentvolumeclaims/{claim}"]
        assert condition(await plane.describe("ModelDeployment", "chat", namespace), "Ready") == "True"

        await plane.delete("ModelDeployment", "chat", namespace)
        await plane.gone("ModelDeployment", "chat", namespace)
        await plane.until("ModelCache", "qwen", lambda seen: clusters_of(seen) == {}, namespace)
        assert objects(plane, "prod-eu", namespace) == []
        await clean_up(plane, "qwen", namespace)


async def a_deleted_cluster(tenant: Tenant) -> None:
    plane, namespace, repo = tenant.plane, tenant.namespace, tenant.repo
    async with a_spare_cluster(plane, namespace) as spare:
        name = spare["metadata"]["name"]
        await plane.apply(a_cache("qwen", namespace, repo, match={"spare": namespace}))
        await plane.ready("ModelCache", "qwen", namespace)
        await plane.delete("InferenceCluster", name)
        await plane.gone("InferenceCluster", name)
        assert objects(plane, "prod-eu", namespace) == []
        left = await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "ClustersMatched") == "NoClusters", namespace)
        assert clusters_of(left) == {}
        await clean_up(plane, "qwen", namespace)


async def test_a_forced_deletion_lists_what_it_leaves(plane: ControlPlane, namespace: str, repo: str) -> None:
    with no_room_for_jobs(plane, "prod-eu"):
        await plane.apply(a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu")))
        seen = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
        claim = clusters_of(seen)["prod-eu"]["claimName"]
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        plane.call("prod-eu", "PATCH", path, {"metadata": {"finalizers": ["test/hold"]}}, "application/merge-patch+json")
        handle = plane.handle("ModelCache", "qwen", namespace)
        await plane.delete("ModelCache", "qwen", namespace)
        await plane.until("ModelCache", "qwen", lambda seen: reason(seen, "Deleting") == "TearingDown", namespace)
        await handle.signal("force", {"by": "test", "scope": "step", "reason": "a test"})
        await plane.gone("ModelCache", "qwen", namespace)
        closed = await handle.query("describe")
        assert ("PersistentVolumeClaim", claim, "prod-eu") in {
            (left["kind"], left["name"], left["location"]) for left in closed["status"]["leftBehind"]
        }
        plane.call("prod-eu", "PATCH", path, {"metadata": {"finalizers": None}}, "application/merge-patch+json")
    plane.call("prod-eu", "DELETE", f"/apis/batch/v1/namespaces/{namespace}/jobs/{claim}-hyd")
    plane.call("prod-eu", "DELETE", path)


async def test_wkl_111_a_cache_that_was_terminated_and_is_applied_again_has_its_volume_back(
    plane: ControlPlane, namespace: str, repo: str
) -> None:
    """Of an earlier run in this Temporal namespace alone: another uid is that of another control plane (wkl-99 in test_staging.py)."""
    document = a_cache("qwen", namespace, repo, match=in_cluster(plane, "prod-eu"))
    with no_room_for_jobs(plane, "prod-eu"):
        await plane.apply(document)
        seen = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
        claim = clusters_of(seen)["prod-eu"]["claimName"]
        volume = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        job = f"/apis/batch/v1/namespaces/{namespace}/jobs/{claim}-hyd"
        before = {path: plane.get("prod-eu", path)["metadata"]["uid"] for path in (volume, job)}
        await plane.handle("ModelCache", "qwen", namespace).terminate("lost on purpose")
        await plane.apply(document)
        again = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
    assert again["metadata"]["uid"] != seen["metadata"]["uid"]
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert "Adopted" in {event["reason"] for event in ready["status"]["events"]}
    assert plane.get("prod-eu", volume)["metadata"]["uid"] == before[volume]
    await clean_up(plane, "qwen", namespace)


@pytest.mark.long
@pytest.mark.random
async def test_a_worker_that_dies_while_caches_are_staged_refreshed_and_deleted_changes_nothing(
    plane: ControlPlane, namespace: str, repo: str, hub: LocalHub
) -> None:
    chance = generator()
    match = in_cluster(plane, "prod-eu")
    for name in ("refreshed", "deleted"):
        await plane.apply(a_cache(name, namespace, repo, match=match))
    for name in ("refreshed", "deleted"):
        await plane.ready("ModelCache", name, namespace)
    commit = hub.repos[repo].branches["main"] = a_commit("second")
    await plane.apply(a_cache("staged", namespace, repo, match=match))
    await plane.apply(a_cache("refreshed", namespace, repo, match=match, refresh="1"))
    await plane.delete("ModelCache", "deleted", namespace)
    await asyncio.sleep(chance.uniform(0.1, 1.5))
    plane.worker.kill()
    await asyncio.to_thread(plane.worker.start)

    def is_staged(seen: Json) -> bool:
        rows = clusters_of(seen).values() if seen else []
        return [(row.get("revision"), row["phase"]) for row in rows] == [(commit, "Ready")]

    for name in ("staged", "refreshed"):
        await plane.until("ModelCache", name, is_staged, namespace)
    await plane.gone("ModelCache", "deleted", namespace)

    def volumes() -> int:
        return sum(name.startswith("persistentvolumeclaims/") for name in objects(plane, "prod-eu", namespace))

    await eventually(lambda: now(volumes), lambda count: count == 2, what="one volume for each cache that is left")
    for name in ("staged", "refreshed"):
        await plane.delete("ModelCache", name, namespace)
        await plane.gone("ModelCache", name, namespace)
    assert objects(plane, "prod-eu", namespace) == plane.our_objects("prod-eu", namespace) == []


async def an_image_by_tag(tenant: Tenant) -> None:
    plane, namespace = tenant.plane, tenant.namespace
    with local_registry() as registry:
        digest = registry.push("models/qwen:1.0", {"model.bin": b"w"})
        document = a_cache("pack", namespace, "", match=in_cluster(plane, "prod-eu"))
        image = {"image": f"{registry.host}/models/qwen:1.0", "sizeGiB": 20, "plainHTTP": True}
        document["spec"] = {**document["spec"], "source": "OCI", "oci": image}
        del document["spec"]["huggingFace"]
        await plane.apply(document)
        seen = await plane.ready("ModelCache", "pack", namespace)
    assert seen["status"]["resolvedRevision"] == digest
    assert clusters_of(seen)["prod-eu"]["revision"] == digest
    await clean_up(plane, "pack", namespace)


async def weights_of_pods(tenant: Tenant) -> None:
    """First an image, then volumes of pods: neither has an object of the cache, and pods go from one to the other."""
    plane, namespace = tenant.plane, tenant.namespace
    image = f"registry.acme.example/models/qwen@sha256:{'ab' * 32}"
    document = a_cache("pulled", namespace, "", match=in_cluster(plane, "prod-eu"))
    document["spec"] = {**document["spec"], "source": "OCI", "oci": {"image": image, "sizeGiB": 20}, "volume": {"image": True}}
    del document["spec"]["huggingFace"]
    await plane.apply(document)
    seen = await plane.ready("ModelCache", "pulled", namespace)
    assert clusters_of(seen)["prod-eu"]["message"] == f"nothing to stage: nodes pull {image}"
    await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "pulled"}))
    await plane.ready("ModelDeployment", "chat", namespace)

    def volumes() -> list[Json]:
        (engine,) = engines(plane, "prod-eu", namespace)
        found: list[Json] = engine["spec"]["template"]["spec"]["volumes"]
        return found

    assert [volume["image"]["reference"] for volume in volumes() if "image" in volume] == [image]
    document["spec"]["volume"] = {"nodeLocal": True, "storageClassName": STORAGE_CLASS}
    await plane.apply(document)
    await eventually(lambda: now(volumes), lambda found: any("ephemeral" in volume for volume in found), what="volumes of the pods")
    await plane.ready("ModelDeployment", "chat", namespace)
    assert objects(plane, "prod-eu", namespace) == []
    await plane.delete("ModelCache", "pulled", namespace)
    await plane.until("ModelCache", "pulled", lambda seen: reason(seen, "Deleting") == "InUse", namespace)
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await plane.gone("ModelCache", "pulled", namespace)


STORIES = {
    "wkl-61 wkl-62 wkl-87 wkl-98 engines wait for their cache and then hold it": engines_wait,
    "wkl-88 without clusters no token is needed": without_clusters,
    "wkl-101 a deployment and a cache that exclude each other leave no cluster": no_common_cluster,
    "wkl-90 a lost volume is filled again": a_lost_volume,
    "wkl-95 a refreshed branch reaches replicas one by one, and the old volume is deleted last": a_refreshed_branch,
    "wkl-96 wkl-97 a cluster keeps its volume without its storage class, and while a pod mounts it": a_cluster_without_its_storage_class,
    "a cluster that is deleted waits until caches have removed their volumes": a_deleted_cluster,
    "wkl-100 an image by tag is pinned to its digest": an_image_by_tag,
    "wkl-98 an image and volumes of pods have no object of their cache": weights_of_pods,
}


@pytest.fixture(scope="module")
async def stories(plane: ControlPlane, store: SecretStore, hub: LocalHub) -> AsyncIterator[dict[str, asyncio.Task[None]]]:
    """All of them side by side."""

    def tenant() -> Tenant:
        namespace = f"t-{uuid.uuid4().hex[:8]}"
        hub.repos[f"acme/{namespace}"] = Repo()
        return Tenant(plane, store, hub, namespace, f"acme/{namespace}")

    async with together(plane, {name: partial(scenario, tenant()) for name, scenario in STORIES.items()}) as begun:
        yield begun


# The last of this file: the tests above have the clusters for themselves.
@pytest.mark.parametrize("name", STORIES)
async def test_a_cache_beside_others(stories: dict[str, asyncio.Task[None]], name: str) -> None:
    await stories[name]
