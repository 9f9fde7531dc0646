"""A deleted cluster is emptied of load balancers and volumes.

A kept one is not touched.
"""

from typing import Any

import pytest

from activities.cluster_objects.cluster_api import ObjectList
from activities.clusters.activities import ClusterActivities
from activities.clusters.emptying import NOT_OURS
from activities.observe import balancers
from api_types import labels
from api_types.errors import InvalidInput
from api_types.messages.clouds import CloudAccount
from api_types.messages.cluster_work import Connection, EmptyCluster, RemainingObject
from tests.activities.environment.asking import asked_by

ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid="u",
    secret="gke-default",  # noqa: S106
    region="europe-west4",
)
AT_CLOUD = Connection(
    cluster="prod", namespace="modelplane-system", name="gke-default", cloud=ACCOUNT
)


GATEWAY = {
    f"{balancers.OWNING}-name": labels.GATEWAY_NAME,
    f"{balancers.OWNING}-namespace": labels.SYSTEM_NAMESPACE,
}


def an_object(kind: str, name: str, *, phase: str = "", **spec: Any) -> dict[str, Any]:
    namespaced = {} if kind == "PersistentVolume" else {"namespace": "ml"}
    found = {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {"name": name, "uid": name, **namespaced},
        "spec": spec,
    }
    return {**found, "status": {"phase": phase}} if phase else found


def ours(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object with the marks of our ModelCache."""
    marks = {
        labels.OWNER_KIND: "ModelCache",
        labels.OWNER_NAMESPACE: "ml",
        labels.OWNER_NAME: "qwen",
        labels.OWNER_UID: "u1",
    }
    return {
        **item,
        "metadata": {
            **item["metadata"],
            "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE},
            "annotations": marks,
        },
    }


def of_gateway(
    item: dict[str, Any], namespace: str = balancers.NAMESPACE
) -> dict[str, Any]:
    """Return a Service that Envoy Gateway created for our Gateway."""
    return {
        **item,
        "metadata": {**item["metadata"], "namespace": namespace, "labels": GATEWAY},
    }


def a_volume(
    name: str, phase: str, *, claim: str = "", policy: str = "Delete"
) -> dict[str, Any]:
    reference = {"claimRef": {"name": claim, "uid": claim}} if claim else {}
    return an_object(
        "PersistentVolume",
        name,
        phase=phase,
        persistentVolumeReclaimPolicy=policy,
        **reference,
    )


class Cluster:
    """A cluster with these objects. Deleted objects disappear."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = list(objects)
        self.deleted: list[str] = []

    async def at(self, connection: Connection) -> Any:
        del connection
        return self

    async def list(self, selection: Any) -> ObjectList:
        return ObjectList(
            [each for each in self.objects if each["kind"] == selection.kind.kind], "1"
        )

    async def delete(self, target: Any, **_: Any) -> bool:
        self.deleted.append(target.name)
        # A volume is deleted with its claim.
        self.objects = [
            each
            for each in self.objects
            if each["metadata"]["name"] not in (target.name, f"volume-of-{target.name}")
        ]
        return True


async def left_of(
    cluster: Cluster, connection: Connection = AT_CLOUD
) -> list[RemainingObject]:
    activities: Any = ClusterActivities(cluster)
    result = await asked_by("inferencecluster/prod").run(
        activities.empty_cluster, EmptyCluster(connection=connection)
    )
    return list(result.remaining)


async def emptied(cluster: Cluster, connection: Connection = AT_CLOUD) -> list[str]:
    return [item.name for item in await left_of(cluster, connection)]


async def test_our_load_balancers_and_volumes_are_deleted_and_volumes_that_stay_are_named() -> (
    None
):
    cluster = Cluster(
        of_gateway(an_object("Service", "gateway", type="LoadBalancer")),
        an_object("Service", "inner", type="ClusterIP"),
        ours(an_object("PersistentVolumeClaim", "weights")),
        a_volume("volume-of-weights", "Bound", claim="weights"),
        a_volume("left", "Released", claim="of-before"),
        a_volume("kept", "Released", policy="Retain"),
    )
    await emptied(cluster)
    assert await emptied(cluster) == ["left"]
    assert cluster.deleted == ["gateway", "weights"]


async def test_load_balancers_and_claims_of_users_are_named_and_never_deleted() -> None:
    """The deletion of a claim would delete its data."""
    cluster = Cluster(
        an_object("Service", "website", type="LoadBalancer"),
        of_gateway(
            an_object("Service", "like-ours", type="LoadBalancer"), namespace="ml"
        ),
        an_object("PersistentVolumeClaim", "database"),
        a_volume("volume-of-database", "Bound", claim="database"),
    )
    left = await left_of(cluster)
    assert [(item.name, item.why) for item in left] == [
        (name, NOT_OURS) for name in ("website", "like-ours", "database")
    ]
    assert cluster.deleted == []


async def test_objects_that_users_are_deleting_are_waited_for() -> None:
    claim = an_object("PersistentVolumeClaim", "database")
    claim["metadata"] |= {
        "deletionTimestamp": "2026-11-26T10:00:00Z",
        "finalizers": ["kubernetes.io/pvc-protection"],
    }
    (left,) = await left_of(Cluster(claim))
    assert (
        left.why
        == "finalizer kubernetes.io/pvc-protection, deleted at 2026-11-26T10:00:00Z"
    )


@pytest.mark.parametrize("phase", ["Available", "Pending", ""])
async def test_a_volume_that_was_never_used_is_not_waited_for(phase: str) -> None:
    """Nothing deletes a volume that never had a claim."""
    assert await emptied(Cluster(a_volume("static", phase))) == []


async def test_a_cluster_that_is_not_deleted_is_not_emptied() -> None:
    cluster = Cluster(an_object("PersistentVolumeClaim", "weights"))
    with pytest.raises(InvalidInput, match="did not create cluster"):
        await emptied(cluster, AT_CLOUD.model_copy(update={"cloud": None}))
    assert cluster.deleted == []
