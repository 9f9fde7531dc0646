"""A control plane that someone deleted at the cloud while replicas ran on it."""

import pytest
from temporalio import activity

from api_types import labels
from api_types.errors import ClusterUnreachable
from api_types.messages.clouds import (
    CLUSTER_KEY,
    CloudDelete,
    CloudObjectResult,
    CloudObjectShown,
)
from api_types.messages.cluster_work import RunTeardownStep, TeardownStepResult
from tests.activities.clouds.builders import UID
from tests.simulation.lives.virtual_plane import on_a_virtual_loop
from tests.workflows.cloud_cluster.at_cloud import (
    NAME,
    AtCloud,
    a_class,
    a_cluster,
    control_plane,
    held_by,
)
from tests.workflows.cloud_cluster.decided import Decided, ready
from tests.workflows.environment.harness import ControlPlane, a_deployment, message
from workflows.cloud_cluster import shown
from workflows.cloud_cluster.teardown import Teardown

NAMESPACE = "ml-team"
REPLICA_OF = "waits until ModelReplica"


def said_gone(cluster: Decided) -> bool | None:
    """Return the `gone` flag of the last report to the InferenceCluster."""
    return shown.report_of(cluster.state, UID, cluster.calls.keys).cluster_gone


def looked(cluster: Decided, key: str, phase: str, text: str = "") -> None:
    kind = cluster.entry(key).object.kind
    cluster.entries.observed(
        CloudObjectShown.model_validate(
            {"key": key, "kind": kind, "name": key, "phase": phase, "message": text}
        ),
        None,
    )
    cluster.go()


def test_only_the_cloud_can_report_a_control_plane_as_gone() -> None:
    cluster = ready()
    looked(cluster, "conn", "Unknown", "ClusterUnreachable: no answer")
    looked(cluster, "conn", "Absent")
    looked(
        cluster,
        CLUSTER_KEY,
        "Unknown",
        "PermissionDenied: lacks container.clusters.get",
    )
    looked(cluster, CLUSTER_KEY, "Broken", "status ERROR")
    assert said_gone(cluster) is None
    looked(cluster, CLUSTER_KEY, "Absent")
    assert said_gone(cluster)
    cluster.entries.retry_all()
    assert said_gone(cluster) is None, "it is created again"


@pytest.mark.parametrize(
    ("text", "gone"),
    [
        ("", True),
        ("it belongs to another owner (label taken away) and was not changed", None),
    ],
)
async def test_a_deleted_control_plane_is_gone_unless_another_owner_recreated_it(
    text: str, gone: bool | None
) -> None:
    cluster = ready()
    cluster.state.deletion = CloudDelete(uid=UID, sequence=9)
    teardown = Teardown(
        cluster.context, cluster.calls, cluster.entries, cluster.converge
    )
    assert not await teardown.update()
    assert (cluster.calls.keys, said_gone(cluster)) == ([CLUSTER_KEY], None)
    cluster.calls.done(
        CLUSTER_KEY, CloudObjectResult(key=CLUSTER_KEY, phase="Absent", message=text)
    )
    assert said_gone(cluster) == gone


class LostApiServer(AtCloud):
    """Simulated clusters that do not answer while `lost`."""

    lost = False

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        if self.lost:
            raise ClusterUnreachable(f"cluster {order.connection.cluster}: no answer")
        return await super().teardown_replica_step(order)


async def a_replica(plane: ControlPlane) -> str:
    """Apply a cluster and a deployment with one replica; return the replica's name."""
    await plane.apply(a_class())
    await plane.apply(a_cluster(**{labels.ROUTING: "service"}))
    await plane.ready("InferenceCluster", NAME)
    await plane.apply(a_deployment("qwen", NAMESPACE))
    seen = await plane.ready("ModelDeployment", "qwen", NAMESPACE)
    (placed,) = seen["status"]["placements"]
    return str(placed["replica"])


@on_a_virtual_loop
@pytest.mark.parametrize(
    "deleting", [True, False], ids=["that wait for its API server", "that are wanted"]
)
async def test_replicas_of_an_externally_deleted_control_plane_end_before_its_cluster(
    deleting: bool,
) -> None:
    clusters = LostApiServer(drift_interval=1)
    async with control_plane(clusters) as (plane, at_cloud):
        replica = await a_replica(plane)
        clusters.lost = True
        await plane.delete("InferenceCluster", NAME)
        if deleting:
            await plane.delete("ModelDeployment", "qwen", NAMESPACE)
            await plane.until(
                "ModelReplica",
                replica,
                lambda seen: "no answer" in message(seen, "Deleting"),
                NAMESPACE,
            )
        looks = at_cloud.cloud.looks[CLUSTER_KEY]
        # An unreachable API server does not mean that the cluster is gone, however
        # often the cloud is queried.
        await at_cloud.until_cloud(
            lambda cloud: cloud.looks[CLUSTER_KEY] > looks + 2, "looks"
        )
        seen = await plane.until("InferenceCluster", NAME, held_by("Occupied"))
        assert REPLICA_OF in message(seen, "Deleting")
        del at_cloud.cloud.things[CLUSTER_KEY]
        at_cloud.cloud.hold.add("net/subnet")
        await plane.gone("ModelReplica", replica, NAMESPACE)
        del at_cloud.cloud.things["pool/gpu"]
        left = await plane.handle("ModelReplica", replica, NAMESPACE).query("describe")
        assert left["status"].get("leftBehind", []) == []
        assert "ClusterGone" in {event["reason"] for event in left["status"]["events"]}
        seen = await plane.describe("InferenceCluster", NAME)
        assert "ControlPlaneGone" in {
            event["reason"] for event in seen["status"]["events"]
        }, "the rest at the cloud is still deleted"
        at_cloud.cloud.hold.clear()
        await plane.gone("InferenceCluster", NAME)
        closed = await plane.handle("InferenceCluster", NAME).query("describe")
        assert closed["status"].get("leftBehind", []) == []
        assert (at_cloud.cloud.things, clusters.emptied) == ({}, [])
        assert at_cloud.cloud.written("create").count(CLUSTER_KEY) == 1
