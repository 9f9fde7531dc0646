"""Only its own CloudCluster may order the activities of a cluster at a cloud."""

from typing import Any

import pytest

from activities.clouds.activities import CloudActivities
from activities.clouds.in_cluster import InCluster
from api_types.errors import CredentialsInvalid, PermissionDenied
from api_types.messages.clouds import (
    AuditCloud,
    CloudAccount,
    CloudObject,
    CloudObjectOrder,
    ObserveCloud,
    PlanCloud,
)
from api_types.names import cloud_cluster_id
from api_types.sections.clouds import ProvisionSettings
from tests.activities.clouds.test_accounts import World
from tests.activities.environment.asking import asked_by

ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid="u",
    secret="none",  # noqa: S106
    region="europe-west4",
    installation="acme",
)
OBJECT = CloudObject(key="net/vpc", kind="Network", name="prod-1")
MANIFEST = {"spec": {"cluster": {"source": "GKE", "gke": {"region": "europe-west4"}}}}
ORDERS = {
    "plan_cloud": PlanCloud(account=ACCOUNT, manifest=MANIFEST),
    "ensure_cloud_object": CloudObjectOrder(account=ACCOUNT, object=OBJECT),
    "delete_cloud_object": CloudObjectOrder(account=ACCOUNT, object=OBJECT),
    "observe_cloud": ObserveCloud(account=ACCOUNT, objects=[OBJECT]),
    "audit_cloud": AuditCloud(account=ACCOUNT),
}
OWN = cloud_cluster_id("prod", "u")
OTHERS = [
    "inferencecluster/prod",
    cloud_cluster_id("prod", "another"),
    cloud_cluster_id("other", "u"),
    "cloud/prod/u/x",
    "",
]


def activities() -> CloudActivities:
    """Activities of a worker whose secret store has no credential.

    An order that passes the check ends with CredentialsInvalid.
    """
    nothing: Any = None
    return CloudActivities(
        World().accounts,
        InCluster(nothing, nothing),
        ProvisionSettings(installation_id="acme"),
    )


def test_every_activity_has_an_order() -> None:
    own = [
        name
        for name, each in vars(CloudActivities).items()
        if hasattr(each, "__temporal_activity_definition")
    ]
    assert sorted(own) == sorted(ORDERS)


@pytest.mark.parametrize("name", ORDERS)
async def test_its_own_workflow_may_order_it(name: str) -> None:
    with pytest.raises(CredentialsInvalid):
        await asked_by(OWN).run(getattr(activities(), name), ORDERS[name])


@pytest.mark.parametrize("workflow_id", OTHERS)
@pytest.mark.parametrize("name", ORDERS)
async def test_no_other_workflow_may(name: str, workflow_id: str) -> None:
    with pytest.raises(PermissionDenied):
        await asked_by(workflow_id).run(getattr(activities(), name), ORDERS[name])
