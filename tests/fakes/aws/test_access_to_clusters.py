"""Tokens for clusters of the fake account, their endpoints, and the fake in its own
process.
"""

import base64
import builtins
import calendar
import importlib
import sys
import time
from typing import Any

import boto3
import httpx
import pytest
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from fakes.aws.account import AccessKey
from fakes.aws.fake import FakeAws, MotoMissing
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.remote import started
from fakes.aws.signatures import TOKEN_PREFIX, TOKEN_SECONDS, TokenRefused
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure

pytestmark = pytest.mark.slow

HOST = "sts.us-east-2.amazonaws.com"


def token(
    who: AccessKey,
    cluster: str = CLUSTER,
    *,
    action: str = "GetCallerIdentity",
    host: str = HOST,
    service: str = "sts",
    header: str = "x-k8s-aws-id",
    expires: str = "60",
) -> str:
    """Build a token as clients of EKS do."""
    url = f"https://{host}/?Action={action}&Version=2011-06-15"
    request = AWSRequest("GET", url, headers={header: cluster})
    given = Credentials(who.access_key, who.secret_key, who.session_token)
    SigV4QueryAuth(given, service, "us-east-2", expires=int(expires)).add_auth(request)
    return TOKEN_PREFIX + base64.urlsafe_b64encode(
        str(request.url).encode()
    ).decode().rstrip("=")


def test_a_token_names_its_signer(aws: FakeAws) -> None:
    assert (
        aws.verify_token(token(aws.credential), CLUSTER).principal
        == aws.credential.principal
    )
    session = aws.account.role_session("deployer")
    assert aws.verify_token(token(session), CLUSTER).principal == session.principal


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"cluster": "other"}, "signature is wrong"),
        ({"action": "AssumeRole"}, "another action"),
        ({"host": "example.com"}, "no address of STS"),
        ({"service": "ec2"}, "another service"),
        ({"header": "x-other"}, "signed headers"),
        ({"expires": "901"}, "expires later"),
        ({"action": "GetCallerIdentity&More=1"}, "do not belong there"),
        ({"action": "GetCallerIdentity&action=GetCallerIdentity"}, "or twice"),
    ],
    ids=[
        "another cluster",
        "another action",
        "another host",
        "another service",
        "another header",
        "a long life",
        "one parameter more",
        "one parameter twice",
    ],
)
def test_a_token_for_something_else_is_refused(
    aws: FakeAws, change: dict[str, str], why: str
) -> None:
    with pytest.raises(TokenRefused, match=why):
        aws.verify_token(token(aws.credential, **change), CLUSTER)


def test_a_token_of_an_unknown_or_revoked_key_is_refused(aws: FakeAws) -> None:
    good = aws.credential
    with pytest.raises(TokenRefused, match="signature is wrong"):
        aws.verify_token(
            token(AccessKey(good.access_key, "other", good.principal)), CLUSTER
        )
    session = aws.account.role_session("deployer")
    with pytest.raises(TokenRefused, match="session"):
        aws.verify_token(
            token(
                AccessKey(
                    session.access_key, session.secret_key, session.principal, "other"
                )
            ),
            CLUSTER,
        )
    aws.revoke()
    with pytest.raises(TokenRefused, match="not known"):
        aws.verify_token(token(good), CLUSTER)


def test_a_token_is_accepted_for_fifteen_minutes(aws: FakeAws) -> None:
    made = token(aws.credential)
    with pytest.raises(TokenRefused, match="too old"):
        aws.verify_token(made, CLUSTER, now=4_000_000_000)
    signed = _signed_at(made)
    aws.verify_token(made, CLUSTER, now=signed + TOKEN_SECONDS)
    with pytest.raises(TokenRefused, match="too old"):
        aws.verify_token(made, CLUSTER, now=signed + TOKEN_SECONDS + 1)


def _signed_at(made: str) -> float:
    """Return the second in which a token was signed."""
    address = base64.urlsafe_b64decode(made.removeprefix(TOKEN_PREFIX) + "==").decode()
    date = address.partition("X-Amz-Date=")[2].partition("&")[0]
    return float(calendar.timegm(time.strptime(date, "%Y%m%dT%H%M%SZ")))


