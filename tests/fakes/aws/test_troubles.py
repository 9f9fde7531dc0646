"""Troubles that last, and changes that people and services of AWS make by hand."""

from collections.abc import Callable

import boto3
import pytest
from botocore.exceptions import ClientError

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from fakes.aws.lasting import LASTING, begin
from fakes.aws.troubles import TROUBLES
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure, code


@pytest.fixture
def cloud(aws: FakeAws) -> Infrastructure:
    """Return an account with a network and roles."""
    return Infrastructure(aws).build()


@pytest.mark.parametrize(
    ("service", "operation", "forbidden", "unavailable"),
    [
        ("ec2", "describe_vpcs", "UnauthorizedOperation", "Unavailable"),
        (
            "eks",
            "list_clusters",
            "AccessDeniedException",
            "ServiceUnavailableException",
        ),
        ("iam", "list_roles", "AccessDenied", "ServiceFailure"),
        ("efs", "describe_file_systems", "AccessDenied", "InternalServerError"),
    ],
)
def test_a_missing_permission_and_an_outage_have_the_codes_of_the_service(
    aws: FakeAws, service: str, operation: str, forbidden: str, unavailable: str
) -> None:
    call = getattr(aws.client(service), operation)
    aws.fault(AwsFault(FaultKind.FORBID), AwsFault(FaultKind.OUTAGE, times=2))
    assert [code(call) for _ in range(3)] == [unavailable, unavailable, forbidden]
    call()


def test_a_missing_permission_has_its_name_in_policies(aws: FakeAws) -> None:
    aws.fault(AwsFault(FaultKind.FORBID))
    with pytest.raises(ClientError, match=r"elasticfilesystem:DescribeFileSystems "):
        aws.client("efs").describe_file_systems()


@pytest.mark.parametrize(
    ("service", "operation", "wanted"),
    [
        ("ec2", "describe_vpcs", "RequestExpired"),
        ("eks", "list_clusters", "InvalidSignatureException"),
        ("sts", "get_caller_identity", "SignatureDoesNotMatch"),
    ],
)
def test_a_wrong_clock_has_the_code_of_the_service(
    aws: FakeAws, service: str, operation: str, wanted: str
) -> None:
    call = getattr(aws.client(service), operation)
    aws.fault(AwsFault(FaultKind.CLOCK))
    assert code(call) == wanted
    call()


def test_lists_may_have_small_pages(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.PAGES, "DescribeSubnets"))
    where = [{"Name": "vpc-id", "Values": [cloud.vpc]}]
    pages = list(cloud.ec2.get_paginator("describe_subnets").paginate(Filters=where))
    assert [len(each["Subnets"]) for each in pages] == [1, 1, 1, 1]
    found = {each["Subnets"][0]["SubnetId"] for each in pages}
    assert found == {*cloud.public, *cloud.private}


def test_somebody_removes_tags(cloud: Infrastructure) -> None:
    tags = [{"Key": "a", "Value": "1"}]
    cloud.ec2.create_tags(Resources=[cloud.vpc, cloud.public[0]], Tags=tags)
    cloud.aws.fault(AwsFault(FaultKind.STRIP, "DescribeVpcs", code="vpc"))
    (vpc,) = cloud.ec2.describe_vpcs(VpcIds=[cloud.vpc])["Vpcs"]
    (subnet,) = cloud.ec2.describe_subnets(SubnetIds=cloud.public[:1])["Subnets"]
    assert (vpc.get("Tags", []), subnet["Tags"]) == ([], tags)


def test_somebody_deletes_a_subnet_that_nothing_uses(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.BY_HAND, "DescribeSubnets"))
    where = [{"Name": "vpc-id", "Values": [cloud.vpc]}]
    left = cloud.ec2.describe_subnets(Filters=where)["Subnets"]
    assert {*cloud.public, *cloud.private} - {each["SubnetId"] for each in left} == {
        cloud.private[1]
    }


@pytest.mark.parametrize("leftover", [VpcLeftover.GUARD_DUTY, VpcLeftover.ENDPOINT])
def test_an_endpoint_blocks_the_deletion_of_its_subnet_until_it_is_gone(
    cloud: Infrastructure, leftover: VpcLeftover
) -> None:
    endpoint = cloud.ready_cluster().aws.leave(CLUSTER, leftover)
    delete = cloud.ec2.delete_vpc_endpoints
    assert delete(VpcEndpointIds=[endpoint])["Unsuccessful"] == []
    for _ in range(4):
        cloud.ec2.describe_vpc_endpoints()
    assert [each for each in cloud.aws.remains() if "vpc-endpoint" in each] == []


def test_the_owners_delete_what_others_created(cloud: Infrastructure) -> None:
    before = cloud.ready_cluster().aws.remains()
    cloud.aws.leave(CLUSTER, VpcLeftover.ENDPOINT)
    cloud.aws.leave(CLUSTER, VpcLeftover.USER_BALANCER)
    cloud.aws.remove_of_others()
    left = [each for each in cloud.aws.remains() if each not in before]
    assert [each.split("/")[1] for each in left] == ["security-group"]


