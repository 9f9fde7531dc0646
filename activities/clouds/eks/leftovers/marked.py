"""Objects that Modelplane created at AWS for a cluster, found by their marks.

They are not in the inventory, because it was lost or because they appeared after their
deletion.
"""

from collections.abc import Iterator, Mapping, Sequence

from activities.clouds.desired.graph import DesiredObject
from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.handlers.ec2 import (
    ElasticIpHandler,
    InternetGatewayHandler,
    NatGatewayHandler,
    RouteTableHandler,
    TaggedHandler,
    VpcHandler,
    is_marked,
    places_of,
)
from activities.clouds.eks.handlers.security_groups import SecurityGroupHandler
from activities.clouds.eks.handlers.storage import creation_tokens, was_created
from activities.clouds.eks.handlers.subnets import SubnetsHandler
from activities.clouds.eks.handlers.table import HANDLERS
from activities.clouds.eks.leftovers.kinds import LeftoverKind, Scene, console, where
from activities.clouds.eks.marks import MarkedObject, lacks, missing_tags
from activities.clouds.eks.wanted.identities import (
    AUTOSCALER_POLICY,
    AUTOSCALER_ROLE,
    CLUSTER_ROLE,
    EFS_ROLE,
    NODE_ROLE,
)
from activities.clouds.eks.wanted.partitions import partition_of
from activities.clouds.eks.wanted.storage import FILE_SYSTEM, MOUNTS
from activities.clouds.lifecycle.handler import CloudObservation, ObjectWork, State
from activities.clouds.lifecycle.tokens import token_of
from api_types import labels
from api_types.errors import Busy, Dependency
from api_types.messages.clouds import Leftover

_BY_TAG: tuple[tuple[str, type[TaggedHandler], str], ...] = (
    (
        "NatGateway",
        NatGatewayHandler,
        "vpcconsole/home?region={region}#NatGatewayDetails:natGatewayId={id}",
    ),
    (
        "ElasticIP",
        ElasticIpHandler,
        "ec2/home?region={region}#ElasticIpDetails:AllocationId={id}",
    ),
    (
        "RouteTable",
        RouteTableHandler,
        "vpcconsole/home?region={region}#RouteTableDetails:RouteTableId={id}",
    ),
    (
        "InternetGateway",
        InternetGatewayHandler,
        "vpcconsole/home?region={region}#InternetGateway:internetGatewayId={id}",
    ),
    (
        "Subnets",
        SubnetsHandler,
        "vpcconsole/home?region={region}#SubnetDetails:subnetId={id}",
    ),
    (
        "SecurityGroup",
        SecurityGroupHandler,
        "ec2/home?region={region}#SecurityGroup:groupId={id}",
    ),
    ("VPC", VpcHandler, "vpcconsole/home?region={region}#VpcDetails:VpcId={id}"),
)


class _Marked(LeftoverKind):
    """A kind whose objects carry Modelplane's marks. Its handler deletes them."""

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the object. Raises Dependency while it is in use or not gone yet."""
        handler = HANDLERS[leftover.kind](scene.clients, scene.account)
        name = scene.cluster if leftover.kind == "FileSystem" else leftover.id
        bare = DesiredObject(leftover.key, leftover.kind, name, (), (), "")
        wanted = ObjectWork(
            scene.owner, bare, {}, token_of(scene.owner, leftover.key, "", 0)
        )
        try:
            handler.delete(
                wanted, CloudObservation(State.READY, leftover.id, {"id": leftover.id})
            )
        except Busy as error:
            raise Dependency(error.message) from None
        if any(
            (each.kind, each.id) == (leftover.kind, leftover.id)
            for each in self.find(scene)
        ):
            raise Dependency(f"{leftover.kind} {leftover.id} is being deleted")


class TaggedObjects(_Marked):
    """A kind of EC2 that is found by tags."""

    def __init__(self, kind: str, handler: type[TaggedHandler], path: str) -> None:
        self.kind = kind
        self._handler = handler
        self._path = path

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the objects with the owner's tag.

        An object that lacks other tags, or is in another VPC, does not belong to the
        cluster.
        """
        handler = self._handler(scene.clients, scene.account)
        networks = (
            {scene.vpc, *handler.called(scene.owner)}
            if isinstance(handler, VpcHandler)
            else {scene.vpc}
        )
        found = []
        for item in handler.listed(**{f"tag:{labels.CLOUD_OWNER}": scene.owner.digits}):
            identity, key = (
                str(item[self._handler.id_field]),
                tags_of(item).get(labels.CLOUD_OBJECT, ""),
            )
            link = console(scene, self._path, identity)
            ours = is_marked(item, scene.owner) and places_of(item) <= networks
            found.append(
                _marked(self.kind, identity, key, link)
                if ours
                else unproven(self.kind, identity, link)
            )
        return found


