"""Roles as credentials: assumed, by web identity, and the worker's own."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from botocore.utils import InstanceMetadataFetcher

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import (
    AssumedRole,
    AwsCredential,
    read_credential,
)
from activities.clouds.eks.provider import EksProvider
from activities.clouds.identities import AWS, CloudIdentities
from activities.clouds.permitted import PermittedSources
from api_types.errors import CredentialsInvalid
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import EksSettings
from fakes.aws.fake import FakeAws
from tests.activities.clouds.eks.world import World

ROLE = "arn:aws:iam::111122223333:role/ml/modelplane"
EXTERNAL = "customer-7:eu"
TOKEN_FILE = "/var/run/secrets/aws/token"  # noqa: S105 - a path
KEYS = "aws_access_key_id = AKIA1\naws_secret_access_key = CANARY\n"
OURS = PermittedSources(
    accounts=frozenset({"111122223333"}), files=frozenset({TOKEN_FILE})
)

READ: list[tuple[str, str, AwsCredential]] = [
    (
        "the worker's own role",
        "[default]\ncredential_source = Worker",
        AwsCredential(),
    ),
    (
        "a role that the worker assumes",
        f"[default]\nrole_arn = {ROLE}\nexternal_id = {EXTERNAL}",
        AwsCredential(role=AssumedRole(ROLE, "111122223333", EXTERNAL)),
    ),
    (
        "the same with its source",
        f"[default]\nrole_arn = {ROLE}\ncredential_source = Worker",
        AwsCredential(role=AssumedRole(ROLE, "111122223333")),
    ),
    (
        "a role that is assumed with a token of the worker",
        f"[default]\nrole_arn = {ROLE}\nweb_identity_token_file = {TOKEN_FILE}",
        AwsCredential(role=AssumedRole(ROLE, "111122223333", token_file=TOKEN_FILE)),
    ),
    (
        "a role that keys assume",
        (
            f"[default]\nrole_arn = {ROLE}\nexternal_id = {EXTERNAL}\n"
            f"source_profile = keys\n[keys]\n{KEYS}"
        ),
        AwsCredential(
            "AKIA1", "CANARY", None, AssumedRole(ROLE, "111122223333", EXTERNAL)
        ),
    ),
    ("keys", f"[default]\n{KEYS}", AwsCredential("AKIA1", "CANARY")),
]


@pytest.mark.parametrize(
    ("text", "read"), [row[1:] for row in READ], ids=[row[0] for row in READ]
)
def test_a_credential_is_read(text: str, read: AwsCredential) -> None:
    found = read_credential(text, OURS)
    assert found == read
    assert "CANARY" not in repr(found)
    assert EXTERNAL not in repr(found)


FOREIGN = ROLE.replace("111122223333", "444455556666")
REFUSED = [
    (
        f"role_arn = {FOREIGN}",
        (
            "role_arn without source_profile makes the credential use the worker's own "
            'identity in account or project "444455556666", which '
            "provision.workerIdentityAccounts does not name"
        ),
    ),
    (
        f"role_arn = {FOREIGN}\nweb_identity_token_file = {TOKEN_FILE}",
        'in account or project "444455556666"',
    ),
    (
        f"role_arn = {ROLE}\nweb_identity_token_file = /etc/shadow",
        (
            'web_identity_token_file names the file "/etc/shadow", which '
            "provision.tokenFiles does not name"
        ),
    ),
    (
        f"role_arn = {ROLE}\nweb_identity_token_file = {TOKEN_FILE}/../token",
        "which provision.tokenFiles does not name",
    ),
    ("role_arn = arn:aws:iam::1:role/x", "role_arn is not the ARN of a role"),
    (
        "role_arn = arn:aws:iam::111122223333:user/x",
        "role_arn is not the ARN of a role",
    ),
    (f"role_arn = {ROLE}\nexternal_id = a b", "external_id has other characters"),
    (
        f"role_arn = {ROLE}\ncredential_source = Ec2InstanceMetadata",
        "credential_source is not Worker",
    ),
    (
        f"role_arn = {ROLE}\n{KEYS}",
        "aws_access_key_id does not go with role_arn; remove one of them",
    ),
    (
        f"role_arn = {ROLE}\nsource_profile = default",
        "source_profile names no other profile of the text",
    ),
    (
        f"role_arn = {ROLE}\nsource_profile = x\n[x]\nrole_arn = {ROLE}",
        "profile [x] has no aws_access_key_id",
    ),
    (
        f"role_arn = {ROLE}\nsource_profile = x\ncredential_source = Worker\n[x]\n{KEYS}",
        "credential_source does not go with source_profile",
    ),
    ("credential_source = Worker\n" + KEYS, "does not go with credential_source"),
    (f"endpoint_url = http://169.254.169.254\n{KEYS}", "endpoint_url is not supported"),
    (
        f"credential_process = sh\nrole_arn = {ROLE}",
        "credential_process is not supported",
    ),
]


@pytest.mark.parametrize(("lines", "why"), REFUSED, ids=[row[1] for row in REFUSED])
def test_a_role_is_refused_with_field_and_next_step(lines: str, why: str) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        read_credential(f"[default]\n{lines}", OURS)
    assert why in caught.value.message
    assert "CANARY" not in caught.value.message


# At the fake


def provider(aws: FakeAws, lines: str, **permitted: frozenset[str]) -> EksProvider:
    return EksProvider(
        f"[default]\n{lines}",
        aws.region,
        EksSettings(),
        aws.url,
        permitted=PermittedSources(**permitted),
    )


def of_user(aws: FakeAws) -> str:
    keys = aws.credential.text.replace("[default]", "[keys]")
    return f"source_profile = keys\n{keys}"


def account_of(aws: FakeAws) -> CloudAccount:
    return CloudAccount(
        provider="EKS",
        cluster="prod",
        cluster_uid="u",
        secret="eks-x",  # noqa: S106
        region=aws.region,
        installation="i",
    )


def of_account(aws: FakeAws) -> frozenset[str]:
    return frozenset({aws.account.number})


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without any identity of AWS."""
    for name in (
        "AWS_ROLE_ARN",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(
        InstanceMetadataFetcher,
        "retrieve_iam_role_credentials",
        lambda _: {},
    )


@pytest.mark.slow
def test_keys_assume_a_role_with_an_external_id(aws: FakeAws, world: World) -> None:
    arn = aws.plant_role(
        "planes", principal=aws.credential.principal, external_id=EXTERNAL
    )
    role = f"role_arn = {arn}\n"
    made = provider(aws, f"{role}external_id = {EXTERNAL}\n{of_user(aws)}")
    made.pinned(account_of(aws))
    last = aws.ledger("GetCallerIdentity")[-1]
    assert last.principal.endswith(":assumed-role/planes/modelplane")
    token = made.token(world.account).text
    cluster = made.cloud_cluster(world.account)
    assert aws.verify_token(token, cluster).principal == last.principal
    with pytest.raises(CredentialsInvalid) as caught:
        provider(aws, f"{role}{of_user(aws)}").pinned(account_of(aws))
    assert caught.value.message == (
        "sts AssumeRole: AccessDenied: User: "
        f"{aws.credential.principal} is not authorized to perform: sts:AssumeRole on "
        f"resource: {arn}; the trust policy of the role must name the identity that "
        "assumes it, and the external ID of the credential"
    )


@pytest.mark.slow
def test_a_token_file_is_read_at_each_exchange(aws: FakeAws, tmp_path: Path) -> None:
    file = tmp_path / "token"
    arn = aws.plant_role("irsa", token="CANARY-1")  # noqa: S106
    lines = f"role_arn = {arn}\nweb_identity_token_file = {file}"
    permitted = {"accounts": of_account(aws), "files": frozenset({str(file)})}
    with pytest.raises(CredentialsInvalid, match=r"FileNotFoundError.*mount the token"):
        provider(aws, lines, **permitted).pinned(account_of(aws))
    file.write_text("CANARY-0")
    with pytest.raises(CredentialsInvalid, match="InvalidIdentityToken") as caught:
        provider(aws, lines, **permitted).pinned(account_of(aws))
    assert "CANARY" not in caught.value.message
    file.write_text("CANARY-1")
    provider(aws, lines, **permitted).pinned(account_of(aws))
    assert "/irsa/" in aws.ledger("GetCallerIdentity")[-1].principal


class _Metadata(BaseHTTPRequestHandler):
    """The agent of a container, which demands the token of the pod."""

    answer: dict[str, Any]

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "pod token"
        self.send_response(200 if known else 403)
        self.end_headers()
        self.wfile.write(json.dumps(self.answer).encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@pytest.fixture
def container(
    aws: FakeAws, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[None]:
    """The agent of EKS Pod Identity, on this machine."""
    session = aws.account.role_session("pod")
    _Metadata.answer = {
        "AccessKeyId": session.access_key,
        "SecretAccessKey": session.secret_key,
        "Token": session.session_token,
        "Expiration": "2999-01-01T00:00:00Z",
    }
    (tmp_path / "pod").write_text("pod token")
    with HTTPServer(("127.0.0.1", 0), _Metadata) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1/credentials"
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url)
        monkeypatch.setenv(
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "pod")
        )
        yield
        server.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("nowhere", "container")
def test_the_worker_identity_is_web_identity_then_container_then_instance(
    aws: FakeAws,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def role() -> str:
        made = provider(aws, "credential_source = Worker", accounts=of_account(aws))
        made.pinned(account_of(aws))
        return aws.ledger("GetCallerIdentity")[-1].principal.split("/")[1]

    session = aws.account.role_session("machine")
    metadata = {
        "role_name": "machine",
        "access_key": session.access_key,
        "secret_key": session.secret_key,
        "token": session.session_token,
        "expiry_time": "2999-01-01T00:00:00Z",
    }
    monkeypatch.setattr(
        InstanceMetadataFetcher,
        "retrieve_iam_role_credentials",
        lambda _: metadata,
    )
    (tmp_path / "web").write_text("CANARY")
    arn = aws.plant_role("irsa", token="CANARY")  # noqa: S106
    monkeypatch.setenv("AWS_ROLE_ARN", arn)
    monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "web"))
    found = [role()]
    monkeypatch.delenv("AWS_WEB_IDENTITY_TOKEN_FILE")
    found.append(role())
    monkeypatch.delenv("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    found.append(role())
    assert found == ["irsa", "pod", "machine"]


@pytest.mark.slow
@pytest.mark.usefixtures("nowhere", "container")
async def test_the_worker_identity_is_used_in_named_accounts_only(
    aws: FakeAws,
) -> None:
    text = "[default]\ncredential_source = Worker"
    before = len(aws.ledger())
    with pytest.raises(CredentialsInvalid) as caught:
        provider(aws, "credential_source = Worker").pinned(account_of(aws))
    assert caught.value.message == (
        "credential_source = Worker makes the credential use the worker's own identity in "
        f'account or project "{aws.account.number}", which '
        "provision.workerIdentityAccounts does not name: an administrator of the control "
        "plane adds it there, or use another credential"
    )
    asked = [each.operation for each in aws.ledger()[before:]]
    assert asked == ["GetCallerIdentity"], "nothing else is asked"
    identities = CloudIdentities(
        aws=lambda credential, region: AwsClients(credential, region, aws.url)
    )
    name = f"arn:aws:eks:{aws.region}:{aws.account.number}:cluster/prod"
    with pytest.raises(CredentialsInvalid, match="workerIdentityAccounts"):
        await identities.reach(AWS, text, name, "https://x.invalid")


@pytest.mark.slow
@pytest.mark.usefixtures("nowhere")
def test_a_worker_without_an_identity_says_so(aws: FakeAws) -> None:
    with pytest.raises(CredentialsInvalid, match="the worker has none: give it a role"):
        provider(aws, "credential_source = Worker", accounts=of_account(aws)).pinned(
            account_of(aws)
        )


@pytest.mark.slow
def test_root_credentials_are_refused(aws: FakeAws) -> None:
    keys = aws.account.root().text.removeprefix("[default]\n")
    with pytest.raises(CredentialsInvalid) as caught:
        provider(aws, keys).pinned(account_of(aws))
    assert caught.value.message == (
        f"the credential is the root user of AWS account {aws.account.number}, which no "
        "policy limits; create a role with the policies of deploy/clouds/aws, store it as "
        "role_arn, and delete the keys of the root user"
    )
