"""The gateway of the control cluster is installed and removed step by step.

The tests use a real API server, real helm, and small charts.
"""

import json
import uuid
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import Any

import pytest
import pytest_asyncio

from activities.clients.helm.pool import HelmClients
from activities.clients.kubernetes.pool import KubernetesPool
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import GroupVersionKind, Json, ObjectId
from activities.stack.activities import StackActivities
from api_types.errors import NameConflict, NoControlCluster, PermissionDenied
from api_types.messages.gateway_work import (
    INSTALL_STEPS,
    InstallStep,
    InstallStepResult,
    RunInstallStep,
)
from api_types.messages.routing import GatewayBackend
from api_types.pins import charts
from api_types.sections.stacks import StackSettings
from tests.activities.environment.asking import asked_by
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.routing.conftest import Control
from tests.environment.cached_programs import with_cached_helm
from tests.environment.charts import ChartRepository
from tests.environment.gateway_charts import NOWHERE, metallb_chart, traefik_chart
from tests.environment.stack_charts import envoy_gateway

pytestmark = pytest.mark.testbed

GATEWAY = "inferencegateway/default"
POOL_KIND = GroupVersionKind("metallb.io/v1beta1", "IPAddressPool")
ADVERTISEMENT_KIND = GroupVersionKind("metallb.io/v1beta1", "L2Advertisement")
SHARED = ObjectId(kinds.GATEWAY, "modelplane-system", "modelplane")
CLASS = ObjectId(kinds.GATEWAY_CLASS, "", "traefik")
SERVICE = ObjectId(kinds.SERVICE, "traefik-system", "traefik")
ENVOY_CLASS = ObjectId(kinds.GATEWAY_CLASS, "", "envoy")
PROXY = ObjectId(
    GroupVersionKind("gateway.envoyproxy.io/v1alpha1", "EnvoyProxy"),
    "modelplane-system",
    "modelplane",
)
BALANCER = ObjectId(kinds.SERVICE, "envoy-gateway-system", "envoy-modelplane")
STUCK = charts.TRAEFIK.version.replace("41.", "42.")


@dataclass
class Installation:
    """The activities of one InferenceGateway."""

    control: Control
    activities: StackActivities
    uid: str
    backend: GatewayBackend = "Traefik"

    def steps(self) -> list[InstallStep]:
        other = "traefik" if self.backend == "Envoy" else "envoy-gateway"
        return [step for step in INSTALL_STEPS if step != other]

    async def step(
        self,
        step: InstallStep,
        *,
        remove: bool = False,
        of_predecessors: bool = False,
        version: str = charts.TRAEFIK.version,
    ) -> InstallStepResult:
        order = RunInstallStep(
            uid=self.uid,
            step=step,
            traefik_version=version,
            address_pool="192.0.2.10-192.0.2.20",
            remove=remove,
            of_predecessors=of_predecessors,
            backend=self.backend,
            envoy_version=charts.ENVOY_GATEWAY.version,
        )
        result: InstallStepResult = await asked_by(GATEWAY).run(
            self.activities.run_install_step, order
        )
        return result

    async def until_done(self, step: InstallStep, *, remove: bool = False) -> None:
        async def done() -> bool:
            return (await self.step(step, remove=remove)).done

        await eventually(done)

    async def get(self, target: ObjectId) -> Json | None:
        return await self.control.api.get(target)

    async def revisions(self) -> dict[str, int]:
        assert self.activities.control_connection
        async with self.activities.helm.at(self.activities.control_connection) as helm:
            return {state.name: state.revision for state in await helm.releases("mp-")}


@pytest_asyncio.fixture
async def installation(control: Control) -> AsyncIterator[Installation]:
    pool = control.activities.control.clusters
    assert isinstance(pool, KubernetesPool)
    with ChartRepository(
        traefik_chart(),
        traefik_chart(STUCK, node_selector=NOWHERE),
        metallb_chart(),
        envoy_gateway(charts.ENVOY_GATEWAY.version, awaits_pools=False),
    ) as repository:
        settings = StackSettings(chart_mirror=repository.url)
        helm = HelmClients(pool, with_cached_helm(settings))
        where = control.activities.control.connection
        found = Installation(
            control,
            StackActivities(pool, helm, settings, control_connection=where),
            uuid.uuid4().hex,
        )
        yield found
        for step in reversed(found.steps()):
            await found.until_done(step, remove=True)
        helm.close()


