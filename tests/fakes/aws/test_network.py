"""The network of the fake account: AWS's refusals and transitional states."""

from typing import Any

import pytest

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure, code

pytestmark = pytest.mark.slow

OUT = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}


@pytest.fixture
def cloud(aws: FakeAws) -> Infrastructure:
    """Return an account with a VPC, subnets and an internet gateway."""
    made = Infrastructure(aws)
    made.network()
    return made


def address_of(cloud: Infrastructure) -> str:
    """Create an address, and a NAT gateway that uses it."""
    cloud.address = cloud.ec2.allocate_address(Domain="vpc")["AllocationId"]
    made = cloud.ec2.create_nat_gateway(
        SubnetId=cloud.public[0], AllocationId=cloud.address
    )["NatGateway"]
    cloud.nat = made["NatGatewayId"]
    return str(made["State"])


def test_a_nat_gateway_is_pending_then_available_deleting_then_deleted(
    cloud: Infrastructure,
) -> None:
    assert address_of(cloud) == "pending"
    assert cloud.until(cloud.nat_state, "available") == [
        "pending",
        "pending",
        "available",
    ]
    cloud.ec2.delete_nat_gateway(NatGatewayId=cloud.nat)
    assert cloud.until(cloud.nat_state, "deleted") == [
        "deleting",
        "deleting",
        "deleted",
    ]


def test_releasing_an_address_is_forbidden_while_its_nat_gateway_is_deleting(
    cloud: Infrastructure,
) -> None:
    address_of(cloud)
    cloud.until(cloud.nat_state, "available")
    assert code(cloud.ec2.release_address, AllocationId=cloud.address) == "AuthFailure"
    cloud.ec2.delete_nat_gateway(NatGatewayId=cloud.nat)
    # A refusal counts as a read, so retries succeed in the end.
    assert [
        code(cloud.ec2.release_address, AllocationId=cloud.address) for _ in range(3)
    ] == ["AuthFailure"] * 3
    assert cloud.nat_state() == "deleted"
    cloud.ec2.release_address(AllocationId=cloud.address)


def test_a_nat_gateway_that_vanishes_gives_back_its_address(
    cloud: Infrastructure,
) -> None:
    cloud.aws.fault(AwsFault(FaultKind.VANISH, "CreateNatGateway", times=2))
    address_of(cloud)
    for _ in range(2):
        cloud.ec2.describe_nat_gateways()
    assert [
        each
        for each in cloud.aws.remains()
        if "network-interface" in each or "natgateway" in each
    ] == []
    cloud.ec2.create_nat_gateway(SubnetId=cloud.public[0], AllocationId=cloud.address)


def test_a_nat_gateway_without_an_internet_gateway_fails(cloud: Infrastructure) -> None:
    cloud.ec2.detach_internet_gateway(InternetGatewayId=cloud.gateway, VpcId=cloud.vpc)
    address_of(cloud)
    cloud.until(cloud.nat_state, "failed")
    cloud.ec2.release_address(AllocationId=cloud.address)


def test_an_internet_gateway_stays_attached_while_an_address_is_mapped(
    cloud: Infrastructure,
) -> None:
    address_of(cloud)
    where = {"InternetGatewayId": cloud.gateway, "VpcId": cloud.vpc}
    assert code(cloud.ec2.detach_internet_gateway, **where) == "DependencyViolation"
    assert (
        code(cloud.ec2.delete_internet_gateway, InternetGatewayId=cloud.gateway)
        == "DependencyViolation"
    )
    cloud.ec2.delete_nat_gateway(NatGatewayId=cloud.nat)
    cloud.until(cloud.nat_state, "deleted")
    cloud.ec2.detach_internet_gateway(**where)
    assert code(cloud.ec2.detach_internet_gateway, **where) == "Gateway.NotAttached"


def test_a_vpc_has_one_internet_gateway(cloud: Infrastructure) -> None:
    second = cloud.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    assert (
        code(
            cloud.ec2.attach_internet_gateway, InternetGatewayId=second, VpcId=cloud.vpc
        )
        == "InvalidParameterValue"
    )


