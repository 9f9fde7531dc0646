"""Capacity adapters over recorded objects.

Units are exact, unknown fields are ignored, and a watch gives the same result as a
list.
"""

import random
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import chain
from typing import Any, NamedTuple

import pytest

from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind
from activities.cluster_objects.kinds import LWS_NAME_LABEL, resolve_all
from activities.clusters.capacity.adapters import ADAPTERS
from activities.clusters.capacity.counts import amount, ceiling, floor
from activities.clusters.capacity.objects import CapacityObjects, reduced
from activities.clusters.watch.capacity_tracker import CapacityTracker, capacity_tracker
from api_types import labels
from api_types.messages.capacity import Admission, CapacityPool, CapacitySnapshot
from scheduler.kubernetes.tolerations import untolerated
from scheduler.model.inputs import ClusterTaint, ClusterToleration
from tests.activities.clusters.capacity import recorded as r
from tests.activities.render.builders import a_cluster, a_member, an_engine, render
from tests.activities.render.builders import pod as template_of
from tests.random_cases import SEED, cases

AT = 1_700_000_000_000
Item = tuple[str, dict[str, Any]]


def put(
    objects: CapacityObjects, kind: str, item: dict[str, Any], *, gone: bool = False
) -> bool:
    metadata = item["metadata"]
    return objects.put(
        kind,
        metadata.get("namespace", ""),
        metadata["name"],
        None if gone else reduced(kind, item),
    )


def listed(items: list[Item]) -> CapacityObjects:
    objects = CapacityObjects()
    for kind, item in items:
        put(objects, kind, item)
    return objects


def watched(items: list[Item], seed: int) -> CapacityObjects:
    """Return the same objects after changes in any order.

    Each appears first with other content, and some are deleted and created again.
    """
    dice = random.Random(seed)  # noqa: S311  # not for secrets
    objects = CapacityObjects()
    shuffled = list(items)
    dice.shuffle(shuffled)
    for kind, item in shuffled:
        put(objects, kind, {**item, "spec": {}, "status": {}})
        if dice.random() < 0.5:
            put(objects, kind, item, gone=True)
    for kind, item in reversed(shuffled):
        put(objects, kind, item)
    return objects


def snapshot(adapter: str, items: list[Item]) -> CapacitySnapshot:
    return ADAPTERS[adapter].snapshot("eu-1", listed(items), AT)


CLUSTERS = {"kube": r.KUBE, "kueue": [*r.KUBE, *r.KUEUE], "kai": [*r.KUBE, *r.KAI]}


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
@pytest.mark.parametrize("seed", range(SEED, SEED + cases(5)))
@pytest.mark.random
def test_a_watch_gives_the_snapshot_of_a_list(adapter: str, seed: int) -> None:
    seen = ADAPTERS[adapter].snapshot("eu-1", watched(CLUSTERS[adapter], seed), AT)
    assert seen.model_copy(update={"generation": 0}) == snapshot(
        adapter, CLUSTERS[adapter]
    ).model_copy(update={"generation": 0})


def test_only_labelled_nodes_and_pods_are_read() -> None:
    kinds = chain.from_iterable(adapter.kinds for adapter in ADAPTERS.values())
    assert {kind for _, kind, selector in kinds if selector} == {"Node", "Pod"}


@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_unknown_fields_change_nothing(adapter: str) -> None:
    def grown(value: Any) -> Any:
        if isinstance(value, dict):
            return {
                **{
                    key: grown(item)
                    for key, item in value.items()
                    if key not in ("labels", "nodeLabels")
                },
                **kept(value),
                "newField": 7,
            }
        return [grown(item) for item in value] if isinstance(value, list) else value

    def kept(value: dict[str, Any]) -> dict[str, Any]:
        plain = ("labels", "nodeLabels", "annotations", "allocated", "requested")
        return {key: item for key, item in value.items() if key in plain}

    assert snapshot(
        adapter, [(kind, grown(item)) for kind, item in CLUSTERS[adapter]]
    ) == snapshot(adapter, CLUSTERS[adapter])


