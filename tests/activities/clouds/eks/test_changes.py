"""Changes of an existing cluster: edits, drift, and versions."""

import json
from dataclasses import replace
from typing import Any

import pytest

from activities.clouds.desired.plan import Desired
from activities.clouds.lifecycle.handler import State
from api_types.errors import Busy, CloudObjectBroken, InvalidInput, ReplaceRequired
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.builders import (
    an_eks_pool,
    classes,
    key_of,
    reasons,
    warned,
)
from tests.activities.clouds.eks.test_cases import TO_NODES, calls, made
from tests.activities.clouds.eks.world import World, world_of

pytestmark = pytest.mark.slow

READS = ("Describe", "Get", "List")


def writes(aws: FakeAws) -> list[str]:
    return [
        each.operation for each in aws.ledger() if not each.operation.startswith(READS)
    ]


async def changed(world: World, desired: Desired, *keys: str) -> list[str]:
    """Bring these objects to their desired state, and return the writes."""
    before = len(writes(world.aws))
    await made(world, desired, *keys)
    return writes(world.aws)[before:]


def scaled(**counts: int) -> dict[str, Any]:
    return an_eks_pool("gpu", **{"nodeCount": 1, "minNodeCount": 1, **counts})


async def test_counts_of_a_pool(aws: FakeAws, world: World) -> None:
    await made(world, world.plan(scaled(maxNodeCount=4)), *TO_NODES, "pool/gpu")
    ec2 = aws.client("eks")
    cluster = world.provider.cloud_cluster(world.account)
    # The autoscaler may choose any size within the bounds.
    ec2.update_nodegroup_config(
        clusterName=cluster, nodegroupName="gpu", scalingConfig={"desiredSize": 3}
    )
    assert await changed(world, world.plan(scaled(maxNodeCount=4)), "pool/gpu") == []
    # A higher maximum adds no node now.
    assert await changed(world, world.plan(scaled(maxNodeCount=6)), "pool/gpu") == [
        "UpdateNodegroupConfig"
    ]
    assert calls(aws, "UpdateNodegroupConfig")[-1]["scalingConfig"] == {
        "minSize": 1,
        "maxSize": 6,
    }
    # A maximum below the current size lowers it.
    assert await changed(world, world.plan(scaled(maxNodeCount=1)), "pool/gpu") == [
        "UpdateNodegroupConfig"
    ]
    assert calls(aws, "UpdateNodegroupConfig")[-1]["scalingConfig"] == {
        "minSize": 1,
        "maxSize": 1,
        "desiredSize": 1,
    }
    # A fixed size is set with all three counts.
    assert await changed(world, world.plan(an_eks_pool(nodeCount=2)), "pool/gpu") == [
        "UpdateNodegroupConfig"
    ]
    assert calls(aws, "UpdateNodegroupConfig")[-1]["scalingConfig"] == {
        "minSize": 2,
        "maxSize": 2,
        "desiredSize": 2,
    }


async def test_a_fixed_pool_of_zero_nodes_loses_its_nodes(
    aws: FakeAws, world: World
) -> None:
    await made(world, world.plan(an_eks_pool(nodeCount=2)), *TO_NODES, "pool/gpu")
    assert await changed(world, world.plan(an_eks_pool(nodeCount=0)), "pool/gpu") == [
        "UpdateNodegroupConfig"
    ]
    assert calls(aws, "UpdateNodegroupConfig")[-1]["scalingConfig"] == {
        "minSize": 0,
        "maxSize": 1,
        "desiredSize": 0,
    }
    assert await changed(world, world.plan(an_eks_pool(nodeCount=0)), "pool/gpu") == []
    # EKS rejects a maximum of 0, so an unwanted node may appear.
    cluster = world.provider.cloud_cluster(world.account)
    aws.client("eks").update_nodegroup_config(
        clusterName=cluster, nodegroupName="gpu", scalingConfig={"desiredSize": 1}
    )
    assert await changed(world, world.plan(an_eks_pool(nodeCount=0)), "pool/gpu") == [
        "UpdateNodegroupConfig"
    ]
    # The size of a pool with autoscaling is never set, even if its bounds and its first
    # size are equal.
    assert (
        await changed(
            world,
            world.plan(scaled(nodeCount=0, minNodeCount=0, maxNodeCount=1)),
            "pool/gpu",
        )
        == []
    )
    aws.client("eks").update_nodegroup_config(
        clusterName=cluster, nodegroupName="gpu", scalingConfig={"desiredSize": 1}
    )
    assert (
        await changed(
            world,
            world.plan(scaled(nodeCount=0, minNodeCount=0, maxNodeCount=1)),
            "pool/gpu",
        )
        == []
    )


