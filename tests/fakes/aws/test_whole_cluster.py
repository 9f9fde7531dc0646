"""All planned objects of an EKS cluster are created in the fake account and deleted
from it.
"""

import uuid
from collections.abc import Mapping
from typing import Any

import pytest
from botocore.exceptions import ClientError

from activities.clouds.desired.graph import CloudCall, DesiredObject, Fact, arguments
from fakes.aws.fake import FakeAws
from tests.activities.clouds.builders import BLOCK, an_eks_pool, eks
from tests.fakes.aws.infrastructure import code

pytestmark = pytest.mark.slow

PLANNED = eks(
    an_eks_pool("l4"),
    an_eks_pool("efa", className="p5en", fabric={"type": "EFA"}),
    an_eks_pool(
        "block", className="p5en", capacityBlock={"capacityReservationId": BLOCK}
    ),
)
SERVICES = ("ec2", "eks", "iam", "efs")
READS = 10


class Maker:
    """Creates planned objects by their calls one by one, and waits for each by reading
    it.
    """

    def __init__(self, aws: FakeAws) -> None:
        self.aws = aws
        self.facts: dict[tuple[str, str], str] = {}
        self.names: dict[str, str] = {}
        self.clients = {each: aws.client(each) for each in SERVICES}

    def create(self, each: DesiredObject) -> None:
        """Create one object, and wait."""
        for call in each.calls:
            if call.service in SERVICES:
                self._call(each.key, call)
        self._wait(each)

    def _call(self, key: str, call: CloudCall) -> None:
        given = arguments(
            call,
            lambda fact: self.facts[fact.key, fact.name],
            str(uuid.uuid5(uuid.NAMESPACE_URL, key)),
        )
        if key.startswith("access/"):
            # The entry of the cluster's creator exists already.
            given["principalArn"] = self.aws.credential.principal
        if call.operation == "create_access_entry":
            assert (
                code(self.clients["eks"].create_access_entry, **given)
                == "ResourceInUseException"
            )
            return
        answer = getattr(self.clients[call.service], call.operation)(**given)
        for name, path in call.facts.items():
            value: Any = answer
            for part in path.split("."):
                value = value.get(part, "")
            self.facts[key, name] = str(value)

    def _wait(self, each: DesiredObject) -> None:
        for _ in range(READS):
            if self._ready(each):
                return
        raise AssertionError(f"{each.key} is not ready after {READS} reads")

    def _ready(self, each: DesiredObject) -> bool:
        key, kind = each.key, each.key.partition("/")[0]
        eks_client, cluster = self.clients["eks"], self.names.get("cluster", "")
        if key == "net/nat":
            found = self.clients["ec2"].describe_nat_gateways(
                NatGatewayIds=[self.facts[key, "id"]]
            )["NatGateways"][0]
            return bool(found["State"] == "available")
        if key == "efs":
            systems = self.clients["efs"].describe_file_systems(
                FileSystemId=self.facts[key, "id"]
            )["FileSystems"]
            return bool(systems[0]["LifeCycleState"] == "available")
        if key == "efs/mounts":
            targets = self.clients["efs"].describe_mount_targets(
                FileSystemId=self.facts["efs", "id"]
            )["MountTargets"]
            return all(target["LifeCycleState"] == "available" for target in targets)
        if key == "cluster":
            self.names["cluster"] = each.name
            described = eks_client.describe_cluster(name=each.name)["cluster"]
            self.facts[key, "clusterSecurityGroupId"] = described[
                "resourcesVpcConfig"
            ].get("clusterSecurityGroupId", "")
            return bool(described["status"] == "ACTIVE")
        if kind == "pool":
            return bool(
                eks_client.describe_nodegroup(
                    clusterName=cluster, nodegroupName=each.name
                )["nodegroup"]["status"]
                == "ACTIVE"
            )
        if kind == "addon":
            return bool(
                eks_client.describe_addon(clusterName=cluster, addonName=each.name)[
                    "addon"
                ]["status"]
                == "ACTIVE"
            )
        return True


