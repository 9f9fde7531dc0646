"""Objects that Kubernetes, the network plug-in and EKS create at AWS for a cluster.

They remain if their creators end before they have deleted them. Load balancers of
users, and all volumes of their claims, belong to the users. An exception are load
balancers of a cluster that was emptied before.
"""

from collections.abc import Iterator, Sequence

from activities.clouds.desired.owner import is_our_claim, is_our_service
from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from activities.clouds.eks.wanted.storage import FILE_SYSTEM
from api_types import labels
from api_types.errors import Dependency
from api_types.messages.clouds import Leftover

AVAILABLE_SECONDS = 120.0
"""An interface must be unused for this long before it is deleted, because an interface
that is being attached is unused for a moment too.
"""

_GROUP = "ec2/home?region={region}#SecurityGroup:groupId={id}"
_INTERFACE = "ec2/home?region={region}#NetworkInterface:networkInterfaceId={id}"
_BALANCERS = "ec2/home?region={region}#LoadBalancers:search={id}"
_VOLUME = "ec2/home?region={region}#VolumeDetails:volumeId={id}"
# The tags with the Service of a load balancer, as `namespace/name`. The first is set by
# Kubernetes, the second by the load balancer controller.
_SERVICE_TAGS = ("kubernetes.io/service-name", "service.k8s.aws/stack")
_CLAIM_TAG = "kubernetes.io/created-for/pvc/name"
# The maximum number of load balancers in one request for tags.
_TAGS_AT_ONCE = 20


class ClassicLoadBalancers(LeftoverKind):
    """Classic load balancers of Services."""

    kind = "ClassicLoadBalancer"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the load balancers with the tag of the cluster."""
        names = [
            str(each["LoadBalancerName"])
            for each in scene.clients.listed(
                "elb", "describe_load_balancers", "LoadBalancerDescriptions"
            )
        ]
        found = []
        for part in _parts(names):
            for each in scene.clients.read(
                "elb", "describe_tags", LoadBalancerNames=part
            ).get("TagDescriptions", ()):
                if tags_of(each).get(scene.cluster_tag) == "owned":
                    name = str(each["LoadBalancerName"])
                    link = console(scene, _BALANCERS, name)
                    found.append(
                        _leftover(
                            self.kind,
                            name,
                            f"tag {scene.cluster_tag}",
                            link,
                            ours=_is_ours(scene, each),
                        )
                    )
        return found

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the load balancer. AWS deletes its interfaces later."""
        scene.clients.delete(
            "elb", "delete_load_balancer", LoadBalancerName=leftover.id
        )


class NetworkLoadBalancers(LeftoverKind):
    """Network and application load balancers of Services."""

    kind = "LoadBalancer"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the load balancers with a tag of the cluster."""
        arns = [
            str(each["LoadBalancerArn"])
            for each in scene.clients.listed(
                "elbv2", "describe_load_balancers", "LoadBalancers"
            )
        ]
        return [
            _leftover(
                self.kind,
                arn,
                evidence,
                console(scene, _BALANCERS, arn.split("/")[-2]),
                ours=ours,
            )
            for arn, evidence, ours in _of_cluster(scene, arns)
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the load balancer. AWS deletes its interfaces later."""
        scene.clients.delete(
            "elbv2", "delete_load_balancer", LoadBalancerArn=leftover.id
        )


