"""An apply that ends all pods of an engine.

No new requests reach them, and running ones get their drain time. These tests need no
server.
"""

from datetime import timedelta
from itertools import groupby
from typing import Any

import pytest

from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.entities import SetTemplate
from api_types.messages.routing import Endpoint
from api_types.resources.replica_spec import EngineSize, engine_sizes
from tests.workflows.model_replica.builders import APPLIED, CLUSTER, a_replica, observed
from tests.workflows.model_replica.controlled import BEGINNING, NO_ANSWER, URL, Replica
from workflows.entity.failures import Failure
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.model_replica.orders import Apply
from workflows.model_replica.reducers import messages
from workflows.model_replica.state import ModelReplicaState

DRAIN_SECONDS = 15
ENDED = BEGINNING + timedelta(seconds=DRAIN_SECONDS)


def engines(**fields: Any) -> dict[str, Any]:
    return {"engines": [{"name": "main", **fields}]}


def devices(count: int) -> dict[str, Any]:
    """Return the members of an engine whose copies claim this number of devices."""
    return {
        "members": [
            {"role": "Standalone", "deviceRequests": [{"name": "gpu", "count": count}]}
        ]
    }


def sized(copies: int, count: int) -> dict[str, Any]:
    """Return the state of a replica whose engine has copies with devices."""
    size = EngineSize(copies, count)
    return {
        "spec": engines(copies=copies, **devices(count)),
        "applied_sizes": {"main": size},
    }


def order(state: ModelReplicaState, spec: dict[str, Any], **fields: Any) -> None:
    """Send another template as the deployment."""
    assert messages.set_template(
        state,
        SetTemplate(
            uid="u", **{"generation": 2, "sequence": 1, "spec": spec, **fields}
        ),
    )


def applies(replica: Replica) -> int:
    return sum(isinstance(each, Apply) for each in replica.orders)


def endpoints(replica: Replica) -> list[str]:
    """Return the reported endpoints in order, without consecutive duplicates."""
    return [endpoint for endpoint, _ in groupby(replica.endpoints())]


def serving(**changes: Any) -> Replica:
    replica = Replica(a_replica(**changes))
    replica.step()
    assert endpoints(replica) == [URL]
    return replica


def test_a_single_copys_endpoint_is_withdrawn_and_requests_end_before_its_pod_is_replaced() -> (
    None
):
    replica = serving()
    order(replica.state, engines(image="2"))
    replica.step()
    assert (endpoints(replica), applies(replica)) == ([URL, ""], 0)
    assert replica.condition("Serving")[:2] == ("False", "Draining")
    replica.now = ENDED - timedelta(seconds=1)
    replica.step()
    assert applies(replica) == 0
    replica.now = ENDED
    (workload,) = observed().workloads
    replica.state.observed = observed(
        workloads=[workload.model_copy(update={"current": False})]
    )
    replica.step()
    # The ready pod is still the old one.
    assert (endpoints(replica), applies(replica)) == ([URL, ""], 1)
    replica.state.observed = observed()
    replica.step()
    assert (endpoints(replica), applies(replica)) == ([URL, "", URL], 1)


def routed(
    sequence: int = 2, withdrawn: int = 1, withdrawn_at: str = ""
) -> PublishedEndpoint:
    """Return an endpoint without a backend, whose last report was not answered."""
    return PublishedEndpoint(
        sequence=sequence,
        reported=Endpoint(name="qwen", uid="u", url=URL),
        withdrawn=withdrawn,
        withdrawn_at=withdrawn_at,
    )


def test_pods_are_replaced_when_no_route_has_the_endpoint_or_after_a_long_wait() -> (
    None
):
    longest = timedelta(minutes=15)
    replica = serving(endpoint=routed())
    order(replica.state, engines(image="2"))
    for replica.now in (BEGINNING, ENDED + longest - timedelta(seconds=1)):
        replica.step()
        assert applies(replica) == 0
        assert (
            "when no route of a service has its endpoint"
            in replica.condition("Serving")[2]
        )
    replica.now = ENDED + longest
    replica.step()
    assert (applies(replica), len(replica.events("StillRouted"))) == (1, 1)


def test_requests_get_their_drain_time_when_the_last_route_has_followed() -> None:
    replica = serving(endpoint=routed())
    order(replica.state, engines(image="2"))
    replica.step()
    followed = ENDED + timedelta(minutes=10)
    replica.state.endpoint = routed(withdrawn=2, withdrawn_at=followed.isoformat())
    for replica.now, count in (
        (followed, 0),
        (followed + timedelta(seconds=DRAIN_SECONDS), 1),
    ):
        replica.step()
        assert (applies(replica), replica.events("StillRouted")) == (count, [])


