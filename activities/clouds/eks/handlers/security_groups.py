"""The handler of security groups with their rules."""

from collections.abc import Mapping
from itertools import chain
from typing import Any

from activities.clouds.eks.handlers.base import Item, not_ours, tags_of
from activities.clouds.eks.handlers.ec2 import TaggedHandler
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State


class SecurityGroupHandler(TaggedHandler):
    """A security group.

    Missing rules are restored. EC2 adds a rule to every group that allows all outgoing
    traffic. This rule is revoked.
    """

    listing, result, id_field, id_filter = (
        "describe_security_groups",
        "SecurityGroups",
        "GroupId",
        "group-id",
    )
    deleting = "delete_security_group"

    def untagged(self, wanted: ObjectWork) -> CloudObservation | None:
        """Return a Foreign group if another owner has a group of this name in the VPC."""
        for call in self.expected(wanted, "create_security_group"):
            for item in self.listed(
                **{"vpc-id": call["VpcId"], "group-name": call["GroupName"]}
            ):
                marked = self.marked("ec2", str(item["GroupId"]))
                if foreign := not_ours(tags_of(item), wanted, marked):
                    return foreign
        return super().untagged(wanted)

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Compare the rules."""
        identity = str(item["GroupId"])
        own = {"id": identity}
        changes = []
        for operation, at in (
            ("authorize_security_group_ingress", "IpPermissions"),
            ("authorize_security_group_egress", "IpPermissionsEgress"),
        ):
            rules = self._rules(wanted, operation, own)
            if any(not _has(item, at, rule) for rule in rules):
                changes.append("rules" if at == "IpPermissions" else "egress rules")
        revoked = self._rules(wanted, "revoke_security_group_egress", own)
        if any(_has(item, "IpPermissionsEgress", rule) for rule in revoked):
            changes.append("rule that lets everything out")
        return CloudObservation(
            State.DIFFERS if changes else State.READY,
            identity,
            own,
            changes=tuple(changes),
            duplicates=duplicates,
        )

    def _rules(
        self, wanted: ObjectWork, operation: str, own: Mapping[str, str]
    ) -> list[Mapping[str, Any]]:
        calls = self.expected(wanted, operation, own)
        return list(chain.from_iterable(call["IpPermissions"] for call in calls))


def _has(item: Item, at: str, rule: Mapping[str, Any]) -> bool:
    return any(_covers(each, rule) for each in item.get(at, ()))


def _covers(there: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    """Return True if a listed rule covers a desired one.

    EC2 merges rules of equal ports.
    """
    if any(
        there.get(at) != rule.get(at) for at in ("IpProtocol", "FromPort", "ToPort")
    ):
        return False
    ranges = {each["CidrIp"] for each in there.get("IpRanges", ())}
    groups = {each.get("GroupId") for each in there.get("UserIdGroupPairs", ())}
    return all(each["CidrIp"] in ranges for each in rule.get("IpRanges", ())) and all(
        each["GroupId"] in groups for each in rule.get("UserIdGroupPairs", ())
    )
