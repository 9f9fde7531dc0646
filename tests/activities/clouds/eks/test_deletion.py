"""The deletion of a cluster at a fake AWS, its leftovers, and foreign objects in its
network.
"""

from datetime import timedelta
from typing import Any

import pytest

from activities.clouds.lifecycle.handler import State
from api_types import labels
from api_types.clock import utc_now
from api_types.errors import Dependency, OwnerMarkMissing
from api_types.messages.clouds import Leftover
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from tests.activities.clouds.builders import BLOCK, an_eks_pool
from tests.activities.clouds.eks.test_cases import TO_CLUSTER, TO_NODES, made
from tests.activities.clouds.eks.world import World, world_of

pytestmark = pytest.mark.slow


def swept(world: World, *, emptied: bool = False) -> list[Leftover]:
    """Sweep the cluster's leftovers for at most six rounds, and return the rest."""
    order = world.audit(emptied=emptied)
    for _ in range(6):
        found = list(world.provider.audit(order))
        ours = [each for each in found if each.ours]
        if not ours:
            return found
        for each in ours:
            try:
                world.provider.sweep(order, each)
            except Dependency as error:
                world.reports.append(error.message)
    return list(world.provider.audit(order))


def kinds(left: list[Leftover]) -> list[str]:
    return [each.kind for each in left]


async def test_a_cluster_that_is_being_created_is_waited_for_and_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    handler = world.provider.handler(world.account, "Cluster")
    assert handler is not None
    handler.create(world.wanted(objects["cluster"]))
    await world.delete(objects["cluster"])
    assert (aws.made("CreateCluster"), aws.made("DeleteCluster")) == (1, 1)
    assert [each.error for each in aws.ledger("DeleteCluster")] == [""], (
        "nothing is asked of EKS that it refuses"
    )


async def test_an_address_whose_allocation_response_was_lost_is_released(
    aws: FakeAws, world: World
) -> None:
    (address,) = [each for each in world.plan().objects if each.key == "net/eip"]
    handler = world.provider.handler(world.account, "ElasticIP")
    assert handler is not None
    handler.create(world.wanted(address))
    await world.delete(address)
    assert (aws.made("ReleaseAddress"), aws.remains()) == (1, [])


async def test_without_created_objects_nothing_is_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await world.delete_all(desired.objects)
    await world.delete_all(desired.objects)
    reads = ("Describe", "Get", "List", "Simulate")
    assert [
        each.operation for each in aws.ledger() if not each.operation.startswith(reads)
    ] == []