async def test_a_gateway_is_installed_and_taken_away_and_every_step_may_be_taken_twice(
    installation: Installation,
) -> None:
    for _ in range(2):
        for step in installation.steps():
            await installation.until_done(step)
    assert await installation.revisions() == {"mp-metallb": 1, "mp-traefik": 1}
    given = await installation.get(
        ObjectId(
            GroupVersionKind("v1", "ConfigMap"), "traefik-system", "traefik-values"
        )
    )
    assert given
    assert json.loads(given["data"]["providers"]) == {
        "kubernetesGateway": {
            "enabled": True,
            "statusAddress": {
                "service": {"namespace": "traefik-system", "name": "traefik"}
            },
        },
        "kubernetesCRD": {"enabled": True},
        "kubernetesIngress": {"enabled": False},
    }
    assert given["data"]["gateway"] == "false false"
    assert await installation.get(SERVICE)
    gateway_class, gateway = (
        await installation.get(CLASS),
        await installation.get(SHARED),
    )
    assert gateway_class
    assert gateway
    assert gateway_class["spec"]["controllerName"] == "traefik.io/gateway-controller"
    (listener,) = gateway["spec"]["listeners"]
    assert (listener["name"], listener["port"], listener["allowedRoutes"]) == (
        "web",
        8000,
        {"namespaces": {"from": "All"}},
    )
    pool = await installation.get(ObjectId(POOL_KIND, "metallb-system", "modelplane"))
    advertised = await installation.get(
        ObjectId(ADVERTISEMENT_KIND, "metallb-system", "modelplane")
    )
    assert pool
    assert advertised
    assert pool["spec"] == {"addresses": ["192.0.2.10-192.0.2.20"]}
    assert advertised["spec"] == {"ipAddressPools": ["modelplane"]}

    for _ in range(2):
        for step in reversed(installation.steps()):
            await installation.until_done(step, remove=True)
    assert await installation.revisions() == {}
    assert [await installation.get(each) for each in (SHARED, CLASS, SERVICE)] == [
        None,
        None,
        None,
    ]
    # Deleting the definitions would delete everybody's routes.
    assert kinds.HTTP_ROUTE in await installation.control.api.resources(refresh=True)


async def test_envoy_gateway_is_installed_and_taken_away(
    installation: Installation,
) -> None:
    installation.backend = "Envoy"
    for _ in range(2):
        for step in installation.steps():
            await installation.until_done(step)
    assert await installation.revisions() == {"mp-gateway-helm": 1, "mp-metallb": 1}
    given = await installation.get(
        ObjectId(
            GroupVersionKind("v1", "ConfigMap"),
            "envoy-gateway-system",
            "envoy-gateway-config",
        )
    )
    assert given
    assert json.loads(given["data"]["values"]) == {
        "envoyGateway": {"extensionApis": {"enableBackend": True}}
    }
    found = [await installation.get(each) for each in (ENVOY_CLASS, SHARED, PROXY)]
    gateway_class, gateway, proxy = (each["spec"] for each in found if each)
    assert gateway_class == {
        "controllerName": "gateway.envoyproxy.io/gatewayclass-controller",
        "parametersRef": {
            "group": "gateway.envoyproxy.io",
            "kind": "EnvoyProxy",
            "name": "modelplane",
            "namespace": "modelplane-system",
        },
    }
    assert gateway["gatewayClassName"] == "envoy"
    assert [
        (each["name"], each["port"], each["allowedRoutes"])
        for each in gateway["listeners"]
    ] == [("web", 80, {"namespaces": {"from": "All"}})]
    assert proxy == {
        "provider": {
            "type": "Kubernetes",
            "kubernetes": {"envoyService": {"externalTrafficPolicy": "Cluster"}},
        },
        "shutdown": {"drainTimeout": "3600s"},
    }

    for _ in range(2):
        for step in reversed(installation.steps()):
            await installation.until_done(step, remove=True)
    assert await installation.revisions() == {}
    assert [await installation.get(each) for each in (ENVOY_CLASS, SHARED, PROXY)] == [
        None,
        None,
        None,
    ]


async def test_envoy_gateway_does_not_change_the_channel_of_the_gateway_api(
    installation: Installation,
) -> None:
    # So a later InferenceGateway may have the other backend. Helm 4 would apply the
    # experimental channel of the chart.
    definition = ObjectId(kinds.CRD, "", "httproutes.gateway.networking.k8s.io")
    channel = "gateway.networking.k8s.io/channel"
    await installation.until_done("crds")
    before = await installation.get(definition)
    installation.backend = "Envoy"
    for step in ("crds", "envoy-gateway"):
        await installation.until_done(step)
    after = await installation.get(definition)
    assert before
    assert after
    found = [each["metadata"]["annotations"][channel] for each in (before, after)]
    assert found[0] == found[1]
    assert await installation.get(
        ObjectId(kinds.CRD, "", "envoyproxies.gateway.envoyproxy.io")
    )


