"""What a CloudCluster decides after a failure, a change or a retry. Numbers: spec/provisioning.md 11, and sections of it."""

from datetime import timedelta

import pytest

from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    CredentialsInvalid,
    InvalidInput,
    NameConflict,
    PermissionDenied,
    QuotaExceeded,
    ReplaceRequired,
    ServerError,
    Throttled,
    Unsupported,
)
from api_types.messages.clouds import CLUSTER_KEY, CloudObjectShown, CloudPlan, CloudProblem
from tests.activities.clouds.builders import UID, a_pool
from tests.workflows.cloud_cluster.decided import ACCOUNT, T0, Decided, of_key, ready
from workflows.cloud_cluster import shown
from workflows.cloud_cluster.account import idle_counts
from workflows.cloud_cluster.calls import PLAN
from workflows.cloud_cluster.failures import delay_after
from workflows.entity.failures import Failure

POOL = "pool/gpu"
REFUSED = CloudProblem(reason="InvalidInput", at="pool b", text="no such zone")
DENIED = Failure("PermissionDenied", "lacks container.clusters.get")
NO_CREDENTIAL = Failure("CredentialsInvalid", "there is no Secret")
SECOND = timedelta(seconds=1)
HALF_HOUR = timedelta(minutes=30)


def looked_broken(cluster: Decided, key: str) -> None:
    """A look finds that an object that was Ready is broken."""
    kind = cluster.entry(key).object.kind
    cluster.entries.observed(CloudObjectShown(key=key, kind=kind, name=key, phase="Broken", message="status ERROR"), None)
    cluster.go()


# --- what is broken -----------------------------------------------------------------------------------------------------------------------


def test_prv_3_4_a_pool_that_recovered_is_kept_when_a_person_retries() -> None:
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Ready")
    assert (cluster.entry(POOL).phase, cluster.calls.started) == ("Ready", [POOL]), "it was looked at, and nothing else"
    looked_broken(cluster, POOL)
    cluster.after(HALF_HOUR)
    cluster.end(POOL, "Broken")
    assert cluster.calls.keys == [], "what a person wanted before counts no more"


def test_prv_3_4_a_pool_that_is_still_broken_is_built_again_when_a_person_retries() -> None:
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Broken", message="status ERROR")
    assert cluster.calls.started == [POOL, POOL]
    cluster.end(POOL, "Absent")
    assert (cluster.entry(POOL).epoch, cluster.entry(POOL).phase) == (1, "Creating")


def test_prv_3_4_a_broken_pool_whose_deletion_fails_is_looked_at_before_the_next_one() -> None:
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Broken")
    cluster.calls.failed(POOL, DENIED)
    cluster.after(HALF_HOUR)
    cluster.end(POOL, "Ready")
    assert (cluster.entry(POOL).phase, cluster.entry(POOL).epoch, cluster.calls.keys) == ("Ready", 0, [])


def test_prv_3_4_a_broken_control_plane_is_never_deleted_by_a_retry() -> None:
    cluster = ready()
    looked_broken(cluster, CLUSTER_KEY)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(CLUSTER_KEY, "Broken", message="status ERROR")
    assert (cluster.calls.started, cluster.calls.keys) == ([CLUSTER_KEY], [])
    assert cluster.entry(CLUSTER_KEY).failure.message == "status ERROR"


def test_prv_4_1_a_broken_control_plane_is_not_usable_while_it_is_looked_at_again() -> None:
    cluster = ready()
    assert shown.is_usable(cluster.state)
    looked_broken(cluster, CLUSTER_KEY)
    cluster.after(HALF_HOUR)
    assert (cluster.calls.keys, shown.is_usable(cluster.state)) == ([CLUSTER_KEY], False)
    cluster.end(CLUSTER_KEY, "Ready")
    assert shown.is_usable(cluster.state)


# --- plans that fail ----------------------------------------------------------------------------------------------------------------------


def test_case_18_a_credential_that_is_accepted_but_may_not_do_all_ends_the_pause_and_the_next_plan_waits() -> None:
    cluster = ready()
    cluster.order(a_pool(maxNodeCount=3))
    cluster.go()
    cluster.calls.failed(PLAN, NO_CREDENTIAL)
    cluster.after(timedelta(minutes=2))
    cluster.calls.failed(PLAN, DENIED)
    for _ in range(3):
        cluster.go()
    assert (cluster.calls.running(PLAN), cluster.state.paused.type) == (False, "")
    assert cluster.context.requeue_time == T0 + timedelta(minutes=17)
    assert cluster.reasons[-3:] == ["CredentialsInvalid", "Resumed", "PermissionDenied"]


