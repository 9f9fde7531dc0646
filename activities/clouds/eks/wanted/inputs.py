"""The inputs of the objects of one EKS cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.clouds.desired.graph import Value
from activities.clouds.desired.owner import ClusterOwner, aws_tags
from activities.clouds.eks.wanted.machines import (
    CardInterface,
    Ec2Machine,
    known_machine,
)
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.eks.wanted.subnets import SubnetPair
from api_types.resources.inference_cluster import EksCluster
from api_types.sections.clouds import EksSettings

UNKNOWN_PRINCIPAL = "PRINCIPAL"
"""A placeholder for the role of the credential before it is read."""


@dataclass(frozen=True)
class Reservation:
    """A purchased capacity block as EC2 describes it.

    `count` is the number of machines.
    """

    zone: str
    instance_type: str
    state: str
    count: int


@dataclass(frozen=True)
class EksFacts:
    """Known facts about the cloud.

    An empty fact is unknown, and not checked. `machines` are descriptions by
    machine type, and `template_cards` the interfaces in existing launch templates by the
    pool's name at EKS.

    `zones` are the zones of the region that the account can use, and `zone_ids` their
    ids. `offers` are the zones that offer a machine type. `chosen` are the zones that an
    earlier plan chose, and `group_zones` the zones of existing node groups by name.
    `without_eks` and `without_efs` are zones in which the service creates nothing.
    """

    zones: tuple[str, ...] = ()
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    offers: Mapping[str, frozenset[str]] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()
    group_zones: Mapping[str, frozenset[str]] = field(default_factory=dict)
    without_eks: frozenset[str] = frozenset()
    without_efs: frozenset[str] = frozenset()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    machines: Mapping[str, Ec2Machine] = field(default_factory=dict)
    template_cards: Mapping[str, tuple[CardInterface, ...]] = field(
        default_factory=dict
    )
    subnets: tuple[SubnetPair, ...] = ()
    principal: str = UNKNOWN_PRINCIPAL

    def machine(self, name: str) -> Ec2Machine:
        """Return a machine type as EC2 describes it, or from the table of known types."""
        described, known = self.machines.get(name), known_machine(name)
        if described is None:
            return known
        return Ec2Machine(
            known.gpus if described.gpus is None else described.gpus,
            known.arm if described.arm is None else described.arm,
            known.interfaces or described.interfaces,
        )

    def is_offered(self, machine: str, zone: str) -> bool:
        """Return True if a zone offers a machine type, or if that is unknown."""
        return machine not in self.offers or zone in self.offers[machine]

    def is_excluded(self, zone: str, settings: EksSettings) -> bool:
        """Return True if the settings exclude a zone by its name or id."""
        names = {zone, self.zone_ids.get(zone, zone)}
        if names.intersection(settings.excluded_zones):
            return True
        return bool(settings.zones) and not names.intersection(settings.zones)

    def is_free(self, zone: str, settings: EksSettings) -> bool:
        """Return True if a zone may be chosen for a cluster or a pool."""
        refused = zone in self.without_eks or zone in self.without_efs
        return not refused and not self.is_excluded(zone, settings)


@dataclass(frozen=True)
class EksInputs:
    """The owner, the block of the manifest, the settings, the facts, and the subnets.

    `named_zones` are the zones that pools name.
    """

    owner: ClusterOwner
    eks: EksCluster
    settings: EksSettings
    facts: EksFacts
    pairs: Sequence[SubnetPair]
    named_zones: frozenset[str] = frozenset()

    @property
    def partition(self) -> str:
        """The first part of every ARN after `arn`."""
        return partition_of(self.eks.region)

    @property
    def control_plane_zones(self) -> list[str]:
        """The zones in which EKS may place the control plane."""
        every = [pair.zone for pair in self.pairs]
        return [zone for zone in every if zone not in self.facts.without_eks]

    @property
    def mount_zones(self) -> list[str]:
        """The zones that can have nodes and in which EFS may create mount targets."""
        nodes = self.named_zones.union(*self.facts.group_zones.values())
        every = [pair.zone for pair in self.pairs if self._is_used(pair.zone, nodes)]
        return [zone for zone in every if zone not in self.facts.without_efs]

    def _is_used(self, zone: str, nodes: frozenset[str]) -> bool:
        return zone in nodes or zone not in self.facts.without_eks

    def group_zones(self, name: str, machine: str) -> list[str]:
        """Return the zones of a node group whose spec names none.

        An existing group keeps its zones, because EKS cannot change them. A new group
        gets the zones that offer its machines.
        """
        every = [pair.zone for pair in self.pairs]
        there = self.facts.group_zones.get(name, frozenset())
        if kept := [zone for zone in every if zone in there]:
            return kept
        free = [zone for zone in every if self.facts.is_free(zone, self.settings)]
        return [zone for zone in free if self.facts.is_offered(machine, zone)] or free

    def tags(self, key: str, name: str = "") -> dict[str, str]:
        """Return the tags of an object in the form of EKS.

        The name is the cluster's unless one is passed.
        """
        return aws_tags(self.owner, key, name or self.owner.base)

    def tag_list(self, key: str, name: str = "") -> list[dict[str, str]]:
        """Return the tags of an object in the form of IAM and EFS."""
        return [
            {"Key": tag, "Value": value} for tag, value in self.tags(key, name).items()
        ]

    def tag_specifications(
        self, resource: str, key: str, name: str = "", **more: str
    ) -> list[Mapping[str, Value]]:
        """Return the tags of an object in the form of EC2's create calls."""
        return [
            {
                "ResourceType": resource,
                "Tags": [
                    *self.tag_list(key, name),
                    *({"Key": tag, "Value": more[tag]} for tag in more),
                ],
            }
        ]
