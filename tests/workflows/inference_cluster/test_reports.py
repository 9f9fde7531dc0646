"""The reports of a cluster to the scheduler, to replicas and to caches."""

import pytest

from api_types.digests import report_digest
from api_types.labels import MANAGED_FIELDS
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import ObservedCluster
from api_types.messages.versions import MessageVersion
from api_types.resources.status import Condition
from tests.workflows.inference_cluster.builders import a_cluster, a_spec
from workflows.inference_cluster.reports import (
    cache_report,
    replica_report,
    scheduler_report,
    unsequenced,
)
from workflows.inference_cluster.state import ClusterState, KnownClass

APPLIED, APPLIED_MS = "2026-01-01T00:00:00Z", 1_767_225_600_000


def test_the_scheduler_gets_only_the_fields_that_placement_reads() -> None:
    conditions = [
        Condition(
            type=kind,
            status="True",
            reason="Available",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        for kind in ("ClusterReady", "Ready")
    ]
    state = a_cluster(
        labels={"region": "eu"},
        pools=[{"name": "h100"}],
        conditions=conditions,
        spec=a_spec(taints=[{"key": "a"}]),
        epoch=4,
    )
    state.creation_timestamp = APPLIED
    annotations = dict(state.annotations)
    state.annotations = {**annotations, MANAGED_FIELDS: "{}"}
    report = scheduler_report("eu-1", state, gone=False)
    assert (report.name, report.uid, report.sequence, report.epoch, report.gone) == (
        "eu-1",
        "u",
        7,
        4,
        False,
    )
    assert report.created == APPLIED_MS
    assert report.manifest == {
        "metadata": {
            "name": "eu-1",
            "uid": "u",
            "labels": {"region": "eu"},
            "annotations": annotations,
        },
        "spec": {"taints": [{"key": "a"}], "nodePools": state.spec["nodePools"]}
        if state.spec
        else {},
        "status": {
            "gateway": {"address": "192.0.2.1"},
            "cache": {"storageClassName": "rwx"},
            "gpuPools": [{"name": "h100"}],
            "conditions": [conditions[1].wire()],
        },
    }


def test_a_deletion_is_reported_to_the_scheduler() -> None:
    report = scheduler_report(
        "eu-1", a_cluster(deletion_timestamp="2026-01-01T00:00:00Z"), gone=True
    )
    assert (report.manifest["metadata"]["deletionTimestamp"], report.gone) == (
        "2026-01-01T00:00:00Z",
        True,
    )


def test_replicas_get_the_connection_and_the_gateway() -> None:
    report = replica_report("eu-1", a_cluster())
    assert (report.present, report.connected, report.unreachable_for_seconds) == (
        True,
        True,
        0,
    )
    assert report.connection
    assert (report.connection.name, report.connection.key) == ("eu-1", "kubeconfig")
    assert report.facts
    assert report.facts.gateway_address == "192.0.2.1"


def test_replicas_get_the_pod_policies_of_the_pools_classes() -> None:
    pools = [{"name": name, "className": name} for name in ("rdma", "plain", "lost")]
    devices = [{"name": "gpu"}]
    classes = {
        "rdma": KnownClass(
            generation=1,
            spec={"devices": devices, "podPolicy": {"capabilities": ["IPC_LOCK"]}},
        ),
        "plain": KnownClass(generation=1, spec={"devices": devices}),
    }
    report = replica_report("eu-1", a_cluster(spec=a_spec(*pools), classes=classes))
    assert report.facts
    assert report.facts.pod_policies == {"rdma": {"capabilities": ["IPC_LOCK"]}}
    # A changed pod policy causes a new rendering, which decides whether pods change.
    assert report.facts.rendered_from()["pod_policies"] == report.facts.pod_policies


def test_caches_and_replicas_get_the_storage_classes() -> None:
    state = a_cluster(facts=ClusterFacts(storage_classes={"rwx": True}))
    assert cache_report("eu-1", state, gone=False).storage_classes == {"rwx": True}
    report = replica_report("eu-1", state)
    assert report.facts
    assert (
        report.facts.storage_classes,
        report.facts.rendered_from()["storage_classes"],
    ) == ({"rwx": True}, ["rwx"])


def test_replicas_get_nothing_before_the_first_connection() -> None:
    report = replica_report(
        "eu-1", a_cluster(facts=None, observed=None, connected_generation=0)
    )
    assert (report.connected, report.connection, report.facts) == (False, None, None)


@pytest.mark.parametrize(("withdrawn", "seconds"), [(False, 0), (True, 300)])
def test_replicas_learn_that_the_endpoints_on_a_silent_cluster_are_withdrawn(
    *, withdrawn: bool, seconds: int
) -> None:
    state = a_cluster(
        unreachable_since=APPLIED,
        observed=ObservedCluster(reachable=False),
        withdrawn=withdrawn,
    )
    report = replica_report("eu-1", state)
    assert (report.connected, report.unreachable_for_seconds) == (False, seconds)


@pytest.mark.parametrize(
    ("occupied", "present"), [(None, True), (["a"], True), ([], False)]
)
def test_a_deleted_cluster_is_present_until_the_scheduler_has_no_replica_on_it(
    occupied: list[str] | None, *, present: bool
) -> None:
    assert (
        replica_report(
            "eu-1",
            a_cluster(deletion_timestamp="2026-01-01T00:00:00Z", occupied=occupied),
        ).present
        == present
    )


def test_caches_get_the_clusters_on_which_they_can_stage() -> None:
    report = cache_report("eu-1", a_cluster(labels={"tier": "gold"}), gone=False)
    assert (
        report.storage_class_name,
        report.labels,
        report.present,
        report.deleting,
    ) == ("rwx", {"tier": "gold"}, True, False)
    assert report.connection
    deleted = cache_report(
        "eu-1", a_cluster(deletion_timestamp="2026-01-01T00:00:00Z"), gone=True
    )
    assert (deleted.present, deleted.deleting) == (False, True)
    assert cache_report("eu-1", ClusterState(), gone=False).connection is None


def test_a_report_that_differs_only_in_its_number_is_not_new() -> None:
    reports = [
        replica_report("eu-1", a_cluster(sequence=sequence)) for sequence in (1, 2)
    ]
    assert reports[0] != reports[1]
    assert len({report_digest(unsequenced(report)) for report in reports}) == 1


@pytest.mark.parametrize(
    ("deleted", "asking", "holders"),
    [
        ("", "", {}),
        ("", "ml/m", {"ml/m": "c"}),
        ("", "ml/ended", {}),
        (APPLIED, "", {"ml/m": "c"}),
    ],
)
def test_caches_get_the_users_that_block_a_deleted_cluster(
    deleted: str, asking: str, holders: dict[str, str]
) -> None:
    known = {name: MessageVersion(uid="c", sequence=1) for name in ("ml/m", "ml/ended")}
    state = a_cluster(
        caches=["ml/m"], cache_registrations=known, deletion_timestamp=deleted
    )
    found = cache_report("eu-1", state, gone=False, asking=asking)
    assert found.holders == holders
