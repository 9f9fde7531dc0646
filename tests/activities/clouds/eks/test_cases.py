"""Failures during the creation of a cluster at a fake AWS, and how they end."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from activities.clouds.desired.graph import DesiredObject
from activities.clouds.eks.provider import EksProvider
from activities.clouds.lifecycle.handler import State
from api_types.clock import utc_now
from api_types.errors import (
    CapacityUnavailable,
    InvalidInput,
    NameConflict,
    PermissionDenied,
    QuotaExceeded,
    ReplaceRequired,
)
from api_types.sections.clouds import EksSettings
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.builders import (
    BLOCK,
    an_eks_pool,
    classes,
    key_of,
    reasons,
    warned,
)
from tests.activities.clouds.eks import world as worlds
from tests.activities.clouds.eks.world import World, world_of

pytestmark = pytest.mark.slow

TO_CLUSTER = ("net/vpc", "net/subnets", "iam/cluster", "cluster")
TO_NODES = (
    *(
        "net/vpc",
        "net/subnets",
        "net/igw",
        "net/eip",
        "net/nat",
        "net/routes-public",
        "net/routes-private",
    ),
    *("iam/cluster", "iam/node", "cluster", "addon/vpc-cni"),
)


async def made(world: World, desired: Any, *keys: str) -> dict[str, DesiredObject]:
    """Create these objects in the order of creation, and return all objects by key."""
    for each in desired.objects:
        if each.key in keys:
            await world.ensure(each)
    return {each.key: each for each in desired.objects}


def calls(aws: FakeAws, operation: str) -> list[dict[str, Any]]:
    """Return the parameters of an operation's successful calls."""
    return [dict(each.parameters) for each in aws.ledger(operation) if not each.error]


def test_zones_come_from_the_account() -> None:
    with FakeAws("ca-central-1") as aws:
        world = world_of(aws)
        pool = an_eks_pool(zones=["ca-central-1d"])
        desired = world.plan(pool, region="ca-central-1")
        assert desired.refused == ()
        (subnets,) = [each for each in desired.objects if each.key == "net/subnets"]
        zones = {
            call.parameters["AvailabilityZone"]
            for call in subnets.calls
            if call.operation == "create_subnet"
        }
        assert zones == {"ca-central-1a", "ca-central-1b", "ca-central-1d"}


def test_a_zone_that_is_not_there_is_refused_before_anything_is_created(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(an_eks_pool(zones=["us-east-2f"]))
    assert (reasons(desired), desired.objects, aws.remains()) == (
        [("InvalidInput", "pool gpu")],
        (),
        [],
    )


def test_a_capacity_block_in_another_zone_is_refused_before_anything_is_created(
    aws: FakeAws, world: World
) -> None:
    aws.plant_reservation(BLOCK, "us-east-2b", "p5en.48xlarge", 2)
    desired = world.plan(
        an_eks_pool(
            "p5en", className="p5en", capacityBlock={"capacityReservationId": BLOCK}
        )
    )
    assert reasons(desired) == [("InvalidInput", "pool p5en")]
    assert (
        desired.refused[0].text
        == f"capacity block {BLOCK} is in zone us-east-2b; set zones: [us-east-2b]"
    )


def test_a_capacity_block_that_does_not_exist_is_refused(world: World) -> None:
    desired = world.plan(
        an_eks_pool(
            "p5en", className="p5en", capacityBlock={"capacityReservationId": BLOCK}
        )
    )
    assert [each.text for each in desired.refused] == [
        f"capacity block {BLOCK} does not exist in us-east-2 for this account"
    ]


def test_a_version_that_is_not_offered_is_refused(world: World) -> None:
    desired = world.plan(kubernetesVersion="1.99")
    assert reasons(desired) == [("InvalidInput", "")]
    assert desired.refused[0].text.startswith(
        'kubernetesVersion "1.99" is not offered by EKS in us-east-2; offered are 1.'
    )


@pytest.mark.parametrize("least", [0, 1])
async def test_an_autoscaled_pool_on_a_scheduled_capacity_block_starts_at_its_node_count(
    aws: FakeAws, world: World, least: int
) -> None:
    pool = an_eks_pool(
        "p5en",
        className="p5en",
        nodeCount=3,
        minNodeCount=least,
        maxNodeCount=4,
        capacityBlock={"capacityReservationId": BLOCK},
    )
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 4, "scheduled")
    await made(world, world.plan(pool), *TO_NODES, "lt/p5en", "pool/p5en")
    (created,) = calls(aws, "CreateNodegroup")
    assert created["scalingConfig"] == {"minSize": 0, "maxSize": 4, "desiredSize": 0}
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 4, "active")
    await made(world, world.plan(pool), "pool/p5en")
    # After its start the autoscaler chooses the size.
    cluster = world.provider.cloud_cluster(world.account)
    aws.client("eks").update_nodegroup_config(
        clusterName=cluster, nodegroupName="p5en", scalingConfig={"desiredSize": 1}
    )
    await made(world, world.plan(pool), "pool/p5en")
    assert [each["scalingConfig"] for each in calls(aws, "UpdateNodegroupConfig")] == [
        {"minSize": least, "maxSize": 4, "desiredSize": 3},
        {"desiredSize": 1},
    ]


