"""When a Service that the control cluster refuses to change is deleted and recreated.

No server is needed.
"""

import pytest

from activities.cluster_objects.cluster_api import Json, ObjectId, Propagation
from activities.render.objects.manifest import RenderedObject, RenderOwner
from activities.render.services.endpoint import Backend, endpoint_objects
from activities.routing.applying import apply_item
from api_types.errors import InvalidInput
from api_types.labels import FIELD_MANAGER
from api_types.text.endpoint_url import read_url
from tests.environment.idle_clusters import IdleCluster

OWNER = RenderOwner("ModelEndpoint", "ml", "e", "u", generation=0)
PORTS, DENIED = (
    "spec.ports[0].name: Required value",
    "ValidatingAdmissionPolicy 'p' denied request",
)


def a_service(port: int) -> RenderedObject:
    _, service = endpoint_objects(
        OWNER, "e", Backend(read_url(f"http://10.0.0.1:{port}"))
    )
    return service


def stored(port: int, port_of_others: int | None = None) -> Json:
    """Return the stored Service with the port of another manager instead of the applied
    one.
    """
    manifest = a_service(port).manifest
    (ours,) = manifest["spec"]["ports"]
    # We still own the list itself.
    fields: Json = {
        "f:spec": {
            "f:ports": {}
            if port_of_others
            else {f'k:{{"port":{port},"protocol":"TCP"}}': {".": {}, "f:port": {}}}
        }
    }
    managed = [
        {
            "manager": FIELD_MANAGER,
            "operation": "Apply",
            "fieldsType": "FieldsV1",
            "fieldsV1": fields,
        }
    ]
    spec = {**manifest["spec"], "ports": [{**ours, "port": port_of_others or port}]}
    return {
        **manifest,
        "spec": spec,
        "metadata": {**manifest["metadata"], "uid": "stored", "managedFields": managed},
    }


class Refusing(IdleCluster):
    """A cluster that rejects changes of its Service."""

    def __init__(self, live: Json, message: str) -> None:
        self.live: Json | None = live
        self.message = message

    async def get(self, target: ObjectId) -> Json | None:
        del target
        return self.live

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        del dry_run
        if self.live:
            raise InvalidInput(self.message)
        return manifest

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        del target, resource_version, propagation, grace_seconds
        assert uid == "stored"
        self.live = None
        return True


async def test_a_service_with_a_port_of_another_manager_is_recreated() -> None:
    cluster, wanted = Refusing(stored(8080, 7777), PORTS), a_service(8080)
    assert await apply_item(cluster, wanted, OWNER) == wanted.manifest


@pytest.mark.parametrize(
    ("live", "message"),
    [
        pytest.param(stored(8080, 7777), DENIED, id="a policy refuses it"),
        pytest.param(stored(9090), DENIED, id="a policy refuses another port"),
        pytest.param(stored(9090), PORTS, id="its port is ours"),
    ],
)
async def test_any_other_one_stays(live: Json, message: str) -> None:
    cluster = Refusing(live, message)
    with pytest.raises(InvalidInput):
        await apply_item(cluster, a_service(8080), OWNER)
    assert cluster.live == live
