"""What the objects of one EKS cluster are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.eks.wanted.subnets import SubnetPair
from activities.clouds.graph import Value
from activities.clouds.owner import Owner, aws_tags
from api_types.resources.inference_cluster import EksCluster
from api_types.sections.clouds import EksSettings

UNKNOWN_PRINCIPAL = "PRINCIPAL"
"""Stands for the role that the credentials log in as, where they are not read."""


@dataclass(frozen=True)
class Reservation:
    """A purchased capacity block as EC2 describes it; `count` is of machines."""

    zone: str
    instance_type: str
    state: str
    count: int


@dataclass(frozen=True)
class EksFacts:
    """What is known of the cloud beside the manifest. Empty is not known: then nothing is checked against it.

    `network_cards` are by type of machine, `template_cards` those that the launch templates of pools have, by the pool's name at EKS.
    """

    zones: tuple[str, ...] = ()
    reservations: Mapping[str, Reservation] = field(default_factory=dict)
    network_cards: Mapping[str, int] = field(default_factory=dict)
    template_cards: Mapping[str, int] = field(default_factory=dict)
    subnets: tuple[SubnetPair, ...] = ()
    principal: str = UNKNOWN_PRINCIPAL


@dataclass(frozen=True)
class EksInputs:
    """The owner, the block of the manifest, settings, facts, and the subnets that were chosen."""

    owner: Owner
    eks: EksCluster
    settings: EksSettings
    facts: EksFacts
    pairs: Sequence[SubnetPair]

    @property
    def partition(self) -> str:
        """The first part of every ARN after `arn`."""
        return partition_of(self.eks.region)

    def tags(self, key: str, name: str = "") -> dict[str, str]:
        """Give the tags of an object, as EKS takes them; its name is that of the cluster where none is given."""
        return aws_tags(self.owner, key, name or self.owner.base)

    def tag_list(self, key: str, name: str = "") -> list[dict[str, str]]:
        """Give the tags of an object, as IAM and EFS take them."""
        return [{"Key": tag, "Value": value} for tag, value in self.tags(key, name).items()]

    def tag_specifications(self, resource: str, key: str, name: str = "", **more: str) -> list[Mapping[str, Value]]:
        """Give the tags of an object, as EC2 takes them when it creates a resource of this type."""
        return [{"ResourceType": resource, "Tags": [*self.tag_list(key, name), *({"Key": tag, "Value": more[tag]} for tag in more)]}]
