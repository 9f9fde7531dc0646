"""A stack is installed and removed step by step, on a real API server with real helm (spec/stack-and-routing.md 2)."""

import json

import pytest

from activities.render.stack import components, objects
from activities.render.stack.install import EVERYTHING, GATEWAY_CRDS, INSTALL
from activities.render.stack.removal import STEPS, Removal
from api_types.messages.stack import ListLoadBalancers, RemoveStackObjects
from tests.activities.stack.conftest import StackUnderTest
from tests.environment.envoy_stand_in import CLASS_FINALIZER

pytestmark = pytest.mark.testbed

GATEWAY = "/apis/gateway.networking.k8s.io/v1/namespaces/modelplane-system/gateways/inference-gateway"
SERVICES = "/api/v1/namespaces/envoy-gateway-system/services"


async def remove(stack: StackUnderTest, spec: dict[str, object], group: str, wait_seconds: int = 60) -> list[str]:
    order = RemoveStackObjects(spec=spec, group=group, wait_seconds=wait_seconds, **stack.base)
    result = await stack.run(stack.activities.remove_stack_objects, order)
    return [str(item) for item in result.remaining]


async def test_stk_16_24_26_35_a_stack_is_installed_gets_an_address_and_is_removed_without_a_trace(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    seen = await stack.install(plan)
    assert (seen.address, seen.wanted, seen.gating(EVERYTHING)) == ("10.245.9.9", plan.digest, [])
    assert set(stack.world.releases()) == {release.name for release in plan.releases.values()}
    config = stack.world.get("/api/v1/namespaces/envoy-gateway-system/configmaps/envoy-gateway-config")
    assert config
    assert json.loads(config["data"]["values"])["envoyGateway"]["extensionApis"] == {"enableBackend": True}
    # Nothing that was made twice is another object: every activity may run again.
    revisions = {key: found.revision for key, found in stack.ensured.items()}
    assert (await stack.install(plan)).digest == seen.digest
    assert {key: found.revision for key, found in stack.ensured.items()} == revisions

    assert await stack.run(stack.activities.list_load_balancers, ListLoadBalancers(**stack.base)) is not None
    for step in STEPS:
        if step.action is Removal.OBJECTS:
            assert await remove(stack, plan.spec, step.target) == []
        elif step.action is Removal.RELEASE:
            assert (await stack.uninstall(plan, step.target)).remaining == []
    assert stack.world.releases() == {}
    assert stack.world.names(SERVICES) == []
    assert stack.world.get("/api/v1/namespaces/modelplane-system") is None
    assert not set(stack.world.names("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")) & set(objects.INFERENCE_CRDS)


async def test_stk_17_envoy_gateway_alone_lags_and_is_ready_once_the_ai_gateway_is_there(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    for step in INSTALL[:6]:
        if step.key in objects.GROUPS:
            await stack.apply(plan, step.key)
        elif step.key == GATEWAY_CRDS:
            await stack.crds(plan, *step.targets)
        else:
            await stack.ensure(plan, step.key)
    assert step.key == components.ENVOY_GATEWAY.key
    alone = await stack.until(plan, lambda seen: any("envoy-gateway" in lag.object for lag in seen.lags))
    assert [lag.why for lag in alone.lags if lag.target == components.ENVOY_GATEWAY.key] == ["0/1 pods are available"]
    await stack.ensure(plan, components.AI_GATEWAY.key)
    await stack.until(plan, lambda seen: not seen.gating(components.PAIR))


async def test_stk_35_36_the_gateway_is_gone_before_its_service_which_is_waited_for(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.install(plan)
    (service,) = stack.world.names(SERVICES)
    stack.world.envoy.behaviour.releases_balancers = False
    stack.world.create(
        "/api/v1/namespaces/envoy-gateway-system/events",
        {
            "metadata": {"name": "refused"},
            "type": "Warning",
            "reason": "SyncLoadBalancerFailed",
            "message": "the cloud refuses the deletion",
            "involvedObject": {"kind": "Service", "namespace": "envoy-gateway-system", "name": service},
            "lastTimestamp": "2026-01-01T00:00:00Z",
        },
    )
    (waits,) = await remove(stack, plan.spec, objects.GATEWAY, wait_seconds=5)
    assert stack.world.get(GATEWAY) is None
    assert f"Service envoy-gateway-system/{service}" in waits
    assert "finalizer service.kubernetes.io/load-balancer-cleanup" in waits
    assert "SyncLoadBalancerFailed: the cloud refuses the deletion" in waits
    assert "mp-gateway-helm" in stack.world.releases()
    stack.world.envoy.behaviour.releases_balancers = True
    assert await remove(stack, plan.spec, objects.GATEWAY) == []


async def test_a_class_that_is_still_used_names_its_gateways(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.install(plan)
    other = {
        "metadata": {"name": "other"},
        "spec": {"gatewayClassName": "envoy", "listeners": [{"name": "x", "port": 81, "protocol": "HTTP"}]},
    }
    stack.world.create("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways", other)
    await remove(stack, plan.spec, objects.GATEWAY)
    (waits,) = await remove(stack, plan.spec, objects.CLASS, wait_seconds=2)
    assert CLASS_FINALIZER in waits
    assert "Gateways of the class: default/other" in waits
    stack.world.delete("/apis/gateway.networking.k8s.io/v1/namespaces/default/gateways/other")
    assert await remove(stack, plan.spec, objects.CLASS) == []


async def test_stk_23_25_the_first_of_two_addresses_counts_and_without_one_the_service_says_why(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    stack.world.envoy.behaviour.addresses = ()
    seen = await stack.install(plan)
    assert seen.address == ""
    stack.world.envoy.behaviour.addresses = ("10.245.9.1", "10.245.9.2")
    seen = await stack.until(plan, lambda seen: seen.address)
    assert seen.address == "10.245.9.1"


async def test_definitions_with_objects_of_others_are_not_deleted(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    await stack.apply(plan, objects.CRDS)
    pool = {
        "apiVersion": "inference.networking.k8s.io/v1",
        "kind": "InferencePool",
        "metadata": {"name": "of-others"},
        "spec": {
            "selector": {"matchLabels": {"app": "x"}},
            "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {"name": "x", "port": {"number": 1}},
        },
    }
    path = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
    stack.world.create(path, pool)
    (waits,) = await remove(stack, plan.spec, objects.CRDS, wait_seconds=1)
    assert "InferencePool default/of-others" in waits
    assert set(objects.INFERENCE_CRDS) <= set(stack.world.names("/apis/apiextensions.k8s.io/v1/customresourcedefinitions"))
    stack.world.delete(f"{path}/of-others")
    assert await remove(stack, plan.spec, objects.CRDS) == []


async def test_a_namespace_that_was_there_before_stays_without_our_marks(stack: StackUnderTest) -> None:
    stack.world.create("/api/v1/namespaces", {"metadata": {"name": "modelplane-system", "labels": {"team": "infra"}}})
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    marked = stack.world.get("/api/v1/namespaces/modelplane-system")
    assert marked
    assert marked["metadata"]["annotations"]["modelplane.ai/owner-uid"] == stack.uid
    assert await remove(stack, plan.spec, objects.NAMESPACES) == []
    left = stack.world.get("/api/v1/namespaces/modelplane-system")
    assert left
    assert left["metadata"]["labels"] == {"team": "infra", "kubernetes.io/metadata.name": "modelplane-system"}
    assert "modelplane.ai/owner-uid" not in left["metadata"].get("annotations", {})
    assert stack.world.get("/api/v1/namespaces/dra-driver-nvidia-gpu") is None
