"""What one kind of leftover can do."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.owner import Owner
from api_types.messages.clouds import CloudAccount, Facts, Leftover


@dataclass(frozen=True)
class Scene:
    """Where is looked: the account, the name of the cluster, and its VPC; empty where that is not known and not there.

    `known` are facts of the inventory, by key. `emptied`: users had no load balancers in the cluster any more, so that those which are
    left are of nobody.
    """

    clients: AwsClients
    account: CloudAccount
    owner: Owner
    cluster: str
    vpc: str
    emptied: bool = False
    known: Mapping[str, Facts] = field(default_factory=dict)

    @property
    def cluster_tag(self) -> str:
        """The tag with which Kubernetes marks what it makes at AWS for a cluster; its value is `owned`."""
        return f"kubernetes.io/cluster/{self.cluster}"


class LeftoverKind(ABC):
    """One kind. `find` lists the objects that show evidence of the cluster. `remove` deletes one object.

    `also`: other kinds that `find` lists.
    """

    kind: str
    also: tuple[str, ...] = ()

    @abstractmethod
    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List what is left."""

    @abstractmethod
    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete one. Raises Dependency while it is in use."""


def where(**filters: str | Sequence[str]) -> list[dict[str, Any]]:
    """Give filters of EC2."""
    return [{"Name": name, "Values": [value] if isinstance(value, str) else list(value)} for name, value in filters.items()]


def console(scene: Scene, path: str, identity: str) -> str:
    """Give the address of something in the console of AWS; empty in partitions that have their own."""
    region = scene.clients.region
    if partition_of(region) != "aws":
        return ""
    return f"https://{region}.console.aws.amazon.com/{path}".replace("{region}", region).replace("{id}", identity)
