"""Find and delete the leftovers of one cluster."""

from collections.abc import Sequence
from itertools import chain

from activities.clouds.desired.owner import owner_at
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.handlers.ec2 import VpcHandler
from activities.clouds.eks.leftovers.foreign import foreign
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene
from activities.clouds.eks.leftovers.made_by_cluster import (
    BalancerGroups,
    ClassicLoadBalancers,
    ClusterGroups,
    MountTargetInterfaces,
    NetworkLoadBalancers,
    PodInterfaces,
    TargetGroups,
    Volumes,
)
from activities.clouds.eks.leftovers.made_by_eks import EksTemplates, ScalingGroups
from activities.clouds.eks.leftovers.made_by_services import (
    GuardDutyEndpoints,
    GuardDutyGroups,
)
from activities.clouds.eks.leftovers.marked import MARKED
from activities.clouds.eks.wanted.network import VPC
from api_types.messages.clouds import AuditCloud, CloudAccount, Leftover


class EksAudit:
    """The leftovers of one cluster.

    `unused_since` maps ids of interfaces to the time at which they were first seen
    unused.
    """

    def __init__(
        self, clients: AwsClients, account: CloudAccount, unused_since: dict[str, float]
    ) -> None:
        self._clients = clients
        self._account = account
        self._owner = owner_at(account)
        # The kinds in an order in which they can be deleted.
        self._kinds: tuple[LeftoverKind, ...] = (
            ClassicLoadBalancers(),
            NetworkLoadBalancers(),
            TargetGroups(),
            PodInterfaces(unused_since),
            MountTargetInterfaces(),
            BalancerGroups(),
            ClusterGroups(),
            GuardDutyEndpoints(),
            GuardDutyGroups(),
            Volumes(),
            ScalingGroups(),
            EksTemplates(),
            *MARKED,
        )

    def leftovers(self, order: AuditCloud) -> Sequence[Leftover]:
        """List the leftovers in an order of deletion, foreign ones last."""
        scene = self._scene(order)
        found = list(chain.from_iterable(kind.find(scene) for kind in self._kinds))
        return [*found, *foreign(scene, frozenset(each.id for each in found))]

    def sweep(self, order: AuditCloud, leftover: Leftover) -> None:
        """Delete a leftover if a new search still finds it with evidence.

        Raises Dependency while it is in use.
        """
        scene = self._scene(order)
        for kind in self._kinds:
            if leftover.kind not in (kind.kind, *kind.also):
                continue
            for each in kind.find(scene):
                if (
                    each.ours
                    and not each.unmarked
                    and (each.kind, each.id, each.key)
                    == (
                        leftover.kind,
                        leftover.id,
                        leftover.key,
                    )
                ):
                    kind.remove(scene, each)
                    return

    def _scene(self, order: AuditCloud) -> Scene:
        vpc = order.known.get(VPC, {}).get("id", "")
        if not vpc:
            vpc = next(
                iter(VpcHandler(self._clients, self._account).called(self._owner)), ""
            )
        return Scene(
            self._clients,
            self._account,
            self._owner,
            order.cloud_cluster or self._owner.base,
            vpc,
            order.emptied,
            order.known,
        )