def test_a_subnet_with_a_nat_gateway_is_not_deleted(cloud: Infrastructure) -> None:
    address_of(cloud)
    assert (
        code(cloud.ec2.delete_subnet, SubnetId=cloud.public[0]) == "DependencyViolation"
    )
    cloud.ec2.delete_subnet(SubnetId=cloud.public[1])


def test_subnets_do_not_overlap(cloud: Infrastructure) -> None:
    where = {"VpcId": cloud.vpc, "CidrBlock": "10.0.0.0/24"}
    assert code(cloud.ec2.create_subnet, **where) == "InvalidSubnet.Conflict"


def test_a_route_table_with_an_association_is_not_deleted(
    cloud: Infrastructure,
) -> None:
    cloud.routes()
    assert (
        code(cloud.ec2.delete_route_table, RouteTableId=cloud.tables[0])
        == "DependencyViolation"
    )
    table = cloud.ec2.describe_route_tables(RouteTableIds=cloud.tables)["RouteTables"][
        0
    ]
    for each in table["Associations"]:
        cloud.ec2.disassociate_route_table(
            AssociationId=each["RouteTableAssociationId"]
        )
    cloud.ec2.delete_route_table(RouteTableId=cloud.tables[0])


def test_a_group_that_an_interface_or_a_rule_uses_is_not_deleted(
    cloud: Infrastructure,
) -> None:
    one, two = (
        cloud.ec2.create_security_group(
            GroupName=each, Description=each, VpcId=cloud.vpc
        )["GroupId"]
        for each in ("one", "two")
    )
    rule = [
        {
            "IpProtocol": "tcp",
            "FromPort": 1,
            "ToPort": 2,
            "UserIdGroupPairs": [{"GroupId": two}],
        }
    ]
    cloud.ec2.authorize_security_group_ingress(GroupId=one, IpPermissions=rule)
    assert code(cloud.ec2.delete_security_group, GroupId=two) == "DependencyViolation"
    cloud.ec2.revoke_security_group_ingress(GroupId=one, IpPermissions=rule)
    cloud.ec2.delete_security_group(GroupId=two)
    interface = cloud.ec2.create_network_interface(
        SubnetId=cloud.private[0], Groups=[one]
    )["NetworkInterface"]["NetworkInterfaceId"]
    assert code(cloud.ec2.delete_security_group, GroupId=one) == "DependencyViolation"
    cloud.ec2.delete_network_interface(NetworkInterfaceId=interface)
    cloud.ec2.delete_security_group(GroupId=one)


def test_a_group_whose_rules_name_itself_is_deleted(cloud: Infrastructure) -> None:
    group = cloud.ec2.create_security_group(
        GroupName="efa", Description="EFA", VpcId=cloud.vpc
    )["GroupId"]
    own = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]}]
    cloud.ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=own)
    cloud.ec2.authorize_security_group_egress(GroupId=group, IpPermissions=own)
    cloud.ec2.revoke_security_group_egress(GroupId=group, IpPermissions=[OUT])
    cloud.ec2.delete_security_group(GroupId=group)


def test_the_default_group_is_not_deleted(cloud: Infrastructure) -> None:
    filters = [{"Name": "vpc-id", "Values": [cloud.vpc]}]
    group = cloud.ec2.describe_security_groups(Filters=filters)["SecurityGroups"][0][
        "GroupId"
    ]
    assert code(cloud.ec2.delete_security_group, GroupId=group) == "CannotDelete"


def test_a_vpc_is_deleted_last(cloud: Infrastructure) -> None:
    for each in (*cloud.public, *cloud.private):
        assert code(cloud.ec2.delete_vpc, VpcId=cloud.vpc) == "DependencyViolation"
        cloud.ec2.delete_subnet(SubnetId=each)
    assert code(cloud.ec2.delete_vpc, VpcId=cloud.vpc) == "DependencyViolation"
    cloud.ec2.detach_internet_gateway(InternetGatewayId=cloud.gateway, VpcId=cloud.vpc)
    cloud.ec2.delete_internet_gateway(InternetGatewayId=cloud.gateway)
    cloud.ec2.delete_vpc(VpcId=cloud.vpc)
    assert cloud.aws.remains() == []


