"""The subnets of a cluster as one object: one public and one private in each zone. Their ranges say which is which."""

from collections.abc import Mapping
from typing import Any

from activities.clouds.eks.handlers.base import Item, not_ours, tags_of
from activities.clouds.eks.handlers.ec2 import TaggedHandler
from activities.clouds.lifecycle.handler import Found, State, Wanted
from api_types.errors import InvalidInput, ModelplaneError, ReplaceRequired

RANGE = "cidr"
"""With `-cidr` behind the name of the fact for a subnet, the name of the fact for its range."""

# What is in a subnet for good.
_IN_SUBNETS = ("cluster", "efs/mounts")


class SubnetsHandler(TaggedHandler):
    """All subnets. Those that are missing are created; tags, and the addresses that public ones give, are put back."""

    listing, result, id_field, id_filter, deleting = "describe_subnets", "Subnets", "SubnetId", "subnet-id", "delete_subnet"

    def look(self, wanted: Wanted) -> Found:
        """Find those with our tags, and compare each with the call that creates it."""
        items = {str(item["CidrBlock"]): item for item in self.tagged(wanted)}
        if not items:
            return self._absent(wanted)
        facts: dict[str, str] = {}
        changes: list[str] = []
        for name, given in self._expected(wanted).items():
            item = items.get(given["CidrBlock"])
            if item is None:
                changes.append(f"subnet {given['CidrBlock']} in {given['AvailabilityZone']}")
                continue
            facts |= {name: str(item["SubnetId"]), f"{name}-{RANGE}": given["CidrBlock"]}
            if missing := _missing_tags(item, given):
                changes.append(f"{len(missing)} tags of {item['SubnetId']}")
            if _opens(wanted, name) and not item.get("MapPublicIpOnLaunch"):
                changes.append(f"public addresses of {item['SubnetId']}")
        pending = [str(item["SubnetId"]) for item in items.values() if item.get("State") == "pending"]
        if pending and not changes:
            return Found(State.PENDING, facts=facts, reason=f"{pending[0]} is pending")
        return Found(State.DIFFERS if changes else State.READY, facts=facts, changes=tuple(changes))

    def _absent(self, wanted: Wanted) -> Found:
        """Give that none is there; they are not created again while other objects say that they are in them."""
        known = sorted(value for name, value in wanted.known.get(wanted.object.key, {}).items() if not name.endswith(f"-{RANGE}"))
        inside = [key for key in _IN_SUBNETS if key in wanted.known]
        if known and inside:
            return Found(State.ABSENT, reason=_cannot_move(known[0], inside), cause=ReplaceRequired, uncertain=True)
        return Found(State.ABSENT, uncertain=True)

    def create(self, wanted: Wanted) -> None:
        """Create all of them."""
        self._complete(wanted)

    def update(self, wanted: Wanted, found: Found) -> None:
        """Create those that are missing, and put back what was changed."""
        del found
        self._complete(wanted)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete each, also when others are still in use."""
        del found
        refused: ModelplaneError | None = None
        for item in self.tagged(wanted):
            try:
                self.clients.delete("ec2", "delete_subnet", SubnetId=item["SubnetId"])
            except ModelplaneError as error:
                refused = error
        if refused is not None:
            raise refused

    def _complete(self, wanted: Wanted) -> None:
        items = {str(item["CidrBlock"]): item for item in self.tagged(wanted)}
        for name, given in self._expected(wanted).items():
            item = items.get(given["CidrBlock"]) or self._created(name, given, wanted)
            if item is None:
                continue
            identity = str(item["SubnetId"])
            if missing := _missing_tags(item, given):
                self.clients.update("ec2", "create_tags", Resources=[identity], Tags=missing)
            if _opens(wanted, name) and not item.get("MapPublicIpOnLaunch"):
                self.clients.update("ec2", "modify_subnet_attribute", SubnetId=identity, MapPublicIpOnLaunch={"Value": True})

    def _created(self, name: str, given: Mapping[str, Any], wanted: Wanted) -> Item | None:
        """Create one. Gives None where it is there and is not listed yet. Raises ReplaceRequired for one that others were in."""
        known = wanted.known.get(wanted.object.key, {}).get(name)
        if known and not self.listed(**{self.id_filter: known}) and (inside := [key for key in _IN_SUBNETS if key in wanted.known]):
            raise ReplaceRequired(_cannot_move(known, inside))
        answer = self.clients.create("ec2", "create_subnet", **given)
        if answer is not None:
            made: Item = answer["Subnet"]
            return made
        for other in self.listed(**{"vpc-id": given["VpcId"], "cidr-block": given["CidrBlock"]}):
            if foreign := not_ours(tags_of(other), wanted):
                raise InvalidInput(f"subnet {other['SubnetId']} has range {given['CidrBlock']}, and {foreign.reason}")
        return None

    def _expected(self, wanted: Wanted) -> dict[str, dict[str, Any]]:
        """Give the arguments that create each subnet, by the name of its fact."""
        calls = [call for call in wanted.object.calls if call.operation == "create_subnet"]
        given = self.expected(wanted, "create_subnet")
        # Without the VPC none of them can be filled in.
        return {next(iter(call.facts)): each for call, each in zip(calls, given, strict=False)}


def _cannot_move(subnet: str, inside: list[str]) -> str:
    return f"subnet {subnet} is gone, and {' and '.join(inside)} cannot move to a new one; create another cluster"


def _opens(wanted: Wanted, name: str) -> bool:
    """Whether machines in this subnet get public addresses."""
    calls = [call for call in wanted.object.calls if call.operation == "modify_subnet_attribute"]
    return any(getattr(call.parameters["SubnetId"], "name", "") == name for call in calls)


def _missing_tags(item: Item, given: Mapping[str, Any]) -> list[dict[str, str]]:
    there = tags_of(item)
    wanted: list[dict[str, str]] = given["TagSpecifications"][0]["Tags"]
    return [tag for tag in wanted if there.get(tag["Key"]) != tag["Value"]]