def test_a_corrected_order_does_not_wait_for_the_failure_of_the_one_before() -> None:
    cluster = Decided(a_pool(zones=["nowhere"]))
    cluster.go()
    cluster.order(a_pool())
    cluster.calls.failed(PLAN, Failure("InvalidInput", "no such zone"))
    cluster.go()
    assert cluster.calls.running(PLAN)
    assert "InvalidInput" not in cluster.reasons


def test_a_retry_while_a_plan_is_made_is_another_plan() -> None:
    cluster = Decided()
    cluster.go()
    cluster.converge.plan_again()
    cluster.calls.failed(PLAN, DENIED)
    cluster.go()
    assert cluster.calls.running(PLAN)
    cluster.calls.failed(PLAN, DENIED)
    cluster.go()
    assert not cluster.calls.running(PLAN), "one retry is one more attempt"


def test_an_order_ends_the_wait_of_a_pause() -> None:
    cluster = Decided()
    cluster.go()
    cluster.calls.failed(PLAN, NO_CREDENTIAL)
    cluster.go()
    assert not cluster.calls.running(PLAN)
    cluster.order(a_pool())
    cluster.go()
    assert cluster.calls.running(PLAN), "it may name another credential"


@pytest.mark.parametrize("at", ["", "pool a"])
def test_prv_4_1_a_cluster_that_is_refused_before_anything_is_there_is_asked_for_again(at: str) -> None:
    cluster = Decided(a_pool("a"))
    refused = cluster.wanted(refused=(REFUSED.model_copy(update={"at": at}),)).model_copy(update={"objects": []})
    cluster.plan(refused)
    assert (cluster.calls.keys, cluster.context.requeue_time) == ([], T0 + HALF_HOUR)
    cluster.after(HALF_HOUR - SECOND)
    assert cluster.calls.keys == []
    cluster.after(SECOND)
    cluster.plan(refused)
    assert cluster.calls.keys == []
    cluster.converge.plan_again()
    cluster.plan()
    assert "net/vpc" in cluster.calls.keys, "a retry is another plan at once, and what is offered by then is made"
    cluster.make_all()
    cluster.after(HALF_HOUR)
    assert cluster.calls.keys == []


def test_a_retry_while_a_plan_is_made_that_is_refused_is_another_plan() -> None:
    cluster = Decided()
    cluster.go()
    cluster.converge.plan_again()
    cluster.plan(cluster.wanted(refused=(REFUSED,)).model_copy(update={"objects": []}))
    assert cluster.calls.started == [PLAN, PLAN]


# --- plans that change --------------------------------------------------------------------------------------------------------------------


def test_a_refused_pool_holds_up_no_other() -> None:
    cluster = ready(a_pool("a", maxNodeCount=4), a_pool("b"))
    cluster.order(a_pool("a", maxNodeCount=6), a_pool("b", maxNodeCount=9), a_pool("c"))
    plan = cluster.wanted(refused=(REFUSED,))
    cluster.plan(plan.model_copy(update={"objects": [each for each in plan.objects if each.pool != "b"]}))
    cluster.make_all()
    assert cluster.calls.started == [PLAN, "pool/a", "pool/c"]
    assert (cluster.entry("pool/b").phase, cluster.entry("pool/b").removed_since) == ("Ready", "")
    assert cluster.state.plan is not None
    assert [each.key for each in cluster.state.plan.objects if each.pool] == ["pool/a", "pool/c", "pool/b"]


def test_a_refused_cluster_stays_as_it_is() -> None:
    cluster = ready(a_pool("a"))
    before = cluster.state.plan.objects if cluster.state.plan else []
    cluster.order(a_pool("a", maxNodeCount=6), a_pool("c"))
    cluster.plan(cluster.wanted(refused=(REFUSED, REFUSED.model_copy(update={"at": ""}))))
    assert (cluster.calls.started, cluster.state.plan and cluster.state.plan.objects) == ([PLAN], before)


def test_case_58_a_cluster_that_is_gone_still_says_so_after_a_change_of_the_spec() -> None:
    cluster = ready()
    cluster.entries.observed(CloudObjectShown(key=CLUSTER_KEY, kind="Cluster", name="c", phase="Absent"), None)
    cluster.order(a_pool())
    cluster.plan(of_key(cluster.wanted(), CLUSTER_KEY, digest="of another version"))
    assert "modelplane retry" in shown.trouble(cluster.state)[1]
    assert CLUSTER_KEY not in cluster.calls.started


def test_what_an_object_needs_is_taken_from_the_newest_plan() -> None:
    cluster = ready()
    cluster.order(a_pool())
    cluster.plan(of_key(cluster.wanted(), "sc", needs=["conn", POOL]))
    assert (cluster.entry("sc").object.needs, cluster.calls.started) == (["conn", POOL], [PLAN])