@pytest.mark.parametrize("kind", ["nat", "table", "template"])
def test_a_client_token_gives_the_same_object_and_other_parameters_are_refused(
    cloud: Infrastructure, kind: str
) -> None:
    given: dict[str, Any]
    change: dict[str, Any]
    if kind == "nat":
        address = cloud.ec2.allocate_address(Domain="vpc")["AllocationId"]
        create, given, change = (
            cloud.ec2.create_nat_gateway,
            {"AllocationId": address},
            {"SubnetId": cloud.public[1]},
        )
        given["SubnetId"] = cloud.public[0]
        path = ("NatGateway", "NatGatewayId")
    elif kind == "table":
        create, given, change = (
            cloud.ec2.create_route_table,
            {"VpcId": cloud.vpc},
            {"VpcId": "vpc-00000000"},
        )
        path = ("RouteTable", "RouteTableId")
    else:
        create, given = (
            cloud.ec2.create_launch_template,
            {"LaunchTemplateName": "pool", "LaunchTemplateData": {"InstanceType": "a"}},
        )
        change, path = (
            {"LaunchTemplateData": {"InstanceType": "b"}},
            ("LaunchTemplate", "LaunchTemplateId"),
        )
    one, two = (
        create(**given, ClientToken="token")[path[0]][path[1]] for _ in range(2)
    )
    assert one == two
    assert [each.replayed for each in cloud.aws.ledger()][-2:] == [False, True]
    assert (
        code(create, **{**given, **change}, ClientToken="token")
        == "IdempotentParameterMismatch"
    )


def test_a_repeated_token_returns_the_old_answer_even_after_the_deletion(
    cloud: Infrastructure,
) -> None:
    first = cloud.ec2.create_route_table(VpcId=cloud.vpc, ClientToken="token")[
        "RouteTable"
    ]["RouteTableId"]
    cloud.ec2.delete_route_table(RouteTableId=first)
    assert (
        cloud.ec2.create_route_table(VpcId=cloud.vpc, ClientToken="token")[
            "RouteTable"
        ]["RouteTableId"]
        == first
    )
    assert first not in [
        each["RouteTableId"]
        for each in cloud.ec2.describe_route_tables()["RouteTables"]
    ]


