"""Node groups: create, describe, update and delete.

A node is a network interface in a subnet of its group.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks.access import add_entry
from fakes.aws.eks.launches import CAPACITY_BLOCK, LaunchProblem, launch_problem
from fakes.aws.eks.machines import check_image
from fakes.aws.eks.parts import (
    IN_USE,
    INVALID_PARAMETER,
    INVALID_REQUEST,
    Handler,
    active_cluster,
    changeable,
    cluster_of,
    issue,
    item_of,
    page,
    shown,
    start_update,
)
from fakes.aws.eks.scaling import group_name
from fakes.aws.eks.versions import KUBERNETES
from fakes.aws.eks.zones import check_offered
from fakes.aws.eks_store import (
    ACTIVE,
    BORN,
    CREATE_FAILED,
    CREATING,
    DEGRADED,
    DELETE_FAILED,
    DELETING,
    UPDATING,
    EksClusterObject,
    EksObject,
)
from fakes.aws.faults import AwsFault, FaultKind
from fakes.aws.services.identities import trusted_by_node
from fakes.aws.services.network import (
    add_interface,
    remove_interface,
    subnet,
)
from fakes.aws.wire import AwsRequest, Refusal

_DISK_GIB = 20
_EFFECTS = frozenset({"NO_SCHEDULE", "NO_EXECUTE", "PREFER_NO_SCHEDULE"})
# Fields that the launch template of a node group must not have, because EKS sets them.
_NOT_IN_TEMPLATE = (
    "IamInstanceProfile",
    "HibernationOptions",
    "InstanceInitiatedShutdownBehavior",
)


def _create(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name, given = (
        active_cluster(cloud, request),
        request.text("nodegroupName"),
        request.parameters,
    )
    if name in cluster.node_groups:
        raise Refusal(
            IN_USE,
            f"NodeGroup already exists with name {name} and cluster name {cluster.name}",
        )
    zones = {
        _subnet(cloud, cluster, each).availability_zone for each in given["subnets"]
    }
    trusted_by_node(cloud, request, request.text("nodeRole"))
    template, data = _template(cloud, given)
    types = given.get("instanceTypes") or [data.get("InstanceType", "t3.medium")]
    check_image(types, request.text("amiType") or "AL2023_x86_64_STANDARD")
    check_offered(cloud, given.get("instanceTypes", ()), zones)
    scaling = {"minSize": 1, "maxSize": 2, "desiredSize": 2} | dict(
        given.get("scalingConfig", {})
    )
    _check_scaling(scaling)
    _check_taints(given.get("taints", []))
    body: dict[str, Any] = {
        "nodegroupName": name,
        "nodegroupArn": cloud.account.arn(
            "eks", f"nodegroup/{cluster.name}/{name}/{cloud.eks.digits(8)}"
        ),
        "clusterName": cluster.name,
        "version": cluster.version,
        "releaseVersion": f"{cluster.version}.1-20260101",
        "createdAt": BORN,
        "modifiedAt": BORN,
        "status": CREATING,
        "capacityType": request.text("capacityType") or "ON_DEMAND",
        "scalingConfig": scaling,
        "subnets": list(given["subnets"]),
        "amiType": request.text("amiType") or "AL2023_x86_64_STANDARD",
        "nodeRole": request.text("nodeRole"),
        "labels": dict(given.get("labels", {})),
        "taints": list(given.get("taints", [])),
        "health": {"issues": []},
        "updateConfig": dict(given.get("updateConfig", {"maxUnavailable": 1})),
        "tags": dict(given.get("tags", {})),
    }
    if template is None:
        body |= {
            "instanceTypes": list(given.get("instanceTypes", ["t3.medium"])),
            "diskSize": int(given.get("diskSize", _DISK_GIB)),
        }
    else:
        body["launchTemplate"] = template
        if given.get("instanceTypes"):
            body["instanceTypes"] = list(given["instanceTypes"])
    group = cluster.node_groups[name] = EksObject(body)
    problem = launch_problem(cloud, request, group, data, zones)
    degraded = cloud.take(FaultKind.DEGRADE, request)
    vanish = cloud.take(FaultKind.VANISH, request)
    group.vanishes_in = vanish.times + cloud.delays.create if vanish else None
    group.plan(
        cloud.delays.create,
        lambda: (
            _failed(cloud, cluster, group, data, problem)
            if problem
            else _ready(cloud, cluster, group, data, degraded)
        ),
    )
    return {"nodegroup": dict(body)}


def _subnet(cloud: AwsCloud, cluster: EksClusterObject, subnet_id: str) -> Any:
    found = subnet(cloud, subnet_id)
    if found is None:
        raise Refusal(INVALID_PARAMETER, f"The subnet ID '{subnet_id}' does not exist")
    if found.vpc_id != cluster.body["resourcesVpcConfig"]["vpcId"]:
        raise Refusal(
            INVALID_PARAMETER, f"Subnet {subnet_id} is not in the VPC of the cluster"
        )
    return found


def _template(
    cloud: AwsCloud, given: Mapping[str, Any]
) -> tuple[dict[str, str] | None, Mapping[str, Any]]:
    """Return a group's launch template as EKS shows it, and its content."""
    wanted = given.get("launchTemplate")
    if wanted is None:
        if given.get("capacityType") == CAPACITY_BLOCK:
            raise Refusal(
                INVALID_PARAMETER,
                "Capacity blocks need a launch template with the reservation",
            )
        return None, {}
    if "diskSize" in given:
        raise Refusal(
            INVALID_PARAMETER, "Disk size must be specified within the launch template."
        )
    template_id = wanted.get("id") or cloud.ec2.launch_template_name_to_ids.get(
        wanted.get("name")
    )
    template = cloud.ec2.launch_templates.get(template_id)
    if template is None:
        raise Refusal(
            INVALID_REQUEST,
            f"Launch template {wanted.get('name') or wanted.get('id')} not found",
        )
    number = (
        template.default_version_number
        if wanted.get("version") in (None, "$Default")
        else wanted["version"]
    )
    if str(number) != "$Latest" and not 1 <= int(number) <= len(template.versions):
        raise Refusal(
            INVALID_REQUEST,
            f"Version {number} of launch template {template.name} not found",
        )
    data: Mapping[str, Any] = template.get_version(number).data
    if barred := [key for key in _NOT_IN_TEMPLATE if data.get(key)]:
        raise Refusal(
            INVALID_PARAMETER, f"The launch template must not have {barred[0]}"
        )
    if any(each.get("SubnetId") for each in data.get("NetworkInterfaces", [])):
        raise Refusal(INVALID_PARAMETER, "The launch template must not have a subnet")
    if data.get("InstanceType") and given.get("instanceTypes"):
        raise Refusal(
            INVALID_REQUEST,
            "Cannot specify instance types in launch template and API request",
        )
    return {
        "name": str(template.name),
        "id": str(template.id),
        "version": str(number),
    }, data


