"""The provider of GKE: the project, the endpoint, and tokens.

It reveals no credential.
"""

import json
import logging
import time
from functools import partial

import pytest

from activities.clouds.gke.provider import GkeProvider
from api_types.errors import CredentialsInvalid, InvalidInput, NotYet
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import GkeSettings
from fakes.gcp.calls.faults import EtagRace, LoseAnswer, Refuse, TooManyRequests
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import GcpEndpoint
from testbed.fake_google import FakeClients
from tests.activities.clouds.builders import a_pool
from tests.activities.clouds.gke.cloud import REGION, SECRET, run
from tests.activities.clouds.gke.cloud import a_cloud as any_cloud

pytestmark = pytest.mark.slow

# A credential is used only in calls over HTTP and gRPC.
a_cloud = partial(any_cloud, direct=False)
KINDS = [
    "Service",
    "Network",
    "Subnetwork",
    "ServiceAccount",
    "IAM binding",
    "Cluster",
    "NodePool",
]


def test_the_credentials_project_is_used_unless_one_is_pinned(
    google: FakeGoogle,
) -> None:
    provider = a_cloud(google).provider
    fresh = CloudAccount(
        provider="GKE", cluster="prod", cluster_uid="u", secret=SECRET, region=REGION
    )
    assert provider.pinned(fresh).project == "fake-project"
    assert (
        provider.pinned(fresh.model_copy(update={"project": "other"})).project
        == "other"
    )


@pytest.mark.parametrize("project", ["example.com:ml", "123456789012"])
def test_projects_of_a_domain_and_project_numbers_are_projects(
    google: FakeGoogle, project: str
) -> None:
    cloud = a_cloud(google)
    named = cloud.account.model_copy(update={"project": project})
    assert cloud.provider.pinned(named).project == project


@pytest.mark.parametrize("project", ["../other", "ml/regions/x", "ml; touch x"])
def test_text_that_is_no_project_reaches_no_client(
    google: FakeGoogle, project: str
) -> None:
    """Google's clients raise ValueError for some of it, which would be retried."""
    cloud = a_cloud(google)
    named = cloud.account.model_copy(update={"project": project})
    with pytest.raises(InvalidInput, match=f'project "{project}" is not the ID'):
        cloud.provider.pinned(named)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_at_the_cloud_has_a_handler_of_its_own_for_each_piece_of_work(
    google: FakeGoogle, kind: str
) -> None:
    cloud = a_cloud(google)
    first, second = (cloud.provider.handler(cloud.account, kind) for _ in range(2))
    assert first is not None
    assert first is not second


@pytest.mark.parametrize("kind", ["Connection", "StorageClass", "HelmRelease"])
def test_objects_in_the_cluster_have_no_handler(google: FakeGoogle, kind: str) -> None:
    cloud = a_cloud(google)
    assert cloud.provider.handler(cloud.account, kind) is None


def test_every_desired_object_is_of_a_kind_with_a_handler(google: FakeGoogle) -> None:
    assert {each.kind for each in a_cloud(google, a_pool()).objects} == set(KINDS)


def test_the_endpoint_and_its_authority_are_read_from_the_cluster(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    google.connect(
        lambda _: GcpEndpoint("127.0.0.1:6443", "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t")
    )
    run(cloud.create_all())
    endpoint = cloud.provider.endpoint(cloud.account)
    assert (endpoint.server, endpoint.authority) == (
        "https://127.0.0.1:6443",
        "-----BEGIN CERTIFICATE-----",
    )


def test_a_cluster_without_an_endpoint_is_not_ready(google: FakeGoogle) -> None:
    cloud = a_cloud(google)
    with pytest.raises(NotYet):
        cloud.provider.endpoint(cloud.account)
    for each in cloud.objects[:-1]:
        run(cloud.ensure(each))
    each = cloud.object("cluster")
    cloud.handler(each).create(cloud.wanted(each))
    with pytest.raises(NotYet, match="has no endpoint yet: status PROVISIONING"):
        cloud.provider.endpoint(cloud.account)


def test_the_provisioning_accounts_token_is_renewed_five_minutes_early(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google)
    token = cloud.provider.token(cloud.account)
    assert google.account_of(token.text) == google.email
    assert 3200 < token.expires_at - time.time() <= 3300
    assert token.text not in repr(token)


def test_every_call_fetches_another_token(google: FakeGoogle) -> None:
    """A token that an API server rejected is not returned again."""
    cloud = a_cloud(google)
    assert (
        cloud.provider.token(cloud.account).text
        != cloud.provider.token(cloud.account).text
    )


def test_a_revoked_credential_is_invalid_and_no_object_counts_as_deleted(
    google: FakeGoogle,
) -> None:
    cloud = a_cloud(google, a_pool())
    run(cloud.create_all())
    google.revoke()
    with pytest.raises(CredentialsInvalid, match="Google rejects the credential"):
        cloud.provider.token(cloud.account)
    for each in cloud.objects:
        with pytest.raises(CredentialsInvalid):
            run(cloud.ensure(each))
        if each.kind != "Service":
            with pytest.raises(CredentialsInvalid):
                run(cloud.delete(each))
    google.restore()
    run(cloud.create_all())


def test_a_malformed_credential_makes_no_provider(google: FakeGoogle) -> None:
    with pytest.raises(CredentialsInvalid, match="is not JSON"):
        GkeProvider(
            "none",
            REGION,
            GkeSettings(),
            clients=lambda text: FakeClients(google, text),
        )


def test_a_real_google_key_is_not_sent_to_the_fake(
    google: FakeGoogle,
) -> None:
    real = json.dumps(
        json.loads(google.credential)
        | {"token_uri": "https://oauth2.googleapis.com/token"}
    )
    with pytest.raises(
        CredentialsInvalid, match="does not belong to the fake Google Cloud"
    ):
        GkeProvider(
            real, REGION, GkeSettings(), clients=lambda text: FakeClients(google, text)
        )


def test_the_credential_is_never_revealed(
    google: FakeGoogle, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = a_cloud(google, a_pool())
    google.fault(
        TooManyRequests(call="container.create_cluster", times=2),
        LoseAnswer(call="compute.networks.insert"),
        EtagRace(call="resourcemanager.projects.set_iam_policy"),
        Refuse(
            call="container.create_node_pool",
            code="UNAVAILABLE",
            message=f"sent by Bearer {'a' * 40}",
        ),
    )
    with caplog.at_level(logging.DEBUG):
        run(cloud.create_all())
        google.revoke()
        with pytest.raises(CredentialsInvalid) as caught:
            run(cloud.ensure(cloud.objects[0]))
        google.restore()
        cloud.provider.token(cloud.account)
        run(cloud.delete_all())
    ours = [
        record.getMessage()
        for record in caplog.records
        if record.name.startswith(("activities", "modelplane"))
    ]
    output = "\n".join(
        [
            *cloud.reports,
            *ours,
            repr(caught.value),
            repr(cloud.known),
            repr(cloud.provider),
            repr(cloud.audit()),
        ]
    )
    assert "Network prod-" in output, "the search covers what was waited for"
    secrets = [google.credential[200:260], *google.tokens(), "a" * 40]
    assert [secret[:12] for secret in secrets if secret in output] == []
