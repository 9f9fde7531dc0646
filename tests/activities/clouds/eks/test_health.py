"""Trouble of existing objects of EKS: code, words, and whether nodes are missing."""

from typing import Any

import pytest

from activities.clouds.lifecycle.handler import HealthIssue, State
from api_types.errors import (
    CapacityUnavailable,
    CloudObjectBroken,
    ModelplaneError,
    PermissionDenied,
)
from fakes.aws.fake import FakeAws
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.test_cases import TO_NODES, made
from tests.activities.clouds.eks.world import World

pytestmark = pytest.mark.slow

ADD_ON = "addon/coredns"
LAUNCHES = {
    "code": "AsgInstanceLaunchFailures",
    "message": "We currently do not have sufficient g6.xlarge capacity",
    "resourceIds": ["eks-gpu-1"],
}
# The text is from https://github.com/aws/containers-roadmap/issues/2204.
LAUNCHES_TEXT = (
    "AsgInstanceLaunchFailures: We currently do not have sufficient g6.xlarge "
    "capacity (eks-gpu-1)"
)
NO_GROUP = {"code": "Ec2SecurityGroupNotFound", "message": "sg-1 is gone"}
NO_GROUP_TEXT = (
    "Ec2SecurityGroupNotFound: sg-1 is gone; somebody deleted the security group of the "
    "cluster: recreate the cluster"
)
DENIED = {"code": "AccessDenied", "message": "the add-on may not list nodes"}


def part(aws: FakeAws, world: World, key: str) -> Any:
    """Return an object of EKS in the fake."""
    cluster = aws.cloud.eks.clusters[world.provider.cloud_cluster(world.account)]
    kind, _, name = key.partition("/")
    parts = {"pool": cluster.node_groups, "addon": cluster.add_ons}
    return parts[kind][name] if name else cluster


def issue(
    error: type[ModelplaneError], code: Any, text: str, *, lacks_nodes: bool = False
) -> HealthIssue:
    return HealthIssue(error, code, text, lacks_nodes)


CASES: list[tuple[str, str, list[dict[str, Any]], HealthIssue | None]] = [
    ("pool/gpu", "ACTIVE", [], None),
    (
        "pool/gpu",
        "ACTIVE",
        [LAUNCHES],
        issue(CapacityUnavailable, LAUNCHES["code"], LAUNCHES_TEXT, lacks_nodes=True),
    ),
    (
        "pool/gpu",
        "DEGRADED",
        [LAUNCHES],
        issue(
            CapacityUnavailable,
            LAUNCHES["code"],
            f"status DEGRADED: {LAUNCHES_TEXT}",
            lacks_nodes=True,
        ),
    ),
    (
        "pool/gpu",
        "DEGRADED",
        [],
        issue(CloudObjectBroken, "DEGRADED", "status DEGRADED", lacks_nodes=True),
    ),
    (
        "pool/gpu",
        "ACTIVE",
        [NO_GROUP],
        issue(
            CloudObjectBroken,
            NO_GROUP["code"],
            NO_GROUP_TEXT,
        ),
    ),
    (
        "cluster",
        "ACTIVE",
        [NO_GROUP],
        issue(
            CloudObjectBroken,
            NO_GROUP["code"],
            NO_GROUP_TEXT,
        ),
    ),
    (
        ADD_ON,
        "DEGRADED",
        [DENIED],
        issue(
            PermissionDenied,
            DENIED["code"],
            "status DEGRADED: AccessDenied: the add-on may not list nodes",
            lacks_nodes=True,
        ),
    ),
]


async def test_an_existing_object_shows_the_trouble_that_eks_reports(
    aws: FakeAws, world: World
) -> None:
    objects = await made(
        world, world.plan(), *TO_NODES, "pool/system", "pool/gpu", ADD_ON
    )
    seen = []
    for key, status, issues, _ in CASES:
        body = part(aws, world, key).body
        body["status"], body["health"] = status, {"issues": issues}
        found = world.look(objects[key])
        seen.append((key, status, issues, found.health))
        assert found.state is State.READY
        body["status"], body["health"] = "ACTIVE", {"issues": []}
        assert world.look(objects[key]).health is None
    assert seen == CASES


async def test_a_new_add_on_without_nodes_is_still_being_created(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), *TO_NODES, "pool/system", ADD_ON)
    body = part(aws, world, ADD_ON).body
    body["status"], body["health"] = "DEGRADED", {"issues": [DENIED]}
    del world.known[ADD_ON]
    found = world.look(objects[ADD_ON])
    assert (found.state, found.health) == (State.PENDING, None)


async def test_a_degraded_group_can_still_be_changed(
    aws: FakeAws, world: World
) -> None:
    pool = an_eks_pool(nodeCount=1, minNodeCount=1, maxNodeCount=4)
    await made(world, world.plan(pool), *TO_NODES, "pool/gpu")
    body = part(aws, world, "pool/gpu").body
    body["status"], body["health"] = "DEGRADED", {"issues": [LAUNCHES]}
    smaller = world.plan({**pool, "maxNodeCount": 2})
    (group,) = [each for each in smaller.objects if each.key == "pool/gpu"]
    found = world.look(group)
    assert (found.state, found.changes) == (State.DIFFERS, ("counts",))
