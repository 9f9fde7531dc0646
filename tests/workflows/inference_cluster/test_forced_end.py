"""A cluster whose deletion is forced while a replica serves there: the testbed's API server, objects and pods, and a real worker."""

import pytest

from testbed.manifests import secret_name
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment, eventually, message
from tests.workflows.environment.one_cluster import CLUSTER, the_replica

pytestmark = pytest.mark.testbed

# From the force to the end of the replica.
SECONDS_MAX = 60

NAME = "lent"
REGION = {"example.com/region": "lent"}


async def a_second_record(plane: ControlPlane) -> None:
    """Apply another InferenceCluster for the API server of the cluster, so that the tests which follow keep theirs."""
    known = await plane.describe("InferenceCluster", CLUSTER)
    spec: Json = {"cluster": {"source": "Existing", "existing": {"secretRef": {"name": secret_name(CLUSTER)}}}}
    metadata = {"name": NAME, "labels": REGION, "annotations": known["metadata"]["annotations"]}
    document = {"apiVersion": known["apiVersion"], "kind": "InferenceCluster", "metadata": metadata}
    await plane.apply({**document, "spec": {**spec, "nodePools": known["spec"]["nodePools"]}})
    await plane.ready("InferenceCluster", NAME)


async def test_wkl_114_a_forced_deletion_of_a_cluster_ends_its_replicas_and_lists_what_stays(plane: ControlPlane, namespace: str) -> None:
    await a_second_record(plane)
    await plane.apply(a_deployment("lost", namespace, clusterSelector={"matchLabels": REGION}))
    await plane.ready("ModelDeployment", "lost", namespace)
    replica = await the_replica(plane, "lost", namespace)
    await plane.delete("InferenceCluster", NAME)
    await plane.until("InferenceCluster", NAME, lambda seen: f"waits until ModelReplica {namespace}/{replica}" in message(seen, "Deleting"))
    await plane.force("InferenceCluster", NAME)
    await plane.gone("InferenceCluster", NAME, within=SECONDS_MAX)
    await plane.gone("ModelReplica", replica, namespace, within=SECONDS_MAX)
    left = await plane.handle("ModelReplica", replica, namespace).query("describe")
    assert "the InferenceCluster was deleted" in {event["message"] for event in left["status"]["events"] if event["reason"] == "Abandoned"}
    assert "Deployment" in {item["kind"] for item in left["status"]["leftBehind"]}
    assert len(plane.pods(CLUSTER, namespace)) == 1
    await plane.delete("ModelDeployment", "lost", namespace)
    await plane.gone("ModelDeployment", "lost", namespace, within=SECONDS_MAX)
    # What stays is the administrator's.
    plane.call(CLUSTER, "DELETE", f"/api/v1/namespaces/{namespace}")

    async def remaining() -> list[Json]:
        return plane.pods(CLUSTER, namespace)

    await eventually(remaining, lambda found: not found, what="the end of the pods")