async def test_the_file_system_goes_after_its_mount_targets(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(
        world, desired, "net/vpc", "net/subnets", "sg/efs", "efs", "efs/mounts"
    )
    await world.delete(objects["efs/mounts"])
    await world.delete(objects["efs"])
    assert [each.error for each in aws.ledger("DeleteFileSystem")] == [""]
    world.attempts_max = 1
    await made(world, desired, "efs", "efs/mounts")
    with pytest.raises(Dependency, match="FileSystemInUse"):
        await world.delete(objects["efs"])


async def test_a_mount_target_of_a_users_file_system_belongs_to_the_user(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "sg/efs", "efs", "efs/mounts")
    efs = aws.client("efs")
    theirs = efs.create_file_system(CreationToken="theirs")["FileSystemId"]
    while (
        efs.describe_file_systems(FileSystemId=theirs)["FileSystems"][0][
            "LifeCycleState"
        ]
        != "available"
    ):
        pass
    subnet = next(
        value
        for value in world.known["net/subnets"].values()
        if value.startswith("subnet-")
    )
    efs.create_mount_target(FileSystemId=theirs, SubnetId=subnet)
    found = [
        each
        for each in world.provider.audit(world.audit())
        if each.kind == "MountTargetInterface"
    ]
    assert {each.ours for each in found if theirs in each.evidence} == {False}
    ours = [each for each in found if theirs not in each.evidence]
    assert (len(ours) > 1, {each.ours for each in ours}) == (True, {True})
    world.known.pop("efs")
    found = list(world.provider.audit(world.audit()))
    assert {each.id for each in ours} <= {each.id for each in found if each.ours}, (
        "by its tag"
    )


def a_copy(aws: FakeAws, system: str, token: str) -> str:
    """Return a file system with another one's tags, as a restore creates it."""
    efs = aws.client("efs")
    (found,) = efs.describe_file_systems(FileSystemId=system)["FileSystems"]
    return str(
        efs.create_file_system(CreationToken=token, Tags=found["Tags"])["FileSystemId"]
    )


async def test_a_file_system_with_our_tags_that_was_restored_is_named_and_stays(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(
        world, desired, "net/vpc", "net/subnets", "sg/efs", "efs", "efs/mounts"
    )
    ours = world.known["efs"]["id"]
    copy = a_copy(aws, ours, "restored")
    assert world.look(objects["efs"]).duplicates == ()
    await world.ensure(objects["efs"])
    await world.delete(objects["efs/mounts"])
    await world.delete(objects["efs"])
    # It does not replace a deleted one either.
    world.known.pop("efs", None)
    await world.delete(objects["efs"])
    left = [each for each in swept(world) if each.kind == "FileSystem"]
    assert [(each.id, each.ours, each.key) for each in left] == [(copy, False, "")]
    assert [
        each["FileSystemId"]
        for each in aws.client("efs").describe_file_systems()["FileSystems"]
    ] == [copy]


async def test_an_empty_second_file_system_with_our_token_is_deleted(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), "efs")
    world.epochs["efs"] = 1
    second = a_copy(aws, world.known["efs"]["id"], world.wanted(objects["efs"]).token)
    assert world.look(objects["efs"]).duplicates == (second,)
    aws.cloud.efs.file_systems_by_id[second]._size_value = 10 * 2**20
    assert world.look(objects["efs"]).duplicates == ()


async def test_an_address_is_released_when_its_gateway_is_gone(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(
        world, desired, "net/vpc", "net/subnets", "net/igw", "net/eip", "net/nat"
    )
    world.attempts_max = 1
    with pytest.raises(Dependency):
        await world.delete(objects["net/eip"])
    world.attempts_max = 40
    await world.delete(objects["net/nat"])
    await world.delete(objects["net/eip"])
    assert aws.made("ReleaseAddress") == 1


async def test_a_blocked_deletion_is_retried(aws: FakeAws, world: World) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    for operation in ("DeleteVpc", "DeleteSubnet", "DeleteRole"):
        aws.fault(AwsFault(FaultKind.HOLD, operation=operation, times=3))
    await world.delete_all(desired.objects)
    assert aws.remains() == []


async def test_a_group_whose_delete_failed_is_deleted_again(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES, "pool/gpu")
    aws.fault(AwsFault(FaultKind.DELETE_FAILED, operation="DeleteNodegroup"))
    await world.delete(objects["pool/gpu"])
    assert aws.made("DeleteNodegroup") == 2


async def test_an_interface_that_a_node_left_is_deleted_once_it_was_unused_for_two_minutes(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_CLUSTER)
    aws.leave(world.provider.cloud_cluster(world.account), VpcLeftover.INTERFACE)
    await world.delete(objects["cluster"])
    world.attempts_max = 2
    with pytest.raises(Dependency):
        await world.delete(objects["net/subnets"])
    found = [
        each
        for each in world.provider.audit(world.audit())
        if each.kind == "NetworkInterface"
    ]
    assert [each.ours for each in found] == [True]
    with pytest.raises(Dependency, match="has been unused for"):
        world.provider.sweep(world.audit(), found[0])
    # New clients, as after a rejected credential, remember it.
    remembered = world.provider._unused_since
    world.restart()
    world.provider._unused_since = remembered
    later = utc_now() + timedelta(seconds=121)
    world.provider.clients.seconds = later.timestamp
    world.provider.sweep(world.audit(), found[0])
    # EKS could not delete the group while the interface used it.
    assert "NetworkInterface" not in kinds(list(world.provider.audit(world.audit())))


async def test_eks_leftovers_of_a_node_group_are_listed_after_the_cluster_is_gone(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES, "pool/gpu")
    cluster = world.provider.cloud_cluster(world.account)
    group, template, profile = aws.leave_nodes(cluster, "gpu")
    named = {"AutoScalingGroup": group, "LaunchTemplate": template}
    assert [
        each
        for each in world.provider.audit(world.audit())
        if each.id in named.values()
    ] == []
    await world.delete_all(desired.objects)
    left = swept(world)
    assert {each.kind: each.id for each in left} == named
    assert {(each.ours, each.key, bool(each.link)) for each in left} == {
        (False, "", True)
    }
    assert {
        "EKS created it for node group gpu and has not deleted it with that"
        in each.evidence
        for each in left
    } == {True}
    # The role's own profile is deleted with it, because nothing else shows its owner
    # later.
    assert world.look(objects["iam/node"]).state is State.ABSENT
    assert (len(aws.remains()), any(profile in each for each in aws.remains())) == (
        2,
        False,
    )
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="DescribeAutoScalingGroups",
            code="AccessDenied",
            message="not authorized",
        )
    )
    assert kinds(list(world.provider.audit(world.audit()))) == ["LaunchTemplate"], (
        "a right that nothing else needs"
    )


