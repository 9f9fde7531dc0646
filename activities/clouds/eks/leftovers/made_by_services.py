"""Objects that services of AWS create in the network of a cluster.

GuardDuty Runtime Monitoring creates an endpoint and a security group in each network
with machines, also in accounts whose organization enables it. It never deletes them,
and they block the deletion of subnets and network
(https://github.com/hashicorp/terraform-provider-aws/issues/46747). They exist only for
the cluster, so they are deleted once it is gone.
"""

from collections.abc import Sequence

from activities.clouds.eks.failures import Purpose
from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from api_types.errors import Dependency
from api_types.messages.clouds import Leftover

_SERVICE = ".guardduty-data"
_TAG = "GuardDutyManaged"
_GROUP_PREFIX = "GuardDutyManagedSecurityGroup-"
_ENDPOINT = "vpcconsole/home?region={region}#EndpointDetails:vpcEndpointId={id}"
_GROUP = "ec2/home?region={region}#SecurityGroup:groupId={id}"


class GuardDutyEndpoints(LeftoverKind):
    """The endpoint to which GuardDuty's agents on the nodes report."""

    kind = "GuardDutyEndpoint"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the endpoints in the VPC of a cluster that is gone."""
        if not scene.vpc or _exists(scene):
            return []
        listed = scene.clients.listed(
            "ec2",
            "describe_vpc_endpoints",
            "VpcEndpoints",
            Filters=where(**{"vpc-id": scene.vpc}),
        )
        return [
            _found(scene, self.kind, str(each["VpcEndpointId"]), _ENDPOINT)
            for each in listed
            if str(each.get("ServiceName", "")).endswith(_SERVICE)
            and _is_managed(each)
            and each.get("State") != "deleted"
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the endpoint. Raises Dependency until its interfaces are gone."""
        answer = scene.clients.call(
            "ec2",
            "delete_vpc_endpoints",
            {"VpcEndpointIds": [leftover.id]},
            Purpose.DELETE,
        )
        failed = [
            str(each.get("Error", {}).get("Message", ""))
            for each in (answer or {}).get("Unsuccessful", ())
        ]
        if failed:
            raise Dependency(f"endpoint {leftover.id} of GuardDuty: {failed[0]}")
        if any(each.id == leftover.id for each in self.find(scene)):
            raise Dependency(f"endpoint {leftover.id} of GuardDuty is being deleted")


class GuardDutyGroups(LeftoverKind):
    """The security group of that endpoint."""

    kind = "GuardDutySecurityGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the groups in the VPC of a cluster that is gone."""
        if not scene.vpc or _exists(scene):
            return []
        listed = scene.clients.listed(
            "ec2",
            "describe_security_groups",
            "SecurityGroups",
            Filters=where(**{"vpc-id": scene.vpc}),
        )
        return [
            _found(scene, self.kind, str(each["GroupId"]), _GROUP)
            for each in listed
            if each.get("GroupName") == f"{_GROUP_PREFIX}{scene.vpc}"
            and _is_managed(each)
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the group. Raises Dependency while the endpoint uses it."""
        scene.clients.delete("ec2", "delete_security_group", GroupId=leftover.id)


def _is_managed(item: Item) -> bool:
    return tags_of(item).get(_TAG) == "true"


def _exists(scene: Scene) -> bool:
    """Return True while the cluster exists: its nodes may report to GuardDuty."""
    return bool(scene.clients.read("eks", "describe_cluster", name=scene.cluster))


def _found(scene: Scene, kind: str, identity: str, path: str) -> Leftover:
    return Leftover(
        kind=kind,
        id=identity,
        evidence=f"in VPC {scene.vpc}, tag {_TAG}; GuardDuty created it for this network",
        ours=True,
        link=console(scene, path, identity),
    )
