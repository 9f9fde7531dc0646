"""A managed InferenceGateway installs its dependencies, follows its spec, and removes
everything again.
"""

import asyncio

import pytest

from api_types.pins import charts
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    an_envoy_gateway,
)

PLAIN = ["install crds", "install traefik", "install gateway-class", "install gateway"]
REMOVED = ["remove gateway", "remove gateway-class", "remove traefik", "remove crds"]
POOL = "192.0.2.10-192.0.2.20"


def with_metallb(gateway: Json) -> Json:
    traefik = {
        **gateway["spec"]["traefik"],
        "loadBalancer": "MetalLB",
        "metallb": {"addressPool": POOL},
    }
    return {**gateway, "spec": {**gateway["spec"], "traefik": traefik}}


async def done(control: SimulatedControl, expected: list[str]) -> None:
    async def seen() -> list[str]:
        return control.done

    await eventually(seen, lambda found: found == expected, what="the steps")


async def ready(plane: ControlPlane) -> Json:
    return await plane.ready("InferenceGateway", "default")


@on_a_virtual_loop
async def test_objects_missing_from_the_spec_are_removed_and_all_of_them_at_the_end() -> (
    None
):
    control, gateway = SimulatedControl(), a_gateway(installed=True)
    async with virtual_plane(control) as plane:
        await plane.apply(gateway)
        seen = await ready(plane)
        assert (
            condition(seen, "ControllerReady"),
            reason(seen, "ControllerReady"),
        ) == ("True", "ControllerHealthy")
        await done(control, PLAIN)
        assert [
            event["message"]
            for event in seen["status"]["events"]
            if event["reason"] == "Installed"
        ] == ["Traefik ready, composing Gateway"]
        control.done.clear()
        await plane.apply(with_metallb(gateway))
        await done(
            control, [PLAIN[0], "install metallb", "install address-pool", *PLAIN[1:]]
        )
        control.done.clear()
        await plane.apply(gateway)
        await done(control, ["remove address-pool", "remove metallb", *PLAIN])
        await ready(plane)
        control.done.clear()
        await plane.delete("InferenceGateway", "default")
        await plane.gone("InferenceGateway", "default")
        assert control.done == REMOVED


@on_a_virtual_loop
async def test_a_gateway_with_envoy_installs_and_removes_envoy_gateway() -> None:
    control = SimulatedControl()
    pool = {"loadBalancer": "MetalLB", "metallb": {"addressPool": POOL}}
    envoy = [step.replace("traefik", "envoy-gateway") for step in PLAIN]
    async with virtual_plane(control) as plane:
        await plane.apply(an_envoy_gateway(installed=True, version="v1.9.0", **pool))
        seen = await ready(plane)
        await done(
            control, [envoy[0], "install metallb", "install address-pool", *envoy[1:]]
        )
        assert {
            (each.backend, each.envoy_version, each.traefik_version, each.address_pool)
            for each in control.orders
        } == {("Envoy", "v1.9.0", "", POOL)}
        assert [
            event["message"]
            for event in seen["status"]["events"]
            if event["reason"] == "Installed"
        ] == ["Envoy Gateway ready, composing Gateway"]
        control.done.clear()
        # Without its block, Envoy has the pinned chart and no addresses of MetalLB.
        control.orders.clear()
        await plane.apply(an_envoy_gateway(installed=True))
        await done(control, ["remove address-pool", "remove metallb", *envoy])
        assert control.orders[-1].envoy_version == charts.ENVOY_GATEWAY.version
        control.done.clear()
        await plane.delete("InferenceGateway", "default")
        await plane.gone("InferenceGateway", "default")
        assert control.done == [
            step.replace("traefik", "envoy-gateway") for step in REMOVED
        ]


@pytest.mark.parametrize(
    ("step", "why", "withheld"),
    [
        pytest.param(
            "crds",
            "httproutes is not established",
            ["traefik", "gateway-class", "gateway"],
            id="crds",
        ),
        pytest.param(
            "metallb",
            "0/1 pods are available",
            ["address-pool", "traefik", "gateway"],
            id="metallb",
        ),
    ],
)
@on_a_virtual_loop
async def test_a_dependent_step_waits_until_its_dependency_is_complete(
    step: str, why: str, withheld: list[str]
) -> None:
    control = SimulatedControl(waits={step: why})
    async with virtual_plane(control) as plane:
        await plane.apply(with_metallb(a_gateway(installed=True)))
        seen = await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: why in message(tree, "ControllerReady"),
        )
        assert (
            condition(seen, "ControllerReady"),
            reason(seen, "ControllerReady"),
        ) == ("False", "Installing")
        assert not {f"install {each}" for each in withheld} & set(control.done)
        control.waits.clear()
        await ready(plane)
        assert {f"install {each}" for each in withheld} < set(control.done)


@on_a_virtual_loop
async def test_an_incomplete_or_failed_step_is_named_and_repeated() -> None:
    control = SimulatedControl(
        waits={"traefik": "Deployment traefik-system/traefik: 0/1 pods are available"}
    )
    async with virtual_plane(control) as plane:
        await plane.apply(a_gateway(installed=True))
        seen = await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: "0/1 pods" in message(tree, "ControllerReady"),
        )
        assert (
            reason(seen, "ControllerReady"),
            "traefik" in message(seen, "ControllerReady"),
        ) == ("Installing", True)
        control.waits.clear()
        await ready(plane)

        control.waits["gateway"] = "not gone yet: Gateway"
        await plane.delete("InferenceGateway", "default")
        await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: "not gone yet" in message(tree, "Deleting"),
        )
        # No dependency of the Gateway is removed before it.
        await asyncio.sleep(0)
        assert not [
            each
            for each in control.done
            if each.startswith("remove") and each != "remove gateway"
        ]
        await plane.force("InferenceGateway", "default")
        await plane.gone("InferenceGateway", "default")
        assert control.done[-3:] == REMOVED[1:]


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("lost", ["in an outage", "once more before it was accepted"])
@on_a_virtual_loop
async def test_a_lost_gateway_is_installed_again_until_it_is_accepted(
    lost: str,
) -> None:
    control = SimulatedControl()
    async with virtual_plane(control) as plane:
        await plane.apply(a_gateway(installed=True))
        await ready(plane)
        control.done.clear()
        if lost == "in an outage":
            control.down = True
            await plane.until(
                "InferenceGateway",
                "default",
                lambda tree: reason(tree, "Ready") == "ClusterUnreachable",
            )
            control.gateway, control.down = False, False
        else:
            control.ineffective.add("gateway")
            control.gateway = False
            await done(control, PLAIN)
            control.ineffective.clear()
        await plane.until(
            "InferenceGateway",
            "default",
            lambda tree: (
                condition(tree, "Ready") == "True" and control.done[-4:] == PLAIN
            ),
        )
