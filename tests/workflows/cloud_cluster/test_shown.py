"""What people see of a cluster at a cloud: the graph as it moves, and how long the work takes, from what it took before.

Issue: the Temporal UI shows the graph with each object's state; progress has the object waited for, and an estimate from history.
"""

from datetime import timedelta
from typing import Any

import pytest
from temporalio.api.sdk.v1 import WorkflowMetadata

from api_types.messages.clouds import CLUSTER_KEY, CloudDelete, CloudOrder, CloudProblem, CloudReport
from tests.activities.clouds.builders import UID, a_pool
from tests.workflows.cloud_cluster.control_plane import CloudPlane
from tests.workflows.cloud_cluster.decided import ACCOUNT, Decided, ready
from tests.workflows.environment.harness import eventually
from workflows.cloud_cluster import shown
from workflows.cloud_cluster.state import CloudState
from workflows.entity.failures import Failure

POOL = "pool/gpu"
MINUTE = timedelta(minutes=1)


def rows(cluster: Decided) -> dict[str, str]:
    """The state of each object in the table of the Temporal UI."""
    lines = shown.details_of("prod", cluster.state, cluster.calls.keys).splitlines()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")]
    return {row[0]: row[2] for row in table[1:]}


def begun(cluster: Decided, key: str) -> None:
    """Have everything Ready that comes before the work on an object."""
    while not cluster.calls.running(key):
        cluster.end(next(each for each in cluster.calls.keys if not each.startswith("/")), "Ready")


def waits_for(cluster: Decided) -> str:
    return shown.waits_for(cluster.state, cluster.calls.keys)


# --- the graph ----------------------------------------------------------------------------------------------------------------------------


def test_prv_3_1_the_table_has_every_object_with_its_state_as_it_moves() -> None:
    cluster = Decided()
    cluster.plan()
    begun(cluster, CLUSTER_KEY)
    seen = rows(cluster)
    assert (seen["net/vpc"], seen["net/subnet"], seen[CLUSTER_KEY]) == ("Ready", "Ready", "Creating …")
    assert POOL not in seen, "nothing is ordered yet"
    begun(cluster, POOL)
    assert (rows(cluster)[CLUSTER_KEY], rows(cluster)[POOL]) == ("Ready", "Creating …")
    cluster.make_all()
    assert rows(cluster) == dict.fromkeys(cluster.state.inventory, "Ready")
    assert shown.details_of("prod", cluster.state, []).startswith("**CloudCluster prod** — Ready")


def test_prv_4_1_the_table_has_the_words_of_the_cloud_and_no_text_breaks_it() -> None:
    cluster = ready()
    cluster.entry(POOL).message = "status ERROR:\nno machines | in this zone"
    text = shown.details_of("prod", cluster.state, [])
    assert f"| {POOL} | NodePool gpu | Ready | status ERROR: no machines / in this zone |" in text


@pytest.mark.slow
async def test_prv_3_2_the_temporal_ui_has_the_graph_and_one_activity_for_each_object_by_its_key(gke: CloudPlane) -> None:
    gke.cloud.hold.add(CLUSTER_KEY)
    await gke.apply(a_pool())

    async def details() -> str:
        found = await gke.handle.query("__temporal_workflow_metadata", result_type=WorkflowMetadata)
        return str(found.current_details)

    await eventually(details, lambda text: f"| {CLUSTER_KEY} | Cluster " in text and "| Creating … |" in text, what="the graph")
    description = await gke.handle.describe()
    pending = [each.activity_id for each in description.raw_description.pending_activities]
    assert f"ensure {CLUSTER_KEY} 0" in pending
    gke.cloud.hold.clear()
    await gke.ready()
    summaries: dict[str, Any] = {}
    async for event in gke.handle.fetch_history_events():
        scheduled = event.activity_task_scheduled_event_attributes
        if scheduled.activity_id.startswith("ensure "):
            (summaries[scheduled.activity_id],) = await gke.client.data_converter.decode([event.user_metadata.summary])
    worked_on = [f"ensure {each['key']} 0" for each in (await gke.progress())["objects"]]
    assert sorted(summaries) == sorted(worked_on)
    assert summaries[f"ensure {CLUSTER_KEY} 0"].startswith(f"ensure {CLUSTER_KEY}: Cluster prod-")
    text = await details()
    assert ("| Creating" in text, text.count("| Ready |")) == (False, len(worked_on))


