"""Faults of the fake account, and their ledger entries."""

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ConnectionClosedError, ReadTimeoutError

from fakes.aws.fake import FakeAws
from fakes.aws.faults import QUOTAS, AwsFault, FaultKind, random_script
from fakes.aws.ledger import HIDDEN, AwsLedger
from fakes.aws.troubles import TROUBLES
from fakes.aws.wire import SERVICES
from tests.fakes.aws.infrastructure import Infrastructure, code, trust
from tests.random_cases import generator

pytestmark = pytest.mark.slow

TAGS = [
    {
        "ResourceType": "vpc",
        "Tags": [{"Key": "modelplane.ai/owner", "Value": "1234abcd"}],
    }
]


def vpcs(aws: FakeAws) -> list[str]:
    """Return the VPCs with the test's tag."""
    filters = [{"Name": "tag:modelplane.ai/owner", "Values": ["1234abcd"]}]
    return [
        each["VpcId"]
        for each in aws.client("ec2").describe_vpcs(Filters=filters)["Vpcs"]
    ]


def create_vpc(aws: FakeAws, **config: Any) -> str:
    """Create a VPC with the test's tag."""
    return str(
        aws.client("ec2", **config).create_vpc(
            CidrBlock="10.0.0.0/16", TagSpecifications=TAGS
        )["Vpc"]["VpcId"]
    )


def test_the_first_calls_are_throttled_with_the_error_of_each_service(
    aws: FakeAws,
) -> None:
    aws.fault(AwsFault(FaultKind.THROTTLE, times=3))
    calls: list[Callable[[], Any]] = [
        aws.client("ec2").describe_vpcs,
        aws.client("iam").list_roles,
        aws.client("eks").list_clusters,
        aws.client("efs").describe_file_systems,
    ]
    assert [code(each) for each in calls[:3]] == [
        "RequestLimitExceeded",
        "Throttling",
        "ThrottlingException",
    ]
    calls[3]()


def test_the_retries_of_boto3_pass_a_throttle(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.THROTTLE, "CreateVpc"))
    create_vpc(aws, retries={"total_max_attempts": 3, "mode": "standard"})
    assert [each.error for each in aws.ledger("CreateVpc")] == [
        "RequestLimitExceeded",
        "",
    ]


def test_a_response_is_lost_after_the_effect(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.LOSE_ANSWER, "CreateVpc"))
    with pytest.raises(ConnectionClosedError):
        create_vpc(aws)
    assert len(vpcs(aws)) == 1
    entry = aws.ledger("CreateVpc")[0]
    assert (entry.lost, entry.error, entry.answer_id) == (True, "", vpcs(aws)[0])


def test_an_internal_error_comes_after_the_effect(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.LATE_ERROR, "CreateVpc"))
    assert code(create_vpc, aws=aws) == "InternalFailure"
    assert len(vpcs(aws)) == 1
    assert aws.made("CreateVpc") == 1


def test_a_call_beyond_a_quota_is_rejected(aws: FakeAws) -> None:
    aws.fault(
        AwsFault(FaultKind.REFUSE, "CreateVpc", code=QUOTAS["CreateVpc"], times=2)
    )
    assert [code(create_vpc, aws=aws) for _ in range(2)] == ["VpcLimitExceeded"] * 2
    create_vpc(aws)
    assert aws.made("CreateVpc") == 1


def test_a_new_object_is_not_found_for_some_reads(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.INVISIBLE, "CreateVpc", times=2))
    made = create_vpc(aws)
    assert [vpcs(aws) for _ in range(3)] == [[], [], [made]]


def test_an_object_that_is_not_visible_yet_cannot_be_used(aws: FakeAws) -> None:
    aws.fault(
        AwsFault(FaultKind.INVISIBLE, "CreateVpc"),
        AwsFault(FaultKind.INVISIBLE, "CreateRole"),
    )
    made = create_vpc(aws)
    ec2, iam = aws.client("ec2"), aws.client("iam")
    assert (
        code(ec2.create_subnet, VpcId=made, CidrBlock="10.0.0.0/20")
        == "InvalidVpcID.NotFound"
    )
    ec2.create_subnet(VpcId=made, CidrBlock="10.0.0.0/20")
    iam.create_role(
        RoleName="node", AssumeRolePolicyDocument=trust("ec2.amazonaws.com")
    )
    assert code(iam.get_role, RoleName="node") == "NoSuchEntity"
    iam.get_role(RoleName="node")


@pytest.mark.parametrize(
    "kind", ["subnet", "gateway", "address", "group", "table", "system"]
)
def test_each_kind_of_object_can_be_invisible(aws: FakeAws, kind: str) -> None:
    cloud = Infrastructure(aws)
    cloud.network()
    ec2, efs = cloud.ec2, cloud.efs
    vpc: dict[str, Any] = {"VpcId": cloud.vpc}
    cases: dict[str, tuple[str, Callable[[], Any], Callable[[], list[Any]]]] = {
        "subnet": (
            "CreateSubnet",
            lambda: ec2.create_subnet(**vpc, CidrBlock="10.0.96.0/20"),
            lambda: ec2.describe_subnets()["Subnets"],
        ),
        "gateway": (
            "CreateInternetGateway",
            ec2.create_internet_gateway,
            lambda: ec2.describe_internet_gateways()["InternetGateways"],
        ),
        "address": (
            "AllocateAddress",
            lambda: ec2.allocate_address(Domain="vpc"),
            lambda: ec2.describe_addresses()["Addresses"],
        ),
        "group": (
            "CreateSecurityGroup",
            lambda: ec2.create_security_group(GroupName="g", Description="g", **vpc),
            lambda: ec2.describe_security_groups()["SecurityGroups"],
        ),
        "table": (
            "CreateRouteTable",
            lambda: ec2.create_route_table(**vpc),
            lambda: ec2.describe_route_tables()["RouteTables"],
        ),
        "system": (
            "CreateFileSystem",
            lambda: efs.create_file_system(CreationToken="t"),
            lambda: efs.describe_file_systems()["FileSystems"],
        ),
    }
    operation, create, read = cases[kind]
    before = len(read())
    aws.fault(AwsFault(FaultKind.INVISIBLE, operation))
    create()
    assert [len(read()) - before for _ in range(2)] == [0, 1]


