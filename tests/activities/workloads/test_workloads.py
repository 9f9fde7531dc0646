"""A replica: applied once, kept as rendered, deleted completely.

test_on_a_server covers the behaviour of a real API server.
"""

from typing import NamedTuple

import pytest

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from activities.render.inputs.settings import RenderSettings
from activities.render.objects.teardown import ENGINES, SWEEP
from api_types import labels, names
from api_types.errors import (
    InvalidInput,
    ModelplaneError,
    NameConflict,
    StackMissing,
    Unsupported,
)
from api_types.messages.cluster_work import AppliedObject
from tests.activities.environment.cluster_in_memory import patch
from tests.activities.environment.cluster_under_test import (
    ClusterUnderTest,
    eventually,
    target,
)
from tests.activities.environment.operator import local_queues
from tests.activities.render.builders import a_gang, a_member, an_engine
from tests.activities.workloads.seen import LONG, ONE, are_ready, claims, pods


@pytest.fixture
def cluster(in_memory: ClusterUnderTest) -> ClusterUnderTest:
    return in_memory


DEPLOYMENT = GroupVersionKind("apps/v1", "Deployment")


async def test_the_namespace_is_created_on_demand_without_our_labels(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    await cluster.apply(order)
    namespace = await (await cluster.api()).get(
        ObjectId(GroupVersionKind("v1", "Namespace"), "", order.namespace)
    )
    assert namespace is not None
    assert namespace["metadata"]["annotations"] == {
        labels.CREATED_FOR: f"ModelReplica {order.namespace}/{order.name}"
    }
    assert not [
        label for label in namespace["metadata"]["labels"] if "modelplane" in label
    ]


async def test_an_object_of_another_owner_stops_the_apply_and_nothing_is_overwritten(
    cluster: ClusterUnderTest,
) -> None:
    theirs = cluster.order([an_engine()])
    held = await cluster.apply(theirs)
    before = await _all_of(cluster, theirs.namespace)
    ours = cluster.order(
        [an_engine(copies=2)], namespace=theirs.namespace, name=theirs.name
    )
    with pytest.raises(NameConflict, match=theirs.uid) as caught:
        await cluster.apply(ours)
    assert str(target(held, "model-serving-main")) in str(caught.value)
    assert await _all_of(cluster, theirs.namespace) == before


async def test_an_object_without_our_labels_is_not_taken_over(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    service = target(applied, "model-service")
    await cluster.tear_down(order, applied)
    api = await cluster.api()
    foreign = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": service.name, "namespace": service.namespace},
    }
    await api.create({**foreign, "spec": {"ports": [{"port": 80}]}})
    with pytest.raises(NameConflict, match="belongs to no known owner"):
        await cluster.apply(order)
    found = await api.get(service)
    assert found is not None
    assert found["spec"]["ports"][0]["port"] == 80
    assert await api.get(target(applied, "model-serving-main")) is None


async def test_a_new_generation_writes_only_objects_with_changed_content(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    first = await cluster.apply(order)
    newer = order.model_copy(
        update={
            "generation": 2,
            "inventory": first.inventory,
            "spec": {
                **order.spec,
                "engines": [an_engine("main", a_member(image="acme/vllm:2"))],
            },
        }
    )
    second = await cluster.apply(newer)
    assert second.hash != first.hash
    assert {entry.id for entry in second.inventory} == {
        entry.id for entry in first.inventory
    }
    found = await (await cluster.api()).get(target(second, "model-serving-main"))
    assert found is not None
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "acme/vllm:2"


async def test_a_changed_claim_is_a_new_template_and_pruning_removes_the_old_one(
    cluster: ClusterUnderTest,
) -> None:
    small = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
    order = cluster.order([an_engine("main", a_member(requests=[small]))])
    first = await cluster.apply(order)
    old = target(first, "resource-claim-main-standalone")
    changed: Json = {
        **order.spec,
        "engines": [an_engine("main", a_member(requests=[{**small, "count": 2}]))],
    }
    newer = order.model_copy(
        update={"generation": 2, "inventory": first.inventory, "spec": changed}
    )
    second = await cluster.apply(newer)
    api = await cluster.api()
    assert await api.get(old) is not None
    assert [entry.id for entry in second.inventory if entry.id == str(old)] == [
        str(old)
    ]
    pruned = await cluster.prune(
        newer.model_copy(update={"inventory": second.inventory})
    )
    assert pruned == [str(old)]
    assert await api.get(old) is None
    assert await api.get(target(second, "resource-claim-main-standalone")) is not None


async def test_a_standalone_engine_is_deleted_before_a_gang_with_its_name_is_created(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member())])
    first = await cluster.apply(order)
    old = target(first, "model-serving-main")
    await eventually(lambda: pods(cluster, order.namespace))
    before = {pod["metadata"]["uid"] for pod in await pods(cluster, order.namespace)}
    newer = order.model_copy(
        update={
            "generation": 2,
            "inventory": first.inventory,
            "spec": {**order.spec, "engines": [a_gang(worker={"nodes": 1})]},
        }
    )
    second = await cluster.apply(newer)
    assert target(second, "model-serving-main").kind.kind == "LeaderWorkerSet"
    assert await (await cluster.api()).get(old) is None
    assert not before & {
        pod["metadata"]["uid"] for pod in await pods(cluster, order.namespace)
    }


