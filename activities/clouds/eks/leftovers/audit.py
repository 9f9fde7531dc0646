"""The audit of one cluster: everything that is left, found by direct questions, and its deletion."""

from collections.abc import Sequence

from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.ec2 import VpcHandler
from activities.clouds.eks.leftovers.foreign import foreign
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene
from activities.clouds.eks.leftovers.made_by_cluster import (
    BalancerGroups,
    ClassicLoadBalancers,
    ClusterGroups,
    LoadBalancers,
    MountTargetInterfaces,
    PodInterfaces,
    TargetGroups,
    Volumes,
)
from activities.clouds.eks.leftovers.made_by_eks import EksTemplates, ScalingGroups
from activities.clouds.eks.leftovers.marked import MARKED
from activities.clouds.eks.wanted.network import VPC
from activities.clouds.owner import owner_at
from api_types.messages.clouds import AuditCloud, CloudAccount, Leftover


class Audit:
    """The leftovers of one cluster. Remembers in `unused_since` when interfaces were first seen unused, by their ids."""

    def __init__(self, clients: AwsClients, account: CloudAccount, unused_since: dict[str, float]) -> None:
        self._clients = clients
        self._account = account
        self._owner = owner_at(account)
        # In the order in which they can be deleted.
        self._kinds: tuple[LeftoverKind, ...] = (
            ClassicLoadBalancers(),
            LoadBalancers(),
            TargetGroups(),
            PodInterfaces(unused_since),
            MountTargetInterfaces(),
            BalancerGroups(),
            ClusterGroups(),
            Volumes(),
            ScalingGroups(),
            EksTemplates(),
            *MARKED,
        )

    def leftovers(self, order: AuditCloud) -> Sequence[Leftover]:
        """List what is left, in the order in which it can be deleted; what is not of the cluster last."""
        scene = self._scene(order)
        found = [each for kind in self._kinds for each in kind.find(scene)]
        return [*found, *foreign(scene, frozenset(each.id for each in found))]

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete one, if it is still found with evidence. Raises Dependency while it is in use."""
        scene = self._scene(order)
        for kind in self._kinds:
            if leftover.kind not in (kind.kind, *kind.also):
                continue
            for each in kind.find(scene):
                if each.ours and (each.kind, each.id, each.key) == (leftover.kind, leftover.id, leftover.key):
                    kind.remove(scene, each)
                    return

    def _scene(self, order: AuditCloud) -> Scene:
        vpc = order.known.get(VPC, {}).get("id", "")
        if not vpc:
            vpc = next(iter(VpcHandler(self._clients, self._account).called(self._owner)), "")
        return Scene(self._clients, self._account, self._owner, order.cloud_cluster or self._owner.base, vpc, order.emptied, order.known)