@pytest.mark.parametrize("end", ["the apply fails", "another template cancels it"])
def test_the_wait_for_routes_counts_from_the_first_attempt_to_apply(end: str) -> None:
    replica = serving(endpoint=routed())
    order(replica.state, engines(image="2"))
    replica.step()
    first = ENDED + timedelta(minutes=15)
    match end:
        case "the apply fails":
            replica.apply_failures = [NO_ANSWER]
            replica.now = first
            replica.step()
            assert (applies(replica), len(replica.events("StillRouted"))) == (1, 1)
            replica.controller.retry()
        case _:
            replica.now = first - timedelta(minutes=1)
            order(replica.state, engines(image="3"), generation=3, sequence=2)
            replica.controller.applying.cancelled()
    before = applies(replica)
    begun = replica.now
    replica.state.endpoint, replica.state.serving = routed(sequence=4), True
    replica.step()
    assert (applies(replica), bool(replica.state.drain_until)) == (before, True)
    # The endpoint was published again, so routes and requests get their time again, but
    # not the long wait.
    last = max(first, begun + timedelta(seconds=DRAIN_SECONDS + 30))
    for replica.now, count in (
        (last - timedelta(seconds=1), before),
        (last, before + 1),
    ):
        replica.step()
        assert applies(replica) == count
    assert replica.state.routes_until == ""


@pytest.mark.parametrize(
    "lost",
    [{"connected": False}, {"facts": None}],
    ids=["it is not connected", "its facts are not known"],
)
def test_the_wait_for_routes_restarts_when_the_cluster_was_lost_meanwhile(
    lost: dict[str, Any],
) -> None:
    replica = serving(endpoint=routed())
    replica.apply_failures = [NO_ANSWER]
    order(replica.state, engines(image="2"))
    replica.step()
    replica.controller.cluster_changed(
        CLUSTER.model_copy(update={"sequence": 2, **lost})
    )
    replica.step()
    assert (replica.state.drain_until, replica.state.routes_until) == ("", "")
    replica.now += timedelta(hours=1)
    replica.controller.cluster_changed(CLUSTER.model_copy(update={"sequence": 3}))
    before = applies(replica)
    replica.state.endpoint, replica.state.serving = routed(sequence=4), True
    last = replica.now + timedelta(seconds=DRAIN_SECONDS, minutes=15)
    begun = replica.now
    for replica.now, count in (
        (begun, before),
        (last - timedelta(seconds=1), before),
        (last, before + 1),
    ):
        replica.step()
        assert applies(replica) == count


@pytest.mark.parametrize(
    "follow", ["when the first attempt waited", "with the next attempt"]
)
def test_routes_that_have_followed_get_the_full_wait_the_next_time(
    follow: str,
) -> None:
    replica = serving(endpoint=routed())
    replica.apply_failures = [NO_ANSWER]
    order(replica.state, engines(image="2"))
    replica.step()
    if follow == "when the first attempt waited":
        replica.state.endpoint = routed(withdrawn=2, withdrawn_at=BEGINNING.isoformat())
        replica.now = ENDED
    else:
        replica.now = ENDED + timedelta(minutes=15)
    replica.step()
    assert applies(replica) == 1
    if follow == "with the next attempt":
        replica.apply_failures = [NO_ANSWER]
        replica.state.endpoint, replica.state.serving = (
            routed(withdrawn=2, withdrawn_at=replica.now.isoformat()),
            True,
        )
        replica.now += timedelta(hours=1)
        replica.step()
        replica.now += timedelta(seconds=DRAIN_SECONDS)
        replica.step()
        assert applies(replica) == 2
    replica.now += timedelta(hours=1)
    replica.state.endpoint, replica.state.serving = routed(sequence=4), True
    begun, before = replica.now, applies(replica)
    for replica.now, count in (
        (begun, before),
        (begun + timedelta(seconds=DRAIN_SECONDS, minutes=14), before),
    ):
        replica.step()
        assert applies(replica) == count


CHANGES = [
    pytest.param({}, engines(image="2"), True, id="another image of a single copy"),
    pytest.param(
        {"spec": engines(copies=2)},
        engines(copies=2, image="2"),
        False,
        id="another image of two copies, one after the other",
    ),
    pytest.param({}, engines(copies=3), False, id="more copies"),
    pytest.param(
        sized(2, 4),
        engines(copies=4, **devices(2)),
        True,
        id="more copies of fewer devices each",
    ),
    pytest.param(
        sized(2, 4),
        engines(copies=4, **devices(8)),
        False,
        id="more copies of more devices each",
    ),
    pytest.param(
        sized(2, 4),
        engines(copies=2, **devices(2)),
        False,
        id="as many copies of fewer devices each",
    ),
    pytest.param(
        {},
        {"engines": [{"name": "other", "copies": 2}]},
        True,
        id="another engine in place of this one",
    ),
    pytest.param(
        {},
        {"engines": [{"name": "main"}, {"name": "more"}]},
        False,
        id="one more engine",
    ),
    pytest.param(
        {},
        {**engines(), "serving": {"flowControl": {}}},
        False,
        id="the endpoint picker alone",
    ),
    pytest.param({"serving": False}, engines(image="2"), False, id="it does not serve"),
    pytest.param(
        {"applied_sources": {}},
        engines(image="2"),
        False,
        id="not known what its pods were made from",
    ),
]


