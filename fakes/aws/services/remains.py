"""All objects of an account, named so that tests can compare them."""

from collections.abc import Iterator
from typing import Any

from fakes.aws.cloud import AwsCloud
from fakes.aws.services.network import DELETED, groups


def everything(cloud: AwsCloud) -> set[str]:
    """Return all objects of the account as `service/kind/id`.

    They include those that every account has.
    """
    return {
        *_network(cloud),
        *_identities(cloud),
        *_storage(cloud),
        *(f"eks/{name}" for name, _ in cloud.eks.items()),
    }


def _network(cloud: AwsCloud) -> Iterator[str]:
    ec2 = cloud.ec2
    yield from (f"ec2/vpc/{each}" for each in ec2.vpcs)
    yield from (f"ec2/subnet/{each}" for zone in ec2.subnets.values() for each in zone)
    yield from (f"ec2/internet-gateway/{each}" for each in ec2.internet_gateways)
    yield from (f"ec2/address/{each.allocation_id}" for each in ec2.addresses)
    yield from (
        f"ec2/nat-gateway/{each.id}"
        for each in ec2.nat_gateways.values()
        if each.state not in (DELETED, "failed")
    )
    yield from (f"ec2/route-table/{each}" for each in ec2.route_tables)
    yield from (f"ec2/security-group/{each.id}" for each in groups(cloud))
    yield from (f"ec2/network-interface/{each}" for each in ec2.enis)
    yield from (f"ec2/vpc-endpoint/{each}" for each in ec2.vpc_end_points)
    yield from (f"ec2/launch-template/{each}" for each in ec2.launch_templates)
    yield from (f"ec2/volume/{each}" for each in ec2.volumes)
    yield from (
        f"ec2/instance/{each.id}"
        for each in ec2.all_instances()
        if each.state != "terminated"
    )
    yield from (f"autoscaling/group/{each}" for each in cloud.eks.left)
    yield from (f"elb/load-balancer/{each}" for each in cloud.elb.load_balancers)
    yield from (f"elbv2/load-balancer/{each}" for each in cloud.elbv2.load_balancers)


def _identities(cloud: AwsCloud) -> Iterator[str]:
    yield from (f"iam/role/{each.name}" for each in cloud.iam.roles.values())
    yield from (
        f"iam/policy/{each}"
        for each in cloud.iam.managed_policies
        if ":iam::aws:" not in each
    )
    yield from (
        f"iam/instance-profile/{each.name}"
        for each in cloud.iam.instance_profiles.values()
    )


def _storage(cloud: AwsCloud) -> Iterator[str]:
    efs: Any = cloud.efs
    yield from (f"efs/file-system/{each}" for each in efs.file_systems_by_id)
    yield from (f"efs/mount-target/{each}" for each in efs.mount_targets_by_id)
    yield from (f"efs/access-point/{each}" for each in efs.access_points)
