"""Enforces IAM policies of users and roles.

Identities without policies may do everything. The evaluation supports actions with
wildcards, resources, and conditions on tags and a few other keys. The tables follow the
Service Authorization Reference of AWS.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import chain
from typing import Any

from fakes.aws.cloud import AwsCloud, tags_of
from fakes.aws.wire import AwsRequest, Refusal

PREFIXES: Mapping[str, str] = {
    "efs": "elasticfilesystem",
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
    "service-quotas": "servicequotas",
}
"""IAM's prefixes of services, where they differ from the names in boto3."""
_READS = ("Describe", "List", "Get", "Simulate")
_FREE = frozenset({"sts:GetCallerIdentity"})
_EC2_ID = re.compile(
    r"(vpc|subnet|igw|eipalloc|nat|rtb|sg|lt|eni|vol|vpce)-[0-9a-z]{6,}"
)
_EC2_TYPES = {
    "vpc": "vpc",
    "subnet": "subnet",
    "igw": "internet-gateway",
    "eipalloc": "elastic-ip",
    "nat": "natgateway",
    "rtb": "route-table",
    "sg": "security-group",
    "lt": "launch-template",
    "eni": "network-interface",
    "vol": "volume",
    "vpce": "vpc-endpoint",
}
_EC2_CREATES = {
    "CreateVpc": "vpc",
    "CreateSubnet": "subnet",
    "CreateInternetGateway": "internet-gateway",
    "AllocateAddress": "elastic-ip",
    "CreateNatGateway": "natgateway",
    "CreateRouteTable": "route-table",
    "CreateSecurityGroup": "security-group",
    "CreateLaunchTemplate": "launch-template",
}
# Parameters with IDs of objects on which EC2 checks no permission.
_EC2_NOT_CHECKED = {
    "CreateRoute": ("GatewayId", "NatGatewayId"),
    "ReplaceRoute": ("GatewayId", "NatGatewayId"),
    "CreateLaunchTemplate": ("LaunchTemplateData",),
    "CreateLaunchTemplateVersion": ("LaunchTemplateData",),
    "AuthorizeSecurityGroupIngress": ("IpPermissions",),
    "AuthorizeSecurityGroupEgress": ("IpPermissions",),
    "RevokeSecurityGroupIngress": ("IpPermissions",),
    "RevokeSecurityGroupEgress": ("IpPermissions",),
}
_PASSED_TO = {
    "CreateCluster": "eks.amazonaws.com",
    "CreateNodegroup": "eks.amazonaws.com",
    "CreatePodIdentityAssociation": "pods.eks.amazonaws.com",
    "UpdatePodIdentityAssociation": "pods.eks.amazonaws.com",
}
_LINKED_ROLES = {
    "CreateCluster": "eks.amazonaws.com",
    "CreateNodegroup": "eks-nodegroup.amazonaws.com",
    "CreateFileSystem": "elasticfilesystem.amazonaws.com",
}


@dataclass(frozen=True)
class _Asked:
    """One action on one resource, with the keys of its context."""

    action: str
    resource: str = "*"
    keys: Mapping[str, str] = field(default_factory=dict)


def check(cloud: AwsCloud, request: AwsRequest) -> None:
    """Refuse a call that the policies of the caller do not allow."""
    documents = cloud.account.policies_of(request.principal)
    if documents is None:
        return
    for asked in _asked(cloud, request):
        if asked.action not in _FREE and _decision(documents, asked) != "allowed":
            raise _refusal(request, asked)


def simulated(
    documents: Sequence[Mapping[str, Any]],
    action: str,
    resource: str,
    keys: Mapping[str, str],
) -> str:
    """Return IAM's decision about an action. The resource is an ARN or `*`."""
    return _decision(documents, _Asked(action, resource, keys))


def _decision(documents: Sequence[Mapping[str, Any]], asked: _Asked) -> str:
    met = {
        each["Effect"]
        for each in chain.from_iterable(document["Statement"] for document in documents)
        if _matches(each, asked)
    }
    if "Deny" in met:
        return "explicitDeny"
    return "allowed" if "Allow" in met else "implicitDeny"


def _matches(statement: Mapping[str, Any], asked: _Asked) -> bool:
    return (
        _any_like(statement["Action"], asked.action)
        and _any_like(statement.get("Resource", "*"), asked.resource)
        and all(
            _holds(operator, key, values, asked.keys)
            for operator, conditions in statement.get("Condition", {}).items()
            for key, values in conditions.items()
        )
    )


def _holds(operator: str, key: str, values: Any, keys: Mapping[str, str]) -> bool:
    wanted = [str(each) for each in (values if isinstance(values, list) else [values])]
    given = {name.lower(): value for name, value in keys.items()}.get(key.lower())
    if operator == "Null":
        return (given is None) == (wanted[0].lower() == "true")
    if given is None:
        return False
    if operator in ("StringLike", "ArnLike"):
        return any(fnmatchcase(given, each) for each in wanted)
    if operator == "StringEquals":
        return given in wanted
    raise ValueError(
        f"condition operator {operator} is none of Null, StringEquals, StringLike, ArnLike"
    )