async def test_labels_taints_and_the_update_strategy_are_restored(
    aws: FakeAws, world: World
) -> None:
    await made(world, world.plan(), *TO_NODES, "pool/gpu")
    cluster = world.provider.cloud_cluster(world.account)
    aws.client("eks").update_nodegroup_config(
        clusterName=cluster,
        nodegroupName="gpu",
        labels={"addOrUpdateLabels": {"modelplane.ai/pool": "other", "mine": "1"}},
        taints={
            "removeTaints": [
                {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
            ]
        },
        updateConfig={"maxUnavailable": 1, "updateStrategy": "DEFAULT"},
    )
    assert await changed(world, world.plan(), "pool/gpu") == ["UpdateNodegroupConfig"]
    given = calls(aws, "UpdateNodegroupConfig")[-1]
    assert given["labels"] == {
        "addOrUpdateLabels": {"modelplane.ai/pool": "gpu"},
        "removeLabels": ["mine"],
    }
    assert given["taints"]["addOrUpdateTaints"] == [
        {"key": "nvidia.com/gpu", "value": "true", "effect": "NO_SCHEDULE"}
    ]
    assert given["updateConfig"] == {"maxUnavailable": 1, "updateStrategy": "MINIMAL"}


async def test_a_failed_change_is_reported_and_only_the_next_attempt_repeats_it(
    aws: FakeAws, world: World
) -> None:
    await made(world, world.plan(scaled(maxNodeCount=4)), *TO_NODES, "pool/gpu")
    aws.fault(
        AwsFault(
            FaultKind.FAIL,
            operation="UpdateNodegroupConfig",
            code="NodeCreationFailure",
        )
    )
    more = world.plan(scaled(maxNodeCount=6))
    with pytest.raises(
        CloudObjectBroken,
        match="node group gpu: ConfigUpdate Failed: NodeCreationFailure",
    ):
        await made(world, more, "pool/gpu")
    assert aws.made("UpdateNodegroupConfig") == 1
    await made(world, more, "pool/gpu")
    assert aws.made("UpdateNodegroupConfig") == 2


IMMUTABLE = [
    ("disk", "gpu", {"disk": 500}, "disk size"),
    ("zones", "gpu", {"zones": ["us-east-2b"]}, "zones"),
    ("template", "gpu", {"efa": True}, "use of a launch template"),
]


@pytest.mark.parametrize(
    ("edit", "field"),
    [(row[2], row[3]) for row in IMMUTABLE],
    ids=[f"{row[0]}" for row in IMMUTABLE],
)
async def test_immutable_differences_of_a_group_are_reported_without_a_call(
    aws: FakeAws, world: World, edit: dict[str, Any], field: str
) -> None:
    machine = {
        "instanceType": "g6.2xlarge",
        "accelerator": {"type": "nvidia-l4", "count": 1},
    }
    await made(world, world.plan(), *TO_NODES, "pool/gpu")
    more = {"diskSizeGb": edit["disk"]} if "disk" in edit else {}
    known = classes(g6={"provider": "EKS", "eks": {**machine, **more}})
    shape: dict[str, Any] = {
        key: value for key, value in edit.items() if key == "zones"
    }
    if "efa" in edit:
        shape["fabric"] = {"type": "EFA"}
    pool = an_eks_pool(**shape)
    if "efa" in edit:
        world.known["lt/gpu"] = {"version": "1"}
        known["g6"] = classes(
            g6={"provider": "EKS", "eks": {**machine, "instanceType": "p5.48xlarge"}}
        )["g6"]
    before = writes(aws)
    with pytest.raises(
        ReplaceRequired, match=f"Nodegroup gpu: {field} cannot be changed in place"
    ):
        await made(world, world.plan(pool, known=known), "pool/gpu")
    assert writes(aws) == before


async def test_another_card_layout_is_a_new_version_of_the_template_and_rolls_the_nodes(
    aws: FakeAws, world: World
) -> None:
    def p5(disk: int) -> Any:
        return classes(
            p5en={
                "provider": "EKS",
                "eks": {
                    "instanceType": "p5en.48xlarge",
                    "diskSizeGb": disk,
                    "accelerator": {"type": "h", "count": 8},
                },
            }
        )

    pool = an_eks_pool("efa", className="p5en", fabric={"type": "EFA"})
    keys = (*TO_NODES, "sg/efa", "lt/efa", "pool/efa")
    await made(world, world.plan(pool, known=p5(500)), *keys)
    assert world.known["lt/efa"]["version"] == "1"
    assert await changed(world, world.plan(pool, known=p5(500)), *keys) == []
    assert await changed(world, world.plan(pool, known=p5(700)), *keys) == [
        "CreateLaunchTemplateVersion",
        "UpdateNodegroupVersion",
    ]
    assert calls(aws, "UpdateNodegroupVersion")[-1]["launchTemplate"]["version"] == "2"
    # A change back is another version, not the first one.
    assert await changed(world, world.plan(pool, known=p5(500)), *keys) == [
        "CreateLaunchTemplateVersion",
        "UpdateNodegroupVersion",
    ]
    assert world.known["lt/efa"]["version"] == "3"


PLANTED: list[dict[str, Any]] = [
    {"UserData": "IyEvYmluL3No"},
    {"MetadataOptions": {"HttpTokens": "optional"}},
    {"KeyName": "theirs"},
    {"ImageId": "ami-0123456789abcdef0"},
    {"InstanceType": "p5.48xlarge"},
    {
        "BlockDeviceMappings": [
            {
                "DeviceName": "/dev/xvda",
                "Ebs": {"VolumeSize": 500, "SnapshotId": "snap-0123456789abcdef0"},
            }
        ]
    },
]


@pytest.mark.parametrize("planted", PLANTED, ids=["-".join(each) for each in PLANTED])
async def test_a_foreign_version_of_the_template_is_never_used_for_nodes(
    aws: FakeAws, world: World, planted: dict[str, Any]
) -> None:
    known = classes(
        p5en={
            "provider": "EKS",
            "eks": {
                "instanceType": "p5en.48xlarge",
                "diskSizeGb": 500,
                "accelerator": {"type": "h", "count": 8},
            },
        }
    )
    pool = an_eks_pool("efa", className="p5en", fabric={"type": "EFA"})
    desired = world.plan(pool, known=known)
    objects = await made(world, desired, *TO_NODES, "sg/efa", "lt/efa", "pool/efa")
    before = dict(world.known["lt/efa"])
    ec2 = aws.client("ec2")
    (first,) = ec2.describe_launch_template_versions(LaunchTemplateId=before["id"])[
        "LaunchTemplateVersions"
    ]
    ec2.create_launch_template_version(
        LaunchTemplateId=before["id"],
        LaunchTemplateData={**first["LaunchTemplateData"], **planted},
    )
    seen = world.look(objects["lt/efa"])
    assert (seen.state, seen.changes, seen.facts) == (
        State.DIFFERS,
        ("content",),
        before,
    )
    await changed(world, desired, "lt/efa", "pool/efa")
    assert world.known["lt/efa"]["version"] == "3"
    assert [
        each["launchTemplate"]["version"]
        for each in calls(aws, "UpdateNodegroupVersion")
    ] == ["3"]
    (there,) = ec2.describe_launch_template_versions(
        LaunchTemplateId=before["id"], Versions=["3"]
    )["LaunchTemplateVersions"]
    assert there["LaunchTemplateData"] == first["LaunchTemplateData"]


async def test_a_pool_keeps_its_network_cards_without_permission_to_read_them(
    aws: FakeAws, world: World
) -> None:
    """One network card less in a new version of the template would replace all nodes."""
    machine = {
        "instanceType": "g6e.48xlarge",
        "accelerator": {"type": "nvidia-l40s", "count": 8},
    }
    known = classes(g6={"provider": "EKS", "eks": machine})
    pool = an_eks_pool("efa", fabric={"type": "EFA"})
    keys = (*TO_NODES, "sg/efa", "lt/efa", "pool/efa")
    await made(world, world.plan(pool, known=known), *keys)
    cards = world.known["lt/efa"]["cards"]
    assert cards == "0:0:efa 1:1:efa-only 2:1:efa-only 3:1:efa-only"
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="DescribeInstanceTypes",
            code="UnauthorizedOperation",
            times=50,
        )
    )
    assert await changed(world, world.plan(pool, known=known), *keys) == []
    assert world.known["lt/efa"]["cards"] == cards


