"""Troubles of a real account: zones without machines, GuardDuty, and left interfaces."""

from datetime import timedelta

import pytest

from activities.clouds.desired.owner import owner_at
from activities.clouds.eks.leftovers.kinds import Scene
from activities.clouds.eks.leftovers.made_by_services import GuardDutyEndpoints
from activities.clouds.lifecycle.handler import CloudObservation, State
from api_types import labels
from api_types.clock import utc_now
from api_types.errors import CapacityUnavailable, Dependency
from api_types.messages.clouds import Leftover
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind, VpcLeftover
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.test_cases import TO_CLUSTER, TO_NODES, calls, made
from tests.activities.clouds.eks.test_deletion import swept
from tests.activities.clouds.eks.world import World

pytestmark = pytest.mark.slow
ZONES = ["us-east-2a", "us-east-2b"]


async def broken(world: World, key: str) -> CloudObservation:
    """Create a pool that ends broken, and return its observation."""
    (pool,) = [each for each in world.plan(two_zones()).objects if each.key == key]
    handler = world.provider.handler(world.account, pool.kind)
    assert handler is not None
    handler.create(world.wanted(pool))
    found = world.look(pool)
    while found.state is not State.BROKEN:
        found = world.look(pool)
    return found


def two_zones() -> dict[str, object]:
    return an_eks_pool(zones=ZONES, nodeCount=2)


