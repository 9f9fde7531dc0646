"""Accounts, keys, tokens, policy and APIs of the fake."""

import json
from collections.abc import Iterator

import httpx
import pytest
from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.cloud import iam_admin_v1
from google.iam.v1 import policy_pb2

from fakes.gcp.clients import Clients, credentials, token_of
from fakes.gcp.fake import FakeGoogle

pytestmark = pytest.mark.slow

_OWN = iam_admin_v1.ListServiceAccountKeysRequest.KeyType.USER_MANAGED


@pytest.fixture
def project(google: FakeGoogle) -> str:
    return f"projects/{google.project}"


@pytest.fixture
def account(clients: Clients, project: str) -> str:
    request = {
        "name": project,
        "account_id": "mp-0a1b2c3d",
        "service_account": {"description": "ours"},
    }
    return str(clients.iam.create_service_account(request=request).name)


@pytest.fixture
def with_token(google: FakeGoogle) -> Iterator[Clients]:
    with Clients(google.grpc_target, google.credential) as clients:
        yield clients


def member_of(account: str) -> str:
    return f"serviceAccount:{account.rpartition('/')[2]}"


def bind(clients: Clients, project: str, member: str) -> None:
    policy = clients.projects.get_iam_policy(resource=project)
    policy.bindings.append(
        policy_pb2.Binding(role="roles/container.admin", members=[member])
    )
    clients.projects.set_iam_policy(request={"resource": project, "policy": policy})


def test_an_account_is_created_changed_and_deleted(
    google: FakeGoogle, clients: Clients, account: str
) -> None:
    assert google.remains() == sorted(
        [
            account,
            *(name for name in google.objects() if name.startswith(f"{account}/keys/")),
        ]
    )
    request = {
        "service_account": {"name": account, "description": "changed"},
        "update_mask": {"paths": ["description"]},
    }
    clients.iam.patch_service_account(request=request)
    assert clients.iam.get_service_account(name=account).description == "changed"
    clients.iam.delete_service_account(name=account)
    with pytest.raises(exceptions.NotFound):
        clients.iam.get_service_account(name=account)
    assert google.remains() == []


def test_an_account_is_found_without_its_project_and_by_its_number(
    clients: Clients, account: str
) -> None:
    number = clients.iam.get_service_account(name=account).unique_id
    for written in (account.rpartition("/")[2], number):
        assert (
            clients.iam.get_service_account(
                name=f"projects/-/serviceAccounts/{written}"
            ).name
            == account
        )


def test_accounts_that_cannot_be_are_refused(
    clients: Clients, project: str, account: str
) -> None:
    assert account
    with pytest.raises(exceptions.AlreadyExists):
        clients.iam.create_service_account(
            request={"name": project, "account_id": "mp-0a1b2c3d"}
        )
    with pytest.raises(exceptions.InvalidArgument):
        clients.iam.create_service_account(
            request={"name": project, "account_id": "short"}
        )


def test_accounts_are_listed_in_pages(
    clients: Clients, project: str, account: str
) -> None:
    page = clients.iam.list_service_accounts(request={"name": project, "page_size": 1})
    assert [each.name for each in page] == [
        account,
        f"{project}/serviceAccounts/provisioner@fake-project.iam.gserviceaccount.com",
    ]


def test_a_key_is_handed_out_once_and_gives_tokens(
    google: FakeGoogle, clients: Clients, account: str
) -> None:
    key = clients.iam.create_service_account_key(name=account)
    token = token_of(credentials(key.private_key_data.decode()))
    assert google.account_of(token) == account.rpartition("/")[2]
    listed = clients.iam.list_service_account_keys(name=account, key_types=[_OWN]).keys
    assert [(each.name, each.private_key_data) for each in listed] == [(key.name, b"")]
    # Google's own key is there too.
    assert len(clients.iam.list_service_account_keys(name=account).keys) == 2
    clients.iam.delete_service_account_key(name=key.name)
    assert google.account_of(token) == account.rpartition("/")[2]
    with pytest.raises(RefreshError, match="invalid_grant"):
        token_of(credentials(key.private_key_data.decode()))


def test_the_key_of_google_cannot_be_deleted(clients: Clients, account: str) -> None:
    (key,) = clients.iam.list_service_account_keys(name=account).keys
    with pytest.raises(exceptions.FailedPrecondition):
        clients.iam.delete_service_account_key(name=key.name)


def test_an_account_has_at_most_ten_keys(clients: Clients, account: str) -> None:
    for _ in range(10):
        clients.iam.create_service_account_key(name=account)
    with pytest.raises(exceptions.ResourceExhausted, match="Maximum number of keys"):
        clients.iam.create_service_account_key(name=account)


def test_a_policy_of_the_organization_forbids_keys(
    google: FakeGoogle, clients: Clients, account: str
) -> None:
    google.bar_keys()
    with pytest.raises(
        exceptions.FailedPrecondition, match="disableServiceAccountKeyCreation"
    ):
        clients.iam.create_service_account_key(name=account)


def test_a_policy_is_written_with_the_etag_that_was_read(
    clients: Clients, project: str, account: str
) -> None:
    old = clients.projects.get_iam_policy(resource=project)
    bind(clients, project, member_of(account))
    with pytest.raises(exceptions.Aborted, match="concurrent policy changes"):
        clients.projects.set_iam_policy(request={"resource": project, "policy": old})
    roles = {
        each.role: list(each.members)
        for each in clients.projects.get_iam_policy(resource=project).bindings
    }
    assert roles["roles/container.admin"] == [member_of(account)]
    assert "roles/owner" in roles


