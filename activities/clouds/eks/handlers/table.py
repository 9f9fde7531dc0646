"""The handler of each kind of object at AWS, and its class of work."""

from collections.abc import Mapping

from activities.clouds.eks.handlers.base import AwsHandler
from activities.clouds.eks.handlers.control_plane import (
    AccessEntryHandler,
    AddonHandler,
    EksClusterHandler,
)
from activities.clouds.eks.handlers.ec2 import (
    ElasticIpHandler,
    InternetGatewayHandler,
    NatGatewayHandler,
    RouteTableHandler,
    VpcHandler,
)
from activities.clouds.eks.handlers.identities import (
    PodIdentityHandler,
    PolicyHandler,
    RoleHandler,
)
from activities.clouds.eks.handlers.launch_templates import LaunchTemplateHandler
from activities.clouds.eks.handlers.node_groups import NodegroupHandler
from activities.clouds.eks.handlers.security_groups import SecurityGroupHandler
from activities.clouds.eks.handlers.storage import (
    FileSystemHandler,
    MountTargetsHandler,
)
from activities.clouds.eks.handlers.subnets import SubnetsHandler
from api_types.messages.clouds import WorkClass

HANDLERS: Mapping[str, type[AwsHandler]] = {
    "VPC": VpcHandler,
    "Subnets": SubnetsHandler,
    "InternetGateway": InternetGatewayHandler,
    "ElasticIP": ElasticIpHandler,
    "NatGateway": NatGatewayHandler,
    "RouteTable": RouteTableHandler,
    "SecurityGroup": SecurityGroupHandler,
    "Role": RoleHandler,
    "Policy": PolicyHandler,
    "Cluster": EksClusterHandler,
    "AccessEntry": AccessEntryHandler,
    "Addon": AddonHandler,
    "PodIdentity": PodIdentityHandler,
    "Nodegroup": NodegroupHandler,
    "LaunchTemplate": LaunchTemplateHandler,
    "FileSystem": FileSystemHandler,
    "MountTargets": MountTargetsHandler,
}
"""Objects of other kinds are inside the cluster, not at AWS."""

WORK: Mapping[str, WorkClass] = {
    "NatGateway": "Medium",
    "SecurityGroup": "Medium",
    "FileSystem": "Medium",
    "MountTargets": "Medium",
    "Addon": "Medium",
    "Connection": "Medium",
    "HelmRelease": "Medium",
    "Cluster": "ControlPlane",
    "Nodegroup": "NodePool",
}
"""All other kinds are Quick."""
