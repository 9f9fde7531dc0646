"""The visible progress of a cloud cluster.

Its object graph in the Temporal UI and the estimated duration, taken from earlier work.
"""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudDelete,
    CloudHealth,
    CloudOrder,
    CloudProblem,
    CloudReport,
)
from tests.activities.clouds.builders import UID, a_pool
from tests.workflows.cloud_cluster.control_plane import CloudPlane
from tests.workflows.cloud_cluster.decided import ACCOUNT, Decided, ready
from tests.workflows.environment.harness import eventually
from workflows.cloud_cluster import readiness, shown, workflow
from workflows.cloud_cluster.state import CloudState
from workflows.cloud_cluster.workflow import CloudClusterWorkflow
from workflows.entity.failures import Failure

POOL = "pool/gpu"
MINUTE = timedelta(minutes=1)


def rows(cluster: Decided) -> dict[str, str]:
    """Return the state of each object in the table of the Temporal UI."""
    lines = shown.details_of("prod", cluster.state, cluster.calls.keys).splitlines()
    table = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in lines
        if line.startswith("| ")
    ]
    return {row[0]: row[2] for row in table[1:]}


def begun(cluster: Decided, key: str) -> None:
    """Complete the work on all objects that precede this one."""
    while not cluster.calls.running(key):
        cluster.end(
            next(each for each in cluster.calls.keys if not each.startswith("/")),
            "Ready",
        )


def waits_for(cluster: Decided) -> str:
    return shown.waits_for(cluster.state, cluster.calls.keys)


# The graph


def test_the_table_shows_the_current_state_of_every_object() -> None:
    cluster = Decided()
    cluster.plan()
    begun(cluster, CLUSTER_KEY)
    seen = rows(cluster)
    assert (seen["net/vpc"], seen["net/subnet"], seen[CLUSTER_KEY]) == (
        "Ready",
        "Ready",
        "Creating …",
    )
    assert POOL not in seen, "nothing is ordered yet"
    begun(cluster, POOL)
    assert (rows(cluster)[CLUSTER_KEY], rows(cluster)[POOL]) == ("Ready", "Creating …")
    cluster.make_all()
    assert rows(cluster) == dict.fromkeys(cluster.state.inventory, "Ready")
    assert shown.details_of("prod", cluster.state, []).startswith(
        "**CloudCluster prod** — Ready"
    )


def test_the_trouble_of_an_existing_object_is_shown_until_the_deletion() -> None:
    cluster = ready()
    cluster.entry(POOL).health = CloudHealth(
        error="CapacityUnavailable", code="DEGRADED", text="no machines"
    )
    shown_text = (
        "CapacityUnavailable: pool/gpu (NodePool gpu): no machines; next step: "
    )
    reason, text = shown.trouble(cluster.state)
    assert (reason, text.startswith(shown_text)) == (shown.PROVISIONING, True)
    cluster.state.deletion = CloudDelete(uid=UID, sequence=9)
    assert shown.trouble(cluster.state) == ("", "")


def test_the_table_shows_messages_of_the_cloud_and_no_text_breaks_it() -> None:
    cluster = ready()
    cluster.entry(POOL).message = "status ERROR:\nno machines | in this zone"
    text = shown.details_of("prod", cluster.state, [])
    assert (
        f"| {POOL} | NodePool gpu | Ready | status ERROR: no machines / in this zone |"
        in text
    )


