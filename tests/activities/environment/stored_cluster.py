"""A cluster that is a dictionary: it lists by labels and deletes at once."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    ClusterPool,
    GroupVersionKind,
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Propagation,
    Selection,
    whole,
)
from api_types import labels
from api_types.clock import timestamp, utc_now
from api_types.messages.cluster_work import Connection
from tests.environment.idle_clusters import IdleCluster


def an_object(
    kind: GroupVersionKind,
    name: str,
    uid: str = "u",
    *,
    namespace: str = "ml",
    overdue: timedelta | None = None,
    **marks: str,
) -> Json:
    """Make an object of a replica with that uid and further labels.

    `overdue` is the time since the end of its grace period.
    """
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace,
        "uid": f"uid of {name}",
        "labels": {labels.MANAGED_BY: labels.MANAGED_BY_VALUE, **marks},
        "annotations": {
            labels.OWNER_KIND: "ModelReplica",
            labels.OWNER_NAMESPACE: "ml",
            labels.OWNER_NAME: "qwen-1",
            labels.OWNER_UID: uid,
        },
    }
    if overdue is not None:
        metadata["deletionTimestamp"] = timestamp(utc_now() - overdue)
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


class StoredCluster(IdleCluster):
    """Holds objects, and records the name and grace period of each deletion in `deleted`.

    An object that is `held` stays when it is deleted with grace.
    """

    def __init__(self, *objects: Json, held: tuple[str, ...] = ()) -> None:
        self.objects = {ObjectId.of(item): item for item in objects}
        self.deleted: list[tuple[str, int | None]] = []
        self._held = held

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        """Serve the kinds of the objects."""
        del refresh
        found = {target.kind for target in self.objects}
        verbs = frozenset({"list", "get", "delete"})
        return {
            kind: ApiResource(kind, kind.kind.lower(), namespaced=True, verbs=verbs)
            for kind in found
        }

    async def get(self, target: ObjectId) -> Json | None:
        """Read one object."""
        return self.objects.get(target)

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        """List the objects of a kind that have the labels, each given as `name=value`."""
        wanted = dict(part.split("=") for part in selection.labels.split(",") if part)
        found = [
            keep(item)
            for target, item in self.objects.items()
            if target.kind == selection.kind
            and selection.namespace in ("", target.namespace)
            and wanted.items() <= item["metadata"]["labels"].items()
        ]
        return ObjectList(found, "1")

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        """Delete an object, and record that."""
        del resource_version, propagation
        found = self.objects.get(target)
        if found is None or uid not in ("", found["metadata"]["uid"]):
            return False
        self.deleted.append((target.name, grace_seconds))
        if target.name not in self._held or grace_seconds == 0:
            del self.objects[target]
        return True


class StoredPool(ClusterPool):
    """Returns the same cluster for every connection."""

    def __init__(self, cluster: ClusterApi) -> None:
        self._cluster = cluster

    async def at(self, connection: Connection) -> ClusterApi:
        """Return the cluster."""
        del connection
        return self._cluster

    async def close(self) -> None:
        """Do nothing: no connection is open."""
