"""Lives of caches: staged once, mounted by replicas that wait, and deleted only when no pod mounts
them.

Only a real Job and real pods show the rest: tests/workflows/model_cache/test_lifecycle.py.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from api_types.errors import CredentialsInvalid
from tests.simulation.lives.steady_fleet import (
    GRACE_SECONDS,
    SteadyFleet,
    a_cluster,
    in_virtual_time,
)
from tests.workflows.environment.caches import (
    clean_up,
    clusters_of,
    engines,
    in_cluster,
    mounted,
    no_room_for_jobs,
    now,
    objects,
)
from tests.workflows.environment.harness import (
    Json,
    a_cache,
    a_deployment,
    condition,
    eventually,
    message,
    reason,
)

HERE, THERE = "prod-eu", "prod-us"
REPO = "acme/qwen"
LATER = (3000.0, 3000.0)
"""Seconds, far beyond the waits of these tests."""
UNSCHEDULABLE = "unschedulable"


async def waits_for_room(plane: SteadyFleet, namespace: str) -> Json:
    """Wait until the download of the cache `qwen` waits for a node."""
    return await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: UNSCHEDULABLE in message(seen, "ArtifactReady"),
        namespace,
    )


def claims(plane: SteadyFleet, namespace: str, cluster: str = HERE) -> list[str]:
    """Name the volume claims of caches in a namespace."""
    found = objects(plane, cluster, namespace)
    prefix = "persistentvolumeclaims/"
    return [name.removeprefix(prefix) for name in found if name.startswith(prefix)]


async def until_claims(plane: SteadyFleet, namespace: str, *wanted: str) -> None:
    """Wait until exactly these volume claims are there."""
    await eventually(
        lambda: now(lambda: claims(plane, namespace)),
        lambda found: found == list(wanted),
        what=f"the volumes {wanted}",
    )


def events_of(seen: Json) -> set[str]:
    """Return the reasons of an object's events."""
    return {event["reason"] for event in seen["status"].get("events") or ()}


def claim_of(seen: Json, cluster: str = HERE) -> str:
    """Return the volume claim of a cache on a cluster."""
    found: str = clusters_of(seen)[cluster]["claimName"]
    return found


@in_virtual_time
async def test_every_cluster_stages_the_commit_that_the_branch_meant_once(
    plane: SteadyFleet, namespace: str
) -> None:
    hub = plane.world.parts.hub
    await plane.apply(a_cache("qwen", namespace, REPO))
    seen = await plane.ready("ModelCache", "qwen", namespace)
    commit = hub.commit(REPO)
    assert seen["status"]["summary"] == {"ready": "2/2"}
    assert {row["revision"] for row in clusters_of(seen).values()} == {commit}
    assert seen["status"]["resolvedRevision"] == commit
    verdicts = [
        reason(seen, kind) for kind in ("ArtifactReady", "RevisionPinned", "ClustersMatched")
    ]
    assert verdicts == ["Staged", "Resolved", "Matched"]
    left = {
        name: [f"persistentvolumeclaims/{claim_of(seen, name)}"] for name in plane.running.clusters
    }
    await eventually(
        lambda: now(lambda: {name: objects(plane, name, namespace) for name in left}),
        lambda found: found == left,
        what="everything but the volumes gone",
    )

    hub.moves += 1
    # The pass for another generation would resolve the revision if it were not pinned.
    here = in_cluster(plane, HERE)
    await plane.apply(a_cache("qwen", namespace, REPO, match=here))
    seen = await plane.until(
        "ModelCache", "qwen", lambda now: now["status"]["observedGeneration"] == 2, namespace
    )
    assert seen["status"]["resolvedRevision"] == commit
    await plane.apply(a_cache("qwen", namespace, REPO, match=here, refresh="now"))
    moved = hub.commit(REPO)
    await plane.until(
        "ModelCache", "qwen", lambda now: now["status"].get("resolvedRevision") == moved, namespace
    )
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_cache_without_clusters_needs_no_token(plane: SteadyFleet, namespace: str) -> None:
    document = a_cache(
        "far", namespace, REPO, match={"tier": "none-such"}, authSecret={"name": "none"}
    )
    await plane.apply(document)
    seen = await plane.until(
        "ModelCache", "far", lambda seen: reason(seen, "ArtifactReady") == "NoClusters", namespace
    )
    assert (reason(seen, "ClustersMatched"), seen["status"]["summary"]["ready"]) == (
        "NoClusters",
        "0/0",
    )
    assert "AuthSecretMissing" not in {event["reason"] for event in seen["status"]["events"]}
    await clean_up(plane, "far", namespace)


