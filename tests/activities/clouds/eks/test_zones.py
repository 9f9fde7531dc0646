"""Zones of clusters at the fake AWS, with the offers of real regions."""

from typing import Any

import pytest

from api_types.errors import InvalidInput, PlanOutdated
from api_types.sections.clouds import EksSettings
from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.builders import an_eks_pool, classes, warned
from tests.activities.clouds.eks.test_cases import TO_CLUSTER, calls, made
from tests.activities.clouds.eks.world import World, provider_of, world_of

pytestmark = pytest.mark.slow

# In us-east-1, zone e is use1-az3: it has neither EKS nor m6i.
VIRGINIA: dict[str, Any] = {"region": "us-east-1"}


def zones_of(aws: FakeAws, subnets: list[str]) -> list[str]:
    """Return the letters of the zones of subnets."""
    found = aws.client("ec2").describe_subnets(SubnetIds=subnets)["Subnets"]
    return sorted({each["AvailabilityZone"][-1] for each in found})


async def test_a_whole_cluster_where_a_zone_lacks_eks_and_machines() -> None:
    with FakeAws("us-east-1") as aws, direct(aws):
        world = world_of(aws)
        world.provider = provider_of(
            aws, EksSettings(excluded_zones=("use1-az6", "us-east-1b"))
        )
        # The first three zones by name are c, d and e.
        pool = an_eks_pool(zones=None)
        desired = world.plan(pool, **VIRGINIA)
        await world.create_all(desired.objects)
        (cluster,) = calls(aws, "CreateCluster")
        groups = [
            zones_of(aws, each["subnets"]) for each in calls(aws, "CreateNodegroup")
        ]
        mounts = [each["SubnetId"] for each in calls(aws, "CreateMountTarget")]
        (nat,) = calls(aws, "CreateNatGateway")
        assert (
            zones_of(aws, cluster["resourcesVpcConfig"]["subnetIds"]),
            groups,
            zones_of(aws, mounts),
            zones_of(aws, [nat["SubnetId"]]),
        ) == ([*"cdf"], [[*"cdf"], [*"cdf"]], [*"cdf"], ["c"])
        assert warned(desired) == []
        await world.delete_all(desired.objects)
        assert aws.remains() == []


async def test_zones_stay_when_the_settings_and_offers_change() -> None:
    with FakeAws("us-east-1") as aws, direct(aws):
        world = world_of(aws)
        desired = world.plan(an_eks_pool(zones=None), **VIRGINIA)
        await world.create_all(desired.objects)
        world.provider = provider_of(
            aws, EksSettings(zones=("us-east-1f", "us-east-1d"))
        )
        again = world.plan(an_eks_pool(zones=None), **VIRGINIA)
        later = {each.key: each for each in again.objects}
        before = {each.key: each for each in desired.objects}
        assert [later[key] for key in ("pool/gpu", "pool/system", "net/vpc")] == [
            before[key] for key in ("pool/gpu", "pool/system", "net/vpc")
        ]
        assert world.look(later["pool/gpu"]).replaces == ()


async def test_zones_that_eks_rejects_one_after_the_other_are_replaced() -> None:
    rejected = ["us-east-1b", "us-east-1d"]
    with FakeAws("us-east-1", unsupported_zones=rejected) as aws, direct(aws):
        world = world_of(aws)
        for zone in rejected:
            desired = world.plan(an_eks_pool(zones=None), **VIRGINIA)
            text = (
                f"EKS does not support {zone} for this account; the cluster uses other"
            )
            with pytest.raises(PlanOutdated, match=text):
                await made(world, desired, *TO_CLUSTER)
            # A worker without any memory makes the next plan.
            world.restart()
        again = world.plan(an_eks_pool(zones=None), **VIRGINIA)
        await world.create_all(again.objects)
        (cluster,) = calls(aws, "CreateCluster")
        groups = [
            zones_of(aws, each["subnets"]) for each in calls(aws, "CreateNodegroup")
        ]
        assert (zones_of(aws, cluster["resourcesVpcConfig"]["subnetIds"]), groups) == (
            [*"acf"],
            [[*"acf"], [*"acf"]],
        )
        assert aws.made("CreateVpc") == 1
        await world.delete_all(again.objects)
        assert aws.remains() == []


