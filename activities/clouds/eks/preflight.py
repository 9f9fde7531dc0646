"""Read zones, reservations, network cards, versions and machine types from AWS.

They are checked before anything is created. If the credential lacks a permission for a
check, the result is a warning. Existing objects are not checked again: a machine type
that is no longer offered must not block the cluster.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network
from typing import Any, TypeVar

from activities.clouds.desired.graph import DesiredObject
from activities.clouds.desired.owner import SYSTEM_POOL, ClusterOwner, pool_name
from activities.clouds.desired.plan import (
    CHECK_SKIPPED,
    INVALID_INPUT,
    MISSING_PERMISSION,
    PlanProblem,
)
from activities.clouds.desired.versions import minor_of
from activities.clouds.eks.account_checks import denied, quotas
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.handlers.subnets import RANGE
from activities.clouds.eks.handlers.zones import EFS, EKS
from activities.clouds.eks.wanted.inputs import EksFacts, Reservation
from activities.clouds.eks.wanted.machines import (
    CardInterface,
    Ec2Machine,
    described_machine,
    from_text,
)
from activities.clouds.eks.wanted.network import SUBNETS, VPC
from activities.clouds.eks.wanted.node_groups import (
    CARDS_FACT,
    SCHEDULED,
    SYSTEM_MACHINE,
)
from activities.clouds.eks.wanted.subnets import SubnetPair
from api_types import labels
from api_types.clock import timestamp
from api_types.errors import (
    CredentialsInvalid,
    ModelplaneError,
    PermissionDenied,
    Unsupported,
)
from api_types.messages.clouds import Facts
from api_types.resources.inference_class import EksNodes, InferenceClass
from api_types.resources.inference_cluster import InferenceCluster, NodePool

Result = TypeVar("Result")

# EKS places no control plane in these zones:
# https://docs.aws.amazon.com/eks/latest/userguide/network-reqs.html, and for China the
# list of eksctl (pkg/az).
_WITHOUT_EKS = frozenset({"cac1-az3", "cnn1-az4", "use1-az3", "usw1-az2"})
_GROUPS_WITHOUT_NODES = ("CREATE_FAILED", "DELETING", "DELETE_FAILED")


@dataclass
class Preflight:
    """The checks of one cluster. They append to `refused` and `warnings`."""

    clients: AwsClients
    owner: ClusterOwner
    cluster: InferenceCluster
    classes: Mapping[str, InferenceClass]
    known: Mapping[str, Facts]
    refused: list[PlanProblem] = field(default_factory=list)
    warnings: list[PlanProblem] = field(default_factory=list)

    def facts(self, principal: str, *, exists: bool) -> EksFacts:
        """Read all facts that the desired objects depend on.

        `exists` states whether the cluster has a control plane.
        """
        ids = self._asked("zones of the region", self._zones) or {}
        marks = self._asked("zones of an earlier plan", self._network_tags) or {}
        subnets = self._subnet_items()
        groups: dict[str, frozenset[str]] = {}
        if exists:
            groups = (
                self._asked("node groups", lambda: self._group_zones(subnets)) or {}
            )
        offers = self._asked("types of machines", lambda: self._offers(ids)) or {}
        return EksFacts(
            zones=tuple(sorted(ids)),
            zone_ids=ids,
            offers=offers,
            chosen=tuple(marks.get(labels.CLOUD_ZONES, "").split()),
            group_zones=groups,
            without_eks=_refused(marks, EKS) | _unsupported(ids),
            without_efs=_refused(marks, EFS),
            reservations=self._asked("capacity blocks", self._reservations) or {},
            machines=self._asked("descriptions of machines", self._machines) or {},
            template_cards=self._template_cards,
            subnets=self._subnets(subnets),
            principal=principal,
        )

    def check(
        self, version: str, there: str, facts: EksFacts, free: Sequence[str]
    ) -> None:
        """Check for reasons why AWS would later reject a call.

        `there` is the version of the control plane, or empty if there is none. `free`
        are the zones that may be chosen.
        """
        if minor_of(there) < minor_of(version):
            self._asked("versions of EKS", lambda: self._check_version(version))
        self._check_offered(facts, free)

    def check_account(self, principal: str, objects: Sequence[DesiredObject]) -> None:
        """Check the permissions of the credential, and the quotas.

        Permissions are checked only before the first object. Raises PermissionDenied if
        a policy forbids a needed action.
        """
        found = None
        if not self.known:
            found = self._asked_for_warnings(
                "permissions", lambda: denied(self.clients, principal)
            )
        if found and found.forbidden:
            raise PermissionDenied(
                f"a policy forbids {', '.join(found.forbidden)} to {principal}; change the "
                "policy, or use another credential"
            )
        for name, actions in found.not_allowed.items() if found else ():
            text = (
                f"no policy allows {', '.join(actions)} to {principal} for all objects; "
                f"attach deploy/clouds/aws/{name}.json, or objects wait for these actions"
            )
            self.warnings.append(PlanProblem(MISSING_PERMISSION, "", text))
        problems = self._asked_for_warnings(
            "quotas", lambda: list(quotas(self.clients, objects, self.known))
        )
        self.warnings += problems or ()

    def _asked(self, what: str, ask: Callable[[], Result]) -> Result | None:
        try:
            return ask()
        except (PermissionDenied, Unsupported) as error:
            self._skipped(what, error)
            return None

    def _asked_for_warnings(
        self, what: str, ask: Callable[[], Result]
    ) -> Result | None:
        """Run a check that only warns, and convert every failure to a warning.

        The service of the check may be unavailable while the services that create a
        cluster are not.
        """
        try:
            return ask()
        except CredentialsInvalid:
            raise
        except ModelplaneError as error:
            self._skipped(what, error)
            return None

    def _skipped(self, what: str, error: ModelplaneError) -> None:
        self.warnings.append(
            PlanProblem(CHECK_SKIPPED, "", f"{what} not checked: {error.message}")
        )

    def _pools(self, *, new: bool) -> Iterator[tuple[NodePool, EksNodes]]:
        """Yield pools with their nodes: all pools, or only new ones."""
        for pool in self.cluster.spec.node_pools or ():
            found = self.classes.get(pool.class_name)
            nodes = (
                found.spec.provisioning.eks
                if found and found.spec.provisioning
                else None
            )
            if nodes is not None and not (new and self.exists(pool)):
                yield pool, nodes

    def exists(self, pool: NodePool) -> bool:
        """Return True if the node group of a pool existed before."""
        return f"pool/{pool_name(pool.name)}" in self.known

    def _zones(self) -> dict[str, str]:
        """Return the ids of the zones that the account can use, by name."""
        filters = [
            {"Name": "zone-type", "Values": ["availability-zone"]},
            {"Name": "state", "Values": ["available"]},
            {"Name": "opt-in-status", "Values": ["opt-in-not-required"]},
        ]
        found = self.clients.read(
            "ec2", "describe_availability_zones", Filters=filters
        ).get("AvailabilityZones", ())
        return {str(zone["ZoneName"]): str(zone["ZoneId"]) for zone in found}

    def _offers(self, ids: Mapping[str, str]) -> dict[str, frozenset[str]]:
        """Return the zones that offer each machine type of new node groups, by name."""
        types = {nodes.instance_type for _, nodes in self._pools(new=True)}
        if f"pool/{SYSTEM_POOL}" not in self.known:
            types.add(SYSTEM_MACHINE)
        if not types or not ids:
            return {}
        offered: dict[str, set[str]] = {machine: set() for machine in types}
        for each in self.clients.listed(
            "ec2",
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone-id",
            Filters=[{"Name": "instance-type", "Values": sorted(types)}],
        ):
            offered.setdefault(str(each["InstanceType"]), set()).add(
                str(each["Location"])
            )
        return {
            machine: frozenset(name for name, each in ids.items() if each in there)
            for machine, there in offered.items()
        }

    def _network_tags(self) -> dict[str, str]:
        """Return the tags of the cluster's VPC, or none if it does not exist."""
        found = {
            str(item["VpcId"]): tags_of(item)
            for item in self.clients.listed(
                "ec2", "describe_vpcs", "Vpcs", Filters=self._marked(VPC)
            )
        }
        known = self.known.get(VPC, {}).get("id", "") or min(found, default="")
        return found.get(known, {})

    def _marked(self, key: str) -> list[Mapping[str, Any]]:
        return [
            {"Name": f"tag:{labels.CLOUD_OWNER}", "Values": [self.owner.digits]},
            {"Name": f"tag:{labels.CLOUD_OBJECT}", "Values": [key]},
        ]

    def _group_zones(self, subnets: Sequence[Item]) -> dict[str, frozenset[str]]:
        """Return the zones of existing node groups, by the name at EKS.

        A group that failed has no nodes. It is created again, perhaps in other zones.
        """
        zones = {
            str(item["SubnetId"]): str(item["AvailabilityZone"]) for item in subnets
        }
        names = [pool_name(pool.name) for pool in self.cluster.spec.node_pools or ()]
        found: dict[str, frozenset[str]] = {}
        for name in (SYSTEM_POOL, *names):
            group: Item = (
                self.clients.read(
                    "eks",
                    "describe_nodegroup",
                    clusterName=self.owner.base,
                    nodegroupName=name,
                ).get("nodegroup")
                or {}
            )
            if group.get("status") not in _GROUPS_WITHOUT_NODES:
                there = [zones.get(str(each), "") for each in group.get("subnets", ())]
                found[name] = frozenset(filter(None, there))
        return {name: there for name, there in found.items() if there}

    def _reservations(self) -> dict[str, Reservation]:
        found: dict[str, Reservation] = {}
        for pool, _ in self._pools(new=False):
            block = pool.capacity_block
            if block is None:
                continue
            identity = block.capacity_reservation_id
            listed = self.clients.read(
                "ec2",
                "describe_capacity_reservations",
                CapacityReservationIds=[identity],
            )
            described: Item | None = next(
                iter(listed.get("CapacityReservations", ())), None
            )
            if described is None and not self.exists(pool):
                text = (
                    f"capacity block {identity} does not exist in {self.clients.region} for "
                    "this account"
                )
                self.refused.append(
                    PlanProblem(INVALID_INPUT, f"pool {pool.name}", text)
                )
            # An existing group is not checked again, except for the state `scheduled`
            # of its block.
            if described is not None and (
                not self.exists(pool) or described.get("State") == SCHEDULED
            ):
                count = int(described.get("TotalInstanceCount", 0))
                zone, machine, state = (
                    str(described.get(at, ""))
                    for at in ("AvailabilityZone", "InstanceType", "State")
                )
                found[identity] = Reservation(zone, machine, state, count)
            if described is not None and described.get("EndDate"):
                dates = f"ends {timestamp(described['EndDate'])}"
                if described.get("StartDate"):
                    dates = f"begins {timestamp(described['StartDate'])}, {dates}"
                text = (
                    f"capacity block {identity} {dates}; AWS stops its machines before "
                    "its end"
                )
                self.warnings.append(
                    PlanProblem("CapacityBlockDates", f"pool {pool.name}", text)
                )
        return found

    @property
    def _template_cards(self) -> dict[str, tuple[CardInterface, ...]]:
        """Return the network interfaces in each existing launch template."""
        found = {
            name: from_text(self.known.get(f"lt/{name}", {}).get(CARDS_FACT, ""))
            for name in map(_group_of, self.known)
        }
        return {name: interfaces for name, interfaces in found.items() if interfaces}

    def _machines(self) -> dict[str, Ec2Machine]:
        """Return descriptions of the machine types of pools.

        Rejects a new pool with EFA whose machines do not support it.
        """
        types = sorted({nodes.instance_type for _, nodes in self._pools(new=False)})
        if not types:
            return {}
        described = {
            str(item["InstanceType"]): item
            for item in self.clients.listed(
                "ec2",
                "describe_instance_types",
                "InstanceTypes",
                Filters=[{"Name": "instance-type", "Values": types}],
            )
        }
        for pool, nodes in self._pools(new=True):
            network = described.get(nodes.instance_type, {}).get("NetworkInfo", {})
            wants_efa = pool.fabric is not None and pool.fabric.type == "EFA"
            if wants_efa and network and not network.get("EfaSupported"):
                text = f"{nodes.instance_type} has no EFA; leave fabric out"
                self.refused.append(
                    PlanProblem(INVALID_INPUT, f"pool {pool.name}", text)
                )
        return {name: described_machine(item) for name, item in described.items()}

    def _subnet_items(self) -> list[Item]:
        return list(
            self.clients.listed(
                "ec2", "describe_subnets", "Subnets", Filters=self._marked(SUBNETS)
            )
        )

    def _subnets(self, items: Sequence[Item]) -> tuple[SubnetPair, ...]:
        """Return existing subnet pairs, as reported and as tagged at EC2."""
        ranges: dict[str, dict[str, str]] = {}
        for item in items:
            tier = (
                "public" if "-public-" in tags_of(item).get("Name", "") else "private"
            )
            ranges.setdefault(str(item["AvailabilityZone"]), {})[tier] = str(
                item["CidrBlock"]
            )
        for name, value in self.known.get(SUBNETS, {}).items():
            tier, _, zone = name.removesuffix(f"-{RANGE}").partition("-")
            if name.endswith(f"-{RANGE}"):
                ranges.setdefault(zone, {})[tier] = value
        pairs = [
            SubnetPair(zone, IPv4Network(each["public"]), IPv4Network(each["private"]))
            for zone, each in ranges.items()
            if {"public", "private"} <= each.keys()
        ]
        # The first pair has the NAT gateway, so pairs must be in the order of their
        # creation. EC2's list is not.
        return tuple(sorted(pairs, key=lambda pair: pair.public))

    def _check_version(self, version: str) -> None:
        offered = sorted(
            {
                str(each["clusterVersion"])
                for each in self.clients.listed(
                    "eks", "describe_cluster_versions", "clusterVersions"
                )
            }
        )
        if offered and version not in offered:
            text = (
                f'kubernetesVersion "{version}" is not offered by EKS in '
                f"{self.clients.region}; offered are {', '.join(offered)}"
            )
            self.refused.append(PlanProblem(INVALID_INPUT, "", text))

    def _check_offered(self, facts: EksFacts, free: Sequence[str]) -> None:
        """Reject new node groups whose machine type is not offered in their zones."""
        wanted: list[tuple[str, str, Sequence[str]]] = [("", SYSTEM_MACHINE, ())]
        for pool, nodes in self._pools(new=True):
            wanted.append((f"pool {pool.name}", nodes.instance_type, pool.zones or ()))
        for at, machine, named in wanted:
            # A group without named zones uses the zones that offer its machines.
            missing = [zone for zone in named if not facts.is_offered(machine, zone)]
            if not named and not any(facts.is_offered(machine, zone) for zone in free):
                missing = list(free)
            if missing:
                has = facts.offers[machine]
                where = f"{self.clients.region} does not have it"
                if has:
                    where = f"it is in {', '.join(sorted(has))}"
                text = f"{machine} is not offered in {', '.join(missing)}; {where}"
                self.refused.append(PlanProblem(INVALID_INPUT, at, text))


def _group_of(key: str) -> str:
    """Return the name of the node group with this key, or "" for other objects."""
    kind, _, name = key.partition("/")
    return name if kind == "pool" else ""


def _refused(marks: Mapping[str, str], service: str) -> frozenset[str]:
    """Return the zones that a service rejected before."""
    return frozenset(marks.get(f"{labels.CLOUD_ZONES_REFUSED_BY}{service}", "").split())


def _unsupported(ids: Mapping[str, str]) -> frozenset[str]:
    return frozenset(name for name, each in ids.items() if each in _WITHOUT_EKS)
