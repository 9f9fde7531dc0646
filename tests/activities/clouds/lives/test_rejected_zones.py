"""The life of a cluster in a region where services reject a zone."""

import random

import pytest

from fakes.aws.direct import direct
from fakes.aws.fake import FakeAws
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.lives.fakes import eks_fake
from tests.activities.clouds.lives.life import Life
from tests.activities.clouds.lives.virtual_time import run

pytestmark = pytest.mark.slow


def test_a_cluster_gets_other_zones_and_leaves_nothing_behind() -> None:
    async def live() -> None:
        with (
            FakeAws(role="provisioner", unsupported_zones=["us-east-2a"]) as aws,
            direct(aws),
        ):
            life = Life(eks_fake(aws), random.Random(1))  # noqa: S311 - repeatable on purpose
            with life.temporal.patched():
                try:
                    life.begin()
                    life.order(an_eks_pool(zones=None))
                    assert await life.until_ready(), life.progress["message"]
                    (cluster,) = [
                        each.parameters["resourcesVpcConfig"]["subnetIds"]
                        for each in aws.ledger("CreateCluster")
                        if not each.error
                    ]
                    found = aws.client("ec2").describe_subnets(SubnetIds=cluster)
                    zones = {each["AvailabilityZone"] for each in found["Subnets"]}
                    assert zones == {"us-east-2b", "us-east-2c"}
                    life.delete()
                    assert await life.until_gone(), life.progress["message"]
                    assert aws.remains() == []
                finally:
                    await life.stop()

    run(live, random.Random(1))  # noqa: S311 - repeatable on purpose
