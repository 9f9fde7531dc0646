"""Objects whose tags a person removed: the deletion waits, and names the restoring command."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from activities.clouds.desired.owner import owner_at
from activities.clouds.eks.denials import explained
from activities.clouds.eks.handlers.ec2 import VpcHandler
from activities.clouds.lifecycle.handler import State
from api_types.errors import NotYet, OwnerMarkMissing, PermissionDenied
from fakes.aws.fake import FakeAws
from tests.activities.clouds.eks.test_cases import TO_NODES, made
from tests.activities.clouds.eks.test_deletion import swept
from tests.activities.clouds.eks.test_policies import limit
from tests.activities.clouds.eks.world import World, world_of

pytestmark = pytest.mark.slow
OWNER = "modelplane.ai/owner"
NETWORK = ("net/vpc", "net/subnets", "net/igw", "net/eip", "sg/efs")
NAMED = ("iam/cluster", "iam/policy-autoscaler", "efs")


def strip(aws: FakeAws, world: World, key: str) -> None:
    """Remove all tags of an object, as a person does in the console."""
    facts = world.known[key]
    if key == "iam/policy-autoscaler":
        policy, iam = facts["arn"], aws.client("iam")
        keys = [each["Key"] for each in iam.list_policy_tags(PolicyArn=policy)["Tags"]]
        iam.untag_policy(PolicyArn=policy, TagKeys=keys)
    elif key.startswith("iam/"):
        iam = aws.client("iam")
        listed = iam.list_role_tags(RoleName=facts["id"])["Tags"]
        keys = [each["Key"] for each in listed]
        iam.untag_role(RoleName=facts["id"], TagKeys=keys)
    elif key == "efs":
        keys = [OWNER, "modelplane.ai/object"]
        aws.cloud.efs.tagging_service.untag_resource_using_names(facts["id"], keys)
    elif key in ("cluster", "pool/gpu"):
        cluster = aws.cloud.eks.clusters[world.provider.cloud_cluster(world.account)]
        part = cluster if key == "cluster" else cluster.node_groups["gpu"]
        part.body["tags"] = {}
    else:
        ids = [value for name, value in facts.items() if "cidr" not in name]
        aws.client("ec2").delete_tags(Resources=ids, Tags=[{"Key": OWNER}])


def obey(aws: FakeAws, text: str) -> None:
    """Run the command in a message, as a person does in a shell."""
    found = re.search(r"restore with `([^`]+)`", text)
    assert found is not None, text
    _, service, operation, *words = shlex.split(found[1])
    options: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            options[word] = []
        else:
            options[list(options)[-1]].append(word)
    given = options.pop("--tags")
    assert options.pop("--region", [aws.region]) == [aws.region]
    if service == "eks":
        # The fake has no call that sets tags.
        tags = dict(each.split("=", 1) for each in given[0].split(","))
        for cluster in aws.cloud.eks.clusters.values():
            for part in (cluster, *cluster.node_groups.values()):
                arn = part.body.get("nodegroupArn") or part.body["arn"]
                if [arn] == options["--resource-arn"]:
                    part.body["tags"] |= tags
        return
    pairs = [dict(item.split("=", 1) for item in each.split(",")) for each in given]
    if service == "efs":
        # Moto has no path for this call.
        aws.cloud.efs.tagging_service.tag_resource(*options["--resource-id"], pairs)
        return
    names = {"--resources": "Resources", "--role-name": "RoleName"}
    names |= {"--policy-arn": "PolicyArn"}
    arguments: dict[str, Any] = {
        names[name]: values if name == "--resources" else values[0]
        for name, values in options.items()
    }
    getattr(aws.client(service), operation.replace("-", "_"))(Tags=pairs, **arguments)


@pytest.mark.parametrize("key", [*NETWORK, *NAMED])
async def test_the_deletion_of_an_object_without_tags_waits_for_them(
    aws: FakeAws, world: World, key: str
) -> None:
    objects = await made(world, world.plan(), *NETWORK, *NAMED)
    strip(aws, world, key)
    before = aws.remains()
    with pytest.raises(OwnerMarkMissing, match=f"not have the tags? {OWNER}=") as held:
        await world.delete(objects[key])
    assert aws.remains() == before
    with pytest.raises(OwnerMarkMissing):
        await world.ensure(objects[key])
    obey(aws, held.value.message)
    await world.delete_all(objects[each] for each in (*NETWORK, *NAMED))
    assert aws.remains() == []


@pytest.mark.parametrize("key", ["cluster", "pool/gpu"])
async def test_a_control_plane_or_node_group_without_tags_waits_for_them(
    aws: FakeAws, world: World, key: str
) -> None:
    objects = await made(world, world.plan(), *TO_NODES, "pool/gpu")
    strip(aws, world, key)
    with pytest.raises(OwnerMarkMissing) as held:
        await world.delete(objects[key])
    obey(aws, held.value.message)
    await world.delete(objects["pool/gpu"])
    assert (await world.delete(objects["cluster"])).state is State.ABSENT


async def test_an_object_without_tags_may_be_deleted_by_hand_instead(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), "iam/efs-csi")
    strip(aws, world, "iam/efs-csi")
    with pytest.raises(OwnerMarkMissing):
        await world.delete(objects["iam/efs-csi"])
    name, iam = world.known["iam/efs-csi"]["id"], aws.client("iam")
    for each in iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]:
        iam.detach_role_policy(RoleName=name, PolicyArn=each["PolicyArn"])
    iam.delete_role(RoleName=name)
    assert (await world.delete(objects["iam/efs-csi"])).state is State.ABSENT


async def test_tags_that_return_during_the_search_leave_the_object_to_this_cluster(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = await made(world, world.plan(), "net/vpc")
    with monkeypatch.context() as stripped:
        stripped.setattr(VpcHandler, "tagged", lambda *_: [])
        with pytest.raises(NotYet, match="has its tags again"):
            world.look(objects["net/vpc"])
    assert (await world.delete(objects["net/vpc"])).state is State.ABSENT


async def test_a_gateway_that_was_moved_to_another_network_stays_there(
    aws: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), "net/vpc", "net/igw")
    ours, ec2 = world.known["net/vpc"]["id"], aws.client("ec2")
    other = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    gateway = {"InternetGatewayId": world.known["net/igw"]["id"]}
    ec2.detach_internet_gateway(**gateway, VpcId=ours)
    ec2.attach_internet_gateway(**gateway, VpcId=other)
    for _ in range(2):
        found = world.look(objects["net/igw"])
        assert (found.state, found.reason, found.unmarked) == (
            State.FOREIGN,
            f"{gateway['InternetGatewayId']} is in {other}",
            "",
        )
        strip(aws, world, "net/igw")
    assert (await world.delete(objects["net/igw"])).state is State.FOREIGN


async def test_a_lost_inventory_still_finds_named_objects_without_tags(
    aws: FakeAws, world: World
) -> None:
    await made(world, world.plan(), *NAMED)
    for key in NAMED:
        strip(aws, world, key)
    lost, before = world_of(aws), aws.remains()
    found = {each.key: each for each in swept(lost)}
    assert {key: each.ours for key, each in found.items()} == dict.fromkeys(NAMED, True)
    assert aws.remains() == before
    for each in found.values():
        obey(aws, each.unmarked)
    assert (swept(lost), aws.remains()) == ([], [])


# The policies of deploy/clouds/aws


@pytest.fixture
def limited(aws: FakeAws) -> Iterator[FakeAws]:
    yield aws
    aws.account.policies.clear()


@pytest.mark.parametrize(
    ("stripped", "deleted", "made_before"),
    [
        ("net/vpc", "net/igw", ("net/vpc", "net/igw")),
        ("iam/autoscaler", "iam/policy-autoscaler", ()),
        ("efs", "efs/mounts", ("net/vpc", "net/subnets", "sg/efs", "efs")),
    ],
)
async def test_a_right_that_a_missing_tag_withholds_is_explained(
    limited: FakeAws,
    world: World,
    stripped: str,
    deleted: str,
    made_before: tuple[str, ...],
) -> None:
    keys = dict.fromkeys((*made_before, deleted, stripped))
    objects = await made(world, world.plan(), *keys)
    strip(limited, world, stripped)
    limit(limited, "operate", "delete")
    digits = world.wanted(objects[deleted]).owner.digits
    name = world.known[stripped]["id"]
    told = rf"{name} does not have the tags? {OWNER}={digits}.* only for objects with"
    with pytest.raises(OwnerMarkMissing, match=told) as held:
        await world.delete(objects[deleted])
    limited.account.policies.clear()
    obey(limited, held.value.message)
    limit(limited, "operate", "delete")
    assert (await world.delete(objects[deleted])).state is State.ABSENT


async def test_a_right_that_is_not_granted_is_not_blamed_on_a_tag(
    limited: FakeAws, world: World
) -> None:
    objects = await made(world, world.plan(), "net/vpc")
    limit(limited, "operate")
    with pytest.raises(PermissionDenied, match="may not ec2:DeleteVpc"):
        await world.delete(objects["net/vpc"])


def test_no_command_changes_the_tags_of_another_owner(
    aws: FakeAws, world: World
) -> None:
    ec2, owner = aws.client("ec2"), owner_at(world.account)
    vpc = ec2.create_vpc(CidrBlock="10.1.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=[{"Key": OWNER, "Value": "00000000"}])
    resource = f"arn:aws:ec2:{aws.region}:{world.account.project}:vpc/{vpc}"
    denial = PermissionDenied(
        f"x is not authorized to perform: ec2:DeleteVpc on resource: {resource}"
    )
    with pytest.raises(PermissionDenied), explained(world.provider.clients, owner, {}):
        raise denial
    # An object in the inventory was created for this cluster, whoever changed its tags.
    known = {"net/vpc": {"id": vpc}}
    with (
        pytest.raises(OwnerMarkMissing, match=f"{vpc} does not have the tags {OWNER}"),
        explained(world.provider.clients, owner, known),
    ):
        raise denial
