"""Control planes: created, described, updated and deleted."""

import base64
from collections.abc import Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks.access import admit_creator
from testbed.clouds.aws.eks.parts import (
    IN_USE,
    INVALID_PARAMETER,
    NOT_FOUND,
    Handler,
    changeable,
    cluster_of,
    issue,
    page,
    shown,
    start_update,
)
from testbed.clouds.aws.eks.versions import KUBERNETES
from testbed.clouds.aws.eks_store import ACTIVE, BORN, CREATING, DELETING, FAILED, UPDATING, Cluster, Item
from testbed.clouds.aws.faults import Fault, Kind
from testbed.clouds.aws.services.identities import assumable
from testbed.clouds.aws.services.network import add_interface, groups, interfaces, referenced, remove_interface, subnet
from testbed.clouds.aws.wire import Refusal, Request

GROUP_PREFIX = "eks-cluster-sg-"
"""The security group of a cluster is named so, then its name and digits."""
_ZONES_MIN = 2
_INTERFACES = 2


def _create(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    name, given = request.text("name"), request.parameters
    if name in cloud.eks.clusters:
        raise Refusal(IN_USE, f"Cluster already exists with name: {name}")
    version = request.text("version") or KUBERNETES[-1]
    if version not in KUBERNETES:
        raise Refusal(INVALID_PARAMETER, f"unsupported Kubernetes version {version}")
    assumable(cloud, request, request.text("roleArn"), "eks.amazonaws.com")
    network = dict(given.get("resourcesVpcConfig", {}))
    subnets = _subnets(cloud, network.get("subnetIds", []))
    vpc = subnets[0].vpc_id
    config = {"authenticationMode": "CONFIG_MAP", **given.get("accessConfig", {})}
    config.setdefault("bootstrapClusterCreatorAdminPermissions", True)
    body = {
        "name": name,
        "arn": cloud.account.arn("eks", f"cluster/{name}"),
        "createdAt": BORN,
        "version": version,
        "roleArn": request.text("roleArn"),
        "resourcesVpcConfig": {
            "securityGroupIds": [],
            "endpointPublicAccess": True,
            "endpointPrivateAccess": False,
            "publicAccessCidrs": ["0.0.0.0/0"],
            **network,
            "vpcId": vpc,
        },
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "10.100.0.0/16", "ipFamily": "ipv4"},
        "accessConfig": config,
        "status": CREATING,
        "platformVersion": "eks.1",
        "tags": dict(given.get("tags", {})),
        "health": {"issues": []},
    }
    tags = {"aws:eks:cluster-name": name, f"kubernetes.io/cluster/{name}": "owned", "Name": f"{GROUP_PREFIX}{name}"}
    group = cloud.ec2.create_security_group(f"{GROUP_PREFIX}{name}-{cloud.eks.digits(9)}", "EKS created security group", vpc, tags=tags)
    cluster = Cluster(body, group=str(group.id))
    cluster.interfaces = [add_interface(cloud, each.id, [cluster.group], f"Amazon EKS {name}") for each in subnets[:_INTERFACES]]
    cloud.eks.clusters[name] = cluster
    if config["authenticationMode"] != "CONFIG_MAP" and config["bootstrapClusterCreatorAdminPermissions"]:
        admit_creator(cloud, cluster, request.principal)
    fault, vanish = cloud.take(Kind.FAIL, request), cloud.take(Kind.VANISH, request)
    cluster.vanishes_in = vanish.times + cloud.delays.create if vanish else None
    cluster.plan(cloud.delays.create, lambda: _fail(cluster, fault) if fault else _ready(cloud, cluster))
    return {"cluster": dict(body)}


def _fail(cluster: Cluster, fault: Fault) -> None:
    """Bring the creation of a cluster to a bad end."""
    cluster.body["health"] = issue(fault.code or "InternalFailure", fault.message or "the cluster could not be created")
    cluster.become(FAILED)


def _subnets(cloud: Cloud, ids: list[str]) -> list[Any]:
    found = []
    for each in ids:
        known = subnet(cloud, each)
        if known is None or each in cloud.hidden:
            raise Refusal(INVALID_PARAMETER, f"The subnet ID '{each}' does not exist")
        if known.availability_zone in cloud.unsupported_zones:
            text = f"EKS does not support creating control plane instances in {known.availability_zone}, the targeted availability zone"
            usable = [each.name for each in cloud.ec2.describe_availability_zones() if each.name not in cloud.unsupported_zones]
            raise Refusal("UnsupportedAvailabilityZoneException", text, validZones=usable)
        found.append(known)
    if len({each.availability_zone for each in found}) < _ZONES_MIN:
        raise Refusal(INVALID_PARAMETER, "Subnets specified must be in at least two different AZs")
    if len({each.vpc_id for each in found}) > 1:
        raise Refusal(INVALID_PARAMETER, "Subnets specified must be in one VPC")
    return found