@pytest.mark.parametrize(
    "text", ["", "k8s-aws-v1.", "k8s-aws-v1.!!", "k8s-aws-v1.aHR0cDovL2E=", "other"]
)
def test_an_invalid_token_is_rejected(aws: FakeAws, text: str) -> None:
    with pytest.raises(TokenRefused):
        aws.verify_token(text, CLUSTER)


def test_a_token_review_returns_the_access_of_the_account() -> None:
    with FakeAws(role="provisioner") as aws:
        cloud = Infrastructure(aws).build(way_out=False)
        cloud.create_cluster()
        cloud.until(cloud.cluster_state, "ACTIVE")

        def reviewed(text: str) -> Any:
            review = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": text},
            }
            return httpx.post(aws.review_url, json=review, timeout=60).json()["status"]

        entries = cloud.eks.list_access_entries(clusterName=CLUSTER)["accessEntries"]
        (who,) = [each for each in entries if each.endswith("role/provisioner")]
        assert reviewed(token(aws.credential)) == {
            "authenticated": True,
            "user": {"username": who, "groups": ["system:masters"]},
        }
        others = [
            token(aws.credential, "other"),
            token(aws.account.user("nobody")),
            "other",
        ]
        assert [reviewed(each) for each in others] == [{"authenticated": False}] * 3
        (policy,) = cloud.eks.list_associated_access_policies(
            clusterName=CLUSTER, principalArn=who
        )["associatedAccessPolicies"]
        cloud.eks.disassociate_access_policy(
            clusterName=CLUSTER, principalArn=who, policyArn=policy["policyArn"]
        )
        assert reviewed(token(aws.credential))["user"]["groups"] == []


def test_a_cluster_hands_out_the_endpoint_that_is_given_for_it() -> None:
    asked: list[str] = []

    def ready(name: str) -> tuple[str, str]:
        asked.append(name)
        return "https://127.0.0.1:6443", "Q0E="

    with FakeAws(on_cluster_ready=ready) as aws:
        cloud = Infrastructure(aws).build(way_out=False)
        cloud.create_cluster()
        assert asked == []
        cloud.until(cloud.cluster_state, "ACTIVE")
        found = cloud.eks.describe_cluster(name=CLUSTER)["cluster"]
        assert (found["endpoint"], found["certificateAuthority"]["data"], asked) == (
            "https://127.0.0.1:6443",
            "Q0E=",
            [CLUSTER],
        )
        aws.plant_endpoint(CLUSTER, "https://127.0.0.1:6444", "Q0I=")
        assert (
            cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["endpoint"]
            == "https://127.0.0.1:6444"
        )


def test_the_fake_runs_in_a_process_of_its_own() -> None:
    with started("--region", "ca-central-1", "--faults", "3", "--seed", "7") as aws:
        assert len(aws.faults_left()) == 3
        aws.reset()
        lines = dict(line.split(" = ") for line in aws.credential.splitlines()[1:])
        session = boto3.session.Session(
            lines["aws_access_key_id"],
            lines["aws_secret_access_key"],
            region_name=aws.region,
        )
        ec2 = session.client("ec2", endpoint_url=aws.url)
        aws.fault(AwsFault(FaultKind.THROTTLE, "CreateVpc"))
        made = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        assert f"ec2/vpc/{made}" in aws.remains()
        assert [each.error for each in aws.ledger("CreateVpc")] == [
            "RequestLimitExceeded",
            "",
        ]
        aws.reset()
        assert (aws.remains(), aws.ledger(), aws.faults_left()) == ([], [], [])


def test_without_moto_the_fake_names_the_package_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.partition(".")[0] == "moto":
            raise ImportError(f"No module named {name}")
        return real(name, *rest, **more)

    for each in [
        name
        for name in sys.modules
        if name.startswith("fakes.aws.")
        and name.rpartition(".")[2] in ("front", "cloud")
    ]:
        monkeypatch.delitem(sys.modules, each)
    monkeypatch.setattr(builtins, "__import__", missing)
    importlib.import_module("fakes.aws.fake")
    with pytest.raises(MotoMissing, match="pip install"), FakeAws():
        pass
