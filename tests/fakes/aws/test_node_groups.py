"""Node groups and add-ons of the fake EKS."""

from typing import Any

import pytest

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure, code

pytestmark = pytest.mark.slow

BLOCK = "cr-0123456789abcdef0"


@pytest.fixture
def cloud(aws: FakeAws) -> Infrastructure:
    """Return a ready cluster, with a way out for nodes."""
    return Infrastructure(aws).build().ready_cluster()


def issues(cloud: Infrastructure) -> list[str]:
    """Return the codes of the node group's problems."""
    return [each["code"] for each in cloud.group()["health"]["issues"]]


def template(
    cloud: Infrastructure, name: str = "template", **data: Any
) -> dict[str, str]:
    """Create a launch template, and return it as a node group names it."""
    made = cloud.ec2.create_launch_template(
        LaunchTemplateName=name,
        LaunchTemplateData={"InstanceType": "p5.48xlarge", **data},
    )
    return {"name": name, "version": str(made["LaunchTemplate"]["LatestVersionNumber"])}


def test_a_group_is_creating_then_active_with_an_auto_scaling_group(
    cloud: Infrastructure,
) -> None:
    cloud.create_group(labels={"modelplane.ai/pool": "l4"})
    assert cloud.until(cloud.group_state, "ACTIVE") == [
        "CREATING",
        "CREATING",
        "ACTIVE",
    ]
    name = cloud.group()["resources"]["autoScalingGroups"][0]["name"]
    scaling = cloud.aws.client("autoscaling").describe_auto_scaling_groups(
        AutoScalingGroupNames=[name]
    )["AutoScalingGroups"][0]
    assert (
        scaling["MinSize"],
        scaling["DesiredCapacity"],
        scaling["MaxSize"],
        len(scaling["Instances"]),
    ) == (1, 2, 4, 2)
    assert cloud.group()["labels"] == {"modelplane.ai/pool": "l4"}


def test_a_cluster_with_groups_cannot_be_deleted_and_a_deleted_group_leaves_nothing(
    cloud: Infrastructure,
) -> None:
    before = cloud.aws.remains()
    cloud.ready_group()
    assert code(cloud.eks.delete_cluster, name=CLUSTER) == "ResourceInUseException"
    cloud.eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName="l4")
    assert (
        code(cloud.eks.delete_nodegroup, clusterName=CLUSTER, nodegroupName="l4")
        == "ResourceInUseException"
    )
    assert cloud.until(cloud.group_state, "gone") == ["DELETING", "DELETING", "gone"]
    assert [each for each in cloud.aws.remains() if each not in before] == [
        f"eks/access-entry/{CLUSTER}/{cloud.roles['node']}"
    ]


def test_a_group_that_vanishes_takes_its_nodes_with_it(cloud: Infrastructure) -> None:
    before = cloud.aws.remains()
    cloud.aws.fault(AwsFault(FaultKind.VANISH, "CreateNodegroup", times=2))
    cloud.create_group()
    assert cloud.until(cloud.group_state, "gone") == [
        "CREATING",
        "CREATING",
        "ACTIVE",
        "gone",
    ]
    assert [each for each in cloud.aws.remains() if each not in before] == [
        f"eks/access-entry/{CLUSTER}/{cloud.roles['node']}"
    ]


def test_a_group_that_is_creating_cannot_be_deleted(cloud: Infrastructure) -> None:
    cloud.create_group()
    assert (
        code(cloud.eks.delete_nodegroup, clusterName=CLUSTER, nodegroupName="l4")
        == "ResourceInUseException"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"nodeRole": "arn:aws:iam::100000000000:role/none"},
        {"subnets": ["subnet-00000000"]},
        {"scalingConfig": {"minSize": 1, "maxSize": 2, "desiredSize": 3}},
        {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]},
    ],
    ids=[
        "unknown role",
        "unknown subnet",
        "desired over the maximum",
        "effect as Kubernetes writes it",
    ],
)
def test_invalid_calls_that_moto_accepts_are_rejected(
    cloud: Infrastructure, change: dict[str, object]
) -> None:
    assert code(cloud.create_group, **change) == "InvalidParameterException"


def test_a_subnet_of_another_vpc_is_refused(cloud: Infrastructure) -> None:
    other = cloud.ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = cloud.ec2.create_subnet(VpcId=other, CidrBlock="10.0.0.0/20")["Subnet"][
        "SubnetId"
    ]
    assert code(cloud.create_group, subnets=[subnet]) == "InvalidParameterException"


def test_nodes_without_a_way_out_never_join(aws: FakeAws) -> None:
    cloud = Infrastructure(aws).build(way_out=False).ready_cluster()
    cloud.create_group()
    cloud.until(cloud.group_state, "CREATE_FAILED")
    assert issues(cloud) == ["NodeCreationFailure"]


