"""IAM, STS and EFS of the fake account."""

import json

import boto3
import pytest
from botocore.config import Config

from fakes.aws.account import AccessKey
from fakes.aws.cloud import MANAGED_POLICIES, PoliciesMissing
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.services import storage
from tests.fakes.aws.infrastructure import (
    POLICIES,
    Infrastructure,
    code,
    trust,
)

pytestmark = pytest.mark.slow

DOCUMENT = json.dumps(
    {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}],
    }
)


def test_the_managed_policies_of_eks_exist(aws: FakeAws) -> None:
    iam = aws.client("iam")
    iam.create_role(
        RoleName="node", AssumeRolePolicyDocument=trust("ec2.amazonaws.com")
    )
    for each in MANAGED_POLICIES:
        iam.attach_role_policy(RoleName="node", PolicyArn=POLICIES + each)
    assert (
        len(iam.list_attached_role_policies(RoleName="node")["AttachedPolicies"]) == 5
    )


def test_the_fake_does_not_start_without_the_managed_policies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fakes.aws.cloud._LOADING", {})
    with (
        pytest.raises(PoliciesMissing, match="MOTO_IAM_LOAD_MANAGED_POLICIES=true"),
        FakeAws(),
    ):
        pass


def test_a_role_is_deleted_after_its_policies_are_detached(aws: FakeAws) -> None:
    iam = aws.client("iam")
    iam.create_role(
        RoleName="node", AssumeRolePolicyDocument=trust("ec2.amazonaws.com")
    )
    policy = iam.create_policy(PolicyName="own", PolicyDocument=DOCUMENT)["Policy"][
        "Arn"
    ]
    for _ in range(2):
        iam.attach_role_policy(RoleName="node", PolicyArn=policy)
    assert code(iam.delete_role, RoleName="node") == "DeleteConflict"
    assert code(iam.delete_policy, PolicyArn=policy) == "DeleteConflict"
    iam.detach_role_policy(RoleName="node", PolicyArn=policy)
    iam.delete_role(RoleName="node")
    iam.create_policy_version(
        PolicyArn=policy, PolicyDocument=DOCUMENT, SetAsDefault=True
    )
    assert code(iam.delete_policy, PolicyArn=policy) == "DeleteConflict"
    iam.delete_policy_version(PolicyArn=policy, VersionId="v1")
    iam.delete_policy(PolicyArn=policy)
    assert aws.remains() == []


def test_a_role_in_an_instance_profile_is_not_deleted(aws: FakeAws) -> None:
    iam = aws.client("iam")
    iam.create_role(
        RoleName="node", AssumeRolePolicyDocument=trust("ec2.amazonaws.com")
    )
    iam.create_instance_profile(InstanceProfileName="eks")
    iam.add_role_to_instance_profile(InstanceProfileName="eks", RoleName="node")
    assert code(iam.delete_role, RoleName="node") == "DeleteConflict"


def test_the_caller_is_the_principal_of_the_credential(aws: FakeAws) -> None:
    assert (
        aws.client("sts").get_caller_identity()["Arn"]
        == f"arn:aws:iam::{aws.account.number}:user/modelplane"
    )
    session = aws.account.role_session("deployer", "run-1")
    wanted = f"arn:aws:sts::{aws.account.number}:assumed-role/deployer/run-1"
    assert aws.client("sts", session).get_caller_identity()["Arn"] == wanted


@pytest.mark.parametrize(
    ("service", "operation", "wrong_key", "wrong_secret"),
    [
        ("ec2", "describe_vpcs", "AuthFailure", "AuthFailure"),
        ("iam", "list_roles", "InvalidClientTokenId", "SignatureDoesNotMatch"),
        (
            "eks",
            "list_clusters",
            "UnrecognizedClientException",
            "InvalidSignatureException",
        ),
        (
            "efs",
            "describe_file_systems",
            "UnrecognizedClientException",
            "SignatureDoesNotMatch",
        ),
    ],
)
def test_signatures_are_checked(
    aws: FakeAws, service: str, operation: str, wrong_key: str, wrong_secret: str
) -> None:
    good = aws.credential
    for who, wanted in (
        (AccessKey("AKIAUNKNOWN", good.secret_key, good.principal), wrong_key),
        (AccessKey(good.access_key, "other", good.principal), wrong_secret),
        (
            AccessKey(good.access_key, good.secret_key, good.principal, "a session"),
            wrong_key,
        ),
    ):
        session = boto3.session.Session(
            who.access_key, who.secret_key, who.session_token, region_name=aws.region
        )
        client = session.client(
            service,
            endpoint_url=aws.url,
            config=Config(retries={"total_max_attempts": 1}),
        )
        assert code(getattr(client, operation)) == wanted
    getattr(aws.client(service), operation)()


