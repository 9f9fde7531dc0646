"""What a person with kubectl does to a cluster, which activities never do."""

from activities.clients.discovery import path
from activities.clients.kubernetes import KubernetesCluster
from activities.cluster_api import Json, ObjectId
from tests.activities.worlds import World


async def patch(world: World, target: ObjectId, change: Json) -> None:
    """Change an object under another manager's name."""
    api = await world.api()
    assert isinstance(api, KubernetesCluster)
    resource = (await api.resources())[target.kind]
    where = f"{path(resource, target.namespace, target.name)}?fieldManager=a-person"
    answer = await api._session.request("PATCH", where, body=change, content_type="application/merge-patch+json")
    assert answer.status == 200, answer.body


async def delete(world: World, target: ObjectId) -> None:
    """Delete an object."""
    assert await (await world.api()).delete(target, propagation="Background")
