"""Which cluster a replica follows, of several of one name and of those that do not run, message by message and without Temporal."""

from datetime import timedelta
from typing import Any

import pytest

from activities.render.objects.teardown import SWEEP
from api_types.messages.entities import ClusterChanged
from api_types.messages.versions import Version
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from tests.workflows.model_replica.controlled import QWEN, Replica, a_start
from workflows.model_replica.orders import Apply, DeleteObjects, ReadMemo


def torn_down(replica: Replica) -> None:
    """Let a replica that knows its cluster drain, and take all other steps."""
    replica.step()
    assert CLUSTER.facts
    replica.now += timedelta(seconds=CLUSTER.facts.drain_seconds)
    replica.step()


def test_a_replica_that_is_started_again_only_to_be_deleted_applies_nothing() -> None:
    replica = Replica(a_start(restarted=True, deleting=True), memo=CLUSTER.wire())
    torn_down(replica)
    assert not [order for order in replica.orders if isinstance(order, Apply)]
    assert SWEEP in replica.deletions()
    assert replica.controller.teardown.gone


def test_a_replica_that_is_started_again_to_be_deleted_ends_when_its_cluster_was_deleted() -> None:
    """It was terminated after it had freed its nodes and before it reported that, and nothing held its cluster any more."""
    last = CLUSTER.model_copy(update={"present": False, "connection": None, "facts": None})
    replica = Replica(a_start(restarted=True, deleting=True), last_memo=last.wire())
    replica.step()
    assert (replica.deletions(), replica.controller.teardown.gone) == ([], True)
    assert replica.state.left_behind
    assert (QWEN, "Gone") in replica.signals()


def test_a_replica_that_is_started_again_to_be_deleted_reaches_a_cluster_that_was_terminated_as_that_did() -> None:
    replica = Replica(a_start(restarted=True, deleting=True), last_memo=CLUSTER.wire())
    torn_down(replica)
    assert replica.deletions()
    assert (replica.controller.teardown.gone, replica.state.left_behind) == (True, [])


def test_a_replica_that_is_started_again_to_be_deleted_waits_for_a_cluster_of_which_nothing_is_known_and_says_what_to_do() -> None:
    """Nothing says that its objects are gone, and nothing how to reach them."""
    never_connected = CLUSTER.model_copy(update={"connected": False, "connection": None, "facts": None}).wire()
    for last in (None, never_connected):
        replica = Replica(a_start(restarted=True, deleting=True), last_memo=last)
        replica.step()
        reason, message = replica.deleting()
        assert (reason, replica.state.left_behind, replica.controller.teardown.gone) == ("WaitingForCluster", [], False)
        assert "apply it again, or skip what is on it with `delete --force`" in message
        # It is applied again, and connects.
        replica.controller.cluster_changed(CLUSTER)
        replica.step()
        assert replica.deletions()
        assert replica.controller.teardown.gone


def of_cluster(uid: str, **fields: Any) -> ClusterChanged:
    return CLUSTER.model_copy(update={"uid": uid, **fields})


@pytest.mark.parametrize("first", ["present", "earlier"])
def test_of_two_clusters_of_a_name_a_replica_follows_the_one_that_is_there_whichever_it_hears_of_first(first: str) -> None:
    """A late report of the earlier one would have it refuse the present one for good."""
    second = {"present": "earlier", "earlier": "present"}[first]
    replica = Replica(a_replica(cluster=None), memo=of_cluster("present").wire())
    for uid in (first, second):
        replica.controller.cluster_changed(of_cluster(uid))
    replica.step()
    assert [order for order in replica.orders if isinstance(order, ReadMemo)] == [ReadMemo("eu")]
    replica.controller.cluster_changed(of_cluster("present", sequence=2))
    replica.controller.cluster_changed(of_cluster("earlier", sequence=9))
    replica.step()
    known = replica.state.cluster
    assert known
    assert (known.uid, known.sequence, replica.state.cluster_doubted) == ("present", 2, False)


def test_a_cluster_that_was_refused_as_an_earlier_one_is_followed_when_its_memo_says_that_it_is_there() -> None:
    replica = Replica(a_replica(cluster=None), memo=of_cluster("present").wire())
    replica.state.cluster_version = Version(uid="earlier", superseded=["present"])
    replica.controller.cluster_changed(of_cluster("another"))
    replica.step()
    assert replica.state.cluster_version == Version(uid="present", sequence=1, superseded=["earlier"])


@pytest.mark.parametrize("memo", [None, of_cluster("there").wire()], ids=["none", "the known one's"])
def test_a_report_of_an_earlier_cluster_ends_no_more_than_one_attempt(memo: Any) -> None:
    replica = Replica(a_replica(cluster=of_cluster("there"), generation=2), memo=memo)
    replica.state.cluster_version = Version(uid="there", sequence=1)
    replica.controller.cluster_changed(of_cluster("earlier"))
    assert replica.state.cluster_doubted
    replica.step()
    assert not replica.state.cluster_doubted
    assert replica.state.applied_generation == 2


def following(uid: str, **fields: Any) -> Replica:
    """A replica that knows a cluster by its uid."""
    replica = Replica(a_replica(cluster=of_cluster(uid), **fields))
    replica.state.cluster_version = Version(uid=uid, sequence=1)
    return replica


def test_an_apply_or_a_step_of_a_teardown_on_a_cluster_that_may_be_gone_ends_so_that_it_is_asked() -> None:
    replica = following("known", generation=2)
    (applied,) = replica.controller.apply()
    assert isinstance(applied, Apply)
    assert not replica.controller.applying.is_obsolete(applied)
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.applying.is_obsolete(applied)
    replica = following("known", served=False)
    replica.delete().controller.tear_down()
    (deleted,) = [order for order in replica.controller.tear_down() if isinstance(order, DeleteObjects)]
    assert not replica.controller.teardown.is_obsolete(deleted)
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.teardown.is_obsolete(deleted)


def test_a_doubt_ends_when_no_cluster_runs_or_the_one_that_runs_has_no_memo_yet() -> None:
    """Either reports itself when it can be followed; to wait for it would hold up the work on the known one."""
    replica = following("known")
    replica.controller.cluster_changed(of_cluster("another"))
    assert replica.controller.cluster.last_memo_read(None)
    assert not replica.state.cluster_doubted
    replica.controller.cluster_changed(of_cluster("another"))
    replica.controller.memo_read(None)
    assert not replica.state.cluster_doubted


def test_what_failed_is_retried_at_once_when_the_memo_says_that_the_cluster_is_connected_again() -> None:
    replica = following("known", retry_at="2026-01-01T01:00:00+00:00")
    replica.state.cluster = of_cluster("known", connected=False)
    replica.controller.memo_read(of_cluster("another").wire())
    assert replica.state.retry_at == ""


def test_a_replica_that_is_wanted_waits_for_a_cluster_that_was_deleted() -> None:
    replica = Replica(a_start(), last_memo=CLUSTER.model_copy(update={"present": False}).wire())
    replica.step()
    assert replica.state.cluster is None