async def test_the_cluster_wide_rights_of_a_picker_are_gone_before_its_replica_is(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    order = order.model_copy(
        update={"facts": cluster.facts.model_copy(update={"routing": "pool"})}
    )
    applied = await cluster.apply(
        order, RenderSettings(epp_metrics_auth=True, monitoring_enabled=True)
    )
    api = await cluster.api()
    rights = [
        target(applied, key) for key in ("epp-clusterrole", "epp-clusterrolebinding")
    ]
    assert all([await api.get(each) for each in rights])
    # They are cluster-scoped, so only the teardown deletes them, before it checks the
    # engines.
    for number in range(3, ENGINES):
        assert (await cluster.step(order, applied, number)).remaining == []
    assert [await api.get(each) for each in rights] == [None, None]
    assert await cluster.tear_down(order, applied) == []
    assert await cluster.everything_labelled(applied) == []


async def test_an_object_that_was_recreated_is_not_deleted(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    await cluster.apply(order)
    api, about = (
        await cluster.api(),
        ObjectId(GroupVersionKind("v1", "ConfigMap"), order.namespace, "again"),
    )
    manifest = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": about.name, "namespace": about.namespace},
    }
    first = await api.create(manifest)
    assert first
    await api.delete(about, uid=first["metadata"]["uid"], propagation="Background")
    second = await api.create(manifest)
    assert second
    # The request of a teardown that saw the first object arrives late.
    await api.delete(about, uid=first["metadata"]["uid"], propagation="Background")
    found = await api.get(about)
    assert found
    assert (found["metadata"]["uid"], found["metadata"].get("deletionTimestamp")) == (
        second["metadata"]["uid"],
        None,
    )


async def test_claims_of_a_workload_whose_cut_name_is_equal_are_not_awaited(
    cluster: ClusterUnderTest,
) -> None:
    ours = cluster.order([an_engine("main" * 4, a_member(requests=ONE))], name=LONG)
    applied = await cluster.apply(ours)
    name = target(applied, "model-serving-" + "main" * 4).name
    engines = (f"{'main' * 4}{number}" for number in range(100_000))
    theirs = next(
        each
        for each in engines
        if names.engine_name(ours.namespace, LONG, each)[:58] == name[:58]
    )
    spec = await (await cluster.api()).get(
        target(applied, "model-serving-" + "main" * 4)
    )
    assert spec is not None
    lives = names.engine_name(ours.namespace, LONG, theirs)
    twin: Json = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": lives, "namespace": ours.namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {labels.WORKLOAD: lives}},
            "template": {
                **spec["spec"]["template"],
                "metadata": {"labels": {labels.WORKLOAD: lives}},
            },
        },
    }
    await (await cluster.api()).create(twin)
    await eventually(lambda: are_ready(cluster, ours.namespace, 2))
    assert len(await claims(cluster, ours.namespace)) == 2

    assert (await cluster.step(ours, applied, ENGINES, wait_seconds=30)).remaining == []

    (left,) = await pods(cluster, ours.namespace)
    assert left["metadata"]["labels"][labels.WORKLOAD] == lives


@pytest.mark.parametrize(
    ("change", "recreated"),
    [
        ({"worker": {"nodes": 2}}, True),
        ({"worker": {"image": "acme/vllm:2"}}, True),
        ({}, False),
    ],
    ids=["its size", "a template", "nothing of the group"],
)
async def test_under_kueue_a_group_is_recreated_for_another(
    cluster: ClusterUnderTest, change: dict[str, Json], *, recreated: bool
) -> None:
    """Kueue admits a group as it was created: it cannot change."""
    facts = cluster.facts.model_copy(update={"scheduler_type": "kueue"})
    small: Json = {"nodes": 1, "requests": ONE}
    order = cluster.order([a_gang(leader={"requests": ONE}, worker=small)]).model_copy(
        update={"facts": facts}
    )
    first = await cluster.apply(order)
    workload, api = target(first, "model-serving-main"), await cluster.api()
    before = await api.get(workload)
    gang = a_gang(
        leader={"requests": ONE},
        worker={**small, **change.get("worker", {})},
        copies=1 if recreated else 2,
    )
    await cluster.apply(
        order.model_copy(
            update={
                "generation": 2,
                "inventory": first.inventory,
                "spec": {**order.spec, "engines": [gang]},
            }
        )
    )
    after = await api.get(workload)
    assert before is not None
    assert after is not None
    assert (
        after["spec"]["leaderWorkerTemplate"]["size"]
        == change.get("worker", {}).get("nodes", 1) + 1
    )
    assert (before["metadata"]["uid"] != after["metadata"]["uid"]) is recreated