def _any_like(patterns: Any, text: str) -> bool:
    each_of = patterns if isinstance(patterns, list) else [patterns]
    return any(fnmatchcase(text.lower(), each.lower()) for each in each_of)


def _asked(cloud: AwsCloud, request: AwsRequest) -> Iterator[_Asked]:
    """Yield the action of a call, and further actions that AWS demands for it."""
    service, operation = request.service, request.operation
    action = f"{PREFIXES.get(service, service)}:{operation}"
    if operation.startswith(_READS):
        yield _Asked(action)
        return
    if service == "ec2":
        yield from _of_ec2(cloud, request, action)
    elif service == "iam":
        yield from _of_iam(cloud, request, action)
    elif service == "eks":
        yield from _of_eks(cloud, request, action)
    elif service == "efs":
        yield from _of_efs(cloud, request, action)
    elif service in ("elb", "elbv2"):
        yield _Asked(action, "*", _resource_tags(_balancer_tags(cloud, request)))
    else:
        yield _Asked(action)
    if role := _LINKED_ROLES.get(operation):
        yield _Asked("iam:CreateServiceLinkedRole", "*", {"iam:AWSServiceName": role})


def _of_ec2(cloud: AwsCloud, request: AwsRequest, action: str) -> Iterator[_Asked]:
    tags = tags_of(request)
    not_checked = _EC2_NOT_CHECKED.get(request.operation, ())
    parameters = {
        key: value
        for key, value in request.parameters.items()
        if key not in not_checked
    }
    more = _request_tags(tags) if request.operation == "CreateTags" else {}
    ids = list(dict.fromkeys([*_ids(parameters), *_tables(cloud, request)]))
    if not ids and request.operation not in _EC2_CREATES:
        ids = _templates(cloud, request)
    if not ids and request.operation not in _EC2_CREATES:
        yield _Asked(action)
    for each in ids:
        yield _Asked(
            action,
            _ec2_arn(cloud, each),
            {**more, **_resource_tags(cloud.ec2.tags.get(each, {}))},
        )
    kind = _EC2_CREATES.get(request.operation)
    if kind is None:
        return
    new = cloud.account.arn("ec2", f"{kind}/new")
    yield _Asked(action, new, _request_tags(tags))
    if tags:
        keys = {**_request_tags(tags), "ec2:CreateAction": request.operation}
        yield _Asked("ec2:CreateTags", new, keys)


