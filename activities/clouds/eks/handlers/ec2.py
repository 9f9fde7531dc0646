"""The handlers of VPC, gateways and address, which are found by their tags.

These objects have no unique names, and EC2 lists new objects late. If the response of a
create call is lost, the call may be repeated and create a second object. So `look`
always finds all objects with the tags. It keeps one, and reports the others as
duplicates.

Other users may be allowed to write tags but not to delete networks, so tags alone are
not sufficient: an object inside a VPC must be in the cluster's VPC.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from activities.clouds.desired.owner import ClusterOwner, aws_tags
from activities.clouds.eks.failures import Purpose
from activities.clouds.eks.handlers.base import AwsHandler, Item, tags_of, unmarked
from activities.clouds.eks.wanted.network import VPC
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from api_types import labels
from api_types.errors import ReplaceRequired

# Objects that cannot move to another VPC.
_IN_THE_VPC = ("cluster", "efs/mounts")


class TaggedHandler(AwsHandler):
    """A kind of EC2 object that is found by its tags.

    Subclasses define the API calls and the comparison.
    """

    listing: ClassVar[str]
    result: ClassVar[str]
    id_field: ClassVar[str]
    id_filter: ClassVar[str]
    deleting: ClassVar[str]
    filters_field: ClassVar[str] = "Filters"

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the object by its tags. A missing object may just not be listed yet."""
        items = self.tagged(wanted)
        if not items:
            return self.untagged(wanted) or CloudObservation(
                State.ABSENT, uncertain=True
            )
        ids = [str(item[self.id_field]) for item in items]
        kept = (
            items[ids.index(wanted.known_id)]
            if wanted.known_id in ids
            else next((each for each in items if self.used(each)), items[0])
        )
        return self.compared(
            kept, wanted, tuple(each for each in ids if each != kept[self.id_field])
        )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Delete the object with the id of `found`."""
        del wanted
        self.clients.delete("ec2", self.deleting, **{self.id_field: found.id})

    def tagged(self, wanted: ObjectWork) -> list[Item]:
        """List the tagged objects in the cluster's VPC or in no VPC, by id."""
        found = self.listed(**_by_tags(wanted.owner, wanted.object.key))
        networks = self._networks(wanted) if found else frozenset()
        ours = [item for item in found if self._is_ours(item, wanted, networks)]
        return sorted(ours, key=lambda item: str(item[self.id_field]))

    def _is_ours(
        self, item: Item, wanted: ObjectWork, networks: frozenset[str]
    ) -> bool:
        places = places_of(item)
        if places:
            # If other tags are missing, they are restored.
            return places <= networks
        return item[self.id_field] == wanted.known_id or is_marked(item, wanted.owner)

    def _networks(self, wanted: ObjectWork) -> frozenset[str]:
        """Return the VPC of the cluster, or all VPCs with its name if it is unknown."""
        known = wanted.known.get(VPC, {}).get("id", "")
        if known:
            return frozenset({known})
        return frozenset(VpcHandler(self.clients, self.account).called(wanted.owner))

    def untagged(self, wanted: ObjectWork) -> CloudObservation | None:
        """Return a known object that lost its tags as Foreign.

        Without the tags nothing proves that the object may be changed. A gateway that
        somebody attached to another VPC stays there, with or without the tags.
        """
        known = wanted.known_id
        found = self.listed(**{self.id_filter: known}) if known else []
        if not found:
            return None
        networks = self._networks(wanted)
        elsewhere = places_of(found[0]) - networks
        if networks and elsewhere:
            reason = f"{known} is in {', '.join(sorted(elsewhere))}"
            return CloudObservation(State.FOREIGN, reason=reason)
        reason = f"{known} has lost its tag {labels.CLOUD_OWNER}"
        marked = self.marked("ec2", known)
        return unmarked(marked, tags_of(found[0]), wanted, reason)

    def listed(self, **filters: str) -> list[Item]:
        """List the existing objects that match these filters."""
        given = [{"Name": name, "Values": [value]} for name, value in filters.items()]
        found = self.clients.listed(
            "ec2", self.listing, self.result, **{self.filters_field: given}
        )
        return [item for item in found if not self.gone(item)]

    def gone(self, item: Item) -> bool:
        """Return True if EC2 lists an object that no longer exists."""
        del item
        return False

    def used(self, item: Item) -> bool:
        """Return True if other objects use this one.

        It is then kept, and not a duplicate.
        """
        del item
        return False

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Compare an existing object with the desired one."""
        del wanted
        identity = str(item[self.id_field])
        return CloudObservation(
            State.READY, identity, {"id": identity}, duplicates=duplicates
        )


class VpcHandler(TaggedHandler):
    """The network. Its range never changes: settings apply to new clusters only."""

    listing, result, id_field, id_filter, deleting = (
        "describe_vpcs",
        "Vpcs",
        "VpcId",
        "vpc-id",
        "delete_vpc",
    )

    def tagged(self, wanted: ObjectWork) -> list[Item]:
        """List the known VPC, and VPCs with our tags and the cluster's name, by id."""
        found = self.listed(**_by_tags(wanted.owner, VPC))
        ours = [
            item
            for item in found
            if item["VpcId"] == wanted.known_id or _is_called(item, wanted.owner)
        ]
        return sorted(ours, key=lambda item: str(item["VpcId"]))

    def called(self, owner: ClusterOwner) -> list[str]:
        """Return the ids of VPCs with the tags and the name of a cluster."""
        found = self.listed(**_by_tags(owner, VPC))
        return sorted(
            str(item["VpcId"])
            for item in found
            if is_marked(item, owner) and _is_called(item, owner)
        )

    def look(self, wanted: ObjectWork) -> CloudObservation:
        """Find the VPC. A deleted VPC is not recreated while objects need it."""
        found = super().look(wanted)
        inside = [key for key in _IN_THE_VPC if key in wanted.known]
        if found.state is State.ABSENT and wanted.known_id and inside:
            reason = (
                f"VPC {wanted.known_id} was deleted, and {' and '.join(inside)} cannot move "
                "to a new one; create another cluster"
            )
            return CloudObservation(
                State.ABSENT, reason=reason, cause=ReplaceRequired, uncertain=True
            )
        return found

    def used(self, item: Item) -> bool:
        """Return True if the VPC has subnets."""
        filters = [{"Name": "vpc-id", "Values": [item["VpcId"]]}]
        subnets = self.clients.listed(
            "ec2", "describe_subnets", "Subnets", Filters=filters
        )
        return next(subnets, None) is not None

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Compare the two attributes that EKS needs."""
        identity = str(item["VpcId"])
        facts = {"id": identity}
        if item.get("State") == "pending":
            return CloudObservation(
                State.PENDING, identity, facts, "state pending", duplicates=duplicates
            )
        changes = [
            name
            for name, at in _VPC_ATTRIBUTES
            if wanted.object.calls and not self._is_on(identity, name, at)
        ]
        return CloudObservation(
            State.DIFFERS if changes else State.READY,
            identity,
            facts,
            changes=tuple(changes),
            duplicates=duplicates,
        )

    def _is_on(self, vpc: str, name: str, at: str) -> bool:
        answer = self.clients.read(
            "ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name
        )
        return bool(answer.get(at, {}).get("Value"))


_VPC_ATTRIBUTES = (
    ("enableDnsSupport", "EnableDnsSupport"),
    ("enableDnsHostnames", "EnableDnsHostnames"),
)


class InternetGatewayHandler(TaggedHandler):
    """The internet gateway of the public subnets, attached to the VPC."""

    listing, result, id_field = (
        "describe_internet_gateways",
        "InternetGateways",
        "InternetGatewayId",
    )
    id_filter, deleting = "internet-gateway-id", "delete_internet_gateway"

    def used(self, item: Item) -> bool:
        return bool(item.get("Attachments"))

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Compare the attachment."""
        identity = str(item["InternetGatewayId"])
        attached = {each["VpcId"] for each in item.get("Attachments", ())}
        missing = any(
            call["VpcId"] not in attached
            for call in self.expected(
                wanted, "attach_internet_gateway", {"id": identity}
            )
        )
        changes = ("attachment",) if missing else ()
        return CloudObservation(
            State.DIFFERS if missing else State.READY,
            identity,
            {"id": identity},
            changes=changes,
            duplicates=duplicates,
        )

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Detach and delete the gateway.

        Raises Dependency while addresses of the VPC are mapped.
        """
        for item in self.listed(**{self.id_filter: found.id}):
            for attachment in item.get("Attachments", ()):
                self.clients.delete(
                    "ec2",
                    "detach_internet_gateway",
                    InternetGatewayId=found.id,
                    VpcId=attachment["VpcId"],
                )
        super().delete(wanted, found)


class ElasticIpHandler(TaggedHandler):
    """The address of the NAT gateway."""

    listing, result, id_field, id_filter, deleting = (
        "describe_addresses",
        "Addresses",
        "AllocationId",
        "allocation-id",
        "release_address",
    )

    def used(self, item: Item) -> bool:
        return bool(item.get("AssociationId"))


class NatGatewayHandler(TaggedHandler):
    """The NAT gateway of the private subnets."""

    listing, result, id_field, id_filter = (
        "describe_nat_gateways",
        "NatGateways",
        "NatGatewayId",
        "nat-gateway-id",
    )
    deleting, filters_field = "delete_nat_gateway", "Filter"

    def gone(self, item: Item) -> bool:
        """Return True for a deleted gateway. EC2 lists it for another hour."""
        return item.get("State") == "deleted"

    def tagged(self, wanted: ObjectWork) -> list[Item]:
        """List the usable gateways. If there are none, list a failed or deleted one."""
        items = super().tagged(wanted)
        usable = [
            item for item in items if item.get("State") in ("pending", "available")
        ]
        return usable or items[:1]

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Return the state of the gateway. No field of a gateway can be changed."""
        del wanted
        identity, state = (
            str(item["NatGatewayId"]),
            _NAT_STATES.get(str(item.get("State")), State.PENDING),
        )
        failed = [item.get("FailureCode"), item.get("FailureMessage")]
        reason = (
            ": ".join(map(str, filter(None, failed))) or f"state {item.get('State')}"
        )
        return CloudObservation(
            state,
            identity,
            {"id": identity},
            reason if state is not State.READY else "",
            duplicates=duplicates,
        )