@pytest.mark.parametrize(("state", "spec", "drains"), CHANGES)
def test_only_an_apply_that_ends_all_pods_of_an_engine_waits(
    state: dict[str, Any], spec: dict[str, Any], drains: bool
) -> None:
    replica = Replica(a_replica(**state))
    order(replica.state, spec)
    replica.controller.apply()
    assert bool(replica.state.drain_until) is drains


def test_an_engine_with_more_smaller_copies_is_ordered_to_be_recreated_once() -> None:
    replica = serving(**sized(1, 8))
    order(replica.state, engines(copies=2, **devices(4)))
    replica.step()
    replica.now = ENDED
    replica.step()
    (apply,) = [each for each in replica.orders if isinstance(each, Apply)]
    assert apply.request.recreated == ["main"]
    assert replica.state.applied_sizes == {"main": EngineSize(2, 4)}
    order(
        replica.state,
        engines(copies=2, **devices(4), image="2"),
        generation=3,
        sequence=2,
    )
    replica.step()
    assert [
        each.request.recreated for each in replica.orders if isinstance(each, Apply)
    ] == [["main"], []]


def test_the_devices_of_a_copy_include_all_its_pods() -> None:
    request = {"name": "gpu", "count": 4}
    gang = [
        {"role": "Leader", "deviceRequests": [request]},
        {"role": "Worker", "worker": {"nodes": 3}, "deviceRequests": [request]},
    ]
    spec = {
        "engines": [
            {"name": "gang", "copies": 2, "members": gang},
            {"name": "proxy", "members": [{"role": "Standalone"}]},
        ]
    }
    assert engine_sizes(spec) == {"gang": EngineSize(2, 16), "proxy": EngineSize(1, 0)}


def test_a_recreated_group_waits_whatever_its_number_of_copies() -> None:
    facts = ClusterFacts(
        gateway_address="10.0.0.1", drain_seconds=DRAIN_SECONDS, scheduler_type="kueue"
    )
    gang = {"copies": 2, "members": [{"role": "Leader"}, {"role": "Worker"}]}
    replica = serving(
        spec=engines(**gang), cluster=CLUSTER.model_copy(update={"facts": facts})
    )
    order(replica.state, engines(**gang, image="2"))
    replica.step()
    assert (endpoints(replica), applies(replica)) == ([URL, ""], 0)


def test_an_adoption_waits_if_a_change_is_pending() -> None:
    held = APPLIED.model_copy(
        update={"pending": ["model-serving-main"], "pending_causes": ["renderer 0.2.0"]}
    )
    replica = serving(applied=held)
    order(replica.state, replica.state.spec or {}, generation=1, adoption=5)
    replica.step()
    assert (endpoints(replica), applies(replica)) == ([URL, ""], 0)
    settled = serving()
    order(settled.state, settled.state.spec or {}, generation=1, adoption=5)
    settled.step()
    assert (endpoints(settled), applies(settled)) == ([URL], 1)


@pytest.mark.parametrize(
    "failure",
    [NO_ANSWER, Failure("InvalidInput", "the engine is not valid")],
    ids=["it may succeed later", "final"],
)
def test_a_failed_apply_publishes_the_endpoint_again(failure: Failure) -> None:
    replica = serving()
    replica.apply_failures = [failure]
    order(replica.state, engines(image="2"))
    replica.step()
    replica.now = ENDED
    replica.step()
    assert (endpoints(replica), applies(replica)) == ([URL, "", URL], 1)


def test_a_reverted_template_publishes_the_endpoint_again() -> None:
    replica = serving()
    before = replica.state.spec or {}
    order(replica.state, engines(image="2"))
    replica.step()
    order(replica.state, before, generation=3, sequence=2)
    replica.step()
    assert (endpoints(replica), replica.state.drain_until) == ([URL, "", URL], "")


def test_a_cluster_lost_meanwhile_publishes_the_endpoint_again() -> None:
    replica = serving()
    order(replica.state, engines(image="2"))
    replica.step()
    replica.controller.cluster_changed(
        CLUSTER.model_copy(update={"sequence": 2, "connected": False})
    )
    replica.step()
    assert (endpoints(replica), replica.state.drain_until) == ([URL, "", URL], "")