def _check_scaling(scaling: Mapping[str, int]) -> None:
    least, most, desired = (
        scaling["minSize"],
        scaling["maxSize"],
        scaling["desiredSize"],
    )
    if most < 1:
        raise Refusal(INVALID_PARAMETER, "maxSize must be at least 1")
    if least > most:
        raise Refusal(
            INVALID_PARAMETER,
            f"Minimum capacity {least} can't be greater than maximum size {most}",
        )
    if not least <= desired <= most:
        raise Refusal(
            INVALID_PARAMETER,
            (
                f"desired capacity {desired} can't be less than minimum size "
                f"{least}, or greater than maximum size {most}"
            ),
        )


def _check_taints(taints: list[Mapping[str, str]]) -> None:
    if wrong := [each for each in taints if each.get("effect") not in _EFFECTS]:
        raise Refusal(
            INVALID_PARAMETER, f"Invalid taint effect: {wrong[0].get('effect')}"
        )


def _failed(
    cloud: AwsCloud,
    cluster: EksClusterObject,
    group: EksObject,
    data: Mapping[str, Any],
    problem: LaunchProblem,
) -> None:
    """Let the creation fail.

    Nodes in zones with machines run nevertheless, but the group never becomes ACTIVE.
    """
    group.body["health"] = problem.health
    group.body["resources"] = {"autoScalingGroups": [{"name": group_name(group)}]}
    if problem.subnets:
        _resize(cloud, cluster, group, data, problem.subnets)
    group.become(CREATE_FAILED)


def _ready(
    cloud: AwsCloud,
    cluster: EksClusterObject,
    group: EksObject,
    data: Mapping[str, Any],
    degraded: AwsFault | None,
) -> None:
    group.body["resources"] = {"autoScalingGroups": [{"name": group_name(group)}]}
    role = group.body["nodeRole"]
    if role not in cluster.entries:
        add_entry(cloud, cluster, role, {}, "EC2_LINUX")
    _resize(cloud, cluster, group, data)
    group.become(ACTIVE)
    if degraded is not None:
        group.plan(cloud.delays.create, lambda: _degrade(group, degraded))


def _degrade(group: EksObject, fault: AwsFault) -> None:
    """Let a group that was ACTIVE report an issue for some reads."""
    group.body["health"] = issue(
        fault.code or "AsgInstanceLaunchFailures",
        fault.message
        or "Could not launch On-Demand Instances. InsufficientInstanceCapacity - We currently do "
        "not have sufficient capacity. Launching EC2 instance failed.",
        [group_name(group)],
    )
    group.become(DEGRADED)

    def heal() -> None:
        group.body["health"] = {"issues": []}
        group.become(ACTIVE)

    group.plan(fault.times, heal)


def _resize(
    cloud: AwsCloud,
    cluster: EksClusterObject,
    group: EksObject,
    data: Mapping[str, Any],
    within_subnets: Sequence[str] = (),
) -> None:
    """Create or remove nodes up to the desired number, spread over the subnets."""
    wanted = group.body["scalingConfig"]["desiredSize"]
    subnets = within_subnets or group.body["subnets"]
    while len(group.interfaces) > wanted:
        remove_interface(cloud, group.interfaces.pop())
    networks = data.get("NetworkInterfaces", [])
    within = list(networks[0].get("Groups", [])) if networks else [cluster.group]
    while len(group.interfaces) < wanted:
        where = subnets[len(group.interfaces) % len(subnets)]
        interface = add_interface(
            cloud,
            where,
            within,
            "",
            {"eks:nodegroup-name": group.body["nodegroupName"]},
        )
        cloud.ec2.enis[interface].status = "in-use"
        group.interfaces.append(interface)


