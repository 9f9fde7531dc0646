"""Objects of EC2 that are found by their tags: VPC, gateways and the address.

EC2 has no names for them and lists them late, so a create whose answer is lost may be made twice. Every look gives all that have the tags;
one is kept and the others are duplicates.

Whoever may write tags may not delete networks, so tags are not enough: what is in a VPC has to be in that of the cluster.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from activities.clouds.eks.failures import Purpose
from activities.clouds.eks.handlers.base import AwsHandler, Item, tags_of
from activities.clouds.eks.wanted.network import VPC
from activities.clouds.lifecycle.handler import Found, State, Wanted
from activities.clouds.owner import Owner, aws_tags
from api_types import labels
from api_types.errors import ReplaceRequired

# What cannot move to another VPC.
_IN_THE_VPC = ("cluster", "efs/mounts")


class TaggedHandler(AwsHandler):
    """A kind of EC2 that is found by its tags. Subclasses say how it is listed, and compare."""

    listing: ClassVar[str]
    result: ClassVar[str]
    id_field: ClassVar[str]
    id_filter: ClassVar[str]
    deleting: ClassVar[str]
    filters_field: ClassVar[str] = "Filters"

    def look(self, wanted: Wanted) -> Found:
        """Find it by its tags; that nothing was found may be too early to say."""
        items = self.tagged(wanted)
        if not items:
            return self.untagged(wanted) or Found(State.ABSENT, uncertain=True)
        ids = [str(item[self.id_field]) for item in items]
        kept = items[ids.index(wanted.known_id)] if wanted.known_id in ids else next((each for each in items if self.used(each)), items[0])
        return self.compared(kept, wanted, tuple(each for each in ids if each != kept[self.id_field]))

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Delete the object with this id."""
        del wanted
        self.clients.delete("ec2", self.deleting, **{self.id_field: found.id})

    def tagged(self, wanted: Wanted) -> list[Item]:
        """List what has the tags of the object and is in no VPC but that of the cluster, by id."""
        found = self.listed(**_by_tags(wanted.owner, wanted.object.key))
        networks = self._networks(wanted) if found else frozenset()
        ours = [item for item in found if self._is_ours(item, wanted, networks)]
        return sorted(ours, key=lambda item: str(item[self.id_field]))

    def _is_ours(self, item: Item, wanted: Wanted, networks: frozenset[str]) -> bool:
        places = places_of(item)
        if places:
            # What it has lost of its other tags is put back.
            return places <= networks
        return item[self.id_field] == wanted.known_id or is_marked(item, wanted.owner)

    def _networks(self, wanted: Wanted) -> frozenset[str]:
        """Give the VPC of the cluster; where that is not known, those that are called so."""
        known = wanted.known.get(VPC, {}).get("id", "")
        return frozenset({known} if known else VpcHandler(self.clients, self.account).called(wanted.owner))

    def untagged(self, wanted: Wanted) -> Found | None:
        """Give an object that was known and has lost its tags, as Foreign: without them nothing says that it may be changed."""
        if wanted.known_id and self.listed(**{self.id_filter: wanted.known_id}):
            return Found(State.FOREIGN, reason=f"{wanted.known_id} has lost its tag {labels.CLOUD_OWNER}")
        return None

    def listed(self, **filters: str) -> list[Item]:
        """List what these filters let through, without what is gone."""
        given = [{"Name": name, "Values": [value]} for name, value in filters.items()]
        found = self.clients.listed("ec2", self.listing, self.result, **{self.filters_field: given})
        return [item for item in found if not self.gone(item)]

    def gone(self, item: Item) -> bool:
        """Whether what EC2 still lists is not there any more."""
        del item
        return False

    def used(self, item: Item) -> bool:
        """Whether other objects use it: of several that one is kept."""
        del item
        return False

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Give an object that is there, compared with what is wanted."""
        del wanted
        identity = str(item[self.id_field])
        return Found(State.READY, identity, {"id": identity}, duplicates=duplicates)


class VpcHandler(TaggedHandler):
    """The network. Its range is never changed: settings are of clusters that are created later."""

    listing, result, id_field, id_filter, deleting = "describe_vpcs", "Vpcs", "VpcId", "vpc-id", "delete_vpc"

    def tagged(self, wanted: Wanted) -> list[Item]:
        """List the known one, and others with the tags and the name of the cluster, by id."""
        found = self.listed(**_by_tags(wanted.owner, VPC))
        ours = [item for item in found if item["VpcId"] == wanted.known_id or _is_called(item, wanted.owner)]
        return sorted(ours, key=lambda item: str(item["VpcId"]))

    def called(self, owner: Owner) -> list[str]:
        """Give the ids of those with the tags and the name of a cluster."""
        found = self.listed(**_by_tags(owner, VPC))
        return sorted(str(item["VpcId"]) for item in found if is_marked(item, owner) and _is_called(item, owner))

    def look(self, wanted: Wanted) -> Found:
        """Find it; one that is gone is not created again while other objects say that they are in it."""
        found = super().look(wanted)
        inside = [key for key in _IN_THE_VPC if key in wanted.known]
        if found.state is State.ABSENT and wanted.known_id and inside:
            reason = f"VPC {wanted.known_id} is gone, and {' and '.join(inside)} cannot move to a new one; create another cluster"
            return Found(State.ABSENT, reason=reason, cause=ReplaceRequired, uncertain=True)
        return found

    def used(self, item: Item) -> bool:
        """Whether it has subnets."""
        filters = [{"Name": "vpc-id", "Values": [item["VpcId"]]}]
        return next(iter(self.clients.listed("ec2", "describe_subnets", "Subnets", Filters=filters)), None) is not None

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Compare the two attributes that EKS needs."""
        identity = str(item["VpcId"])
        facts = {"id": identity}
        if item.get("State") == "pending":
            return Found(State.PENDING, identity, facts, "state pending", duplicates=duplicates)
        changes = [name for name, at in _VPC_ATTRIBUTES if wanted.object.calls and not self._is_on(identity, name, at)]
        return Found(State.DIFFERS if changes else State.READY, identity, facts, changes=tuple(changes), duplicates=duplicates)

    def _is_on(self, vpc: str, name: str, at: str) -> bool:
        answer = self.clients.read("ec2", "describe_vpc_attribute", VpcId=vpc, Attribute=name)
        return bool(answer.get(at, {}).get("Value"))


