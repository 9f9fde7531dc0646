"""When a watch reports ready endpoints: the cluster's gateway follows the same
EndpointSlices.
"""

from datetime import timedelta

import pytest

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.watch.observation_index import (
    GATEWAY_FOLLOWS_AFTER,
    ObservationIndex,
)
from activities.observe.endpoints import EndpointsSeen
from activities.observe.objects import ObjectSeen
from activities.watching.reflector import NamespacedName
from api_types.clock import utc_now

CLUSTER = ObjectOwner("InferenceCluster", "", "prod-eu", "u1")
REPLICA = ObjectOwner("ModelReplica", "ml-team", "qwen", "u2")
SOON, LATER = timedelta(milliseconds=1), GATEWAY_FOLLOWS_AFTER + timedelta(seconds=1)


@pytest.fixture
def index() -> ObservationIndex:
    index = ObservationIndex(CLUSTER, lambda _: None)
    service = ObjectSeen(
        ObjectId(kinds.SERVICE, "ml-team", "main"), REPLICA, "digest", backend=True
    )
    index.put_object(kinds.SERVICE, NamespacedName("ml-team", "main"), service)
    return index


def put(index: ObservationIndex, ready: int | None, name: str = "main-1") -> None:
    """Put a slice with this many ready endpoints, or delete it for None."""
    index.put_endpoints(
        NamespacedName("ml-team", name),
        None if ready is None else EndpointsSeen("ml-team", "main", ready),
    )


def told(index: ObservationIndex, after: timedelta) -> int:
    """Return how many ready endpoints are reported to the replica after this time."""
    observed = index.observation_for(REPLICA, utc_now() + after).observed.replica
    assert observed is not None
    return observed.endpoints_ready


@pytest.mark.parametrize(
    "before", [None, 0], ids=["no slice", "a slice without ready endpoints"]
)
def test_a_first_endpoint_is_reported_when_the_gateway_has_it(
    index: ObservationIndex, before: int | None
) -> None:
    put(index, before)
    index.put_listed()
    put(index, 1)
    assert told(index, SOON) == 0
    changes = index.observation_for(REPLICA, utc_now()).changes_at
    assert changes is not None
    assert timedelta(0) < changes - utc_now() <= GATEWAY_FOLLOWS_AFTER
    assert told(index, LATER) == 1
    assert index.observation_for(REPLICA, utc_now() + LATER).changes_at is None


def test_endpoints_that_were_ready_before_the_watch_are_reported_at_once(
    index: ObservationIndex,
) -> None:
    put(index, 1)
    index.put_listed()
    assert told(index, SOON) == 1


def test_further_and_lost_endpoints_are_reported_at_once(
    index: ObservationIndex,
) -> None:
    put(index, 1)
    index.put_listed()
    put(index, 2, "main-2")
    assert told(index, SOON) == 3
    put(index, 0)
    assert told(index, SOON) == 2
    put(index, None, "main-2")
    assert told(index, LATER) == 0


def test_an_endpoint_that_comes_back_after_the_last_was_lost_counts_as_the_first(
    index: ObservationIndex,
) -> None:
    put(index, 1)
    index.put_listed()
    put(index, 0)
    put(index, 1)
    assert (told(index, SOON), told(index, LATER)) == (0, 1)