async def test_the_removal_waits_for_the_load_balancer_of_envoy_gateway(
    installation: Installation,
) -> None:
    installation.backend = "Envoy"
    await installation.until_done("envoy-gateway")
    owning = "gateway.envoyproxy.io/owning-gateway"
    await installation.control.api.create(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": BALANCER.name,
                "namespace": BALANCER.namespace,
                "labels": {
                    f"{owning}-name": SHARED.name,
                    f"{owning}-namespace": SHARED.namespace,
                },
            },
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]},
        }
    )
    result = await installation.step("gateway", remove=True)
    assert (result.done, BALANCER.name in result.message) == (False, True)
    await installation.control.api.delete(BALANCER)
    await installation.until_done("gateway", remove=True)


async def test_an_incomplete_step_names_the_objects_that_it_waits_for(
    installation: Installation,
) -> None:
    result = await installation.step("traefik", version=STUCK)
    assert not result.done
    assert "Deployment traefik-system/traefik: " in result.message
    # The next version of the spec is installed over it.
    await installation.until_done("traefik")
    assert await installation.revisions() == {"mp-traefik": 2}


async def test_the_removal_waits_for_the_service_behind_which_is_a_load_balancer(
    installation: Installation,
) -> None:
    await installation.until_done("traefik")
    held: dict[str, Any] = {
        "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}
    }
    await _merge(installation, held)
    result = await installation.step("traefik", remove=True)
    assert (result.done, "Service" in result.message) == (False, True)
    await _merge(installation, {"metadata": {"finalizers": None}})
    await installation.until_done("traefik", remove=True)


async def test_a_reset_gateway_removes_the_objects_of_its_former_uid(
    installation: Installation,
) -> None:
    await installation.until_done("crds")
    await installation.until_done("gateway-class")
    later = replace(installation, uid=uuid.uuid4().hex)
    await later.until_done("gateway-class", remove=True)
    assert await installation.get(CLASS)

    async def removed() -> bool:
        order = later.step("gateway-class", remove=True, of_predecessors=True)
        return (await order).done

    await eventually(removed)
    assert await installation.get(CLASS) is None


async def test_foreign_objects_are_named_and_left_unchanged(
    installation: Installation,
) -> None:
    await installation.until_done("crds")
    others = {
        "apiVersion": kinds.GATEWAY_CLASS.api_version,
        "kind": "GatewayClass",
        "metadata": {"name": "traefik"},
    }
    await installation.control.api.create(
        {**others, "spec": {"controllerName": "example.com/other"}}
    )
    try:
        with pytest.raises(
            NameConflict,
            match=(
                r"GatewayClass.*traefik exists already and belongs "
                r"to.*modelplane\.ai/stack=external"
            ),
        ):
            await installation.step("gateway-class")
        # Nothing is installed that would have to be removed again.
        with pytest.raises(NameConflict, match="GatewayClass"):
            await installation.step("crds")
        await installation.until_done("gateway-class", remove=True)
        await installation.step("gateway-class", remove=True, of_predecessors=True)
        found = await installation.get(CLASS)
        assert found
        assert found["spec"]["controllerName"] == "example.com/other"
    finally:
        await installation.control.api.delete(CLASS)


async def test_only_the_gateway_may_order_a_step_and_only_with_a_control_cluster(
    installation: Installation,
) -> None:
    order = RunInstallStep(uid=installation.uid, step="crds")
    with pytest.raises(PermissionDenied):
        await asked_by("inferencecluster/eu").run(
            installation.activities.run_install_step, order
        )
    none = StackActivities(
        installation.activities.clusters,
        installation.activities.helm,
        installation.activities.settings,
    )
    with pytest.raises(NoControlCluster, match="no control cluster is configured"):
        await asked_by(GATEWAY).run(none.run_install_step, order)


async def _merge(installation: Installation, change: dict[str, Any]) -> None:
    session = installation.control.api._session  # type: ignore[attr-defined]
    path = f"/api/v1/namespaces/{SERVICE.namespace}/services/{SERVICE.name}"
    answer = await session.request(
        "PATCH", path, body=change, content_type="application/merge-patch+json"
    )
    assert answer.status in (200, 404), answer.body