@pytest.mark.parametrize("gang", [False, True])
async def test_an_engine_with_more_copies_of_fewer_devices_is_recreated_once(
    cluster: ClusterUnderTest, *, gang: bool
) -> None:
    """The added copy's pod would otherwise wait for a device, and the old pod for it."""

    def engine(copies: int, count: int) -> Json:
        requests = [{**ONE[0], "count": count}]
        if gang:
            return a_gang(
                leader={"requests": requests},
                worker={"nodes": 1, "requests": requests},
                copies=copies,
            )
        return an_engine("main", a_member(requests=requests), copies=copies)

    order = cluster.order([engine(1, 2)])
    first = await cluster.apply(order)
    workload, api = target(first, "model-serving-main"), await cluster.api()
    before = await api.get(workload)
    changed = {
        "generation": 2,
        "inventory": first.inventory,
        "spec": {**order.spec, "engines": [engine(2, 1)]},
        "recreated": ["main"],
    }
    uids = [before and before["metadata"]["uid"]]
    for _ in range(2):
        await cluster.apply(order.model_copy(update=changed))
        after = await api.get(workload)
        uids.append(after and after["metadata"]["uid"])
    assert uids[0] != uids[1] == uids[2] is not None


async def test_a_teardown_without_an_inventory_finds_everything_by_its_labels(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    lost = applied.model_copy(update={"inventory": []})
    # Each step finds its own objects, in order. The sweep finds objects that no step
    # knows.
    for number in range(3, SWEEP):
        await cluster.step(order, lost, number)
    assert await cluster.everything_labelled(applied) == []
    assert (await cluster.step(order, lost, SWEEP)).remaining == []


async def test_a_teardown_skips_the_objects_of_another_owner_and_names_them(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    orphan = order.model_copy(update={"uid": "uid-of-an-orphan"})
    before = await cluster.everything_labelled(applied)
    skipped = await cluster.tear_down(orphan, applied)
    assert all(
        any(item.id in entry and order.uid in entry for entry in skipped)
        for item in applied.inventory
        if item.digest
    )
    # The pods of the engine may be created meanwhile.
    assert set(await cluster.everything_labelled(applied)) >= set(before)


async def test_a_kind_that_is_not_served_counts_as_empty(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine()])
    applied = await cluster.apply(order)
    unknown = AppliedObject(
        key="gang-main",
        id=f"scheduling.run.ai/v2alpha2/PodGroup/{order.namespace}/gone",
    )
    assert (
        await cluster.step(
            order, applied.model_copy(update={"inventory": [unknown]}), 8
        )
    ).skipped == []


class Refused(NamedTuple):
    """A replica that cannot be rendered, and the error."""

    story: str
    engine: Json
    facts: Json
    error: type[ModelplaneError]
    text: str
    reason: str


REFUSED = [
    Refused(
        "no pod spec",
        {"members": [{"role": "Standalone", "nodePoolName": "h100"}]},
        {},
        InvalidInput,
        "main",
        "InvalidSpec",
    ),
    Refused(
        "no device API",
        {},
        {"dra_version": ""},
        Unsupported,
        "resource.k8s.io",
        "DRAUnavailable",
    ),
]


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: case.story)
async def test_an_invalid_spec_is_refused_with_its_reason(
    cluster: ClusterUnderTest, case: Refused
) -> None:
    order = cluster.order([{**an_engine(), **case.engine}])
    order = order.model_copy(
        update={"facts": cluster.facts.model_copy(update=case.facts)}
    )
    with pytest.raises(case.error, match=case.text) as caught:
        await cluster.apply(order)
    assert caught.value.details == (case.reason,)


async def test_a_kind_that_is_not_served_is_a_transient_error_that_names_it(
    cluster: ClusterUnderTest,
) -> None:
    api = await cluster.api()
    with pytest.raises(StackMissing, match=r"PodGroup of scheduling\.run\.ai/v2alpha2"):
        await api.apply(
            {
                "apiVersion": "scheduling.run.ai/v2alpha2",
                "kind": "PodGroup",
                "metadata": {"name": "x", "namespace": "default"},
            }
        )