@in_virtual_time
async def test_a_deployment_and_a_cache_that_exclude_each_other_leave_no_cluster(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    elsewhere = {"matchLabels": in_cluster(plane, THERE)}
    await plane.apply(
        a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}, clusterSelector=elsewhere)
    )
    seen = await plane.until(
        "ModelDeployment",
        "chat",
        lambda seen: reason(seen, "ReplicasScheduled") == "NoClusters",
        namespace,
    )
    assert condition(seen, "ModelCacheResolved") == "True"
    assert "outside ModelCache qwen's footprint" in message(seen, "ReplicasScheduled")
    assert "didn't match clusterSelector" in message(seen, "ReplicasScheduled")
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await clean_up(plane, "qwen", namespace)


def since(seen: Json, kind: str) -> str:
    """Return when a condition last changed."""
    found: str = next(
        item["lastTransitionTime"] for item in seen["status"]["conditions"] if item["type"] == kind
    )
    return found


@in_virtual_time
async def test_a_lost_volume_is_filled_again(plane: SteadyFleet, namespace: str) -> None:
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    before = await plane.ready("ModelCache", "qwen", namespace)
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_of(before)}"
    volume = plane.get(HERE, path)["metadata"]["uid"]
    plane.call(HERE, "DELETE", path)
    await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: "VolumeLost" in {event["reason"] for event in seen["status"]["events"]},
        namespace,
    )
    after = await plane.ready("ModelCache", "qwen", namespace)
    assert since(after, "Ready") > since(before, "Ready")
    assert clusters_of(after)[HERE]["attempts"] == 2
    assert plane.get(HERE, path)["metadata"]["uid"] != volume
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_refreshed_branch_reaches_replicas_one_by_one_and_the_old_volume_is_deleted_last(
    plane: SteadyFleet, namespace: str
) -> None:
    here, hub = in_cluster(plane, HERE), plane.world.parts.hub
    await plane.apply(a_cache("qwen", namespace, REPO, match=here))
    first = claim_of(await plane.ready("ModelCache", "qwen", namespace))
    await plane.apply(a_deployment("chat", namespace, replicas=2, modelCacheRef={"name": "qwen"}))
    await plane.ready("ModelDeployment", "chat", namespace)
    assert [mounted(engine) for engine in engines(plane, HERE, namespace)] == [[first], [first]]

    hub.moves += 1
    await plane.apply(a_cache("qwen", namespace, REPO, match=here, refresh="1"))
    fewest, both_volumes = 2, False

    async def sample() -> list[str]:
        nonlocal fewest, both_volumes
        if deployment := await plane.describe("ModelDeployment", "chat", namespace):
            fewest = min(fewest, deployment["status"]["replicas"]["ready"])
        both_volumes = both_volumes or len(claims(plane, namespace)) == 2
        return claims(plane, namespace)

    (second,) = await eventually(
        sample, lambda found: found not in ([first], []) and len(found) == 1, longest_pause=0.3
    )
    assert (both_volumes, fewest) == (True, 1)
    seen = await plane.ready("ModelCache", "qwen", namespace)
    assert (claim_of(seen), seen["status"]["resolvedRevision"]) == (second, hub.commit(REPO))
    await plane.ready("ModelDeployment", "chat", namespace)
    assert [mounted(engine) for engine in engines(plane, HERE, namespace)] == [[second], [second]]
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_caches_of_equal_name_in_two_namespaces_do_not_touch_each_other(
    plane: SteadyFleet, namespace: str
) -> None:
    other = f"{namespace}-other"
    for tenant in (namespace, other):
        await plane.apply(a_cache("qwen", tenant, REPO))
    seen = [await plane.ready("ModelCache", "qwen", tenant) for tenant in (namespace, other)]
    keys = {clusters_of(each)[HERE]["artefactKey"] for each in seen}
    assert (len(keys), claim_of(seen[0]) != claim_of(seen[1])) == (1, True)
    await clean_up(plane, "qwen", namespace)
    assert claim_of(await plane.ready("ModelCache", "qwen", other)) == claim_of(seen[1])
    await clean_up(plane, "qwen", other)


