"""Leftovers of a cluster in its VPC, and their removal."""

from collections.abc import Callable, Mapping
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.eks_store import EksClusterObject
from fakes.aws.faults import FaultKind, VpcLeftover
from fakes.aws.services.network import (
    add_interface,
    interfaces,
    remove_interface,
    subnet,
)
from fakes.aws.wire import AwsRequest, AwsResponse

OWNED = "owned"
_GATEWAY = "envoy-gateway-system/envoy-modelplane-system-inference-gateway-0a1b2c3d"


def leak(cloud: AwsCloud, request: AwsRequest) -> None:
    """Create the leftovers that faults plan for this call, in the VPC of its cluster."""
    cluster = cloud.eks.clusters.get(
        request.text("clusterName") or request.text("name")
    )
    while (
        cluster is not None
        and (fault := cloud.take(FaultKind.LEAK, request)) is not None
    ):
        leave(cloud, cluster, fault.leftover)


def leave(cloud: AwsCloud, cluster: EksClusterObject, leftover: VpcLeftover) -> str:
    """Create a leftover. Return its id or name."""
    where = cluster.body["resourcesVpcConfig"]["subnetIds"][0]
    if leftover == VpcLeftover.INTERFACE:
        tags = {
            "cluster.k8s.amazonaws.com/name": cluster.name,
            "node.k8s.amazonaws.com/instance_id": f"i-{cloud.eks.digits()}",
        }
        return add_interface(
            cloud, where, [cluster.group], f"aws-K8S-i-{cloud.eks.digits()}", tags
        )
    if leftover in (VpcLeftover.GUARD_DUTY, VpcLeftover.ENDPOINT):
        return _endpoint(cloud, cluster, leftover, where)
    group = _group(cloud, cluster)
    if leftover == VpcLeftover.GROUP:
        return group
    service = _GATEWAY if leftover == VpcLeftover.LOAD_BALANCER else "default/web"
    return _load_balancer(cloud, cluster, group, where, service)


def _endpoint(
    cloud: AwsCloud, cluster: EksClusterObject, leftover: VpcLeftover, where: str
) -> str:
    """Create an interface endpoint.

    The endpoint of GuardDuty has its own group. Both have the tag of GuardDuty.
    """
    vpc, region = cluster.body["resourcesVpcConfig"]["vpcId"], cloud.account.region
    service, tags, groups = f"com.amazonaws.{region}.ssm", dict[str, str](), list[str]()
    if leftover == VpcLeftover.GUARD_DUTY:
        service, tags = (
            f"com.amazonaws.{region}.guardduty-data",
            {"GuardDutyManaged": "true"},
        )
        name = f"GuardDutyManagedSecurityGroup-{vpc}"
        made = cloud.ec2.get_security_group_from_name(name, vpc) or (
            cloud.ec2.create_security_group(name, "GuardDuty", vpc, tags=tags)
        )
        groups = [str(made.id)]
    interface = add_interface(cloud, where, groups, "VPC Endpoint Interface")
    cloud.ec2.enis[interface].status = "in-use"
    cloud.ec2.enis[interface].requester_managed = True
    endpoint = cloud.ec2.create_vpc_endpoint(
        vpc, service, "Interface", None, [], [], security_group_ids=groups, tags=tags
    )
    endpoint.network_interface_ids = [interface]
    cloud.ec2.create_tags([endpoint.id], tags)
    return str(endpoint.id)


def remove_of_others(cloud: AwsCloud) -> None:
    """Delete the endpoints and load balancers of others, as their owners would."""
    for endpoint in list(cloud.ec2.vpc_end_points.values()):
        for interface in endpoint.network_interface_ids or ():
            remove_interface(cloud, interface)
        cloud.ec2.vpc_end_points.pop(endpoint.id)
    for name in list(cloud.elb.load_balancers):
        cloud.elb.delete_load_balancer(name)
        for each in interfaces(cloud):
            if each.description == f"ELB {name}":
                remove_interface(cloud, each.id)


