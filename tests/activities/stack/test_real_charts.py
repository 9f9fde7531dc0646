"""The real charts of four components, installed by the real helm with our values.

The charts come from the Go modules of their projects. The other components have no Go
module: stand-ins replace the charts of the AI gateway, Prometheus and the DRA driver.
"""

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from activities.clients.helm.port import Chart, Release
from activities.render.stack import components, objects
from activities.render.stack.pods import POD_VALUES
from activities.render.stack.removal import STEPS, Removal
from activities.stack.releases import as_release
from api_types.messages.stack import HelmRelease
from api_types.pins import charts as pins
from tests.activities.stack.stack_under_test import StackUnderTest
from tests.environment.charts import ChartRepository
from tests.environment.real_charts import real_charts
from tests.environment.stack_charts import stack_charts

pytestmark = [
    pytest.mark.testbed("shared"),
    pytest.mark.long,
    pytest.mark.timeout(900),
]

Json = dict[str, Any]

REAL = (
    components.CERT_MANAGER,
    components.ENVOY_GATEWAY,
    components.LEADER_WORKER_SET,
    components.NODE_FEATURE_DISCOVERY,
)
CLUSTER_SCOPED = (
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
)
TOLERATION = {"key": "dedicated", "operator": "Exists"}
AFFINITY = {
    "nodeAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [
            {
                "weight": 1,
                "preference": {
                    "matchExpressions": [{"key": "role", "operator": "Exists"}]
                },
            }
        ]
    }
}


@pytest.fixture(scope="module")
def repository() -> Iterator[ChartRepository]:
    """The real charts, and stand-ins for those that cannot be had."""
    packed = {each.name: each for each in (*stack_charts(), *real_charts())}
    with ChartRepository(*packed.values()) as serving:
        yield serving


@pytest.fixture
async def real(
    stack: StackUnderTest, repository: ChartRepository
) -> AsyncIterator[StackUnderTest]:
    """The bare cluster with the real charts. At the end nothing of them is left."""
    found = stack.with_settings(chart_mirror=repository.url)
    yield found
    plan = await found.plan()
    for step in STEPS:
        if step.action in (Removal.OBJECTS, Removal.RELEASE):
            assert await found.take(plan, step) == [], step
    left = [
        item["metadata"]["name"]
        for path in CLUSTER_SCOPED
        for item in found.world.items(path)
        if item["metadata"].get("labels", {}).get("app.kubernetes.io/instance")
        in {pin.release for pin in pins.STACK}
    ]
    assert left == []


async def rendered(stack: StackUnderTest, release: HelmRelease) -> list[Json]:
    """Return all objects of a release, with its definitions first."""
    async with stack.activities.helm.at(stack.cluster.connection) as helm:
        wanted: Release = as_release(release)
        chart: Chart = wanted.chart
        return [*await helm.crds(chart), *await helm.render(wanted)]


async def test_a_stack_of_real_charts_is_installed_and_ready(
    real: StackUnderTest,
) -> None:
    plan = await real.plan()
    seen = await real.install(plan)
    assert (seen.lags, seen.address) == ([], "10.245.9.9")
    assert set(real.world.releases().values()) == {"deployed"}
    installed = [
        item
        for component in REAL
        for item in await rendered(real, plan.releases[component.key])
    ]
    # Every object is valid for a server that knows every field.
    problems = [await problem(real, item) for item in installed]
    assert [text for text in problems if text] == []
    assert len(installed) > len(REAL)
    # A second preflight of the same stack finds nothing that belongs to others.
    again = await real.plan(installed=[each.name for each in plan.releases.values()])
    assert again.kept == {}
    # The objects of Modelplane fit the real definitions of Envoy Gateway.
    proxy = real.world.get(
        "/apis/gateway.envoyproxy.io/v1alpha1/namespaces/modelplane-system/"
        "envoyproxies/inference-gateway"
    )
    assert proxy
    assert proxy["spec"]["shutdown"] == {"drainTimeout": "3600s"}
    definitions = real.world.names(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    )
    assert set(objects.INFERENCE_CRDS) <= set(definitions)


async def problem(stack: StackUnderTest, item: Json) -> str:
    """Return why the API server rejects an object, or an empty string."""
    served = await (await stack.api()).resources()
    kind = next(
        found
        for found in served.values()
        if (found.kind.api_version, found.kind.kind)
        == (item["apiVersion"], item["kind"])
    )
    version = item["apiVersion"]
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    metadata = item["metadata"]
    place = ""
    if kind.namespaced:
        place = f"/namespaces/{metadata.get('namespace') or 'default'}"
    answer = stack.world.http.patch(
        f"{root}{place}/{kind.plural}/{metadata['name']}",
        content=json.dumps(item),
        params={
            "fieldManager": "test",
            "force": "true",
            "dryRun": "All",
            "fieldValidation": "Strict",
        },
        headers={"content-type": "application/apply-patch+yaml"},
    )
    if answer.status_code in (httpx.codes.OK, httpx.codes.CREATED):
        return ""
    return f"{item['kind']} {metadata['name']}: {answer.text[:400]}"


async def test_every_pod_of_a_real_chart_is_placed_by_the_settings(
    real: StackUnderTest,
) -> None:
    placed = real.with_settings(
        tolerations=[TOLERATION],
        affinity=AFFINITY,
        priority_class_name="infrastructure",
    )
    plan = await placed.plan()
    for component in REAL:
        where = POD_VALUES[component.key]
        for item in await rendered(placed, plan.releases[component.key]):
            template = (item.get("spec") or {}).get("template")
            if item["kind"] not in ("Deployment", "DaemonSet", "Job") or not template:
                continue
            spec, name = template["spec"], f"{item['kind']} {item['metadata']['name']}"
            assert TOLERATION in spec["tolerations"], name
            if item["kind"] != "DaemonSet":
                assert spec["affinity"] == AFFINITY, name
            # Jobs that certify or clean up are short, and charts give them none.
            if where.priority and item["kind"] != "Job":
                assert spec["priorityClassName"] == "infrastructure", name


async def test_a_users_values_reach_a_real_chart(real: StackUnderTest) -> None:
    changed = real.with_settings(
        values={
            "leaderWorkerSet": {"resources": {"requests": {"cpu": "50m"}}},
            "envoyGateway": {"deployment": {"replicas": 2}},
        }
    )
    plan = await changed.plan()

    async def deployment(component: components.Component) -> Json:
        found = await rendered(changed, plan.releases[component.key])
        return next(item for item in found if item["kind"] == "Deployment")

    manager = await deployment(components.LEADER_WORKER_SET)
    (container,) = manager["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["requests"] == {"cpu": "50m", "memory": "1Gi"}
    assert (
        container["image"]
        == f"registry.k8s.io/lws/lws:{pins.LEADER_WORKER_SET.version}"
    )
    gateway = await deployment(components.ENVOY_GATEWAY)
    assert gateway["spec"]["replicas"] == 2