async def test_a_profile_that_cannot_be_deleted_does_not_block_its_role(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES, "pool/gpu")
    _, _, profile = aws.leave_nodes(world.provider.cloud_cluster(world.account), "gpu")
    await world.delete(objects["pool/gpu"])
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="DeleteInstanceProfile",
            code="AccessDenied",
            message="not authorized",
        )
    )
    await world.delete(objects["iam/node"])
    assert [each for each in aws.remains() if profile in each] == [
        f"iam/instance-profile/{profile}"
    ]


async def test_nodes_of_a_deleted_cluster_are_listed(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), *TO_CLUSTER)
    tags: Any = [
        {
            "ResourceType": "instance",
            "Tags": [
                {
                    "Key": "eks:cluster-name",
                    "Value": world.provider.cloud_cluster(world.account),
                }
            ],
        }
    ]
    subnet, ec2 = world.known["net/subnets"]["private-us-east-2a"], aws.client("ec2")
    node = ec2.run_instances(
        ImageId="ami-1", MinCount=1, MaxCount=1, SubnetId=subnet, TagSpecifications=tags
    )["Instances"][0]["InstanceId"]
    assert "Instance" not in kinds(list(world.provider.audit(world.audit())))
    await world.delete(objects["cluster"])
    (found,) = [
        each for each in world.provider.audit(world.audit()) if each.kind == "Instance"
    ]
    assert (
        found.id,
        found.ours,
        "a node of this deleted cluster" in found.evidence,
    ) == (node, False, True)


async def test_a_load_balancer_and_its_group_are_swept(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_CLUSTER)
    cluster = world.provider.cloud_cluster(world.account)
    aws.leave(cluster, VpcLeftover.LOAD_BALANCER)
    aws.leave(cluster, VpcLeftover.GROUP)
    found = kinds(list(world.provider.audit(world.audit())))
    assert (
        found.count("ClassicLoadBalancer"),
        found.count("LoadBalancerSecurityGroup"),
    ) == (1, 2)
    await world.delete(objects["cluster"])
    assert swept(world) == []
    assert aws.remains() == []


