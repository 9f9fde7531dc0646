"""A cluster adopts the facts that its watch finds.

The watch cannot change declared facts or the gateway.
"""

from datetime import UTC, datetime
from typing import Any

import pytest

from api_types.messages.cluster_work import ClusterFacts
from tests.workflows.inference_cluster.builders import a_cluster
from workflows.entity.context import EntityContext
from workflows.inference_cluster.connecting.connection import ClusterConnection
from workflows.inference_cluster.state import ClusterState


def connection_of_cluster(state: ClusterState) -> ClusterConnection:
    context = EntityContext(
        "InferenceCluster",
        state,
        lambda: None,
        "inferencecluster/eu",
        lambda: datetime(2026, 1, 1, tzinfo=UTC),
    )
    return ClusterConnection(context)


def found(state: ClusterState, facts: ClusterFacts | None) -> ClusterFacts | None:
    """Return the facts of a cluster after the watch has reported."""
    connection_of_cluster(state).update_found(facts)
    return state.facts


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        ({"dra_version": "v1"}, True),
        ({"kubernetes_version": "1.36.0"}, True),
        ({"kubernetes_version": "1.35.9"}, False),
    ],
    ids=["another version of DRA", "another release", "a patch release"],
)
def test_an_upgrade_is_adopted_and_reported_to_rendering(
    facts: dict[str, Any], told: bool
) -> None:
    state = a_cluster(
        facts=ClusterFacts(
            kubernetes_version="1.35.1",
            dra_version="v1beta2",
            gateway_address="192.0.2.1",
        )
    )
    seen = ClusterFacts(
        **{"kubernetes_version": "1.35.1", "dra_version": "v1beta2", **facts}
    )
    after = found(state, seen)
    assert after is not None
    assert (after.kubernetes_version, after.dra_version) == (
        seen.kubernetes_version,
        seen.dra_version,
    )
    assert (after.gateway_address, after.storage_class_name) == ("192.0.2.1", "rwx")
    assert [event.reason for event in state.events] == (
        ["FactsChanged"] if told else []
    )


@pytest.mark.parametrize("deleted_at", ["2026-01-01T00:00:00Z", ""])
def test_a_cluster_under_deletion_that_never_connected_learns_its_facts_from_the_watch(
    deleted_at: str,
) -> None:
    """Replicas and caches on it wait for them. A cluster that lives on connects itself."""
    state = a_cluster(facts=None, connected_generation=0, deletion_timestamp=deleted_at)
    after = found(state, ClusterFacts(kubernetes_version="1.35.1"))
    if deleted_at:
        assert after is not None
        assert (after.kubernetes_version, after.storage_class_name) == ("1.35.1", "rwx")
        assert state.connected_generation == state.generation
    else:
        assert (after, state.connected_generation) == (None, 0)


@pytest.mark.parametrize(
    ("held", "is_watched"),
    [({}, False), ({"occupied": ["ml/r"]}, True), ({"caches": ["ml/c"]}, True)],
)
def test_a_cluster_under_deletion_that_never_connected_is_watched_while_it_holds_objects(
    held: dict[str, list[str]], is_watched: bool
) -> None:
    state = a_cluster(
        connected_generation=0, deletion_timestamp="2026-01-01T00:00:00Z", **held
    )
    assert connection_of_cluster(state).is_watchable() == is_watched


def test_storage_classes_stay_known_until_they_are_listed_again() -> None:
    state = a_cluster(
        facts=ClusterFacts(kubernetes_version="1.35.1", storage_classes={"rwx": True})
    )
    unlisted = found(state, ClusterFacts(kubernetes_version="1.35.1"))
    assert unlisted is not None
    assert (unlisted.storage_classes, state.events) == ({"rwx": True}, [])
    # The rendering of replicas does not depend on whether volumes can be expanded.
    expandable = found(
        state, ClusterFacts(kubernetes_version="1.35.1", storage_classes={"rwx": False})
    )
    assert expandable is not None
    assert (expandable.storage_classes, state.events) == ({"rwx": False}, [])
    none = found(state, ClusterFacts(kubernetes_version="1.35.1", storage_classes={}))
    assert none is not None
    assert (none.storage_classes, [event.reason for event in state.events]) == (
        {},
        ["FactsChanged"],
    )


def test_before_the_first_contact_nothing_is_found() -> None:
    assert found(a_cluster(facts=None), ClusterFacts(dra_version="v1")) is None
    known = a_cluster()
    assert found(known, None) == known.facts