@asynccontextmanager
async def a_spare_cluster(plane: SteadyFleet) -> AsyncIterator[Json]:
    """Another record of the first cluster, which the body may change and delete."""
    document = a_cluster("spare", of=HERE, taints=[{"key": "spare", "effect": "NoSchedule"}])
    document["metadata"]["labels"] = {"spare": "yes"}
    await plane.apply(document)
    await plane.ready("InferenceCluster", "spare")
    await plane.shown()
    yield document
    if await plane.describe("InferenceCluster", "spare"):
        await plane.delete("InferenceCluster", "spare")
        await plane.gone("InferenceCluster", "spare")


@in_virtual_time
async def test_a_cluster_keeps_its_volume_without_its_storage_class_and_while_a_pod_mounts_it(
    plane: SteadyFleet, namespace: str
) -> None:
    async with a_spare_cluster(plane) as spare:
        await plane.apply(a_cache("qwen", namespace, REPO, match={"spare": "yes"}))
        claim = claim_of(await plane.ready("ModelCache", "qwen", namespace), "spare")
        tolerations = [{"key": "spare", "operator": "Exists"}]
        await plane.apply(
            a_deployment("chat", namespace, modelCacheRef={"name": "qwen"}, tolerations=tolerations)
        )
        await plane.ready("ModelDeployment", "chat", namespace)

        without_class = copy.deepcopy(spare)
        del without_class["spec"]["cluster"]["existing"]["cache"]
        await plane.apply(without_class)
        noted = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: "no storage class" in clusters_of(seen)["spare"].get("message", ""),
            namespace,
        )
        assert (condition(noted, "Ready"), noted["status"]["summary"]["ready"]) == ("True", "1/1")

        # The storage class is declared again, and the cache no longer selects the cluster.
        relabelled = copy.deepcopy(spare)
        relabelled["metadata"]["labels"] = {"spare": "no"}
        await plane.apply(relabelled)
        retained = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: clusters_of(seen)["spare"].get("retained", False),
            namespace,
        )
        assert retained["status"]["summary"]["ready"] == "0/0"
        await asyncio.sleep(GRACE_SECONDS + 60)
        assert objects(plane, HERE, namespace) == [f"persistentvolumeclaims/{claim}"]
        chat = await plane.describe("ModelDeployment", "chat", namespace)
        assert condition(chat, "Ready") == "True"

        await plane.delete("ModelDeployment", "chat", namespace)
        await plane.gone("ModelDeployment", "chat", namespace)
        await plane.until("ModelCache", "qwen", lambda seen: clusters_of(seen) == {}, namespace)
        assert objects(plane, HERE, namespace) == []
        await clean_up(plane, "qwen", namespace)


