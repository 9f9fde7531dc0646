"""Decisions of a CloudCluster after a failure, a change or a retry."""

from datetime import datetime, timedelta

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
    WorkerClockWrong,
)
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudObjectShown,
    CloudPlan,
    CloudProblem,
)
from tests.activities.clouds.builders import UID, a_pool
from tests.workflows.cloud_cluster.decided import ACCOUNT, T0, Decided, of_key, ready
from workflows.cloud_cluster import shown
from workflows.cloud_cluster.account import idle_counts
from workflows.cloud_cluster.calls import PLAN
from workflows.cloud_cluster.failures import delay_after, delay_of_rebuild
from workflows.entity.failures import Failure

POOL = "pool/gpu"
REFUSED = CloudProblem(reason="InvalidInput", at="pool b", text="no such zone")
DENIED = Failure("PermissionDenied", "lacks container.clusters.get")
NO_CREDENTIAL = Failure("CredentialsInvalid", "there is no Secret")
SECOND = timedelta(seconds=1)
HALF_HOUR = timedelta(minutes=30)


def looked_broken(cluster: Decided, key: str) -> None:
    """Let a check find that a Ready object is broken."""
    kind = cluster.entry(key).object.kind
    cluster.entries.observed(
        CloudObjectShown(
            key=key, kind=kind, name=key, phase="Broken", message="status ERROR"
        ),
        None,
    )
    cluster.go()


# Broken objects


def test_a_retry_keeps_a_pool_that_recovered() -> None:
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Ready")
    assert (cluster.entry(POOL).phase, cluster.calls.started) == ("Ready", [POOL]), (
        "it was looked at, and nothing else"
    )
    looked_broken(cluster, POOL)
    cluster.after(HALF_HOUR)
    cluster.end(POOL, "Broken")
    assert cluster.calls.keys == [], "earlier retries do not count any more"


def test_a_retry_rebuilds_a_pool_that_is_still_broken() -> None:
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Broken", message="status ERROR")
    assert cluster.calls.started == [POOL, POOL]
    cluster.end(POOL, "Absent")
    assert (cluster.entry(POOL).epoch, cluster.entry(POOL).phase) == (1, "Creating")


def test_a_broken_pool_whose_deletion_failed_is_checked_before_the_next_attempt() -> (
    None
):
    cluster = ready()
    looked_broken(cluster, POOL)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(POOL, "Broken")
    cluster.calls.failed(POOL, DENIED)
    cluster.after(HALF_HOUR)
    cluster.end(POOL, "Ready")
    assert (
        cluster.entry(POOL).phase,
        cluster.entry(POOL).epoch,
        cluster.calls.keys,
    ) == ("Ready", 0, [])


def test_a_broken_control_plane_is_never_deleted_by_a_retry() -> None:
    cluster = ready()
    looked_broken(cluster, CLUSTER_KEY)
    cluster.entries.retry_all()
    cluster.go()
    cluster.end(CLUSTER_KEY, "Broken", message="status ERROR")
    assert (cluster.calls.started, cluster.calls.keys) == ([CLUSTER_KEY], [])
    assert cluster.entry(CLUSTER_KEY).failure.message == "status ERROR"


def test_a_broken_control_plane_is_unusable_while_it_is_checked_again() -> None:
    cluster = ready()
    assert shown.is_usable(cluster.state)
    looked_broken(cluster, CLUSTER_KEY)
    cluster.after(HALF_HOUR)
    assert (cluster.calls.keys, shown.is_usable(cluster.state)) == (
        [CLUSTER_KEY],
        False,
    )
    cluster.end(CLUSTER_KEY, "Ready")
    assert shown.is_usable(cluster.state)


def new_pool() -> Decided:
    """Return a cluster that creates its pool, which may be recreated once without a pause."""
    cluster = Decided()
    cluster.plan(cluster.wanted(rebuilds=1))
    while cluster.calls.keys != [POOL]:
        cluster.end(next(key for key in cluster.calls.keys if key != POOL), "Ready")
    return cluster


def broken_again(cluster: Decided, cause: str = "") -> timedelta:
    """Let the pool end broken, delete it, and return the pause before its deletion."""
    cluster.end(POOL, "Broken", message="status CREATE_FAILED", cause=cause)
    pause = timedelta()
    if retry_at := cluster.entry(POOL).retry_at:
        pause = datetime.fromisoformat(retry_at) - cluster.context.time
        cluster.after(pause - SECOND)
        assert cluster.calls.keys == []
        cluster.after(SECOND)
    cluster.end(POOL, "Absent")
    return pause


def test_a_new_pool_that_stays_broken_is_recreated_after_growing_pauses() -> None:
    cluster = new_pool()
    pauses = [broken_again(cluster) for _ in range(4)]
    assert pauses == [timedelta(), HALF_HOUR, 2 * HALF_HOUR, 4 * HALF_HOUR]
    cluster.end(POOL, "Ready")
    assert cluster.entry(POOL).rebuilds == 0