def _ids(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        if _EC2_ID.fullmatch(value):
            yield value
    elif isinstance(value, Mapping):
        yield from chain.from_iterable(map(_ids, value.values()))
    elif isinstance(value, list):
        yield from chain.from_iterable(map(_ids, value))


def _tables(cloud: AwsCloud, request: AwsRequest) -> list[str]:
    """Return the route table of an association."""
    association = request.text("AssociationId")
    return [
        name
        for name, table in cloud.ec2.route_tables.items()
        if association and association in table.all_associations_ids
    ]


def _templates(cloud: AwsCloud, request: AwsRequest) -> list[str]:
    name = request.text("LaunchTemplateName")
    if request.operation == "CreateLaunchTemplate" or not name:
        return []
    found = cloud.ec2.launch_template_name_to_ids.get(name)
    return [found] if found else []


def _ec2_arn(cloud: AwsCloud, identity: str) -> str:
    kind = _EC2_TYPES[identity.partition("-")[0]]
    return cloud.account.arn("ec2", f"{kind}/{identity}")


def _of_iam(cloud: AwsCloud, request: AwsRequest, action: str) -> Iterator[_Asked]:
    tags = tags_of(request)
    number, partition = cloud.account.number, cloud.account.partition
    prefix = f"arn:{partition}:iam::{number}"
    if request.operation.startswith("Create") and "Version" not in request.operation:
        kind = "role" if request.operation == "CreateRole" else "policy"
        arn = (
            f"{prefix}:{kind}/{request.text('RoleName') or request.text('PolicyName')}"
        )
        yield _Asked(action, arn, _request_tags(tags))
        if tags:
            yield _Asked(f"iam:Tag{kind.capitalize()}", arn, _request_tags(tags))
        return
    keys: dict[str, str] = {}
    if profile := request.text("InstanceProfileName"):
        arn = f"{prefix}:instance-profile/{profile}"
    elif name := request.text("RoleName"):
        arn = f"{prefix}:role/{name}"
        roles = [each for each in cloud.iam.roles.values() if each.name == name]
        keys = _resource_tags(_iam_tags(roles[0]) if roles else {})
        if policy := request.text("PolicyArn"):
            keys["iam:PolicyARN"] = policy
    else:
        arn = request.text("PolicyArn")
        found = cloud.iam.managed_policies.get(arn)
        keys = _resource_tags(_iam_tags(found) if found else {})
    yield _Asked(action, arn, keys)


def _iam_tags(item: Any) -> dict[str, str]:
    tags = item.tags or {}
    if isinstance(tags, list):
        return {each["Key"]: each["Value"] for each in tags}
    return {
        str(key): str(value["Value"] if isinstance(value, Mapping) else value)
        for key, value in tags.items()
    }


def _of_eks(cloud: AwsCloud, request: AwsRequest, action: str) -> Iterator[_Asked]:
    tags = request.parameters.get("tags") or {}
    name = request.text("clusterName") or request.text("name")
    cluster = cloud.eks.clusters.get(name)
    if request.operation == "CreateCluster":
        own = _request_tags(tags)
    elif request.operation.startswith("Create"):
        of_cluster = _resource_tags(cluster.body.get("tags", {}) if cluster else {})
        own = {**_request_tags(tags), **of_cluster}
    else:
        own = _resource_tags(_eks_tags(cluster, request))
    yield _Asked(action, cloud.account.arn("eks", f"cluster/{name}"), own)
    if tags:
        yield _Asked("eks:TagResource", "*", _request_tags(tags))
    if service := _PASSED_TO.get(request.operation):
        yield _Asked("iam:GetRole")
        yield _Asked("iam:PassRole", "*", {"iam:PassedToService": service})
    if request.operation == "CreateNodegroup":
        yield _Asked("iam:ListAttachedRolePolicies")
        yield _Asked("ec2:DescribeSubnets")
        if template := request.parameters.get("launchTemplate"):
            arn = _ec2_arn(cloud, template.get("id", "lt-0"))
            keys = {"ec2:LaunchTemplate": arn}
            yield _Asked("ec2:RunInstances", "*", keys)
            keys = {"ec2:CreateAction": "RunInstances", **_request_tags(tags)}
            yield _Asked("ec2:CreateTags", "*", keys)


def _eks_tags(cluster: Any, request: AwsRequest) -> dict[str, str]:
    """Return the tags of the part of a cluster that a call changes."""
    if cluster is None:
        return {}
    for name, parts in (
        ("nodegroupName", cluster.node_groups),
        ("addonName", cluster.add_ons),
        ("principalArn", cluster.entries),
        ("associationId", cluster.identities),
    ):
        if wanted := request.text(name):
            part = parts.get(wanted)
            body = getattr(part, "body", part) or {}
            return dict(body.get("tags") or {})
    return dict(cluster.body.get("tags") or {})


def _of_efs(cloud: AwsCloud, request: AwsRequest, action: str) -> Iterator[_Asked]:
    if request.operation == "CreateFileSystem":
        keys = _request_tags(tags_of(request))
        yield _Asked(action, "*", keys)
        yield _Asked("elasticfilesystem:TagResource", "*", keys)
        return
    system = request.text("FileSystemId")
    if target := request.text("MountTargetId"):
        found = cloud.efs.mount_targets_by_id.get(target)
        system = found.file_system_id if found else ""
    held = cloud.efs.file_systems_by_id.get(system)
    arn = cloud.account.arn("elasticfilesystem", f"file-system/{system}")
    tags = cloud.efs.tagging_service.get_tag_dict_for_resource(system) if held else {}
    yield _Asked(action, arn, _resource_tags(tags))
    if request.operation == "CreateMountTarget":
        yield _Asked("ec2:DescribeSubnets")
        yield _Asked("ec2:DescribeNetworkInterfaces")
        new = cloud.account.arn("ec2", "network-interface/new")
        yield _Asked("ec2:CreateNetworkInterface", new)
        for each in _ids(request.parameters):
            keys = _resource_tags(cloud.ec2.tags.get(each, {}))
            yield _Asked("ec2:CreateNetworkInterface", _ec2_arn(cloud, each), keys)
    if request.operation == "DeleteMountTarget":
        of_target = cloud.account.arn("ec2", "network-interface/of-target")
        yield _Asked("ec2:DeleteNetworkInterface", of_target)


def _balancer_tags(cloud: AwsCloud, request: AwsRequest) -> dict[str, str]:
    if name := request.text("LoadBalancerName"):
        classic = cloud.elb.load_balancers.get(name)
        return dict(classic.tags) if classic else {}
    arn = request.text("LoadBalancerArn") or request.text("TargetGroupArn")
    tags = cloud.elbv2.tagging_service.get_tag_dict_for_resource(arn)
    return {str(key): str(value) for key, value in tags.items()}


def _request_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:RequestTag/{key}": str(value) for key, value in tags.items()}


def _resource_tags(tags: Mapping[str, str]) -> dict[str, str]:
    return {f"aws:ResourceTag/{key}": str(value) for key, value in tags.items()}


def _refusal(request: AwsRequest, asked: _Asked) -> Refusal:
    user = f"User: {request.principal} is not authorized to perform: {asked.action}"
    why = f"because no identity-based policy allows the {asked.action} action"
    if request.service == "ec2":
        text = (
            f"You are not authorized to perform this operation. {user} on resource: "
            f"{asked.resource} {why}. Encoded authorization failure message: ENCODED"
        )
        return Refusal("UnauthorizedOperation", text)
    text = f"{user} on resource: {asked.resource} {why}"
    code = (
        "AccessDenied" if request.service in ("iam", "sts") else "AccessDeniedException"
    )
    return Refusal(code, text)
