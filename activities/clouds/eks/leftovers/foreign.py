"""Objects without the mark of the cluster in its VPC.

They are listed, because they block the deletion of the VPC, but never deleted.
"""

from collections.abc import Callable, Iterator

from activities.clouds.eks.handlers.base import Item, tags_of
from activities.clouds.eks.leftovers.kinds import Scene, console, where
from activities.clouds.eks.leftovers.marked import unmarked
from activities.clouds.eks.marks import MarkedObject
from api_types import labels
from api_types.messages.clouds import Leftover

_ROWS: tuple[tuple[str, str, str, str, str, Callable[[Item], bool]], ...] = (
    (
        "NatGateway",
        "describe_nat_gateways",
        "NatGateways",
        "NatGatewayId",
        "Filter",
        lambda item: item.get("State") != "deleted",
    ),
    ("Subnet", "describe_subnets", "Subnets", "SubnetId", "Filters", lambda _: True),
    (
        "RouteTable",
        "describe_route_tables",
        "RouteTables",
        "RouteTableId",
        "Filters",
        # The main table is deleted with its VPC.
        lambda item: not any(each.get("Main") for each in item.get("Associations", ())),
    ),
    (
        "SecurityGroup",
        "describe_security_groups",
        "SecurityGroups",
        "GroupId",
        "Filters",
        lambda item: item.get("GroupName") != "default",
    ),
    (
        "NetworkInterface",
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "Filters",
        # Interfaces of AWS's services and of machines are deleted with their owner.
        lambda item: (
            not item.get("RequesterManaged")
            and not item.get("Attachment", {}).get("InstanceId")
        ),
    ),
    (
        "VpcEndpoint",
        "describe_vpc_endpoints",
        "VpcEndpoints",
        "VpcEndpointId",
        "Filters",
        lambda item: item.get("State") != "deleted",
    ),
)
_INSTANCE = "ec2/home?region={region}#InstanceDetails:instanceId={id}"


def foreign(scene: Scene, explained: frozenset[str]) -> Iterator[Leftover]:
    """List the objects in the VPC that neither Modelplane nor the cluster created.

    A known object without tags is not of others: it is `unmarked`. `explained` are the
    ids of known leftovers.
    """
    if not scene.vpc:
        return
    known = {
        identity: key
        for key, facts in scene.known.items()
        for identity in facts.values()
    }
    inside = where(**{"vpc-id": scene.vpc})
    reservations = scene.clients.listed(
        "ec2", "describe_instances", "Reservations", Filters=inside
    )
    machines = list[Item]()
    for reservation in reservations:
        machines += [
            item
            for item in reservation.get("Instances", ())
            if item.get("State", {}).get("Name") != "terminated"
        ]
    # Nodes are deleted with their cluster.
    gone = bool(machines) and not scene.clients.read(
        "eks", "describe_cluster", name=scene.cluster
    )
    for item in machines:
        identity, is_node = str(item["InstanceId"]), _of_cluster(item, scene)
        if gone or not is_node:
            evidence = ""
            if is_node:
                evidence = f"in VPC {scene.vpc}, a node of this deleted cluster"
            yield _foreign(
                scene,
                "Instance",
                identity,
                console(scene, _INSTANCE, identity),
                evidence,
            )
    for kind, listing, result, id_field, filters_field, counts in _ROWS:
        for item in scene.clients.listed(
            "ec2", listing, result, **{filters_field: inside}
        ):
            identity = str(item[id_field])
            if not counts(item) or identity in explained or _of_cluster(item, scene):
                continue
            yield (
                _known(scene, kind, item, identity, known[identity])
                if identity in known
                else _foreign(scene, kind, identity)
            )
    for name in scene.clients.listed(
        "eks", "list_nodegroups", "nodegroups", clusterName=scene.cluster
    ):
        is_explained = str(name) in explained or str(name) in known
        if not is_explained and not _is_ours(scene, str(name)):
            evidence = f"in cluster {scene.cluster}, and not of Modelplane"
            found = _foreign(scene, "Nodegroup", str(name), evidence=evidence)
            yield found.model_copy(update={"key": f"pool/{name}"})
    for item in scene.clients.listed(
        "ec2",
        "describe_internet_gateways",
        "InternetGateways",
        Filters=where(**{"attachment.vpc-id": scene.vpc}),
    ):
        identity, kind = str(item["InternetGatewayId"]), "InternetGateway"
        if not _of_cluster(item, scene):
            yield (
                _known(scene, kind, item, identity, known[identity])
                if identity in known
                else _foreign(scene, kind, identity)
            )
    for service, result, vpc_field, id_field in (
        ("elb", "LoadBalancerDescriptions", "VPCId", "LoadBalancerName"),
        ("elbv2", "LoadBalancers", "VpcId", "LoadBalancerArn"),
    ):
        for item in scene.clients.listed(service, "describe_load_balancers", result):
            if (
                item.get(vpc_field) == scene.vpc
                and str(item[id_field]) not in explained
            ):
                yield _foreign(scene, "LoadBalancer", str(item[id_field]))


def _is_ours(scene: Scene, group: str) -> bool:
    """Return True if a node group has the tag of the owner, or is gone."""
    names = {"clusterName": scene.cluster, "nodegroupName": group}
    answer = scene.clients.read("eks", "describe_nodegroup", **names)
    found = answer.get("nodegroup")
    return not found or tags_of(found, "tags").get(labels.CLOUD_OWNER) == (
        scene.owner.digits
    )


def _of_cluster(item: Item, scene: Scene) -> bool:
    """Return True if the tags of an object name the cluster.

    Modelplane, EKS and the network plug-in have different tags.
    """
    tags = tags_of(item, "TagSet") or tags_of(item)
    wanted = {
        labels.CLOUD_OWNER: scene.owner.digits,
        "eks:cluster-name": scene.cluster,
        "aws:eks:cluster-name": scene.cluster,
        "cluster.k8s.amazonaws.com/name": scene.cluster,
        scene.cluster_tag: "owned",
    }
    return any(tags.get(tag) == value for tag, value in wanted.items())


def _known(scene: Scene, kind: str, item: Item, identity: str, key: str) -> Leftover:
    marked = MarkedObject("ec2", (identity,), scene.clients.region)
    evidence = "recorded for this cluster, without tags"
    found = Leftover(kind=kind, id=identity, evidence=evidence, ours=True, key=key)
    return unmarked(scene, found, tags_of(item), marked)


def _foreign(
    scene: Scene, kind: str, identity: str, link: str = "", evidence: str = ""
) -> Leftover:
    return Leftover(
        kind=kind,
        id=identity,
        evidence=evidence or f"in VPC {scene.vpc}, and not of this cluster",
        ours=False,
        link=link,
    )
