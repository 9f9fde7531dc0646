"""What EKS makes for a node group beside the group, and deletes with it: what is there once the cluster is gone stays.

Nobody deletes it any more, and the tags by which it is found may be written by others too, so it is named: a person has to delete it. An
Auto Scaling group that has machines holds the subnets meanwhile.
"""

from collections.abc import Sequence

from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from api_types.errors import Dependency, PermissionDenied
from api_types.messages.clouds import Leftover

_CLUSTER_TAG = "eks:cluster-name"
_GROUP_TAG = "eks:nodegroup-name"


class _OfNodeGroups(LeftoverKind):
    """A kind that EKS marks with the names of the cluster and the node group."""

    id_field: str
    path: str
    listing: tuple[str, str, str]
    """The service, the operation, and the field of its answer."""

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those of the cluster once that is gone; none where the credential may not list them."""
        if scene.clients.read("eks", "describe_cluster", name=scene.cluster):
            return []
        try:
            listed = list(scene.clients.listed(*self.listing, Filters=where(**{f"tag:{_CLUSTER_TAG}": scene.cluster})))
        except PermissionDenied:
            # A right that nothing else needs: what is named holds up no deletion.
            return []
        return [self._found(scene, each) for each in listed if tags_of(each).get(_CLUSTER_TAG) == scene.cluster]

    def _found(self, scene: Scene, item: Item) -> Leftover:
        identity, group = str(item[self.id_field]), tags_of(item).get(_GROUP_TAG, "unknown")
        evidence = f"tag {_CLUSTER_TAG}; EKS made it for node group {group} and has not deleted it with that"
        return Leftover(kind=self.kind, id=identity, evidence=evidence, ours=False, link=console(scene, self.path, identity))

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete nothing: raises Dependency."""
        del scene
        raise Dependency(f"{leftover.kind} {leftover.id} is of EKS")


class ScalingGroups(_OfNodeGroups):
    """The Auto Scaling groups of node groups, with their machines."""

    kind = "AutoScalingGroup"
    id_field = "AutoScalingGroupName"
    path = "ec2/home?region={region}#AutoScalingGroupDetails:id={id}"
    listing = ("autoscaling", "describe_auto_scaling_groups", "AutoScalingGroups")


class EksTemplates(_OfNodeGroups):
    """The launch templates that EKS makes, also from those of ours."""

    kind = "LaunchTemplate"
    id_field = "LaunchTemplateId"
    path = "ec2/home?region={region}#LaunchTemplateDetails:launchTemplateId={id}"
    listing = ("ec2", "describe_launch_templates", "LaunchTemplates")
