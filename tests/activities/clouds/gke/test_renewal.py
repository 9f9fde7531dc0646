"""A token that Google revokes early is replaced within the activity.

Nothing is paused, and no person is needed.
"""

import asyncio
from functools import partial
from typing import Any

import pytest

from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.in_cluster import InCluster
from api_types.errors import CredentialsInvalid
from api_types.messages.clouds import AuditCloud, CloudAccount
from api_types.names import cloud_cluster_id
from api_types.sections.clouds import GkeSettings, ProvisionSettings
from fakes.gcp.fake import FakeGoogle
from testbed.fake_google import FakeClients
from tests.activities.clouds.builders import INSTALLATION, UID
from tests.activities.clouds.gke.cloud import REGION, SECRET
from tests.activities.clouds.test_accounts import Secrets
from tests.activities.environment.asking import asked_by

ACCOUNT = CloudAccount(
    provider="GKE",
    cluster="prod",
    cluster_uid=UID,
    secret=SECRET,
    region=REGION,
    installation=INSTALLATION,
)


def activities(google: FakeGoogle) -> CloudActivities:
    settings, nothing = ProvisionSettings(installation_id=INSTALLATION), None
    accounts = CloudAccounts(
        Secrets(gke_default__credentials=google.credential),
        {
            "GKE": partial(
                GkeProvider,
                settings=GkeSettings(),
                clients=partial(FakeClients, google),
            )
        },
        settings,
    )
    unused: Any = nothing
    return CloudActivities(accounts, InCluster(unused, unused), settings)


@pytest.mark.slow
async def test_revoked_tokens_are_replaced_by_every_running_activity(
    google: FakeGoogle,
) -> None:
    cloud = activities(google)
    order = AuditCloud(account=ACCOUNT.model_copy(update={"project": google.project}))

    async def audit() -> None:
        await asked_by(cloud_cluster_id("prod", UID)).run(cloud.audit_cloud, order)

    await audit()
    google.expire_tokens()
    await asyncio.gather(audit(), audit(), audit())
    google.revoke()
    with pytest.raises(CredentialsInvalid):
        await audit()
