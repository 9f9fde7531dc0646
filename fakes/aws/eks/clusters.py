"""Control planes: create, describe, update and delete."""

import base64
from collections.abc import Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.access import admit_creator
from fakes.aws.eks.parts import (
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
from fakes.aws.eks.versions import KUBERNETES
from fakes.aws.eks.zones import check_zones
from fakes.aws.eks_store import (
    ACTIVE,
    BORN,
    CREATING,
    DELETING,
    FAILED,
    UPDATING,
    EksClusterObject,
    EksObject,
)
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.services.identities import assumable
from fakes.aws.services.network import (
    add_interface,
    groups,
    interfaces,
    referenced,
    remove_interface,
    subnet,
)
from fakes.aws.wire import AwsRequest, Refusal

GROUP_PREFIX = "eks-cluster-sg-"
"""The prefix of a cluster's security group.

The name of the cluster and digits follow.
"""
_ZONES_MIN = 2
_INTERFACES = 2


def _create(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    name, given = request.text("name"), request.parameters
    if name in cloud.eks.clusters:
        raise Refusal(IN_USE, f"Cluster already exists with name: {name}")
    version = request.text("version") or KUBERNETES[-1]
    if version not in KUBERNETES:
        raise Refusal(INVALID_PARAMETER, f"unsupported Kubernetes version {version}")
    assumable(cloud, request, request.text("roleArn"), "eks.amazonaws.com")
    network = dict(given.get("resourcesVpcConfig", {}))
    subnets = _subnets(cloud, name, network.get("subnetIds", []))
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
        "kubernetesNetworkConfig": {
            "serviceIpv4Cidr": "10.100.0.0/16",
            "ipFamily": "ipv4",
        },
        "accessConfig": config,
        "upgradePolicy": dict(given.get("upgradePolicy", {"supportType": "EXTENDED"})),
        "status": CREATING,
        "platformVersion": "eks.1",
        "tags": dict(given.get("tags", {})),
        "health": {"issues": []},
    }
    tags = {
        "aws:eks:cluster-name": name,
        f"kubernetes.io/cluster/{name}": "owned",
        "Name": f"{GROUP_PREFIX}{name}",
    }
    group = cloud.ec2.create_security_group(
        f"{GROUP_PREFIX}{name}-{cloud.eks.digits(9)}",
        "EKS created security group",
        vpc,
        tags=tags,
    )
    cluster = EksClusterObject(body, group=str(group.id))
    cluster.interfaces = [
        add_interface(cloud, each.id, [cluster.group], f"Amazon EKS {name}")
        for each in subnets[:_INTERFACES]
    ]
    cloud.eks.clusters[name] = cluster
    if (
        config["authenticationMode"] != "CONFIG_MAP"
        and config["bootstrapClusterCreatorAdminPermissions"]
    ):
        admit_creator(cloud, cluster, request.principal)
    fault, vanish = (
        cloud.take(FaultKind.FAIL, request),
        cloud.take(FaultKind.VANISH, request),
    )
    cluster.vanishes_in = vanish.times + cloud.delays.create if vanish else None
    cluster.plan(
        cloud.delays.create,
        lambda: _fail(cluster, fault) if fault else _ready(cloud, cluster),
    )
    return {"cluster": dict(body)}


def _fail(cluster: EksClusterObject, fault: AwsFault) -> None:
    """Let the creation of a cluster fail."""
    cluster.body["health"] = issue(
        fault.code or "InternalFailure",
        fault.message or "the cluster could not be created",
    )
    cluster.become(FAILED)


def _subnets(cloud: AwsCloud, name: str, ids: list[str]) -> list[Any]:
    found = []
    for each in ids:
        known = subnet(cloud, each)
        if known is None or each in cloud.hidden:
            raise Refusal(INVALID_PARAMETER, f"The subnet ID '{each}' does not exist")
        found.append(known)
    if len({each.availability_zone for each in found}) < _ZONES_MIN:
        raise Refusal(
            INVALID_PARAMETER, "Subnets specified must be in at least two different AZs"
        )
    if len({each.vpc_id for each in found}) > 1:
        raise Refusal(INVALID_PARAMETER, "Subnets specified must be in one VPC")
    check_zones(cloud, name, {each.availability_zone for each in found})
    return found


def _ready(cloud: AwsCloud, cluster: EksClusterObject) -> None:
    """Make a cluster usable.

    Only then it has an endpoint, a certificate and a security group.
    """
    name = cluster.name
    given = cloud.endpoints.get(name) or (
        cloud.on_ready(name) if cloud.on_ready else None
    )
    own = (
        f"https://{cloud.eks.digits(32).upper()}.gr7.{cloud.account.region}.eks.amazonaws.com",
        base64.b64encode(b"no certificate").decode(),
    )
    endpoint, authority = given or own
    cluster.body.update(endpoint=endpoint, certificateAuthority={"data": authority})
    cluster.body["resourcesVpcConfig"]["clusterSecurityGroupId"] = cluster.group
    cluster.become(ACTIVE)


def _describe(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster_of(cloud, request)
    return {"cluster": shown(cloud, cloud.eks.clusters, request.text("name"))}


def _list(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return page(request, sorted(cloud.eks.clusters), "clusters")


def _delete(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    if cluster.node_groups:
        raise Refusal(IN_USE, "Cluster has nodegroups attached")
    if cluster.status in (CREATING, UPDATING, DELETING):
        status = cluster.status
        if status != DELETING:
            cluster.read()
        what = "an update in progress" if status == UPDATING else f"status {status}"
        raise Refusal(
            IN_USE,
            f"Cannot delete because cluster {cluster.name} currently has {what}",
        )
    cluster.become(DELETING)
    cluster.plan(cloud.delays.delete, lambda: _gone(cloud, cluster))
    return {"cluster": dict(cluster.body)}


def _gone(cloud: AwsCloud, cluster: EksClusterObject) -> None:
    """Remove a cluster and its interfaces.

    Its security group stays while it is in use, as at AWS.
    """
    for each in cluster.interfaces:
        remove_interface(cloud, each)
    cloud.eks.clusters.pop(cluster.name, None)
    held = interfaces(cloud, group=cluster.group)
    named = any(
        cluster.group in referenced(group)
        for group in groups(cloud)
        if group.id != cluster.group
    )
    if (
        not held
        and not named
        and any(group.id == cluster.group for group in groups(cloud))
    ):
        cloud.ec2.delete_security_group(group_id=cluster.group)


def _update_version(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    _changeable(cluster, "VersionUpdate")
    wanted = request.text("version")
    if (
        wanted not in KUBERNETES
        or KUBERNETES.index(wanted) != KUBERNETES.index(cluster.version) + 1
    ):
        raise Refusal(
            INVALID_PARAMETER,
            f"Unsupported Kubernetes minor version update from {cluster.version} to {wanted}",
        )
    return start_update(cloud, request, cluster, "VersionUpdate", {"version": wanted})


def _update_config(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster = cluster_of(cloud, request)
    change: dict[str, Any] = {}
    kind = "ConfigUpdate"
    for key, its_kind in (
        ("resourcesVpcConfig", "EndpointAccessUpdate"),
        ("accessConfig", "AccessConfigUpdate"),
        ("upgradePolicy", "UpgradePolicyUpdate"),
    ):
        if key in request.parameters:
            change[key] = {**cluster.body[key], **request.parameters[key]}
            kind = its_kind
    _changeable(cluster, kind)
    if not change:
        raise Refusal(INVALID_PARAMETER, "Invalid type for cluster update.")
    network = change.get("resourcesVpcConfig")
    if network is not None and network == cluster.body["resourcesVpcConfig"]:
        private, public = (
            str(network[key]).lower()
            for key in ("endpointPrivateAccess", "endpointPublicAccess")
        )
        raise Refusal(
            INVALID_PARAMETER,
            f"Cluster is already at the desired configuration with endpointPrivateAccess: {private}"
            f" , endpointPublicAccess: {public}, and Public Endpoint Restrictions: "
            f"[{', '.join(network['publicAccessCidrs'])}]",
        )
    return start_update(cloud, request, cluster, kind, change)


def _changeable(cluster: EksClusterObject, kind: str) -> None:
    """Refuse an update of a cluster that is not ACTIVE."""
    if cluster.status == UPDATING:
        running = next(
            (
                name
                for name, each in cluster.updates.items()
                if each.body["status"] == "InProgress"
            ),
            "",
        )
        cluster.read()
        raise Refusal(
            IN_USE,
            f"Cannot {kind} because cluster {cluster.name} currently has update {running} in "
            "progress",
        )
    changeable(cluster, "Cluster")


def _describe_update(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("updateId")
    if name not in cluster.updates:
        raise Refusal(NOT_FOUND, f"No update found for ID: {name}")
    return {"update": shown(cloud, cluster.updates, name)}


def _list_updates(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return page(request, list(cluster_of(cloud, request).updates), "updateIds")


def _tagged(cloud: AwsCloud, request: AwsRequest) -> EksObject:
    arn = request.text("resourceArn")
    arns = ("arn", "nodegroupArn", "addonArn", "accessEntryArn", "associationArn")
    found = next(
        (
            item
            for _, item in cloud.eks.items()
            if arn in [item.body.get(key) for key in arns]
        ),
        None,
    )
    if found is None:
        raise Refusal("NotFoundException", f"Resource not found: {arn}")
    return found


def _tag(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    _tagged(cloud, request).body["tags"].update(request.parameters["tags"])
    return {}


def _untag(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    tags = _tagged(cloud, request).body["tags"]
    for key in request.parameters["tagKeys"]:
        tags.pop(key, None)
    return {}


def _tags(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
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
