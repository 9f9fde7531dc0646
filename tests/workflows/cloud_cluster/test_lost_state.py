"""A CloudCluster that lost its state and knows only the inventory in its order."""

from datetime import timedelta
from typing import Any

import pytest

from api_types.messages.clouds import (
    CLUSTER_KEY,
    AuditCloud,
    CloudAudit,
    CloudDelete,
    CloudObject,
    CloudOrder,
    CloudPlan,
    CloudProblem,
    PlanCloud,
)
from tests.activities.clouds.builders import UID, a_pool
from tests.workflows.cloud_cluster.control_plane import NAME
from tests.workflows.cloud_cluster.decided import ACCOUNT, Decided, ready
from workflows.cloud_cluster import converge as converging
from workflows.cloud_cluster import shown
from workflows.cloud_cluster import teardown as tearing_down
from workflows.cloud_cluster.account import ordered_account
from workflows.cloud_cluster.calls import AUDIT, PLAN
from workflows.cloud_cluster.teardown import Teardown
from workflows.entity.failures import Failure

POOL = "pool/gpu"
BROKEN = "status ERROR"
NO_RIGHT = Failure("PermissionDenied", "lacks container.clusters.create")


def lost(**told: Any) -> Decided:
    """Return a cluster that lost its state and received its first order with an inventory."""
    cluster = Decided()
    assert cluster.state.order is not None
    cluster.state.order = cluster.state.order.model_copy(update=told)
    return cluster


def made_until(cluster: Decided, key: str) -> None:
    """Complete the work on all objects that precede this one."""
    while key not in cluster.calls.keys:
        cluster.end(cluster.calls.keys[0], "Ready")


# While it is wanted


def test_a_broken_control_plane_that_is_found_again_is_not_deleted() -> None:
    cluster = lost(was_usable=True)
    cluster.plan()
    made_until(cluster, CLUSTER_KEY)
    cluster.end(CLUSTER_KEY, "Broken", message=BROKEN)
    assert (
        cluster.entry(CLUSTER_KEY).failure.message,
        CLUSTER_KEY in cluster.calls.keys,
    ) == (BROKEN, False)
    assert not shown.is_usable(cluster.state)


def test_a_missing_control_plane_is_not_created_again_automatically() -> None:
    cluster = lost(was_usable=True)
    cluster.plan()
    made_until(cluster, CLUSTER_KEY)
    cluster.end(CLUSTER_KEY, "Absent")
    assert (cluster.entry(CLUSTER_KEY).held, CLUSTER_KEY in cluster.calls.keys) == (
        True,
        False,
    )
    assert "CloudClusterMissing" in cluster.reasons


@pytest.mark.parametrize(("was_ready", "held"), [(True, True), (False, False)])
def test_a_broken_pool_that_is_found_again_is_deleted_only_if_not_all_was_ready(
    was_ready: bool, held: bool
) -> None:
    cluster = lost(was_usable=True, was_ready=was_ready)
    cluster.plan()
    made_until(cluster, POOL)
    cluster.calls.started.clear()
    cluster.end(POOL, "Broken", message=BROKEN)
    assert cluster.calls.started.count(POOL) == (0 if held else 1)


def test_a_pool_added_to_a_ready_cluster_is_new() -> None:
    cluster = lost(was_usable=True, was_ready=True)
    cluster.plan()
    cluster.make_all()
    assert cluster.state.order is not None
    pools = [
        *cluster.state.order.manifest["spec"]["nodePools"],
        {**cluster.state.order.manifest["spec"]["nodePools"][0], "name": "b"},
    ]
    cluster.order(*pools)
    cluster.state.order = cluster.state.order.model_copy(
        update={"was_usable": True, "was_ready": True}
    )
    cluster.plan()
    assert (cluster.entry("pool/b").was_ready, cluster.entry("pool/b").phase) == (
        False,
        "Creating",
    )


DRAINED = timedelta(seconds=1800)


def removed_pool() -> tuple[Decided, list[CloudObject]]:
    """Return a cluster whose removed pool b drains, and its report of that pool."""
    cluster = ready(a_pool(), a_pool("b"))
    cluster.order(a_pool())
    cluster.plan()
    return cluster, shown.report_of(
        cluster.state, UID, cluster.calls.keys
    ).removed or []


def test_removed_objects_are_reported_until_they_are_gone() -> None:
    cluster, removed = removed_pool()
    assert [each.key for each in removed] == ["pool/b"]
    cluster.after(DRAINED)
    cluster.end("pool/b", "Absent")
    assert shown.report_of(cluster.state, UID, cluster.calls.keys).removed is None