def call(cloud: Infrastructure) -> str:
    """Return the code of a call's error, or `done`."""
    try:
        cloud.eks.list_clusters()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "done"


def created(cloud: Infrastructure) -> str:
    """Return the final state of a new node group, or the code of its problem."""
    name = f"g{len(cloud.aws.ledger('CreateNodegroup'))}"
    cloud.create_group(name, subnets=cloud.private[:1])
    cloud.group_state(name)
    cloud.group_state(name)
    state = cloud.group_state(name)
    issues = cloud.group(name)["health"]["issues"]
    return issues[0]["code"] if issues else state


def running(cloud: Infrastructure) -> str:
    """Return the state of a running node group."""
    if not cloud.aws.made("CreateNodegroup"):
        cloud.ready_group()
    return cloud.group_state()


def page(cloud: Infrastructure) -> str:
    """Return the number of subnets on the first page."""
    return str(len(cloud.ec2.describe_subnets(MaxResults=100)["Subnets"]))


def vpc_seen(cloud: Infrastructure) -> str:
    """Return whether a new VPC is found at once."""
    made = cloud.ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    vpcs = cloud.ec2.describe_vpcs()["Vpcs"]
    return "seen" if made in [each["VpcId"] for each in vpcs] else "hidden"


ENDING = [
    ("stock-out for hours", created, "AsgInstanceLaunchFailures", "ACTIVE"),
    ("one zone out", created, "AsgInstanceLaunchFailures", "ACTIVE"),
    ("403 after a role change", call, "AccessDeniedException", "done"),
    ("long inconsistency", vpc_seen, "hidden", "seen"),
    ("outage", call, "ServiceUnavailableException", "done"),
    ("throttling", call, "ThrottlingException", "done"),
    ("partial pages", page, "1", "7"),
    ("clock skew", call, "InvalidSignatureException", "done"),
    ("NodeCreationFailure", created, "NodeCreationFailure", "ACTIVE"),
    ("DEGRADED after ACTIVE", running, "DEGRADED", "ACTIVE"),
]
LEAVING = ["GuardDuty", "foreign endpoint", "load balancer of a user"]
TAGS, SUBNET = "tags stripped", "subnets deleted by hand"


@pytest.mark.parametrize(("name", "seen", "during", "after"), ENDING)
def test_a_trouble_lasts_until_it_is_ended(
    cloud: Infrastructure,
    name: str,
    seen: Callable[[Infrastructure], str],
    during: str,
    after: str,
) -> None:
    cloud.ready_cluster()
    if seen is running:
        running(cloud)
    end = begin(name, cloud.aws)
    first = [seen(cloud), seen(cloud)]
    end()
    assert (first, seen(cloud)) == ([during, during], after)
    assert cloud.aws.faults_left() == []


@pytest.mark.parametrize("name", LEAVING)
def test_objects_of_others_are_there_until_their_owners_delete_them(
    cloud: Infrastructure, name: str
) -> None:
    def there() -> list[str]:
        kinds = [each.rpartition("/")[0] for each in cloud.aws.remains()]
        return [each for each in kinds if each.endswith(("endpoint", "balancer"))]

    cloud.ready_cluster()
    end = begin(name, cloud.aws)
    assert len(there()) == 1
    end()
    assert there() == []


def test_a_person_restores_tags_and_no_subnet(cloud: Infrastructure) -> None:
    def tags() -> list[dict[str, str]]:
        (vpc,) = cloud.ec2.describe_vpcs(VpcIds=[cloud.vpc])["Vpcs"]
        return list(vpc.get("Tags", []))

    cloud.ec2.create_tags(Resources=[cloud.vpc], Tags=[{"Key": "a", "Value": "1"}])
    before, end = tags(), begin(TAGS, cloud.aws)
    assert tags() == []
    end()
    assert tags() == before
    begin(SUBNET, cloud.aws)()
    where = [{"Name": "vpc-id", "Values": [cloud.vpc]}]
    assert len(cloud.ec2.describe_subnets(Filters=where)["Subnets"]) == 3


def test_every_trouble_of_a_random_life_can_be_begun_by_hand() -> None:
    tested = {*(each[0] for each in ENDING), *LEAVING, TAGS, SUBNET}
    assert LASTING.keys() == TROUBLES.keys() == tested


def test_a_call_is_for_the_region_of_its_signature() -> None:
    with FakeAws("us-east-2", more_regions=["us-east-1"]) as aws:
        there = boto3.client(
            "ec2",
            "us-east-1",
            endpoint_url=aws.url,
            aws_access_key_id=aws.credential.access_key,
            aws_secret_access_key=aws.credential.secret_key,
        )
        made = there.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
        zones = there.describe_availability_zones()["AvailabilityZones"]
        assert {each["RegionName"] for each in zones} == {"us-east-1"}
        here = [each["VpcId"] for each in aws.client("ec2").describe_vpcs()["Vpcs"]]
        assert (made in here, f"ec2/vpc/{made}" in aws.remains()) == (False, True)
        aws.reset()
        assert aws.remains() == []