async def test_objects_missing_in_the_inventory_are_found_by_their_marks_and_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(
        world,
        desired,
        "net/vpc",
        "net/subnets",
        "net/igw",
        "net/eip",
        "sg/efs",
        "iam/cluster",
        "iam/policy-autoscaler",
        "efs",
    )
    lost = world_of(aws)
    found = {each.key: each.ours for each in lost.provider.audit(lost.audit())}
    assert found == dict.fromkeys(
        (
            "efs",
            "net/eip",
            "net/igw",
            "net/subnets",
            "sg/efs",
            "net/vpc",
            "iam/cluster",
            "iam/policy-autoscaler",
        ),
        True,
    )
    assert swept(lost) == []
    assert aws.remains() == []


async def test_unplanned_pools_are_found_by_their_marks_before_their_cluster(
    aws: FakeAws, world: World
) -> None:
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 2, "scheduled")
    pool = an_eks_pool(
        "p5en",
        className="p5en",
        nodeCount=2,
        capacityBlock={"capacityReservationId": BLOCK},
    )
    await made(world, world.plan(pool), *TO_NODES, "lt/p5en", "pool/p5en")
    lost = world_of(aws)
    found = [each for each in lost.provider.audit(lost.audit()) if each.ours]
    kept = [
        (each.kind, each.key)
        for each in found
        if each.kind in ("Nodegroup", "LaunchTemplate", "Cluster")
    ]
    assert kept == [
        ("Nodegroup", "pool/p5en"),
        ("Cluster", "cluster"),
        ("LaunchTemplate", "lt/p5en"),
    ]
    group, cluster, template = (
        next(each for each in found if each.kind == kind) for kind, _ in kept
    )
    with pytest.raises(Dependency, match="is used by node group p5en"):
        lost.provider.sweep(lost.audit(), template)
    with pytest.raises(Dependency):
        lost.provider.sweep(lost.audit(), cluster)
    with pytest.raises(Dependency, match="Nodegroup p5en is being deleted"):
        lost.provider.sweep(lost.audit(), group)
    assert swept(lost) == []
    assert aws.remains() == []


async def test_foreign_objects_in_the_vpc_are_listed_and_kept(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, "net/vpc", "net/subnets")
    ec2 = aws.client("ec2")
    vpc = world.known["net/vpc"]["id"]
    theirs = ec2.create_security_group(GroupName="theirs", Description="x", VpcId=vpc)[
        "GroupId"
    ]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    subnet = world.known["net/subnets"]["private-us-east-2a"]
    interface = ec2.create_network_interface(SubnetId=subnet)["NetworkInterface"][
        "NetworkInterfaceId"
    ]
    world.attempts_max = 2
    with pytest.raises(Dependency):
        await world.delete(objects["net/subnets"])
    foreign = [each for each in world.provider.audit(world.audit()) if not each.ours]
    assert sorted((each.kind, each.id) for each in foreign) == [
        ("InternetGateway", gateway),
        ("NetworkInterface", interface),
        ("RouteTable", table),
        ("SecurityGroup", theirs),
    ]
    assert {each.evidence for each in foreign} == {
        f"in VPC {vpc}, and not of this cluster"
    }
    for each in foreign:
        world.provider.sweep(world.audit(), each)
        world.provider.sweep(world.audit(), each.model_copy(update={"ours": True}))
    ids = {each.id for each in foreign}
    assert {each.id for each in swept(world) if not each.ours} == ids
    ec2.delete_network_interface(NetworkInterfaceId=interface)
    ec2.delete_security_group(GroupId=theirs)
    ec2.delete_route_table(RouteTableId=table)
    ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    ec2.delete_internet_gateway(InternetGatewayId=gateway)
    await world.delete(objects["net/subnets"])
    await world.delete(objects["net/vpc"])
    assert aws.remains() == []


