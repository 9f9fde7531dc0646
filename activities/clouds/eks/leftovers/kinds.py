"""The interface of one kind of leftover."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from activities.clouds.desired.owner import ClusterOwner
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.wanted.partitions import partition_of
from api_types.messages.clouds import CloudAccount, Facts, Leftover


@dataclass(frozen=True)
class Scene:
    """The scope of a search: the account, the name of the cluster, and its VPC.

    `vpc` is empty if it is neither known nor found. `known` are facts of the inventory,
    by key. `emptied` means that the cluster reported no load balancers of users before
    its deletion, so remaining ones have no owner.
    """

    clients: AwsClients
    account: CloudAccount
    owner: ClusterOwner
    cluster: str
    vpc: str
    emptied: bool = False
    known: Mapping[str, Facts] = field(default_factory=dict)

    @property
    def cluster_tag(self) -> str:
        """The tag of objects that Kubernetes creates at AWS, with value `owned`."""
        return f"kubernetes.io/cluster/{self.cluster}"


class LeftoverKind(ABC):
    """One kind of leftover. `also` lists other kinds that `find` returns."""

    kind: str
    also: tuple[str, ...] = ()

    @abstractmethod
    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the objects with evidence that they belong to the cluster."""

    @abstractmethod
    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete one object. Raises Dependency while it is in use."""


def where(**filters: str | Sequence[str]) -> list[dict[str, Any]]:
    """Return filters in the form of EC2."""
    return [
        {"Name": name, "Values": [value] if isinstance(value, str) else list(value)}
        for name, value in filters.items()
    ]


def console(scene: Scene, path: str, identity: str) -> str:
    """Return the URL of an object in AWS's console, or "" in other partitions."""
    region = scene.clients.region
    if partition_of(region) != "aws":
        return ""
    return f"https://{region}.console.aws.amazon.com/{path}".replace(
        "{region}", region
    ).replace("{id}", identity)