def test_kube_counts_nodes_that_can_run_our_pods() -> None:
    """Six nodes: one cordoned, one not Ready, one tainted, one with an orphan's claim.

    The GPU taint is tolerated.
    """
    found = snapshot("kube", r.KUBE)
    assert (found.source, found.cluster, found.observed_at) == ("kube", "eu-1", AT)
    assert found.pools == [
        CapacityPool(
            name="h100",
            nodes_total=6,
            nodes_schedulable=2,
            foreign_nodes=1,
            device_free={"gpu.nvidia.com": {4: 1, 6: 1, 8: 1}},
        ),
        CapacityPool(name="spare", nodes_total=1, nodes_schedulable=1, device_free={}),
    ]


class Tainted(NamedTuple):
    """A pool of one tainted node, with its devices and the tolerations of engine pods."""

    story: str
    taint: str
    driver: str = ""
    resource: str = ""
    effect: str = "NoSchedule"
    configured: tuple[str, ...] = ()
    granted: tuple[dict[str, str], ...] = ()
    counts: bool = True


TAINTED = [
    Tainted("nvidia, by default", "nvidia.com/gpu", r.DRIVER),
    Tainted("amd", "amd.com/gpu", "gpu.amd.com"),
    Tainted("gaudi", "habana.ai/gaudi", "gaudi.intel.com"),
    Tainted("tpu", "google.com/tpu", "tpu.google.com"),
    Tainted("amd from a device plugin", "amd.com/gpu", resource="amd.com/gpu"),
    Tainted(
        "a taint that the settings name",
        "example.com/models",
        r.DRIVER,
        configured=("example.com/models",),
    ),
    Tainted(
        "settings without the key of nvidia, on a pool of amd",
        "nvidia.com/gpu",
        "gpu.amd.com",
        configured=("x/y",),
        counts=False,
    ),
    Tainted("amd on nodes with other devices", "amd.com/gpu", r.DRIVER, counts=False),
    Tainted(
        "a taint that evicts",
        "amd.com/gpu",
        "gpu.amd.com",
        effect="NoExecute",
        counts=False,
    ),
    Tainted("a taint that only asks", "team", "gpu.amd.com", effect="PreferNoSchedule"),
    Tainted(
        "a taint that the class grants", "team", r.DRIVER, granted=({"key": "team"},)
    ),
    Tainted(
        "one that evicts, and is granted",
        "team",
        r.DRIVER,
        effect="NoExecute",
        granted=({"key": "x"}, {"key": "team"}),
    ),
    Tainted(
        "a taint that is granted with its value",
        "team",
        r.DRIVER,
        granted=({"key": "team", "operator": "Equal", "value": "red"},),
    ),
    Tainted(
        "with another value",
        "team",
        r.DRIVER,
        granted=({"key": "team", "operator": "Equal", "value": "blue"},),
        counts=False,
    ),
    Tainted(
        "with another effect",
        "team",
        r.DRIVER,
        granted=({"key": "team", "effect": "NoExecute"},),
        counts=False,
    ),
    Tainted(
        "with its effect",
        "team",
        r.DRIVER,
        granted=({"key": "team", "effect": "NoSchedule"},),
    ),
]