@pytest.mark.parametrize("key", ["net/subnets", "net/igw"])
async def test_a_recorded_object_without_tags_that_the_cloud_lists_again_is_named(
    aws: FakeAws, world: World, key: str
) -> None:
    await made(world, world.plan(), "net/vpc", key)
    ids = {each for name, each in world.known[key].items() if "cidr" not in name}
    owner = [{"Key": labels.CLOUD_OWNER}]
    aws.client("ec2").delete_tags(Resources=[*ids], Tags=owner)
    found = [each for each in swept(world) if each.key == key]
    assert {each.id for each in found} == ids
    for each in found:
        assert each.ours
        assert f"{each.id} does not have the tag" in each.unmarked


def tagged(owner: str, key: str) -> list[dict[str, str]]:
    return [
        {"Key": "modelplane.ai/owner", "Value": owner},
        {"Key": "modelplane.ai/object", "Value": key},
    ]


async def test_tags_do_not_make_objects_in_another_network_ours(
    aws: FakeAws, world: World
) -> None:
    keys = (
        "net/vpc",
        "net/subnets",
        "net/igw",
        "net/eip",
        "net/routes-public",
        "sg/efs",
    )
    objects = await made(world, world.plan(), *keys)
    owner, ec2 = world.wanted(objects["net/vpc"]).owner.digits, aws.client("ec2")
    theirs = {"net/vpc": ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]}
    vpc = theirs["net/vpc"]
    theirs["net/subnets"] = ec2.create_subnet(VpcId=vpc, CidrBlock="10.1.0.0/24")[
        "Subnet"
    ]["SubnetId"]
    theirs["net/igw"] = ec2.create_internet_gateway()["InternetGateway"][
        "InternetGatewayId"
    ]
    ec2.attach_internet_gateway(InternetGatewayId=theirs["net/igw"], VpcId=vpc)
    theirs["net/eip"] = ec2.allocate_address(Domain="vpc")["AllocationId"]
    theirs["net/routes-public"] = ec2.create_route_table(VpcId=vpc)["RouteTable"][
        "RouteTableId"
    ]
    theirs["sg/efs"] = ec2.create_security_group(
        GroupName="x", Description="x", VpcId=vpc
    )["GroupId"]
    for key, identity in theirs.items():
        ec2.create_tags(Resources=[identity], Tags=tagged(owner, key))
    assert {key: world.look(objects[key]).duplicates for key in keys} == dict.fromkeys(
        keys, ()
    )
    await world.delete_all([objects[key] for key in keys])
    for emptied in (False, True):
        left = swept(world, emptied=emptied)
        assert {each.id: (each.ours, each.key) for each in left} == dict.fromkeys(
            theirs.values(), (False, "")
        )
    # The same holds for a lost inventory.
    lost = world_of(aws)
    assert {each.id: each.ours for each in swept(lost)} == dict.fromkeys(
        theirs.values(), False
    )


async def test_a_copy_of_our_launch_template_is_listed_and_blocks_no_deletion(
    aws: FakeAws, world: World
) -> None:
    owner, ec2 = world.wanted(world.plan().objects[0]).owner.digits, aws.client("ec2")
    specification: Any = [
        {"ResourceType": "launch-template", "Tags": tagged(owner, "lt/gpu")}
    ]
    data: Any = {"InstanceType": "g6.xlarge"}
    ec2.create_launch_template(
        LaunchTemplateName="copy",
        LaunchTemplateData=data,
        TagSpecifications=specification,
    )
    found = [
        each
        for each in world.provider.audit(world.audit())
        if each.kind == "LaunchTemplate"
    ]
    assert [(each.ours, each.key) for each in found] == [(False, "")]


async def test_an_object_that_lost_its_tag_is_not_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, "net/vpc")
    ec2, vpc = aws.client("ec2"), world.known["net/vpc"]["id"]
    ec2.delete_tags(Resources=[vpc], Tags=[{"Key": "modelplane.ai/owner"}])
    found = world.look(objects["net/vpc"])
    assert (found.state, found.reason) == (
        State.FOREIGN,
        f"{vpc} has lost its tag modelplane.ai/owner",
    )
    with pytest.raises(OwnerMarkMissing):
        await world.delete(objects["net/vpc"])
    assert aws.made("DeleteVpc") == 0


