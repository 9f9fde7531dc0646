"""One artifact on one real cluster: created, kept, filled again and deleted."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest
import pytest_asyncio

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import Json, ObjectId, Selection
from activities.secrets.store import StoredSecret
from api_types import labels
from api_types.errors import InvalidInput, NameConflict, StorageClassMissing
from api_types.messages.caches import AwaitCredential, EarlierClaim, SecretKey
from tests.activities.caches.staging import (
    SHARED,
    TOKEN,
    EndedRuns,
    a_storage_class,
    activities_on,
    an_order,
    apply,
    bound,
    environment,
    live,
    remove,
    removed,
    resized,
)
from tests.activities.environment.cluster_in_memory import cluster_in_memory, patch
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually
from tests.environment.waiting import TIMEOUT_SECONDS


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterUnderTest]:
    async with cluster_in_memory(tmp_path) as cluster:
        yield cluster


async def test_a_volume_and_its_job_are_created_once_and_deleted_completely(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    applied = await apply(cluster, order)
    again = await apply(cluster, order)
    assert (applied.job_uid, applied.claim, applied.volume_digest) == (
        again.job_uid,
        again.claim,
        again.volume_digest,
    )
    assert (
        applied.warnings,
        applied.credential_missing,
        applied.credential_version,
    ) == ([], "", "")
    volume = await bound(cluster, order, applied)
    assert volume["spec"]["accessModes"] == ["ReadWriteMany"]
    assert await remove(cluster, order, applied) == []
    for kind in (kinds.JOB, kinds.SECRET, kinds.VOLUME_CLAIM):
        assert await live(cluster, order, applied, kind) is None
    assert await remove(cluster, order, applied) == []


async def test_without_a_token_only_the_volume_is_created_and_of_the_secret_one_key_is_copied(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, hub_key="hub")
    held = await apply(cluster, order)
    assert held.job_uid == ""
    assert (
        f"Secret {order.namespace}/hub with key 'HF_TOKEN' does not exist"
        in held.credential_missing
    )
    assert await live(cluster, order, held, kinds.SECRET) is None
    await cluster.store.put(
        StoredSecret(
            order.namespace, "hub", {"HF_TOKEN": TOKEN.encode(), "other": b"private"}
        )
    )
    applied = await apply(cluster, order)
    assert applied.job_uid
    assert applied.credential_version
    assert TOKEN not in applied.model_dump_json()
    copied = await live(cluster, order, applied, kinds.SECRET)
    assert copied
    assert copied["data"] == {"HF_TOKEN": base64.b64encode(TOKEN.encode()).decode()}
    await remove(cluster, order, applied, 2)
    assert await live(cluster, order, applied, kinds.SECRET) is None
    assert await live(cluster, order, applied, kinds.JOB) is not None
    await remove(cluster, order, applied)


async def test_the_network_secrets_are_copied_once_complete_and_removed_with_the_token(
    cluster: ClusterUnderTest,
) -> None:
    hydration = {
        "proxy": {"urlSecret": {"name": "proxy", "key": "url"}},
        "caBundle": {"configMapKeyRef": {"name": "company-ca", "key": "bundle.pem"}},
        "imagePullSecrets": [{"name": "mirror"}],
    }
    plain = an_order(cluster, hub_key="hub")
    order = plain.model_copy(update={"spec": {**plain.spec, "hydration": hydration}})
    namespace, put = order.namespace, cluster.store.put
    await put(StoredSecret(namespace, "hub", {"HF_TOKEN": TOKEN.encode()}))
    await put(
        StoredSecret(
            namespace,
            "proxy",
            {
                "url": b"http://robot:" + TOKEN.encode() + b"@proxy:3128",
                "other": b"private",
            },
        )
    )
    held = await apply(cluster, order)
    assert (held.job_uid, held.credential_version) == ("", "")
    assert (
        f"ConfigMap {namespace}/company-ca with key 'bundle.pem' does not exist"
        in held.credential_missing
    )
    others = [
        SecretKey(name="proxy", key="url"),
        SecretKey(name="company-ca", key="bundle.pem"),
        SecretKey(name="mirror"),
    ]
    wait = AwaitCredential(
        namespace=namespace, name="hub", key="HF_TOKEN", others=others
    )
    waiting = asyncio.create_task(
        environment(cluster, wait).run(activities_on(cluster).await_credential, wait)
    )
    await put(
        StoredSecret(namespace, "company-ca", {"bundle.pem": b"PEM"}, kind="ConfigMap")
    )
    docker_type = "kubernetes.io/dockerconfigjson"
    await put(
        StoredSecret(
            namespace,
            "mirror",
            {".dockerconfigjson": b'{"auths": {}}'},
            type=docker_type,
        )
    )
    version = await asyncio.wait_for(waiting, TIMEOUT_SECONDS)
    applied = await apply(cluster, order)
    assert applied.job_uid
    assert applied.credential_version == version
    assert TOKEN not in applied.model_dump_json()
    api = await cluster.api()

    async def copies() -> dict[str, Json]:
        listed = await api.list(
            Selection(kinds.SECRET, namespace, f"{labels.CACHE}={applied.claim}")
        )
        return {
            item["metadata"]["name"].removeprefix(f"{applied.claim}-"): item
            for item in listed.items
        }

    found = await copies()
    assert {
        name: (copy["type"], sorted(copy["data"])) for name, copy in found.items()
    } == {
        "auth": ("Opaque", ["HF_TOKEN"]),
        "proxy": ("Opaque", ["url"]),
        "ca": ("Opaque", ["bundle.pem"]),
        "pull-0": (docker_type, [".dockerconfigjson"]),
    }
    assert base64.b64decode(found["ca"]["data"]["bundle.pem"]) == b"PEM"
    sources = {
        "auth": "Secret/hub",
        "proxy": "Secret/proxy",
        "ca": "ConfigMap/company-ca",
        "pull-0": "Secret/mirror",
    }
    assert {
        name: copy["metadata"]["annotations"][labels.SOURCE]
        for name, copy in found.items()
    } == sources
    # A corrected Secret is written for the same Job, with the version that the watch of
    # the cluster compares.
    await put(
        StoredSecret(
            namespace,
            "mirror",
            {".dockerconfigjson": b'{"auths": {"r": {}}}'},
            type=docker_type,
        )
    )
    assert (await apply(cluster, order)).job_uid == applied.job_uid
    corrected, source = (
        (await copies())["pull-0"],
        await cluster.store.describe(namespace, "mirror"),
    )
    assert source
    assert (
        base64.b64decode(corrected["data"][".dockerconfigjson"])
        == b'{"auths": {"r": {}}}'
    )
    assert corrected["metadata"]["annotations"][labels.SOURCE_VERSION] == source.version
    assert await remove(cluster, order, applied, 2) == []
    assert await copies() == {}
    await remove(cluster, order, applied)


@pytest.mark.slow
async def test_a_change_of_the_token_ends_the_wait(cluster: ClusterUnderTest) -> None:
    namespace = f"team-{secrets.token_hex(4)}"
    order = AwaitCredential(namespace=namespace, name="hub", key="HF_TOKEN")
    waiting = asyncio.create_task(
        environment(cluster, order).run(activities_on(cluster).await_credential, order)
    )
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await cluster.store.put(
        StoredSecret(namespace, "hub", {"HF_TOKEN": TOKEN.encode()})
    )
    version = await asyncio.wait_for(waiting, TIMEOUT_SECONDS)
    assert version
    assert TOKEN not in version


async def test_a_volume_that_cannot_be_expanded_or_change_its_class_is_kept_with_a_warning(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    applied = await apply(cluster, order)
    await bound(cluster, order, applied)
    grown = await apply(cluster, resized(order, 40))
    assert grown.warnings == [
        (
            f"ExpansionUnsupported: storage class {SHARED} does not allow expansion, "
            "the volume keeps 20Gi"
        )
    ]
    moved = await apply(
        cluster,
        order.model_copy(update={"storage_class_name": "another", "hydrate": False}),
    )
    assert moved.warnings == [
        f"the volume keeps storage class {SHARED}; another is used from the next artifact on"
    ]
    shrunk = await apply(cluster, resized(order, 10))
    assert shrunk.warnings == []
    volume = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
    assert volume
    assert (
        volume["spec"]["resources"]["requests"]["storage"],
        volume["spec"]["storageClassName"],
    ) == ("20Gi", SHARED)
    await remove(cluster, order, applied)


async def test_a_volume_keeps_its_access_mode_with_a_warning(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, hydrate=False)
    once = {
        **order.spec,
        "volume": {"accessMode": "ReadWriteOnce", "storageClassName": SHARED},
    }
    applied = await apply(cluster, order.model_copy(update={"spec": once}))
    assert applied.warnings == []
    volume = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
    assert volume
    assert volume["spec"]["accessModes"] == ["ReadWriteOnce"]
    again = await apply(cluster, order)
    assert again.warnings == [
        (
            "the volume keeps access mode ReadWriteOnce; ReadWriteMany is used from "
            "the next artifact on"
        )
    ]
    assert again.access_mode == "ReadWriteOnce"
    await remove(cluster, order, applied)


async def test_an_object_of_another_owner_is_neither_overwritten_nor_deleted(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    applied = await apply(cluster, order)
    other = order.model_copy(update={"uid": "uid-of-another"})
    with pytest.raises(
        NameConflict, match=f"belongs to ModelCache {order.namespace}/qwen"
    ):
        await apply(cluster, other)
    skipped = await remove(cluster, other, applied)
    assert len(skipped) == 2
    assert await live(cluster, order, applied, kinds.VOLUME_CLAIM) is not None
    await remove(cluster, order, applied)


async def test_an_apply_names_the_claims_that_ended_runs_of_the_cache_left(
    cluster: ClusterUnderTest,
) -> None:
    ended = an_order(cluster, hydrate=False)
    other_plane = ended.model_copy(
        update={"uid": "uid-elsewhere", "revision": "d" * 40}
    )
    other_cache = ended.model_copy(update={"name": "other", "revision": "e" * 40})
    present = ended.model_copy(update={"uid": "uid-now", "revision": "f" * 40})
    runs = EndedRuns({"r1": {"uid": ended.uid}, "r2": {"uid": other_cache.uid}})
    cluster.client = cast("Any", runs)
    left, *_ = [
        await apply(cluster, each) for each in (ended, other_plane, other_cache)
    ]
    applied = await apply(cluster, present)
    found = [EarlierClaim(claim=left.claim, uid=ended.uid)]
    assert applied.earlier == found
    # The last removal looks again.
    last = await removed(cluster, present, applied, search=True)
    assert last.earlier == found
    assert (await removed(cluster, ended, left, search=True)).earlier == []


async def test_an_apply_names_the_other_claims_of_a_cache_that_was_reset(
    cluster: ClusterUnderTest,
) -> None:
    forgotten = an_order(cluster, hydrate=False)
    present = forgotten.model_copy(update={"revision": "f" * 40})
    made = await apply(cluster, forgotten)
    applied = await apply(cluster, present)
    assert applied.earlier == [EarlierClaim(claim=made.claim, uid=forgotten.uid)]


async def test_an_apply_names_a_claim_of_which_only_the_job_exists(
    cluster: ClusterUnderTest,
) -> None:
    forgotten = an_order(cluster)
    made = await apply(cluster, forgotten)
    claim = ObjectId(kinds.VOLUME_CLAIM, forgotten.namespace, made.claim)
    await patch(cluster, claim, {"metadata": {"labels": {labels.MODEL_CACHE: None}}})
    present = forgotten.model_copy(update={"hydrate": False, "revision": "f" * 40})
    applied = await apply(cluster, present)
    assert applied.earlier == [EarlierClaim(claim=made.claim, uid=forgotten.uid)]


async def test_an_invalid_spec_is_refused_with_its_reason(
    cluster: ClusterUnderTest,
) -> None:
    with pytest.raises(InvalidInput, match="repo must be 'owner/name'"):
        await apply(
            cluster,
            an_order(
                cluster,
                spec={
                    "source": "HuggingFace",
                    "huggingFace": {"repo": "a b", "sizeGiB": 1},
                },
            ),
        )


async def test_a_cluster_without_a_class_is_refused(
    cluster: ClusterUnderTest,
) -> None:
    with pytest.raises(
        Exception, match="reports no storage class for caches"
    ) as caught:
        await apply(cluster, an_order(cluster, storage_class_name=""))
    assert type(caught.value).__name__ == "Unsupported"


async def test_a_missing_storage_class_is_named_before_a_claim_is_created(
    cluster: ClusterUnderTest,
) -> None:
    missing = f"slow-{secrets.token_hex(4)}"
    order = an_order(cluster, storage_class_name=missing)
    with pytest.raises(
        StorageClassMissing,
        match=f"cluster {cluster.name} has no StorageClass {missing}: .*of the InferenceCluster",
    ):
        await apply(cluster, order)
    by_cache = order.model_copy(
        update={"spec": {**order.spec, "volume": {"storageClassName": missing}}}
    )
    with pytest.raises(
        StorageClassMissing, match=r"spec.volume.storageClassName of the ModelCache"
    ):
        await apply(cluster, by_cache)
    claims = Selection(kinds.VOLUME_CLAIM, order.namespace)
    assert not (await (await cluster.api()).list(claims)).items
    async with a_storage_class(cluster, missing):
        applied = await apply(cluster, order)
    await remove(cluster, order, applied)


async def test_a_bound_volume_no_longer_needs_its_class(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    applied = await apply(cluster, order)
    before = await bound(cluster, order, applied)
    again = await apply(
        cluster,
        order.model_copy(update={"storage_class_name": f"slow-{secrets.token_hex(4)}"}),
    )
    assert "the volume keeps storage class" in "; ".join(again.warnings)
    after = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
    assert after
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    await remove(cluster, order, applied)


async def test_the_namespace_is_created_on_demand_and_kept_without_our_labels(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    applied = await apply(cluster, order)
    await remove(cluster, order, applied)
    namespace = await (await cluster.api()).get(
        ObjectId(kinds.NAMESPACE, "", order.namespace)
    )
    assert namespace
    assert (
        namespace["metadata"]["annotations"][labels.CREATED_FOR]
        == f"ModelCache {order.namespace}/qwen"
    )
    assert labels.MANAGED_BY not in namespace["metadata"]["labels"]


@pytest.mark.slow
async def test_the_objects_of_a_cache_are_watched_from_the_volume_to_the_last_pod(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    workflow_id = f"modelcache/{order.namespace}/qwen"
    async with cluster.watching() as client:
        applied = await apply(cluster, order)

        def staged() -> bool:
            notes = client.of(workflow_id)
            last = notes[-1].cache if notes else None
            return bool(
                last
                and [volume.phase for volume in last.volumes] == ["Bound"]
                and [job.state for job in last.jobs] == ["Complete"]
            )

        await eventually(staged)
        assert client.of(workflow_id)[-1].owner_uid == order.uid
        await remove(cluster, order, applied)
        await eventually(
            lambda: client.of(workflow_id)[-1].model_dump()["cache"]["volumes"] == []
        )
