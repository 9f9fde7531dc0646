"""The checks before anything is installed."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from activities.cluster_objects.cluster_api import ClusterApi
from activities.render.stack import components, objects
from api_types.errors import InvalidInput, NameConflict, PermissionDenied, Unsupported
from tests.activities.environment import operator
from tests.activities.environment.cluster_under_test import cluster_from
from tests.activities.stack.stack_under_test import GATEWAY_API, MARK, StackUnderTest
from tests.environment.stack_charts import POOL_ROLE, leader_worker_set

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

ROLES = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
SELECTORS = [{"cel": {"expression": 'device.driver == "gpu.nvidia.com"'}}]


def is_untouched(stack: StackUnderTest) -> bool:
    """Return True if no part of a stack is on the cluster."""
    return stack.world.releases() == {} and stack.world.get(MARK) is None


async def test_plans_are_equal_if_and_only_if_their_settings_are(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    assert await stack.plan() == plan
    assert list(plan.releases) == [component.key for component in components.COMPONENTS]
    stack.world.charts.add(leader_worker_set("v0.8.20"))
    pinned = await stack.with_settings(versions={"leaderWorkerSet": "v0.8.20"}).plan()
    assert (
        pinned.digest != plan.digest,
        pinned.releases["leader-worker-set"].version,
    ) == (True, "v0.8.20")
    assert (await stack.plan("GKE")).digest != plan.digest
    assert is_untouched(stack)


async def test_objects_of_charts_that_belong_to_others_are_named(
    stack: StackUnderTest,
) -> None:
    stack.world.create(
        ROLES,
        {
            "metadata": {
                "name": POOL_ROLE,
                "labels": {"app.kubernetes.io/managed-by": "Helm"},
            }
        },
    )
    notes = {
        "meta.helm.sh/release-name": "mp-dra-driver-nvidia-gpu",
        "meta.helm.sh/release-namespace": "gpus",
    }
    stack.world.create(
        DEVICE_CLASSES,
        {
            "metadata": {"name": "gpu.nvidia.com", "annotations": notes},
            "spec": {"selectors": SELECTORS},
        },
    )
    with pytest.raises(NameConflict) as refused:
        await stack.plan()
    assert refused.value.details == ("ReleaseConflict",)
    assert f"ClusterRole {POOL_ROLE} belongs to no release" in refused.value.message
    assert (
        "DeviceClass gpu.nvidia.com belongs to release gpus/mp-dra-driver-nvidia-gpu"
        in refused.value.message
    )
    assert "modelplane.ai/stack: external" in refused.value.message
    assert is_untouched(stack)
    # Helm reports the same conflict later, because an object may be created after the
    # preflight.
    plan = await stack.plan(
        installed=["mp-ai-gateway-helm", "mp-dra-driver-nvidia-gpu"]
    )
    with pytest.raises(
        NameConflict, match="release dra-driver-nvidia-gpu/mp-dra-driver-nvidia-gpu"
    ):
        await stack.ensure(plan, components.DRA_DRIVER.key)
    left = stack.world.get(f"{DEVICE_CLASSES}/gpu.nvidia.com")
    assert left
    assert left["metadata"]["annotations"] == notes


async def test_a_class_of_another_controller_is_named(
    stack: StackUnderTest,
) -> None:
    await stack.crds(await stack.plan(), components.ENVOY_GATEWAY.key)
    theirs = {
        "kind": "GatewayClass",
        "metadata": {"name": "envoy"},
        "spec": {"controllerName": "example.com/theirs"},
    }
    stack.world.create(f"{GATEWAY_API}/gatewayclasses", theirs)
    with pytest.raises(
        NameConflict,
        match=r"GatewayClass envoy belongs to others \(controller example\.com/theirs\)",
    ) as refused:
        await stack.plan()
    assert refused.value.details == ("ReleaseConflict",)
    assert (await stack.with_settings(gateway_class="inference").plan()).spec[
        "gateway"
    ]["className"] == "inference"


async def test_a_foreign_gateway_with_our_name_is_reported(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, components.ENVOY_GATEWAY.key)
    await stack.apply(plan, objects.NAMESPACES)
    theirs = {
        "kind": "Gateway",
        "metadata": {"name": "inference-gateway"},
        "spec": {
            "gatewayClassName": "theirs",
            "listeners": [{"name": "x", "port": 81, "protocol": "HTTP"}],
        },
    }
    stack.world.create(f"{GATEWAY_API}/namespaces/modelplane-system/gateways", theirs)
    with pytest.raises(
        NameConflict,
        match="Gateway modelplane-system/inference-gateway belongs to others",
    ):
        await stack.plan()


async def test_versions_that_were_not_tested_together_are_refused(
    stack: StackUnderTest,
) -> None:
    with pytest.raises(
        InvalidInput,
        match=r"ChartInvalid: Envoy Gateway v1\.7\.0 cannot route to an InferencePool",
    ):
        await stack.with_settings(versions={"envoyGateway": "v1.7.0"}).plan()


async def test_the_stack_of_another_cluster_object_is_not_changed(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP)
    another = stack.of_another()
    says = (
        f"belongs to InferenceCluster bare (uid {stack.uid}), which is an earlier "
        "InferenceCluster of this name or belongs to another control plane"
    )
    for refused in (
        another.plan(),
        another.apply(plan, objects.NAMESPACES),
        another.apply(plan, objects.QUOTA_GROUP),
        another.crds(plan, components.LEADER_WORKER_SET.key),
        another.restart(),
    ):
        with pytest.raises(NameConflict) as conflict:
            await refused
        assert says in conflict.value.message
        assert conflict.value.details == ("ReleaseConflict",)
    assert "leaderworkersets.leaderworkerset.x-k8s.io" not in stack.world.names(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    )
    stack.world.patch(
        MARK, {"metadata": {"annotations": {"modelplane.ai/owner-name": "us-1"}}}
    )
    with pytest.raises(
        NameConflict,
        match=r"belongs to InferenceCluster us-1 \(uid .*\): delete that InferenceCluster first",
    ):
        await stack.plan()


async def test_an_administrator_can_transfer_a_stack(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    assert not plan.found
    await stack.apply(plan, objects.NAMESPACES, objects.QUOTA_GROUP)
    another = stack.of_another()
    with pytest.raises(
        NameConflict,
        match=r"kubectl annotate --overwrite namespace modelplane-system "
        r"modelplane\.ai/owner-uid=another",
    ):
        await another.plan()
    stack.world.patch(
        MARK, {"metadata": {"annotations": {"modelplane.ai/owner-uid": "another"}}}
    )
    given = await another.plan()
    assert given.found
    await another.apply(given, objects.QUOTA_GROUP)
    quota = stack.world.get(
        "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas/allow-critical-pods"
    )
    assert quota
    assert quota["metadata"]["annotations"]["modelplane.ai/owner-uid"] == "another"
    with pytest.raises(NameConflict):
        await stack.apply(plan, objects.QUOTA_GROUP)


async def test_the_control_cluster_itself_is_refused(stack: StackUnderTest) -> None:
    async def control() -> ClusterApi:
        return await stack.api()

    with pytest.raises(Unsupported, match="SameAsControlCluster") as refused:
        await replace(
            stack, activities=replace(stack.activities, control=control)
        ).plan()
    assert refused.value.details == ("SameAsControlCluster",)


@pytest_asyncio.fixture
async def unprivileged(
    stack: StackUnderTest, tmp_path: Path
) -> AsyncIterator[StackUnderTest]:
    """Return the same cluster for a ServiceAccount of the test's namespace without
    rights.
    """
    stack.world.create("/api/v1/namespaces", {"metadata": {"name": "users"}})
    token = await operator.token_of(stack.cluster, "users", "deployer")
    cluster = await cluster_from(
        stack.cluster.name,
        operator.with_token(stack.world.cluster.kubeconfig.read_text(), token),
        tmp_path,
    )
    yield stack.reached_by(cluster)
    await cluster.pool.close()
    stack.world.delete(
        "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/users-deployer"
    )


async def test_a_user_who_is_not_an_administrator_is_rejected(
    stack: StackUnderTest, unprivileged: StackUnderTest
) -> None:
    with pytest.raises(
        PermissionDenied,
        match="bind the user to cluster-admin, or annotate the cluster",
    ):
        await unprivileged.plan()
    await operator.make_admin(stack.cluster, "users", "deployer")
    await unprivileged.plan()


async def test_an_unknown_release_is_not_adopted(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.ensure(plan, components.LEADER_WORKER_SET.key)
    with pytest.raises(
        NameConflict,
        match="release lws-system/mp-lws was not installed for this InferenceCluster",
    ) as refused:
        await stack.plan()
    assert refused.value.details == ("ReleaseConflict",)
    assert (await stack.plan(installed=["mp-lws"])).digest == plan.digest
    # A worker was killed before it could report its installations. The mark names the
    # owner.
    await stack.apply(plan, objects.NAMESPACES)
    assert (await stack.plan()).digest == plan.digest


async def test_a_release_with_our_name_in_another_namespace_is_a_conflict(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    elsewhere = plan.releases["cert-manager"].model_copy(
        update={"namespace": "elsewhere"}
    )
    await stack.ensure_release(elsewhere)
    with pytest.raises(NameConflict) as refused:
        await stack.plan()
    assert (
        "release elsewhere/mp-cert-manager has the name of a release of the stack"
        in refused.value.message
    )
    assert (
        "CustomResourceDefinition certificates.cert-manager.io belongs to release "
        "elsewhere/mp-cert-manager" in refused.value.message
    )