async def test_only_volumes_with_the_clusters_tag_are_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc")
    ec2, cluster = aws.client("ec2"), world.provider.cloud_cluster(world.account)

    def volume(**tags: str) -> str:
        listed: Any = [
            {
                "ResourceType": "volume",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ]
        return str(
            ec2.create_volume(
                AvailabilityZone="us-east-2a", Size=1, TagSpecifications=listed
            )["VolumeId"]
        )

    claim, mark = (
        {"kubernetes.io/created-for/pvc/name": "modelcache-x"},
        {f"kubernetes.io/cluster/{cluster}": "owned"},
    )
    ours = volume(**claim, **mark)
    users = volume(**mark, **{"kubernetes.io/created-for/pvc/name": "data"})
    others = [
        volume(**claim),
        volume(**claim, **{"kubernetes.io/cluster/another": "owned"}),
    ]
    for emptied in (False, True):
        found = [
            each
            for each in world.provider.audit(world.audit(emptied=emptied))
            if each.kind == "Volume"
        ]
        assert {each.id: each.ours for each in found} == {ours: True, users: False}
        assert all(each.link for each in found)
    swept(world, emptied=True)
    others.append(users)
    assert {each["VolumeId"] for each in ec2.describe_volumes()["Volumes"]} == set(
        others
    )


async def test_network_load_balancers_of_services_and_of_the_controller_are_swept_and_others_named(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets")
    cluster, elb = world.provider.cloud_cluster(world.account), aws.client("elbv2")
    subnets = [
        world.known["net/subnets"][name]
        for name in ("public-us-east-2a", "public-us-east-2b")
    ]
    tags = {
        "service": (f"kubernetes.io/cluster/{cluster}", "owned"),
        "controller": ("elbv2.k8s.aws/cluster", cluster),
        "theirs": ("a", "b"),
    }
    made_arns = {}
    for name, (key, value) in tags.items():
        answer = elb.create_load_balancer(
            Name=name,
            Subnets=subnets,
            Type="network",
            Tags=[{"Key": key, "Value": value}],
        )
        made_arns[name] = answer["LoadBalancers"][0]["LoadBalancerArn"]
    groups = elb.create_target_group(
        Name="service",
        Protocol="TCP",
        Port=80,
        VpcId=world.known["net/vpc"]["id"],
        Tags=[{"Key": "elbv2.k8s.aws/cluster", "Value": cluster}],
    )
    asked = world.provider.audit(world.audit())
    assert {
        each.id: each.ours for each in asked if each.kind == "LoadBalancer"
    } == dict.fromkeys(made_arns.values(), False)
    for each in asked:
        if each.kind == "LoadBalancer":
            world.provider.sweep(world.audit(), each.model_copy(update={"ours": True}))
    assert len(elb.describe_load_balancers()["LoadBalancers"]) == 3, (
        "users were not asked for theirs"
    )
    order = world.audit(emptied=True)
    found = list(world.provider.audit(order))
    assert {each.id for each in found if each.kind == "LoadBalancer" and each.ours} == {
        made_arns["service"],
        made_arns["controller"],
    }
    assert [each.id for each in found if each.kind == "TargetGroup"] == [
        groups["TargetGroups"][0]["TargetGroupArn"]
    ]
    assert made_arns["theirs"] in {each.id for each in found if not each.ours}
    for each in found:
        if each.kind in ("LoadBalancer", "TargetGroup"):
            world.provider.sweep(order, each)
    assert [
        each["LoadBalancerArn"]
        for each in elb.describe_load_balancers()["LoadBalancers"]
    ] == [made_arns["theirs"]]
    assert elb.describe_target_groups()["TargetGroups"] == []
    assert elb.delete_load_balancer(LoadBalancerArn=made_arns["theirs"])