def test_a_zone_without_machines_fails_a_group_in_two_zones_once(
    cloud: Infrastructure,
) -> None:
    cloud.aws.fault(AwsFault(FaultKind.STOCK_OUT, zone="us-east-2a"))
    cloud.create_group()
    cloud.until(cloud.group_state, "CREATE_FAILED")
    assert issues(cloud) == ["AsgInstanceLaunchFailures"]
    name = cloud.group()["resources"]["autoScalingGroups"][0]["name"]
    scaling = cloud.aws.client("autoscaling")
    activity = scaling.describe_scaling_activities(AutoScalingGroupName=name)[
        "Activities"
    ][0]
    assert "you requested (us-east-2a)" in activity["StatusMessage"]
    # Nodes run in the other zone.
    nodes = cloud.ec2.describe_network_interfaces(
        Filters=[{"Name": "tag:eks:nodegroup-name", "Values": ["l4"]}]
    )["NetworkInterfaces"]
    assert {each["SubnetId"] for each in nodes} == {cloud.private[1]}
    cloud.eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName="l4")
    cloud.until(cloud.group_state, "gone")
    cloud.ready_group()


def test_a_group_may_be_degraded_after_it_was_active(cloud: Infrastructure) -> None:
    cloud.aws.fault(AwsFault(FaultKind.DEGRADE, times=2))
    cloud.ready_group()
    cloud.until(cloud.group_state, "DEGRADED")
    assert issues(cloud) == ["AsgInstanceLaunchFailures"]
    assert (
        code(
            cloud.eks.update_nodegroup_config,
            clusterName=CLUSTER,
            nodegroupName="l4",
            labels={"addOrUpdateLabels": {"a": "1"}},
        )
        == "ResourceInUseException"
    )
    cloud.until(cloud.group_state, "ACTIVE")
    assert issues(cloud) == []


def test_a_template_names_the_machine_and_excludes_disk_and_types(
    cloud: Infrastructure,
) -> None:
    group = cloud.eks.describe_cluster(name=CLUSTER)["cluster"]["resourcesVpcConfig"][
        "clusterSecurityGroupId"
    ]
    interface = {
        "NetworkCardIndex": 0,
        "DeviceIndex": 0,
        "InterfaceType": "efa",
        "Groups": [group],
    }
    made = template(cloud, NetworkInterfaces=[interface])
    assert (
        code(cloud.create_group, launchTemplate=made, diskSize=100)
        == "InvalidParameterException"
    )
    assert (
        code(cloud.create_group, launchTemplate=made, instanceTypes=["p5.48xlarge"])
        == "InvalidRequestException"
    )
    assert (
        code(cloud.create_group, launchTemplate={"name": "none", "version": "1"})
        == "InvalidRequestException"
    )
    assert (
        code(cloud.create_group, launchTemplate={**made, "version": "2"})
        == "InvalidRequestException"
    )
    cloud.ready_group(launchTemplate=made)
    assert cloud.group()["launchTemplate"]["version"] == "1"
    assert "diskSize" not in cloud.group()


def test_nodes_without_the_security_group_of_the_cluster_never_join(
    cloud: Infrastructure,
) -> None:
    own = cloud.ec2.create_security_group(
        GroupName="efa", Description="EFA", VpcId=cloud.vpc
    )["GroupId"]
    made = template(
        cloud,
        NetworkInterfaces=[
            {
                "NetworkCardIndex": 0,
                "DeviceIndex": 0,
                "InterfaceType": "efa",
                "Groups": [own],
            }
        ],
    )
    cloud.create_group(launchTemplate=made)
    cloud.until(cloud.group_state, "CREATE_FAILED")
    assert issues(cloud) == ["NodeCreationFailure"]


@pytest.mark.parametrize(
    ("state", "wanted"), [("active", "ACTIVE"), ("scheduled", "CREATE_FAILED")]
)
def test_a_capacity_block_has_instances_only_while_it_is_active(
    cloud: Infrastructure, state: str, wanted: str
) -> None:
    cloud.aws.plant_reservation(BLOCK, "us-east-2a", "p5.48xlarge", 2, state)
    target = {"CapacityReservationTarget": {"CapacityReservationId": BLOCK}}
    made = template(
        cloud,
        InstanceMarketOptions={"MarketType": "capacity-block"},
        CapacityReservationSpecification=target,
    )
    cloud.create_group(launchTemplate=made, capacityType="CAPACITY_BLOCK")
    cloud.until(cloud.group_state, wanted)
    found = cloud.ec2.describe_capacity_reservations(CapacityReservationIds=[BLOCK])[
        "CapacityReservations"
    ][0]
    assert (found["State"], found["AvailabilityZone"], found["TotalInstanceCount"]) == (
        state,
        "us-east-2a",
        2,
    )