def test_an_object_vanishes_after_some_reads(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.VANISH, "CreateVpc", times=2))
    create_vpc(aws)
    assert [len(vpcs(aws)) for _ in range(3)] == [1, 0, 0]


def test_something_depends_on_an_object_for_some_deletes(aws: FakeAws) -> None:
    made = create_vpc(aws)
    aws.fault(AwsFault(FaultKind.HOLD, "DeleteVpc", times=2))
    delete = aws.client("ec2").delete_vpc
    assert [code(delete, VpcId=made) for _ in range(2)] == ["DependencyViolation"] * 2
    delete(VpcId=made)


def test_an_answer_comes_too_late_for_the_client(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.SLOW, "CreateVpc", seconds=3600))
    with pytest.raises(ReadTimeoutError):
        create_vpc(aws, read_timeout=1)
    assert len(vpcs(aws)) == 1


def test_a_fault_skips_calls_and_matches_a_parameter(aws: FakeAws) -> None:
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            "CreateVpc",
            match="10.1.0.0/16",
            skip=1,
            code="VpcLimitExceeded",
        )
    )
    create = aws.client("ec2").create_vpc
    for block in ("10.0.0.0/16", "10.1.0.0/16", "10.0.0.0/16"):
        create(CidrBlock=block)
    assert len(aws.faults_left()) == 1
    assert code(create, CidrBlock="10.1.0.0/16") == "VpcLimitExceeded"
    assert aws.faults_left() == []


def test_credentials_are_rejected_and_accepted_again(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.CREDENTIAL, skip=1))
    create_vpc(aws)
    assert code(aws.client("eks").list_clusters) == "UnrecognizedClientException"
    aws.client("eks").list_clusters()
    aws.revoke()
    assert code(aws.client("ec2").describe_vpcs) == "AuthFailure"
    aws.restore()
    assert len(vpcs(aws)) == 1


def test_the_ledger_has_each_call_with_parameters_and_no_secrets(aws: FakeAws) -> None:
    made = create_vpc(aws)
    code(aws.client("ec2").delete_subnet, SubnetId="subnet-00000000")
    created, deleted = aws.ledger()
    assert (
        created.service,
        created.operation,
        created.answer_id,
        created.principal,
    ) == (
        "ec2",
        "CreateVpc",
        made,
        aws.credential.principal,
    )
    assert created.parameters["TagSpecifications"] == TAGS
    assert (deleted.error, deleted.effective) == ("InvalidSubnetID.NotFound", False)
    assert aws.credential.secret_key not in str(aws.ledger())
    entry = AwsLedger().add(
        "iam",
        "CreateLoginProfile",
        {"UserName": "a", "Password": "b", "More": [{"SecretKey": "c"}]},
    )
    assert entry.parameters == {
        "UserName": "a",
        "Password": HIDDEN,
        "More": [{"SecretKey": HIDDEN}],
    }


def test_a_service_that_the_account_does_not_have_is_refused(aws: FakeAws) -> None:
    assert "sqs" not in SERVICES
    assert code(aws.client("sqs").list_queues) != ""
    assert "no service sqs" in aws.ledger()[-1].error


def test_a_reset_forgets_everything(aws: FakeAws) -> None:
    create_vpc(aws)
    aws.fault(AwsFault(FaultKind.SLOW, seconds=60))
    aws.reset()
    assert (aws.remains(), aws.ledger(), aws.faults_left()) == ([], [], [])
    assert vpcs(aws) == []


def test_accounts_in_one_process_have_nothing_of_each_other(aws: FakeAws) -> None:
    create_vpc(aws)
    with FakeAws() as other:
        assert vpcs(other) == []
        assert other.remains() == []
    assert len(vpcs(aws)) == 1


def test_random_scripts_repeat_and_survive_json() -> None:
    zones = ["us-east-2a", "us-east-2b"]
    dice = generator()
    scripts = [
        random_script(generator(), 20, zones),
        random_script(dice, 20, zones),
        random_script(dice, 20, zones),
    ]
    assert scripts[0] == scripts[1] != scripts[2]
    assert [AwsFault.parse(each.document()) for each in scripts[0]] == scripts[0]
    drawn = {each.kind for each in random_script(dice, 400, zones)}
    drawn |= {fault.kind for each in TROUBLES.values() for fault in each(dice, zones)}
    assert drawn == set(FaultKind) - {
        FaultKind.SLOW,
        FaultKind.VANISH,
        FaultKind.FOREIGN,
    }
