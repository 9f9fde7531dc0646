"""The objects of Envoy Gateway on the control cluster, as they protect requests."""

from activities.render.gateway import objects
from activities.render.objects.edge import STEERING_HEADERS
from activities.render.objects.manifest import RenderOwner
from api_types.resources.serving_stack import StackGateway

OWNER = RenderOwner("InferenceGateway", "", "default", "u", 1)


def test_steering_headers_are_removed_before_any_filter() -> None:
    policy = objects.client_policy(OWNER).manifest
    (target,) = policy["spec"]["targetRefs"]
    gateway = objects.gateway(OWNER, "Envoy").manifest
    assert (policy["kind"], target["kind"], target["name"]) == (
        "ClientTrafficPolicy",
        gateway["kind"],
        gateway["metadata"]["name"],
    )
    assert policy["metadata"]["namespace"] == gateway["metadata"]["namespace"]
    removed = policy["spec"]["headers"]["earlyRequestHeaders"]["remove"]
    assert set(removed) == set(STEERING_HEADERS)


def test_proxies_drain_as_long_as_the_longest_generation_of_a_stack() -> None:
    longest = StackGateway().longest_generation_seconds
    proxy = objects.envoy_proxy(OWNER).manifest
    assert proxy["spec"]["shutdown"] == {"drainTimeout": f"{longest}s"}