def test_a_draining_removed_pool_is_deleted_after_its_wait() -> None:
    _, removed = removed_pool()
    cluster = lost(was_usable=True, was_ready=True, removed=removed)
    cluster.plan(
        cluster.wanted(
            refused=(CloudProblem(reason="InvalidInput", text="not offered now"),)
        ).model_copy(update={"objects": []})
    )
    cluster.converge.plan_again()
    cluster.plan()
    assert cluster.entry(CLUSTER_KEY).was_ready, "the first plan with objects counts"
    cluster.make_all()
    told = shown.report_of(cluster.state, UID, cluster.calls.keys).removed or []
    assert [each.key for each in told] == ["pool/b"], "it may be lost again"
    assert "pool/b" not in cluster.calls.started
    cluster.after(DRAINED)
    assert cluster.calls.keys == ["pool/b"]
    cluster.end("pool/b", "Absent")
    assert "pool/b" not in cluster.state.inventory


def test_a_pool_that_is_wanted_again_is_not_treated_as_removed() -> None:
    _, removed = removed_pool()
    cluster = Decided(a_pool(), a_pool("b"))
    assert cluster.state.order is not None
    cluster.state.order = cluster.state.order.model_copy(update={"removed": removed})
    cluster.plan()
    assert "pool/b" not in cluster.state.inventory, "its turn has not come"
    cluster.make_all()
    cluster.after(DRAINED)
    assert (
        cluster.calls.keys,
        cluster.entry("pool/b").phase,
        cluster.entry("pool/b").removed_since,
    ) == ([], "Ready", "")


async def test_a_removed_pool_is_deleted_with_its_cluster() -> None:
    _, removed = removed_pool()
    cluster = lost(removed=removed)
    teardown = deleted(cluster)
    assert not await teardown.update()
    cluster.calls.done(PLAN, cluster.wanted())
    assert not await teardown.update()
    assert cluster.entry("pool/b").phase == "Deleting"


def test_the_pinned_account_survives_the_loss_of_state(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned: list[Any] = []
    monkeypatch.setattr(
        converging, "executing", lambda _, order, __: planned.append(order)
    )
    cluster = lost(account=ACCOUNT)
    cluster.go()
    assert isinstance(planned[0], PlanCloud)
    assert (planned[0].account.installation, planned[0].account.project) == (
        "acme",
        "p",
    )
    other = ACCOUNT.model_copy(update={"installation": "other"})
    order = cluster.state.order
    assert order is not None
    found = ordered_account(NAME, UID, order, other)
    assert found is not None
    assert found.installation == "other", (
        "the known state overrides the state in the order"
    )


# While it is deleted


def deleted(cluster: Decided) -> Teardown:
    """Order the deletion of a cluster that has no state."""
    cluster.state.deletion = CloudDelete(uid=UID, sequence=9, order=cluster.state.order)
    return Teardown(cluster.context, cluster.calls, cluster.entries, cluster.converge)


async def test_objects_that_cannot_be_planned_are_deleted_by_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        tearing_down, "executing", lambda _, order, __: asked.append(order)
    )
    cluster = lost(account=ACCOUNT)
    teardown = deleted(cluster)
    assert not await teardown.update()
    cluster.calls.failed(PLAN, NO_RIGHT)
    assert not await teardown.update()
    assert not await teardown.update()
    assert cluster.calls.keys == [AUDIT]
    (order,) = asked
    assert isinstance(order, AuditCloud)
    assert (order.account, order.keys) == (ACCOUNT, [])
    cluster.calls.done(AUDIT, CloudAudit())
    assert await teardown.update()
    assert cluster.reasons == ["PermissionDenied", "PermissionDenied"]


@pytest.mark.parametrize("reason", ["ServerError", "Throttled", "CredentialsInvalid"])
async def test_a_plan_that_fails_with_a_transient_error_is_waited_for(
    reason: str,
) -> None:
    cluster = lost(account=ACCOUNT)
    teardown = deleted(cluster)
    assert not await teardown.update()
    cluster.calls.failed(PLAN, Failure(reason, "no answer"))
    for _ in range(3):
        assert not await teardown.update()
    assert (cluster.calls.keys, cluster.state.looked_up) == ([], False)


async def test_a_plan_without_objects_is_followed_by_a_search() -> None:
    cluster = lost(account=ACCOUNT)
    teardown = deleted(cluster)
    assert not await teardown.update()
    cluster.calls.done(
        PLAN,
        CloudPlan(
            account=ACCOUNT,
            refused=[CloudProblem(reason="InvalidInput", text="not offered")],
        ),
    )
    for _ in range(2):
        assert not await teardown.update()
    assert cluster.calls.keys == [AUDIT]


def test_an_older_order_has_no_inventory() -> None:
    order = CloudOrder(uid=UID, sequence=1, generation=1, manifest={})
    assert (order.account, order.was_usable, order.was_ready) == (None, False, False)
