"""Scenes in which the fake of AWS itself gives an answer of the corpus.

Each scene is a function with the name that entries refer to in `fake`. It brings the
account into the state of the entry, and returns the call that AWS would refuse.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.fakes.aws.infrastructure import CLUSTER, Infrastructure

Call = Callable[[], Any]
Scene = Callable[[Infrastructure], Call]
SCENES: dict[str, Scene] = {}
_ADMIN = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"


def scene(function: Scene) -> Scene:
    """Register a scene under the name of its function."""
    SCENES[function.__name__] = function
    return function


def stage(aws: FakeAws) -> Infrastructure:
    """Return the infrastructure that all scenes begin with."""
    return Infrastructure(aws).build()


def _entry(cloud: Infrastructure, who: str) -> Call:
    return partial(cloud.eks.create_access_entry, clusterName=CLUSTER, principalArn=who)


def _allow(cloud: Infrastructure, who: str) -> Call:
    return partial(
        cloud.eks.associate_access_policy,
        clusterName=CLUSTER,
        principalArn=who,
        policyArn=_ADMIN,
        accessScope={"type": "cluster"},
    )


def _change(cloud: Infrastructure, **network: bool) -> Call:
    return partial(
        cloud.eks.update_cluster_config, name=CLUSTER, resourcesVpcConfig=network
    )


def _template(cloud: Infrastructure, **data: Any) -> dict[str, str]:
    made = cloud.ec2.create_launch_template(
        LaunchTemplateName="lt", LaunchTemplateData=data
    )
    return {"id": made["LaunchTemplate"]["LaunchTemplateId"], "version": "1"}


# The control plane and its parts


@scene
def cluster_exists(cloud: Infrastructure) -> Call:
    cloud.create_cluster()
    return cloud.create_cluster


@scene
def cluster_zone_without_capacity(cloud: Infrastructure) -> Call:
    cloud.aws.cloud.unsupported_zones = frozenset({"us-east-2a"})
    return cloud.create_cluster


@scene
def cluster_role_unknown(cloud: Infrastructure) -> Call:
    cloud.roles["cluster"] = f"{cloud.roles['cluster']}-2"
    return cloud.create_cluster


@scene
def cluster_has_node_groups(cloud: Infrastructure) -> Call:
    cloud.ready_cluster().ready_group()
    return partial(cloud.eks.delete_cluster, name=CLUSTER)


@scene
def cluster_deleted_during_update(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    _change(cloud, endpointPrivateAccess=True)()
    return partial(cloud.eks.delete_cluster, name=CLUSTER)


@scene
def cluster_changed_during_update(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    _change(cloud, endpointPrivateAccess=True)()
    return _change(cloud, endpointPrivateAccess=False)


@scene
def cluster_already_as_desired(cloud: Infrastructure) -> Call:
    network = {"subnetIds": [*cloud.public, *cloud.private]}
    cloud.create_cluster(resourcesVpcConfig={**network, "endpointPrivateAccess": True})
    cloud.until(cloud.cluster_state, "ACTIVE")
    return _change(cloud, endpointPrivateAccess=True)


@scene
def cluster_gone(cloud: Infrastructure) -> Call:
    return partial(cloud.eks.describe_cluster, name=CLUSTER)


@scene
def eks_unavailable(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.OUTAGE, service="eks"))
    return cluster_gone(cloud)


@scene
def eks_denied(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.FORBID, service="eks"))
    return cluster_gone(cloud)


@scene
def add_on_exists(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    create = partial(
        cloud.eks.create_addon, clusterName=CLUSTER, addonName="kube-proxy"
    )
    create()
    return create


@scene
def add_on_preserve_at_creation(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    return partial(
        cloud.eks.create_addon,
        clusterName=CLUSTER,
        addonName="kube-proxy",
        resolveConflicts="PRESERVE",
    )


@scene
def access_entry_exists(cloud: Infrastructure) -> Call:
    (creator,) = cloud.ready_cluster().eks.list_access_entries(clusterName=CLUSTER)[
        "accessEntries"
    ]
    return _entry(cloud, creator)


@scene
def access_entry_for_unknown_principal(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    return _entry(cloud, f"arn:aws:iam::{cloud.aws.account.number}:role/nobody")


@scene
def access_entry_for_session(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    number = cloud.aws.account.number
    return _entry(cloud, f"arn:aws:sts::{number}:assumed-role/node/session")


@scene
def access_policy_without_entry(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    return _allow(cloud, cloud.roles["pods"])


@scene
def access_policy_of_node_role(cloud: Infrastructure) -> Call:
    cloud.ready_cluster().ready_group()
    return _allow(cloud, cloud.roles["node"])


@scene
def pod_identity_exists(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    create = partial(
        cloud.eks.create_pod_identity_association,
        clusterName=CLUSTER,
        namespace="kube-system",
        serviceAccount="driver",
        roleArn=cloud.roles["pods"],
    )
    create()
    return create


# Node groups


@scene
def node_group_exists(cloud: Infrastructure) -> Call:
    cloud.ready_cluster().ready_group()
    return cloud.create_group


@scene
def node_group_type_not_in_zone(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    cloud.aws.cloud.not_offered["m4.xlarge"] = frozenset({"us-east-2a"})
    return partial(cloud.create_group, instanceTypes=["m4.xlarge"])


@scene
def node_group_type_given_twice(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    made = _template(cloud, InstanceType="m6i.large")
    return partial(cloud.create_group, launchTemplate=made, instanceTypes=["m6i.large"])


@scene
def node_group_role_trusts_others(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    return partial(cloud.create_group, nodeRole=cloud.roles["pods"])


@scene
def node_group_arm_machine_with_x86_image(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    return partial(
        cloud.create_group, instanceTypes=["t4g.small"], amiType="AL2_x86_64"
    )


@scene
def node_group_not_active(cloud: Infrastructure) -> Call:
    cloud.ready_cluster()
    cloud.aws.fault(AwsFault(FaultKind.STOCK_OUT))
    cloud.create_group()
    cloud.until(cloud.group_state, "CREATE_FAILED")
    return partial(
        cloud.eks.update_nodegroup_config,
        clusterName=CLUSTER,
        nodegroupName="l4",
        scalingConfig={"maxSize": 5},
    )


@scene
def node_group_update_of_nothing(cloud: Infrastructure) -> Call:
    cloud.ready_cluster().ready_group()
    return partial(
        cloud.eks.update_nodegroup_config, clusterName=CLUSTER, nodegroupName="l4"
    )


# The network


@scene
def subnet_not_visible_yet(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.INVISIBLE, "CreateSubnet", times=3))
    made = cloud.ec2.create_subnet(VpcId=cloud.vpc, CidrBlock="10.0.128.0/20")
    return partial(
        cloud.ec2.associate_route_table,
        RouteTableId=cloud.tables[0],
        SubnetId=made["Subnet"]["SubnetId"],
    )


@scene
def subnet_conflict(cloud: Infrastructure) -> Call:
    return partial(cloud.ec2.create_subnet, VpcId=cloud.vpc, CidrBlock="10.0.0.0/20")


@scene
def gateway_attached_already(cloud: Infrastructure) -> Call:
    return partial(
        cloud.ec2.attach_internet_gateway,
        InternetGatewayId=cloud.gateway,
        VpcId=cloud.vpc,
    )


@scene
def gateway_with_mapped_addresses(cloud: Infrastructure) -> Call:
    return partial(
        cloud.ec2.detach_internet_gateway,
        InternetGatewayId=cloud.gateway,
        VpcId=cloud.vpc,
    )


@scene
def address_of_nat_gateway(cloud: Infrastructure) -> Call:
    return partial(cloud.ec2.release_address, AllocationId=cloud.address)


@scene
def subnet_in_use(cloud: Infrastructure) -> Call:
    return partial(cloud.ec2.delete_subnet, SubnetId=cloud.public[0])


@scene
def group_in_use(cloud: Infrastructure) -> Call:
    group = cloud.ready_cluster().eks.describe_cluster(name=CLUSTER)["cluster"][
        "resourcesVpcConfig"
    ]["clusterSecurityGroupId"]
    return partial(cloud.ec2.delete_security_group, GroupId=group)


@scene
def vpc_in_use(cloud: Infrastructure) -> Call:
    return partial(cloud.ec2.delete_vpc, VpcId=cloud.vpc)


@scene
def ec2_denied(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.FORBID, service="ec2"))
    return partial(_template, cloud, InstanceType="m6i.large")


# Identities and storage


@scene
def role_exists(cloud: Infrastructure) -> Call:
    return partial(cloud.role, "node", "ec2.amazonaws.com")


@scene
def role_with_policies(cloud: Infrastructure) -> Call:
    policy = "arn:aws:iam::aws:policy/AmazonEKS_CNI_Policy"
    cloud.iam.attach_role_policy(RoleName="node", PolicyArn=policy)
    return partial(cloud.iam.delete_role, RoleName="node")


@scene
def role_in_instance_profile(cloud: Infrastructure) -> Call:
    cloud.iam.create_instance_profile(InstanceProfileName="p")
    cloud.iam.add_role_to_instance_profile(InstanceProfileName="p", RoleName="node")
    return partial(cloud.iam.delete_role, RoleName="node")


@scene
def role_gone(cloud: Infrastructure) -> Call:
    return partial(cloud.iam.get_role, RoleName="nobody")


@scene
def iam_denied(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.FORBID, service="iam"))
    return role_gone(cloud)


@scene
def iam_throttled(cloud: Infrastructure) -> Call:
    cloud.aws.fault(AwsFault(FaultKind.THROTTLE, service="iam"))
    return partial(cloud.role, "x", "ec2.amazonaws.com")


@scene
def credential_unknown(cloud: Infrastructure) -> Call:
    cloud.aws.revoke()
    return partial(cloud.role, "x", "ec2.amazonaws.com")


@scene
def mount_target_exists(cloud: Infrastructure) -> Call:
    system = cloud.efs.create_file_system(CreationToken="a")["FileSystemId"]
    for _ in range(4):
        cloud.efs.describe_file_systems()
    create = partial(
        cloud.efs.create_mount_target, FileSystemId=system, SubnetId=cloud.private[0]
    )
    create()
    return create


@scene
def quota_not_set_for_account(cloud: Infrastructure) -> Call:
    return partial(
        cloud.aws.client("service-quotas").get_service_quota,
        ServiceCode="vpc",
        QuotaCode="L-F678F1CE",
    )


# Health issues: the node group that fails, as its create call


def stock_out(cloud: Infrastructure) -> dict[str, Any]:
    cloud.aws.fault(AwsFault(FaultKind.STOCK_OUT, zone="us-east-2a"))
    return {}


def unsupported_zone(cloud: Infrastructure) -> dict[str, Any]:
    cloud.aws.cloud.not_offered["p3.2xlarge"] = frozenset({"us-east-2a"})
    return {"launchTemplate": _template(cloud, InstanceType="p3.2xlarge")}


def nodes_do_not_join(cloud: Infrastructure) -> dict[str, Any]:
    for table in cloud.tables:
        cloud.ec2.delete_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0")
    return {}


GROUPS: Mapping[str, Callable[[Infrastructure], dict[str, Any]]] = {
    each.__name__: each for each in (stock_out, unsupported_zone, nodes_do_not_join)
}
"""For each scene of a health issue, the arguments of the node group that has it."""
