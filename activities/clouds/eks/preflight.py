"""What AWS is asked before anything is created: zones, reservations, cards, versions, types of machines (provisioning.md 3.6).

A check that the credential may not make is left out, with a warning. What exists already is not checked again: a type of machine that is
not offered any more is no reason to stop.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import TypeVar

from activities.clouds.desired import CHECK_SKIPPED, INVALID_INPUT, MISSING_PERMISSION, Problem
from activities.clouds.eks.account_checks import Denied, denied, quotas
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.handlers.subnets import RANGE
from activities.clouds.eks.wanted.inputs import EksFacts, Reservation
from activities.clouds.eks.wanted.network import SUBNETS
from activities.clouds.eks.wanted.node_groups import CARDS, CARDS_FACT, SCHEDULED, SYSTEM_MACHINE
from activities.clouds.eks.wanted.subnets import SubnetPair
from activities.clouds.graph import DesiredObject
from activities.clouds.owner import SYSTEM_POOL, Owner, pool_name
from activities.clouds.versions import minor_of
from api_types import labels
from api_types.clock import timestamp
from api_types.errors import CredentialsInvalid, ModelplaneError, PermissionDenied, Unsupported
from api_types.messages.clouds import Facts
from api_types.resources.inference_class import EksNodes, InferenceClass
from api_types.resources.inference_cluster import InferenceCluster, NodePool

Result = TypeVar("Result")


@dataclass
class Preflight:
    """The questions for one cluster. `refused` and `warnings` are what the answers say."""

    clients: AwsClients
    owner: Owner
    cluster: InferenceCluster
    classes: Mapping[str, InferenceClass]
    known: Mapping[str, Facts]
    refused: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)

    def facts(self, principal: str) -> EksFacts:
        """Ask for all that objects are made from."""
        return EksFacts(
            zones=self._asked("zones of the region", self._zones) or (),
            reservations=self._asked("capacity blocks", self._reservations) or {},
            network_cards=self._asked("network cards", self._cards) or {},
            template_cards=self._template_cards,
            subnets=self._subnets(),
            principal=principal,
        )

    def check(self, version: str, there: str, zones: Sequence[str]) -> None:
        """Check what AWS would refuse later. `there` is the version of the control plane, empty if there is none."""
        if minor_of(there) < minor_of(version):
            self._asked("versions of EKS", lambda: self._check_version(version))
        self._asked("types of machines", lambda: self._check_offered(zones))

    def check_account(self, principal: str, objects: Sequence[DesiredObject]) -> None:
        """Check what the credential may do and what the quotas leave. Raises PermissionDenied where a policy forbids what is needed.

        What the credential may do is asked before the first object only.
        """
        permissions = self._asked_for_warnings("permissions", lambda: denied(self.clients, principal, objects)) if not self.known else None
        found = permissions or Denied()
        if found.forbidden:
            raise PermissionDenied(f"a policy forbids {', '.join(found.forbidden)} to {principal}; change it, or give another credential")
        if found.not_allowed:
            text = f"no policy allows {', '.join(found.not_allowed)} to {principal} for all resources; objects may wait for it"
            self.warnings.append(Problem(MISSING_PERMISSION, "", text))
        self.warnings += self._asked_for_warnings("quotas", lambda: list(quotas(self.clients, objects, self.known))) or ()

    def _asked(self, what: str, ask: Callable[[], Result]) -> Result | None:
        try:
            return ask()
        except (PermissionDenied, Unsupported) as error:
            self._skipped(what, error)
            return None

    def _asked_for_warnings(self, what: str, ask: Callable[[], Result]) -> Result | None:
        """Ask for what only warns, whatever answers: its service may be out of reach, where those that make a cluster are not."""
        try:
            return ask()
        except CredentialsInvalid:
            raise
        except ModelplaneError as error:
            self._skipped(what, error)
            return None

    def _skipped(self, what: str, error: ModelplaneError) -> None:
        self.warnings.append(Problem(CHECK_SKIPPED, "", f"{what} not checked: {error.message}"))

    def _pools(self, *, new: bool) -> Iterator[tuple[NodePool, EksNodes]]:
        """Give the pools with their nodes: those that do not exist yet, or all."""
        for pool in self.cluster.spec.node_pools or ():
            found = self.classes.get(pool.class_name)
            nodes = found.spec.provisioning.eks if found and found.spec.provisioning else None
            if nodes is not None and not (new and self.exists(pool)):
                yield pool, nodes

    def exists(self, pool: NodePool) -> bool:
        """Whether the node group of a pool was there before."""
        return f"pool/{pool_name(pool.name)}" in self.known

    def _zones(self) -> tuple[str, ...]:
        filters = [
            {"Name": "zone-type", "Values": ["availability-zone"]},
            {"Name": "state", "Values": ["available"]},
            {"Name": "opt-in-status", "Values": ["opt-in-not-required"]},
        ]
        found = self.clients.read("ec2", "describe_availability_zones", Filters=filters).get("AvailabilityZones", ())
        return tuple(sorted(str(zone["ZoneName"]) for zone in found))

    def _reservations(self) -> dict[str, Reservation]:
        found: dict[str, Reservation] = {}
        for pool, _ in self._pools(new=False):
            block = pool.capacity_block
            if block is None:
                continue
            identity = block.capacity_reservation_id
            listed = self.clients.read("ec2", "describe_capacity_reservations", CapacityReservationIds=[identity])
            described: Item | None = next(iter(listed.get("CapacityReservations", ())), None)
            if described is None and not self.exists(pool):
                text = f"capacity block {identity} does not exist in {self.clients.region} for this account"
                self.refused.append(Problem(INVALID_INPUT, f"pool {pool.name}", text))
            # What a group was made with is not compared again; only that its block has not begun still counts.
            if described is not None and (not self.exists(pool) or described.get("State") == SCHEDULED):
                count = int(described.get("TotalInstanceCount", 0))
                zone, machine, state = (str(described.get(at, "")) for at in ("AvailabilityZone", "InstanceType", "State"))
                found[identity] = Reservation(zone, machine, state, count)
            if described is not None and described.get("EndDate"):
                begins = f"begins {timestamp(described['StartDate'])}, " if described.get("StartDate") else ""
                text = f"capacity block {identity} {begins}ends {timestamp(described['EndDate'])}; its machines are taken back before that"
                self.warnings.append(Problem("CapacityBlockDates", f"pool {pool.name}", text))
        return found

    @property
    def _template_cards(self) -> dict[str, int]:
        """Give for how many network cards the launch template of each group is that is there."""
        found = {name: self.known.get(f"lt/{name}", {}).get(CARDS_FACT, "") for name in map(_group_of, self.known)}
        return {name: int(cards) for name, cards in found.items() if cards.isdecimal()}

    def _cards(self) -> dict[str, int]:
        there = self._template_cards
        types = {
            nodes.instance_type: pool
            for pool, nodes in self._pools(new=False)
            if pool.fabric and pool.fabric.type == "EFA" and pool_name(pool.name) not in there
        }
        found: dict[str, int] = {}
        for machine, pool in types.items():
            if machine in CARDS:
                continue
            listed = self.clients.read("ec2", "describe_instance_types", InstanceTypes=[machine]).get("InstanceTypes", ())
            network: Item = listed[0].get("NetworkInfo", {}) if listed else {}
            if network and not network.get("EfaSupported"):
                if not self.exists(pool):
                    self.refused.append(Problem(INVALID_INPUT, f"pool {pool.name}", f"{machine} has no EFA; leave fabric out"))
                continue
            if count := int(network.get("EfaInfo", {}).get("MaximumEfaInterfaces") or network.get("MaximumNetworkCards") or 0):
                found[machine] = count
        return found

    def _subnets(self) -> tuple[SubnetPair, ...]:
        """Give the pairs that exist: those that were reported, and those that EC2 lists with our tags."""
        ranges: dict[str, dict[str, str]] = {}
        filters = [
            {"Name": f"tag:{labels.CLOUD_OWNER}", "Values": [self.owner.digits]},
            {"Name": f"tag:{labels.CLOUD_OBJECT}", "Values": [SUBNETS]},
        ]
        for item in self.clients.listed("ec2", "describe_subnets", "Subnets", Filters=filters):
            tier = "public" if "-public-" in tags_of(item).get("Name", "") else "private"
            ranges.setdefault(str(item["AvailabilityZone"]), {})[tier] = str(item["CidrBlock"])
        for name, value in self.known.get(SUBNETS, {}).items():
            tier, _, zone = name.removesuffix(f"-{RANGE}").partition("-")
            if name.endswith(f"-{RANGE}"):
                ranges.setdefault(zone, {})[tier] = value
        pairs = [
            SubnetPair(zone, IPv4Network(each["public"]), IPv4Network(each["private"]))
            for zone, each in ranges.items()
            if {"public", "private"} <= each.keys()
        ]
        # The first one has the NAT gateway: the order is that of their creation, whatever EC2 lists first.
        return tuple(sorted(pairs, key=lambda pair: pair.public))

    def _check_version(self, version: str) -> None:
        offered = sorted(
            {str(each["clusterVersion"]) for each in self.clients.listed("eks", "describe_cluster_versions", "clusterVersions")}
        )
        if offered and version not in offered:
            text = f'kubernetesVersion "{version}" is not offered by EKS in {self.clients.region}; it has {", ".join(offered)}'
            self.refused.append(Problem(INVALID_INPUT, "", text))

    def _check_offered(self, zones: Sequence[str]) -> None:
        pools = list(self._pools(new=True))
        system = () if f"pool/{SYSTEM_POOL}" in self.known else (SYSTEM_MACHINE,)
        types = sorted({nodes.instance_type for _, nodes in pools} | set(system))
        if not types:
            return
        offered: dict[str, set[str]] = {machine: set() for machine in types}
        filters = [{"Name": "instance-type", "Values": types}]
        for each in self.clients.listed(
            "ec2", "describe_instance_type_offerings", "InstanceTypeOfferings", LocationType="availability-zone", Filters=filters
        ):
            offered.setdefault(str(each["InstanceType"]), set()).add(str(each["Location"]))
        for at, machine, named in [("", each, ()) for each in system] + [
            (f"pool {p.name}", n.instance_type, p.zones or ()) for p, n in pools
        ]:
            has = offered[machine]
            # Where no zones are named the scaling group takes those that have the type.
            missing = [zone for zone in named if zone not in has] if named else ([] if has & set(zones) or not zones else list(zones))
            if missing:
                where = f"it is in {', '.join(sorted(has))}" if has else f"{self.clients.region} does not have it"
                self.refused.append(Problem(INVALID_INPUT, at, f"{machine} is not offered in {', '.join(missing)}; {where}"))


def _group_of(key: str) -> str:
    """Give the name of the node group with a key; empty for any other object."""
    kind, _, name = key.partition("/")
    return name if kind == "pool" else ""