class MarkedClusters(_Marked):
    """The control plane, with everything that EKS deletes with it."""

    kind = "Cluster"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """Find the control plane by name."""
        cluster = scene.clients.read("eks", "describe_cluster", name=scene.cluster).get(
            "cluster"
        )
        if not cluster:
            return []
        path = "eks/home?region={region}#/clusters/{id}"
        link = console(scene, path, scene.cluster)
        found = _marked(self.kind, scene.cluster, "cluster", link)
        marked = MarkedObject("eks", (str(cluster["arn"]),), scene.clients.region)
        return _named(scene, found, tags_of(cluster, "tags"), marked)


class NodeGroups(_Marked):
    """Node groups of pools that were removed from the spec, or whose class is gone."""

    kind = "Nodegroup"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the node groups of the control plane that have the owner's tag.

        A group gets the key of a pool only if it has the pool's name.
        """
        link = f"eks/home?region={{region}}#/clusters/{scene.cluster}/nodegroups/{{id}}"
        return [
            _marked(
                self.kind,
                name,
                _key_if(tags_of(group, "tags"), f"pool/{name}"),
                console(scene, link, name),
            )
            for name, group in _node_groups(scene)
            if tags_of(group, "tags").get(labels.CLOUD_OWNER) == scene.owner.digits
        ]


class LaunchTemplates(_Marked):
    kind = "LaunchTemplate"

    def remove(self, scene: Scene, leftover: Leftover) -> None:
        """Delete the template.

        Raises Dependency while a node group uses it: EKS reads it until the machines of
        the group are gone.
        """
        for name, group in _node_groups(scene):
            if group.get("launchTemplate", {}).get("id") == leftover.id:
                raise Dependency(
                    f"launch template {leftover.id} is used by node group {name}"
                )
        super().remove(scene, leftover)

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the templates with the owner's tag.

        EKS's copy has the same tags and another name. It does not belong to Modelplane.
        """
        filters = where(**{f"tag:{labels.CLOUD_OWNER}": scene.owner.digits})
        found = []
        for each in scene.clients.listed(
            "ec2", "describe_launch_templates", "LaunchTemplates", Filters=filters
        ):
            identity, name = (
                str(each["LaunchTemplateId"]),
                str(each["LaunchTemplateName"]),
            )
            pool = name.removeprefix(f"{scene.owner.base}-lt-")
            key = _key_if(tags_of(each), f"lt/{pool}")
            found.append(
                _marked(self.kind, identity, key)
                if key
                else unproven(self.kind, identity)
            )
        return found


class FileSystems(_Marked):
    """File systems, and their mount targets before them."""

    kind = "FileSystem"

    def find(self, scene: Scene) -> Sequence[Leftover]:
        """List the file systems with the owner's tag.

        A file system that Modelplane did not create may have the tags from a restore or
        from other users. It does not belong to the cluster.
        """
        found = list[Leftover]()
        tokens, known = (
            creation_tokens(scene.owner),
            scene.known.get(FILE_SYSTEM, {}).get("id", ""),
        )
        for each in scene.clients.listed("efs", "describe_file_systems", "FileSystems"):
            if each["LifeCycleState"] == "deleted":
                continue
            identity, tags = str(each["FileSystemId"]), tags_of(each)
            link = console(
                scene, "efs/home?region={region}#/file-systems/{id}", identity
            )
            is_marked_ours = tags.get(labels.CLOUD_OWNER) == scene.owner.digits
            if not was_created(each, known, tokens):
                if is_marked_ours:
                    found.append(unproven(self.kind, identity, link))
                continue
            if is_marked_ours and each.get("NumberOfMountTargets"):
                found.append(_marked("MountTargets", identity, MOUNTS, link))
            made = _marked(self.kind, identity, FILE_SYSTEM, link)
            marked = MarkedObject("efs", (identity,), scene.clients.region)
            found += _named(scene, made, tags, marked)
        return found


