"""A whole stack is installed and removed step by step, on a real API server with real helm: spec/stack-and-routing.md 2.6, 2.11."""

import json

import pytest

from activities.render.stack import components, objects
from activities.render.stack.install import EVERYTHING, INSTALL
from activities.render.stack.removal import STEPS
from tests.activities.stack.stack_under_test import DEFINITIONS, GATEWAY, GATEWAY_API, MARK, SERVICES, StackUnderTest

pytestmark = pytest.mark.testbed("shared")

# What each step of a removal takes away, by its target.
TAKEN = {
    objects.GATEWAY: GATEWAY,
    objects.CLASS: f"{GATEWAY_API}/gatewayclasses/envoy",
    objects.PROXY: "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/modelplane-system/envoyproxies/inference-gateway",
    objects.CRDS: f"{DEFINITIONS}/{objects.INFERENCE_POOL_CRD}",
    objects.QUOTA_GROUP: "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas/allow-critical-pods",
    objects.NAMESPACES: MARK,
}


@pytest.mark.long
async def test_stk_16_24_35_a_stack_is_installed_and_removed_and_each_step_may_be_done_twice(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    seen = await stack.install(plan)
    assert (seen.address, seen.wanted, seen.lags, seen.restart) == ("10.245.9.9", plan.digest, [], False)
    assert stack.world.releases() == {release.name: "deployed" for release in plan.releases.values()}
    config = stack.world.get("/api/v1/namespaces/envoy-gateway-system/configmaps/envoy-gateway-config")
    assert config
    assert json.loads(config["data"]["values"])["envoyGateway"]["extensionApis"] == {"enableBackend": True}
    first = dict(stack.ensured)
    assert (await stack.install(plan)).digest == seen.digest
    assert stack.ensured == first

    left = {release.name for release in plan.releases.values()}
    for step in STEPS:
        if path := TAKEN.get(step.target):
            assert stack.world.get(path), f"{step.target} is there until its step"
        assert await stack.take(plan, step) == []
        assert await stack.take(plan, step) == []
        assert not path or stack.world.get(path) is None
        left -= {plan.releases[step.target].name} if step.target in plan.releases else set()
        assert set(stack.world.releases()) == left
    assert stack.world.names(SERVICES) == []
    assert "dra-driver-nvidia-gpu" not in stack.world.names("/api/v1/namespaces")
    assert not set(stack.world.names(DEFINITIONS)) & set(objects.INFERENCE_CRDS)


async def test_stk_17_envoy_gateway_alone_lags_and_is_ready_once_the_ai_gateway_is_there(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    steps = [step.key for step in INSTALL]
    pair = steps.index(components.AI_GATEWAY.key)
    assert steps[pair - 1] == components.ENVOY_GATEWAY.key
    await stack.carry_out(plan, INSTALL[:pair])
    alone = await stack.until(plan, lambda seen: any(lag.target == components.ENVOY_GATEWAY.key for lag in seen.lags))
    assert [(lag.object, lag.gates) for lag in alone.lags] == [("Deployment envoy-gateway-system/envoy-gateway", True)]
    await stack.ensure(plan, components.AI_GATEWAY.key)
    assert (await stack.until(plan, lambda seen: not seen.gating(EVERYTHING))).lags == []
