"""Troubles that last, and changes that people and services of AWS make by hand."""

import pytest

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
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
