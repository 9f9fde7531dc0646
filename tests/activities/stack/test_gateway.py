"""The Gateway of a stack and its load balancer, from installation to removal.

The API server and helm are real. A stand-in acts as Envoy's controllers.
"""

import asyncio
from typing import Any

import pytest

from activities.render.stack import components, objects
from activities.render.stack.install import EVERYTHING, INSTALL, PAIR_READY
from api_types.messages.stack import (
    ListLoadBalancers,
    LoadBalancers,
    StackPlan,
    StackSeen,
)
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    EVENTS,
    GATEWAY,
    GATEWAY_API,
    SERVICES,
    StackUnderTest,
    changed,
    shown,
)
from tests.environment.envoy_stand_in import CLASS_FINALIZER

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

Json = dict[str, Any]

CLASS = f"{GATEWAY_API}/gatewayclasses/envoy"
OTHERS = f"{GATEWAY_API}/namespaces/default/gateways"


async def test_a_gateway_gets_its_address_and_goes_before_its_load_balancer_and_its_class(
    stack: StackUnderTest,
) -> None:
    stack.world.envoy.behaviour.addresses = ()
    plan = await stack.plan()
    others = {component.key for component in components.COMPONENTS[3:]}
    steps = [step for step in INSTALL if not others & set(step.targets)]
    assert PAIR_READY in [step.key for step in steps]
    await stack.carry_out(plan, steps)
    await its_address_is_followed_and_without_one_its_service_says_why(stack, plan)
    await load_balancers_of_others_are_listed_and_ours_is_not(stack)
    await a_gateway_of_others_stays_with_its_load_balancer(stack, plan)
    await it_is_gone_before_its_service_which_is_waited_for(stack, plan)
    await a_class_that_is_still_used_names_its_gateways_until_it_is_skipped(stack, plan)


async def its_address_is_followed_and_without_one_its_service_says_why(
    stack: StackUnderTest, plan: StackPlan
) -> None:
    seen = await stack.until(plan, lambda seen: not (seen.address_events or seen.lags))
    assert seen.address == ""
    (service,) = stack.world.names(SERVICES)
    stack.world.create(EVENTS, a_warning(service, "quota exceeded"))
    seen = await changed(stack, plan, seen)
    assert (seen.address, seen.address_events) == (
        "",
        ["SyncLoadBalancerFailed: quota exceeded"],
    )

    stack.world.envoy.behaviour.addresses = ("10.245.9.1", "10.245.9.2")
    seen = await changed(stack, plan, seen)
    assert (seen.address, seen.address_events, seen.lags) == ("10.245.9.1", [], [])
    stack.world.envoy.behaviour.addresses = ("10.245.9.3",)
    seen = await changed(stack, plan, seen)
    assert seen.address == "10.245.9.3"
    await another_bundle_of_the_gateway_api_is_noted(stack, plan, seen)


async def another_bundle_of_the_gateway_api_is_noted(
    stack: StackUnderTest, plan: StackPlan, seen: StackSeen
) -> None:
    notes = {"gateway.networking.k8s.io/bundle-version": "v1.4.0"}
    stack.world.patch(
        f"{DEFINITIONS}/gateways.gateway.networking.k8s.io",
        {"metadata": {"annotations": notes}},
    )
    seen = await changed(stack, plan, seen)
    expected = plan.spec["versions"]["gatewayApi"]
    (note,) = seen.notes
    assert note.startswith(
        f"VersionMismatch: the cluster has Gateway API v1.4.0, and {expected} is expected"
    )
    assert seen.gating(EVERYTHING) == []


async def load_balancers_of_others_are_listed_and_ours_is_not(
    stack: StackUnderTest,
) -> None:
    async def listed() -> LoadBalancers:
        found: LoadBalancers = await stack.run(
            stack.activities.list_load_balancers, ListLoadBalancers(**stack.base)
        )
        return found

    assert await listed() == LoadBalancers()
    names = [f"lb-{number:02}" for number in range(22)]
    for name in names:
        spec = {
            "type": "LoadBalancer",
            "ports": [{"port": 80}],
            "selector": {"app": "x"},
        }
        stack.world.create(SERVICES, {"metadata": {"name": name}, "spec": spec})
    stack.world.create(
        SERVICES,
        {
            "metadata": {"name": "internal"},
            "spec": {"ports": [{"port": 80}], "selector": {"app": "x"}},
        },
    )
    assert await listed() == LoadBalancers(
        services=[f"envoy-gateway-system/{name}" for name in names[:20]], more=2
    )
    for name in (*names, "internal"):
        stack.world.delete(f"{SERVICES}/{name}")


