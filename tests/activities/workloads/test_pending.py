"""Pods with an unchanged spec stay until the deployment allows their replacement.

The tests use a real API server.
"""

from dataclasses import replace
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import Json
from activities.render.engines import workloads
from activities.render.inputs.settings import RenderSettings
from activities.render.version import RENDERER_VERSION
from activities.workloads import pending
from api_types import labels
from api_types.errors import TransientError
from api_types.messages.cluster_work import Applied, ApplyReplica, CacheMount, NodeLocal
from tests.activities.environment.cluster_in_memory import patch
from tests.activities.environment.cluster_under_test import ClusterUnderTest, target
from tests.activities.environment.operator import delete
from tests.activities.render.builders import a_gang, a_member, an_engine


@pytest.fixture
def cluster(in_memory: ClusterUnderTest) -> ClusterUnderTest:
    return in_memory


WORKLOAD = "model-serving-main"
# Settings under which every pod would change.
OTHERS = RenderSettings(
    termination_grace_seconds=77, epp_image="registry.example/picker:v0.9.5"
)
SMALL = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}


def again(order: ApplyReplica, applied: Applied, **fields: Any) -> ApplyReplica:
    """Return the order of the next apply of a replica."""
    return order.model_copy(update={"inventory": applied.inventory, **fields})


def grace(workload: Json) -> int:
    """Return the grace period of the serving pods."""
    spec = workload["spec"]
    template = (
        spec["template"]
        if "template" in spec
        else spec["leaderWorkerTemplate"]["leaderTemplate"]
    )
    seconds: int = template["spec"]["terminationGracePeriodSeconds"]
    return seconds


async def stored(
    cluster: ClusterUnderTest, applied: Applied, key: str = WORKLOAD
) -> Json:
    found = await (await cluster.api()).get(target(applied, key))
    assert found is not None
    return found


@pytest.mark.parametrize(
    "engine",
    [an_engine("main", a_member(requests=[SMALL])), a_gang(copies=2)],
    ids=["Deployment", "LeaderWorkerSet"],
)
async def test_other_settings_replace_no_pod_before_an_adoption(
    cluster: ClusterUnderTest, engine: Json
) -> None:
    order = cluster.order([engine])
    first = await cluster.apply(order)
    assert (first.pending, first.adopting) == ([], False)
    before = await stored(cluster, first)
    held = await cluster.apply(again(order, first), OTHERS)
    assert (held.pending, held.pending_causes, held.adopting) == (
        [WORKLOAD],
        [pending.INPUTS_CAUSE],
        False,
    )
    after = await stored(cluster, first)
    # A controller creates no pod as long as this field stays.
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert [engine.template_hashes for engine in held.engines] == [
        engine.template_hashes for engine in first.engines
    ]
    # The same question has the same answer.
    repeated = await cluster.apply(again(order, held), OTHERS)
    assert (repeated.pending, repeated.changed) == ([WORKLOAD], [])
    adopted = await cluster.apply(again(order, repeated, adoption=True), OTHERS)
    assert (adopted.pending, adopted.changed) == ([], [WORKLOAD])
    assert grace(await stored(cluster, first)) == 77
    settled = await cluster.apply(again(order, adopted), OTHERS)
    assert (settled.pending, settled.changed) == ([], [])


async def test_settings_that_concern_no_pod_are_applied_at_once(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = cluster.order([an_engine()])
    first = await cluster.apply(order)
    # Labels of objects are not set in the same place as labels of pods.
    monkeypatch.setattr(labels, "PART_OF_VALUE", "renamed")
    second = await cluster.apply(again(order, first))
    assert (second.pending, WORKLOAD in second.changed) == ([], True)
    assert (await stored(cluster, first))["metadata"]["labels"][
        labels.PART_OF
    ] == "renamed"
    third = await cluster.apply(again(order, second), OTHERS)
    monkeypatch.setattr(labels, "PART_OF_VALUE", "modelplane")
    fourth = await cluster.apply(again(order, third), OTHERS)
    assert fourth.pending == [WORKLOAD]
    workload = await stored(cluster, first)
    assert (workload["metadata"]["labels"][labels.PART_OF], grace(workload)) == (
        "modelplane",
        30,
    )


async def test_only_a_spec_change_of_the_pods_adopts(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine(copies=1), an_engine("second")])
    first = await cluster.apply(order)
    scaled = {
        **order.spec,
        "engines": [
            an_engine(copies=3),
            an_engine("second", a_member(image="acme/vllm:2")),
        ],
    }
    second = await cluster.apply(again(order, first, generation=2, spec=scaled), OTHERS)
    assert second.pending == [WORKLOAD]
    workload = await stored(cluster, first)
    assert (workload["spec"]["replicas"], grace(workload)) == (3, 30)
    # Copies of its own, and pods of the earlier generation.
    assert (
        next(engine.copies for engine in second.engines if engine.name == "main") == 3
    )
    assert grace(await stored(cluster, first, "model-serving-second")) == 77


