"""The Job that fills the volume of a cache, on a real cluster."""

import asyncio
import base64
import secrets
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from activities.caches.activities import CacheActivities
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId, Selection
from activities.render.inputs.settings import RenderSettings
from activities.secrets.store import StoredSecret
from api_types import labels
from api_types.errors import CredentialsInvalid
from api_types.messages.caches import ApplyCache, CacheApplied
from tests.activities.caches.staging import (
    an_order,
    apply,
    awaited,
    bound,
    environment,
    is_gone,
    live,
    remove,
)
from tests.activities.environment.cluster_in_memory import cluster_in_memory, patch
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually
from tests.environment.waiting import TIMEOUT_SECONDS


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ClusterUnderTest]:
    async with cluster_in_memory(tmp_path) as cluster:
        yield cluster


async def test_a_failed_job_is_replaced_for_the_next_attempt_and_any_other_is_kept(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    second = await apply(
        cluster, order.model_copy(update={"failed_job_uid": first.job_uid})
    )
    assert second.job_uid not in ("", first.job_uid)
    # The result was lost and the step is repeated: the new Job is not the spent one.
    assert (
        await apply(cluster, order.model_copy(update={"failed_job_uid": first.job_uid}))
    ).job_uid == second.job_uid
    await remove(cluster, order, second)


async def test_a_job_that_would_be_different_is_replaced_but_not_for_a_generation_alone(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    assert (
        await apply(cluster, order.model_copy(update={"generation": 2}))
    ).job_uid == first.job_uid
    queued = await apply(cluster, order.model_copy(update={"scheduler_type": "kai"}))
    assert queued.job_uid not in ("", first.job_uid)
    await remove(cluster, order, queued)


async def test_a_job_pulls_its_image_with_the_platforms_secret_which_goes_when_it_is_done(
    cluster: ClusterUnderTest,
) -> None:
    name = f"robot-{secrets.token_hex(4)}"
    order = an_order(cluster)
    settings = RenderSettings(pull_secrets=(name,))
    staging = CacheActivities(cluster.pool, cluster.store, settings)
    with pytest.raises(
        CredentialsInvalid, match=f"Secret modelplane-system/{name} does not exist"
    ):
        await environment(cluster, order).run(staging.apply_cache, order)
    content = {".dockerconfigjson": b"{}"}
    await cluster.store.put(
        StoredSecret(
            labels.SYSTEM_NAMESPACE,
            name,
            content,
            type="kubernetes.io/dockerconfigjson",
        )
    )
    applied = await environment(cluster, order).run(staging.apply_cache, order)
    job = await live(cluster, order, applied, kinds.JOB)
    assert job
    (pulled,) = job["spec"]["template"]["spec"]["imagePullSecrets"]
    place = ObjectId(kinds.SECRET, order.namespace, pulled["name"])
    copied = await (await cluster.api()).get(place)
    assert copied
    assert copied["data"] == {".dockerconfigjson": base64.b64encode(b"{}").decode()}
    # The copies of a claim are deleted with its credential, whatever the settings are
    # by then.
    await remove(cluster, order, applied, 2)
    assert await (await cluster.api()).get(place) is None
    await remove(cluster, order, applied)
    await cluster.store.delete("Secret", labels.SYSTEM_NAMESPACE, name)


async def test_a_job_that_filled_a_volume_whichis_gone_does_not_count_for_the_next_one(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    await bound(cluster, order, first)
    await eventually(lambda: done(cluster, order, first))
    job = ObjectId(kinds.JOB, order.namespace, f"{first.claim}-hyd")
    await patch(cluster, job, {"spec": {"suspend": True}})
    api, claim = (
        await cluster.api(),
        ObjectId(kinds.VOLUME_CLAIM, order.namespace, first.claim),
    )
    await api.delete(claim, propagation="Background")
    await eventually(lambda: is_gone(api, claim))
    second = await asyncio.wait_for(apply(cluster, order), TIMEOUT_SECONDS)
    assert second.job_uid not in ("", first.job_uid)
    await remove(cluster, order, second)


async def done(
    cluster: ClusterUnderTest, order: ApplyCache, applied: CacheApplied
) -> bool:
    """Return whether the Job of a cache has succeeded."""
    job = await live(cluster, order, applied, kinds.JOB)
    return bool(job and job.get("status", {}).get("succeeded"))


async def a_held_pod(
    cluster: ClusterUnderTest, order: ApplyCache, applied: CacheApplied
) -> ObjectId:
    """Return the pod of a finished Job.

    After its deletion it stays until the test releases it.
    """
    api = await cluster.api()
    await eventually(lambda: done(cluster, order, applied))
    (pod,) = (await api.list(Selection(kinds.POD, order.namespace))).items
    await patch(cluster, ObjectId.of(pod), {"metadata": {"finalizers": ["test/hold"]}})
    return ObjectId.of(pod)


async def let_go(cluster: ClusterUnderTest, pod: ObjectId) -> None:
    await patch(cluster, pod, {"metadata": {"finalizers": None}})


@pytest.mark.slow
async def test_a_job_is_replaced_once_its_pods_are_gone(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    pod = await a_held_pod(cluster, order, first)
    cluster.heartbeats.clear()
    replacing = asyncio.create_task(
        apply(cluster, order.model_copy(update={"failed_job_uid": first.job_uid}))
    )
    await eventually(lambda: awaited(cluster, pod))
    await asyncio.sleep(1)
    job = await live(cluster, order, first, kinds.JOB)
    assert job, "its pods would be those of no Job"
    assert (job["metadata"]["uid"], replacing.done()) == (first.job_uid, False)
    await let_go(cluster, pod)
    second = await replacing
    assert second.job_uid not in ("", first.job_uid)
    await remove(cluster, order, second)


async def test_a_job_that_a_user_deletes_is_created_again_once_its_pods_are_gone(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    pod = await a_held_pod(cluster, order, first)
    await (await cluster.api()).delete(
        ObjectId(kinds.JOB, order.namespace, f"{first.claim}-hyd"),
        propagation="Background",
    )
    cluster.heartbeats.clear()
    applying = asyncio.create_task(apply(cluster, order))
    await eventually(lambda: awaited(cluster, pod))
    assert (await live(cluster, order, first, kinds.JOB), applying.done()) == (
        None,
        False,
    )
    await let_go(cluster, pod)
    second = await applying
    assert second.job_uid not in ("", first.job_uid)
    await remove(cluster, order, second)


async def test_pods_that_a_user_orphaned_are_not_waited_for(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster)
    first = await apply(cluster, order)
    pod = await a_held_pod(cluster, order, first)
    api = await cluster.api()
    await api.delete(
        ObjectId(kinds.JOB, order.namespace, f"{first.claim}-hyd"), propagation="Orphan"
    )

    async def orphaned() -> bool:
        found = await api.get(pod)
        return bool(found and not found["metadata"].get("ownerReferences"))

    await eventually(orphaned)
    second = await asyncio.wait_for(apply(cluster, order), TIMEOUT_SECONDS)
    assert second.job_uid not in ("", first.job_uid)
    await let_go(cluster, pod)
    await api.delete(pod, propagation="Background")
    await remove(cluster, order, second)
