"""What Kubernetes, the network plug-in and EKS make at AWS for a cluster, and leave when they end before it.

Load balancers of users are theirs unless the cluster was emptied before, and what their claims stored always is (ruling 71).
"""

from collections.abc import Iterator, Sequence

from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from activities.clouds.eks.wanted.storage import FILE_SYSTEM
from activities.clouds.owner import is_our_claim, is_our_service
from api_types import labels
from api_types.errors import Dependency
from api_types.messages.clouds import Leftover

AVAILABLE_SECONDS = 120.0
"""How long an interface is unused before it is deleted: one that is being attached is unused for a moment too."""

_GROUP = "ec2/home?region={region}#SecurityGroup:groupId={id}"
_INTERFACE = "ec2/home?region={region}#NetworkInterface:networkInterfaceId={id}"
_BALANCERS = "ec2/home?region={region}#LoadBalancers:search={id}"
_VOLUME = "ec2/home?region={region}#VolumeDetails:volumeId={id}"
# Which Service a load balancer is of, as `namespace/name`: by Kubernetes, and by the load balancer controller.
_SERVICE_TAGS = ("kubernetes.io/service-name", "service.k8s.aws/stack")
_CLAIM_TAG = "kubernetes.io/created-for/pvc/name"
# So many load balancers are asked for their tags at once.
_TAGS_AT_ONCE = 20


class ClassicLoadBalancers(LeftoverKind):
    """Of Services of type LoadBalancer."""

    kind = "ClassicLoadBalancer"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those with the tag of the cluster."""
        names = [
            str(each["LoadBalancerName"]) for each in scene.clients.listed("elb", "describe_load_balancers", "LoadBalancerDescriptions")
        ]
        found = []
        for part in _parts(names):
            for each in scene.clients.read("elb", "describe_tags", LoadBalancerNames=part).get("TagDescriptions", ()):
                if tags_of(each).get(scene.cluster_tag) == "owned":
                    name = str(each["LoadBalancerName"])
                    link = console(scene, _BALANCERS, name)
                    found.append(_leftover(self.kind, name, f"tag {scene.cluster_tag}", link, ours=_is_ours(scene, each)))
        return found

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it; its interfaces follow."""
        scene.clients.delete("elb", "delete_load_balancer", LoadBalancerName=leftover.id)


class LoadBalancers(LeftoverKind):
    """Network and application load balancers of Services."""

    kind = "LoadBalancer"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those with a tag of the cluster."""
        arns = [str(each["LoadBalancerArn"]) for each in scene.clients.listed("elbv2", "describe_load_balancers", "LoadBalancers")]
        return [
            _leftover(self.kind, arn, evidence, console(scene, _BALANCERS, arn.split("/")[-2]), ours=ours)
            for arn, evidence, ours in _of_cluster(scene, arns)
        ]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it; its interfaces follow."""
        scene.clients.delete("elbv2", "delete_load_balancer", LoadBalancerArn=leftover.id)