def test_a_new_pool_that_only_another_spec_can_help_is_not_recreated_at_once() -> None:
    assert broken_again(new_pool(), "InvalidInput") == HALF_HOUR


def test_the_pauses_of_a_broken_pool_start_again_with_another_spec() -> None:
    cluster = new_pool()
    assert [broken_again(cluster) for _ in range(2)] == [timedelta(), HALF_HOUR]
    cluster.end(POOL, "Broken")
    cluster.order(a_pool(maxNodeCount=3))
    cluster.plan(cluster.wanted(rebuilds=1))
    cluster.end(POOL, "Absent")
    assert broken_again(cluster) == HALF_HOUR


# Plans that fail


def test_an_accepted_credential_without_permissions_ends_the_pause_and_delays_the_plan() -> (
    None
):
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


def test_a_rejected_part_of_the_plan_leads_to_another_plan_at_once() -> None:
    cluster = ready()
    cluster.order(a_pool(maxNodeCount=3))
    cluster.plan()
    cluster.calls.failed(POOL, Failure("PlanOutdated", "the zone is rejected"))
    cluster.go()
    assert (cluster.calls.running(PLAN), cluster.reasons[-1]) == (True, "PlanOutdated")


def test_a_corrected_order_does_not_wait_for_the_failure_of_the_one_before() -> None:
    cluster = Decided(a_pool(zones=["nowhere"]))
    cluster.go()
    cluster.order(a_pool())
    cluster.calls.failed(PLAN, Failure("InvalidInput", "no such zone"))
    cluster.go()
    assert cluster.calls.running(PLAN)
    assert "InvalidInput" not in cluster.reasons


def test_a_retry_during_planning_makes_another_plan() -> None:
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
def test_a_cluster_refused_before_creation_is_planned_again(
    at: str,
) -> None:
    cluster = Decided(a_pool("a"))
    refused = cluster.wanted(
        refused=(REFUSED.model_copy(update={"at": at}),)
    ).model_copy(update={"objects": []})
    cluster.plan(refused)
    assert (cluster.calls.keys, cluster.context.requeue_time) == ([], T0 + HALF_HOUR)
    cluster.after(HALF_HOUR - SECOND)
    assert cluster.calls.keys == []
    cluster.after(SECOND)
    cluster.plan(refused)
    assert cluster.calls.keys == []
    cluster.converge.plan_again()
    cluster.plan()
    assert "net/vpc" in cluster.calls.keys, (
        "a retry makes another plan at once, and the pools offered by then are created"
    )
    cluster.make_all()
    cluster.after(HALF_HOUR)
    assert cluster.calls.keys == []


def test_a_retry_during_planning_that_is_refused_makes_another_plan() -> None:
    cluster = Decided()
    cluster.go()
    cluster.converge.plan_again()
    cluster.plan(cluster.wanted(refused=(REFUSED,)).model_copy(update={"objects": []}))
    assert cluster.calls.started == [PLAN, PLAN]


# Plans that change


def test_a_refused_pool_does_not_block_other_pools() -> None:
    cluster = ready(a_pool("a", maxNodeCount=4), a_pool("b"))
    cluster.order(a_pool("a", maxNodeCount=6), a_pool("b", maxNodeCount=9), a_pool("c"))
    plan = cluster.wanted(refused=(REFUSED,))
    cluster.plan(
        plan.model_copy(
            update={"objects": [each for each in plan.objects if each.pool != "b"]}
        )
    )
    cluster.make_all()
    assert cluster.calls.started == [PLAN, "pool/a", "pool/c"]
    assert (cluster.entry("pool/b").phase, cluster.entry("pool/b").removed_since) == (
        "Ready",
        "",
    )
    assert cluster.state.plan is not None
    assert [each.key for each in cluster.state.plan.objects if each.pool] == [
        "pool/a",
        "pool/c",
        "pool/b",
    ]


def test_a_refused_cluster_stays_unchanged() -> None:
    cluster = ready(a_pool("a"))
    before = cluster.state.plan.objects if cluster.state.plan else []
    cluster.order(a_pool("a", maxNodeCount=6), a_pool("c"))
    cluster.plan(
        cluster.wanted(refused=(REFUSED, REFUSED.model_copy(update={"at": ""})))
    )
    assert (
        cluster.calls.started,
        cluster.state.plan and cluster.state.plan.objects,
    ) == ([PLAN], before)


def test_a_cluster_that_is_gone_is_still_reported_gone_after_a_spec_change() -> None:
    cluster = ready()
    cluster.entries.observed(
        CloudObjectShown(key=CLUSTER_KEY, kind="Cluster", name="c", phase="Absent"),
        None,
    )
    cluster.order(a_pool())
    cluster.plan(of_key(cluster.wanted(), CLUSTER_KEY, digest="of another version"))
    assert "modelplane retry" in shown.trouble(cluster.state)[1]
    assert CLUSTER_KEY not in cluster.calls.started


