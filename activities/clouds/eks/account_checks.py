"""Check the permissions and quotas of the account before anything costs money.

Neither check is exact. IAM simulates its policies without the resources and tags of the
real calls, and other programs use the same quotas. So nearly all findings are warnings,
and AWS itself rejects calls in the end.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from activities.clouds.desired.graph import DesiredObject
from activities.clouds.desired.plan import QUOTA, PlanProblem
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.rights import RIGHTS
from api_types.labels import CLOUD_OWNER, INSTALLATION
from api_types.messages.clouds import Facts

_ALLOWED, _FORBIDDEN = "allowed", "explicitDeny"
# The context of the simulated calls: objects with Modelplane's mark, Kubernetes', or
# GuardDuty's.
_CONTEXT = {
    f"aws:RequestTag/{CLOUD_OWNER}": "00000000",
    f"aws:RequestTag/{INSTALLATION}": "i",
    f"aws:ResourceTag/{CLOUD_OWNER}": "00000000",
    f"aws:ResourceTag/{INSTALLATION}": "i",
    "aws:ResourceTag/GuardDutyManaged": "true",
    "aws:ResourceTag/kubernetes.io/service-name": "s",
    "aws:ResourceTag/elbv2.k8s.aws/cluster": "c",
    "aws:ResourceTag/kubernetes.io/created-for/pvc/name": "p",
    "ec2:CreateAction": "CreateVpc",
    "ec2:LaunchTemplate": "arn:aws:ec2:us-east-2:111122223333:launch-template/lt-0",
    "iam:AWSServiceName": "eks.amazonaws.com",
    "iam:PassedToService": "eks.amazonaws.com",
    "iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy",
}
# Profiles of EKS have no tags, so policies name them.
_OF_PROFILES = frozenset(
    {"iam:DeleteInstanceProfile", "iam:RemoveRoleFromInstanceProfile"}
)
_PROFILE = "{0}:{1}:iam::{4}:instance-profile/eks-00000000"


@dataclass(frozen=True)
class ServiceQuota:
    """A quota of Service Quotas. `title` names the limited resource."""

    title: str
    service: str
    code: str


_VPCS = ServiceQuota("VPCs per region", "vpc", "L-F678F1CE")
_ADDRESSES = ServiceQuota("elastic IP addresses", "ec2", "L-0263D0A3")
_FAMILIES = (
    (
        re.compile(r"p[0-9].*"),
        ServiceQuota("vCPUs of running on-demand P instances", "ec2", "L-417A185B"),
    ),
    (
        re.compile(r"(g|vt)[0-9].*"),
        ServiceQuota(
            "vCPUs of running on-demand G and VT instances", "ec2", "L-DB2E81BA"
        ),
    ),
)


@dataclass(frozen=True)
class Denied:
    """Actions that the credential lacks.

    A policy forbids the first ones explicitly. No policy allows the others, which are
    by the name of the policy document that grants them.
    """

    forbidden: tuple[str, ...] = ()
    not_allowed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def denied(clients: AwsClients, principal: str) -> Denied:
    """Return the actions of `rights` that the principal may not perform.

    IAM simulates all actions, including the actions of a deletion. Raises
    PermissionDenied if the credential may not use the simulation.
    """
    context = [
        {
            "ContextKeyName": key,
            "ContextKeyType": "string",
            "ContextKeyValues": [value],
        }
        for key, value in _CONTEXT.items()
    ]
    profile = _PROFILE.format(*principal.split(":"))
    everything = chain.from_iterable(RIGHTS.values())
    groups = (
        ([each for each in everything if each not in _OF_PROFILES], ["*"]),
        (list(_OF_PROFILES), [profile]),
    )
    forbidden: set[str] = set()
    lacking: set[str] = set()
    for actions, resources in groups:
        answers = clients.listed(
            "iam",
            "simulate_principal_policy",
            "EvaluationResults",
            PolicySourceArn=principal,
            ActionNames=sorted(set(actions)),
            ResourceArns=resources,
            ContextEntries=context,
        )
        for each in answers:
            # Without the region and other facts of a call, the simulation cannot
            # evaluate a policy with conditions on them.
            if each["EvalDecision"] != _ALLOWED and not each.get(
                "MissingContextValues"
            ):
                found = forbidden if each["EvalDecision"] == _FORBIDDEN else lacking
                found.add(str(each["EvalActionName"]))
    not_allowed = {
        name: tuple(each for each in actions if each in lacking)
        for name, actions in RIGHTS.items()
        if not lacking.isdisjoint(actions)
    }
    return Denied(tuple(sorted(forbidden)), not_allowed)


def quotas(
    clients: AwsClients, objects: Sequence[DesiredObject], known: Mapping[str, Facts]
) -> Iterator[PlanProblem]:
    """Warn of quotas that are too small for the new objects.

    Raises PermissionDenied if the credential may not read quotas.
    """
    new = [each for each in objects if each.key not in known]
    if any(each.key == "net/vpc" for each in new):
        vpcs = list(clients.listed("ec2", "describe_vpcs", "Vpcs"))
        yield from _compared(clients, _VPCS, "", 1, len(vpcs))
    if any(each.key == "net/eip" for each in new):
        addresses = clients.read("ec2", "describe_addresses").get("Addresses", ())
        yield from _compared(clients, _ADDRESSES, "", 1, len(addresses))
    groups = [
        (each, each.machines)
        for each in new
        if each.machines and each.machines.start > 0 and not _is_reserved(each)
    ]
    for family, quota in _FAMILIES:
        of_family = [
            (each, machines)
            for each, machines in groups
            if family.fullmatch(machines.type)
        ]
        if of_family:
            need = Counter[str]()
            for _, machines in of_family:
                need[machines.type] += machines.start
            used = _running(clients, family)
            cores = _cores(clients, sorted(need | used))
            pool = of_family[0][0].key.partition("/")[2]
            at = f"pool {pool}" if len(of_family) == 1 else ""
            yield from _compared(
                clients, quota, at, _sum(need, cores), _sum(used, cores)
            )


def _compared(
    clients: AwsClients, quota: ServiceQuota, at: str, need: int, used: int
) -> Iterator[PlanProblem]:
    limit = _limit(clients, quota)
    if limit is not None and need > limit - used:
        subject = f"{quota.title} (quota {quota.code} of {quota.service})"
        left = f"{max(0, limit - used)} of {limit} left in {clients.region}"
        text = f"{subject}: {need} needed, {left}; request more from AWS"
        yield PlanProblem(QUOTA, at, text)


def _limit(clients: AwsClients, quota: ServiceQuota) -> int | None:
    """Return the limit of the account, else AWS's default, else None."""
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        answer = clients.read(
            "service-quotas",
            operation,
            ServiceCode=quota.service,
            QuotaCode=quota.code,
        )
        found = answer.get("Quota") or {}
        if "Value" in found:
            return int(found["Value"])
    return None


