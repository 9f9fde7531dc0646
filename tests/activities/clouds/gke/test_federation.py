"""Credentials of Google Cloud without keys: federation, impersonation, the worker's own.

The texts in these credentials are untrusted: they name programs, files and addresses.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from google.api_core.exceptions import ServiceUnavailable
from google.auth.compute_engine import _metadata
from google.auth.exceptions import RefreshError

from activities.clouds.gke.api import GoogleApi
from activities.clouds.gke.credential import GoogleCredential, read_google_credential
from activities.clouds.gke.failures import failure_of
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.permitted import PermittedSources
from api_types.errors import CredentialsInvalid, WorkerClockWrong
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import GkeSettings
from fakes.gcp.calls.faults import RevokeCredential
from fakes.gcp.fake import FakeGoogle
from testbed.fake_google import FakeClients

STS = "https://sts.googleapis.com/v1/token"
IAM = "https://iamcredentials.googleapis.com/v1/projects/-/serviceAccounts"
EMAIL = "planes@acme-ml.iam.gserviceaccount.com"
AUDIENCE = (
    "//iam.googleapis.com/projects/123456789012/locations/global/workloadIdentityPools/"
    "fleet/providers/fleet"
)
FILE = "/var/run/secrets/google/token"
URL = "http://169.254.169.254/metadata/identity/oauth2/token?resource=api"
OURS = PermittedSources(
    frozenset({"acme-ml", "example.com:ml"}), frozenset({FILE}), frozenset({URL})
)


def federation(**change: Any) -> dict[str, Any]:
    return without_none(
        {
            "type": "external_account",
            "audience": AUDIENCE,
            "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
            "token_url": STS,
            "token_info_url": "https://attacker.example/introspect",
            "service_account_impersonation_url": f"{IAM}/{EMAIL}:generateAccessToken",
            "credential_source": {"file": FILE, "format": {"type": "text"}},
            **change,
        }
    )


def impersonation(**change: Any) -> dict[str, Any]:
    return without_none(
        {
            "type": "impersonated_service_account",
            "service_account_impersonation_url": f"{IAM}/{EMAIL}:generateAccessToken",
            "source_credentials": {"type": "worker_identity"},
            "delegates": [],
            **change,
        }
    )


def without_none(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if value is not None}


def read(document: Any, permitted: PermittedSources = OURS) -> GoogleCredential:
    return read_google_credential(json.dumps(document), permitted)


def test_a_federated_credential_keeps_only_checked_fields() -> None:
    assert read(federation(quota_project_id="x", universe_domain="attacker")) == (
        GoogleCredential(
            "external_account",
            "acme-ml",
            EMAIL,
            {
                "type": "external_account",
                "audience": AUDIENCE,
                "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
                "token_url": STS,
                "credential_source": {"file": FILE, "format": {"type": "text"}},
                "service_account_impersonation_url": f"{IAM}/{EMAIL}:generateAccessToken",
            },
            of_worker=True,
        )
    )


PROJECTS: list[tuple[dict[str, Any], tuple[str, str]]] = [
    (federation(project_id="acme-ml"), ("acme-ml", EMAIL)),
    (
        federation(service_account_impersonation_url=None, project_id="acme-ml"),
        ("acme-ml", ""),
    ),
    (
        impersonation(
            service_account_impersonation_url=(
                f"{IAM}/planes@ml.example.com.iam.gserviceaccount.com:generateAccessToken"
            )
        ),
        ("example.com:ml", "planes@ml.example.com.iam.gserviceaccount.com"),
    ),
    (impersonation(source_credentials=federation()), ("acme-ml", EMAIL)),
    ({"type": "worker_identity", "project_id": "acme-ml"}, ("acme-ml", "")),
]


@pytest.mark.parametrize(("document", "named"), PROJECTS)
def test_project_and_account_of_a_credential(
    document: dict[str, Any], named: tuple[str, str]
) -> None:
    found = read(document)
    assert (found.project, found.email, found.of_worker) == (*named, True)


def source(**fields: Any) -> dict[str, Any]:
    return federation(credential_source=fields)


OTHERS = "planes@victim.iam.gserviceaccount.com"
NOT_NAMED = 'in account or project "victim", which provision.workerIdentityAccounts'
BAD: list[tuple[str, dict[str, Any], str]] = [
    (
        "a program",
        source(executable={"command": "/bin/sh"}),
        "credential_source.executable of the credential is not supported",
    ),
    (
        "a program beside a file",
        source(file=FILE, executable={"command": "/bin/sh"}),
        "credential_source.executable of the credential is not supported",
    ),
    (
        "a certificate",
        source(certificate={"use_default_certificate_config": True}),
        "credential_source.certificate of the credential is not supported",
    ),
    (
        "another cloud",
        source(environment_id="aws1", url=URL, region_url=URL),
        "credential_source.environment_id of the credential is not supported",
    ),
    ("two sources", source(file=FILE, url=URL), "is either a file or a url"),
    ("no source", source(), "is either a file or a url"),
    (
        "a file of the worker",
        source(file="/etc/shadow"),
        'credential_source.file names the file "/etc/shadow", which provision.tokenFiles',
    ),
    (
        "a way out of a directory",
        source(file=f"{FILE}/../../../../etc/shadow"),
        "which provision.tokenFiles does not name",
    ),
    (
        "the metadata of the machine",
        source(url="http://169.254.169.254/latest/meta-data/"),
        "which provision.tokenUrls does not name",
    ),
    (
        "a longer URL",
        source(url=f"{URL}&more=1"),
        "which provision.tokenUrls does not name",
    ),
    (
        "a foreign header",
        source(url=URL, headers={"Authorization": "x"}),
        "credential_source.headers of the credential has others than Metadata and",
    ),
    (
        "a header with a line break",
        source(url=URL, headers={"Metadata": "a\r\nHost: b"}),
        "credential_source.headers of the credential has others than Metadata and",
    ),
    (
        "an unknown format",
        source(file=FILE, format={"type": "xml"}),
        "credential_source.format.type of the credential is none of text, json",
    ),
    (
        "another exchange",
        federation(token_url="https://attacker.example/v1/token"),  # noqa: S106
        f"token_url of the credential is not {STS}",
    ),
    (
        "another audience",
        federation(audience="//iam.googleapis.com/../x"),
        "audience of the credential is not that of a workload identity pool",
    ),
    (
        "another kind of token",
        federation(subject_token_type="urn:ietf:params:aws:token-type:aws4_request"),  # noqa: S106
        "subject_token_type of the credential is none of",
    ),
    (
        "impersonation elsewhere",
        federation(
            service_account_impersonation_url=(
                f"https://attacker.example/{EMAIL}:generateAccessToken"
            )
        ),
        "service_account_impersonation_url of the credential is not",
    ),
    (
        "an account of others",
        federation(
            service_account_impersonation_url=f"{IAM}/{OTHERS}:generateAccessToken"
        ),
        NOT_NAMED,
    ),
    (
        "an account of others in our project",
        federation(
            service_account_impersonation_url=f"{IAM}/{OTHERS}:generateAccessToken",
            project_id="acme-ml",
        ),
        NOT_NAMED,
    ),
    (
        "an account of others, impersonated by the worker",
        impersonation(
            service_account_impersonation_url=f"{IAM}/{OTHERS}:generateAccessToken",
            project_id="acme-ml",
        ),
        NOT_NAMED,
    ),
    (
        "an account of others, impersonated by an account of ours",
        impersonation(
            service_account_impersonation_url=f"{IAM}/{OTHERS}:generateAccessToken",
            source_credentials=federation(),
        ),
        NOT_NAMED,
    ),
    ("delegates", impersonation(delegates=["x"]), "delegates of the credential is not"),
    (
        "nested impersonation",
        impersonation(source_credentials=impersonation()),
        "source_credentials.type of the credential is none of",
    ),
    (
        "a user as source",
        impersonation(source_credentials={"type": "authorized_user"}),
        "source_credentials.type of the credential is none of",
    ),
    (
        "the worker without a project",
        {"type": "worker_identity"},
        "project_id of the credential is empty",
    ),
    (
        "the worker in a project of others",
        {"type": "worker_identity", "project_id": "victim"},
        NOT_NAMED,
    ),
    ("no text", {"type": "worker_identity", "project_id": 7}, "project_id of the"),
]


@pytest.mark.parametrize(
    ("document", "why"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_a_credential_that_leads_elsewhere_is_refused(
    document: dict[str, Any], why: str
) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        read(document)
    assert why in caught.value.message


@pytest.mark.parametrize(
    "document",
    [
        federation(),
        federation(credential_source={"url": URL}),
        impersonation(),
        {"type": "worker_identity", "project_id": "acme-ml"},
    ],
)
def test_without_settings_nothing_of_the_worker_is_used(
    document: dict[str, Any],
) -> None:
    with pytest.raises(CredentialsInvalid, match="does not name"):
        read(document, PermittedSources())


# At the fake


def clients_of(
    google: FakeGoogle, document: dict[str, Any], permitted: PermittedSources
) -> FakeClients:
    text = json.dumps(document)
    fake = {STS: f"{google.compute_url}/v1/token"}
    fake[IAM] = f"{google.compute_url}/v1/projects/-/serviceAccounts"
    for real, instead in fake.items():
        text = text.replace(real, instead)
    return FakeClients(google, text, permitted)


def permitted_in(google: FakeGoogle, file: Path) -> PermittedSources:
    return PermittedSources(frozenset({google.project}), frozenset({str(file)}))


def test_a_token_in_a_file_becomes_one_of_the_impersonated_account(
    google: FakeGoogle, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    audience, principal = google.accept_token("CANARY-1", "worker")
    document = federation(
        audience=audience,
        service_account_impersonation_url=f"{IAM}/{google.email}:generateAccessToken",
        credential_source={"file": str(file)},
    )
    clients = clients_of(google, document, permitted_in(google, file))
    with pytest.raises(CredentialsInvalid, match=f"File '{file}' was not found"):
        clients.token()
    file.write_text("CANARY-0")
    with pytest.raises(CredentialsInvalid, match="invalid_grant") as caught:
        clients.token()
    assert "CANARY" not in caught.value.message
    file.write_text("CANARY-1")
    with pytest.raises(CredentialsInvalid) as caught:
        clients.token()
    assert caught.value.message == (
        "fetch an access token: Google rejects the credential: "
        "iam.serviceAccounts.getAccessToken; grant the identity "
        "roles/iam.workloadIdentityUser or roles/iam.serviceAccountTokenCreator on the "
        "service account"
    )
    google.allow_impersonation(principal, google.email)
    assert google.account_of(clients.token().text) == google.email
    location = f"projects/{google.project}/locations/-"
    clients.client("container").list_clusters(parent=location)
    assert google.ledger().calls()[-1].account == google.email


def test_a_pool_that_does_not_exist_is_named_with_the_next_step(
    google: FakeGoogle, tmp_path: Path
) -> None:
    file = tmp_path / "token"
    file.write_text("x")
    document = federation(
        service_account_impersonation_url=None,
        project_id=google.project,
        credential_source={"file": str(file)},
    )
    clients = clients_of(google, document, permitted_in(google, file))
    with pytest.raises(CredentialsInvalid, match="invalid_target; create the workload"):
        clients.token()


def test_a_key_impersonates_an_account(google: FakeGoogle) -> None:
    target = f"planes@{google.project}.iam.gserviceaccount.com"
    document = impersonation(
        service_account_impersonation_url=f"{IAM}/{target}:generateAccessToken",
        source_credentials=json.loads(google.credential),
    )
    clients = clients_of(google, document, PermittedSources())
    google.allow_impersonation(google.email, target)
    assert google.account_of(clients.token().text) == target
    assert (clients.project, clients.account) == (google.project, target)


def test_the_worker_identity_is_the_account_of_its_machine(
    google: FakeGoogle, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = google.compute_url.removeprefix("http://")
    monkeypatch.setattr(_metadata, "_GCE_METADATA_HOST", host)
    document = {"type": "worker_identity", "project_id": google.project}
    permitted = PermittedSources(frozenset({google.project}))
    clients = clients_of(google, document, permitted)
    google.attach(google.email)
    assert google.account_of(clients.token().text) == google.email


def test_the_worker_identity_is_used_in_named_projects_only(
    google: FakeGoogle,
) -> None:
    document = {"type": "worker_identity", "project_id": google.project}
    permitted = PermittedSources(frozenset({google.project}))
    clients = clients_of(google, document, permitted)
    provider = GkeProvider("", "europe-west4", GkeSettings(), clients=lambda _: clients)
    account = CloudAccount(
        provider="GKE",
        cluster="prod",
        cluster_uid="u",
        secret="gke-x",  # noqa: S106
        region="europe-west4",
        installation="i",
    )
    assert provider.pinned(account).project == google.project
    elsewhere = account.model_copy(update={"project": "victim"})
    for use in (
        provider.pinned,
        provider.endpoint,
        provider.token,
        lambda each: provider.handler(each, "Network"),
    ):
        with pytest.raises(CredentialsInvalid, match=NOT_NAMED):
            use(elsewhere)


# The text of https://github.com/googleapis/google-api-php-client/issues/1429
CLOCK_ANSWERS = [
    RefreshError(
        "invalid_grant: Invalid JWT: Token must be a short-lived token (60 minutes) and in "
        "a reasonable timeframe. Check your iat and exp values in the JWT claim."
    ),
    ServiceUnavailable(
        "Getting metadata from plugin failed with error: ('invalid_grant: Invalid JWT: "
        "Token must be a short-lived token (60 minutes) and in a reasonable timeframe. "
        "Check your iat and exp values in the JWT claim.')"
    ),
]


@pytest.mark.parametrize("answer", CLOCK_ANSWERS)
def test_the_text_about_iat_and_exp_is_about_the_clock(answer: Exception) -> None:
    found = failure_of(answer, "container get cluster")
    assert (type(found), found.message) == (
        WorkerClockWrong,
        (
            "container get cluster: the clock of the worker is not that of Google, so "
            "Google refuses its signatures; synchronize the clock of the machine of the "
            "worker (NTP). The credential may be valid"
        ),
    )


@pytest.mark.parametrize(
    ("seconds", "kind"), [(-600.0, WorkerClockWrong), (60.0, CredentialsInvalid)]
)
def test_the_clock_is_compared_after_each_refused_call(
    google: FakeGoogle, seconds: float, kind: type[CredentialsInvalid]
) -> None:
    """Clients of Google sign tokens themselves, and a 401 does not mention the clock."""
    api = GoogleApi(FakeClients(google, google.credential))
    google.fault(RevokeCredential(call="container.get_server_config"))
    google.set_clock(seconds)
    try:
        with pytest.raises(CredentialsInvalid) as caught:
            api.read(
                "container", "get_server_config", {"name": "projects/x/locations/y"}
            )
    finally:
        google.set_clock(0.0)
    assert type(caught.value) is kind


def test_a_wrong_clock_is_not_a_wrong_credential(google: FakeGoogle) -> None:
    clients = FakeClients(google, google.credential)
    google.set_clock(5400.0)
    try:
        with pytest.raises(WorkerClockWrong) as caught:
            clients.token()
    finally:
        google.set_clock(0.0)
    assert caught.value.message == (
        "fetch an access token: the clock of the worker is 90 minutes off, behind Google, "
        "so Google refuses its signatures; synchronize the clock of the machine of the "
        "worker (NTP). The credential may be valid"
    )
