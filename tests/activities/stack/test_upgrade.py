"""The upgrade of a stack."""

from typing import Any

import pytest

from activities.render.stack import components
from tests.activities.stack.stack_under_test import DEFINITIONS, StackUnderTest
from tests.environment.stack_charts import leader_worker_set

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

LWS, DRA, ENVOY = (
    components.LEADER_WORKER_SET.key,
    components.DRA_DRIVER.key,
    components.ENVOY_GATEWAY.key,
)
SETS = f"{DEFINITIONS}/leaderworkersets.leaderworkerset.x-k8s.io"


def fields(stack: StackUnderTest) -> set[str]:
    """Return the fields that a LeaderWorkerSet may have on the cluster."""
    found = stack.world.get(SETS)
    assert found
    schema: dict[str, Any] = found["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return set(schema["properties"]["spec"]["properties"])


async def test_a_new_definition_is_applied_before_the_release_that_needs_it(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    before = await stack.ensure(plan, LWS)
    assert set(before.wire()) <= {
        "name",
        "revision",
        "status",
        "version",
        "valuesDigest",
        "workloads",
    }
    assert before.workloads == ["Deployment/lws-system/lws-controller-manager"]
    # Helm alone would not upgrade the definition.
    stack.world.charts.add(leader_worker_set("v0.8.11", field="newField"))
    alone = stack.with_settings(versions={"leaderWorkerSet": "v0.8.11"})
    await alone.ensure(await alone.plan(installed=[before.name]), LWS)
    before = await stack.ensure(plan, LWS)
    assert "newField" not in fields(stack)

    stack.world.charts.add(
        leader_worker_set("v0.8.10", field="newField", image="lws-new")
    )
    newer = stack.with_settings(versions={"leaderWorkerSet": "v0.8.10"})
    changed = await newer.plan(installed=[before.name])
    assert changed.digest != plan.digest
    await newer.crds(changed, LWS)
    assert "newField" in fields(stack)
    assert stack.world.releases() == {"mp-lws": "deployed"}
    assert (await stack.ensure(plan, LWS)).revision == before.revision, (
        "the release is still the one of before"
    )

    after = await newer.ensure(changed, LWS)
    assert (after.revision, after.version, after.status) == (
        before.revision + 1,
        "v0.8.10",
        "deployed",
    )
    assert (await newer.until_ready(changed)).lags == []
