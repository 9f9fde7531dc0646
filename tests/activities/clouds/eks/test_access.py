"""Credentials, their clients, endpoints and tokens."""

import base64
import os
from typing import Any

import pytest

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.credential import read_credential
from activities.clouds.eks.failures import Purpose
from activities.clouds.eks.provider import EksProvider
from activities.clouds.eks.wanted.partitions import dns_suffix_of
from api_types.clock import utc_now
from api_types.errors import CredentialsInvalid, InvalidInput, NotYet
from api_types.messages.clouds import CloudAccount
from api_types.sections.clouds import EksSettings
from fakes.aws.fake import FakeAws
from fakes.aws.signatures import TokenRefused
from tests.activities.clouds import requests
from tests.activities.clouds.eks.world import World, provider_of, world_of

KEY, SECRET, SESSION = (
    "AKIAIOSFODNN7EXAMPLE",
    "wJalrXUtnFEMI/K7MDENG/bPxRfiCY",
    "FwoGZXIvYXdzEXAMPLEsession",
)
TEXT = f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"


def test_a_credential_is_the_profile_default_of_a_shared_credentials_file() -> None:
    found = read_credential(
        f"# mine\n[other]\naws_access_key_id=x\n{TEXT}"
        f"aws_session_token={SESSION}\nregion=us-east-1\n"
    )
    assert (found.key, found.secret, found.session) == (KEY, SECRET, SESSION)
    assert SECRET not in repr(found)
    assert SESSION not in repr(found)


def test_a_percent_sign_in_a_secret_is_literal() -> None:
    assert read_credential(TEXT.replace(SECRET, "50%(x)s%")).secret == "50%(x)s%"  # noqa: S105


BAD = [
    ("", "it has no profile [default]"),
    (f"aws_secret_access_key = {SECRET}", "line 1 is before the first [profile]"),
    (f"[default]\n{SECRET}", "line 2 is not key = value"),
    (f"{TEXT}aws_secret_access_key = {SECRET}", "line 4 repeats a profile or a key"),
    (f"{TEXT}[default]\n", "line 4 repeats a profile or a key"),
    (f"[prod]\naws_secret_access_key = {SECRET}", "it has no profile [default]"),
    (
        f"[default]\naws_secret_access_key = {SECRET}",
        "profile [default] has no aws_access_key_id",
    ),
    (
        f"[default]\naws_access_key_id = {KEY}",
        "profile [default] has no aws_secret_access_key",
    ),
    (
        f"{TEXT}credential_process = /bin/sh",
        (
            "credential_process is not supported; use role_arn, or aws_access_key_id "
            "and aws_secret_access_key"
        ),
    ),
    (
        f"{TEXT}web_identity_token_file = /x",
        "web_identity_token_file does not go with keys; remove one of them",
    ),
    (
        TEXT.replace(SECRET, f"{SECRET} {SECRET}"),
        "aws_secret_access_key is not a key of AWS",
    ),
    (
        TEXT.replace(SECRET, "\x00" + SECRET),
        "aws_secret_access_key is not a key of AWS",
    ),
    (TEXT + "#" * 20_000, "it is larger than 16 KiB"),
]


@pytest.mark.parametrize(("text", "why"), BAD, ids=[why for _, why in BAD])
def test_a_malformed_credential_is_refused_without_its_text(
    text: str, why: str
) -> None:
    with pytest.raises(CredentialsInvalid) as caught:
        read_credential(text)
    assert (
        caught.value.message
        == f"the credential is not the text of a shared-credentials file of AWS: {why}"
    )
    assert SECRET not in repr(caught.value.__cause__)