def test_a_check_without_permission_is_skipped_with_a_warning(
    aws: FakeAws, world: World
) -> None:
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="DescribeInstanceTypeOfferings",
            code="UnauthorizedOperation",
            message="not authorized",
        )
    )
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="DescribeClusterVersions",
            code="AccessDeniedException",
            message="not authorized",
        )
    )
    desired = world.plan()
    assert (desired.refused, warned(desired)) == (
        (),
        [("CheckSkipped", ""), ("CheckSkipped", "")],
    )
    assert len(desired.objects) > 20


async def test_a_scheduled_capacity_block_gets_its_nodes_at_its_start(
    aws: FakeAws, world: World
) -> None:
    pool = an_eks_pool(
        "p5en",
        className="p5en",
        nodeCount=2,
        capacityBlock={"capacityReservationId": BLOCK},
    )
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 2, "scheduled")
    desired = world.plan(pool)
    assert warned(desired) == [
        ("CapacityBlockScheduled", "pool p5en"),
        ("CapacityBlockDates", "pool p5en"),
    ]
    assert desired.warnings[-1].text == (
        f"capacity block {BLOCK} begins 2030-03-17T17:46:40Z, ends "
        "2030-03-18T17:46:40Z; AWS stops its machines before its end"
    )
    objects = await made(world, desired, *TO_NODES, "lt/p5en", "pool/p5en")
    (created,) = calls(aws, "CreateNodegroup")
    assert created["scalingConfig"] == {"minSize": 0, "maxSize": 2, "desiredSize": 0}
    assert created["capacityType"] == "CAPACITY_BLOCK"
    assert world.look(objects["pool/p5en"]).state is State.READY
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 2, "active")
    desired = world.plan(pool)
    assert (desired.refused, warned(desired)) == (
        (),
        [("CapacityBlockDates", "pool p5en")],
    )
    await made(world, desired, "pool/p5en")
    (raised,) = calls(aws, "UpdateNodegroupConfig")
    assert raised["scalingConfig"] == {"minSize": 2, "maxSize": 2, "desiredSize": 2}
    # The parameters of an existing group are not checked again.
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 1, "expired")
    assert world.plan(pool).refused == ()