def _describe(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    groups = cluster_of(cloud, request).node_groups
    item_of(groups, "node group", request.text("nodegroupName"))
    return {"nodegroup": shown(cloud, groups, request.text("nodegroupName"))}


def _list(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    return page(request, sorted(cluster_of(cloud, request).node_groups), "nodegroups")


def _delete(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, name = cluster_of(cloud, request), request.text("nodegroupName")
    group = item_of(cluster.node_groups, "node group", name)
    if group.status in (CREATING, UPDATING, DELETING):
        status = group.status
        if status != DELETING:
            group.read()
        raise Refusal(
            IN_USE,
            f"Nodegroup {name} cannot be deleted as it is currently in status {status}",
        )
    fault = cloud.take(FaultKind.DELETE_FAILED, request)
    group.become(DELETING)

    def end() -> None:
        if fault is not None:
            group.body["health"] = issue(
                fault.code or "Ec2SecurityGroupDeletionFailure",
                fault.message or "an object of the group is still in use",
            )
            group.become(DELETE_FAILED)
            return
        for each in group.interfaces:
            remove_interface(cloud, each)
        cluster.node_groups.pop(name, None)

    group.plan(cloud.delays.delete, end)
    return {"nodegroup": dict(group.body)}


def _update_config(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, given = cluster_of(cloud, request), request.parameters
    group = item_of(cluster.node_groups, "node group", request.text("nodegroupName"))
    changeable(group, "Nodegroup")
    body, change = group.body, dict[str, Any]()
    if "scalingConfig" in given:
        change["scalingConfig"] = body["scalingConfig"] | given["scalingConfig"]
        _check_scaling(change["scalingConfig"])
    if "labels" in given:
        labels = body["labels"] | given["labels"].get("addOrUpdateLabels", {})
        change["labels"] = {
            key: value
            for key, value in labels.items()
            if key not in given["labels"].get("removeLabels", [])
        }
    if "taints" in given:
        _check_taints(given["taints"].get("addOrUpdateTaints", []))
        removed = [
            (each["key"], each["effect"])
            for each in given["taints"].get("removeTaints", [])
        ]
        taints = {
            (each["key"], each["effect"]): each
            for each in (*body["taints"], *given["taints"].get("addOrUpdateTaints", []))
        }
        change["taints"] = [each for key, each in taints.items() if key not in removed]
    if "updateConfig" in given:
        change["updateConfig"] = given["updateConfig"]
    if not change:
        raise Refusal(INVALID_PARAMETER, "You cannot specify an empty request")
    answer = start_update(cloud, request, group, "ConfigUpdate", change)
    if "scalingConfig" in change:
        _, data = _template(
            cloud,
            {"launchTemplate": body["launchTemplate"]}
            if "launchTemplate" in body
            else {},
        )
        sized = EksObject({**body, **change}, interfaces=group.interfaces)
        _resize(cloud, cluster, sized, data)
    return answer


def _update_version(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    cluster, given = cluster_of(cloud, request), request.parameters
    group = item_of(cluster.node_groups, "node group", request.text("nodegroupName"))
    changeable(group, "Nodegroup")
    change: dict[str, Any] = {}
    if "launchTemplate" in given:
        if "launchTemplate" not in group.body:
            raise Refusal(
                INVALID_PARAMETER,
                "You cannot add a launch template to a node group that was made without one",
            )
        change["launchTemplate"], _ = _template(
            cloud, {"launchTemplate": given["launchTemplate"]}
        )
    wanted = request.text("version") or (
        cluster.version if "launchTemplate" not in given else ""
    )
    if wanted:
        if wanted not in KUBERNETES or KUBERNETES.index(wanted) > KUBERNETES.index(
            cluster.version
        ):
            raise Refusal(
                INVALID_PARAMETER,
                (
                    f"Nodegroup Kubernetes version {wanted} is higher than that of "
                    f"the cluster, {cluster.version}"
                ),
            )
        if KUBERNETES.index(wanted) < KUBERNETES.index(group.body["version"]):
            raise Refusal(
                INVALID_PARAMETER,
                f"Nodegroup Kubernetes version {wanted} is lower than {group.body['version']}",
            )
        change |= {"version": wanted, "releaseVersion": f"{wanted}.1-20260101"}
    return start_update(cloud, request, group, "VersionUpdate", change)


HANDLERS: Mapping[str, Handler] = {
    "CreateNodegroup": _create,
    "DescribeNodegroup": _describe,
    "ListNodegroups": _list,
    "DeleteNodegroup": _delete,
    "UpdateNodegroupConfig": _update_config,
    "UpdateNodegroupVersion": _update_version,
}