def _is_reserved(group: DesiredObject) -> bool:
    """Return True if a node group is in a capacity block, which does not count."""
    return any(
        call.parameters.get("capacityType") == "CAPACITY_BLOCK" for call in group.calls
    )


def _cores(clients: AwsClients, types: Sequence[str]) -> dict[str, int]:
    # A filter omits types that EC2 does not know. A list of names would be an error.
    listed = clients.listed(
        "ec2",
        "describe_instance_types",
        "InstanceTypes",
        Filters=[{"Name": "instance-type", "Values": list(types)}],
    )
    return {
        str(each["InstanceType"]): int(each.get("VCpuInfo", {}).get("DefaultVCpus", 0))
        for each in listed
    }


def _running(clients: AwsClients, family: re.Pattern[str]) -> Counter[str]:
    """Count the running machines of a family that count against its quota, by type."""
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    listed = clients.listed(
        "ec2", "describe_instances", "Reservations", Filters=filters
    )
    machines = chain.from_iterable(each.get("Instances", ()) for each in listed)
    # Spot machines and capacity blocks have a lifecycle field, and quotas of their own.
    types = (
        str(each["InstanceType"])
        for each in machines
        if not each.get("InstanceLifecycle")
    )
    return Counter(each for each in types if family.fullmatch(each))


def _sum(machines: Counter[str], cores: Mapping[str, int]) -> int:
    return sum(count * cores.get(each, 0) for each, count in machines.items())
