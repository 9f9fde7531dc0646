"""Copies of Secrets and ConfigMaps on a real API server.

They are created, shared, updated, and deleted with the last replica.
"""

import asyncio
import base64
import secrets
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.render.inputs.settings import RenderSettings
from activities.secrets.store import StoredSecret
from activities.workloads.copies import is_copy
from activities.workloads.pending import SECRETS_CAUSE
from api_types import labels
from api_types.errors import CredentialsInvalid, NameConflict, error_reason
from api_types.messages.cluster_work import (
    Applied,
    AppliedObject,
    ApplyReplica,
    CacheMount,
)
from tests.activities.environment.cluster_under_test import ClusterUnderTest, target
from tests.activities.environment.operator import delete
from tests.activities.render.builders import a_member, an_engine
from tests.activities.render.topologies import node_local


@pytest.fixture
def cluster(in_memory: ClusterUnderTest) -> ClusterUnderTest:
    return in_memory


SECRET, DEPLOYMENT = (
    GroupVersionKind("v1", "Secret"),
    GroupVersionKind("apps/v1", "Deployment"),
)
TRAVELS = {labels.PROPAGATE: "true"}
DOCKER = "kubernetes.io/dockerconfigjson"


def token(name: str = "hub", key: str = "token", *, optional: bool = False) -> Json:
    reference = {"name": name, "key": key, **({"optional": True} if optional else {})}
    return {
        "name": f"{name}-{key}".upper().replace("-", "_"),
        "valueFrom": {"secretKeyRef": reference},
    }


def an_order(
    cluster: ClusterUnderTest,
    *env: Json,
    pull_secrets: list[str] | None = None,
    **fields: Any,
) -> ApplyReplica:
    return cluster.order(
        [an_engine("main", a_member(env=list(env), pull_secrets=pull_secrets or []))],
        **fields,
    )


def a_pooled_order(cluster: ClusterUnderTest) -> ApplyReplica:
    """A replica with an endpoint picker, which is a pod with an image of this project."""
    order = an_order(cluster)
    return order.model_copy(
        update={"facts": order.facts.model_copy(update={"routing": "pool"})}
    )


async def put(
    cluster: ClusterUnderTest, namespace: str, name: str = "hub", **fields: Any
) -> None:
    given = {
        "data": {"token": b"first-value", "user": b"anna"},
        "labels": TRAVELS,
        **fields,
    }
    await cluster.store.put(StoredSecret(namespace, name, **given))


async def copy_at(
    cluster: ClusterUnderTest, applied: Applied, key: str = "secret-hub"
) -> Json | None:
    return await (await cluster.api()).get(target(applied, key))


async def pod_of(cluster: ClusterUnderTest, applied: Applied) -> Json:
    found = await (await cluster.api()).get(target(applied, "model-serving-main"))
    assert found
    spec: Json = found["spec"]["template"]["spec"]
    return spec


async def test_a_labelled_secret_is_copied_with_its_type_and_the_pods_name_the_copy(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token(), pull_secrets=["registry"])
    await put(cluster, order.namespace)
    await put(
        cluster,
        order.namespace,
        "registry",
        data={".dockerconfigjson": b"{}", "more": b"x"},
        type=DOCKER,
    )
    applied = await cluster.apply(order)
    hub, registry = (
        await copy_at(cluster, applied),
        await copy_at(cluster, applied, "secret-registry"),
    )
    assert hub
    assert registry
    # Only the key that a pod references, unless Kubernetes itself reads the Secret.
    assert hub["data"] == {"token": base64.b64encode(b"first-value").decode()}
    assert (registry["type"], sorted(registry["data"])) == (
        DOCKER,
        [".dockerconfigjson", "more"],
    )
    assert hub["metadata"]["annotations"][labels.OWNER_NAME] == "hub"
    pod = await pod_of(cluster, applied)
    assert (
        pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"]
        == hub["metadata"]["name"]
    )
    assert pod["imagePullSecrets"] == [{"name": registry["metadata"]["name"]}]
    again = await cluster.apply(
        order.model_copy(update={"inventory": applied.inventory})
    )
    assert again.changed == []