async def test_a_machine_type_without_efa_is_refused(world: World) -> None:
    made_of = {
        "instanceType": "g6.2xlarge",
        "accelerator": {"type": "nvidia-l4", "count": 1},
    }
    desired = world.plan(
        an_eks_pool("efa", fabric={"type": "EFA"}),
        known=classes(g6={"provider": "EKS", "eks": made_of}),
    )
    assert [problem.text for problem in desired.refused] == [
        "g6.2xlarge has no EFA; leave fabric out"
    ]
    assert desired.objects == ()


async def test_an_add_on_follows_the_version_although_its_history_was_lost(
    aws: FakeAws, world: World
) -> None:
    keys = (*TO_NODES, "addon/kube-proxy", "pool/system")
    await made(world, world.plan(kubernetesVersion="1.34"), *keys)
    later = world.plan(kubernetesVersion="1.35")
    await made(world, later, "cluster")
    lost = world_of(aws)
    again = lost.plan(kubernetesVersion="1.35")
    assert "UpdateAddon" in await changed(lost, again, *keys)
    cluster = lost.provider.cloud_cluster(lost.account)
    addon = aws.client("eks").describe_addon(
        clusterName=cluster, addonName="kube-proxy"
    )["addon"]
    assert addon["addonVersion"] == "v1.35.1-eksbuild.1"
    assert await changed(lost, lost.plan(kubernetesVersion="1.35"), *keys) == []


