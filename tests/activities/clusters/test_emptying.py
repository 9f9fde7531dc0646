"""A cluster that goes is emptied of what holds things at its cloud; one that stays is not touched."""

from typing import Any

import pytest

from activities.cluster_objects.cluster_api import Listing
from activities.clusters.activities import ClusterActivities
from api_types.errors import InvalidInput
from api_types.messages.clouds import CloudAccount
from api_types.messages.cluster_work import Connection, EmptyCluster
from tests.activities.environment.asking import asked_by

ACCOUNT = CloudAccount(provider="GKE", cluster="prod", cluster_uid="u", secret="gke-default", region="europe-west4")  # noqa: S106
AT_CLOUD = Connection(cluster="prod", namespace="modelplane-system", name="gke-default", cloud=ACCOUNT)


def an_object(kind: str, name: str, **spec: Any) -> dict[str, Any]:
    namespaced = {} if kind == "PersistentVolume" else {"namespace": "ml"}
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "uid": name, **namespaced}, "spec": spec}


class Cluster:
    """A cluster with these objects; what is deleted is gone."""

    def __init__(self, *objects: dict[str, Any]) -> None:
        self.objects = list(objects)
        self.deleted: list[str] = []

    async def at(self, connection: Connection) -> Any:
        del connection
        return self

    async def list(self, selection: Any) -> Listing:
        return Listing([each for each in self.objects if each["kind"] == selection.kind.kind], "1")

    async def delete(self, target: Any, **_: Any) -> bool:
        self.deleted.append(target.name)
        # A volume goes with its claim.
        self.objects = [each for each in self.objects if each["metadata"]["name"] not in (target.name, f"volume-of-{target.name}")]
        return True


async def emptied(cluster: Cluster, connection: Connection = AT_CLOUD) -> list[str]:
    activities: Any = ClusterActivities(cluster)
    result = await asked_by("inferencecluster/prod").run(activities.empty_cluster, EmptyCluster(connection=connection))
    return [item.name for item in result.remaining]


async def test_case_62_load_balancers_and_volumes_are_deleted_and_volumes_that_stay_are_named() -> None:
    cluster = Cluster(
        an_object("Service", "gateway", type="LoadBalancer"),
        an_object("Service", "inner", type="ClusterIP"),
        an_object("PersistentVolumeClaim", "weights"),
        an_object("PersistentVolume", "volume-of-weights", persistentVolumeReclaimPolicy="Delete"),
        an_object("PersistentVolume", "left", persistentVolumeReclaimPolicy="Delete"),
        an_object("PersistentVolume", "kept", persistentVolumeReclaimPolicy="Retain"),
    )
    await emptied(cluster)
    assert await emptied(cluster) == ["left"]
    assert cluster.deleted == ["gateway", "weights"]


async def test_nothing_of_a_cluster_that_stays_is_deleted() -> None:
    cluster = Cluster(an_object("PersistentVolumeClaim", "weights"))
    with pytest.raises(InvalidInput, match="is at no cloud"):
        await emptied(cluster, AT_CLOUD.model_copy(update={"cloud": None}))
    assert cluster.deleted == []