# --- pools that are removed ---------------------------------------------------------------------------------------------------------------


def test_case_55_a_removed_pool_goes_when_its_wait_ends_and_not_with_the_next_look() -> None:
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1800))
    assert cluster.context.requeue_time == T0 + HALF_HOUR
    said = shown.report_of(cluster.state, UID, cluster.calls.keys)
    assert (said.ready, said.reason) == (True, "PoolDraining")
    assert said.message == "pool b was removed and is deleted when no replica is on the cluster, at the latest at 12:30 UTC"
    cluster.after(HALF_HOUR - SECOND)
    assert "pool/b" not in cluster.calls.keys
    cluster.after(SECOND)
    assert "pool/b" in cluster.calls.keys
    assert shown.report_of(cluster.state, UID, cluster.calls.keys).message == ""
    cluster.end("pool/b", "Absent")
    assert "pool/b" not in cluster.state.inventory


def test_case_55_a_pool_that_is_removed_while_it_is_made_holds_up_no_other() -> None:
    cluster = ready(a_pool("a"))
    cluster.order(a_pool("a"), a_pool("b"), a_pool("c"))
    cluster.plan()
    assert [key for key in cluster.calls.keys if key != PLAN] == ["pool/b"], "GKE makes one after the other"
    cluster.order(a_pool("a"), a_pool("c"))
    cluster.plan()
    assert cluster.calls.stopped == ["pool/b"]
    cluster.go()
    assert "pool/c" in cluster.calls.keys


def test_a_pool_that_is_changed_while_it_is_made_is_made_as_it_is_wanted_now() -> None:
    cluster = ready(a_pool("a"))
    cluster.order(a_pool("a"), a_pool("b"))
    cluster.plan()
    cluster.order(a_pool("a"), a_pool("b"))
    cluster.plan()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], []), "it is wanted as before"
    cluster.order(a_pool("a"), a_pool("b", maxNodeCount=7))
    cluster.go()
    digest = next(each.digest for each in cluster.wanted().objects if each.key == "pool/b")
    cluster.calls.done(PLAN, cluster.wanted())
    assert cluster.calls.stopped == ["pool/b"]
    cluster.go()
    assert (cluster.calls.keys, cluster.entry("pool/b").object.digest) == (["pool/b"], digest)


def test_case_55_the_deletion_of_a_pool_that_is_changed_is_not_stopped() -> None:
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1))
    cluster.after(SECOND)
    cluster.order(a_pool("a"), a_pool("b", maxNodeCount=7))
    cluster.plan()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], [])


def test_case_55_the_deletion_of_a_removed_pool_is_not_stopped() -> None:
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1))
    cluster.after(SECOND)
    cluster.go()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], [])


# --- counts, waits ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ({"nodeCount": 1, "maxNodeCount": 4}, {"nodeCount": 3, "maxNodeCount": 4}, True),
        ({"nodeCount": 1}, {"nodeCount": 3, "maxNodeCount": 4}, True),
        ({"nodeCount": 1, "maxNodeCount": 4}, {"nodeCount": 1, "maxNodeCount": 6}, False),
        ({"nodeCount": 1}, {"nodeCount": 3}, False),
        (None, {"nodeCount": 3, "maxNodeCount": 4}, False),
    ],
)
def test_prv_5_2_a_changed_count_of_a_pool_that_scales_by_itself_is_said_to_do_nothing(
    before: dict[str, int] | None, after: dict[str, int], said: bool
) -> None:
    first = {"spec": {"nodePools": [a_pool("a", **before)] if before else []}}
    found = list(idle_counts(first, {"spec": {"nodePools": [a_pool("a", **after)]}}))
    assert [pool for pool, _ in found] == (["a"] if said else [])


PLANNED = CloudPlan(account=ACCOUNT, quota_seconds=11, capacity_seconds=12)


@pytest.mark.parametrize(
    ("error", "plan", "seconds"),
    [
        (QuotaExceeded, PLANNED, 11),
        (CapacityUnavailable, PLANNED, 12),
        (CredentialsInvalid, PLANNED, 120),
        (PermissionDenied, PLANNED, 900),
        (InvalidInput, PLANNED, 1800),
        (Unsupported, PLANNED, 1800),
        (NameConflict, PLANNED, 1800),
        (ReplaceRequired, PLANNED, 1800),
        (CloudObjectBroken, PLANNED, 1800),
        (ServerError, PLANNED, 20),
        (Throttled, PLANNED, 20),
        (QuotaExceeded, None, 20),
    ],
)
def test_prv_4_1_the_next_attempt_waits_as_long_as_its_class_says(error: type[Exception], plan: CloudPlan | None, seconds: int) -> None:
    assert delay_after(Failure(error.__name__, "no"), plan) == timedelta(seconds=seconds)
