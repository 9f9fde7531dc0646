"""A stack becomes another one: spec/stack-and-routing.md 2.10."""

from typing import Any

import pytest

from activities.render.stack import components
from tests.activities.stack.stack_under_test import DEFINITIONS, SERVICES, StackUnderTest
from tests.environment.stack_charts import envoy_gateway, leader_worker_set

pytestmark = pytest.mark.testbed("shared")

LWS, DRA, ENVOY = components.LEADER_WORKER_SET.key, components.DRA_DRIVER.key, components.ENVOY_GATEWAY.key
SETS = f"{DEFINITIONS}/leaderworkersets.leaderworkerset.x-k8s.io"


def fields(stack: StackUnderTest) -> set[str]:
    """The fields that a LeaderWorkerSet may have on the cluster."""
    found = stack.world.get(SETS)
    assert found
    schema: dict[str, Any] = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


async def test_stk_34_a_new_definition_is_there_before_the_release_that_needs_it(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    before = await stack.ensure(plan, LWS)
    assert "newField" not in fields(stack)

    stack.world.charts.add(leader_worker_set("v0.8.10", field="newField", image="lws-new"))
    newer = stack.with_settings(versions={"leaderWorkerSet": "v0.8.10"})
    changed = await newer.plan(installed=[before.name])
    assert changed.digest != plan.digest
    await newer.crds(changed, LWS)
    assert "newField" in fields(stack)
    assert stack.world.releases() == {"mp-lws": "deployed"}
    assert (await stack.ensure(plan, LWS)).revision == before.revision, "the release is still the one of before"

    after = await newer.ensure(changed, LWS)
    assert (after.revision, after.version, after.status) == (before.revision + 1, "v0.8.10", "deployed")
    assert (await newer.until_ready(changed)).lags == []


@pytest.mark.long
async def test_stk_34_helm_alone_would_leave_the_definition_as_it_was(stack: StackUnderTest) -> None:
    await stack.ensure(await stack.plan(), LWS)
    stack.world.charts.add(leader_worker_set("v0.8.11", field="newField"))
    newer = stack.with_settings(versions={"leaderWorkerSet": "v0.8.11"})
    await newer.ensure(await newer.plan(installed=["mp-lws"]), LWS)
    assert "newField" not in fields(stack)


async def test_stk_7_8_a_changed_value_is_one_revision_more_and_the_same_again_is_none(stack: StackUnderTest) -> None:
    existing = await stack.plan()
    first = await stack.ensure(existing, DRA)
    assert await stack.ensure(existing, DRA) == first
    gke = await stack.plan("GKE", installed=[first.name])
    second = await stack.ensure(gke, DRA)
    assert (second.revision, second.version, second.values_digest != first.values_digest) == (2, first.version, True)
    assert await stack.ensure(gke, DRA) == second


async def test_stk_15_what_is_told_of_a_release_is_neither_its_manifest_nor_its_values(stack: StackUnderTest) -> None:
    ensured = await stack.ensure(await stack.plan("GKE"), DRA)
    assert set(ensured.wire()) <= {"name", "revision", "status", "version", "valuesDigest", "workloads"}
    assert ensured.workloads == ["DaemonSet/dra-driver-nvidia-gpu/dra-kubelet-plugin"]
    assert "bin/nvidia" not in ensured.model_dump_json()


@pytest.mark.long
async def test_the_address_stays_over_an_upgrade_and_its_service_is_the_same(stack: StackUnderTest) -> None:
    plan = await stack.plan()
    seen = await stack.install(plan)
    (service,) = stack.world.items(SERVICES)
    revisions = {key: ensured.revision for key, ensured in stack.ensured.items()}

    stack.world.charts.add(envoy_gateway("v1.8.30", image="newer"))
    newer = stack.with_settings(versions={"envoyGateway": "v1.8.30"})
    changed = await newer.plan()
    after = await newer.upgrade(changed)
    assert (after.address, after.lags, after.wanted) == (seen.address, [], changed.digest)
    assert [each["metadata"]["uid"] for each in stack.world.items(SERVICES)] == [service["metadata"]["uid"]]
    # One release is another one; nothing was written for the others.
    assert {key: ensured.revision for key, ensured in newer.ensured.items()} == {**revisions, ENVOY: revisions[ENVOY] + 1}