@pytest.mark.parametrize("case", TAINTED, ids=lambda case: case.story)
def test_a_tainted_pool_counts_where_engine_pods_tolerate_the_taint(
    case: Tainted,
) -> None:
    """Engine pods of the pool are rendered with the same tolerations."""
    host = r.node(
        "n1",
        pool="other",
        taints=[{"key": case.taint, "value": "red", "effect": case.effect}],
    )
    host["status"]["allocatable"] = {
        "cpu": "8",
        **({case.resource: "8"} if case.resource else {}),
    }
    items: list[Item] = [("Node", host)]
    if case.driver:
        slices = r.resource_slice("n1", 8)
        items.append(
            (
                "ResourceSlice",
                {**slices, "spec": {**slices["spec"], "driver": case.driver}},
            )
        )
    (pool,) = (
        ADAPTERS["kube"]
        .snapshot("eu-1", listed(items), AT, case.configured, {"other": case.granted})
        .pools
    )
    assert (pool.nodes_total, pool.nodes_schedulable) == (1, int(case.counts))

    request = {
        "name": "gpu",
        "count": 8,
        **(
            {"deviceClassName": case.driver}
            if case.driver
            else {"resourceName": case.resource}
        ),
    }
    policies = {"h100": {"tolerations": list(case.granted)}} if case.granted else {}
    rendered = render(
        an_engine("main", a_member(requests=[request])),
        settings={"toleration_keys": case.configured},
        cluster=a_cluster(pod_policies=policies),
    )
    tolerated = [
        ClusterToleration(**each)
        for each in template_of(rendered)["spec"]["tolerations"]
    ]
    taint = ClusterTaint(case.taint, "red", case.effect)
    assert (
        untolerated([taint], tolerated) is None or case.effect == "PreferNoSchedule"
    ) is case.counts


def test_kube_counts_the_newest_generation_of_a_drivers_pool() -> None:
    old = r.resource_slice("n1", 16, generation=0)
    old["metadata"]["name"] = "n1-old"
    assert (
        snapshot("kube", [*r.KUBE, ("ResourceSlice", old)]).pools
        == snapshot("kube", r.KUBE).pools
    )


def test_kube_names_workloads_with_pending_pods_and_since_when() -> None:
    """One waiting pod of a gang makes the gang wait, since the earliest of its pods."""
    states = {
        seen.workload: (seen.state, seen.reason, seen.since)
        for seen in snapshot("kube", r.KUBE).admission
    }
    assert states == {
        "chat-11111111": ("Admitted", "", 0),
        "gang-22222222": (
            "Pending",
            "Unschedulable",
            int(datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp() * 1000),
        ),
    }


def queues(adapter: str, items: list[Item]) -> dict[str, Any]:
    return {queue.name: queue for queue in snapshot(adapter, items).queues}


def test_kueue_free_is_nominal_less_reserved_plus_borrowable() -> None:
    found = queues("kueue", [*r.KUBE, *r.KUEUE])
    # 16 nominal, 12 reserved (only 4 run). The cohort's other queue has 8 spare and
    # lends 5, of which 3 may be borrowed.
    red = found["red/h100-flavor"]
    assert (
        red.tenants,
        red.pools,
        red.nominal,
        red.used,
        red.borrowable,
        red.limit,
        red.free,
        red.pending,
    ) == (
        ["modelplane-red"],
        ["h100"],
        16,
        12,
        3,
        19,
        7,
        2,
    )
    assert (
        found["blue/h100-flavor"].nominal,
        found["blue/h100-flavor"].used,
        found["blue/h100-flavor"].free,
    ) == (8, 0, 12)
    assert (found["stopped/h100-flavor"].active, found["stopped/h100-flavor"].free) == (
        False,
        0,
    )


@pytest.mark.parametrize(
    ("served", "read"),
    [
        (
            {"ClusterQueue": ("v1beta1", "v1beta2"), "Cohort": ("v1beta1", "v1beta2")},
            {"ClusterQueue": "v1beta2", "Cohort": "v1beta2"},
        ),
        (
            {"ClusterQueue": ("v1beta1",), "Cohort": ("v1alpha1",)},
            {"ClusterQueue": "v1beta1", "Cohort": "v1alpha1"},
        ),
        ({"ClusterQueue": ("v1beta1",)}, {"ClusterQueue": "v1beta1"}),
    ],
    ids=["0.15", "0.11", "before cohorts"],
)
def test_kueue_is_read_in_the_best_version_of_each_kind(
    served: dict[str, tuple[str, ...]], read: dict[str, str]
) -> None:
    found = [
        GroupVersionKind(f"kueue.x-k8s.io/{version}", kind)
        for kind, versions in served.items()
        for version in versions
    ]
    resources = {
        kind: ApiResource(kind, "", namespaced=False, verbs=frozenset())
        for kind in found
    }
    wanted = [(version, kind) for version, kind, _ in ADAPTERS["kueue"].kinds]
    assert {
        kind.kind: kind.api_version.rpartition("/")[2]
        for kind in resolve_all(wanted, resources)
    } == read