async def test_a_zone_without_machines_is_left_out_by_the_next_group(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(two_zones())
    objects = await made(world, desired, *TO_NODES)
    pool = objects["pool/gpu"]
    of_zone = {
        world.known["net/subnets"][f"private-{zone}"]: zone[-1] for zone in ZONES
    }
    for zone in ZONES:
        aws.fault(AwsFault(FaultKind.STOCK_OUT, "CreateNodegroup", zone=zone))
        found = await broken(world, "pool/gpu")
        assert found.cause is CapacityUnavailable
        assert f"Availability Zone you requested ({zone})" in found.reason
        await world.delete(pool)
        world.epochs["pool/gpu"] = world.epochs.get("pool/gpu", 0) + 1
    found = await world.ensure(pool)
    assert found.reason == "without us-east-2b, which had no machines"
    assert world.look(pool).state is State.READY
    used = [
        "".join(sorted(of_zone[subnet] for subnet in each["subnets"]))
        for each in calls(aws, "CreateNodegroup")
    ]
    assert used == ["ab", "b", "a"]


async def test_a_pool_in_one_zone_waits_for_this_zone(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(an_eks_pool())
    objects = await made(world, desired, *TO_NODES)
    aws.fault(AwsFault(FaultKind.STOCK_OUT, "CreateNodegroup"))
    await world.ensure(objects["pool/gpu"])
    first, second = (each["subnets"] for each in calls(aws, "CreateNodegroup"))
    assert first == second


async def test_the_endpoint_and_group_of_guardduty_are_deleted_after_the_cluster(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), *TO_CLUSTER)
    name = world.provider.cloud_cluster(world.account)
    endpoint = aws.leave(name, VpcLeftover.GUARD_DUTY)
    ours = [each for each in world.provider.audit(world.audit()) if each.ours]
    assert not {each.kind for each in ours} & {
        "GuardDutyEndpoint",
        "GuardDutySecurityGroup",
    }, "nodes may report to GuardDuty while the cluster exists"
    await world.delete(objects["cluster"])
    assert [each for each in swept(world) if each.kind.startswith("GuardDuty")] == []
    assert [each for each in aws.remains() if "vpc-endpoint" in each] == []
    assert guard_duty_groups(aws) == []
    assert f"endpoint {endpoint} of GuardDuty is being deleted" in world.reports


def guard_duty_groups(aws: FakeAws) -> list[str]:
    groups = aws.client("ec2").describe_security_groups()["SecurityGroups"]
    return [each["GroupId"] for each in groups if "GuardDuty" in each["GroupName"]]


async def test_endpoints_and_groups_of_others_are_listed_and_stay(
    aws: FakeAws, world: World
) -> None:
    """Only the tag together with the service, or with the name of the group, is proof."""
    objects = await made(world, world.plan(), *TO_CLUSTER)
    name, ec2 = world.provider.cloud_cluster(world.account), aws.client("ec2")
    tagged = aws.leave(name, VpcLeftover.ENDPOINT)
    untagged = aws.leave(name, VpcLeftover.GUARD_DUTY)
    (untagged_group,) = guard_duty_groups(aws)
    tagged_group = ec2.create_security_group(
        GroupName="theirs", Description="x", VpcId=world.known["net/vpc"]["id"]
    )["GroupId"]
    tag = {"Key": "GuardDutyManaged", "Value": "true"}
    ec2.delete_tags(Resources=[untagged, untagged_group], Tags=[tag])
    ec2.create_tags(Resources=[tagged, tagged_group], Tags=[tag])
    await world.delete(objects["cluster"])
    left = {each.id: each.kind for each in swept(world)}
    assert [left[each] for each in (tagged, untagged)] == ["VpcEndpoint"] * 2
    assert [left[each] for each in (tagged_group, untagged_group)] == [
        "SecurityGroup"
    ] * 2


def test_an_endpoint_that_ec2_does_not_delete_keeps_the_reason_of_ec2(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = world.provider.clients
    refused = {"Unsuccessful": [{"Error": {"Message": "vpce-1 is in use"}}]}
    monkeypatch.setattr(clients, "call", lambda *_: refused)
    owner = owner_at(world.account)
    scene = Scene(clients, world.account, owner, owner.base, vpc="")
    left = Leftover(kind=GuardDutyEndpoints.kind, id="vpce-1", ours=True)
    text = "endpoint vpce-1 of GuardDuty: vpce-1 is in use"
    with pytest.raises(Dependency, match=text):
        GuardDutyEndpoints().remove(scene, left)


async def test_an_interface_for_efa_that_ec2_left_is_deleted(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), *TO_CLUSTER)
    tags = {
        labels.CLOUD_OWNER: objects["cluster"].name.rpartition("-")[2],
        labels.CLOUD_OBJECT: "lt/gpu",
    }
    made_tags = [{"Key": key, "Value": value} for key, value in tags.items()]
    interface = aws.client("ec2").create_network_interface(
        SubnetId=world.known["net/subnets"]["private-us-east-2a"],
        TagSpecifications=[{"ResourceType": "network-interface", "Tags": made_tags}],
    )["NetworkInterface"]["NetworkInterfaceId"]
    order = world.audit()
    (left,) = [each for each in world.provider.audit(order) if each.id == interface]
    assert (left.kind, left.ours) == ("NetworkInterface", True)
    later = utc_now() + timedelta(minutes=3)
    world.provider.clients.seconds = later.timestamp
    world.provider.sweep(order, left)
    assert f"ec2/network-interface/{interface}" not in aws.remains()


async def test_a_change_of_a_degraded_group_names_the_reason(
    aws: FakeAws, world: World
) -> None:
    keys = (*TO_NODES, "pool/gpu")
    await made(world, world.plan(an_eks_pool(nodeCount=1)), *keys)
    cluster = aws.cloud.eks.clusters[world.provider.cloud_cluster(world.account)]
    body = cluster.node_groups["gpu"].body
    text = "We currently do not have sufficient g6.2xlarge capacity"
    issue = {"code": "AsgInstanceLaunchFailures", "message": text, "resourceIds": []}
    body["status"], body["health"] = "DEGRADED", {"issues": [issue]}
    desired = world.plan(an_eks_pool(nodeCount=2))
    (pool,) = [each for each in desired.objects if each.key == "pool/gpu"]
    handler = world.provider.handler(world.account, pool.kind)
    assert handler is not None
    with pytest.raises(CapacityUnavailable, match="no longer DEGRADED: Asg"):
        handler.update(world.wanted(pool), world.look(pool))