@pytest.mark.parametrize(
    "leftover",
    [VpcLeftover.INTERFACE, VpcLeftover.LOAD_BALANCER, VpcLeftover.GROUP],
)
def test_leftovers_of_a_cluster_block_the_deletion_of_its_network(
    aws: FakeAws, leftover: VpcLeftover
) -> None:
    cloud = Infrastructure(aws).build().ready_cluster().ready_group()
    before = aws.remains()
    aws.fault(AwsFault(FaultKind.LEAK, "DeleteNodegroup", leftover=leftover))
    cloud.eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName="l4")
    cloud.until(cloud.group_state, "gone")
    left = [
        each
        for each in aws.remains()
        if each not in before and not each.startswith("eks/")
    ]
    group = cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["resourcesVpcConfig"][
        "clusterSecurityGroupId"
    ]
    cloud.eks.delete_cluster(name=CLUSTER)
    cloud.until(cloud.cluster_state, "gone")
    if leftover == VpcLeftover.INTERFACE:
        interface = left[0].rpartition("/")[2]
        found = cloud.ec2.describe_network_interfaces(NetworkInterfaceIds=[interface])[
            "NetworkInterfaces"
        ][0]
        assert (found["Description"][:8], found["Status"]) == ("aws-K8S-", "available")
        assert (
            code(cloud.ec2.delete_subnet, SubnetId=cloud.public[0])
            == "DependencyViolation"
        )
        assert (
            code(cloud.ec2.delete_security_group, GroupId=group)
            == "DependencyViolation"
        )
        cloud.ec2.delete_network_interface(NetworkInterfaceId=interface)
    else:
        balancers = cloud.aws.client("elb")
        named = [
            each["LoadBalancerName"]
            for each in balancers.describe_load_balancers()["LoadBalancerDescriptions"]
        ]
        assert len(named) == (leftover == VpcLeftover.LOAD_BALANCER)
        leaked = next(each for each in left if "security-group" in each).rpartition(
            "/"
        )[2]
        found = cloud.ec2.describe_security_groups(GroupIds=[leaked])["SecurityGroups"][
            0
        ]
        assert found["GroupName"].startswith("k8s-elb-")
        for each in named:
            assert (
                balancers.describe_tags(LoadBalancerNames=[each])["TagDescriptions"][0][
                    "Tags"
                ][0]["Value"]
                == "owned"
            )
            balancers.delete_load_balancer(LoadBalancerName=each)
            seen = cloud.until(lambda: str(len(elb_interfaces(cloud))), "0")
            assert seen == ["1", "1", "0"]
        assert (
            code(cloud.ec2.delete_security_group, GroupId=leaked)
            == "DependencyViolation"
        )
        rule = [{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": leaked}]}]
        cloud.ec2.revoke_security_group_ingress(GroupId=group, IpPermissions=rule)
        assert (
            code(cloud.ec2.delete_security_group, GroupId=group)
            == "DependencyViolation"
        )
        cloud.ec2.delete_security_group(GroupId=leaked)
    cloud.ec2.delete_security_group(GroupId=group)
    cloud.ec2.delete_subnet(SubnetId=cloud.private[0])


def elb_interfaces(cloud: Infrastructure) -> list[str]:
    """Return the interfaces of load balancers."""
    found = cloud.ec2.describe_network_interfaces(
        Filters=[{"Name": "vpc-id", "Values": [cloud.vpc]}]
    )["NetworkInterfaces"]
    return [
        each["NetworkInterfaceId"]
        for each in found
        if each["Description"].startswith("ELB ")
    ]


def test_the_zones_of_a_region_have_the_letters_of_aws() -> None:
    with FakeAws("ca-central-1") as aws:
        ec2 = aws.client("ec2")
        filters = [{"Name": "zone-type", "Values": ["availability-zone"]}]
        zones = ec2.describe_availability_zones(Filters=filters)["AvailabilityZones"]
        assert [each["ZoneName"][-1] for each in zones] == ["a", "b", "d"]


def test_zones_have_a_kind_a_state_and_an_opt_in() -> None:
    with FakeAws("us-east-2") as aws:
        aws.cloud.zone_states["us-east-2b"] = "impaired"
        ec2 = aws.client("ec2")

        def shown(**given: Any) -> list[tuple[str, str, str]]:
            zones = ec2.describe_availability_zones(**given)["AvailabilityZones"]
            return [
                (each["ZoneId"], each["State"], each["OptInStatus"]) for each in zones
            ]

        enabled = [
            ("use2-az1", "available", "opt-in-not-required"),
            ("use2-az2", "impaired", "opt-in-not-required"),
            ("use2-az3", "available", "opt-in-not-required"),
            ("bos1-az1", "available", "opted-in"),
        ]
        filters = [
            {"Name": "state", "Values": ["available"]},
            {"Name": "opt-in-status", "Values": ["opt-in-not-required"]},
        ]
        assert (shown(), shown(Filters=filters), shown(AllAvailabilityZones=True)) == (
            enabled,
            [enabled[0], enabled[2]],
            [*enabled, ("chi1-az1", "available", "not-opted-in")],
        )


def test_the_network_cards_of_an_instance_type_are_known(aws: FakeAws) -> None:
    found = aws.client("ec2").describe_instance_types(InstanceTypes=["p5.48xlarge"])[
        "InstanceTypes"
    ][0]
    assert found["NetworkInfo"]["MaximumNetworkCards"] == 32
    assert found["NetworkInfo"]["EfaSupported"]


def test_nat_gateways_are_found_by_tag(cloud: Infrastructure) -> None:
    address_of(cloud)
    other = cloud.ec2.allocate_address(Domain="vpc")["AllocationId"]
    tags = [
        {
            "ResourceType": "natgateway",
            "Tags": [{"Key": "modelplane.ai/owner", "Value": "1234abcd"}],
        }
    ]
    mine = cloud.ec2.create_nat_gateway(
        SubnetId=cloud.public[0], AllocationId=other, TagSpecifications=tags
    )["NatGateway"]["NatGatewayId"]
    found = cloud.ec2.describe_nat_gateways(
        Filter=[{"Name": "tag:modelplane.ai/owner", "Values": ["1234abcd"]}]
    )["NatGateways"]
    assert [each["NatGatewayId"] for each in found] == [mine]