async def test_changes_by_others_are_reverted_while_a_change_is_pending(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine(copies=2)])
    first = await cluster.apply(order)
    held = await cluster.apply(again(order, first), OTHERS)
    await patch(cluster, target(first, WORKLOAD), {"spec": {"replicas": 1}})
    repaired = await cluster.apply(again(order, held), OTHERS)
    assert (repaired.pending, repaired.changed) == ([WORKLOAD], [WORKLOAD])
    workload = await stored(cluster, first)
    assert (workload["spec"]["replicas"], grace(workload)) == (2, 30)
    # Without another setting, the only difference is a change by others, which needs no
    # adoption.
    calm = cluster.order([an_engine()])
    applied = await cluster.apply(calm)
    await patch(
        cluster,
        target(applied, WORKLOAD),
        {"spec": {"template": {"spec": {"terminationGracePeriodSeconds": 5}}}},
    )
    back = await cluster.apply(again(calm, applied))
    assert (back.pending, grace(await stored(cluster, applied))) == ([], 30)


async def test_claims_of_remaining_pods_are_neither_created_nor_deleted(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = cluster.order([an_engine("main", a_member(requests=[SMALL]))])
    first = await cluster.apply(order)
    old = target(first, "resource-claim-main-standalone")
    # Like a renderer that writes claims differently: their names contain a digest of
    # their content.
    other = {
        **order.spec,
        "engines": [an_engine("main", a_member(requests=[{**SMALL, "count": 2}]))],
    }
    api = await cluster.api()
    source = (await stored(cluster, first))["metadata"]["annotations"][
        labels.PODS_SOURCE
    ]
    monkeypatch.setattr(
        "activities.render.engines.context.short_hash", lambda _: source
    )
    held = await cluster.apply(again(order, first, spec=other))
    assert held.pending == [WORKLOAD]
    assert [
        entry.id for entry in held.inventory if "ResourceClaimTemplate" in entry.id
    ] == [str(old)]
    assert await api.get(old) is not None
    assert held.warnings == []
    await delete(cluster, old)
    lacking = (
        f"ResourceClaimTemplate/{old.name} was deleted, and running pods cannot "
        "restart without it: run `modelplane rollout restart`"
    )
    assert (await cluster.apply(again(order, held, spec=other))).warnings == [lacking]
    adopted = await cluster.apply(again(order, held, spec=other, adoption=True))
    assert (
        len(
            [
                entry
                for entry in adopted.inventory
                if "ResourceClaimTemplate" in entry.id
            ]
        )
        == 2
    )


async def test_deleted_claims_of_remaining_pods_are_created_again(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member(requests=[SMALL]))])
    first = await cluster.apply(order)
    held = await cluster.apply(again(order, first), OTHERS)
    claims = target(first, "resource-claim-main-standalone")
    await delete(cluster, claims)
    repaired = await cluster.apply(again(order, held), OTHERS)
    assert (repaired.pending, repaired.warnings) == ([WORKLOAD], [])
    assert await (await cluster.api()).get(claims) is not None


async def test_a_worker_that_renders_differently_prunes_nothing(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine(), an_engine("second")])
    older, newer = (
        replace(cluster.workloads(), renderer=name) for name in ("r1", "r2")
    )
    first = await cluster.environment(order).run(older.apply_replica, order)
    assert first.renderer == "r1"
    # Only the worker that applied the earlier generation prunes its remains.
    less = again(
        order,
        first,
        generation=2,
        spec={**order.spec, "engines": [an_engine()]},
        renderer=first.renderer,
    )
    with pytest.raises(
        TransientError, match="a worker of another version or with other settings"
    ):
        await cluster.environment(order).run(newer.prune_replica, less)
    pruned = await cluster.environment(order).run(older.prune_replica, less)
    assert any("second" in name for name in pruned.removed)