def test_the_credential_is_a_shared_credentials_text(aws: FakeAws) -> None:
    lines = aws.credential.text.splitlines()
    assert lines[0] == "[default]"
    assert f"aws_secret_access_key = {aws.credential.secret_key}" in lines
    assert aws.credential.secret_key not in repr(aws.credential)


@pytest.fixture
def cloud(aws: FakeAws) -> Infrastructure:
    """Return a VPC."""
    made = Infrastructure(aws)
    made.network()
    return made


def file_system(cloud: Infrastructure) -> str:
    """Create a file system."""
    return str(
        cloud.efs.create_file_system(CreationToken="token", Encrypted=True)[
            "FileSystemId"
        ]
    )


def system_state(cloud: Infrastructure) -> str:
    """Return the state of the file system with the token, or `gone`."""
    found = cloud.efs.describe_file_systems(CreationToken="token")["FileSystems"]
    return str(found[0]["LifeCycleState"]) if found else "gone"


def target_states(cloud: Infrastructure, system: str) -> str:
    """Return the states of the mount targets."""
    found = cloud.efs.describe_mount_targets(FileSystemId=system)["MountTargets"]
    return ",".join(each["LifeCycleState"] for each in found) or "gone"


def test_a_file_system_and_its_targets_are_created_and_deleted_in_steps(
    cloud: Infrastructure,
) -> None:
    before = cloud.aws.remains()
    system = file_system(cloud)
    where = {"FileSystemId": system, "SubnetId": cloud.private[0]}
    assert (
        code(cloud.efs.create_mount_target, **where)
        == "IncorrectFileSystemLifeCycleState"
    )
    cloud.until(lambda: system_state(cloud), storage.AVAILABLE)
    target = cloud.efs.create_mount_target(**where)["MountTargetId"]
    states = cloud.until(lambda: target_states(cloud, system), storage.AVAILABLE)
    assert states == ["creating", "creating", "available"]
    assert (
        code(cloud.ec2.delete_subnet, SubnetId=cloud.private[0])
        == "DependencyViolation"
    )
    assert code(cloud.efs.create_mount_target, **where) == "MountTargetConflict"
    assert code(cloud.efs.delete_file_system, FileSystemId=system) == "FileSystemInUse"
    cloud.efs.delete_mount_target(MountTargetId=target)
    assert code(cloud.efs.delete_file_system, FileSystemId=system) == "FileSystemInUse"
    assert cloud.until(lambda: target_states(cloud, system), "gone") == [
        "deleting",
        "deleting",
        "gone",
    ]
    cloud.efs.delete_file_system(FileSystemId=system)
    assert cloud.until(lambda: system_state(cloud), "gone") == [
        "deleting",
        "deleting",
        "gone",
    ]
    assert cloud.aws.remains() == before


def test_a_file_system_is_created_once_per_token(cloud: Infrastructure) -> None:
    file_system(cloud)
    assert (
        code(cloud.efs.create_file_system, CreationToken="token")
        == "FileSystemAlreadyExists"
    )


def test_a_file_system_that_vanishes_takes_its_targets_with_it(
    cloud: Infrastructure,
) -> None:
    before = cloud.aws.remains()
    cloud.aws.fault(AwsFault(FaultKind.VANISH, "CreateFileSystem", times=7))
    system = file_system(cloud)
    cloud.until(lambda: system_state(cloud), storage.AVAILABLE)
    cloud.efs.create_mount_target(FileSystemId=system, SubnetId=cloud.private[0])
    cloud.until(lambda: system_state(cloud), "gone")
    assert cloud.aws.remains() == before