def test_kueue_before_v1beta2_is_supported() -> None:
    """v1beta1 has another name for the cohort's field."""
    old = [
        (
            kind,
            {
                **item,
                "spec": {
                    ("cohort" if key == "cohortName" else key): value
                    for key, value in item["spec"].items()
                },
            },
        )
        for kind, item in r.KUEUE
    ]
    assert old != r.KUEUE
    assert snapshot("kueue", [*r.KUBE, *old]) == snapshot("kueue", [*r.KUBE, *r.KUEUE])


def test_kueue_a_queue_that_has_borrowed_has_only_the_rest_to_borrow() -> None:
    used = [
        (
            kind,
            r.with_reserved(item, "17500m")
            if item["metadata"]["name"] == "red"
            else item,
        )
        for kind, item in r.KUEUE
    ]
    red = queues("kueue", [*r.KUBE, *used])["red/h100-flavor"]
    assert (red.used, red.borrowed, red.borrowable, red.free) == (18, 2, 1, 1)


def test_kueue_without_a_cohort_nothing_is_borrowed() -> None:
    alone = [
        (kind, {**item, "spec": {**item["spec"], "cohortName": ""}})
        if kind == "ClusterQueue"
        else (kind, item)
        for kind, item in r.KUEUE
    ]
    assert queues("kueue", [*r.KUBE, *alone])["red/h100-flavor"].free == 4


def test_kai_free_is_the_least_along_the_parents() -> None:
    found = queues("kai", [*r.KUBE, *r.KAI])
    assert {
        name: (queue.nominal, queue.limit, queue.used, queue.free)
        for name, queue in found.items()
    } == {
        "company": (-1, 20, 18, 2),  # 17.5 GPUs are used, and a fraction counts as one
        "modelplane-red": (8, 16, 10, 2),
        "modelplane-strict": (
            8,
            -1,
            7,
            1,
        ),  # no share of the surplus, so its quota is its limit
        "free": (-1, -1, 0, -1),
    }
    assert found["modelplane-red"].borrowed == 2
    assert found["modelplane-red"].tenants == ["modelplane-red"]


def test_kai_gives_the_reason_of_the_pod_group() -> None:
    gang = next(
        seen
        for seen in snapshot("kai", [*r.KUBE, *r.KAI]).admission
        if seen.workload == "gang-22222222"
    )
    assert (gang.state, gang.reason) == (
        "Pending",
        "OverLimit: the queue has no quota left",
    )


