"""Claims of caches on a real API server.

It normalizes sizes, binds, expands and protects claims, and knows their classes.
"""

import asyncio
import secrets

import pytest

from activities.caches.activities import CacheActivities
from activities.clients.kubernetes.pool import KubernetesPool
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import GroupVersionKind, ObjectId
from activities.render.inputs.settings import RenderSettings
from api_types.errors import ServerError, StorageClassMissing
from api_types.sections.clusters import KubeconfigSettings
from tests.activities.caches.staging import (
    SHARED,
    a_storage_class,
    an_order,
    apply,
    awaited,
    bound,
    environment,
    live,
    remove,
    resized,
)
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually
from tests.activities.environment.operator import patch

pytestmark = pytest.mark.testbed("shared")


async def test_a_size_that_the_server_normalized_is_compared_by_value(
    cluster: ClusterUnderTest,
) -> None:
    """1024Gi is stored as 1Ti.

    The API server would reject a growth that the class does not allow.
    """
    order = an_order(cluster, 1024)
    applied = await apply(cluster, order)
    stored = await bound(cluster, order, applied)
    assert stored["spec"]["resources"]["requests"]["storage"] == "1Ti"
    assert (await apply(cluster, resized(order, 1024))).warnings == []
    grown = await apply(cluster, resized(order, 2000))
    assert grown.warnings == [
        (
            f"ExpansionUnsupported: storage class {SHARED} does not allow expansion, "
            "the volume keeps 1Ti"
        )
    ]
    assert (
        await apply(cluster, resized(order, 20))
    ).volume_digest == grown.volume_digest
    await remove(cluster, order, applied)


async def test_a_volume_of_an_expandable_class_is_expanded_once_it_is_bound(
    cluster: ClusterUnderTest,
) -> None:
    api = await cluster.api()
    name = f"growing-{secrets.token_hex(4)}"
    order = an_order(cluster, storage_class_name=name)
    growing = {
        "apiVersion": kinds.STORAGE_CLASS.api_version,
        "kind": "StorageClass",
        "metadata": {"name": name},
        "provisioner": "test/none",
        "allowVolumeExpansion": True,
    }
    await api.create(growing)
    applied = await apply(cluster, order)
    with pytest.raises(
        ServerError, match="it can be expanded to 40Gi when it is Bound"
    ):
        await apply(cluster, resized(order, 40))
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "50Gi"},
            "accessModes": ["ReadWriteMany"],
            "storageClassName": name,
            "hostPath": {"path": "/nowhere"},
            "claimRef": {"namespace": order.namespace, "name": applied.claim},
        },
    }
    await api.create(volume)
    await bound(cluster, order, applied)
    assert (await apply(cluster, resized(order, 40))).warnings == []
    claim = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
    assert claim
    assert claim["spec"]["resources"]["requests"]["storage"] == "40Gi"
    await remove(cluster, order, applied)
    for kind in (GroupVersionKind("v1", "PersistentVolume"), kinds.STORAGE_CLASS):
        await api.delete(ObjectId(kind, "", name), propagation="Background")


async def test_a_volume_that_a_user_deletes_is_created_again_when_it_is_gone(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, hydrate=False)
    applied = await apply(cluster, order)
    target = ObjectId(kinds.VOLUME_CLAIM, order.namespace, applied.claim)
    before = await bound(cluster, order, applied)
    await patch(cluster, target, {"metadata": {"finalizers": ["test/hold"]}})
    await (await cluster.api()).delete(target, propagation="Background")
    applying = asyncio.create_task(apply(cluster, order))
    await asyncio.sleep(0.5)
    assert not applying.done()
    await patch(cluster, target, {"metadata": {"finalizers": None}})
    await applying
    after = await live(cluster, order, applied, kinds.VOLUME_CLAIM)
    assert after
    assert after["metadata"]["uid"] != before["metadata"]["uid"]
    await remove(cluster, order, applied)


async def test_an_apply_that_waits_for_the_deletion_of_a_claim_releases_its_turn(
    cluster: ClusterUnderTest,
) -> None:
    order, other = an_order(cluster, hydrate=False), an_order(cluster, hydrate=False)
    applied = await apply(cluster, order)
    target = ObjectId(kinds.VOLUME_CLAIM, order.namespace, applied.claim)
    await patch(cluster, target, {"metadata": {"finalizers": ["test/hold"]}})
    await (await cluster.api()).delete(target, propagation="Background")
    pool = KubernetesPool(
        cluster.store, KubeconfigSettings(allow_loopback=True), applies_at_once=1
    )
    staging = CacheActivities(pool, cluster.store, RenderSettings())
    cluster.heartbeats.clear()
    waiting = asyncio.create_task(
        environment(cluster, order).run(staging.apply_cache, order)
    )
    await eventually(lambda: awaited(cluster, target))
    await remove(
        cluster,
        other,
        await asyncio.wait_for(
            environment(cluster, other).run(staging.apply_cache, other), 60
        ),
    )
    assert not waiting.done()
    await patch(cluster, target, {"metadata": {"finalizers": None}})
    await remove(cluster, order, await waiting)
    await pool.close()


async def test_a_claim_of_a_deleted_class_is_recreated_with_the_present_class(
    cluster: ClusterUnderTest,
) -> None:
    former = f"slow-{secrets.token_hex(4)}"
    order = an_order(cluster, storage_class_name=former)
    async with a_storage_class(cluster, former):
        first = await apply(cluster, order)
        kept = await apply(
            cluster, order.model_copy(update={"storage_class_name": SHARED})
        )
        assert kept.volume_digest == first.volume_digest, (
            "while the class is there, its volume may come"
        )
    with pytest.raises(StorageClassMissing, match=former):
        await apply(cluster, order)
    second = await apply(
        cluster, order.model_copy(update={"storage_class_name": SHARED})
    )
    assert second.job_uid not in ("", first.job_uid)
    assert (await bound(cluster, order, second))["spec"]["storageClassName"] == SHARED
    await remove(cluster, order, second)
