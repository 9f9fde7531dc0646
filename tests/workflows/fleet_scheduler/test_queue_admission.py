"""A cluster's admission evicts: from the pod through observer, cluster and scheduler to what a user reads (spec/scheduling.md 18.5)."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from api_types import clock
from api_types.labels import CAPACITY_ADAPTER
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, condition, message

pytestmark = pytest.mark.testbed

CLUSTER = "prod-eu"


async def annotate(plane: ControlPlane, **annotations: str) -> Json:
    """Apply the cluster again with other annotations; gives it as it was."""
    seen = await plane.describe("InferenceCluster", CLUSTER)
    metadata = {"name": CLUSTER, "labels": seen["metadata"].get("labels", {}), "annotations": annotations}
    request = await plane.apply({**{key: seen[key] for key in ("apiVersion", "kind", "spec")}, "metadata": metadata})
    await plane.until("InferenceCluster", CLUSTER, lambda seen: request in seen["appliedRequestIds"])
    return seen


@pytest.fixture
async def observed(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The fleet, with the plain adapter on one cluster for a while."""
    before = (await plane.describe("InferenceCluster", CLUSTER))["metadata"].get("annotations", {})
    await annotate(plane, **{**before, CAPACITY_ADAPTER: "kube"})
    yield plane
    await annotate(plane, **before)


def mark(plane: ControlPlane, pod: Json, status: str) -> None:
    """Write on a pod what a scheduler writes before it takes it off its node, or that this is over."""
    taken: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": status,
        "reason": "PreemptionByScheduler",
        "message": "for somebody else",
    }
    taken["lastTransitionTime"] = clock.timestamp(clock.utc_now())
    others = [each for each in pod["status"]["conditions"] if each["type"] != taken["type"]]
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    plane.call(CLUSTER, "PATCH", path, {"status": {"conditions": [*others, taken]}}, "application/merge-patch+json")


async def test_18_5_an_evicted_replica_is_told_to_users_at_once_and_no_longer_when_it_is_back(
    observed: ControlPlane, namespace: str
) -> None:
    plane = observed
    document = a_deployment("preempted", namespace, clusterSelector={"matchLabels": {"modelplane.ai/region": "eu-west"}})
    await plane.apply(document)
    await plane.ready("ModelDeployment", "preempted", namespace)
    (pod,) = plane.pods(CLUSTER, namespace)
    mark(plane, pod, "True")
    seen = await plane.until("ModelDeployment", "preempted", lambda seen: condition(seen, "Evicted") == "True", namespace)
    (placement,) = seen["status"]["placements"]
    assert message(seen, "Evicted") == (
        f"{placement['replica']}: pods of it were evicted from {CLUSTER}/h100: PreemptionByScheduler: for somebody else"
    )
    assert placement["cluster"] == CLUSTER  # nothing is moved for that yet
    mark(plane, pod, "False")
    await plane.until("ModelDeployment", "preempted", lambda seen: condition(seen, "Evicted") != "True", namespace)
    await plane.delete("ModelDeployment", "preempted", namespace)
    await plane.gone("ModelDeployment", "preempted", namespace)
