"""Which cluster a replica follows, if several have one name or do not run, message by
message and without Temporal.
"""

from datetime import timedelta
from typing import Any

import pytest

from activities.render.objects.teardown import SWEEP
from api_types.messages.entities import ClusterChanged
from api_types.messages.versions import MessageVersion
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from tests.workflows.model_replica.controlled import QWEN, Replica, a_start
from workflows.entity.registering.endpoint import ReportOrder
from workflows.model_replica.orders import Apply, DeleteObjects, ReadClusterMemo
from workflows.model_replica.state import ModelReplicaState


def torn_down(replica: Replica) -> None:
    """Let a replica that knows its cluster drain and run all other steps."""
    replica.step()
    assert CLUSTER.facts
    replica.now += timedelta(seconds=CLUSTER.facts.drain_seconds)
    replica.step()


def test_a_replica_restarted_only_to_be_deleted_applies_nothing() -> None:
    replica = Replica(a_start(restarted=True, deleting=True), memo=CLUSTER.wire())
    torn_down(replica)
    assert not [order for order in replica.orders if isinstance(order, Apply)]
    assert SWEEP in replica.deletions()
    assert replica.controller.teardown.gone


@pytest.mark.parametrize(
    ("state", "withdraws"),
    [
        (a_start(deleting=True), False),
        (a_start(deleting=True, restarted=True), True),
        (a_start(deleting=True).model_copy(update={"reset": True}), True),
    ],
    ids=["first run", "restarted", "reset"],
)
def test_a_replica_that_ran_before_withdraws_an_endpoint_that_it_may_have_published(
    state: ModelReplicaState, *, withdraws: bool
) -> None:
    assert CLUSTER.facts
    facts = CLUSTER.facts.model_copy(update={"control_cluster": "control"})
    memo = CLUSTER.model_copy(update={"facts": facts})
    replica = Replica(state, memo=memo.wire())
    replica.carry_out_all(replica.controller.tear_down)
    assert any(isinstance(order, ReportOrder) for order in replica.orders) is withdraws


def test_a_replica_restarted_to_be_deleted_ends_if_its_cluster_was_deleted() -> None:
    """It was terminated after it had freed its nodes and before it reported that, and
    nothing blocked its cluster any more.
    """
    last = CLUSTER.model_copy(
        update={"present": False, "connection": None, "facts": None}
    )
    replica = Replica(a_start(restarted=True, deleting=True), last_memo=last.wire())
    replica.step()
    assert (replica.deletions(), replica.controller.teardown.gone) == ([], True)
    assert replica.state.left_behind
    assert (QWEN, "Gone") in replica.signals()


def test_a_replica_restarted_to_be_deleted_uses_the_connection_of_a_terminated_cluster() -> (
    None
):
    replica = Replica(a_start(restarted=True, deleting=True), last_memo=CLUSTER.wire())
    torn_down(replica)
    assert replica.deletions()
    assert (replica.controller.teardown.gone, replica.state.left_behind) == (True, [])


def test_a_replica_restarted_to_be_deleted_waits_for_an_unknown_cluster_and_suggests_a_remedy() -> (
    None
):
    """Nothing proves that its objects are gone, and nothing shows how to reach them."""
    never_connected = CLUSTER.model_copy(
        update={"connected": False, "connection": None, "facts": None}
    ).wire()
    for last in (None, never_connected):
        replica = Replica(a_start(restarted=True, deleting=True), last_memo=last)
        replica.step()
        reason, message = replica.deleting()
        assert (
            reason,
            replica.state.left_behind,
            replica.controller.teardown.gone,
        ) == ("WaitingForCluster", [], False)
        assert "apply it again, or skip its objects with `delete --force`" in message
        # The cluster is applied again, and connects.
        replica.controller.cluster_changed(CLUSTER)
        replica.step()
        assert replica.deletions()
        assert replica.controller.teardown.gone


def of_cluster(uid: str, **fields: Any) -> ClusterChanged:
    return CLUSTER.model_copy(update={"uid": uid, **fields})