_VPC_ATTRIBUTES = (("enableDnsSupport", "EnableDnsSupport"), ("enableDnsHostnames", "EnableDnsHostnames"))


class InternetGatewayHandler(TaggedHandler):
    """The way out of the public subnets, attached to the VPC."""

    listing, result, id_field = "describe_internet_gateways", "InternetGateways", "InternetGatewayId"
    id_filter, deleting = "internet-gateway-id", "delete_internet_gateway"

    def used(self, item: Item) -> bool:
        """Whether it is attached."""
        return bool(item.get("Attachments"))

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Compare the attachment."""
        identity = str(item["InternetGatewayId"])
        attached = {each["VpcId"] for each in item.get("Attachments", ())}
        missing = any(call["VpcId"] not in attached for call in self.expected(wanted, "attach_internet_gateway", {"id": identity}))
        changes = ("attachment",) if missing else ()
        return Found(State.DIFFERS if missing else State.READY, identity, {"id": identity}, changes=changes, duplicates=duplicates)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Detach it and delete it. Raises Dependency while addresses of the VPC are mapped."""
        for item in self.listed(**{self.id_filter: found.id}):
            for attachment in item.get("Attachments", ()):
                self.clients.delete("ec2", "detach_internet_gateway", InternetGatewayId=found.id, VpcId=attachment["VpcId"])
        super().delete(wanted, found)


class ElasticIpHandler(TaggedHandler):
    """The address of the NAT gateway."""

    listing, result, id_field, id_filter, deleting = "describe_addresses", "Addresses", "AllocationId", "allocation-id", "release_address"

    def used(self, item: Item) -> bool:
        """Whether it is associated."""
        return bool(item.get("AssociationId"))


