"""A cluster's admission evicts a replica: from its pod through observer, cluster and scheduler to the status (spec/scheduling.md 18.5)."""

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
    """Set the condition that a scheduler sets before it evicts a pod, or clear it."""
    target: dict[str, Any] = {
        "type": "DisruptionTarget",
        "status": status,
        "reason": "PreemptionByScheduler",
        "message": "for a pod of higher priority",
    }
    target["lastTransitionTime"] = clock.timestamp(clock.utc_now())
    others = [each for each in pod["status"]["conditions"] if each["type"] != target["type"]]
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    plane.call(CLUSTER, "PATCH", path, {"status": {"conditions": [*others, target]}}, "application/merge-patch+json")


async def test_18_5_an_eviction_is_shown_at_once_and_no_longer_when_the_replica_is_back(observed: ControlPlane, namespace: str) -> None:
    plane = observed
    document = a_deployment("preempted", namespace, clusterSelector={"matchLabels": {"modelplane.ai/region": "eu-west"}})
    await plane.apply(document)
    await plane.ready("ModelDeployment", "preempted", namespace)
    (pod,) = plane.pods(CLUSTER, namespace)
    mark(plane, pod, "True")
    # The cluster's capacity is reported again after 300 s even if no change is noticed.
    seen = await plane.until("ModelDeployment", "preempted", lambda seen: condition(seen, "Evicted") == "True", namespace, 150)
    (placement,) = seen["status"]["placements"]
    assert message(seen, "Evicted") == (
        f"{placement['replica']}: pods of it were evicted from {CLUSTER}/h100: PreemptionByScheduler: for a pod of higher priority"
    )
    assert placement["cluster"] == CLUSTER  # nothing is moved for that yet
    mark(plane, pod, "False")
    await plane.until("ModelDeployment", "preempted", lambda seen: condition(seen, "Evicted") != "True", namespace, 150)
    await plane.delete("ModelDeployment", "preempted", namespace)
    await plane.gone("ModelDeployment", "preempted", namespace)