async def _all_of(cluster: ClusterUnderTest, namespace: str) -> list[Json]:
    api = await cluster.api()
    kinds = [
        DEPLOYMENT,
        GroupVersionKind("v1", "Service"),
        GroupVersionKind("gateway.networking.k8s.io/v1", "HTTPRoute"),
    ]
    found = [
        item
        for kind in kinds
        for item in (await api.list(Selection(kind, namespace))).items
    ]
    return [
        {
            "id": ObjectId.of(item),
            "spec": item["spec"],
            "annotations": item["metadata"]["annotations"].get(labels.OWNER_UID),
        }
        for item in found
    ]


async def _scale_by_hand(
    cluster: ClusterUnderTest, workload: ObjectId, replicas: int
) -> None:
    await patch(cluster, workload, {"spec": {"replicas": replicas}})


async def test_a_missing_queue_of_a_tenant_is_a_warning(
    cluster: ClusterUnderTest,
) -> None:
    queued = cluster.facts.model_copy(update={"scheduler_type": "kueue"})
    order = cluster.order([an_engine()]).model_copy(update={"facts": queued})
    assert [
        line for line in (await cluster.apply(order)).warnings if "QueueMissing" in line
    ]
    async with local_queues(cluster, order.namespace):
        assert not [
            line
            for line in (await cluster.apply(order)).warnings
            if "QueueMissing" in line
        ]


async def test_an_apply_that_searches_adopts_and_prunes_objects_of_an_earlier_run(
    cluster: ClusterUnderTest,
) -> None:
    small = {"name": "gpu", "deviceClassName": "gpu.nvidia.com", "count": 1}
    order = cluster.order([an_engine("main", a_member(requests=[small]))])
    first = await cluster.apply(order)
    old = target(first, "resource-claim-main-standalone")
    changed: Json = {
        **order.spec,
        "engines": [an_engine("main", a_member(requests=[{**small, "count": 2}]))],
    }
    # The run that applied it was terminated, so no inventory is known.
    newer = order.model_copy(update={"generation": 2, "search": True, "spec": changed})
    second = await cluster.apply(newer)
    assert {entry.id for entry in second.inventory} == {
        entry.id for entry in first.inventory
    } | {str(target(second, "resource-claim-main-standalone"))}
    assert await cluster.prune(
        newer.model_copy(update={"inventory": second.inventory})
    ) == [str(old)]
    assert await (await cluster.api()).get(old) is None
    assert await cluster.tear_down(newer, second) == []
    assert await cluster.everything_labelled(second) == []


async def test_an_engine_of_an_earlier_run_is_deleted_before_a_gang_with_its_name_is_created(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member())])
    first = await cluster.apply(order)
    gang = {**order.spec, "engines": [a_gang(worker={"nodes": 1})]}
    second = await cluster.apply(
        order.model_copy(update={"generation": 2, "search": True, "spec": gang})
    )
    assert target(second, "model-serving-main").kind.kind == "LeaderWorkerSet"
    assert await (await cluster.api()).get(target(first, "model-serving-main")) is None


async def test_the_budget_of_an_earlier_run_is_taken_over_and_deleted_with_its_engine(
    cluster: ClusterUnderTest,
) -> None:
    order = cluster.order([an_engine("main", a_member(), copies=2)])
    order = order.model_copy(
        update={"spec": {**order.spec, "disruption": {"minAvailable": 1}}}
    )
    first = await cluster.apply(order)
    api, budget = await cluster.api(), target(first, "disruption-budget-main")
    before = await api.get(budget)
    second = await cluster.apply(order.model_copy(update={"search": True}))
    after = await api.get(budget)
    assert before is not None
    assert after is not None
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    unbudgeted = order.model_copy(
        update={
            "generation": 2,
            "spec": {**order.spec, "disruption": {}},
            "inventory": second.inventory,
        }
    )
    assert await cluster.prune(unbudgeted) == [str(budget)]
    assert await cluster.apply(order)
    await cluster.tear_down(order, second)
    assert await api.get(budget) is None


async def test_the_sweep_waits_for_pods_whose_workload_was_deleted_before(
    cluster: ClusterUnderTest,
) -> None:
    slow = {"testbed.modelplane.ai/delete-after": "3s"}
    order = cluster.order([an_engine("main", a_member(annotations=slow))])
    applied = await cluster.apply(order)
    await eventually(lambda: are_ready(cluster, order.namespace, 1))
    api = await cluster.api()
    await api.delete(target(applied, "model-serving-main"), propagation="Background")
    await eventually(lambda: _is_gone(api, target(applied, "model-serving-main")))
    assert await pods(cluster, order.namespace) != []
    await cluster.tear_down(order, applied.model_copy(update={"inventory": []}))
    assert await pods(cluster, order.namespace) == []


async def _is_gone(api: ClusterApi, item: ObjectId) -> bool:
    return await api.get(item) is None
