"""Tell errors of AWS apart by their texts, and name the next step of a person.

EKS uses one code for many reasons: `InvalidRequestException` is a rate limit, a missing
permission, a running operation, or a machine type that a zone does not have. An Auto
Scaling group reports all reasons as `AsgInstanceLaunchFailures`. The texts are from
public issues, which `tests/data/clouds/aws*.yaml` names.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from api_types.errors import (
    Busy,
    CapacityUnavailable,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    QuotaExceeded,
    Throttled,
)

AMBIGUOUS = frozenset(
    {
        "InvalidRequestException",
        "InvalidParameterException",
        "InvalidParameterCombination",
        "InvalidParameterValue",
        "ResourceInUseException",
        "Unsupported",
        "AsgInstanceLaunchFailures",
        "NodeCreationFailure",
        "Ec2LaunchTemplateInvalidConfiguration",
        "AutoScalingGroupInvalidConfiguration",
        "Unknown",
    }
)
"""Codes with several meanings. For these, the text decides first."""


class _TextRule(NamedTuple):
    pattern: str
    error: type[ModelplaneError]
    step: str = ""


_OFFER: Final = (
    "the zone does not have this machine type: name zones that have it in `zones` of the "
    "pool, or use a class with another instanceType"
)
_RULES: Final[Sequence[_TextRule]] = (
    _TextRule(r"request limit exceeded|rate exceeded", Throttled),
    _TextRule(
        r"not authorized to (use|launch instances with this) launch template",
        PermissionDenied,
        "allow ec2:RunInstances, ec2:CreateTags and iam:PassRole for the launch template and "
        "its objects",
    ),
    _TextRule(
        r"missing permissions for|is not authorized to perform|explicit deny",
        PermissionDenied,
        "allow this action in the policies of the credential and of the organization",
    ),
    _TextRule(
        r"not supported in your requested availability zone"
        r"|requested configuration is currently not supported",
        InvalidInput,
        _OFFER,
    ),
    _TextRule(
        r"insufficient\w*capacity|do(es)? not have sufficient|no spot capacity"
        r"|UnfulfillableCapacity|ReservationCapacityExceeded",
        CapacityUnavailable,
    ),
    _TextRule(
        r"LimitExceeded|reached your quota|exceed(s|ed)? quota|\blimit\b", QuotaExceeded
    ),
    _TextRule(
        r"valid instance type for requested amiType|does not match the architecture",
        InvalidInput,
        "use an instanceType whose processors fit the image of the pool",
    ),
    _TextRule(
        r"instance types? in launch template and API request|fully-formed launch template",
        InvalidInput,
        "this release and EKS disagree about the launch template: report this text",
    ),
    _TextRule(
        r"not in (the )?active (state|status)|currently has (an )?update|update in progress"
        r"|currently in (status )?\w+|currently has status|currently (being )?(creat|updat|delet)"
        r"|because cluster .* currently",
        Busy,
    ),
    _TextRule(r"launch template .*(not found|does not exist)", NotYet),
)
_STEPS: Final[Mapping[str, str]] = {
    "PendingVerification": (
        "AWS still verifies the account for this region, usually for minutes and at most "
        "for 4 hours: write to aws-verification@amazon.com if it takes longer"
    ),
    "Blocked": "AWS has blocked the account: contact AWS Support",
    "OptInRequired": "subscribe the account to the service, or enable the region",
    "RegionDisabledException": "enable STS in this region in the settings of the account",
    "UnsupportedAvailabilityZoneException": (
        "name other zones in `zones` of the pools"
    ),
    "UnsupportedAvailabilityZone": "name other zones in `zones` of the pools",
    "InsufficientFreeAddressesInSubnet": (
        "the subnet is full: use larger ranges in eks.subnetCidrs for a new cluster"
    ),
    "NoFreeAddressesInSubnet": (
        "the subnet is full: use larger ranges in eks.subnetCidrs for a new cluster"
    ),
    "InsufficientFreeAddresses": (
        "a subnet is full: use larger ranges in eks.subnetCidrs for a new cluster"
    ),
    "NodeCreationFailure": (
        "machines start and do not join the cluster: check their way to the internet "
        "(NAT gateway and routes), their security groups, and the access entry of the node "
        "role"
    ),
    "ClusterUnreachable": (
        "EKS does not reach the API server: check the network of the control plane"
    ),
    "PodEvictionFailure": (
        "a pod cannot be evicted: relax its PodDisruptionBudget, or delete the pod"
    ),
    "Ec2InstanceTypeDoesNotExist": "use a class with another instanceType",
    "Ec2SubnetNotFound": "somebody deleted a subnet: run `modelplane retry`",
    "Ec2SecurityGroupNotFound": (
        "somebody deleted the security group of the cluster: recreate the cluster"
    ),
    "IamNodeRoleNotFound": "somebody deleted the role of the nodes: run `modelplane retry`",
    "IamInstanceProfileNotFound": "run `modelplane retry` to recreate the pool",
    "Ec2LaunchTemplateNotFound": "run `modelplane retry` to recreate the pool",
    "Ec2LaunchTemplateVersionMismatch": (
        "somebody changed the launch template of EKS: restore the version of EKS, or run "
        "`modelplane retry` to recreate the pool"
    ),
    "AutoScalingGroupNotFound": (
        "somebody deleted the Auto Scaling group: run `modelplane retry` to recreate the "
        "pool"
    ),
    "Ec2SecurityGroupDeletionFailure": (
        "remove what uses the security group of the pool; the deletion is repeated"
    ),
    "InsufficientNumberOfReplicas": (
        "the pods of the add-on do not run: check the nodes of the system pool"
    ),
    "ConfigurationConflict": (
        "somebody changed fields of the add-on in the cluster: undo this, or delete the add-on"
    ),
    "KmsKeyDisabled": "enable the KMS key",
    "IamRoleNotFound": "somebody deleted the role of the cluster: recreate the cluster",
    "VpcNotFound": "somebody deleted the network: recreate the cluster",
}
_COMPILED = tuple(
    (re.compile(rule.pattern, re.IGNORECASE | re.DOTALL), rule) for rule in _RULES
)
_SHORT_OF_ZONE = re.compile(
    r"sufficient \S+ capacity in the Availability Zone you requested \((?P<zone>[a-z0-9-]+)\)"
)


def class_by_text(code: str, text: str) -> type[ModelplaneError] | None:
    """Return the error class that a text names, or None if it names none.

    A code with one meaning is not searched.
    """
    found = _rule(code, text)
    return found.error if found else None


def next_step(code: str, text: str) -> str:
    """Return the next step of a person, or "" if nobody has to act."""
    found = _rule(code, text)
    if found is not None and found.step:
        return found.step
    return _STEPS.get(code, "")


def zones_without_capacity(text: str) -> list[str]:
    """Return the zones that lack machines, as an Auto Scaling group words it."""
    return sorted(set(_SHORT_OF_ZONE.findall(text)))


def _rule(code: str, text: str) -> _TextRule | None:
    if code not in AMBIGUOUS:
        return None
    return next((rule for pattern, rule in _COMPILED if pattern.search(text)), None)
