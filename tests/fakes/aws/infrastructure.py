"""The infrastructure of a cluster, created with boto3 for tests of other things."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.exceptions import ClientError

from fakes.aws.fake import FakeAws

CLUSTER = "columbus"
POLICIES = "arn:aws:iam::aws:policy/"


def code(call: Callable[..., Any], **arguments: Any) -> str:
    """Call, and return the code of the expected error."""
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return str(raised.value.response["Error"]["Code"])


def trust(service: str) -> str:
    """Return a document that lets a service assume a role."""
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass
class Infrastructure:
    """A VPC with a way out, and roles."""

    aws: FakeAws
    vpc: str = ""
    gateway: str = ""
    address: str = ""
    nat: str = ""
    public: list[str] = field(default_factory=list)
    private: list[str] = field(default_factory=list)
    tables: list[str] = field(default_factory=list)
    roles: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ec2, self.eks, self.iam = (
            self.aws.client(each) for each in ("ec2", "eks", "iam")
        )
        self.efs = self.aws.client("efs")

    def build(self, *, way_out: bool = True) -> "Infrastructure":
        """Create everything.

        Without a way out there is no NAT gateway, so no node joins.
        """
        self.network()
        if way_out:
            self.routes()
        for name, service in (
            ("cluster", "eks"),
            ("node", "ec2"),
            ("pods", "pods.eks"),
        ):
            self.roles[name] = self.role(name, f"{service}.amazonaws.com")
        return self

    def network(self) -> None:
        """Create the VPC, subnets in two zones, and the internet gateway."""
        self.vpc = self.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
        for index, letter in enumerate("ab"):
            zone = f"{self.aws.region}{letter}"
            for tier, ids in ((0, self.public), (3, self.private)):
                block = f"10.0.{16 * (tier + index)}.0/20"
                made = self.ec2.create_subnet(
                    VpcId=self.vpc, CidrBlock=block, AvailabilityZone=zone
                )
                ids.append(made["Subnet"]["SubnetId"])
        self.gateway = self.ec2.create_internet_gateway()["InternetGateway"][
            "InternetGatewayId"
        ]
        self.ec2.attach_internet_gateway(InternetGatewayId=self.gateway, VpcId=self.vpc)

    def routes(self) -> None:
        """Create the NAT gateway, and the routes of the public and the private subnets."""
        self.address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        self.nat = self.ec2.create_nat_gateway(
            SubnetId=self.public[0], AllocationId=self.address
        )["NatGateway"]["NatGatewayId"]
        self.until(self.nat_state, "available")
        for subnets, gateway in (
            (self.public, {"GatewayId": self.gateway}),
            (self.private, {"NatGatewayId": self.nat}),
        ):
            table = self.ec2.create_route_table(VpcId=self.vpc)["RouteTable"][
                "RouteTableId"
            ]
            self.ec2.create_route(
                RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", **gateway
            )
            for each in subnets:
                self.ec2.associate_route_table(RouteTableId=table, SubnetId=each)
            self.tables.append(table)

    def role(self, name: str, service: str) -> str:
        """Create a role, and return its ARN."""
        return str(
            self.iam.create_role(
                RoleName=name, AssumeRolePolicyDocument=trust(service)
            )["Role"]["Arn"]
        )

    def create_cluster(self, name: str = CLUSTER, **more: Any) -> dict[str, Any]:
        """Create a control plane, and return it as in the answer."""
        network = {"subnetIds": [*self.public, *self.private]}
        access = {"authenticationMode": "API_AND_CONFIG_MAP"}
        arguments = {
            "roleArn": self.roles["cluster"],
            "resourcesVpcConfig": network,
            "accessConfig": access,
            **more,
        }
        return dict(self.eks.create_cluster(name=name, **arguments)["cluster"])

    def ready_cluster(self) -> "Infrastructure":
        """Create a control plane and wait for it."""
        self.create_cluster()
        self.until(self.cluster_state, "ACTIVE")
        return self

    def create_group(self, name: str = "l4", **more: Any) -> dict[str, Any]:
        """Create a node group, and return it as in the answer."""
        scaling = {"minSize": 1, "maxSize": 4, "desiredSize": 2}
        arguments = {
            "nodeRole": self.roles["node"],
            "subnets": self.private,
            "scalingConfig": scaling,
            **more,
        }
        return dict(
            self.eks.create_nodegroup(
                clusterName=CLUSTER, nodegroupName=name, **arguments
            )["nodegroup"]
        )

    def ready_group(self, name: str = "l4", **more: Any) -> "Infrastructure":
        """Create a node group and wait for it."""
        self.create_group(name, **more)
        self.until(lambda: self.group_state(name), "ACTIVE")
        return self

    def nat_state(self) -> str:
        """Return the state of the NAT gateway."""
        return str(
            self.ec2.describe_nat_gateways(NatGatewayIds=[self.nat])["NatGateways"][0][
                "State"
            ]
        )

    def cluster_state(self) -> str:
        """Return the state of the control plane, or `gone`."""
        return self._state(lambda: self.eks.describe_cluster(name=CLUSTER)["cluster"])

    def group(self, name: str = "l4") -> dict[str, Any]:
        """Return a node group."""
        return dict(
            self.eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=name)[
                "nodegroup"
            ]
        )

    def group_state(self, name: str = "l4") -> str:
        """Return the state of a node group, or `gone`."""
        return self._state(lambda: self.group(name))

    def add_on_state(self, name: str) -> str:
        """Return the state of an add-on, or `gone`."""
        return self._state(
            lambda: self.eks.describe_addon(clusterName=CLUSTER, addonName=name)[
                "addon"
            ]
        )

    def _state(self, read: Callable[[], dict[str, Any]]) -> str:
        try:
            return str(read()["status"])
        except self.eks.exceptions.ResourceNotFoundException:
            return "gone"

    def until(self, read: Callable[[], str], wanted: str, reads: int = 8) -> list[str]:
        """Read until a state is reached, and return all states.

        States change with reads, so no pause is needed.
        """
        seen: list[str] = []
        while not seen or seen[-1] != wanted:
            assert len(seen) < reads, f"{seen} and not {wanted}"
            seen.append(read())
        return seen
