"""How a replica follows its cluster through late and duplicate reports, and through a
successor with the same name.
"""

from typing import Any

from api_types.messages.cluster_work import ClusterFacts, Connection
from api_types.messages.entities import ClusterChanged
from tests.workflows.model_replica.builders import CLUSTER, a_replica
from workflows.model_replica.reducers.cluster import record_cluster
from workflows.model_replica.state import ModelReplicaState

OTHER = Connection(cluster="eu", namespace="modelplane-system", name="eu-new")


def a_report(uid: str, sequence: int, **fields: Any) -> ClusterChanged:
    return CLUSTER.model_copy(update={"uid": uid, "sequence": sequence, **fields})


def after(*reports: ClusterChanged) -> ModelReplicaState:
    """Return a replica that received these reports, in order."""
    state = a_replica(cluster=None)
    for report in reports:
        record_cluster(state, report)
    return state


def test_a_late_report_is_ignored() -> None:
    state = after(a_report("a", 8, connection=OTHER), a_report("a", 7))
    assert state.cluster
    assert (state.cluster.sequence, state.cluster.connection) == (8, OTHER)


def test_a_recreated_cluster_is_followed_from_its_first_report() -> None:
    state = after(a_report("a", 8), a_report("b", 1, connection=OTHER))
    assert state.cluster
    assert (state.cluster.uid, state.cluster.connection) == ("b", OTHER)


def test_a_late_report_of_the_previous_cluster_is_ignored() -> None:
    state = after(
        a_report("a", 8), a_report("b", 1, connection=OTHER), a_report("a", 9)
    )
    assert state.cluster
    assert (state.cluster.uid, state.cluster.connection) == ("b", OTHER)


def test_a_report_overtaken_by_the_deletion_is_ignored() -> None:
    state = after(a_report("a", 8, present=False), a_report("a", 8))
    assert state.cluster
    assert not state.cluster.present


def test_a_replica_uses_the_old_connection_until_a_new_cluster_has_connected() -> None:
    first, second = (
        a_report("b", number, connected=False, connection=None, facts=None)
        for number in (0, 1)
    )
    state = after(a_report("a", 8), first, second)
    assert state.cluster
    assert (state.cluster.uid, state.cluster.connected) == ("b", False)
    assert (state.cluster.connection, state.cluster.facts) == (
        CLUSTER.connection,
        CLUSTER.facts,
    )
    assert record_cluster(
        state,
        a_report(
            "b", 2, connection=OTHER, facts=ClusterFacts(gateway_address="10.0.0.2")
        ),
    )
    assert (state.cluster.connection, state.cluster.facts) == (
        OTHER,
        ClusterFacts(gateway_address="10.0.0.2"),
    )


def test_a_disconnected_cluster_has_no_connection() -> None:
    without = {"connected": False, "connection": None, "facts": None}
    applied_again = [
        a_report("b", 0, **without),
        a_report("b", 1, connection=OTHER),
        a_report("b", 2, **without),
    ]
    for state in (
        after(a_report("a", 8), a_report("a", 9, **without)),
        after(a_report("a", 8), *applied_again),
    ):
        assert state.cluster
        assert (state.cluster.connection, state.cluster.facts) == (None, None)


def test_a_deleted_cluster_leaves_nothing_to_its_successor() -> None:
    state = after(
        a_report("a", 8, present=False), a_report("b", 1, connection=None, facts=None)
    )
    assert state.cluster
    assert (state.cluster.connection, state.cluster.facts) == (None, None)
