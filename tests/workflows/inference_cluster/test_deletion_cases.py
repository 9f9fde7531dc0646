"""Obstacles to the deletion of a cloud cluster.

Nothing is deleted at the cloud while they exist.
"""

from datetime import timedelta

import pytest

from api_types.labels import SKIP_IN_CLUSTER_TEARDOWN
from api_types.messages.cluster_work import RemainingObject
from tests.workflows.cloud_cluster.decided import ACCOUNT
from tests.workflows.inference_cluster.test_cluster_gone import REPLICA, Deleting
from tests.workflows.inference_cluster.test_stack_plan import a_complete_stack
from workflows.entity.conditions import condition_of
from workflows.inference_cluster.gaps import FEATURES_AVAILABLE

# A Service of the serving stack whose controller has not deleted its load balancer.
STUCK = RemainingObject(
    id="v1/Service/envoy-gateway-system/envoy",
    why="finalizer service.kubernetes.io/load-balancer-cleanup",
)


def said(deleting: Deleting) -> str:
    found = condition_of(deleting.cluster.state.conditions, "Deleting")
    assert found is not None
    return found.message


def orders(deleting: Deleting) -> list[str]:
    """Return the orders of one pass to the cloud."""
    return [signal for signal, _ in deleting.step() if signal in ("delete", "apply")]


@pytest.mark.parametrize("classes", [None, {}], ids=["", "without its classes"])
def test_a_deletion_waits_for_two_replicas_and_then_continues(
    monkeypatch: pytest.MonkeyPatch, classes: dict[str, object] | None
) -> None:
    other = "ml/qwen-eu-1"
    missing = {} if classes is None else {"classes": classes}
    deleting = Deleting(
        monkeypatch, gone=None, occupied=[REPLICA, other], caches=[], **missing
    )
    deleting.cluster.state.cloud.emptied = True
    state = deleting.cluster.state
    deleting.cluster.context.set_condition(FEATURES_AVAILABLE, "False", "Missing", "x")
    # The first pass reports to the replicas, and queries the scheduler again.
    assert orders(deleting) == []
    assert condition_of(state.conditions, FEATURES_AVAILABLE) is None
    for replicas in ([REPLICA, other], [other]):
        deleting.cluster.state.occupied = list(replicas)
        assert (orders(deleting), deleting.reason) == ([], "Occupied")
        assert [each in said(deleting) for each in (REPLICA, other)] == [
            each in replicas for each in (REPLICA, other)
        ]
    deleting.cluster.state.occupied = []
    assert orders(deleting) == ["delete"]
    assert deleting.reason == "DeletingCloudCluster"


def test_a_stuck_load_balancer_is_named_and_blocks_deletion_at_the_cloud(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    deleting = Deleting(monkeypatch, gone=None, occupied=[], caches=[])
    link = deleting.cluster.state.cloud
    link.account, link.remaining = ACCOUNT, [STUCK]
    began = deleting.temporal.now
    for minutes in (0, 15, 29, 31, 24 * 60):
        # The next attempt is due, whatever the time is.
        deleting.temporal.now = began + timedelta(minutes=minutes)
        link.retry_at = (deleting.temporal.now + timedelta(seconds=30)).isoformat()
        assert (orders(deleting), deleting.reason) == ([], "LoadBalancersRemaining")
        assert STUCK.id.rpartition("/")[2] in said(deleting)
        assert (SKIP_IN_CLUSTER_TEARDOWN in said(deleting)) is (minutes >= 30)
    link.remaining, link.emptied = [], True
    assert orders(deleting) == ["delete"]


def test_a_removal_on_a_cluster_that_does_not_answer_queues_no_further_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two steps of a pass that set one condition differently would never come to rest."""
    then = "2026-01-01T00:00:00Z"
    silent = {"unreachable_since": then, "unreachable_noticed": then}
    stack = a_complete_stack()
    parts = {"stack": stack, "annotations": {}, "occupied": [], "caches": []}
    deleting = Deleting(monkeypatch, gone=None, **parts, **silent)
    deleting.cluster.state.cloud.account = ACCOUNT
    context = deleting.cluster.context
    monkeypatch.setattr(deleting.cluster, "watch", lambda: None)
    monkeypatch.setattr(deleting.cluster.removal, "_attempt", lambda *_: None)
    queued = []
    for _ in range(4):
        context.queued = False
        deleting.step()
        queued.append(context.queued)
    assert stack.removal.is_running
    backend = condition_of(deleting.cluster.state.conditions, "BackendReady")
    assert backend is not None
    assert backend.reason == "Uninstalling"
    assert queued[-2:] == [False, False]