async def test_two_minor_versions_are_two_steps_with_add_ons_and_groups_after_each(
    aws: FakeAws, world: World
) -> None:
    keys = (*TO_NODES, "addon/kube-proxy", "pool/system", "pool/gpu")
    await made(world, world.plan(kubernetesVersion="1.34"), *keys)
    first = world.plan(kubernetesVersion="1.36")
    assert warned(first) == [("VersionSteps", "")]
    done = await changed(world, first, *keys)
    assert done.count("UpdateClusterVersion") == 1
    assert (
        done.index("UpdateClusterVersion")
        < done.index("UpdateAddon")
        < done.index("UpdateNodegroupVersion")
    )
    assert [each["nodegroupName"] for each in calls(aws, "UpdateNodegroupVersion")] == [
        "system",
        "gpu",
    ]
    assert {
        world.known[key]["version"] for key in ("cluster", "pool/system", "pool/gpu")
    } == {"1.35"}
    assert {each["resolveConflicts"] for each in calls(aws, "UpdateAddon")} == {
        "PRESERVE"
    }
    second = world.plan(kubernetesVersion="1.36")
    await changed(world, second, *keys)
    assert {
        world.known[key]["version"] for key in ("cluster", "pool/system", "pool/gpu")
    } == {"1.36"}
    last = world.plan(kubernetesVersion="1.36")
    assert (last.warnings, await changed(world, last, *keys)) == ((), [])
    assert [each["version"] for each in calls(aws, "UpdateClusterVersion")] == [
        "1.35",
        "1.36",
    ]


async def test_the_next_step_waits_for_groups_that_are_behind(
    world: World,
) -> None:
    keys = (*TO_NODES, "pool/system", "pool/gpu")
    await made(world, world.plan(kubernetesVersion="1.34"), *keys)
    stepped = world.plan(kubernetesVersion="1.36")
    await made(world, stepped, "cluster")
    world.attempts_max = 1
    with pytest.raises(
        Busy, match=r"node group gpu is upgraded to 1\.35 after node group system"
    ):
        await made(world, stepped, "pool/gpu")
    await made(world, stepped, "pool/system")
    again = world.plan(kubernetesVersion="1.36")
    (cluster,) = [each for each in again.objects if each.key == "cluster"]
    assert cluster.calls[0].parameters["version"] == "1.35"


async def test_a_lower_version_is_refused(world: World) -> None:
    await made(world, world.plan(kubernetesVersion="1.35"), *TO_NODES)
    lower = world.plan(kubernetesVersion="1.34")
    assert (reasons(lower), lower.objects) == ([("InvalidInput", "")], ())
    assert (
        lower.refused[0].text
        == "the cluster has version 1.35 and cannot be downgraded to 1.34"
    )
    kept = world.plan(kubernetesVersion="1.35")
    (cluster,) = [each for each in kept.objects if each.key == "cluster"]
    call = replace(
        cluster.calls[0], parameters={**cluster.calls[0].parameters, "version": "1.34"}
    )
    with pytest.raises(InvalidInput, match="cannot be downgraded"):
        await world.ensure(replace(cluster, calls=(call,)))