def test_the_machines_own_credentials_are_never_used(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Profiles, addresses and keys of the worker's user are not used."""
    files = tmp_path / "config"
    files.write_text(
        "[profile x]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = x\n"
        "[default]\nendpoint_url = http://wrong.invalid\n"
    )
    for name, value in {
        "AWS_PROFILE": "missing",
        "AWS_CONFIG_FILE": str(files),
        "AWS_ENDPOINT_URL": "http://wrong.invalid",
        "AWS_ACCESS_KEY_ID": "wrong",
        "AWS_SECRET_ACCESS_KEY": "wrong",
        "AWS_SESSION_TOKEN": "wrong",
    }.items():
        monkeypatch.setitem(os.environ, name, value)
    clients = AwsClients(read_credential(TEXT), "eu-north-1")
    made = clients._client("sts", "get_caller_identity")
    assert made.meta.endpoint_url == "https://sts.eu-north-1.amazonaws.com"
    assert (
        made.meta.config.read_timeout,
        made.meta.config.retries["total_max_attempts"],
        made.meta.config.retries["mode"],
    ) == (
        60,
        3,
        "standard",
    )
    assert made._request_signer._credentials.access_key == KEY
    assert made._request_signer._credentials.token is None


@pytest.mark.slow
def test_parameters_are_validated_before_a_call(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    # Botocore itself validates the parameters, as it does in production.
    monkeypatch.setattr(requests, "problems", lambda *_: [])
    with pytest.raises(InvalidInput, match='Unknown parameter in input: "Colour"'):
        world.provider.clients.call(
            "ec2", "create_vpc", {"Colour": "red"}, Purpose.CREATE
        )


def test_an_invalid_region_is_refused() -> None:
    with pytest.raises(InvalidInput, match="no client for region"):
        AwsClients(read_credential(TEXT), "not a region").read("ec2", "describe_vpcs")


@pytest.mark.slow
def test_a_token_is_signed_for_one_cluster_and_used_for_ten_minutes(
    aws: FakeAws, world: World
) -> None:
    before = len(aws.ledger())
    now = utc_now().timestamp()
    token = world.provider.token(world.account)
    cluster = world.provider.cloud_cluster(world.account)
    assert aws.verify_token(token.text, cluster).principal == aws.credential.principal
    assert now + 590 < token.expires_at < now + 610
    with pytest.raises(TokenRefused):
        aws.verify_token(token.text, "another")
    assert len(aws.ledger()) == before, "no call is made"
    assert token.text not in repr(token)


PARTITIONS = [
    "us-east-2",
    "cn-north-1",
    "us-gov-west-1",
    "us-iso-east-1",
    "us-isob-east-1",
    "us-isof-south-1",
    "eu-isoe-west-1",
    "eusc-de-east-1",
]


@pytest.mark.parametrize("region", PARTITIONS)
def test_hosts_belong_to_the_partition(region: str) -> None:
    host = (
        AwsClients(read_credential(TEXT), region)._client("eks", "x").meta.endpoint_url
    )
    assert (
        host == f"https://eks.{region}.{dns_suffix_of(region)}"
        or region == "us-gov-west-1"
    )


def test_a_token_in_another_partition_uses_its_hosts() -> None:
    provider = EksProvider(TEXT, "cn-north-1", EksSettings())
    account = CloudAccount(
        provider="EKS",
        cluster="prod",
        cluster_uid="u",
        secret="eks-x",  # noqa: S106
        region="cn-north-1",
        installation="i",
    )
    text = provider.token(account).text.removeprefix("k8s-aws-v1.")
    url = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode()
    assert url.startswith("https://sts.cn-north-1.amazonaws.com.cn/?")


@pytest.mark.slow
async def test_the_endpoint_is_returned_once_the_cluster_has_one(
    aws: FakeAws, world: World
) -> None:
    with pytest.raises(NotYet):
        world.provider.endpoint(world.account)
    aws.plant_endpoint(
        world.provider.cloud_cluster(world.account),
        "https://192.0.2.7:6443",
        "LS0tLS1CRUdJTg==",
    )
    desired = world.plan()
    for each in desired.objects:
        if each.key in ("net/vpc", "net/subnets", "iam/cluster", "cluster"):
            await world.ensure(each)
    found = world.provider.endpoint(world.account)
    assert (found.server, found.authority) == ("https://192.0.2.7:6443", "-----BEGIN")


@pytest.mark.slow
def test_the_account_is_pinned_and_another_accounts_credential_is_refused(
    aws: FakeAws, world: World
) -> None:
    assert world.account.project == aws.account.number
    elsewhere = world.account.model_copy(update={"project": "999999999999"})
    with pytest.raises(
        CredentialsInvalid,
        match=f"has a credential of AWS account {aws.account.number}, and the cluster "
        "is in 999999999999",
    ):
        world.provider.handler(elsewhere, "VPC")


@pytest.mark.slow
def test_a_revoked_credential_is_invalid_and_no_object_counts_as_deleted(
    aws: FakeAws, world: World
) -> None:
    (vpc,) = [each for each in world.plan().objects if each.key == "net/vpc"]
    aws.revoke()
    with pytest.raises(CredentialsInvalid) as caught:
        world.look(vpc)
    assert aws.credential.secret_key not in caught.value.message
    with pytest.raises(CredentialsInvalid):
        world_of(aws)
    aws.restore()
    provider_of(aws).pinned(world.account)