class MarkedIdentities(_Marked):
    """Roles and the policy, by their names."""

    kind = "Role"
    also = ("Policy",)

    def find(self, scene: Scene) -> Sequence[Leftover]:
        found = list[Leftover]()
        for key in (CLUSTER_ROLE, NODE_ROLE, EFS_ROLE, AUTOSCALER_ROLE):
            name = f"{scene.owner.base}-{key.partition('/')[2]}"
            role = scene.clients.read("iam", "get_role", RoleName=name).get("Role")
            if role:
                marked = MarkedObject("role", (name,), scene.clients.region)
                made = _marked(self.kind, name, key)
                found += _named(scene, made, tags_of(role), marked)
        name = f"{scene.owner.base}-autoscaler"
        partition = partition_of(scene.clients.region)
        arn = f"arn:{partition}:iam::{scene.account.project}:policy/{name}"
        policy = scene.clients.read("iam", "get_policy", PolicyArn=arn).get("Policy")
        if policy:
            marked = MarkedObject("policy", (arn,), scene.clients.region)
            made = _marked("Policy", name, AUTOSCALER_POLICY)
            found += _named(scene, made, tags_of(policy), marked)
        return found


def _node_groups(scene: Scene) -> Iterator[tuple[str, Item]]:
    """Yield the node groups of the control plane with their names."""
    for name in scene.clients.listed(
        "eks", "list_nodegroups", "nodegroups", clusterName=scene.cluster
    ):
        group = scene.clients.read(
            "eks",
            "describe_nodegroup",
            clusterName=scene.cluster,
            nodegroupName=str(name),
        ).get("nodegroup")
        if group:
            yield str(name), group


def _named(
    scene: Scene, found: Leftover, tags: Mapping[str, str], marked: MarkedObject
) -> list[Leftover]:
    """Return an object whose name proves that it was created for this cluster.

    Without an owner in its tags it is `unmarked`. An object of another owner is left out.
    """
    owner = tags.get(labels.CLOUD_OWNER, "")
    if owner == scene.owner.digits:
        return [found]
    if owner:
        return []
    evidence = {"evidence": "the name of this cluster, without tags"}
    return [unmarked(scene, found.model_copy(update=evidence), tags, marked)]


def unmarked(
    scene: Scene, found: Leftover, tags: Mapping[str, str], marked: MarkedObject
) -> Leftover:
    """Return a leftover with its missing tags and the command that restores them."""
    missing = missing_tags(tags, scene.owner, found.key)
    text = lacks(marked, missing, f"so {marked.they_are} not deleted")
    return found.model_copy(update={"unmarked": text})


def _key_if(tags: Mapping[str, str], key: str) -> str:
    """Return the key if the tags contain it, else "".

    An object with the key of another object must not be deleted by that object's
    handler.
    """
    return key if tags.get(labels.CLOUD_OBJECT) == key else ""


def unproven(kind: str, identity: str, link: str = "") -> Leftover:
    """Return an object with the owner's tag but without other evidence.

    It is listed but not deleted.
    """
    return Leftover(
        kind=kind,
        id=identity,
        evidence=f"tag {labels.CLOUD_OWNER} alone, and not created for this cluster",
        ours=False,
        blocks=False,
        link=link,
    )


def _marked(kind: str, identity: str, key: str, link: str = "") -> Leftover:
    return Leftover(
        kind=kind,
        id=identity,
        evidence=f"tag {labels.CLOUD_OWNER}",
        ours=True,
        key=key,
        link=link,
    )


MARKED: tuple[LeftoverKind, ...] = (
    NodeGroups(),
    MarkedClusters(),
    LaunchTemplates(),
    FileSystems(),
    *(TaggedObjects(*row) for row in _BY_TAG),
    MarkedIdentities(),
)
"""The kinds in an order in which they can be deleted."""