# --- the report to the InferenceCluster ----------------------------------------------------------


def test_the_report_without_a_plan_and_with_each_part_of_it() -> None:
    cluster = Decided()
    cluster.state.report_number = 7
    assert shown.report_of(CloudState(report_number=5), UID, []) == CloudReport(uid=UID, sequence=5, reason="Provisioning")
    refused = CloudProblem(reason="InvalidNodePool", at="b", text="no such card")
    warning = CloudProblem(reason="Expensive", at="gpu", text="costs much")
    plan = cluster.wanted((refused,), warnings=[warning], cloud_cluster="mp-eu", storage_class="fs")
    cluster.plan(plan)
    cluster.make_all()
    assert shown.report_of(cluster.state, UID, [], ["disk d"]) == CloudReport(
        uid=UID,
        sequence=7,
        generation=1,
        phase="Creating",
        usable=True,
        reason="InvalidNodePool",
        message="InvalidNodePool: b: no such card",
        cloud_cluster="mp-eu",
        account=ACCOUNT,
        problems=[refused, warning],
        storage_class="fs",
        objects_ready=len(plan.objects),
        objects=len(plan.objects),
        leftovers=["disk d"],
    )


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


def test_the_phase_with_a_plan_follows_what_was_there() -> None:
    cluster = Decided()
    cluster.plan()
    phases = [shown.phase_of(cluster.state, [])]
    cluster.make_all()
    phases.append(shown.phase_of(cluster.state, []))
    cluster.state.was_ready, cluster.entry(POOL).made = True, ""
    phases.append(shown.phase_of(cluster.state, []))
    assert phases == ["Creating", "Ready", "Changing"]


# --- how long it takes --------------------------------------------------------------------------------------------------------------------


def test_prv_3_1_what_is_waited_for_has_what_it_usually_takes_until_that_is_known() -> None:
    cluster = Decided(a_pool("gpu"), a_pool("other"))
    cluster.plan()
    begun(cluster, CLUSTER_KEY)
    expected = f"{cluster.entry(CLUSTER_KEY).title}: operation DONE, status RUNNING, which takes about 10 min, since 12:00 UTC"
    assert waits_for(cluster).startswith(expected)
    begun(cluster, POOL)
    assert "pool/gpu (NodePool gpu): operation DONE, status RUNNING, which takes about 4 min" in waits_for(cluster)


def test_prv_3_1_an_estimate_is_what_the_last_object_of_this_kind_took_and_is_carried() -> None:
    cluster = Decided(a_pool("gpu"), a_pool("other"))
    cluster.plan()
    begun(cluster, POOL)
    cluster.after(17 * MINUTE)
    cluster.end(POOL, "Ready")
    begun(cluster, "pool/other")
    assert "about 17 min" in waits_for(cluster)
    assert shown.progress_of(cluster.state, cluster.calls.keys)["waitsFor"] == waits_for(cluster)
    carried = CloudState.model_validate(cluster.state.model_dump(mode="json", by_alias=True))
    assert shown.usual_seconds(carried, cluster.entry("pool/other").object) == 17 * 60
    (row,) = [each for each in shown.inventory_of(carried, []) if each["key"] == "pool/other"]
    assert row["usualSeconds"] == 17 * 60


def test_prv_3_1_of_several_the_one_that_takes_longest_is_named() -> None:
    cluster = Decided()
    cluster.plan()
    assert len(cluster.calls.keys) > 1
    longest = max(cluster.calls.keys, key=lambda key: shown.usual_seconds(cluster.state, cluster.entry(key).object))
    assert waits_for(cluster).startswith(cluster.entry(longest).title)
    assert waits_for(cluster).endswith(f"and {len(cluster.calls.keys) - 1} more")


def test_prv_3_1_time_that_was_lost_by_a_failure_is_in_no_estimate() -> None:
    cluster = Decided()
    cluster.plan()
    begun(cluster, POOL)
    cluster.after(3 * MINUTE)
    cluster.calls.failed(POOL, Failure("QuotaExceeded", "NVIDIA_L4_GPUS needs 2, has 0"))
    cluster.after(60 * MINUTE)
    cluster.entries.retry_all()
    cluster.go()
    cluster.after(2 * MINUTE)
    cluster.end(POOL, "Ready")
    assert cluster.state.durations["NodePool"] == 2 * 60