@pytest.mark.parametrize("first", ["present", "earlier"])
def test_of_two_clusters_with_one_name_a_replica_follows_the_existing_one(
    first: str,
) -> None:
    """Otherwise, a late report of the earlier one would make it reject the current one
    permanently.
    """
    second = {"present": "earlier", "earlier": "present"}[first]
    replica = Replica(a_replica(cluster=None), memo=of_cluster("present").wire())
    for uid in (first, second):
        replica.controller.cluster_changed(of_cluster(uid))
    replica.step()
    assert [
        order for order in replica.orders if isinstance(order, ReadClusterMemo)
    ] == [ReadClusterMemo("eu")]
    replica.controller.cluster_changed(of_cluster("present", sequence=2))
    replica.controller.cluster_changed(of_cluster("earlier", sequence=9))
    replica.step()
    known = replica.state.cluster
    assert known
    assert (known.uid, known.sequence, replica.state.cluster_doubted) == (
        "present",
        2,
        False,
    )


def test_a_cluster_rejected_as_an_earlier_one_is_followed_when_its_memo_shows_that_it_exists() -> (
    None
):
    replica = Replica(a_replica(cluster=None), memo=of_cluster("present").wire())
    replica.state.cluster_version = MessageVersion(
        uid="earlier", superseded=["present"]
    )
    replica.controller.cluster_changed(of_cluster("another"))
    replica.step()
    assert replica.state.cluster_version == MessageVersion(
        uid="present", sequence=1, superseded=["earlier"]
    )


@pytest.mark.parametrize(
    "memo", [None, of_cluster("there").wire()], ids=["none", "the known one's"]
)
def test_a_report_of_an_earlier_cluster_ends_at_most_one_attempt(
    memo: Any,
) -> None:
    replica = Replica(a_replica(cluster=of_cluster("there"), generation=2), memo=memo)
    replica.state.cluster_version = MessageVersion(uid="there", sequence=1)
    replica.controller.cluster_changed(of_cluster("earlier"))
    assert replica.state.cluster_doubted
    replica.step()
    assert not replica.state.cluster_doubted
    assert replica.state.applied_generation == 2


def following(uid: str, **fields: Any) -> Replica:
    """Return a replica that knows a cluster by its uid."""
    replica = Replica(a_replica(cluster=of_cluster(uid), **fields))
    replica.state.cluster_version = MessageVersion(uid=uid, sequence=1)
    return replica


def test_work_on_a_possibly_deleted_cluster_ends_so_that_its_memo_is_read() -> None:
    replica = following("known", generation=2)
    (applied,) = replica.controller.apply()
    assert isinstance(applied, Apply)
    assert not replica.controller.applying.is_obsolete(applied)
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.applying.is_obsolete(applied)
    replica = following("known", served=False)
    replica.delete().controller.tear_down()
    (deleted,) = [
        order
        for order in replica.controller.tear_down()
        if isinstance(order, DeleteObjects)
    ]
    assert not replica.controller.teardown.is_obsolete(deleted)
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.teardown.is_obsolete(deleted)


def test_a_doubt_ends_when_no_cluster_runs_or_the_running_one_has_no_memo_yet() -> None:
    """Either one reports itself when it can be followed.

    Waiting for it would delay the work on the known one.
    """
    replica = following("known")
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.cluster.last_memo_read(None)
    assert not replica.state.cluster_doubted
    replica.controller.cluster_changed(of_cluster("another"))
    replica.controller.memo_read(None)
    assert not replica.state.cluster_doubted


def test_a_failed_step_is_retried_at_once_when_the_memo_shows_a_new_connection() -> (
    None
):
    replica = following("known", retry_at="2026-01-01T01:00:00+00:00")
    replica.state.cluster = of_cluster("known", connected=False)
    replica.controller.memo_read(of_cluster("another").wire())
    assert replica.state.retry_at == ""


def test_a_wanted_replica_waits_for_a_deleted_cluster() -> None:
    replica = Replica(
        a_start(), last_memo=CLUSTER.model_copy(update={"present": False}).wire()
    )
    replica.step()
    assert replica.state.cluster is None
