"""What is asked about the account before anything costs money: what the credential may do, and what the quotas leave (provisioning.md 3.6).

Neither is certain. IAM simulates its policies without the resources and tags of the real calls, and other programs use the same quotas. So
nearly all that is found are warnings; AWS itself refuses in the end.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from activities.clouds.desired import QUOTA, Problem
from activities.clouds.eks.clients import AwsClients
from activities.clouds.graph import DesiredObject
from api_types.messages.clouds import Facts

# What IAM calls the services of boto3.
_PREFIXES = {"ec2": "ec2", "eks": "eks", "iam": "iam", "efs": "elasticfilesystem"}
_PASS_ROLE = "iam:PassRole"  # noqa: S105 - the name of an action
_ALLOWED, _FORBIDDEN = "allowed", "explicitDeny"
_CREATE, _DELETE = "Create", "Delete"


@dataclass(frozen=True)
class Quota:
    """A quota of Service Quotas. `used` counts what uses it."""

    title: str
    service: str
    code: str


_VPCS = Quota("VPCs per region", "vpc", "L-F678F1CE")
_ADDRESSES = Quota("elastic IP addresses", "ec2", "L-0263D0A3")
_FAMILIES = (
    (re.compile(r"p[0-9].*"), Quota("vCPUs of running on-demand P instances", "ec2", "L-417A185B")),
    (re.compile(r"(g|vt)[0-9].*"), Quota("vCPUs of running on-demand G and VT instances", "ec2", "L-DB2E81BA")),
)


@dataclass(frozen=True)
class Denied:
    """Actions that the credential lacks: those that a policy forbids in so many words, and those that none allows for all resources."""

    forbidden: tuple[str, ...] = ()
    not_allowed: tuple[str, ...] = ()


def denied(clients: AwsClients, principal: str, objects: Sequence[DesiredObject]) -> Denied:
    """Ask IAM what the principal may not do of all that creates and deletes these objects. Raises PermissionDenied where it may not ask."""
    found: dict[bool, list[str]] = {True: [], False: []}
    actions = sorted(_actions(clients, objects))
    answers = clients.listed("iam", "simulate_principal_policy", "EvaluationResults", PolicySourceArn=principal, ActionNames=actions)
    for each in answers:
        # A policy that asks for tags or a region says nothing about a call without them.
        if each["EvalDecision"] != _ALLOWED and not each.get("MissingContextValues"):
            found[each["EvalDecision"] == _FORBIDDEN].append(str(each["EvalActionName"]))
    return Denied(tuple(sorted(found[True])), tuple(sorted(found[False])))


def _actions(clients: AwsClients, objects: Sequence[DesiredObject]) -> set[str]:
    """Name the actions of IAM that create these objects, and those that delete them."""
    found = {_PASS_ROLE}
    for call in (call for each in objects for call in each.calls if call.service in _PREFIXES):
        names = clients.operations(call.service)
        name = names[call.operation]
        found.add(f"{_PREFIXES[call.service]}:{name}")
        opposite = _DELETE + name.removeprefix(_CREATE)
        if name.startswith(_CREATE) and opposite in names.values():
            found.add(f"{_PREFIXES[call.service]}:{opposite}")
    return found


def quotas(clients: AwsClients, objects: Sequence[DesiredObject], known: Mapping[str, Facts]) -> Iterator[Problem]:
    """Warn of quotas that leave less than the objects need which are not there yet. Raises PermissionDenied where they may not be asked."""
    new = [each for each in objects if each.key not in known]
    if any(each.key == "net/vpc" for each in new):
        yield from _compared(clients, _VPCS, "", 1, sum(1 for _ in clients.listed("ec2", "describe_vpcs", "Vpcs")))
    if any(each.key == "net/eip" for each in new):
        yield from _compared(clients, _ADDRESSES, "", 1, len(clients.read("ec2", "describe_addresses").get("Addresses", ())))
    groups = [(each, each.machines) for each in new if each.machines and each.machines.start > 0 and not _is_reserved(each)]
    for family, quota in _FAMILIES:
        of_family = [(each, machines) for each, machines in groups if family.fullmatch(machines.type)]
        if of_family:
            need = Counter[str]()
            for _, machines in of_family:
                need[machines.type] += machines.start
            used = _running(clients, family)
            cores = _cores(clients, sorted(need | used))
            at = f"pool {of_family[0][0].key.partition('/')[2]}" if len(of_family) == 1 else ""
            yield from _compared(clients, quota, at, _sum(need, cores), _sum(used, cores))


def _compared(clients: AwsClients, quota: Quota, at: str, need: int, used: int) -> Iterator[Problem]:
    limit = _limit(clients, quota)
    if limit is not None and need > limit - used:
        where = f"quota {quota.code} of {quota.service}"
        text = f"{quota.title} ({where}): {need} needed, {max(0, limit - used)} of {limit} left in {clients.region}; ask AWS for more"
        yield Problem(QUOTA, at, text)


def _limit(clients: AwsClients, quota: Quota) -> int | None:
    """Give the limit that holds for the account: its own, or AWS's default. None where the service knows no such quota."""
    for operation in ("get_service_quota", "get_aws_default_service_quota"):
        found = clients.read("service-quotas", operation, ServiceCode=quota.service, QuotaCode=quota.code).get("Quota") or {}
        if "Value" in found:
            return int(found["Value"])
    return None


def _is_reserved(group: DesiredObject) -> bool:
    """Whether the machines of a node group are in a capacity block, which does not count."""
    return any(call.parameters.get("capacityType") == "CAPACITY_BLOCK" for call in group.calls)


def _cores(clients: AwsClients, types: Sequence[str]) -> dict[str, int]:
    # As a filter: a type that EC2 does not know is left out, and no error.
    listed = clients.listed("ec2", "describe_instance_types", "InstanceTypes", Filters=[{"Name": "instance-type", "Values": list(types)}])
    return {str(each["InstanceType"]): int(each.get("VCpuInfo", {}).get("DefaultVCpus", 0)) for each in listed}


def _running(clients: AwsClients, family: re.Pattern[str]) -> Counter[str]:
    """Count the machines of a family that count against its quota, by type."""
    filters = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    listed = clients.listed("ec2", "describe_instances", "Reservations", Filters=filters)
    machines = (each for reservation in listed for each in reservation.get("Instances", ()))
    # Spot machines and capacity blocks have a lifecycle here, and limits of their own.
    types = (str(each["InstanceType"]) for each in machines if not each.get("InstanceLifecycle"))
    return Counter(each for each in types if family.fullmatch(each))


def _sum(machines: Counter[str], cores: Mapping[str, int]) -> int:
    return sum(count * cores.get(each, 0) for each, count in machines.items())
