"""Objects that EKS creates for a node group and should delete with it.

If they exist after the cluster is gone, EKS no longer deletes them. Other users may
write the tags by which they are found, so they are only listed, and a person has to
delete them. An Auto Scaling group with machines blocks the deletion of the subnets in
the meantime.
"""

from collections.abc import Sequence

from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from api_types.errors import Dependency, PermissionDenied
from api_types.messages.clouds import Leftover

_CLUSTER_TAG = "eks:cluster-name"
_GROUP_TAG = "eks:nodegroup-name"


class _OfNodeGroups(LeftoverKind):
    """A kind that EKS tags with the names of the cluster and the node group."""

    id_field: str
    path: str
    listing: tuple[str, str, str]
    """The service, the operation, and the field of its response."""

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the objects of a cluster that is gone.

        Lists none if the credential lacks the permission.
        """
        if scene.clients.read("eks", "describe_cluster", name=scene.cluster):
            return []
        try:
            listed = list(
                scene.clients.listed(
                    *self.listing,
                    Filters=where(**{f"tag:{_CLUSTER_TAG}": scene.cluster}),
                )
            )
        except PermissionDenied:
            # No other call needs this permission, and listed objects block no deletion.
            return []
        return [
            self._found(scene, each)
            for each in listed
            if tags_of(each).get(_CLUSTER_TAG) == scene.cluster
        ]

    def _found(self, scene: Scene, item: Item) -> Leftover:
        identity, group = (
            str(item[self.id_field]),
            tags_of(item).get(_GROUP_TAG, "unknown"),
        )
        evidence = (
            f"tag {_CLUSTER_TAG}; EKS created it for node group {group} and has not deleted "
            "it with that"
        )
        return Leftover(
            kind=self.kind,
            id=identity,
            evidence=evidence,
            ours=False,
            blocks=self.kind == ScalingGroups.kind,
            link=console(scene, self.path, identity),
        )

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Raise Dependency. These objects are never deleted."""
        del scene
        raise Dependency(f"{leftover.kind} {leftover.id} belongs to EKS")


class ScalingGroups(_OfNodeGroups):
    """The Auto Scaling groups of node groups, with their machines."""

    kind = "AutoScalingGroup"
    id_field = "AutoScalingGroupName"
    path = "ec2/home?region={region}#AutoScalingGroupDetails:id={id}"
    listing = ("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups")


class EksTemplates(_OfNodeGroups):
    """The launch templates that EKS creates, including copies of Modelplane's."""

    kind = "LaunchTemplate"
    id_field = "LaunchTemplateId"
    path = "ec2/home?region={region}#LaunchTemplateDetails:launchTemplateId={id}"
    listing = ("ec2", "describe_launch_templates", "LaunchTemplates")