@pytest.mark.parametrize("staged", [True, False], ids=["has staged", "stages"])
@in_virtual_time
async def test_a_cluster_that_is_deleted_waits_until_a_cache_that_it_has_removed_its_volume(
    plane: SteadyFleet, namespace: str, staged: bool
) -> None:
    async with a_spare_cluster(plane):
        if staged:
            await plane.apply(a_cache("qwen", namespace, REPO, match={"spare": "yes"}))
            await plane.ready("ModelCache", "qwen", namespace)
            await plane.delete("InferenceCluster", "spare")
            await plane.gone("InferenceCluster", "spare")
        else:
            with no_room_for_jobs(plane, HERE):
                await plane.apply(a_cache("qwen", namespace, REPO, match={"spare": "yes"}))
                await waits_for_room(plane, namespace)
                await plane.delete("InferenceCluster", "spare")
                plane.kill_worker()
                await plane.gone("InferenceCluster", "spare")
        assert objects(plane, HERE, namespace) == []
        left = await plane.until(
            "ModelCache",
            "qwen",
            lambda seen: reason(seen, "ClustersMatched") == "NoClusters",
            namespace,
        )
        said = "no InferenceCluster has the labels of clusterSelector: spare=yes"
        assert (message(left, "ClustersMatched"), clusters_of(left)) == (said, {})
        await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_forced_deletion_lists_its_leftovers(plane: SteadyFleet, namespace: str) -> None:
    with no_room_for_jobs(plane, HERE):
        await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
        claim = claim_of(await waits_for_room(plane, namespace))
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        plane.call(HERE, "PATCH", path, {"metadata": {"finalizers": ["test/hold"]}})
        await plane.delete("ModelCache", "qwen", namespace)
        await plane.until(
            "ModelCache", "qwen", lambda seen: reason(seen, "Deleting") == "TearingDown", namespace
        )
        handle = plane.handle("ModelCache", "qwen", namespace)
        await handle.signal("keep", {"by": "test"})
        await plane.until(
            "ModelCache", "qwen", lambda seen: "KeepRefused" in events_of(seen), namespace
        )
        await handle.signal("force", {"by": "test", "scope": "step", "reason": "a test"})
        await plane.gone("ModelCache", "qwen", namespace)
        closed = await handle.query("describe")
        left = [
            (each["kind"], each["name"], each["location"])
            for each in closed["status"]["leftBehind"]
        ]
        assert ("PersistentVolumeClaim", claim, HERE) in left
        plane.call(HERE, "PATCH", path, {"metadata": {"finalizers": None}})


@in_virtual_time
async def test_a_cache_that_was_terminated_and_is_applied_again_has_its_volume_back(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE))
    with no_room_for_jobs(plane, HERE):
        await plane.apply(document)
        seen = await waits_for_room(plane, namespace)
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_of(seen)}"
        before = plane.get(HERE, path)["metadata"]["uid"]
        await plane.handle("ModelCache", "qwen", namespace).terminate("lost on purpose")
        await plane.apply(document)
        again = await waits_for_room(plane, namespace)
    assert again["metadata"]["uid"] != seen["metadata"]["uid"]
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert "Adopted" in events_of(ready)
    assert plane.get(HERE, path)["metadata"]["uid"] == before
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_cluster_that_never_answered_is_listed_with_possible_leftovers(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    await plane.ready("ModelCache", "qwen", namespace)
    cache = plane.handle("ModelCache", "qwen", namespace)
    await cache.terminate("lost on purpose")
    plane.silence(f"inferencecluster/{HERE}", seconds=300.0)
    await plane.apply(a_cache("qwen", namespace, "acme/other", match=in_cluster(plane, HERE)))
    await plane.until(
        "ModelCache", "qwen", lambda seen: reason(seen, "ClustersMatched") != "", namespace
    )
    await plane.delete("ModelCache", "qwen", namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    (left,) = (await cache.query("describe"))["status"]["leftBehind"]
    assert (left["kind"], left["name"], left["namespace"], left["location"]) == (
        "label",
        "modelplane.ai/modelcache=qwen",
        namespace,
        HERE,
    )


@in_virtual_time
async def test_objects_of_a_terminated_cache_that_cannot_be_taken_over_are_listed(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE))
    with no_room_for_jobs(plane, HERE):
        await plane.apply(document)
        claim = claim_of(await waits_for_room(plane, namespace))
        cache = plane.handle("ModelCache", "qwen", namespace)
        await cache.terminate("lost on purpose")
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}"
        marks = plane.get(HERE, path)["metadata"]["labels"]
        plane.call(HERE, "PATCH", path, {"metadata": {"labels": dict.fromkeys(marks)}})
        await plane.apply(document)
        await plane.until(
            "ModelCache", "qwen", lambda seen: "NameConflict" in events_of(seen), namespace
        )
        await plane.delete("ModelCache", "qwen", namespace)
        await plane.gone("ModelCache", "qwen", namespace)
    (left,) = (await cache.query("describe"))["status"]["leftBehind"]
    assert (left["kind"], left["name"], left["location"]) == (
        "label",
        "modelplane.ai/modelcache=qwen",
        HERE,
    )