@pytest.mark.slow
async def test_the_temporal_ui_has_the_graph_and_one_activity_for_each_object_by_its_key(
    gke: CloudPlane,
) -> None:
    gke.cloud.hold.add(CLUSTER_KEY)
    await gke.apply(a_pool())

    async def details() -> str:
        found = await gke.handle.query(
            "__temporal_workflow_metadata", result_type=WorkflowMetadata
        )
        return str(found.current_details)

    await eventually(
        details,
        lambda text: f"| {CLUSTER_KEY} | Cluster " in text and "| Creating … |" in text,
        what="the graph",
    )
    description = await gke.handle.describe()
    pending = [
        each.activity_id for each in description.raw_description.pending_activities
    ]
    assert f"ensure {CLUSTER_KEY} 0" in pending
    gke.cloud.hold.clear()
    await gke.ready()
    summaries: dict[str, Any] = {}
    async for event in gke.handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_id.startswith("ensure "):
            (
                summaries[scheduled.activity_id],
            ) = await gke.client.data_converter.decode([event.user_metadata.summary])
    worked_on = [
        f"ensure {each['key']} 0" for each in (await gke.progress())["objects"]
    ]
    assert sorted(summaries) == sorted(worked_on)
    assert summaries[f"ensure {CLUSTER_KEY} 0"].startswith(
        f"ensure {CLUSTER_KEY}: Cluster prod-"
    )
    text = await details()
    assert ("| Creating" in text, text.count("| Ready |")) == (False, len(worked_on))


# The report to the InferenceCluster


def test_the_report_without_a_plan_and_with_each_part_of_it() -> None:
    cluster = Decided()
    cluster.state.report_number = 7
    assert shown.report_of(CloudState(report_number=5), UID, []) == CloudReport(
        uid=UID,
        sequence=5,
        reason="Provisioning",
        message="planning the cloud objects",
        waits_for="planning the cloud objects",
    )
    refused = CloudProblem(reason="InvalidNodePool", at="pool b", text="no such card")
    warning = CloudProblem(reason="Expensive", at="gpu", text="costs much")
    plan = cluster.wanted(
        (refused,), warnings=[warning], cloud_cluster="mp-eu", storage_class="fs"
    )
    cluster.plan(plan)
    cluster.make_all()
    assert shown.report_of(cluster.state, UID, [], ["disk d"]) == CloudReport(
        uid=UID,
        sequence=7,
        generation=1,
        phase="Ready",
        usable=True,
        ready=True,
        reason="InvalidNodePool",
        message="InvalidNodePool: pool b: no such card; next step: "
        "change the spec as the message says",
        states=readiness.states_of(cluster.state, []),
        cloud_cluster="mp-eu",
        account=ACCOUNT,
        problems=[refused, warning],
        storage_class="fs",
        objects_ready=len(plan.objects),
        objects=len(plan.objects),
        leftovers=["disk d"],
        events=cluster.state.events,
    )
    cluster.state.unreported = 1
    (last,) = shown.report_of(cluster.state, UID, []).events
    assert last == cluster.state.events[-1]


def test_another_attempt_at_a_lasting_problem_is_no_news_until_it_fails_again() -> None:
    cluster = Decided()
    cluster.plan()
    begun(cluster, POOL)
    compared = []
    for _ in range(2):
        cluster.calls.failed(POOL, Failure("CapacityUnavailable", "no machines"))
        for delay in (timedelta(), 10 * MINUTE):
            cluster.after(delay)
            report = shown.report_of(cluster.state, UID, cluster.calls.keys)
            compared.append(shown.compared(report))
        assert cluster.calls.running(POOL)
    first, retried, failed, again = compared
    assert (first, failed) == (retried, again)
    (before,), (after,) = (
        [each for each in report.states if each.pool] for report in (first, failed)
    )
    assert before.retry_at < after.retry_at
    assert after == before.model_copy(update={"retry_at": after.retry_at})


ORDER = CloudOrder(uid=UID, sequence=1, generation=1, manifest={})


@pytest.mark.parametrize(
    ("fields", "phase"),
    [
        ({}, "Pending"),
        ({"order": ORDER}, "Preflight"),
        ({"order": ORDER, "deletion": CloudDelete(uid=UID, sequence=1)}, "Deleting"),
    ],
    ids=["nothing is ordered", "no plan yet", "being deleted"],
)
def test_the_phase_before_there_is_a_plan(fields: dict[str, Any], phase: str) -> None:
    assert shown.phase_of(CloudState(**fields), []) == phase