def test_a_scheduled_capacity_block_accepts_a_group_of_size_0(
    cloud: Infrastructure,
) -> None:
    cloud.aws.plant_reservation(BLOCK, "us-east-2a", "p5.48xlarge", 2, "scheduled")
    target = {"CapacityReservationTarget": {"CapacityReservationId": BLOCK}}
    made = template(cloud, CapacityReservationSpecification=target)
    none = {"minSize": 0, "maxSize": 2, "desiredSize": 0}
    cloud.ready_group(
        launchTemplate=made, capacityType="CAPACITY_BLOCK", scalingConfig=none
    )


def test_a_capacity_block_with_too_few_machines_or_without_a_template_makes_no_group(
    cloud: Infrastructure,
) -> None:
    cloud.aws.plant_reservation(BLOCK, "us-east-2a", "p5.48xlarge", 1)
    made = template(
        cloud,
        CapacityReservationSpecification={
            "CapacityReservationTarget": {"CapacityReservationId": BLOCK}
        },
    )
    assert (
        code(cloud.create_group, capacityType="CAPACITY_BLOCK")
        == "InvalidParameterException"
    )
    cloud.create_group(launchTemplate=made, capacityType="CAPACITY_BLOCK")
    cloud.until(cloud.group_state, "CREATE_FAILED")
    assert issues(cloud) == ["AsgInstanceLaunchFailures"]


@pytest.mark.parametrize(
    "data",
    [
        {"IamInstanceProfile": {"Name": "node"}},
        {"HibernationOptions": {"Configured": True}},
        {"NetworkInterfaces": [{"DeviceIndex": 0, "SubnetId": "subnet-00000000"}]},
    ],
    ids=["profile", "hibernation", "subnet"],
)
def test_a_template_with_fields_that_eks_sets_is_rejected(
    cloud: Infrastructure, data: dict[str, Any]
) -> None:
    assert (
        code(cloud.create_group, launchTemplate=template(cloud, **data))
        == "InvalidParameterException"
    )


def test_an_unknown_capacity_block_is_not_found(cloud: Infrastructure) -> None:
    wanted = "InvalidCapacityReservationId.NotFound"
    assert (
        code(cloud.ec2.describe_capacity_reservations, CapacityReservationIds=[BLOCK])
        == wanted
    )
    assert cloud.ec2.describe_capacity_reservations()["CapacityReservations"] == []


def test_sizes_labels_and_taints_are_updated(cloud: Infrastructure) -> None:
    cloud.ready_group(labels={"a": "1"})
    where = {"clusterName": CLUSTER, "nodegroupName": "l4"}
    assert (
        code(
            cloud.eks.update_nodegroup_config,
            **where,
            scalingConfig={"minSize": 1, "maxSize": 1},
        )
        == "InvalidParameterException"
    )
    taint = {"key": "k", "value": "v", "effect": "NO_SCHEDULE"}
    update = cloud.eks.update_nodegroup_config(
        **where,
        scalingConfig={"minSize": 1, "maxSize": 6},
        labels={"addOrUpdateLabels": {"b": "2"}, "removeLabels": ["a"]},
        taints={"addOrUpdateTaints": [taint]},
    )["update"]
    assert cloud.group_state() == "UPDATING"
    read = {"name": CLUSTER, "updateId": update["id"], "nodegroupName": "l4"}
    cloud.until(
        lambda: cloud.eks.describe_update(**read)["update"]["status"], "Successful"
    )
    group = cloud.group()
    assert group["scalingConfig"] == {"minSize": 1, "maxSize": 6, "desiredSize": 2}
    assert (group["labels"], group["taints"], group["status"]) == (
        {"b": "2"},
        [taint],
        "ACTIVE",
    )


def test_a_group_follows_the_version_of_its_cluster_and_not_further(
    aws: FakeAws,
) -> None:
    cloud = Infrastructure(aws).build()
    cloud.create_cluster(version="1.35")
    cloud.until(cloud.cluster_state, "ACTIVE")
    cloud.ready_group()
    where = {"clusterName": CLUSTER, "nodegroupName": "l4"}
    assert (
        code(cloud.eks.update_nodegroup_version, **where, version="1.36")
        == "InvalidParameterException"
    )
    cloud.eks.update_cluster_version(name=CLUSTER, version="1.36")
    cloud.until(cloud.cluster_state, "ACTIVE")
    cloud.eks.update_nodegroup_version(**where, version="1.36")
    cloud.until(cloud.group_state, "ACTIVE")
    assert cloud.group()["version"] == "1.36"
    assert (
        code(cloud.eks.update_nodegroup_version, **where, version="1.35")
        == "InvalidParameterException"
    )


