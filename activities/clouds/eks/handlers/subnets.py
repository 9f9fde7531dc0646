"""The handler of all subnets of a cluster as one object.

There is one public and one private subnet in each zone. Their ranges identify them.
"""

from collections.abc import Mapping
from typing import Any

from activities.clouds.eks.handlers.base import Item, not_ours, tags_of, unmarked
from activities.clouds.eks.handlers.ec2 import TaggedHandler
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types import labels
from api_types.errors import (
    InvalidInput,
    ModelplaneError,
    OwnerMarkMissing,
    ReplaceRequired,
)

RANGE = "cidr"
"""The suffix of the fact with a subnet's range, after the name of the subnet's fact."""

# Objects that cannot move to other subnets.
_IN_SUBNETS = ("cluster", "efs/mounts")


class SubnetsHandler(TaggedHandler):
    """All subnets.

    Missing subnets are created. Tags and automatic public addresses are restored.
    """

    listing, result, id_field, id_filter, deleting = (
        "describe_subnets",
        "Subnets",
        "SubnetId",
        "subnet-id",
        "delete_subnet",
    )

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the subnets with our tags, and compare each with its create call."""
        items = {str(item["CidrBlock"]): item for item in self.tagged(wanted)}
        if not items:
            return self._absent(wanted)
        facts: dict[str, str] = {}
        changes: list[str] = []
        for name, given in self._expected(wanted).items():
            item = items.get(given["CidrBlock"])
            if item is None:
                changes.append(
                    f"subnet {given['CidrBlock']} in {given['AvailabilityZone']}"
                )
                continue
            facts |= {
                name: str(item["SubnetId"]),
                f"{name}-{RANGE}": given["CidrBlock"],
            }
            if missing := _missing_tags(item, given):
                changes.append(f"{len(missing)} tags of {item['SubnetId']}")
            if _opens(wanted, name) and not item.get("MapPublicIpOnLaunch"):
                changes.append(f"public addresses of {item['SubnetId']}")
        pending = [
            str(item["SubnetId"])
            for item in items.values()
            if item.get("State") == "pending"
        ]
        if pending and not changes:
            return CloudObservation(
                State.PENDING, facts=facts, reason=f"{pending[0]} is pending"
            )
        return CloudObservation(
            State.DIFFERS if changes else State.READY,
            facts=facts,
            changes=tuple(changes),
        )

    def _absent(self, wanted: ObjectWork) -> CloudObservation:
        """Return the Absent state, or Foreign for subnets that only lost their tags.

        The subnets are not recreated while objects need the old ones.
        """
        known = sorted(
            value
            for name, value in wanted.known.get(wanted.object.key, {}).items()
            if not name.endswith(f"-{RANGE}")
        )
        there = [each for each in known if self.listed(**{self.id_filter: each})]
        if there:
            return unmarked(self.marked("ec2", *there), {}, wanted, _lost_tags(there))
        inside = [key for key in _IN_SUBNETS if key in wanted.known]
        if known and inside:
            return CloudObservation(
                State.ABSENT,
                reason=_cannot_move(known[0], inside),
                cause=ReplaceRequired,
                uncertain=True,
            )
        return CloudObservation(State.ABSENT, uncertain=True)

    def create(self, wanted: ObjectWork) -> None:
        self._complete(wanted)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Create missing subnets, and restore changed fields."""
        del found
        self._complete(wanted)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete each subnet, even if other subnets are still in use."""
        del found
        refused: ModelplaneError | None = None
        for item in self.tagged(wanted):
            try:
                self.clients.delete("ec2", "delete_subnet", SubnetId=item["SubnetId"])
            except ModelplaneError as error:
                refused = error
        if refused is not None:
            raise refused

    def _complete(self, wanted: ObjectWork) -> None:
        items = {str(item["CidrBlock"]): item for item in self.tagged(wanted)}
        for name, given in self._expected(wanted).items():
            item = items.get(given["CidrBlock"]) or self._created(name, given, wanted)
            if item is None:
                continue
            identity = str(item["SubnetId"])
            if missing := _missing_tags(item, given):
                self.clients.update(
                    "ec2", "create_tags", Resources=[identity], Tags=missing
                )
            if _opens(wanted, name) and not item.get("MapPublicIpOnLaunch"):
                self.clients.update(
                    "ec2",
                    "modify_subnet_attribute",
                    SubnetId=identity,
                    MapPublicIpOnLaunch={"Value": True},
                )

    def _created(
        self, name: str, given: Mapping[str, Any], wanted: ObjectWork
    ) -> Item | None:
        """Create one subnet.

        Returns None if it exists and is not listed yet. Raises ReplaceRequired if it
        was known and other objects need it.
        """
        known = wanted.known.get(wanted.object.key, {}).get(name)
        inside = [key for key in _IN_SUBNETS if key in wanted.known]
        if known and inside and not self.listed(**{self.id_filter: known}):
            raise ReplaceRequired(_cannot_move(known, inside))
        answer = self.clients.create("ec2", "create_subnet", **given)
        if answer is not None:
            made: Item = answer["Subnet"]
            return made
        for other in self.listed(
            **{"vpc-id": given["VpcId"], "cidr-block": given["CidrBlock"]}
        ):
            marked = self.marked("ec2", str(other["SubnetId"]))
            if foreign := not_ours(tags_of(other), wanted, marked):
                if foreign.unmarked:
                    raise OwnerMarkMissing(foreign.unmarked)
                raise InvalidInput(
                    f"subnet {other['SubnetId']} has range {given['CidrBlock']}, and "
                    f"{foreign.reason}"
                )
        return None

    def _expected(self, wanted: ObjectWork) -> dict[str, dict[str, Any]]:
        """Return the arguments of each subnet's create call, by the name of its fact."""
        calls = [
            call for call in wanted.object.calls if call.operation == "create_subnet"
        ]
        given = self.expected(wanted, "create_subnet")
        # Without the VPC no call has complete arguments.
        return {
            next(iter(call.facts)): each
            for call, each in zip(calls, given, strict=False)
        }


def _lost_tags(subnets: list[str]) -> str:
    has = "has lost its tag" if len(subnets) == 1 else "have lost their tag"
    return f"{', '.join(subnets)} {has} {labels.CLOUD_OWNER}"


def _cannot_move(subnet: str, inside: list[str]) -> str:
    return (
        f"subnet {subnet} was deleted, and {' and '.join(inside)} cannot move to a new "
        "one; create another cluster"
    )


def _opens(wanted: ObjectWork, name: str) -> bool:
    """Return True if machines in this subnet get public addresses."""
    calls = [
        call
        for call in wanted.object.calls
        if call.operation == "modify_subnet_attribute"
    ]
    return any(
        getattr(call.parameters["SubnetId"], "name", "") == name for call in calls
    )


def _missing_tags(item: Item, given: Mapping[str, Any]) -> list[dict[str, str]]:
    there = tags_of(item)
    wanted: list[dict[str, str]] = given["TagSpecifications"][0]["Tags"]
    return [tag for tag in wanted if there.get(tag["Key"]) != tag["Value"]]