def test_kai_gives_the_text_of_plain_conditions_without_scheduling_conditions() -> None:
    old = {
        "type": "Scheduled",
        "status": "True",
        "reason": "Old",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    new = {
        "type": "Unschedulable",
        "status": "True",
        "reason": "OverLimit",
        "lastTransitionTime": "2026-01-01T12:00:00Z",
    }
    group = next(item for kind, item in r.KAI if kind == "PodGroup")
    seen = admitted(
        "kai", [*r.KUBE, ("PodGroup", {**group, "status": {"conditions": [new, old]}})]
    )["gang-22222222"]
    assert (seen.state, seen.reason) == ("Pending", "OverLimit")


def admitted(adapter: str, items: list[Item]) -> dict[str, Admission]:
    return {seen.workload: seen for seen in snapshot(adapter, items).admission}


NOON = int(datetime(2026, 1, 1, 12, 0, tzinfo=UTC).timestamp() * 1000)
MINUTE = 60_000
CHAT, GANG = "chat-11111111", "gang-22222222"
POD = (("Pod", "chat-0"),)
EVICTED = ("Evicted", "True", "Preempted", "in favour of ml/batch")
WAITS = ("QuotaReserved", "False", "Pending", "no quota for nvidia.com/gpu")
WORKLOADS = [
    (
        "a pod's own, evicted",
        r.workload("w", POD, EVICTED, WAITS),
        CHAT,
        ("Evicted", "Preempted: in favour of ml/batch", 10),
    ),
    (
        "evicted once, and back",
        r.workload(
            "w",
            POD,
            ("Evicted", "False", "QuotaReserved", "Previously"),
            ("QuotaReserved", "True", "QuotaReserved", ""),
        ),
        CHAT,
        ("Admitted", "", None),
    ),
    (
        "a group's, evicted",
        r.workload("group", (("LeaderWorkerSet", "gang-main"),), EVICTED),
        GANG,
        ("Evicted", EVICTED[2] + ": " + EVICTED[3], 10),
    ),
    (
        "a group's, waiting",
        r.workload("group", (), WAITS),
        GANG,
        ("Pending", "Pending: no quota for nvidia.com/gpu", 0),
    ),
    (
        "finished",
        r.workload("group", (), EVICTED, ("Finished", "True", "Succeeded", "")),
        GANG,
        ("Pending", "Unschedulable", 0),
    ),
    (
        "of another owner",
        r.workload("w", (("Job", "chat-0"),), EVICTED),
        CHAT,
        ("Admitted", "", None),
    ),
]


@pytest.mark.parametrize(
    ("story", "workload", "ours", "want"), WORKLOADS, ids=[row[0] for row in WORKLOADS]
)
def test_kueue_gives_pods_the_conditions_of_their_workload(
    story: str, workload: dict[str, Any], ours: str, want: tuple[str, str, int | None]
) -> None:
    """The two waiting followers of the gang belong to the Workload `group`."""
    del story
    grouped = [
        (
            kind,
            {
                **item,
                "metadata": {
                    **item["metadata"],
                    "labels": {
                        **item["metadata"]["labels"],
                        "kueue.x-k8s.io/pod-group-name": "group",
                    },
                },
            },
        )
        if kind == "Pod" and item["metadata"]["name"].startswith("gang")
        else (kind, item)
        for kind, item in r.KUBE
    ]
    seen = admitted("kueue", [*grouped, ("Workload", workload)])[ours]
    state, reason, minute = want
    assert (seen.state, seen.reason, seen.since) == (
        state,
        reason,
        0 if minute is None else NOON + minute * MINUTE,
    )


@pytest.mark.parametrize(
    ("reason", "state"),
    [("PreemptionByScheduler", "Evicted"), ("DeletionByTaintManager", "Admitted")],
    ids=["by a scheduler", "by a taint"],
)
@pytest.mark.parametrize("adapter", sorted(ADAPTERS))
def test_a_pod_that_a_scheduler_preempts_has_a_condition(
    adapter: str, reason: str, state: str
) -> None:
    """KAI sets the condition of kube-scheduler.

    An eviction by a taint does not concern admission.
    """
    lost = r.pod("chat-0", **{labels.SERVING: CHAT})
    taken = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": "for ml/batch",
        "lastTransitionTime": "2026-01-01T12:03:00Z",
    }
    lost["status"]["conditions"].append(taken)
    seen = admitted(adapter, [*CLUSTERS[adapter], ("Pod", lost)])[CHAT]
    assert seen.state == state
    if state == "Evicted":
        assert (seen.reason, seen.since) == (
            f"{reason}: for ml/batch",
            NOON + 3 * MINUTE,
        )


def test_a_pod_without_a_scheduling_condition_waits_since_its_creation() -> None:
    new = r.pod("chat-0", **{labels.SERVING: CHAT})
    new["metadata"]["creationTimestamp"] = "2026-01-01T12:01:00Z"
    new["status"] = {"phase": "Pending"}
    seen = admitted("kube", [*r.KUBE, ("Pod", new)])[CHAT]
    assert (seen.state, seen.reason, seen.since) == (
        "Pending",
        "no scheduler has reported on it",
        NOON + MINUTE,
    )


def test_a_pod_that_was_evicted_counts_more_than_one_that_waits() -> None:
    lost = r.pod("gang-0-2", **{LWS_NAME_LABEL: "gang-main"})
    lost["status"]["conditions"] = [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "PreemptionByScheduler",
        }
    ]
    seen = admitted("kube", [*r.KUBE, ("Pod", lost)])[GANG]
    assert (seen.state, seen.reason, seen.since) == (
        "Evicted",
        "PreemptionByScheduler",
        0,
    )