def _ready(cloud: Cloud, cluster: Cluster) -> None:
    """Make a cluster usable: its endpoint, its certificate and its security group are known only then."""
    name = cluster.name
    given = cloud.endpoints.get(name) or (cloud.on_ready(name) if cloud.on_ready else None)
    own = (
        f"https://{cloud.eks.digits(32).upper()}.gr7.{cloud.account.region}.eks.amazonaws.com",
        base64.b64encode(b"no certificate").decode(),
    )
    endpoint, authority = given or own
    cluster.body.update(endpoint=endpoint, certificateAuthority={"data": authority})
    cluster.body["resourcesVpcConfig"]["clusterSecurityGroupId"] = cluster.group
    cluster.become(ACTIVE)


def _describe(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster_of(cloud, request)
    return {"cluster": shown(cloud, cloud.eks.clusters, request.text("name"))}


def _list(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return page(request, sorted(cloud.eks.clusters), "clusters")


def _delete(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    if cluster.node_groups:
        raise Refusal(IN_USE, "Cluster has nodegroups attached")
    if cluster.status in (CREATING, UPDATING, DELETING):
        status = cluster.status
        if status != DELETING:
            cluster.read()
        raise Refusal(IN_USE, f"Cannot delete because cluster {cluster.name} currently has status {status}")
    cluster.become(DELETING)
    cluster.plan(cloud.delays.delete, lambda: _gone(cloud, cluster))
    return {"cluster": dict(cluster.body)}


def _gone(cloud: Cloud, cluster: Cluster) -> None:
    """Remove a cluster with its interfaces. Its group stays where something still uses it, as it does at AWS."""
    for each in cluster.interfaces:
        remove_interface(cloud, each)
    cloud.eks.clusters.pop(cluster.name, None)
    held = interfaces(cloud, group=cluster.group)
    named = any(cluster.group in referenced(group) for group in groups(cloud) if group.id != cluster.group)
    if not held and not named and any(group.id == cluster.group for group in groups(cloud)):
        cloud.ec2.delete_security_group(group_id=cluster.group)


def _update_version(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    changeable(cluster, "Cluster")
    wanted = request.text("version")
    if wanted not in KUBERNETES or KUBERNETES.index(wanted) != KUBERNETES.index(cluster.version) + 1:
        raise Refusal(INVALID_PARAMETER, f"Unsupported Kubernetes minor version update from {cluster.version} to {wanted}")
    return start_update(cloud, request, cluster, "VersionUpdate", {"version": wanted})


def _update_config(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    changeable(cluster, "Cluster")
    change: dict[str, Any] = {}
    for key in ("resourcesVpcConfig", "accessConfig"):
        if key in request.parameters:
            change[key] = {**cluster.body[key], **request.parameters[key]}
    if not change:
        raise Refusal(INVALID_PARAMETER, "nothing to update")
    kind = "VpcConfigUpdate" if "resourcesVpcConfig" in change else "AccessConfigUpdate"
    return start_update(cloud, request, cluster, kind, change)


def _describe_update(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("updateId")
    if name not in cluster.updates:
        raise Refusal(NOT_FOUND, f"No update found for ID: {name}")
    return {"update": shown(cloud, cluster.updates, name)}


def _list_updates(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return page(request, list(cluster_of(cloud, request).updates), "updateIds")


def _tagged(cloud: Cloud, request: Request) -> Item:
    arn = request.text("resourceArn")
    arns = ("arn", "nodegroupArn", "addonArn", "accessEntryArn", "associationArn")
    found = next((item for _, item in cloud.eks.items() if arn in [item.body.get(key) for key in arns]), None)
    if found is None:
        raise Refusal("NotFoundException", f"Resource not found: {arn}")
    return found


def _tag(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    _tagged(cloud, request).body["tags"].update(request.parameters["tags"])
    return {}


def _untag(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    tags = _tagged(cloud, request).body["tags"]
    for key in request.parameters["tagKeys"]:
        tags.pop(key, None)
    return {}


def _tags(cloud: Cloud, request: Request) -> Mapping[str, Any]:
    return {"tags": dict(_tagged(cloud, request).body["tags"])}


HANDLERS: Mapping[str, Handler] = {
    "CreateCluster": _create,
    "DescribeCluster": _describe,
    "ListClusters": _list,
    "DeleteCluster": _delete,
    "UpdateClusterVersion": _update_version,
    "UpdateClusterConfig": _update_config,
    "DescribeUpdate": _describe_update,
    "ListUpdates": _list_updates,
    "TagResource": _tag,
    "UntagResource": _untag,
    "ListTagsForResource": _tags,
}