class NatGatewayHandler(TaggedHandler):
    """The way out of the private subnets."""

    listing, result, id_field, id_filter = "describe_nat_gateways", "NatGateways", "NatGatewayId", "nat-gateway-id"
    deleting, filters_field = "delete_nat_gateway", "Filter"

    def gone(self, item: Item) -> bool:
        """Gateways are listed for an hour after they are deleted."""
        return item.get("State") == "deleted"

    def tagged(self, wanted: Wanted) -> list[Item]:
        """List those that live; one that failed or is being deleted only where there is no other."""
        items = super().tagged(wanted)
        return [item for item in items if item.get("State") in ("pending", "available")] or items[:1]

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Give its state; nothing of it can be changed."""
        del wanted
        identity, state = str(item["NatGatewayId"]), _NAT_STATES.get(str(item.get("State")), State.PENDING)
        reason = ": ".join(str(item[at]) for at in ("FailureCode", "FailureMessage") if item.get(at)) or f"state {item.get('State')}"
        return Found(state, identity, {"id": identity}, reason if state is not State.READY else "", duplicates=duplicates)


_NAT_STATES = {"pending": State.PENDING, "available": State.READY, "deleting": State.DELETING, "failed": State.BROKEN}


class RouteTableHandler(TaggedHandler):
    """A route table with its way out and its subnets. Whatever of it is gone is put back."""

    listing, result, id_field = "describe_route_tables", "RouteTables", "RouteTableId"
    id_filter, deleting = "route-table-id", "delete_route_table"

    def used(self, item: Item) -> bool:
        """Whether subnets use it."""
        return bool(_associations(item))

    def compared(self, item: Item, wanted: Wanted, duplicates: tuple[str, ...]) -> Found:
        """Compare its route and its subnets."""
        identity = str(item["RouteTableId"])
        own = {"id": identity}
        changes = [
            f"route {call['DestinationCidrBlock']}" for call in self.expected(wanted, "create_route", own) if not _has_route(item, call)
        ]
        joined = _associations(item)
        changes += [
            f"association of {call['SubnetId']}"
            for call in self.expected(wanted, "associate_route_table", own)
            if call["SubnetId"] not in joined
        ]
        return Found(State.DIFFERS if changes else State.READY, identity, own, changes=tuple(changes), duplicates=duplicates)

    def create(self, wanted: Wanted) -> None:
        """Create it with its route and its subnets."""
        own = self.run(wanted.object.calls[0], wanted, {})
        if own is not None:
            self._complete(own["id"], wanted)

    def update(self, wanted: Wanted, found: Found) -> None:
        """Put back what is gone, and what was changed."""
        self._complete(found.id, wanted)

    def delete(self, wanted: Wanted, found: Found) -> None:
        """Take its subnets from it, then delete it with its routes."""
        for item in self.listed(**{self.id_filter: found.id}):
            for association in _associations(item).values():
                self.clients.delete("ec2", "disassociate_route_table", AssociationId=association)
        super().delete(wanted, found)

    def _complete(self, table: str, wanted: Wanted) -> None:
        found = self.listed(**{self.id_filter: table})
        item: Item = found[0] if found else {}
        for call in wanted.object.calls[1:]:
            given = self.filled(call, wanted, {"id": table})
            if call.operation == "create_route":
                if not _has_route(item, given) and self.clients.call("ec2", "create_route", given, Purpose.CREATE) is None:
                    self.clients.update("ec2", "replace_route", **given)
            elif given["SubnetId"] not in _associations(item):
                self._associate(table, given["SubnetId"])

    def _associate(self, table: str, subnet: str) -> None:
        """Join a subnet, which may be with another table."""
        for other in self.listed(**{"association.subnet-id": subnet}):
            if association := _associations(other).get(subnet):
                self.clients.update("ec2", "replace_route_table_association", AssociationId=association, RouteTableId=table)
                return
        self.clients.create("ec2", "associate_route_table", RouteTableId=table, SubnetId=subnet)


def _has_route(item: Item, wanted: Mapping[str, Any]) -> bool:
    """Whether a table has a route, with its target, that works."""
    for route in item.get("Routes", ()):
        if route.get("DestinationCidrBlock") == wanted["DestinationCidrBlock"]:
            targets = {at: value for at, value in wanted.items() if at in ("GatewayId", "NatGatewayId")}
            return route.get("State", "active") == "active" and all(route.get(at) == value for at, value in targets.items())
    return False


def _associations(item: Item) -> dict[str, str]:
    """Give the associations of a table by subnet."""
    found: Sequence[Item] = item.get("Associations", ())
    gone = ("disassociating", "disassociated", "failed")
    return {
        str(each["SubnetId"]): str(each["RouteTableAssociationId"])
        for each in found
        if each.get("SubnetId") and each.get("AssociationState", {}).get("State") not in gone
    }


def _by_tags(owner: Owner, key: str) -> dict[str, str]:
    return {f"tag:{labels.CLOUD_OWNER}": owner.digits, f"tag:{labels.CLOUD_OBJECT}": key}


def _is_called(item: Item, owner: Owner) -> bool:
    return tags_of(item).get("Name") == owner.base


def is_marked(item: Item, owner: Owner) -> bool:
    """Whether something has all tags of an object of this cluster: one of them alone is easily set by others."""
    tags = tags_of(item)
    key = tags.get(labels.CLOUD_OBJECT, "")
    wanted = {tag: value for tag, value in aws_tags(owner, key, "").items() if tag != "Name"}
    return bool(key) and wanted.items() <= tags.items()


def places_of(item: Item) -> frozenset[str]:
    """Give the VPCs that something is in, or attached to."""
    attached = [str(each["VpcId"]) for each in item.get("Attachments", ()) if each.get("VpcId")]
    return frozenset([str(item["VpcId"])] if item.get("VpcId") else attached)