def test_a_failed_deletion_of_a_group_is_shown_and_can_be_retried(
    cloud: Infrastructure,
) -> None:
    cloud.ready_group().aws.fault(AwsFault(FaultKind.DELETE_FAILED, "DeleteNodegroup"))
    cloud.eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName="l4")
    cloud.until(cloud.group_state, "DELETE_FAILED")
    assert issues(cloud) == ["Ec2SecurityGroupDeletionFailure"]
    cloud.eks.delete_nodegroup(clusterName=CLUSTER, nodegroupName="l4")
    cloud.until(cloud.group_state, "gone")


def test_an_add_on_with_pods_is_degraded_until_there_are_nodes(
    cloud: Infrastructure,
) -> None:
    for name in ("coredns", "vpc-cni"):
        cloud.eks.create_addon(
            clusterName=CLUSTER, addonName=name, resolveConflicts="OVERWRITE"
        )
    assert cloud.until(lambda: cloud.add_on_state("vpc-cni"), "ACTIVE") == [
        "CREATING",
        "CREATING",
        "ACTIVE",
    ]
    cloud.until(lambda: cloud.add_on_state("coredns"), "DEGRADED")
    health = cloud.eks.describe_addon(clusterName=CLUSTER, addonName="coredns")[
        "addon"
    ]["health"]
    assert [each["code"] for each in health["issues"]] == [
        "InsufficientNumberOfReplicas"
    ]
    cloud.ready_group()
    assert cloud.add_on_state("coredns") == "ACTIVE"


def test_a_failed_add_on_must_be_created_again(
    cloud: Infrastructure,
) -> None:
    cloud.aws.fault(AwsFault(FaultKind.FAIL, "CreateAddon", code="AccessDenied"))
    what = {"clusterName": CLUSTER, "addonName": "vpc-cni"}
    cloud.eks.create_addon(**what)
    cloud.until(lambda: cloud.add_on_state("vpc-cni"), "CREATE_FAILED")
    assert code(cloud.eks.create_addon, **what) == "ResourceInUseException"
    assert code(cloud.eks.update_addon, **what) == "ResourceInUseException"
    cloud.aws.fault(AwsFault(FaultKind.DELETE_FAILED, "DeleteAddon"))
    cloud.eks.delete_addon(**what)
    cloud.until(lambda: cloud.add_on_state("vpc-cni"), "DELETE_FAILED")
    cloud.eks.delete_addon(**what, preserve=False)
    assert code(cloud.eks.delete_addon, **what) == "ResourceInUseException"
    assert cloud.until(lambda: cloud.add_on_state("vpc-cni"), "gone") == [
        "DELETING",
        "DELETING",
        "gone",
    ]
    cloud.eks.create_addon(**what)
    cloud.until(lambda: cloud.add_on_state("vpc-cni"), "ACTIVE")


def test_add_ons_have_versions_for_each_version_of_kubernetes(
    cloud: Infrastructure,
) -> None:
    found = cloud.eks.describe_addon_versions(
        addonName="vpc-cni", kubernetesVersion="1.36"
    )["addons"]
    versions = {
        each["addonVersion"]: each["compatibilities"][0]["defaultVersion"]
        for addon in found
        for each in addon["addonVersions"]
    }
    assert list(versions.values()) == [False, True]
    newest = next(iter(versions))
    what = {"clusterName": CLUSTER, "addonName": "vpc-cni"}
    cloud.eks.create_addon(**what)
    cloud.until(lambda: cloud.add_on_state("vpc-cni"), "ACTIVE")
    assert (
        code(cloud.eks.update_addon, **what, addonVersion="v0")
        == "InvalidParameterException"
    )
    cloud.eks.update_addon(**what, addonVersion=newest, resolveConflicts="PRESERVE")
    cloud.until(lambda: cloud.add_on_state("vpc-cni"), "ACTIVE")
    assert cloud.eks.describe_addon(**what)["addon"]["addonVersion"] == newest
    assert (
        code(cloud.eks.create_addon, clusterName=CLUSTER, addonName="unknown")
        == "InvalidParameterException"
    )


def test_the_template_of_a_group_changes_only_where_it_has_one(
    cloud: Infrastructure,
) -> None:
    where = {"clusterName": CLUSTER, "nodegroupName": "l4"}
    made = template(cloud)
    cloud.ready_group()
    assert (
        code(cloud.eks.update_nodegroup_version, **where, launchTemplate=made)
        == "InvalidParameterException"
    )
    cloud.ready_group("other", launchTemplate=made)
    cloud.ec2.create_launch_template_version(
        LaunchTemplateName="template",
        LaunchTemplateData={"InstanceType": "p5e.48xlarge"},
    )
    other = {**where, "nodegroupName": "other"}
    cloud.eks.update_nodegroup_version(
        **other, launchTemplate={"name": "template", "version": "2"}
    )
    cloud.until(lambda: cloud.group_state("other"), "ACTIVE")
    assert cloud.group("other")["launchTemplate"]["version"] == "2"
