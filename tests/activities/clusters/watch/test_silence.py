"""An API server that does not answer, as its cluster is told."""

from datetime import UTC, datetime

from activities.cluster_objects.ownership import Owner
from activities.clusters.watch.observation_index import ObservationIndex
from api_types.messages.observations import ObservedCluster

CLUSTER = Owner("InferenceCluster", "", "eu", "u")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def observed(index: ObservationIndex) -> ObservedCluster:
    """Return what the cluster is told now."""
    found = index.observation_for(CLUSTER, NOW).observed.cluster
    assert found is not None
    return found


def test_a_silence_is_told_once_with_its_length_and_ends_with_an_answer() -> None:
    told: list[Owner] = []
    index = ObservationIndex(CLUSTER, told.append)
    index.put_silence("ClusterUnreachable", "no response", 40.4)
    index.put_silence("ClusterUnreachable", "no response, tried again", 50.0)
    silent = observed(index)
    assert (silent.reachable, silent.silent_seconds, silent.error) == (False, 40, "no response")
    assert told == [CLUSTER]
    index.put_answer()
    answering = observed(index)
    assert (answering.reachable, answering.silent_seconds, answering.error) == (True, 0, "")
    assert told == [CLUSTER, CLUSTER]
