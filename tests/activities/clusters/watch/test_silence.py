"""Reports to a cluster about an API server that does not respond."""

from datetime import UTC, datetime

from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.observation_index import ObservationIndex
from api_types.messages.observations import ObservedCluster

CLUSTER = ObjectOwner("InferenceCluster", "", "eu", "u")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def observed(index: ObservationIndex) -> ObservedCluster:
    """Return the current observation of the cluster."""
    found = index.observation_for(CLUSTER, NOW).observed.cluster
    assert found is not None
    return found


def test_a_silence_is_reported_once_with_its_length_and_ends_with_a_response() -> None:
    told: list[ObjectOwner] = []
    index = ObservationIndex(CLUSTER, told.append)
    index.put_silence("ClusterUnreachable", "no response", 40.4)
    index.put_silence("ClusterUnreachable", "no response, tried again", 50.0)
    silent = observed(index)
    assert (silent.reachable, silent.silent_seconds, silent.error) == (
        False,
        40,
        "no response",
    )
    assert told == [CLUSTER]
    index.put_answer()
    answering = observed(index)
    assert (answering.reachable, answering.silent_seconds, answering.error) == (
        True,
        0,
        "",
    )
    assert told == [CLUSTER, CLUSTER]