def repeat(call: Any, gone: Mapping[str, str] | tuple[str, ...], **given: Any) -> None:
    """Repeat a deletion until the object is missing."""
    for _ in range(READS):
        try:
            call(**given)
        except ClientError as error:
            if error.response["Error"]["Code"] in gone:
                return
    raise AssertionError(f"{given} is still there after {READS} calls")


def delete_everything(made: Maker) -> None:
    """Delete in the reverse order of the plan, each object until it is gone."""
    ec2, eks_client, iam, efs = (made.clients[each] for each in SERVICES)
    cluster, facts = made.names["cluster"], made.facts
    nothing = ("ResourceNotFoundException",)
    for each in eks_client.list_nodegroups(clusterName=cluster)["nodegroups"]:
        where = {"clusterName": cluster, "nodegroupName": each}
        eks_client.delete_nodegroup(**where)
        repeat(eks_client.describe_nodegroup, nothing, **where)
    eks_client.delete_cluster(name=cluster)
    repeat(eks_client.describe_cluster, nothing, name=cluster)
    for key, _ in [
        each for each in facts if each[0].startswith("lt/") and each[1] == "id"
    ]:
        ec2.delete_launch_template(LaunchTemplateId=facts[key, "id"])
    system = facts["efs", "id"]
    for target in efs.describe_mount_targets(FileSystemId=system)["MountTargets"]:
        efs.delete_mount_target(MountTargetId=target["MountTargetId"])
    for _ in range(READS):
        efs.describe_mount_targets(FileSystemId=system)
    efs.delete_file_system(FileSystemId=system)
    repeat(efs.describe_file_systems, ("FileSystemNotFound",), FileSystemId=system)
    for key in ("sg/efs", "sg/efa"):
        ec2.delete_security_group(GroupId=facts[key, "id"])
    ec2.delete_nat_gateway(NatGatewayId=facts["net/nat", "id"])
    for _ in range(READS):
        ec2.describe_nat_gateways()
    ec2.release_address(AllocationId=facts["net/eip", "id"])
    for key in ("net/routes-public", "net/routes-private"):
        table = facts[key, "id"]
        for each in ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0][
            "Associations"
        ]:
            ec2.disassociate_route_table(AssociationId=each["RouteTableAssociationId"])
        ec2.delete_route_table(RouteTableId=table)
    ec2.detach_internet_gateway(
        InternetGatewayId=facts["net/igw", "id"], VpcId=facts["net/vpc", "id"]
    )
    ec2.delete_internet_gateway(InternetGatewayId=facts["net/igw", "id"])
    for subnet in [value for (key, _), value in facts.items() if key == "net/subnets"]:
        ec2.delete_subnet(SubnetId=subnet)
    ec2.delete_vpc(VpcId=facts["net/vpc", "id"])
    for role in [each["RoleName"] for each in iam.list_roles()["Roles"]]:
        for policy in iam.list_attached_role_policies(RoleName=role)[
            "AttachedPolicies"
        ]:
            iam.detach_role_policy(RoleName=role, PolicyArn=policy["PolicyArn"])
        iam.delete_role(RoleName=role)
    iam.delete_policy(PolicyArn=facts["iam/policy-autoscaler", "arn"])


def test_all_planned_objects_are_created_and_deleted_without_leftovers(
    aws: FakeAws,
) -> None:
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 8)
    made = Maker(aws)
    for each in PLANNED.objects:
        made.create(each)
    assert Fact("cluster", "clusterSecurityGroupId").key in made.names
    assert [each.error for each in aws.ledger() if each.error] == [
        "ResourceInUseException"
    ]
    assert {
        aws.made(each)
        for each in (
            "CreateVpc",
            "CreateNatGateway",
            "CreateCluster",
            "CreateFileSystem",
            "AllocateAddress",
        )
    } == {1}
    assert aws.made("CreateNodegroup") == 4
    assert aws.remains() != []
    delete_everything(made)
    assert aws.remains() == []
