"""A namespace that another client recreates while its objects are replaced.

Nothing is applied in it.
"""

from pathlib import Path

import pytest

from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    ClusterPool,
    Json,
    ObjectId,
)
from activities.cluster_objects.kinds import NAMESPACE
from activities.cluster_objects.namespaces import NOT_ALLOWED
from activities.render.inputs.settings import RenderSettings
from activities.workloads.activities import WorkloadActivities
from api_types.errors import PermissionDenied, error_reason
from api_types.messages.cluster_work import Connection
from tests.activities.environment.asking import asked_by
from tests.activities.environment.orders import an_apply
from tests.activities.render.builders import an_engine
from tests.environment.idle_clusters import IdleCluster


class KeepingCluster(IdleCluster, ClusterPool):
    """A cluster that stores applied objects.

    The `leaving` object is gone after one read, with its namespace, which others
    recreate.
    """

    def __init__(self) -> None:
        self.objects: dict[ObjectId, Json] = {}
        self.leaving: ObjectId | None = None
        self._was_read = False

    async def at(self, connection: Connection) -> ClusterApi:
        del connection
        return self

    async def close(self) -> None:
        """No connection is open."""

    async def get(self, target: ObjectId) -> Json | None:
        if target == self.leaving:
            if self._was_read:
                namespace = ObjectId(NAMESPACE, "", target.namespace)
                self.objects, self.leaving = (
                    {namespace: {"metadata": {"name": namespace.name}}},
                    None,
                )
            self._was_read = True
        return self.objects.get(target)

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        stored = {
            **manifest,
            "metadata": {**manifest["metadata"], "uid": f"uid-{len(self.objects)}"},
        }
        return (
            stored
            if dry_run
            else self.objects.setdefault(ObjectId.of(manifest), stored)
        )

    async def create(self, manifest: Json) -> Json | None:
        return (
            None
            if ObjectId.of(manifest) in self.objects
            else await self.apply(manifest)
        )


async def test_nothing_is_applied_to_a_namespace_that_another_owner_created_first(
    tmp_path: Path,
) -> None:
    cluster = KeepingCluster()
    (tmp_path / "secrets").mkdir()
    work = WorkloadActivities(
        cluster, SecretDirectory(tmp_path / "secrets"), RenderSettings()
    )
    order = an_apply("qwen-0", an_engine(), namespace="argocd")
    asked = asked_by("modelreplica/argocd/qwen-0")
    applied = await asked.run(work.apply_replica, order)
    workload = next(each for each in cluster.objects if each.kind.kind == "Deployment")
    cluster.objects[workload]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.leaving = workload
    with pytest.raises(PermissionDenied, match="namespace argocd exists") as refused:
        await asked.run(
            work.apply_replica,
            order.model_copy(update={"inventory": applied.inventory}),
        )
    assert error_reason(refused.value) == NOT_ALLOWED
    assert [each.kind for each in cluster.objects] == [NAMESPACE]