async def test_the_picker_stays_with_its_configuration_and_rights(
    cluster: ClusterUnderTest,
) -> None:
    pooled = cluster.facts.model_copy(update={"routing": "pool"})
    order = cluster.order([an_engine()]).model_copy(update={"facts": pooled})
    first = await cluster.apply(order)
    other = RenderSettings(
        epp_image="registry.example/picker:v0.9.5",
        epp_kv_cache_weight=0,
    )
    parts = (("epp", "spec"), ("epp-config", "data"), ("epp-role", "rules"))
    before = [(await stored(cluster, first, key))[part] for key, part in parts]
    held = await cluster.apply(again(order, first), other)
    assert held.pending == ["epp"]
    after = [(await stored(cluster, held, key))[part] for key, part in parts]
    assert after == before
    adopted = await cluster.apply(again(order, held, adoption=True), other)
    assert adopted.pending == []
    assert "kv-cache-utilization" not in str(
        (await stored(cluster, held, "epp-config"))["data"]
    )
    # Flags are the user's own request, and are applied at once.
    flagged = await cluster.apply(again(order, adopted, picker_flags={"v": "4"}), other)
    assert (flagged.pending, "epp" in flagged.changed) == ([], True)


async def test_a_newer_renderer_is_named_and_a_setting_lets_every_replica_follow(
    cluster: ClusterUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = cluster.order([an_engine()])
    first = await cluster.apply(order)
    monkeypatch.setattr(pending, "RENDERER_VERSION", "9.9.9")
    monkeypatch.setattr("activities.render.engines.context.RENDERER_VERSION", "9.9.9")
    held = await cluster.apply(again(order, first), OTHERS)
    assert (held.pending_causes, held.adopting) == (["renderer 9.9.9"], False)
    assert (await cluster.apply(again(order, held), OTHERS, "Rolling")).adopting
    # A renderer that makes the same pods is irrelevant.
    same = await cluster.apply(again(order, held))
    assert (same.pending, WORKLOAD in same.changed) == ([], True)


async def test_another_volume_of_the_cache_waits_for_its_turn_only(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()], cache_claim="claim-a")
    order = order.model_copy(
        update={"spec": {**order.spec, "modelCacheRef": {"name": "weights"}}}
    )
    first = await cluster.apply(order)
    moved = await cluster.apply(again(order, first, cache_claim="claim-b"))
    assert (moved.pending, moved.pending_causes, moved.adopting) == (
        [WORKLOAD],
        [pending.CACHE_CAUSE],
        True,
    )


async def test_an_image_in_place_of_a_volume_waits_for_its_turn_too(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()], cache_claim="claim-a")
    order = order.model_copy(
        update={"spec": {**order.spec, "modelCacheRef": {"name": "weights"}}}
    )
    first = await cluster.apply(order)
    mounts = [
        {"weights": CacheMount(image=f"registry.example/m@sha256:{digit * 64}")}
        for digit in "ab"
    ]
    moved = await cluster.apply(
        again(order, first, cache_claim="claim-b", mounts=mounts[0])
    )
    assert (moved.pending, moved.pending_causes, moved.adopting) == (
        [WORKLOAD],
        [pending.CACHE_CAUSE],
        True,
    )
    pulled = await cluster.apply(
        again(order, moved, cache_claim="claim-b", mounts=mounts[0], adoption=True)
    )
    assert pulled.pending == []
    newer = await cluster.apply(
        again(order, pulled, cache_claim="claim-c", mounts=mounts[1])
    )
    assert (newer.pending, newer.pending_causes) == ([WORKLOAD], [pending.CACHE_CAUSE])


def on_nodes(
    commit: str = "a" * 40, size_gib: int = 1024, storage_class: str = "local"
) -> dict[str, CacheMount]:
    """A volume on the node's disk for each pod; servers normalize its size."""
    content = {
        "source": "HuggingFace",
        "huggingFace": {"repo": "acme/m", "sizeGiB": 20},
    }
    own = NodeLocal(
        spec=content,
        revision=commit,
        storage_class_name=storage_class,
        size_gib=size_gib,
    )
    return {"weights": CacheMount(node_local=own)}


