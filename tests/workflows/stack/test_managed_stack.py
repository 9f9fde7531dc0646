"""An InferenceCluster without a serving stack installs, keeps and removes one, with a
real API server, real helm and real Temporal.

The charts are small ones of the tests, and a stand-in acts as Envoy's controllers. The
worker is the process that users run.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kubernetes.client import ApiClient

from activities.render.stack.objects import GATEWAY
from api_types.clock import utc_now
from api_types.messages.entities import Force, ForceFinalizer
from testbed.running import ClusterRunning
from tests.environment.envoy_stand_in import CLOUD_FINALIZER
from tests.environment.stack_testbed import CLUSTER
from tests.environment.summary import Summary
from tests.workflows.environment.harness import (
    Json,
    condition,
    eventually,
    message,
    reason,
)
from tests.workflows.environment.history_times import Times, times_of
from tests.workflows.environment.managed_stack import (
    BROKEN,
    NEWER,
    SERVICES,
    Managed,
    managed_stack,
)

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long, pytest.mark.timeout(700)]

LWS_DEPLOYMENT = (
    "/apis/apps/v1/namespaces/lws-system/deployments/lws-controller-manager"
)
CLASSES = "/apis/gateway.networking.k8s.io/v1/gatewayclasses"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PROXIES = "/apis/gateway.envoyproxy.io/v1alpha1/envoyproxies"
REMOVALS = (
    "remove_stack_objects",
    "helm_uninstall",
    "list_load_balancers",
    "purge_definitions",
)
LWS_CRD = (
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
    "leaderworkersets.leaderworkerset.x-k8s.io"
)


def events(seen: Json, reason: str) -> list[str]:
    return [
        event["message"]
        for event in seen["status"].get("events", ())
        if event["reason"] == reason
    ]


@pytest.fixture(scope="module")
async def managed(
    tmp_path_factory: pytest.TempPathFactory,
    kube: Callable[[ClusterRunning], ApiClient],
    pytestconfig: pytest.Config,
) -> AsyncIterator[Managed]:
    async with managed_stack(
        tmp_path_factory.mktemp("managed"), kube, Summary.of(pytestconfig)
    ) as found:
        yield found


@pytest.fixture(autouse=True)
async def clear(managed: Managed) -> AsyncIterator[None]:
    """Remove the remains of a stack from a cluster that stays, such as definitions, and
    the versions that a test wanted.
    """
    yield
    await managed.want_pinned()

    def is_clear() -> bool:
        managed.world.clear()
        return managed.world.is_clear()

    await eventually(
        lambda: asyncio.to_thread(is_clear), bool, what="a cluster as it was before"
    )


async def test_a_managed_cluster_installs_its_stack_becomes_ready_and_is_deleted_without_a_trace(
    managed: Managed,
) -> None:
    await managed.apply()
    seen = await managed.ready()
    assert (reason(seen, "ClusterReady"), reason(seen, "BackendReady")) == (
        "ClusterRunning",
        "BackendHealthy",
    )
    assert seen["status"]["gateway"] == {"address": "10.245.9.9"}
    assert len(events(seen, "ComposingBackend")) == 1
    assert len(events(seen, "StackComplete")) == 1
    assert set(managed.world.releases().values()) == {"deployed"}
    # The definitions that charts leave exist, and one of them is in use.
    managed.world.create(
        CLASSES,
        {
            "kind": "GatewayClass",
            "metadata": {"name": "other"},
            "spec": {"controllerName": "example.com/other"},
        },
    )
    assert len(managed.world.names(DEFINITIONS)) > 1
    await managed.delete(purge_crds=True)
    await managed.gone()
    kept = "gatewayclasses.gateway.networking.k8s.io"
    assert managed.world.names(DEFINITIONS) == [kept]
    closed = await managed.plane.handle("InferenceCluster", CLUSTER).query("describe")
    assert [
        (item["kind"], item["name"]) for item in closed["status"]["leftBehind"]
    ] == [("CustomResourceDefinition", kept)]


@pytest.mark.soak
async def test_foreign_objects_in_the_way_are_named_and_lost_workers_do_not_change_the_outcome(
    managed: Managed,
) -> None:
    """Foreign objects block the installation until they are gone.

    Then the worker is killed again and again, while it installs and removes.
    """
    crd = next(
        each
        for each in managed.world.gateway_definitions()
        if each["metadata"]["name"].startswith("gatewayclasses.")
    )
    managed.world.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    await eventually(
        lambda: asyncio.to_thread(managed.world.get, CLASSES),
        lambda found: found is not None,
        what="GatewayClasses",
    )
    managed.world.create(
        CLASSES,
        {
            "kind": "GatewayClass",
            "metadata": {"name": "envoy"},
            "spec": {"controllerName": "example.com/other"},
        },
    )
    await managed.apply()
    seen = await managed.until(
        lambda seen: reason(seen, "BackendReady") == "ReleaseConflict"
    )
    assert (
        "GatewayClass envoy belongs to others (controller example.com/other)"
        in message(seen, "BackendReady")
    )
    assert "modelplane.ai/stack: external" in message(seen, "BackendReady")
    assert managed.world.releases() == {}

    managed.world.delete(f"{CLASSES}/envoy")
    await managed.retry("resolved")
    for installed in (2, 6):
        await managed.until_releases(lambda found, least=installed: len(found) >= least)
        managed.plane.worker.kill()
        managed.plane.worker.start()
    await managed.ready()
    assert set(managed.world.releases().values()) == {"deployed"}
    await managed.delete()
    for left in (4,):
        await managed.until_releases(lambda found, most=left: len(found) <= most)
        managed.plane.worker.kill()
        managed.plane.worker.start()
    await managed.gone()


async def ask_to_remove_finalizers(managed: Managed, *held: str) -> None:
    """Request the removal of finalizers without accepting leaks, or of steps that are not awaited.

    All requests are rejected.
    """
    for number, name in enumerate(held):
        message = ForceFinalizer(
            request_id=f"finalizer {number}",
            by="test",
            object=name,
            finalizer=CLOUD_FINALIZER,
            reason="gone",
        )
        await managed.plane.handle("InferenceCluster", CLUSTER).signal(
            "force_finalizer", message.wire()
        )
    await managed.until(lambda seen: len(events(seen, "ForceRefused")) == len(held))


async def test_a_stack_is_repaired_and_upgraded_and_a_stuck_object_is_named_and_can_be_skipped(
    managed: Managed,
) -> None:
    await managed.apply()
    await managed.ready()
    revisions = managed.world.revisions()
    managed.world.delete(
        "/api/v1/namespaces/monitoring/secrets/sh.helm.release.v1.mp-kube-prometheus-stack.v1"
    )
    managed.world.delete(LWS_DEPLOYMENT)
    await managed.retry("look")
    seen = await managed.until(lambda seen: bool(events(seen, "StackRepaired")))
    (said,) = events(seen, "StackRepaired")
    assert sorted(
        said.removeprefix("applying missing objects again: ").split(", ")
    ) == ["leader-worker-set", "prometheus"]
    revisions["mp-lws"] += 1
    await eventually(
        lambda: asyncio.to_thread(managed.world.revisions),
        lambda found: found == revisions,
        what="the same releases",
    )
    assert managed.world.get(LWS_DEPLOYMENT)

    # Another cluster upgrades, and this one waits for it, even over the loss of its
    # worker.
    await managed.mute("elsewhere")
    await managed.ask_for_turn("elsewhere", 1)
    await managed.want(leaderWorkerSet=NEWER)
    seen = await managed.until(
        lambda seen: message(seen, "BackendReady").startswith(
            "waiting for the upgrade of cluster elsewhere"
        )
    )
    assert reason(seen, "BackendReady") == "BackendHealthy"
    managed.plane.worker.kill()
    managed.plane.worker.start()
    assert managed.world.revisions() == revisions
    await managed.ask_for_turn("elsewhere", 2, wanted=False)
    seen = await managed.until(lambda seen: len(events(seen, "StackComplete")) == 2)
    assert reason(seen, "BackendReady") == "BackendHealthy"
    assert managed.world.revisions() == {**revisions, "mp-lws": revisions["mp-lws"] + 1}
    definition = managed.world.get(LWS_CRD)
    assert definition
    assert (
        "addedLater"
        in definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"][
            "spec"
        ]["properties"]
    )
    assert seen["status"]["gateway"] == {"address": "10.245.9.9"}
    assert events(seen, "GatewayAddressChanged") == []

    # A chart that does not render, and one that its release cannot go back to: the
    # running versions continue to serve.
    revisions = managed.world.revisions()
    await managed.want(certManager=BROKEN)
    seen = await managed.until(
        lambda seen: "UpgradeFailed: cert-manager: " in message(seen, "BackendReady")
    )
    assert "it is broken" in message(seen, "BackendReady")
    assert f"Rejected: leader-worker-set stays at {NEWER}: v0.8.0 is older" in message(
        seen, "BackendReady"
    )
    assert (condition(seen, "BackendReady"), condition(seen, "Ready")) == (
        "True",
        "True",
    )
    assert managed.world.revisions() == revisions

    (service,) = managed.world.names(SERVICES)
    managed.world.envoy.behaviour.releases_balancers = False
    await managed.delete()
    seen = await managed.until(
        lambda seen: (
            f"Service envoy-gateway-system/{service}" in message(seen, "Deleting")
        )
    )
    assert "stack U2, step 2 of" in message(seen, "Deleting")
    assert "mp-gateway-helm" in managed.world.releases()
    await ask_to_remove_finalizers(
        managed, f"Service/envoy-gateway-system/{service}", "Service/default/other"
    )
    order = Force(
        request_id="given up", by="test", reason="the cloud is gone", scope="step"
    )
    await managed.plane.handle("InferenceCluster", CLUSTER).signal(
        "force", order.wire()
    )
    seen = await managed.until(lambda seen: bool(seen["status"].get("leftBehind")))
    assert [(item["kind"], item["name"]) for item in seen["status"]["leftBehind"]] == [
        ("Service", service)
    ]
    managed.world.envoy.behaviour.releases_balancers = True
    await managed.gone()


@pytest.mark.soak
async def test_a_slow_load_balancer_is_named_and_later_steps_wait_for_it(
    managed: Managed,
) -> None:
    """The worker is killed meanwhile.

    When the controller of the Service removes the finalizer, the deletion ends.
    """
    await managed.apply()
    await managed.ready()
    (service,) = managed.world.names(SERVICES)
    whole = await what_stands(managed)
    managed.world.envoy.behaviour.releases_balancers = False
    await managed.delete()

    def waits_for_the_service(seen: Json) -> bool:
        said = message(seen, "Deleting")
        return (
            "stack U2, step 2 of" in said
            and f"Service envoy-gateway-system/{service} (finalizer {CLOUD_FINALIZER}"
            in said
        )

    await managed.until(waits_for_the_service)
    managed.plane.worker.kill()
    managed.plane.worker.start()
    # The attempt that ends now was started with the lost worker.
    before = len((await removal_of(managed)).completed("remove_stack_objects"))
    await eventually(
        lambda: removal_of(managed),
        lambda times: len(times.completed("remove_stack_objects")) > before,
        what="one more attempt",
    )
    await managed.until(waits_for_the_service)
    assert await what_stands(managed) == whole

    removed_at = utc_now()
    managed.world.patch(f"{SERVICES}/{service}", {"metadata": {"finalizers": None}})
    await managed.gone()
    removal = await removal_of(managed)
    waited = [
        each
        for each in removal.activities
        if each.scheduled < removed_at and each.name in REMOVALS
    ]
    assert {(each.name, each.order["group"]) for each in waited} == {
        ("remove_stack_objects", GATEWAY)
    }
    assert len(removal.completed("helm_uninstall")) == len(whole["releases"])


async def removal_of(managed: Managed) -> Times:
    """Return the history times of a cluster's deletion."""
    return await times_of(managed.plane.handle("InferenceCluster", CLUSTER))


async def what_stands(managed: Managed) -> dict[str, Any]:
    """Return the objects deleted after the load balancer.

    Releases, definitions, the class and its namespace, and the use of the
    InferenceClass.
    """
    used = await managed.plane.describe("InferenceClass", "h100-8x")
    paths = {
        "definitions": DEFINITIONS,
        "classes": CLASSES,
        "namespaces": "/api/v1/namespaces",
        "proxies": PROXIES,
    }
    names = {what: managed.world.names(path) for what, path in paths.items()}
    return {
        **names,
        "releases": managed.world.releases(),
        "revisions": managed.world.revisions(),
        "used by": used["status"]["clusters"],
    }
