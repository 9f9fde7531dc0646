"""Security groups with their rules."""

from collections.abc import Mapping
from typing import Any

from activities.clouds.eks.handlers.base import Item, not_ours, tags_of
from activities.clouds.eks.handlers.ec2 import TaggedHandler
from activities.clouds.lifecycle.handler import Found, State, Wanted


class SecurityGroupHandler(TaggedHandler):
    """A security group. Rules that are gone are put back; the rule that EC2 gives every group, which lets everything out, is revoked."""

    listing, result, id_field, id_filter = "describe_security_groups", "SecurityGroups", "GroupId", "group-id"
    deleting = "delete_security_group"

    def untagged(self, wanted: Wanted) -> Found | None:
        """Give a group of this name in the VPC that is not of this cluster."""
        for call in self.expected(wanted, "create_security_group"):
            for item in self.listed(**{"vpc-id": call["VpcId"], "group-name": call["GroupName"]}):
                if foreign := not_ours(tags_of(item), wanted):
                    return foreign
        return super().untagged(wanted)

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Compare the rules."""
        identity = str(item["GroupId"])
        own = {"id": identity}
        changes = []
        for operation, at in (
            ("authorize_security_group_ingress", "IpPermissions"),
            ("authorize_security_group_egress", "IpPermissionsEgress"),
        ):
            if any(not _has(item, at, rule) for call in self.expected(wanted, operation, own) for rule in call["IpPermissions"]):
                changes.append("rules" if at == "IpPermissions" else "egress rules")
        revoked = [rule for call in self.expected(wanted, "revoke_security_group_egress", own) for rule in call["IpPermissions"]]
        if any(_has(item, "IpPermissionsEgress", rule) for rule in revoked):
            changes.append("rule that lets everything out")
        return Found(State.DIFFERS if changes else State.READY, identity, own, changes=tuple(changes), duplicates=duplicates)


def _has(item: Item, at: str, rule: Mapping[str, Any]) -> bool:
    return any(_covers(each, rule) for each in item.get(at, ()))


def _covers(there: Mapping[str, Any], rule: Mapping[str, Any]) -> bool:
    """Whether a rule that EC2 lists has all of one that is wanted. EC2 joins rules of the same ports."""
    if any(there.get(at) != rule.get(at) for at in ("IpProtocol", "FromPort", "ToPort")):
        return False
    ranges = {each["CidrIp"] for each in there.get("IpRanges", ())}
    groups = {each.get("GroupId") for each in there.get("UserIdGroupPairs", ())}
    return all(each["CidrIp"] in ranges for each in rule.get("IpRanges", ())) and all(
        each["GroupId"] in groups for each in rule.get("UserIdGroupPairs", ())
    )