async def test_a_refusal_that_names_none_of_the_zones_is_no_reason_for_another_plan(
    world: World, aws: FakeAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the same plan would be made and refused for ever."""
    valid = ("us-east-2a", "us-east-2b", "us-east-2c")
    monkeypatch.setattr(world.provider.clients, "create_cluster", lambda _: valid)
    with pytest.raises(InvalidInput, match="to these zones"):
        await made(world, world.plan(an_eks_pool(zones=None)), *TO_CLUSTER)
    refused: Any = {"code": "BadRequest", "message": "bad group", "status": 400}
    aws.fault(AwsFault(FaultKind.REFUSE, "CreateMountTarget", times=9, **refused))
    with pytest.raises(InvalidInput, match="bad group"):
        await made(world, world.plan(), "sg/efs", "efs", "efs/mounts")


async def test_a_zone_that_efs_rejects_gets_no_mount_target(
    world: World, aws: FakeAws
) -> None:
    aws.cloud.unsupported_zones = frozenset({"us-east-2c"})
    desired = world.plan(an_eks_pool(zones=None))
    keys = ("net/vpc", "net/subnets", "sg/efs", "efs", "efs/mounts")
    with pytest.raises(PlanOutdated, match="EFS does not support us-east-2c"):
        await made(world, desired, *keys)
    await made(world, world.plan(an_eks_pool(zones=None)), *keys)
    mounts = [each["SubnetId"] for each in calls(aws, "CreateMountTarget")]
    assert zones_of(aws, mounts) == [*"ab"]


def test_a_zone_without_eks_is_not_chosen_although_no_offers_can_be_read() -> None:
    with FakeAws("us-east-1") as aws, direct(aws):
        denied = AwsFault(
            FaultKind.REFUSE,
            operation="DescribeInstanceTypeOfferings",
            code="UnauthorizedOperation",
        )
        aws.fault(denied)
        world = world_of(aws)
        world.provider = provider_of(
            aws, EksSettings(zones=("us-east-1d", "us-east-1e", "us-east-1f"))
        )
        desired = world.plan(an_eks_pool(zones=None), **VIRGINIA)
        (subnets,) = [each for each in desired.objects if each.key == "net/subnets"]
        assert subnets.name == "2 public, 2 private"
        assert warned(desired) == [("CheckSkipped", "")]


def test_only_available_zones_of_the_region_are_chosen(
    world: World, aws: FakeAws
) -> None:
    aws.cloud.zone_states["us-east-2b"] = "impaired"
    desired = world.plan(an_eks_pool(zones=None))
    (subnets,) = [each for each in desired.objects if each.key == "net/subnets"]
    zones = {
        call.parameters["AvailabilityZone"]
        for call in subnets.calls
        if call.operation == "create_subnet"
    }
    assert zones == {"us-east-2a", "us-east-2c"}


def test_machines_that_no_free_zone_offers_are_refused() -> None:
    with FakeAws("us-east-1") as aws, direct(aws):
        world = world_of(aws)
        settings = EksSettings(zones=("use1-az3", "use1-az5", "us-east-1b"))
        world.provider = provider_of(aws, settings)
        p4d = {
            "provider": "EKS",
            "eks": {
                "instanceType": "p4de.24xlarge",
                "accelerator": {"type": "nvidia-a100", "count": 8},
            },
        }
        known = classes(p4d=p4d)
        free = world.plan(
            an_eks_pool(zones=None, className="p4d"), known=known, **VIRGINIA
        )
        assert [(each.at, each.text) for each in free.refused] == [
            (
                "pool gpu",
                (
                    "p4de.24xlarge is not offered in us-east-1b, us-east-1f; it is in "
                    "us-east-1a, us-east-1d"
                ),
            )
        ]