@in_virtual_time
async def test_a_cluster_that_answers_later_is_not_listed(
    plane: SteadyFleet, namespace: str
) -> None:
    plane.silence(f"inferencecluster/{HERE}", seconds=300.0)
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    await plane.ready("ModelCache", "qwen", namespace)
    cache = plane.handle("ModelCache", "qwen", namespace)
    await plane.delete("ModelCache", "qwen", namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    assert "leftBehind" not in (await cache.query("describe"))["status"]


@in_virtual_time
async def test_an_image_by_tag_is_pinned_to_its_digest(plane: SteadyFleet, namespace: str) -> None:
    document = a_cache("pack", namespace, "", match=in_cluster(plane, HERE))
    image = {"image": "registry.example/models/qwen:1.0", "sizeGiB": 20}
    document["spec"] = {**document["spec"], "source": "OCI", "oci": image}
    del document["spec"]["huggingFace"]
    await plane.apply(document)
    seen = await plane.ready("ModelCache", "pack", namespace)
    digest = seen["status"]["resolvedRevision"]
    assert digest.startswith("sha256:")
    assert clusters_of(seen)[HERE]["revision"] == digest
    await clean_up(plane, "pack", namespace)


@in_virtual_time
async def test_an_image_and_volumes_of_pods_have_no_object_of_their_cache(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_cache("pulled", namespace, "", match=in_cluster(plane, HERE))
    repository = "registry.example/models/qwen"
    source = {"source": "OCI", "oci": {"image": f"{repository}:1.0", "sizeGiB": 20}}
    document["spec"] = {**document["spec"], **source, "volume": {"image": True}}
    del document["spec"]["huggingFace"]
    await plane.apply(document)
    seen = await plane.ready("ModelCache", "pulled", namespace)
    image = f"{repository}@{seen['status']['resolvedRevision']}"
    assert clusters_of(seen)[HERE]["message"] == f"nothing to stage: nodes pull {image}"
    await plane.apply(a_deployment("chat", namespace, modelCacheRef={"name": "pulled"}))
    await plane.ready("ModelDeployment", "chat", namespace)

    def volumes() -> list[Json]:
        (engine,) = engines(plane, HERE, namespace)
        found: list[Json] = engine["spec"]["template"]["spec"]["volumes"]
        return found

    images = [volume["image"]["reference"] for volume in volumes() if "image" in volume]
    assert images == [image]
    document["spec"]["volume"] = {"nodeLocal": True, "storageClassName": "rwx"}
    await plane.apply(document)
    await eventually(
        lambda: now(volumes),
        lambda found: any("ephemeral" in volume for volume in found),
        what="volumes of the pods",
    )
    await plane.ready("ModelDeployment", "chat", namespace)
    assert objects(plane, HERE, namespace) == []
    await plane.delete("ModelCache", "pulled", namespace)
    await plane.until(
        "ModelCache", "pulled", lambda seen: reason(seen, "Deleting") == "InUse", namespace
    )
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await plane.gone("ModelCache", "pulled", namespace)


@in_virtual_time
async def test_a_replica_follows_the_caches_of_its_adapters(
    plane: SteadyFleet, namespace: str
) -> None:
    deployment = a_deployment("chat", namespace, modelCacheRef={"name": "qwen"})
    for engine in deployment["spec"]["template"]["spec"]["engines"]:
        engine["adapters"] = [{"name": "support", "modelCacheRef": {"name": "lora"}}]
    await plane.apply(a_cache("qwen", namespace, REPO))
    await plane.ready("ModelCache", "qwen", namespace)
    await plane.apply(deployment)
    await plane.until(
        "ModelDeployment",
        "chat",
        lambda seen: "ModelCache lora not found" in str(seen.get("status")),
        namespace,
    )
    # The replica may be on any cluster, the model as well: the adapter decides.
    await plane.apply(a_cache("lora", namespace, "acme/lora", match=in_cluster(plane, HERE)))
    ready = await plane.ready("ModelDeployment", "chat", namespace)
    (placement,) = ready["status"]["placements"]
    assert placement["cluster"] == HERE
    caches = [await plane.describe("ModelCache", name, namespace) for name in ("qwen", "lora")]
    (engine,) = engines(plane, HERE, namespace)
    assert mounted(engine) == [claim_of(each) for each in caches]

    await plane.delete("ModelCache", "lora", namespace)
    used = await plane.until(
        "ModelCache", "lora", lambda seen: reason(seen, "Deleting") == "InUse", namespace
    )
    assert placement["replica"] in message(used, "Deleting")
    await plane.handle("ModelCache", "lora", namespace).signal("keep", {"by": "test"})
    await plane.until(
        "ModelCache", "lora", lambda seen: "deletionTimestamp" not in seen["metadata"], namespace
    )
    await plane.ready("ModelCache", "lora", namespace)
    await plane.delete("ModelCache", "lora", namespace)
    await plane.delete("ModelDeployment", "chat", namespace)
    await plane.gone("ModelDeployment", "chat", namespace)
    await plane.gone("ModelCache", "lora", namespace)
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_cache_that_is_deleted_and_applied_again_while_it_stages_has_one_volume(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE))
    with no_room_for_jobs(plane, HERE):
        for seconds, dies in ((0.1, False), (0.7, True), (1.9, False)):
            await plane.apply(document)
            await asyncio.sleep(seconds)
            await plane.delete("ModelCache", "qwen", namespace)
            if dies:
                await asyncio.sleep(seconds)
                plane.kill_worker()
            await plane.gone("ModelCache", "qwen", namespace)
            assert objects(plane, HERE, namespace) == []
        await plane.apply(document)
        uid = (await waits_for_room(plane, namespace))["metadata"]["uid"]
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert ready["metadata"]["uid"] == uid
    assert claims(plane, namespace) == [claim_of(ready)]
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_another_revision_replaces_a_download_that_runs(
    plane: SteadyFleet, namespace: str
) -> None:
    def revision(name: str) -> Json:
        return a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE), revision=name)

    with no_room_for_jobs(plane, HERE):
        await plane.apply(revision("main"))
        first = claim_of(await waits_for_room(plane, namespace))
        await plane.apply(revision("next"))
        plane.kill_worker()
        await eventually(
            lambda: now(lambda: claims(plane, namespace)),
            lambda found: len(found) == 1 and found != [first],
            what="the volume of the other revision alone",
        )
        # And back, before the other one is complete.
        await plane.apply(revision("main"))
        await until_claims(plane, namespace, first)
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert clusters_of(ready)[HERE]["revision"] == ready["status"]["resolvedRevision"]
    assert claim_of(ready) == first
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_of_two_deployments_with_one_cache_the_one_that_stays_keeps_its_volume(
    plane: SteadyFleet, namespace: str
) -> None:
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    for name in ("one", "two"):
        await plane.apply(a_deployment(name, namespace, modelCacheRef={"name": "qwen"}))
    for name in ("one", "two"):
        await plane.ready("ModelDeployment", name, namespace)
    claim = claim_of(await plane.ready("ModelCache", "qwen", namespace))
    await plane.delete("ModelDeployment", "one", namespace)
    await plane.delete("ModelCache", "qwen", namespace)
    plane.kill_worker()
    await plane.gone("ModelDeployment", "one", namespace)
    await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: "ModelReplica two-" in message(seen, "Deleting"),
        namespace,
    )
    assert claims(plane, namespace) == [claim]
    assert [mounted(engine) for engine in engines(plane, HERE, namespace)] == [[claim]]
    await plane.delete("ModelDeployment", "two", namespace)
    await plane.gone("ModelDeployment", "two", namespace)
    await plane.gone("ModelCache", "qwen", namespace)
    assert plane.our_objects(HERE, namespace) == []