def test_a_member_that_is_not_there_is_refused(clients: Clients, project: str) -> None:
    with pytest.raises(exceptions.InvalidArgument, match="does not exist"):
        bind(
            clients,
            project,
            "serviceAccount:mp-none@fake-project.iam.gserviceaccount.com",
        )


def test_an_account_deleted_before_its_binding_stays_in_the_policy(
    google: FakeGoogle, clients: Clients, project: str, account: str
) -> None:
    bind(clients, project, member_of(account))
    clients.iam.delete_service_account(name=account)
    (member,) = google.members("roles/container.admin")
    assert member.startswith(f"deleted:{member_of(account)}?uid=")
    assert google.remains() == [f"{project}/policy/roles/container.admin/{member}"]


def test_all_permissions_are_granted_except_denied_ones(
    google: FakeGoogle, clients: Clients, project: str
) -> None:
    google.deny("container.clusters.create")
    wanted = ["container.clusters.create", "compute.networks.create"]
    assert list(
        clients.projects.test_iam_permissions(
            resource=project, permissions=wanted
        ).permissions
    ) == ["compute.networks.create"]


def test_another_project_is_not_permitted(clients: Clients) -> None:
    with pytest.raises(exceptions.PermissionDenied):
        clients.projects.get_iam_policy(resource="projects/another")


def test_a_call_carries_the_token_of_its_account(
    google: FakeGoogle, with_token: Clients, project: str
) -> None:
    with_token.projects.get_iam_policy(resource=project)
    assert google.ledger().calls("resourcemanager.*")[-1].account == google.email


def test_a_token_that_expired_is_refused(
    google: FakeGoogle, with_token: Clients, project: str
) -> None:
    with_token.projects.get_iam_policy(resource=project)
    google.expire_tokens()
    with pytest.raises(exceptions.Unauthenticated):
        with_token.projects.get_iam_policy(resource=project)


def test_a_token_expires_by_the_clock(google: FakeGoogle) -> None:
    assert google
    with FakeGoogle(token_seconds=0) as other:
        answer = httpx.post(
            other.token_url, data={"grant_type": "urn:other"}, timeout=60
        )
        assert answer.json()["error"] == "invalid_grant"
        held = credentials(other.credential)
        assert other.account_of(token_of(held)) is None


def test_a_credential_is_revoked_and_restored(
    google: FakeGoogle, with_token: Clients, project: str
) -> None:
    with_token.projects.get_iam_policy(resource=project)
    google.revoke()
    with pytest.raises(exceptions.Unauthenticated):
        with_token.projects.get_iam_policy(resource=project)
    with pytest.raises(RefreshError):
        token_of(credentials(google.credential))
    google.restore()
    with_token.projects.get_iam_policy(resource=project)


def test_a_token_of_an_unknown_key_is_refused(google: FakeGoogle) -> None:
    with FakeGoogle() as other:
        stolen = json.loads(other.credential) | {
            "token_uri": google.token_url,
            "private_key_id": "0" * 40,
        }
    with pytest.raises(RefreshError, match="invalid_grant"):
        token_of(credentials(json.dumps(stolen)))


def test_a_token_review_names_the_user(
    google: FakeGoogle, clients: Clients, project: str, account: str
) -> None:
    key = clients.iam.create_service_account_key(name=account).private_key_data.decode()
    token = token_of(credentials(key))

    def review(text: str) -> object:
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": text},
        }
        return httpx.post(google.review_url, json=body, timeout=60).json()["status"]

    email = account.rpartition("/")[2]
    assert review(token) == {
        "authenticated": True,
        "user": {"username": email, "groups": []},
    }
    bind(clients, project, member_of(account))
    assert review(token) == {
        "authenticated": True,
        "user": {"username": email, "groups": ["system:masters"]},
    }
    assert review("other") == {"authenticated": False}


def test_filestore_is_refused_until_its_api_is_enabled(
    google: FakeGoogle, clients: Clients, project: str
) -> None:
    with pytest.raises(exceptions.PermissionDenied) as caught:
        list(clients.filestore.list_instances(parent=f"{project}/locations/-"))
    assert (caught.value.reason, caught.value.metadata["service"]) == (
        "SERVICE_DISABLED",
        "file.googleapis.com",
    )
    service = f"{project}/services/file.googleapis.com"
    assert (
        clients.service_usage.get_service(request={"name": service}).state.name
        == "DISABLED"
    )
    operation = clients.service_usage.enable_service(request={"name": service})
    assert operation.result(timeout=30).service.state.name == "ENABLED"
    assert list(clients.filestore.list_instances(parent=f"{project}/locations/-")) == []
    listed = [
        each.config.name
        for each in clients.service_usage.list_services(request={"parent": project})
    ]
    assert "file.googleapis.com" in listed
    assert google.enabled("file.googleapis.com")
    # The API stays enabled, which is no leftover.
    assert google.remains() == []


def test_a_method_that_the_fake_lacks_is_not_implemented(
    clients: Clients, account: str
) -> None:
    with pytest.raises(exceptions.MethodNotImplemented):
        clients.iam.disable_service_account(request={"name": account})