class TargetGroups(LeftoverKind):
    """Target groups of such load balancers."""

    kind = "TargetGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the target groups with a tag of the cluster."""
        listed = scene.clients.listed("elbv2", "describe_target_groups", "TargetGroups")
        used = {
            str(each["TargetGroupArn"]): bool(each.get("LoadBalancerArns"))
            for each in listed
        }
        # Not even users need a target group without a load balancer.
        return [
            _leftover(self.kind, arn, evidence, ours=ours or not used[arn])
            for arn, evidence, ours in _of_cluster(scene, list(used))
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the target group. Raises Dependency while a load balancer uses it."""
        scene.clients.delete("elbv2", "delete_target_group", TargetGroupArn=leftover.id)


class PodInterfaces(LeftoverKind):
    """Interfaces of the network plug-in and of EFA that remain after their nodes."""

    kind = "NetworkInterface"

    def __init__(self, unused_since: dict[str, float]) -> None:
        self._unused_since = unused_since

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the interfaces of the cluster that no node uses."""
        if not scene.vpc:
            return []
        plug_in = [
            str(each["NetworkInterfaceId"])
            for each in _unused(scene, "cluster.k8s.amazonaws.com/name", scene.cluster)
            if str(each.get("Description", "")).startswith("aws-K8S-")
        ]
        efa = [
            str(each["NetworkInterfaceId"])
            for each in _unused(scene, labels.CLOUD_OWNER, scene.owner.digits)
            if tags_of(each, "TagSet").get(labels.CLOUD_OBJECT, "").startswith("lt/")
        ]
        ids = [*plug_in, *(each for each in efa if each not in plug_in)]
        now = scene.clients.seconds()
        since = {each: self._unused_since.get(each, now) for each in ids}
        self._unused_since.clear()
        self._unused_since.update(since)
        evidence = {
            **dict.fromkeys(
                efa, f"tags {labels.CLOUD_OWNER} and {labels.CLOUD_OBJECT}"
            ),
            **dict.fromkeys(
                plug_in, "tag cluster.k8s.amazonaws.com/name, described as aws-K8S"
            ),
        }
        return [
            _leftover(self.kind, each, evidence[each], console(scene, _INTERFACE, each))
            for each in ids
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the interface.

        Raises Dependency until it has been unused for two minutes.
        """
        unused = scene.clients.seconds() - self._unused_since.get(
            leftover.id, scene.clients.seconds()
        )
        if unused < AVAILABLE_SECONDS:
            raise Dependency(
                f"interface {leftover.id} has been unused for {unused:.0f} s; it is deleted "
                f"after {AVAILABLE_SECONDS:.0f} s"
            )
        scene.clients.delete(
            "ec2", "delete_network_interface", NetworkInterfaceId=leftover.id
        )


class MountTargetInterfaces(LeftoverKind):
    """Interfaces of mount targets. EFS deletes them."""

    kind = "MountTargetInterface"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the interfaces in the VPC."""
        if not scene.vpc:
            return []
        filters = where(**{"vpc-id": scene.vpc, "description": "EFS mount target*"})
        listed = list(
            scene.clients.listed(
                "ec2",
                "describe_network_interfaces",
                "NetworkInterfaces",
                Filters=filters,
            )
        )
        systems = self._systems(scene) if listed else set()
        return [self._found(scene, each, systems) for each in listed]

    def _systems(self, scene: Scene) -> set[str]:
        """Return the ids of the cluster's file systems, deleted ones included."""
        tagged = (
            str(each["FileSystemId"])
            for each in scene.clients.listed(
                "efs", "describe_file_systems", "FileSystems"
            )
            if tags_of(each).get(labels.CLOUD_OWNER) == scene.owner.digits
        )
        return {*tagged, scene.known.get(FILE_SYSTEM, {}).get("id", "")} - {""}

    def _found(self, scene: Scene, item: Item, systems: set[str]) -> Leftover:
        description = str(item.get("Description", ""))
        evidence = f"in VPC {scene.vpc}, described as {description}"
        return _leftover(
            self.kind,
            str(item["NetworkInterfaceId"]),
            evidence,
            ours=not systems.isdisjoint(description.split()),
        )

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Raise Dependency until EFS has deleted it."""
        del scene
        raise Dependency(
            f"interface {leftover.id} belongs to a mount target, and EFS deletes it with "
            "that"
        )


class BalancerGroups(LeftoverKind):
    """Security groups of load balancers."""

    kind = "LoadBalancerSecurityGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the groups with the tag of the cluster and a name from Kubernetes."""
        if not scene.vpc:
            return []
        filters = where(**{"vpc-id": scene.vpc, f"tag:{scene.cluster_tag}": "owned"})
        listed = scene.clients.listed(
            "ec2", "describe_security_groups", "SecurityGroups", Filters=filters
        )
        ids = [
            str(each["GroupId"])
            for each in listed
            if str(each["GroupName"]).startswith(("k8s-elb-", "k8s-traffic-"))
        ]
        kept = frozenset() if scene.emptied else _groups_of_users(scene)
        evidence = f"tag {scene.cluster_tag}"
        return [
            _leftover(
                self.kind,
                each,
                evidence,
                console(scene, _GROUP, each),
                ours=each not in kept,
            )
            for each in ids
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the group, after the rules of other groups that refer to it."""
        _delete_group(scene, leftover.id)


class ClusterGroups(LeftoverKind):
    """The security group that EKS creates for a cluster.

    EKS cannot delete it while an interface uses it.
    """

    kind = "ClusterSecurityGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the group once its cluster is gone."""
        filters = where(**{"tag:aws:eks:cluster-name": scene.cluster})
        listed = list(
            scene.clients.listed(
                "ec2", "describe_security_groups", "SecurityGroups", Filters=filters
            )
        )
        if not listed or scene.clients.read(
            "eks", "describe_cluster", name=scene.cluster
        ):
            return []
        ids = [
            str(each["GroupId"])
            for each in listed
            if not scene.vpc or each.get("VpcId") == scene.vpc
        ]
        return [
            _leftover(
                self.kind,
                each,
                "tag aws:eks:cluster-name",
                console(scene, _GROUP, each),
            )
            for each in ids
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the group, after the rules of other groups that refer to it."""
        _delete_group(scene, leftover.id)


class Volumes(LeftoverKind):
    kind = "Volume"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the volumes of the cluster's claims.

        Only volumes of caches may be deleted: users may keep their volumes on purpose.
        """
        filters = where(**{f"tag:{scene.cluster_tag}": "owned", "tag-key": _CLAIM_TAG})
        found = []
        for each in scene.clients.listed(
            "ec2", "describe_volumes", "Volumes", Filters=filters
        ):
            identity, claim = str(each["VolumeId"]), tags_of(each).get(_CLAIM_TAG, "")
            evidence = f"tags {scene.cluster_tag} and {_CLAIM_TAG}={claim}"
            found.append(
                _leftover(
                    self.kind,
                    identity,
                    evidence,
                    console(scene, _VOLUME, identity),
                    ours=is_our_claim(claim),
                )
            )
        return found

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the volume of a cache with its data.

        Raises Dependency while a machine uses it.
        """
        scene.clients.delete("ec2", "delete_volume", VolumeId=leftover.id)


def _unused(scene: Scene, tag: str, value: str) -> Iterator[Item]:
    """Yield the interfaces in the VPC with this tag that no machine uses."""
    filters = where(**{"vpc-id": scene.vpc, "status": "available", f"tag:{tag}": value})
    yield from scene.clients.listed(
        "ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters
    )


def _leftover(
    kind: str, identity: str, evidence: str, link: str = "", *, ours: bool = True
) -> Leftover:
    text = evidence if ours else f"{evidence}, and belongs to users"
    blocks = kind != Volumes.kind
    return Leftover(
        kind=kind, id=identity, evidence=text, ours=ours, link=link, blocks=blocks
    )


def _is_ours(scene: Scene, item: Item) -> bool:
    """Return True if the load balancer with these tags may be deleted.

    It must belong to the cluster's Gateway, or the cluster must have been emptied.
    """
    tags = tags_of(item)
    return scene.emptied or any(
        is_our_service(tags.get(tag, "")) for tag in _SERVICE_TAGS
    )


def _groups_of_users(scene: Scene) -> frozenset[str]:
    """Return the security groups of the load balancers that users keep."""
    left = {
        *(each.id for each in ClassicLoadBalancers().find(scene) if not each.ours),
        *(each.id for each in NetworkLoadBalancers().find(scene) if not each.ours),
    }
    if not left:
        return frozenset()
    found: set[str] = set()
    for service, result, id_field in (
        ("elb", "LoadBalancerDescriptions", "LoadBalancerName"),
        ("elbv2", "LoadBalancers", "LoadBalancerArn"),
    ):
        for each in scene.clients.listed(service, "describe_load_balancers", result):
            if each[id_field] in left:
                found.update(map(str, each.get("SecurityGroups") or ()))
    return frozenset(found)


def _parts(items: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _TAGS_AT_ONCE):
        yield list(items[start : start + _TAGS_AT_ONCE])


def _of_cluster(scene: Scene, arns: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield load balancers or target groups with a tag of the cluster.

    Each is yielded with that tag, and with whether it may be deleted.
    """
    wanted = {scene.cluster_tag: "owned", "elbv2.k8s.aws/cluster": scene.cluster}
    for part in _parts(arns):
        for each in scene.clients.read("elbv2", "describe_tags", ResourceArns=part).get(
            "TagDescriptions", ()
        ):
            for tag, value in wanted.items():
                if tags_of(each).get(tag) == value:
                    yield str(each["ResourceArn"]), f"tag {tag}", _is_ours(scene, each)
                    break


def _delete_group(scene: Scene, group: str) -> None:
    """Delete a security group, and the rules of other groups that refer to it.

    EC2 rejects the deletion while such a rule exists, and two groups may refer to each
    other.
    """
    for filter_name, at, revoke in (
        ("ip-permission.group-id", "IpPermissions", "revoke_security_group_ingress"),
        (
            "egress.ip-permission.group-id",
            "IpPermissionsEgress",
            "revoke_security_group_egress",
        ),
    ):
        for other in list(
            scene.clients.listed(
                "ec2",
                "describe_security_groups",
                "SecurityGroups",
                Filters=where(**{filter_name: group}),
            )
        ):
            rules = [
                _only(rule, group) for rule in other.get(at, ()) if _names(rule, group)
            ]
            if rules:
                scene.clients.delete(
                    "ec2", revoke, GroupId=other["GroupId"], IpPermissions=rules
                )
    scene.clients.delete("ec2", "delete_security_group", GroupId=group)


def _names(rule: Item, group: str) -> bool:
    return any(
        pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs", ())
    )


def _only(rule: Item, group: str) -> dict[str, object]:
    """Return the parts of a rule that refer to the group.

    Its other sources are kept.
    """
    ports = {
        at: rule[at]
        for at in ("IpProtocol", "FromPort", "ToPort")
        if rule.get(at) is not None
    }
    return {**ports, "UserIdGroupPairs": [{"GroupId": group}]}