OTHER_VOLUMES = [
    on_nodes(commit="b" * 40),
    on_nodes(size_gib=2048),
    on_nodes(storage_class="nvme"),
]


@pytest.mark.parametrize(
    "engine", [an_engine(), a_gang(copies=2)], ids=["Deployment", "LeaderWorkerSet"]
)
async def test_volumes_of_nodes_change_by_their_content_and_not_by_how_they_are_stored(
    cluster: ClusterUnderTest, engine: Json
) -> None:
    order = cluster.order([engine], cache_claim="claim-a", mounts=on_nodes())
    order = order.model_copy(
        update={"spec": {**order.spec, "modelCacheRef": {"name": "weights"}}}
    )
    first = await cluster.apply(order)
    held = await cluster.apply(again(order, first), OTHERS)
    assert (held.pending, held.pending_causes, held.adopting) == (
        [WORKLOAD],
        [pending.INPUTS_CAUSE],
        False,
    )
    for mounts in OTHER_VOLUMES:
        moved = await cluster.apply(again(order, held, mounts=mounts))
        assert (moved.pending, moved.pending_causes, moved.adopting) == (
            [WORKLOAD],
            [pending.CACHE_CAUSE],
            True,
        )


BESIDE_PODS: dict[str, Json] = {
    "network": {"networkConfig": {"subdomainPolicy": "UniquePerReplica"}},
    "restarts": {"leaderWorkerTemplate": {"restartPolicy": "None"}},
}


@pytest.mark.parametrize("change", BESIDE_PODS.values(), ids=BESIDE_PODS.keys())
@pytest.mark.parametrize("scheduler", ["none", "kueue"])
async def test_fields_that_replace_groups_wait_like_pod_templates(
    cluster: ClusterUnderTest,
    monkeypatch: pytest.MonkeyPatch,
    scheduler: str,
    change: Json,
) -> None:
    """The revision of a LeaderWorkerSet covers more than its pod templates."""
    order = cluster.order([a_gang(copies=2)]).model_copy(
        update={"facts": cluster.facts.model_copy(update={"scheduler_type": scheduler})}
    )
    first = await cluster.apply(order)
    assert (await cluster.apply(again(order, first), OTHERS)).pending == [WORKLOAD]
    before = await stored(cluster, first)
    made = workloads.leader_worker_set
    monkeypatch.setattr(
        workloads, "leader_worker_set", lambda *args: _changed(made(*args), change)
    )
    held = await cluster.apply(again(order, first))
    assert (held.pending, held.pending_causes) == ([WORKLOAD], [pending.INPUTS_CAUSE])
    after = await stored(cluster, first)
    assert (after["metadata"]["generation"], after["spec"]) == (
        before["metadata"]["generation"],
        before["spec"],
    )
    adopted = await cluster.apply(again(order, held, adoption=True))
    assert adopted.pending == []
    now = await stored(cluster, first)
    assert _changed(now, change)["spec"] == now["spec"]


def _changed(workload: Json, change: Json) -> Json:
    spec = workload["spec"]
    return {
        **workload,
        "spec": {
            **spec,
            **{name: {**spec[name], **fields} for name, fields in change.items()},
        },
    }


async def test_objects_of_an_earlier_version_are_compared_by_generation(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    first = await cluster.apply(order)
    bare = {
        "metadata": {"annotations": {labels.PODS_SOURCE: None, labels.RENDERER: None}}
    }
    await patch(cluster, target(first, WORKLOAD), bare)
    held = await cluster.apply(again(order, first), OTHERS)
    assert (held.pending, held.pending_causes) == (
        [WORKLOAD],
        [f"renderer {RENDERER_VERSION}"],
    )
    # The next apply reports no other cause: this renderer did not make them.
    assert (
        await cluster.apply(again(order, held), OTHERS)
    ).pending_causes == held.pending_causes
    await patch(cluster, target(first, WORKLOAD), bare)
    assert (
        await cluster.apply(again(order, first, generation=2), OTHERS)
    ).pending == []
