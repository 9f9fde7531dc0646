"""A cluster that others already use: what they installed is used or left alone."""

import copy
from typing import Any

import pytest

from activities.render.objects.envoy_gateway import CONTROLLER
from activities.render.stack import components, objects
from api_types.errors import NameConflict
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    GATEWAY_API,
    StackUnderTest,
    shown,
)
from tests.environment.stack_charts import crd, gateway_definitions

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

Json = dict[str, Any]

CERT_MANAGER = components.CERT_MANAGER.key
LWS = components.LEADER_WORKER_SET.key
DRA = components.DRA_DRIVER.key
ENVOY = components.ENVOY_GATEWAY.key
CERTIFICATES = "certificates.cert-manager.io"
GATEWAYS = "gateways.gateway.networking.k8s.io"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
NODES = "/api/v1/nodes"
THEIRS = {
    "meta.helm.sh/release-name": "certs",
    "meta.helm.sh/release-namespace": "security",
}


def create(stack: StackUnderTest, *definitions: Json, **annotations: str) -> None:
    """Create definitions as another user of the cluster."""
    for each in definitions:
        document = copy.deepcopy(each)
        document["metadata"].setdefault("annotations", {}).update(annotations)
        stack.world.create(DEFINITIONS, document)


def written(stack: StackUnderTest) -> dict[str, tuple[str, int, Json]]:
    """Return what only a write of an object's content changes, by name."""
    items = stack.world.items(DEFINITIONS)
    return {
        each["metadata"]["name"]: (
            each["metadata"]["uid"],
            each["metadata"]["generation"],
            each["metadata"].get("annotations") or {},
        )
        for each in items
    }


async def served(stack: StackUnderTest, path: str) -> None:
    """Wait until a kind is served."""
    await eventually(lambda: stack.world.get(path) is not None)


async def test_components_of_others_are_used_and_neither_changed_nor_removed(
    stack: StackUnderTest,
) -> None:
    create(stack, crd("cert-manager.io", "Certificate"), **THEIRS)
    create(stack, *gateway_definitions("standard"))
    before = written(stack)
    plan = await stack.plan()
    assert plan.adopted == [CERT_MANAGER]
    assert plan.kept[CERT_MANAGER].startswith(
        "cert-manager is used as others installed it (CustomResourceDefinition "
        f"{CERTIFICATES} of release security/certs); remove it and run"
    )
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    applied = await stack.crds(plan, ENVOY)
    assert applied.notes == [
        "gateway.networking.k8s.io has definitions of others, which are not changed"
    ]
    assert "envoyproxies.gateway.envoyproxy.io" in written(stack)
    # Nothing of others is removed with the stack.
    assert shown(await stack.uninstall(plan, CERT_MANAGER)) == []
    await stack.remove(plan, objects.CRDS)
    after = written(stack)
    assert {name: after.get(name) for name in before} == before


async def test_what_an_earlier_stack_left_is_not_of_others(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS, ENVOY)
    await stack.ensure(plan, CERT_MANAGER)
    await stack.apply(plan, objects.NAMESPACES)
    again = await stack.plan(installed=[plan.releases[CERT_MANAGER].name])
    assert (again.adopted, again.kept) == ([], {})
    # A worker may be killed before it reports an installation.
    assert (await stack.plan()).adopted == []


async def test_a_release_waits_for_objects_only_while_it_is_installed(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    path = "/apis/leaderworkerset.x-k8s.io/v1/namespaces/default/leaderworkersets"
    pods = {"containers": [{"name": "main", "image": "example.com/main"}]}
    theirs = {
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "theirs"},
        "spec": {"leaderWorkerTemplate": {"workerTemplate": {"spec": pods}}},
    }
    stack.world.create(path, theirs)
    kinds = {"unused_kinds": ["leaderworkerset.x-k8s.io/v1/LeaderWorkerSet"]}
    assert shown(await stack.uninstall(plan, LWS, wait_seconds=0, **kinds)) == []
    await stack.ensure(plan, LWS)
    left = shown(await stack.uninstall(plan, LWS, wait_seconds=0, **kinds))
    assert left == ["LeaderWorkerSet default/theirs"]


async def test_neighbours_of_the_stack_are_named_and_left_alone(
    stack: StackUnderTest,
) -> None:
    create(
        stack,
        *gateway_definitions(),
        crd("nvidia.com", "ClusterPolicy", plural="clusterpolicies"),
        crd("kueue.x-k8s.io", "ClusterQueue", "v1beta2"),
    )
    theirs = {
        "kind": "GatewayClass",
        "metadata": {"name": "theirs"},
        "spec": {"controllerName": "example.com/theirs"},
    }
    for path in (
        f"{GATEWAY_API}/gatewayclasses",
        "/apis/nvidia.com/v1/clusterpolicies",
        "/apis/kueue.x-k8s.io/v1beta2/clusterqueues",
    ):
        await served(stack, path)
    stack.world.create(f"{GATEWAY_API}/gatewayclasses", theirs)
    plan = await stack.plan()
    assert plan.left == [
        "the NVIDIA GPU operator",
        (
            "Kueue (queues of models need the annotation modelplane.ai/scheduler-type: "
            "kueue)"
        ),
        "GatewayClass theirs (example.com/theirs)",
    ]
    assert plan.adopted == []


async def test_another_envoy_gateway_is_a_conflict(stack: StackUnderTest) -> None:
    create(stack, *gateway_definitions())
    await served(stack, f"{GATEWAY_API}/gatewayclasses")
    theirs = {
        "kind": "GatewayClass",
        "metadata": {"name": "eg"},
        "spec": {"controllerName": CONTROLLER},
    }
    stack.world.create(f"{GATEWAY_API}/gatewayclasses", theirs)
    with pytest.raises(
        NameConflict, match="GatewayClass eg belongs to another Envoy Gateway"
    ) as refused:
        await stack.plan()
    assert refused.value.details == ("ReleaseConflict",)


async def test_the_driver_is_not_installed_beside_a_device_plugin(
    stack: StackUnderTest,
) -> None:
    name = stack.world.names(NODES)[0]
    offer = {"status": {"allocatable": {"nvidia.com/gpu": "8"}}}
    offer["status"]["capacity"] = dict(offer["status"]["allocatable"])
    stack.world.patch(f"{NODES}/{name}/status", offer)
    try:
        plan = await stack.plan()
        assert plan.adopted == [DRA]
        assert f"offers nvidia.com/gpu on {name}, and both" in plan.kept[DRA]
        # Modelplane creates its own clusters without the plugin.
        assert (await stack.plan("GKE")).adopted == []
    finally:
        none = {"nvidia.com/gpu": None}
        stack.world.patch(
            f"{NODES}/{name}/status",
            {"status": {"allocatable": none, "capacity": none}},
        )
    assert (await stack.plan()).adopted == []


async def test_a_driver_of_others_is_used(stack: StackUnderTest) -> None:
    selectors = [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]
    theirs = {"metadata": {"name": "gpu.nvidia.com"}, "spec": {"selectors": selectors}}
    stack.world.create(DEVICE_CLASSES, theirs)
    plan = await stack.plan()
    assert plan.adopted == [DRA]
    assert plan.kept[DRA].startswith(
        "dra-driver is used as others installed it (DeviceClass gpu.nvidia.com), but it "
        "must publish the devices of the classes"
    )