async def a_gateway_of_others_stays_with_its_load_balancer(
    stack: StackUnderTest, plan: StackPlan
) -> None:
    def owned_by(name: str, uid: str) -> dict[str, Any]:
        notes = {"modelplane.ai/owner-name": name, "modelplane.ai/owner-uid": uid}
        return {"metadata": {"annotations": notes}}

    stack.world.patch(GATEWAY, owned_by("us-1", "x"))
    result = await stack.remove(plan, objects.GATEWAY)
    assert shown(result) == []
    (skipped,) = result.skipped
    assert "belongs to InferenceCluster us-1 (uid x)" in skipped
    assert stack.world.get(GATEWAY)
    assert len(stack.world.names(SERVICES)) == 1
    stack.world.patch(GATEWAY, owned_by("bare", stack.uid))


async def it_is_gone_before_its_service_which_is_waited_for(
    stack: StackUnderTest, plan: StackPlan
) -> None:
    (service,) = stack.world.names(SERVICES)
    behaviour, log = stack.world.envoy.behaviour, stack.world.envoy.log
    behaviour.releases_balancers = False
    log.clear()
    result = await stack.remove(plan, objects.GATEWAY, wait_seconds=1)
    (waits,) = shown(result)
    assert f"Service envoy-gateway-system/{service}" in waits
    assert stack.world.get(GATEWAY) is None
    await eventually(lambda: log == [f"deleted {service}"])
    (waits,) = shown(await stack.remove(plan, objects.GATEWAY, wait_seconds=0))
    assert "finalizer service.kubernetes.io/load-balancer-cleanup" in waits
    assert "SyncLoadBalancerFailed: quota exceeded" in waits
    assert stack.world.releases()["mp-gateway-helm"] == "deployed"
    skipped = [result.remaining[0].id]
    assert (
        shown(
            await stack.remove(plan, objects.GATEWAY, wait_seconds=60, skipped=skipped)
        )
        == []
    ), "it is skipped"
    assert stack.world.names(SERVICES) == [service]
    waiting = asyncio.create_task(stack.remove(plan, objects.GATEWAY))
    behaviour.releases_balancers = True
    assert shown(await waiting) == []
    assert stack.world.names(SERVICES) == []
    assert log == [f"deleted {service}", f"released {service}"]


async def a_class_that_is_still_used_names_its_gateways_until_it_is_skipped(
    stack: StackUnderTest, plan: StackPlan
) -> None:
    spec = {
        "gatewayClassName": "envoy",
        "listeners": [{"name": "x", "port": 81, "protocol": "HTTP"}],
    }
    stack.world.create(
        OTHERS, {"kind": "Gateway", "metadata": {"name": "other"}, "spec": spec}
    )
    await eventually(
        lambda: (
            CLASS_FINALIZER
            in (stack.world.get(CLASS) or {})["metadata"].get("finalizers", ())
        )
    )
    result = await stack.remove(plan, objects.CLASS, wait_seconds=1)
    (waits,) = shown(result)
    assert CLASS_FINALIZER in waits
    assert "Gateways of the class: default/other" in waits
    assert (
        shown(
            await stack.remove(
                plan, objects.CLASS, wait_seconds=60, skipped=[result.remaining[0].id]
            )
        )
        == []
    )
    stack.world.delete(f"{OTHERS}/other")
    assert shown(await stack.remove(plan, objects.CLASS)) == []
    assert stack.world.get(CLASS) is None


def a_warning(service: str, message: str) -> Json:
    """Return an event about the load balancer of a Service."""
    about = {"kind": "Service", "namespace": "envoy-gateway-system", "name": service}
    fields = {
        "type": "Warning",
        "reason": "SyncLoadBalancerFailed",
        "message": message,
        "lastTimestamp": "2026-01-01T00:00:00Z",
    }
    return {"metadata": {"name": "warning"}, "involvedObject": about, **fields}