def _delete_endpoints(cloud: AwsCloud, request: AwsRequest) -> Mapping[str, Any]:
    """Delete endpoints. Their interfaces are gone a while later, as at AWS."""
    for endpoint_id in request.parameters["VpcEndpointIds"]:
        endpoint = cloud.ec2.vpc_end_points.get(endpoint_id)
        if endpoint is None or endpoint.state == "deleting":
            continue
        endpoint.state = "deleting"
        cloud.after_reads(endpoint_id, cloud.delays.delete, _ender(cloud, endpoint))
    return {"Unsuccessful": []}


def _ender(cloud: AwsCloud, endpoint: Any) -> Callable[[], None]:
    def end() -> None:
        for interface in endpoint.network_interface_ids or ():
            remove_interface(cloud, interface)
        cloud.ec2.vpc_end_points.pop(endpoint.id, None)

    return end


def _read_endpoints(cloud: AwsCloud, _request: AwsRequest) -> None:
    cloud.count_reads(
        [each for each in cloud.ec2.vpc_end_points if each in cloud.steps]
    )


def _group(cloud: AwsCloud, cluster: EksClusterObject) -> str:
    """Create the group of a load balancer.

    Its rules and those of the cluster's group name each other.
    """
    vpc = cluster.body["resourcesVpcConfig"]["vpcId"]
    tags = {f"kubernetes.io/cluster/{cluster.name}": OWNED}
    name = f"k8s-elb-{cloud.eks.digits(32)}"
    group = cloud.ec2.create_security_group(
        name, "Security group for Kubernetes ELB", vpc, tags=tags
    )
    pair = {"GroupId": group.id, "UserId": cloud.account.number}
    cloud.ec2.authorize_security_group_ingress(
        cluster.group, "-1", None, None, [], source_groups=[pair], vpc_id=vpc
    )
    # The rule also stops EKS from removing the group of the cluster.
    back = {"GroupId": cluster.group, "UserId": cloud.account.number}
    cloud.ec2.authorize_security_group_egress(
        group.id, "-1", None, None, [], source_groups=[back], vpc_id=vpc
    )
    return str(group.id)


def _load_balancer(
    cloud: AwsCloud, cluster: EksClusterObject, group: str, where: str, service: str
) -> str:
    name = cloud.eks.digits(32)
    zone = subnet(cloud, where)
    port = {
        "Protocol": "TCP",
        "LoadBalancerPort": 80,
        "InstanceProtocol": "TCP",
        "InstancePort": 30080,
    }
    made = cloud.elb.create_load_balancer(
        name=name,
        zones=[zone.availability_zone] if zone else [],
        ports=[port],
        subnets=[where],
        security_groups=[group],
    )
    made.add_tag(f"kubernetes.io/cluster/{cluster.name}", OWNED)
    made.add_tag("kubernetes.io/service-name", service)
    cloud.ec2.enis[
        add_interface(cloud, where, [group], f"ELB {name}")
    ].status = "in-use"
    return name


def _deleted(cloud: AwsCloud, request: AwsRequest, _answer: AwsResponse) -> None:
    """Remove the interfaces of a deleted load balancer a while later, as AWS does."""
    name = (
        request.text("LoadBalancerName")
        or request.text("LoadBalancerArn").partition(":loadbalancer/")[2]
    )
    for each in interfaces(cloud):
        if name and each.description == f"ELB {name}":
            cloud.after_reads(each.id, cloud.delays.delete, _remover(cloud, each.id))


def _remover(cloud: AwsCloud, interface: str) -> Callable[[], None]:
    return lambda: remove_interface(cloud, interface)


def _read_interfaces(cloud: AwsCloud, _request: AwsRequest) -> None:
    cloud.count_reads([each for each in cloud.ec2.enis if each in cloud.steps])


BEFORE: Mapping[str, Callable[[AwsCloud, AwsRequest], None]] = {
    "DescribeNetworkInterfaces": _read_interfaces,
    "DescribeVpcEndpoints": _read_endpoints,
}
OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    "DeleteVpcEndpoints": _delete_endpoints
}
AFTER: Mapping[str, Callable[[AwsCloud, AwsRequest, AwsResponse], Any]] = {
    "DeleteLoadBalancer": _deleted
}