def test_the_dependencies_of_an_object_come_from_the_newest_plan() -> None:
    cluster = ready()
    cluster.order(a_pool())
    cluster.plan(of_key(cluster.wanted(), "sc", needs=["conn", POOL]))
    assert (cluster.entry("sc").object.needs, cluster.calls.started) == (
        ["conn", POOL],
        [PLAN],
    )


# Pools that are removed


def test_a_removed_pool_is_deleted_when_its_wait_ends_rather_than_at_the_next_check() -> (
    None
):
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1800))
    assert cluster.context.requeue_time == T0 + HALF_HOUR
    said = shown.report_of(cluster.state, UID, cluster.calls.keys)
    assert (said.ready, said.reason) == (True, "PoolDraining")
    assert (
        said.message
        == "pool b was removed and is deleted once no replica runs on the cluster, "
        "at the latest at 12:30 UTC"
    )
    cluster.after(HALF_HOUR - SECOND)
    assert "pool/b" not in cluster.calls.keys
    cluster.after(SECOND)
    assert "pool/b" in cluster.calls.keys
    assert shown.report_of(cluster.state, UID, cluster.calls.keys).message == ""
    cluster.end("pool/b", "Absent")
    assert "pool/b" not in cluster.state.inventory


def test_a_pool_removed_during_its_creation_does_not_block_other_pools() -> None:
    cluster = ready(a_pool("a"))
    new = [a_pool(name) for name in "bcdefg"]
    cluster.order(a_pool("a"), *new)
    cluster.plan()
    running = [key for key in cluster.calls.keys if key != PLAN]
    assert running == [f"pool/{name}" for name in "bcdef"], "GKE makes five at once"
    cluster.order(a_pool("a"), *new[1:])
    cluster.plan()
    assert cluster.calls.stopped == ["pool/b"]
    cluster.go()
    assert "pool/g" in cluster.calls.keys


def test_a_pool_changed_during_its_creation_is_created_as_changed() -> None:
    cluster = ready(a_pool("a"))
    cluster.order(a_pool("a"), a_pool("b"))
    cluster.plan()
    cluster.order(a_pool("a"), a_pool("b"))
    cluster.plan()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], []), (
        "it is wanted as before"
    )
    cluster.order(a_pool("a"), a_pool("b", maxNodeCount=7))
    cluster.go()
    digest = next(
        each.digest for each in cluster.wanted().objects if each.key == "pool/b"
    )
    cluster.calls.done(PLAN, cluster.wanted())
    assert cluster.calls.stopped == ["pool/b"]
    cluster.go()
    assert (cluster.calls.keys, cluster.entry("pool/b").object.digest) == (
        ["pool/b"],
        digest,
    )


def test_the_deletion_of_a_pool_that_is_changed_is_not_stopped() -> None:
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1))
    cluster.after(SECOND)
    cluster.order(a_pool("a"), a_pool("b", maxNodeCount=7))
    cluster.plan()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], [])


def test_the_deletion_of_a_removed_pool_is_not_stopped() -> None:
    cluster = ready(a_pool("a"), a_pool("b"))
    cluster.order(a_pool("a"))
    cluster.plan(cluster.wanted(drain_seconds=1))
    cluster.after(SECOND)
    cluster.go()
    assert (cluster.calls.keys, cluster.calls.stopped) == (["pool/b"], [])


# Counts, waits


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (
            {"nodeCount": 1, "maxNodeCount": 4},
            {"nodeCount": 3, "maxNodeCount": 4},
            True,
        ),
        ({"nodeCount": 1}, {"nodeCount": 3, "maxNodeCount": 4}, True),
        (
            {"nodeCount": 1, "maxNodeCount": 4},
            {"nodeCount": 1, "maxNodeCount": 6},
            False,
        ),
        ({"nodeCount": 1}, {"nodeCount": 3}, False),
        (None, {"nodeCount": 3, "maxNodeCount": 4}, False),
    ],
)
def test_a_changed_node_count_of_an_autoscaled_pool_is_reported_as_without_effect(
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
        (WorkerClockWrong, PLANNED, 120),
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
def test_the_next_attempt_waits_as_long_as_its_class_says(
    error: type[Exception], plan: CloudPlan | None, seconds: int
) -> None:
    assert delay_after(Failure(error.__name__, "no"), plan) == timedelta(
        seconds=seconds
    )


@pytest.mark.parametrize(
    ("error", "rebuilds", "minutes"),
    [
        (CloudObjectBroken, 0, 30),
        (CloudObjectBroken, 1, 30),
        (CloudObjectBroken, 2, 60),
        (CloudObjectBroken, 3, 120),
        (CloudObjectBroken, 40, 120),
        (InvalidInput, 1, 30),
    ],
)
def test_the_pause_before_the_next_rebuild_doubles(
    error: type[Exception], rebuilds: int, minutes: int
) -> None:
    failure = Failure(error.__name__, "no")
    assert delay_of_rebuild(failure, PLANNED, rebuilds) == timedelta(minutes=minutes)
