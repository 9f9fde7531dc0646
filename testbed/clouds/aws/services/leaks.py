"""What a cluster leaves behind in its VPC, and how it goes away again."""

from collections.abc import Callable, Mapping
from typing import Any

from testbed.clouds.aws.cloud import Cloud
from testbed.clouds.aws.eks_store import Cluster
from testbed.clouds.aws.faults import Kind, Leftover
from testbed.clouds.aws.services.network import add_interface, interfaces, remove_interface, subnet
from testbed.clouds.aws.wire import Answer, Request

OWNED = "owned"


def leak(cloud: Cloud, request: Request) -> None:
    """Let the leftovers appear that faults plan for this call, in the VPC of the cluster that it names."""
    cluster = cloud.eks.clusters.get(request.text("clusterName") or request.text("name"))
    while cluster is not None and (fault := cloud.take(Kind.LEAK, request)) is not None:
        leave(cloud, cluster, fault.leftover)


def leave(cloud: Cloud, cluster: Cluster, leftover: Leftover) -> str:
    """Leave something behind; gives its id or name."""
    where = cluster.body["resourcesVpcConfig"]["subnetIds"][0]
    if leftover == Leftover.INTERFACE:
        tags = {"cluster.k8s.amazonaws.com/name": cluster.name, "node.k8s.amazonaws.com/instance_id": f"i-{cloud.eks.digits()}"}
        return add_interface(cloud, where, [cluster.group], f"aws-K8S-i-{cloud.eks.digits()}", tags)
    group = _group(cloud, cluster)
    return group if leftover == Leftover.GROUP else _load_balancer(cloud, cluster, group, where)


def _group(cloud: Cloud, cluster: Cluster) -> str:
    """Make the group of a load balancer. Its rules and those of the group of the cluster name each other."""
    vpc = cluster.body["resourcesVpcConfig"]["vpcId"]
    tags = {f"kubernetes.io/cluster/{cluster.name}": OWNED}
    name = f"k8s-elb-{cloud.eks.digits(32)}"
    group = cloud.ec2.create_security_group(name, "Security group for Kubernetes ELB", vpc, tags=tags)
    pair = {"GroupId": group.id, "UserId": cloud.account.number}
    cloud.ec2.authorize_security_group_ingress(cluster.group, "-1", None, None, [], source_groups=[pair], vpc_id=vpc)
    # So EKS cannot remove the group of the cluster either.
    back = {"GroupId": cluster.group, "UserId": cloud.account.number}
    cloud.ec2.authorize_security_group_egress(group.id, "-1", None, None, [], source_groups=[back], vpc_id=vpc)
    return str(group.id)


def _load_balancer(cloud: Cloud, cluster: Cluster, group: str, where: str) -> str:
    name = cloud.eks.digits(32)
    zone = subnet(cloud, where)
    port = {"Protocol": "TCP", "LoadBalancerPort": 80, "InstanceProtocol": "TCP", "InstancePort": 30080}
    made = cloud.elb.create_load_balancer(
        name=name, zones=[zone.availability_zone] if zone else [], ports=[port], subnets=[where], security_groups=[group]
    )
    made.add_tag(f"kubernetes.io/cluster/{cluster.name}", OWNED)
    made.add_tag("kubernetes.io/service-name", "envoy-gateway-system/envoy-modelplane-system-inference-gateway-0a1b2c3d")
    cloud.ec2.enis[add_interface(cloud, where, [group], f"ELB {name}")].status = "in-use"
    return name


def _deleted(cloud: Cloud, request: Request, _answer: Answer) -> None:
    """Let the interfaces of a load balancer that was deleted go a while later, as AWS does."""
    name = request.text("LoadBalancerName") or request.text("LoadBalancerArn").partition(":loadbalancer/")[2]
    for each in interfaces(cloud):
        if name and each.description == f"ELB {name}":
            cloud.after_reads(each.id, cloud.delays.delete, _remover(cloud, each.id))


def _remover(cloud: Cloud, interface: str) -> Callable[[], None]:
    return lambda: remove_interface(cloud, interface)


def _read_interfaces(cloud: Cloud, _request: Request) -> None:
    cloud.count_reads([each for each in cloud.ec2.enis if each in cloud.steps])


BEFORE: Mapping[str, Callable[[Cloud, Request], None]] = {"DescribeNetworkInterfaces": _read_interfaces}
AFTER: Mapping[str, Callable[[Cloud, Request, Answer], Any]] = {"DeleteLoadBalancer": _deleted}