def _policy(**statement: Any) -> str:
    return json.dumps(
        {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}
    )


async def test_changes_by_hand_are_reverted(aws: FakeAws, world: World) -> None:
    keys = (
        "net/vpc",
        "net/subnets",
        "net/igw",
        "net/routes-public",
        "sg/efs",
        "iam/cluster",
        "iam/policy-autoscaler",
        "iam/autoscaler",
    )
    desired = world.plan()
    objects = await made(world, desired, *keys)
    ec2, iam, facts = aws.client("ec2"), aws.client("iam"), world.known
    table = facts["net/routes-public"]["id"]
    subnet = facts["net/subnets"]["public-us-east-2a"]
    ec2.delete_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0")
    described = ec2.describe_route_tables(RouteTableIds=[table])["RouteTables"][0]
    ec2.disassociate_route_table(
        AssociationId=described["Associations"][0]["RouteTableAssociationId"]
    )
    ec2.detach_internet_gateway(
        InternetGatewayId=facts["net/igw"]["id"], VpcId=facts["net/vpc"]["id"]
    )
    ec2.delete_tags(Resources=[subnet], Tags=[{"Key": "kubernetes.io/role/elb"}])
    ec2.modify_subnet_attribute(SubnetId=subnet, MapPublicIpOnLaunch={"Value": False})
    ec2.modify_vpc_attribute(
        VpcId=facts["net/vpc"]["id"], EnableDnsHostnames={"Value": False}
    )
    group = ec2.describe_security_groups(GroupIds=[facts["sg/efs"]["id"]])[
        "SecurityGroups"
    ][0]
    ec2.revoke_security_group_ingress(
        GroupId=group["GroupId"], IpPermissions=group["IpPermissions"]
    )
    everything: Any = [{"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}]
    ec2.authorize_security_group_egress(
        GroupId=group["GroupId"], IpPermissions=everything
    )
    role = objects["iam/cluster"].name
    iam.detach_role_policy(
        RoleName=role, PolicyArn="arn:aws:iam::aws:policy/AmazonEKSClusterPolicy"
    )
    iam.update_assume_role_policy(
        RoleName=role,
        PolicyDocument=_policy(
            Principal={"Service": "ec2.amazonaws.com"}, Action="sts:AssumeRole"
        ),
    )
    arn = facts["iam/policy-autoscaler"]["arn"]
    iam.create_policy_version(
        PolicyArn=arn,
        PolicyDocument=_policy(Action="eks:ListClusters", Resource="*"),
        SetAsDefault=True,
    )
    differs = {key: world.look(objects[key]).changes for key in keys}
    assert differs.pop("iam/autoscaler") == ()
    assert all(differs.values()), differs
    await made(world, desired, *keys)
    assert {key: world.look(objects[key]).state for key in keys} == dict.fromkeys(
        keys, State.READY
    )
    assert world.known == facts


async def test_a_deleted_rule_among_efa_interfaces_is_restored(
    aws: FakeAws,
    world: World,
) -> None:
    desired = world.plan(an_eks_pool("efa", className="p5en", fabric={"type": "EFA"}))
    objects = await made(world, desired, "net/vpc", "sg/efa")
    ec2, group = aws.client("ec2"), world.known["sg/efa"]["id"]
    (described,) = ec2.describe_security_groups(GroupIds=[group])["SecurityGroups"]
    rules = described["IpPermissionsEgress"]
    ec2.revoke_security_group_egress(GroupId=group, IpPermissions=rules)
    assert world.look(objects["sg/efa"]).changes == ("egress rules",)
    await made(world, desired, "sg/efa")
    assert world.look(objects["sg/efa"]).state is State.READY


async def test_changed_routes_and_subnet_associations_are_restored(
    aws: FakeAws, world: World
) -> None:
    keys = ("net/vpc", "net/subnets", "net/igw", "net/routes-public")
    desired = world.plan()
    objects = await made(world, desired, *keys)
    ec2, facts = aws.client("ec2"), world.known
    other = ec2.create_route_table(VpcId=facts["net/vpc"]["id"])["RouteTable"][
        "RouteTableId"
    ]
    subnet = facts["net/subnets"]["public-us-east-2b"]
    described = ec2.describe_route_tables(
        RouteTableIds=[facts["net/routes-public"]["id"]]
    )["RouteTables"][0]
    (association,) = [
        each["RouteTableAssociationId"]
        for each in described["Associations"]
        if each.get("SubnetId") == subnet
    ]
    ec2.replace_route_table_association(AssociationId=association, RouteTableId=other)
    assert world.look(objects["net/routes-public"]).changes == (
        f"association of {subnet}",
    )
    await made(world, desired, *keys)
    assert world.look(objects["net/routes-public"]).state is State.READY


async def test_a_group_that_was_deleted_by_hand_is_created_again(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES, "pool/gpu")
    eks = aws.client("eks")
    eks.delete_nodegroup(
        clusterName=world.provider.cloud_cluster(world.account), nodegroupName="gpu"
    )
    await made(world, desired, "pool/gpu")
    assert (aws.made("CreateNodegroup"), world.look(objects["pool/gpu"]).state) == (
        2,
        State.READY,
    )


async def test_a_cluster_that_was_deleted_by_hand_is_observed_as_absent(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES)
    eks, name = aws.client("eks"), world.provider.cloud_cluster(world.account)
    eks.delete_addon(clusterName=name, addonName="vpc-cni")
    eks.delete_cluster(name=name)
    states = {world.look(objects["cluster"]).state for _ in range(6)}
    assert states == {State.DELETING, State.ABSENT}
    gone = ("addon/vpc-cni", key_of(desired, "AccessEntry"), "pool/gpu", "pia/efs-csi")
    assert {world.look(objects[key]).state for key in gone} == {State.ABSENT}


async def test_a_deleted_subnet_is_restored_only_if_it_was_unused(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets")
    gone = world.known["net/subnets"]["private-us-east-2c"]
    aws.client("ec2").delete_subnet(SubnetId=gone)
    await made(world, desired, "net/subnets")
    back = world.known["net/subnets"]["private-us-east-2c"]
    assert back != gone
    await made(world, desired, "iam/cluster", "cluster")
    aws.cloud.eks.clusters[
        world.provider.cloud_cluster(world.account)
    ].interfaces.clear()
    for each in list(aws.cloud.ec2.enis):
        aws.cloud.ec2.enis.pop(each)
    aws.client("ec2").delete_subnet(SubnetId=back)
    with pytest.raises(
        ReplaceRequired,
        match=f"subnet {back} was deleted, and cluster cannot move to a new one",
    ):
        await made(world, desired, "net/subnets")


async def test_subnets_that_lost_their_tags_do_not_count_as_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(
        world, desired, "net/vpc", "net/subnets", "iam/cluster", "cluster"
    )
    facts = world.known["net/subnets"]
    subnets = sorted(value for name, value in facts.items() if "cidr" not in name)
    owner: Any = [{"Key": "modelplane.ai/owner"}]
    aws.client("ec2").delete_tags(Resources=subnets, Tags=owner)
    found = world.look(objects["net/subnets"])
    text = f"{', '.join(subnets)} have lost their tag modelplane.ai/owner"
    assert (found.state, found.reason) == (State.FOREIGN, text)
    assert found.unmarked.startswith(f"{', '.join(subnets)} do not have the tags")
    assert ", so they are neither changed nor deleted; " in found.unmarked


async def test_the_ranges_of_subnets_stay_when_a_pool_in_another_zone_is_added() -> (
    None
):
    with FakeAws("us-east-1") as aws:
        world = world_of(aws)
        first = world.plan(an_eks_pool(zones=["us-east-1a"]), region="us-east-1")
        await made(world, first, "net/vpc", "net/subnets")
        before = dict(world.known["net/subnets"])
        more = world.plan(
            an_eks_pool(zones=["us-east-1d"]),
            an_eks_pool("b", zones=["us-east-1a"]),
            region="us-east-1",
        )
        await made(world, more, "net/subnets")
        after = world.known["net/subnets"]
        assert before.items() <= after.items()
        assert {"public-us-east-1d", "private-us-east-1d"} <= after.keys()
        assert (
            world.plan(an_eks_pool(zones=["us-east-1d"]), region="us-east-1").objects[
                0:2
            ]
            == more.objects[0:2]
        )