@pytest.mark.parametrize(
    ("text", "down", "up"),
    [
        *(
            ("8", 8, 8),
            (8, 8, 8),
            ("1500m", 1, 2),
            ("2k", 2000, 2000),
            (0.5, 0, 1),
            ("-1", -1, -1),
            ("1Ki", 1024, 1024),
        ),
        *(
            ("1e3", 1000, 1000),
            ("2G", 2 * 10**9, 2 * 10**9),
            ("1Gi", 2**30, 2**30),
            ("+.5", 0, 1),
            ("1u", 0, 1),
        ),
    ],
)
def test_units_are_exact(text: Any, down: int, up: int) -> None:
    assert (floor(amount(text)), ceiling(amount(text))) == (down, up)
    assert isinstance(amount(text), Fraction)


@pytest.mark.parametrize("text", ["", "many", "1e3x", "0x10", "٣"])
def test_an_invalid_quantity_is_named(text: str) -> None:
    with pytest.raises(ValueError, match="is not a Kubernetes quantity"):
        amount(text)


def a_tracker(adapter: str) -> CapacityTracker:
    """Return a tracker with complete lists."""
    tracker = capacity_tracker(adapter, "eu-1")
    assert tracker is not None
    tracker.synced = True
    return tracker


def test_a_partial_list_is_not_a_snapshot() -> None:
    """A queue whose LocalQueues were not listed yet would look unlimited."""
    tracker = a_tracker("kueue")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    tracker.synced = False
    put(tracker.objects, "ClusterQueue", r.cluster_queue("red", 16, "12"))
    assert tracker.snapshot(now) is None
    tracker.synced = True
    before = tracker.snapshot(now)
    assert before is not None
    # A kind that is served from now on is not listed yet. Until it is, the last
    # complete snapshot ages.
    tracker.synced = False
    put(tracker.objects, "ClusterQueue", r.cluster_queue("blue", 8, "0"))
    assert tracker.snapshot(now) == before


def test_a_snapshot_keeps_its_timestamp_until_something_changes_or_it_is_old() -> None:
    tracker = a_tracker("kube")
    for kind, item in r.KUBE:
        put(tracker.objects, kind, item)
    start = datetime(2026, 1, 1, tzinfo=UTC)

    def at(seconds: int) -> int:
        seen = tracker.snapshot(start + timedelta(seconds=seconds))
        assert seen is not None
        return seen.observed_at - int(start.timestamp() * 1000)

    assert [at(0), at(100), at(299)] == [0, 0, 0]
    assert at(300) == 300_000
    heartbeat = r.node(
        "n1",
        conditions=[
            {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": "2026-01-01T00:05:00Z",
            }
        ],
    )
    put(tracker.objects, "Node", heartbeat)
    assert at(310) == 300_000
    put(tracker.objects, "Node", r.node("n1", unschedulable=True))
    assert at(320) == 320_000


def test_with_invalid_objects_the_last_snapshot_becomes_stale() -> None:
    tracker = a_tracker("kai")
    now = datetime(2026, 1, 1, tzinfo=UTC)
    before = tracker.snapshot(now)
    put(tracker.objects, "Queue", r.queue("odd", quota="lots"))
    assert tracker.snapshot(now + timedelta(minutes=20)) == before


@pytest.mark.parametrize("name", ["none", "", "slurm"])
def test_without_a_known_adapter_nothing_is_observed(name: str) -> None:
    assert capacity_tracker(name, "eu-1") is None


def test_unused_fields_are_not_kept() -> None:
    node = {**r.node("n1"), "status": {"conditions": [], "images": ["large"] * 100}}
    assert reduced("Node", node) == {
        "metadata": {"name": "n1", "labels": {labels.POOL: "h100"}},
        "spec": {"taints": [r.GPU_TAINT]},
        "status": {"conditions": []},
    }