async def test_a_config_map_is_copied_by_the_same_rules(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(
        cluster,
        {
            "name": "TUNING",
            "valueFrom": {"configMapKeyRef": {"name": "tuning", "key": "x"}},
        },
    )
    await put(
        cluster,
        order.namespace,
        "tuning",
        kind="ConfigMap",
        data={"x": b"fast", "blob": b"\xff"},
    )
    found = await copy_at(cluster, await cluster.apply(order), "configmap-tuning")
    assert found
    assert found["data"] == {"x": "fast"}


async def test_an_unlabelled_secret_stays_as_written(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace, labels={})
    applied = await cluster.apply(order)
    assert not [entry for entry in applied.inventory if is_copy(entry)]
    pod = await pod_of(cluster, applied)
    assert pod["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"] == "hub"


async def test_in_mode_all_a_missing_secret_is_named_and_nothing_is_applied_unless_it_is_optional(
    cluster: ClusterUnderTest,
) -> None:
    everything = RenderSettings(secrets_propagation="all")
    order = an_order(cluster, token())
    with pytest.raises(
        CredentialsInvalid, match=f"Secret {order.namespace}/hub does not exist"
    ) as caught:
        await cluster.apply(order, everything)
    assert error_reason(caught.value) == "SecretMissing"
    assert (
        await (await cluster.api()).list(Selection(DEPLOYMENT, order.namespace))
    ).items == []
    await cluster.apply(an_order(cluster, token(optional=True)), everything)


async def test_a_key_that_the_source_lacks_is_a_warning_and_the_rest_is_copied(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token(), token(key="absent", optional=True))
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    assert [line for line in applied.warnings if "has no key 'absent'" in line]
    found = await copy_at(cluster, applied)
    assert found
    assert sorted(found["data"]) == ["token"]


async def test_a_shared_copy_stays_until_its_last_replica_goes(
    cluster: ClusterUnderTest,
) -> None:
    first = an_order(cluster, token())
    second = an_order(cluster, token(), namespace=first.namespace)
    await put(cluster, first.namespace)
    one, other = await asyncio.gather(cluster.apply(first), cluster.apply(second))
    assert target(one, "secret-hub") == target(other, "secret-hub")
    assert await cluster.tear_down(first, one) == []
    assert await copy_at(cluster, other) is not None
    assert await cluster.tear_down(second, other) == []
    assert await copy_at(cluster, other) is None


async def test_replicas_that_are_applied_and_deleted_concurrently_never_lose_a_copy_that_one_needs(
    cluster: ClusterUnderTest,
) -> None:
    stays = an_order(cluster, token())
    await put(cluster, stays.namespace)
    kept = await cluster.apply(stays)
    others = [an_order(cluster, token(), namespace=stays.namespace) for _ in range(4)]

    async def come_and_go(order: ApplyReplica) -> None:
        await cluster.step(order, await cluster.apply(order), 10)

    await asyncio.gather(*map(come_and_go, others))
    found = await copy_at(cluster, kept)
    assert found
    marks = [
        key
        for key in found["metadata"]["annotations"]
        if key.startswith(labels.USER_PREFIX)
    ]
    assert marks == [f"{labels.USER_PREFIX}{kept.workload_name}"]
    for order in others:
        await cluster.tear_down(order, await cluster.apply(order))


async def test_equal_names_of_two_tenants_in_one_shared_namespace_are_two_copies(
    cluster: ClusterUnderTest,
) -> None:
    shared = RenderSettings(workload_namespace="team-shared")
    cluster.namespaces.add("team-shared")
    first, second = (an_order(cluster, token(), name="same") for _ in range(2))
    for order, value in ((first, b"one"), (second, b"two")):
        await put(cluster, order.namespace, data={"token": value})
    applied = [await cluster.apply(order, shared) for order in (first, second)]
    values = [
        base64.b64decode((await copy_at(cluster, each) or {})["data"]["token"])
        for each in applied
    ]
    assert values == [b"one", b"two"]
    assert await cluster.tear_down(first, applied[0]) == []
    assert await copy_at(cluster, applied[1]) is not None
    await cluster.tear_down(second, applied[1])


async def test_a_copy_follows_its_source(cluster: ClusterUnderTest) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    await put(cluster, order.namespace, data={"token": b"rotated"})
    again = await cluster.apply(
        order.model_copy(update={"inventory": applied.inventory})
    )
    assert again.changed == ["secret-hub"]
    found = await copy_at(cluster, again)
    assert found
    assert base64.b64decode(found["data"]["token"]) == b"rotated"


async def test_a_source_that_was_deleted_deletes_no_copy_of_running_pods(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    await cluster.store.delete("Secret", order.namespace, "hub")
    next_order = order.model_copy(update={"inventory": applied.inventory})
    assert (await cluster.apply(next_order)).changed == []
    assert await cluster.prune(next_order) == []
    assert await copy_at(cluster, applied) is not None


async def test_a_deleted_source_does_not_replace_pods_but_a_changed_source_does(
    cluster: ClusterUnderTest,
) -> None:
    restarting = RenderSettings(restart_on_rotation=True)
    order = an_order(cluster, token(), token("other"))
    for name in ("hub", "other"):
        await put(cluster, order.namespace, name)
    applied = await cluster.apply(order, restarting)
    await cluster.store.delete("Secret", order.namespace, "hub")
    for _ in range(2):
        order = order.model_copy(update={"inventory": applied.inventory})
        applied = await cluster.apply(order, restarting)
        assert (applied.pending, applied.changed) == ([], [])
    await put(cluster, order.namespace, "other", data={"token": b"rotated"})
    rotated = await cluster.apply(
        order.model_copy(update={"inventory": applied.inventory}), restarting
    )
    assert (rotated.pending_causes, rotated.adopting) == ([SECRETS_CAUSE], True)


async def test_a_copy_that_is_no_longer_referenced_is_pruned(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    plain = an_order(
        cluster,
        namespace=order.namespace,
        name=order.name,
        uid=order.uid,
        generation=2,
        inventory=applied.inventory,
    )
    after = await cluster.apply(plain)
    assert await copy_at(cluster, applied) is not None
    removed = await cluster.prune(
        plain.model_copy(update={"inventory": after.inventory})
    )
    assert removed == [str(target(applied, "secret-hub"))]
    assert await copy_at(cluster, applied) is None


async def test_the_drift_of_an_object_that_is_no_longer_rendered_is_not_repaired(
    cluster: ClusterUnderTest,
) -> None:
    """A replica that repairs drift prunes nothing, and the object may be missing."""
    order = an_order(cluster)
    old = AppliedObject(
        id=f"v1/ConfigMap/{order.namespace}/old", key="old", hash="h", digest="d"
    )
    after = await cluster.apply(order.model_copy(update={"inventory": [old]}))
    kept = [entry for entry in after.inventory if entry.key == "old"]
    assert kept == [old.model_copy(update={"digest": ""})]
    assert all(entry.digest for entry in after.inventory if entry.key != "old")


async def test_a_copy_that_an_earlier_attempt_made_in_vain_is_pruned(
    cluster: ClusterUnderTest,
) -> None:
    """The source of an optional reference was deleted between the two attempts."""
    order = an_order(cluster, token(optional=True))
    await put(cluster, order.namespace)
    first = await cluster.apply(order)
    await cluster.store.delete("Secret", order.namespace, "hub")
    second = await cluster.apply(order, attempt=2)
    assert second.has_obsolete
    assert await copy_at(cluster, first) is not None
    assert await cluster.prune(
        order.model_copy(update={"inventory": second.inventory})
    ) == [str(target(first, "secret-hub"))]
    assert await copy_at(cluster, first) is None
    third = await cluster.apply(order, attempt=2)
    assert not third.has_obsolete


async def test_an_object_of_another_owner_under_the_name_of_a_copy_is_never_overwritten(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    place = target(applied, "secret-hub")
    await cluster.tear_down(order, applied)
    api = await cluster.api()
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": place.name, "namespace": place.namespace},
    }
    await api.create(
        {**foreign, "data": {"token": base64.b64encode(b"theirs").decode()}}
    )
    with pytest.raises(NameConflict, match="belongs to no known owner"):
        await cluster.apply(order)
    assert await cluster.step(order, applied, 10)
    found = await api.get(place)
    assert found
    assert base64.b64decode(found["data"]["token"]) == b"theirs"
    await delete(cluster, place)


async def test_copies_are_found_by_their_annotations_when_the_inventory_was_lost(
    cluster: ClusterUnderTest,
) -> None:
    order = an_order(cluster, token())
    await put(cluster, order.namespace)
    applied = await cluster.apply(order)
    lost = applied.model_copy(update={"inventory": []})
    await cluster.tear_down(order, lost)
    assert (
        await (await cluster.api()).get(
            ObjectId(SECRET, order.namespace, target(applied, "secret-hub").name)
        )
        is None
    )


async def test_a_pull_secret_of_the_platform_is_copied_for_pickers_and_sidecars_and_shared(
    cluster: ClusterUnderTest,
) -> None:
    name = f"robot-{secrets.token_hex(4)}"
    robot = RenderSettings(pull_secrets=(name,), workload_namespace="team-robot")
    cluster.namespaces.add("team-robot")
    # Two tenants in one namespace of the cluster share it.
    first, second = a_pooled_order(cluster), a_pooled_order(cluster)
    with pytest.raises(
        CredentialsInvalid,
        match=f"Secret modelplane-system/{name} does not exist: setting images.pullSecrets",
    ) as caught:
        await cluster.apply(first, robot)
    assert error_reason(caught.value) == "SecretMissing"
    await put(cluster, labels.SYSTEM_NAMESPACE, name, labels={})
    with pytest.raises(CredentialsInvalid, match="has type Opaque"):
        await cluster.apply(first, robot)
    await put(
        cluster,
        labels.SYSTEM_NAMESPACE,
        name,
        labels={},
        data={".dockerconfigjson": b'{"auths": {}}'},
        type=DOCKER,
    )
    one, other = [await cluster.apply(order, robot) for order in (first, second)]
    key = f"pull-secret-{name}"
    copied = await copy_at(cluster, one, key)
    assert copied
    assert (copied["type"], base64.b64decode(copied["data"][".dockerconfigjson"])) == (
        DOCKER,
        b'{"auths": {}}',
    )
    picker = await (await cluster.api()).get(target(one, "epp"))
    assert picker
    assert picker["spec"]["template"]["spec"]["imagePullSecrets"] == [
        {"name": copied["metadata"]["name"]}
    ]
    assert "imagePullSecrets" not in await pod_of(cluster, one)
    # A pull secret that is deleted from the store stays on the cluster while pods use
    # it.
    await cluster.store.delete("Secret", labels.SYSTEM_NAMESPACE, name)
    again = await cluster.apply(
        first.model_copy(update={"inventory": one.inventory}), robot
    )
    assert again.changed == []
    assert await cluster.tear_down(first, again) == []
    assert await copy_at(cluster, other, key) is not None
    assert await cluster.tear_down(second, other) == []
    assert await copy_at(cluster, other, key) is None


async def test_a_pull_secret_that_is_taken_out_of_the_settings_is_pruned(
    cluster: ClusterUnderTest,
) -> None:
    name = f"robot-{secrets.token_hex(4)}"
    await put(
        cluster,
        labels.SYSTEM_NAMESPACE,
        name,
        labels={},
        data={".dockerconfigjson": b"{}"},
        type=DOCKER,
    )
    order = a_pooled_order(cluster)
    applied = await cluster.apply(order, RenderSettings(pull_secrets=(name,)))
    after = await cluster.apply(
        order.model_copy(update={"inventory": applied.inventory})
    )
    removed = await cluster.prune(
        order.model_copy(update={"inventory": after.inventory})
    )
    assert removed == [str(target(applied, f"pull-secret-{name}"))]
    assert await copy_at(cluster, applied, f"pull-secret-{name}") is None
    await cluster.store.delete("Secret", labels.SYSTEM_NAMESPACE, name)


async def test_a_platform_pull_secret_is_copied_for_containers_that_fill_volumes(
    cluster: ClusterUnderTest,
) -> None:
    name = f"robot-{secrets.token_hex(4)}"
    robot = RenderSettings(pull_secrets=(name,))
    public = node_local(
        huggingFace={"repo": "Qwen/Qwen3-8B", "sizeGiB": 20}, hydration={}
    )
    order = cluster.order([an_engine()], cache_claim="claim", mounts={"qwen": public})
    facts = order.facts.model_copy(update={"routing": "service"})
    order = order.model_copy(
        update={
            "spec": {**order.spec, "modelCacheRef": {"name": "qwen"}},
            "facts": facts,
        }
    )
    with pytest.raises(
        CredentialsInvalid, match=f"Secret modelplane-system/{name} does not exist"
    ):
        await cluster.apply(order, robot)
    await put(
        cluster,
        labels.SYSTEM_NAMESPACE,
        name,
        labels={},
        data={".dockerconfigjson": b"{}"},
        type=DOCKER,
    )
    applied = await cluster.apply(order, robot)
    copied = await copy_at(cluster, applied, f"pull-secret-{name}")
    assert copied
    assert (await pod_of(cluster, applied))["imagePullSecrets"] == [
        {"name": copied["metadata"]["name"]}
    ]
    # Without a volume of their own the pods have no image of this project.
    plain = an_order(cluster)
    plain = plain.model_copy(update={"facts": facts})
    assert not [
        entry
        for entry in (await cluster.apply(plain, robot)).inventory
        if is_copy(entry)
    ]
    await cluster.store.delete("Secret", labels.SYSTEM_NAMESPACE, name)


async def test_secrets_for_images_and_for_filling_volumes_are_copied_to_the_pods(
    cluster: ClusterUnderTest,
) -> None:
    image = CacheMount(
        image="registry.example/m@sha256:" + "ab" * 32,
        pull_secret="registry",  # noqa: S106 -- a name
    )
    mounts = {"qwen": node_local(), "lora": image}
    order = cluster.order([an_engine()], cache_claim="claim", mounts=mounts)
    order = order.model_copy(
        update={"spec": {**order.spec, "modelCacheRef": {"name": "qwen"}}}
    )
    for name, key in (("hub", "HF_TOKEN"), ("proxy", "url")):
        await put(cluster, order.namespace, name, data={key: b"x"})
    await put(
        cluster,
        order.namespace,
        "company-ca",
        kind="ConfigMap",
        data={"bundle.pem": b"x"},
    )
    for name in ("mirror", "registry"):
        await put(
            cluster,
            order.namespace,
            name,
            type=DOCKER,
            data={".dockerconfigjson": b"{}"},
        )
    applied = await cluster.apply(order)
    keys = {entry.key for entry in applied.inventory if is_copy(entry)}
    assert keys == {
        "secret-hub",
        "secret-proxy",
        "secret-mirror",
        "secret-registry",
        "configmap-company-ca",
    }
    (filling,) = (await pod_of(cluster, applied))["initContainers"]
    copy = target(applied, "secret-hub").name
    assert {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": copy, "key": "HF_TOKEN"}},
    } in filling["env"]