async def test_no_template_is_created_before_the_cluster_reports_its_group(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(an_eks_pool("efa", className="p5en", fabric={"type": "EFA"}))
    await made(world, desired, *TO_CLUSTER, "sg/efa")
    group = world.known["cluster"].pop("clusterSecurityGroupId")
    world.attempts_max = 2
    with pytest.raises(
        Exception,
        match="lt/efa needs the clusterSecurityGroupId of cluster, which is not known yet",
    ):
        await made(world, desired, "lt/efa")
    assert aws.made("CreateLaunchTemplate") == 0
    world.known["cluster"]["clusterSecurityGroupId"] = group
    await made(world, desired, "lt/efa")
    (created,) = calls(aws, "CreateLaunchTemplate")
    assert group in str(created)


async def test_a_vpc_that_is_not_listed_yet_is_found_by_the_second_observation(
    aws: FakeAws, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It is listed after some observations, however long these take.
    monkeypatch.setattr(worlds, "FAST", replace(worlds.FAST, second_look=30.0))
    aws.fault(AwsFault(FaultKind.INVISIBLE, operation="CreateVpc", times=4))
    await made(world, world.plan(), "net/vpc")
    assert aws.made("CreateVpc") == 1


async def test_a_cluster_whose_create_response_was_lost_is_adopted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    aws.fault(AwsFault(FaultKind.LOSE_ANSWER, operation="CreateCluster"))
    objects = await made(world, desired, "cluster")
    assert (aws.made("CreateCluster"), world.look(objects["cluster"]).state) == (
        1,
        State.READY,
    )


async def test_a_cluster_of_this_name_of_another_owner_is_not_touched(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    aws.fault(AwsFault(FaultKind.FOREIGN, operation="CreateCluster"))
    before = len(aws.ledger())
    with pytest.raises(
        NameConflict, match="exists and does not belong to this cluster"
    ):
        await made(world, desired, "cluster")
    objects = {each.key: each for each in desired.objects}
    assert (await world.delete(objects["cluster"])).state is State.FOREIGN
    assert {
        each.operation
        for each in aws.ledger()[before:]
        if not each.operation.startswith("Describe")
    } == {"CreateCluster"}
    assert aws.made("DeleteCluster") == 0


async def test_throttling_is_retried_silently(aws: FakeAws, world: World) -> None:
    aws.fault(
        AwsFault(FaultKind.THROTTLE, operation="CreateRole", times=4),
        AwsFault(FaultKind.THROTTLE, operation="GetRole", times=1),
    )
    await made(world, world.plan(), "iam/cluster")
    assert aws.made("CreateRole") == 1


async def test_an_exceeded_quota_is_named_and_other_objects_are_created(
    aws: FakeAws, world: World
) -> None:
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="CreateVpc",
            code="VpcLimitExceeded",
            message="The maximum number of VPCs has been reached.",
        )
    )
    desired = world.plan()
    with pytest.raises(
        QuotaExceeded,
        match="VpcLimitExceeded: The maximum number of VPCs has been reached",
    ):
        await made(world, desired, "net/vpc")
    await made(world, desired, "iam/cluster", "efs", "net/vpc")
    assert sorted(world.known) == ["efs", "iam/cluster", "net/vpc"]


async def test_a_missing_permission_is_named(aws: FakeAws, world: World) -> None:
    text = "User: x is not authorized to perform: iam:CreateRole on resource: y"
    aws.fault(
        AwsFault(
            FaultKind.REFUSE, operation="CreateRole", code="AccessDenied", message=text
        )
    )
    with pytest.raises(PermissionDenied, match="the credential may not iam:CreateRole"):
        await made(world, world.plan(), "iam/cluster")


async def test_a_group_without_capacity_is_recreated_once_and_then_reported(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, *TO_NODES)
    aws.fault(AwsFault(FaultKind.STOCK_OUT, zone="us-east-2a", times=2))
    with pytest.raises(CapacityUnavailable, match="AsgInstanceLaunchFailures") as error:
        await made(world, desired, "pool/gpu")
    assert str(error.value).count("Could not launch On-Demand Instances") == 1
    assert (aws.made("CreateNodegroup"), world.epochs["pool/gpu"]) == (2, 1)
    tokens = {each["clientRequestToken"] for each in calls(aws, "CreateNodegroup")}
    assert len(tokens) == 2, "another epoch has another token"


async def test_a_group_without_capacity_does_not_block_others(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan(an_eks_pool("a"), an_eks_pool("b", zones=["us-east-2b"]))
    await made(world, desired, *TO_NODES)
    aws.fault(AwsFault(FaultKind.STOCK_OUT, zone="us-east-2a", times=2))
    with pytest.raises(CapacityUnavailable):
        await made(world, desired, "pool/a")
    objects = await made(world, desired, "pool/b", "pool/system")
    assert world.look(objects["pool/b"]).state is State.READY


async def test_a_role_that_eks_does_not_know_is_retried_for_two_minutes(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    aws.fault(AwsFault(FaultKind.ROLE_NOT_ASSUMABLE, times=3))
    await made(world, desired, "cluster")
    assert aws.made("CreateCluster") == 1


async def test_a_role_that_is_still_not_usable_after_two_minutes_is_an_error(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    later = utc_now() + timedelta(seconds=125)
    world.provider.clients.seconds = later.timestamp
    aws.fault(AwsFault(FaultKind.ROLE_NOT_ASSUMABLE, times=3))
    with pytest.raises(
        InvalidInput, match="eks create_cluster: InvalidParameterException"
    ):
        await made(world, desired, "cluster")


async def test_coredns_waits_for_nodes_and_is_not_deleted(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_NODES)
    handler = world.provider.handler(world.account, "Addon")
    assert handler is not None
    handler.create(world.wanted(objects["addon/coredns"]))
    states = {world.look(objects["addon/coredns"]).state for _ in range(12)}
    assert states == {State.PENDING}
    assert "DEGRADED" in world.look(objects["addon/coredns"]).reason
    await made(world, desired, "pool/system", "addon/coredns")
    assert (aws.made("CreateAddon"), aws.made("DeleteAddon")) == (2, 0)


async def test_an_add_on_that_failed_is_deleted_and_created_once(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, *TO_NODES, "pool/system")
    aws.fault(
        AwsFault(FaultKind.FAIL, operation="CreateAddon", code="ConfigurationConflict")
    )
    await made(world, desired, "addon/coredns")
    assert (aws.made("DeleteAddon"), world.rebuilt, world.epochs["addon/coredns"]) == (
        1,
        ["addon/coredns"],
        1,
    )


async def test_a_cluster_that_failed_twice_is_reported_with_the_reason(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, "net/vpc", "net/subnets", "iam/cluster")
    aws.fault(
        AwsFault(
            FaultKind.FAIL,
            operation="CreateCluster",
            code="ResourceLimitExceeded",
            message="no more clusters",
            times=2,
        )
    )
    with pytest.raises(
        QuotaExceeded,
        match="cluster: status FAILED: ResourceLimitExceeded: no more clusters",
    ):
        await made(world, desired, "cluster")
    assert aws.faults_left() == []


async def test_an_inventory_that_was_lost_is_found_by_names_and_tags(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await world.create_all(desired.objects)
    before = {each.operation: aws.made(each.operation) for each in aws.ledger()}
    lost = world_of(aws)
    again = lost.plan()
    assert again == desired
    await lost.create_all(again.objects)
    assert lost.known == world.known
    creates = {
        name: count
        for name, count in before.items()
        if name.startswith(("Create", "Allocate"))
    }
    assert {name: aws.made(name) for name in creates} == creates


async def test_a_recreated_cluster_does_not_adopt_objects_of_the_earlier_one(
    aws: FakeAws, world: World
) -> None:
    await made(world, world.plan(), "net/vpc", "iam/cluster", "efs")
    world.account = world.account.model_copy(update={"cluster_uid": "another"})
    world.known.clear()
    other = world.plan(uid="another")
    await made(world, other, "net/vpc", "iam/cluster", "efs")
    assert (
        aws.made("CreateVpc"),
        aws.made("CreateRole"),
        aws.made("CreateFileSystem"),
    ) == (2, 2, 2)


async def test_another_credential_of_the_account_gets_an_access_entry(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, *TO_CLUSTER, key_of(desired, "AccessEntry"))
    assert aws.made("CreateAccessEntry") == 0, "EKS has let in the creator"
    other = aws.account.role_session("rotated")
    world.provider = EksProvider(other.text, aws.region, EksSettings(), aws.url)
    rotated = world.plan()
    key = key_of(rotated, "AccessEntry")
    objects = await made(world, rotated, key)
    assert (
        objects[key].name.endswith(":role/rotated"),
        key == key_of(desired, "AccessEntry"),
    ) == (True, False)
    assert (aws.made("CreateAccessEntry"), aws.made("AssociateAccessPolicy")) == (1, 1)


async def test_an_access_entry_of_eks_or_another_owner_is_kept(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    objects = await made(world, desired, *TO_CLUSTER, key_of(desired, "AccessEntry"))
    entry = objects[key_of(desired, "AccessEntry")]
    found = await world.delete(entry)
    assert (found.state, found.reason) == (
        State.FOREIGN,
        "it has no tag modelplane.ai/owner",
    )
    assert world.look(entry).state is State.READY
    other = aws.account.role_session("rotated")
    world.provider = EksProvider(other.text, aws.region, EksSettings(), aws.url)
    rotated = world.plan()
    objects = await made(world, rotated, key_of(rotated, "AccessEntry"))
    assert (
        await world.delete(objects[key_of(rotated, "AccessEntry")])
    ).state is State.ABSENT, "the one with our tags goes"


def test_a_role_that_cannot_be_read_any_more_is_taken_from_known_facts(
    aws: FakeAws, world: World
) -> None:
    aws.client("iam").create_role(
        RoleName="dep", Path="/team/", AssumeRolePolicyDocument="{}"
    )
    world.provider = EksProvider(
        aws.account.role_session("dep").text, aws.region, EksSettings(), aws.url
    )
    (entry,) = (each for each in world.plan().objects if each.kind == "AccessEntry")
    assert entry.name.endswith(":role/team/dep")
    world.known[entry.key] = {"id": entry.name}
    world.known["access/of-another"] = {"id": entry.name.replace("dep", "developer")}
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation="GetRole",
            code="AccessDeniedException",
            message="not authorized",
        )
    )
    assert key_of(world.plan(), "AccessEntry") == entry.key
    assert aws.faults_left() == []


async def test_a_machine_type_cannot_be_changed_in_place_and_restoring_it_ends_the_error(
    aws: FakeAws, world: World
) -> None:
    desired = world.plan()
    await made(world, desired, *TO_NODES, "pool/gpu")
    edited = classes(
        g6={
            "provider": "EKS",
            "eks": {
                "instanceType": "g6.12xlarge",
                "accelerator": {"type": "nvidia-l4", "count": 4},
            },
        }
    )
    before = len(
        [
            each
            for each in aws.ledger()
            if not each.operation.startswith(("Describe", "Get", "List"))
        ]
    )
    with pytest.raises(
        ReplaceRequired,
        match=(
            r"Nodegroup gpu: instance type cannot be changed in place "
            r"\(instance type is \['g6.2xlarge'\]\)"
        ),
    ):
        await made(world, world.plan(known=edited), "pool/gpu")
    await made(world, world.plan(), "pool/gpu")
    assert (
        len(
            [
                each
                for each in aws.ledger()
                if not each.operation.startswith(("Describe", "Get", "List"))
            ]
        )
        == before
    )