def a_storage_class(name: str) -> Json:
    """Return a storage class."""
    metadata = {"name": name}
    kind = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass"}
    return {**kind, "metadata": metadata, "provisioner": "test/none"}


@in_virtual_time
async def test_a_missing_storage_class_is_named_and_one_that_appears_or_disappears_is_followed(
    plane: SteadyFleet, namespace: str
) -> None:
    document = a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE))
    document["spec"]["volume"] = {"storageClassName": "slow"}
    await plane.apply(document)
    named = f"cluster {HERE} has no StorageClass slow"
    await plane.until(
        "ModelCache", "qwen", lambda seen: named in message(seen, "ArtifactReady"), namespace
    )
    assert claims(plane, namespace) == []
    behaviour = plane.server(HERE).behaviour
    binds, behaviour.bind = behaviour.bind, LATER
    path = "/apis/storage.k8s.io/v1/storageclasses"
    plane.call(HERE, "POST", path, a_storage_class("slow"))
    unbound = "of storage class slow is not bound"
    await plane.until(
        "ModelCache", "qwen", lambda seen: unbound in message(seen, "ArtifactReady"), namespace
    )
    behaviour.bind = binds
    plane.call(HERE, "DELETE", f"{path}/slow")
    document["spec"]["volume"] = {"storageClassName": "rwx"}
    await plane.apply(document)
    claim = claim_of(await plane.ready("ModelCache", "qwen", namespace, within=2 * LATER[0]))
    volume = plane.get(HERE, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim}")
    assert volume["spec"]["storageClassName"] == "rwx"
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_while_the_hub_does_not_answer_nothing_is_staged_and_then_the_commit_everywhere(
    plane: SteadyFleet, namespace: str
) -> None:
    hub = plane.world.parts.hub
    hub.strikes = lambda _name, _subject: True
    await plane.apply(a_cache("qwen", namespace, REPO))
    seen = await plane.until(
        "ModelCache",
        "qwen",
        lambda seen: "attempt 3 of 7" in message(seen, "RevisionPinned"),
        namespace,
    )
    hub.strikes = lambda _name, _subject: False
    assert reason(seen, "RevisionPinned") == "Unresolved"
    assert "resolved again at 20" in message(seen, "RevisionPinned")
    assert [claims(plane, namespace, cluster) for cluster in (HERE, THERE)] == [[], []]
    ready = await plane.ready("ModelCache", "qwen", namespace)
    commit = hub.commit(REPO)
    assert (reason(ready, "RevisionPinned"), ready["status"]["resolvedRevision"]) == (
        "Resolved",
        commit,
    )
    assert {row["revision"] for row in clusters_of(ready).values()} == {commit}
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_if_the_hub_rejects_the_control_plane_the_first_volume_determines_the_commit(
    plane: SteadyFleet, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub = plane.world.parts.hub

    async def refuse(*_: object) -> str:
        raise CredentialsInvalid(f"{REPO}: access is restricted")

    monkeypatch.setattr(hub, "resolve", refuse)
    with no_room_for_jobs(plane, HERE):
        await plane.apply(a_cache("qwen", namespace, REPO, revision="main"))
        waiting = await waits_for_room(plane, namespace)
        assert f"waits for {HERE}" in clusters_of(waiting)[THERE]["message"]
        assert reason(waiting, "RevisionPinned") == "Unresolved"
        assert claims(plane, namespace, THERE) == []
    commit = "b" * 40
    plane.server(HERE).behaviour.staged = lambda _pod: commit
    ready = await plane.ready("ModelCache", "qwen", namespace)
    assert (reason(ready, "RevisionPinned"), ready["status"]["resolvedRevision"]) == (
        "Resolved",
        commit,
    )
    assert {row["revision"] for row in clusters_of(ready).values()} == {commit}
    assert claim_of(ready, HERE) != claim_of(ready, THERE)
    assert [len(claims(plane, namespace, cluster)) for cluster in (HERE, THERE)] == [1, 1]
    await clean_up(plane, "qwen", namespace)


@in_virtual_time
async def test_a_new_cache_finds_a_cluster_that_visibility_lists_a_moment_later(
    plane: SteadyFleet, namespace: str
) -> None:
    """Visibility may show the end of a run before it shows the run that continues it."""
    shown = plane.world.server.rows
    cluster = f"inferencecluster/{HERE}"
    hidden = {run: row for run, row in shown.items() if row.workflow_id == cluster}
    for run in hidden:
        del shown[run]
    await plane.apply(a_cache("qwen", namespace, REPO, match=in_cluster(plane, HERE)))
    await plane.until(
        "ModelCache", "qwen", lambda seen: reason(seen, "ClustersMatched") != "", namespace
    )
    shown.update(hidden)
    await plane.until(
        "ModelCache", "qwen", lambda seen: condition(seen, "ClustersMatched") == "True", namespace
    )
    await clean_up(plane, "qwen", namespace)