def test_the_phase_with_a_plan_depends_on_the_existing_objects() -> None:
    cluster = Decided()
    cluster.plan()
    phases = [shown.phase_of(cluster.state, [])]
    cluster.make_all()
    phases.append(shown.phase_of(cluster.state, []))
    cluster.state.was_ready, cluster.entry(POOL).made = True, ""
    phases.append(shown.phase_of(cluster.state, []))
    assert phases == ["Creating", "Ready", "Changing"]


# Estimated durations


def test_the_awaited_object_has_a_default_estimate_until_one_was_measured() -> None:
    cluster = Decided(a_pool("gpu"), a_pool("other"))
    cluster.plan()
    begun(cluster, CLUSTER_KEY)
    expected = (
        f"{cluster.entry(CLUSTER_KEY).title}: operation DONE, status RUNNING, which "
        "takes about 10 min, since 12:00 UTC"
    )
    assert waits_for(cluster).startswith(expected)
    begun(cluster, POOL)
    assert (
        "pool/gpu (NodePool gpu): operation DONE, status RUNNING, which takes about 4 min"
        in waits_for(cluster)
    )


def test_an_estimate_is_the_last_duration_of_the_kind_and_is_carried_over() -> None:
    cluster = Decided(a_pool("gpu"), a_pool("other"))
    cluster.plan()
    begun(cluster, POOL)
    cluster.after(17 * MINUTE)
    cluster.end(POOL, "Ready")
    begun(cluster, "pool/other")
    assert "about 17 min" in waits_for(cluster)
    assert shown.progress_of(cluster.state, cluster.calls.keys)[
        "waitsFor"
    ] == waits_for(cluster)
    carried = CloudState.model_validate(
        cluster.state.model_dump(mode="json", by_alias=True)
    )
    assert shown.usual_seconds(carried, cluster.entry("pool/other").object) == 17 * 60
    (row,) = [
        each for each in shown.inventory_of(carried, []) if each["key"] == "pool/other"
    ]
    assert row["usualSeconds"] == 17 * 60


def test_of_several_objects_the_slowest_is_named() -> None:
    cluster = Decided()
    cluster.plan()
    assert len(cluster.calls.keys) > 1
    longest = max(
        cluster.calls.keys,
        key=lambda key: shown.usual_seconds(cluster.state, cluster.entry(key).object),
    )
    assert waits_for(cluster).startswith(cluster.entry(longest).title)
    assert waits_for(cluster).endswith(f"and {len(cluster.calls.keys) - 1} more")


def test_time_lost_by_a_failure_is_in_no_estimate() -> None:
    cluster = Decided()
    cluster.plan()
    begun(cluster, POOL)
    cluster.after(3 * MINUTE)
    cluster.calls.failed(
        POOL, Failure("QuotaExceeded", "NVIDIA_L4_GPUS needs 2, has 0")
    )
    cluster.after(60 * MINUTE)
    cluster.entries.retry_all()
    cluster.go()
    cluster.after(2 * MINUTE)
    cluster.end(POOL, "Ready")
    assert cluster.state.durations["NodePool"] == 2 * 60


async def test_events_of_a_message_during_a_refused_report_are_reported_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ready()
    cloud = object.__new__(CloudClusterWorkflow)
    cloud.state, cloud.context, cloud.calls = (
        cluster.state,
        cluster.context,
        cluster.calls,
    )

    async def missing(*_: Any) -> list[str]:
        # The InferenceCluster starts now, and does not know the earlier events.
        cloud.state.unreported = len(cloud.state.events)
        return ["inference-cluster/prod"]

    monkeypatch.setattr(workflow, "send_all", missing)
    monkeypatch.setattr("temporalio.workflow.time", lambda: 0.0)
    monkeypatch.setattr(cloud, "_publish", lambda: None)
    before = len(cloud.state.events)
    await cloud._report()
    assert cloud.state.events[-1].reason == "OwnerMissing"
    assert cloud.state.unreported == before