class TargetGroups(LeftoverKind):
    """Where such load balancers send requests."""

    kind = "TargetGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those with a tag of the cluster."""
        listed = scene.clients.listed("elbv2", "describe_target_groups", "TargetGroups")
        used = {str(each["TargetGroupArn"]): bool(each.get("LoadBalancerArns")) for each in listed}
        # One that no load balancer has is of no use to users either.
        return [_leftover(self.kind, arn, evidence, ours=ours or not used[arn]) for arn, evidence, ours in _of_cluster(scene, list(used))]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it. Raises Dependency while a load balancer has it."""
        scene.clients.delete("elbv2", "delete_target_group", TargetGroupArn=leftover.id)


class PodInterfaces(LeftoverKind):
    """Interfaces that the network plug-in made for pods, of nodes that ended without a farewell."""

    kind = "NetworkInterface"

    def __init__(self, unused_since: dict[str, float]) -> None:
        """Remember in `unused_since` when each was first seen unused, by its id."""
        self._unused_since = unused_since

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those of the cluster that no node uses."""
        if not scene.vpc:
            return []
        filters = where(**{"vpc-id": scene.vpc, "status": "available", "tag:cluster.k8s.amazonaws.com/name": scene.cluster})
        listed = scene.clients.listed("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters)
        ids = [str(each["NetworkInterfaceId"]) for each in listed if str(each.get("Description", "")).startswith("aws-K8S-")]
        now = scene.clients.seconds()
        since = {each: self._unused_since.get(each, now) for each in ids}
        self._unused_since.clear()
        self._unused_since.update(since)
        evidence = "tag cluster.k8s.amazonaws.com/name, described as aws-K8S"
        return [_leftover(self.kind, each, evidence, console(scene, _INTERFACE, each)) for each in ids]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it. Raises Dependency until it was unused for two minutes."""
        unused = scene.clients.seconds() - self._unused_since.get(leftover.id, scene.clients.seconds())
        if unused < AVAILABLE_SECONDS:
            raise Dependency(f"interface {leftover.id} is unused for {unused:.0f} s; it is deleted after {AVAILABLE_SECONDS:.0f} s")
        scene.clients.delete("ec2", "delete_network_interface", NetworkInterfaceId=leftover.id)


class MountTargetInterfaces(LeftoverKind):
    """Interfaces of mount targets. EFS deletes them."""

    kind = "MountTargetInterface"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those in the VPC."""
        if not scene.vpc:
            return []
        filters = where(**{"vpc-id": scene.vpc, "description": "EFS mount target*"})
        listed = list(scene.clients.listed("ec2", "describe_network_interfaces", "NetworkInterfaces", Filters=filters))
        systems = self._systems(scene) if listed else set()
        return [self._found(scene, each, systems) for each in listed]

    def _systems(self, scene: Scene) -> set[str]:
        """Give the ids of our file systems, also of one that is gone, if it is known."""
        tagged = (
            str(each["FileSystemId"])
            for each in scene.clients.listed("efs", "describe_file_systems", "FileSystems")
            if tags_of(each).get(labels.CLOUD_OWNER) == scene.owner.digits
        )
        return {*tagged, scene.known.get(FILE_SYSTEM, {}).get("id", "")} - {""}

    def _found(self, scene: Scene, item: Item, systems: set[str]) -> Leftover:
        description = str(item.get("Description", ""))
        evidence = f"in VPC {scene.vpc}, described as {description}"
        return _leftover(self.kind, str(item["NetworkInterfaceId"]), evidence, ours=not systems.isdisjoint(description.split()))

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Wait for EFS: raises Dependency."""
        del scene
        raise Dependency(f"interface {leftover.id} is of a mount target, and goes with it")


class BalancerGroups(LeftoverKind):
    """Security groups of load balancers."""

    kind = "LoadBalancerSecurityGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those with the tag of the cluster and a name that Kubernetes gives."""
        if not scene.vpc:
            return []
        filters = where(**{"vpc-id": scene.vpc, f"tag:{scene.cluster_tag}": "owned"})
        listed = scene.clients.listed("ec2", "describe_security_groups", "SecurityGroups", Filters=filters)
        ids = [str(each["GroupId"]) for each in listed if str(each["GroupName"]).startswith(("k8s-elb-", "k8s-traffic-"))]
        kept = frozenset() if scene.emptied else _groups_of_users(scene)
        evidence = f"tag {scene.cluster_tag}"
        return [_leftover(self.kind, each, evidence, console(scene, _GROUP, each), ours=each not in kept) for each in ids]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it, after the rules of other groups that name it."""
        _delete_group(scene, leftover.id)


class ClusterGroups(LeftoverKind):
    """The security group that EKS makes for a cluster, and cannot delete while an interface has it."""

    kind = "ClusterSecurityGroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List it once its cluster is gone."""
        filters = where(**{"tag:aws:eks:cluster-name": scene.cluster})
        listed = list(scene.clients.listed("ec2", "describe_security_groups", "SecurityGroups", Filters=filters))
        if not listed or scene.clients.read("eks", "describe_cluster", name=scene.cluster):
            return []
        ids = [str(each["GroupId"]) for each in listed if not scene.vpc or each.get("VpcId") == scene.vpc]
        return [_leftover(self.kind, each, "tag aws:eks:cluster-name", console(scene, _GROUP, each)) for each in ids]

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete it, after the rules of other groups that name it."""
        _delete_group(scene, leftover.id)


class Volumes(LeftoverKind):
    """Volumes of claims."""

    kind = "Volume"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List those that a claim of the cluster was for. Only those of caches are ours: users may keep theirs on purpose."""
        filters = where(**{f"tag:{scene.cluster_tag}": "owned", "tag-key": _CLAIM_TAG})
        found = []
        for each in scene.clients.listed("ec2", "describe_volumes", "Volumes", Filters=filters):
            identity, claim = str(each["VolumeId"]), tags_of(each).get(_CLAIM_TAG, "")
            evidence = f"tags {scene.cluster_tag} and {_CLAIM_TAG}={claim}"
            found.append(_leftover(self.kind, identity, evidence, console(scene, _VOLUME, identity), ours=is_our_claim(claim)))
        return found

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete that of a cache with what is stored. Raises Dependency while a machine has it."""
        scene.clients.delete("ec2", "delete_volume", VolumeId=leftover.id)


def _leftover(kind: str, identity: str, evidence: str, link: str = "", *, ours: bool = True) -> Leftover:
    text = evidence if ours else f"{evidence}, and of users"
    return Leftover(kind=kind, id=identity, evidence=text, ours=ours, link=link)


def _is_ours(scene: Scene, item: Item) -> bool:
    """Whether the load balancer with these tags may be deleted: it is that of our Gateway, or users had none any more."""
    tags = tags_of(item)
    return scene.emptied or any(is_our_service(tags.get(tag, "")) for tag in _SERVICE_TAGS)


def _groups_of_users(scene: Scene) -> frozenset[str]:
    """Give the security groups of the load balancers that are left to users."""
    left = {
        *(each.id for each in ClassicLoadBalancers().find(scene) if not each.ours),
        *(each.id for each in LoadBalancers().find(scene) if not each.ours),
    }
    found: set[str] = set()
    for service, result, id_field in (
        ("elb", "LoadBalancerDescriptions", "LoadBalancerName"),
        ("elbv2", "LoadBalancers", "LoadBalancerArn"),
    ):
        for each in scene.clients.listed(service, "describe_load_balancers", result) if left else ():
            if each[id_field] in left:
                found.update(map(str, each.get("SecurityGroups") or ()))
    return frozenset(found)


def _parts(items: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(items), _TAGS_AT_ONCE):
        yield list(items[start : start + _TAGS_AT_ONCE])


def _of_cluster(scene: Scene, arns: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Give those with a tag of the cluster, of Kubernetes or its load balancer controller: with that tag, and whether they are ours."""
    wanted = {scene.cluster_tag: "owned", "elbv2.k8s.aws/cluster": scene.cluster}
    for part in _parts(arns):
        for each in scene.clients.read("elbv2", "describe_tags", ResourceArns=part).get("TagDescriptions", ()):
            for tag, value in wanted.items():
                if tags_of(each).get(tag) == value:
                    yield str(each["ResourceArn"]), f"tag {tag}", _is_ours(scene, each)
                    break


def _delete_group(scene: Scene, group: str) -> None:
    """Delete a security group. EC2 refuses that while a rule of another group names it, and two groups may name each other."""
    for filter_name, at, revoke in (
        ("ip-permission.group-id", "IpPermissions", "revoke_security_group_ingress"),
        ("egress.ip-permission.group-id", "IpPermissionsEgress", "revoke_security_group_egress"),
    ):
        for other in list(scene.clients.listed("ec2", "describe_security_groups", "SecurityGroups", Filters=where(**{filter_name: group}))):
            if rules := [_only(rule, group) for rule in other.get(at, ()) if _names(rule, group)]:
                scene.clients.delete("ec2", revoke, GroupId=other["GroupId"], IpPermissions=rules)
    scene.clients.delete("ec2", "delete_security_group", GroupId=group)


def _names(rule: Item, group: str) -> bool:
    return any(pair.get("GroupId") == group for pair in rule.get("UserIdGroupPairs", ()))


def _only(rule: Item, group: str) -> dict[str, object]:
    """Give the part of a rule that names the group: its other sources stay."""
    ports = {at: rule[at] for at in ("IpProtocol", "FromPort", "ToPort") if rule.get(at) is not None}
    return {**ports, "UserIdGroupPairs": [{"GroupId": group}]}