_NAT_STATES = {
    "pending": State.PENDING,
    "available": State.READY,
    "deleting": State.DELETING,
    "failed": State.BROKEN,
}


class RouteTableHandler(TaggedHandler):
    """A route table with its default route and its subnets.

    Missing routes and subnet associations are restored.
    """

    listing, result, id_field = "describe_route_tables", "RouteTables", "RouteTableId"
    id_filter, deleting = "route-table-id", "delete_route_table"

    def used(self, item: Item) -> bool:
        return bool(_associations(item))

    def compared(
        self, item: Item, wanted: ObjectWork, duplicates: tuple[str, ...]
    ) -> CloudObservation:
        """Compare the route and the subnets."""
        identity = str(item["RouteTableId"])
        own = {"id": identity}
        changes = [
            f"route {call['DestinationCidrBlock']}"
            for call in self.expected(wanted, "create_route", own)
            if not _has_route(item, call)
        ]
        joined = _associations(item)
        changes += [
            f"association of {call['SubnetId']}"
            for call in self.expected(wanted, "associate_route_table", own)
            if call["SubnetId"] not in joined
        ]
        return CloudObservation(
            State.DIFFERS if changes else State.READY,
            identity,
            own,
            changes=tuple(changes),
            duplicates=duplicates,
        )

    def create(self, wanted: ObjectWork) -> None:
        """Create the table with its route and its subnets."""
        own = self.run(wanted.object.calls[0], wanted, {})
        if own is not None:
            self._complete(own["id"], wanted)

    def update(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Restore missing and changed parts."""
        self._complete(found.id, wanted)

    def delete(self, wanted: ObjectWork, found: CloudObservation) -> None:
        """Disassociate the subnets, then delete the table with its routes."""
        for item in self.listed(**{self.id_filter: found.id}):
            for association in _associations(item).values():
                self.clients.delete(
                    "ec2", "disassociate_route_table", AssociationId=association
                )
        super().delete(wanted, found)

    def _complete(self, table: str, wanted: ObjectWork) -> None:
        found = self.listed(**{self.id_filter: table})
        item: Item = found[0] if found else {}
        for call in wanted.object.calls[1:]:
            given = self.filled(call, wanted, {"id": table})
            if call.operation == "create_route":
                if not _has_route(item, given):
                    self._set_route(given)
            elif given["SubnetId"] not in _associations(item):
                self._associate(table, given["SubnetId"])

    def _set_route(self, given: Mapping[str, Any]) -> None:
        if self.clients.call("ec2", "create_route", given, Purpose.CREATE) is None:
            self.clients.update("ec2", "replace_route", **given)

    def _associate(self, table: str, subnet: str) -> None:
        """Associate a subnet, which may be associated with another table."""
        for other in self.listed(**{"association.subnet-id": subnet}):
            if association := _associations(other).get(subnet):
                self.clients.update(
                    "ec2",
                    "replace_route_table_association",
                    AssociationId=association,
                    RouteTableId=table,
                )
                return
        self.clients.create(
            "ec2", "associate_route_table", RouteTableId=table, SubnetId=subnet
        )


def _has_route(item: Item, wanted: Mapping[str, Any]) -> bool:
    """Return True if a table has a working route with the desired target."""
    for route in item.get("Routes", ()):
        if route.get("DestinationCidrBlock") == wanted["DestinationCidrBlock"]:
            targets = {"GatewayId", "NatGatewayId"} & wanted.keys()
            return route.get("State", "active") == "active" and all(
                route.get(at) == wanted[at] for at in targets
            )
    return False


def _associations(item: Item) -> dict[str, str]:
    """Return the associations of a table by subnet."""
    found: Sequence[Item] = item.get("Associations", ())
    gone = ("disassociating", "disassociated", "failed")
    return {
        str(each["SubnetId"]): str(each["RouteTableAssociationId"])
        for each in found
        if each.get("SubnetId")
        and each.get("AssociationState", {}).get("State") not in gone
    }


def _by_tags(owner: ClusterOwner, key: str) -> dict[str, str]:
    return {
        f"tag:{labels.CLOUD_OWNER}": owner.digits,
        f"tag:{labels.CLOUD_OBJECT}": key,
    }


def _is_called(item: Item, owner: ClusterOwner) -> bool:
    return tags_of(item).get("Name") == owner.base


def is_marked(item: Item, owner: ClusterOwner) -> bool:
    """Return True if an object has all tags of this cluster's objects.

    Other users could easily set a single one of them.
    """
    tags = tags_of(item)
    key = tags.get(labels.CLOUD_OBJECT, "")
    wanted = {
        tag: value for tag, value in aws_tags(owner, key, "").items() if tag != "Name"
    }
    return bool(key) and wanted.items() <= tags.items()


def places_of(item: Item) -> frozenset[str]:
    """Return the VPCs that an object is in, or attached to."""
    attached = [
        str(each["VpcId"]) for each in item.get("Attachments", ()) if each.get("VpcId")
    ]
    return frozenset([str(item["VpcId"])] if item.get("VpcId") else attached)
