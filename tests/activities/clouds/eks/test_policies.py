"""The policy documents in `deploy/clouds/aws` grant exactly the rights in use.

The calls are collected from the code, and from whole lives at a fake that enforces the
documents.
"""

import ast
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

import activities.clouds.eks
from activities.clouds.desired.graph import deletion_order
from activities.clouds.eks.rights import FREE, IMPLIED, OF_MARKED_OBJECTS, RIGHTS
from api_types.errors import PermissionDenied
from fakes.aws import policies
from fakes.aws.fake import FakeAws
from fakes.aws.faults import VpcLeftover
from tests.activities.clouds.builders import an_eks_pool
from tests.activities.clouds.eks.world import World

FOLDER = Path(__file__).parents[4] / "deploy" / "clouds" / "aws"
DOCUMENTS: dict[str, Any] = {
    name: json.loads((FOLDER / f"{name}.json").read_text()) for name in RIGHTS
}
SERVICES = (
    "autoscaling",
    "ec2",
    "efs",
    "eks",
    "elb",
    "elbv2",
    "iam",
    "service-quotas",
    "sts",
)
POLICY_CHARACTERS_MAX = 6144
"""The limit of IAM for a managed policy, without white space."""
WITHOUT_CONDITION = {
    "create": {"InterfacesOfMountTargets"},
    "operate": {"Read"},
    "delete": {"GroupsAndInterfacesWithoutMarks", "InstanceProfilesOfNodeGroups"},
}


def actions_of(document: Any) -> set[str]:
    return {
        action for statement in document["Statement"] for action in statement["Action"]
    }


def called() -> set[str]:
    """Return the actions of all calls in the code.

    A call names service and operation, or only the operation where its module names
    the service.
    """
    session = boto3.session.Session("x", "x", region_name="us-east-2")
    operations = {
        service: dict(session.client(service).meta.method_to_api_mapping)
        for service in SERVICES
    }
    found: set[str] = set()
    for path in Path(activities.clouds.eks.__path__[0]).rglob("*.py"):
        tree = ast.parse(path.read_text())
        words = set(texts(ast.walk(tree)))
        for names in [*together(tree), *([each] for each in words)]:
            services = [each for each in SERVICES if each in names]
            for name in names:
                knows = [each for each in SERVICES if name in operations[each]]
                certain = [each for each in knows if each in services] or (
                    knows if len(knows) == 1 else []
                )
                found |= {action(each, operations[each][name]) for each in certain}
    return found


def texts(nodes: Any) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def together(tree: ast.AST) -> Iterator[list[str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield list(texts(node.args))


def action(service: str, operation: str) -> str:
    return f"{policies.PREFIXES.get(service, service)}:{operation}"


@pytest.mark.slow
def test_rights_are_those_of_the_calls_in_the_code() -> None:
    implied = {each for actions in IMPLIED.values() for each in actions}
    rights = {action for actions in RIGHTS.values() for action in actions}
    assert sorted(rights) == sorted((called() | implied) - FREE)


@pytest.mark.parametrize("name", RIGHTS)
def test_a_document_grants_exactly_its_rights(name: str) -> None:
    document = DOCUMENTS[name]
    assert actions_of(document) == set(RIGHTS[name])
    compact = json.dumps(document, separators=(",", ":"))
    assert len(compact) <= POLICY_CHARACTERS_MAX
    assert not [each for each in actions_of(document) if "*" in each]
    unlimited = {
        each["Sid"] for each in document["Statement"] if not each.get("Condition")
    }
    assert unlimited == WITHOUT_CONDITION[name]


def test_the_actions_on_marked_objects_are_those_with_a_condition_on_their_tag() -> (
    None
):
    tag = "aws:ResourceTag/modelplane.ai/owner"
    limited = {
        action
        for document in DOCUMENTS.values()
        for statement in document["Statement"]
        if tag in statement.get("Condition", {}).get("Null", {})
        for action in statement["Action"]
    }
    assert limited == OF_MARKED_OBJECTS


def test_the_readme_explains_each_statement_without_a_condition() -> None:
    text = (FOLDER.parent / "README.md").read_text()
    named = {each for names in WITHOUT_CONDITION.values() for each in names}
    assert [each for each in named if f"`{each}`" not in text] == []


# At the fake


def limit(aws: FakeAws, *names: str) -> None:
    aws.limit("role/provisioner", *(DOCUMENTS[name] for name in names))


@pytest.fixture
def limited(aws: FakeAws) -> Iterator[FakeAws]:
    limit(aws, *RIGHTS)
    yield aws
    aws.account.policies.clear()


@pytest.mark.slow
async def test_a_limited_credential_creates_operates_and_deletes(
    limited: FakeAws, world: World
) -> None:
    desired = world.plan(
        an_eks_pool(nodeCount=1, maxNodeCount=4), kubernetesVersion="1.35"
    )
    assert (desired.refused, desired.warnings) == ((), ())
    limit(limited, "create", "operate")
    await world.create_all(desired.objects)
    limit(limited, "operate")
    changed = world.plan(
        an_eks_pool(nodeCount=1, maxNodeCount=5), kubernetesVersion="1.36"
    )
    assert changed.refused == ()
    await world.create_all(changed.objects)
    limit(limited, "operate", "delete")
    cluster = world.provider.cloud_cluster(world.account)
    limited.leave(cluster, VpcLeftover.LOAD_BALANCER)
    for each in deletion_order(list(changed.objects)):
        inside = world.provider.handler(world.account, each.kind) is None
        if not inside and not each.key.startswith("net/"):
            await world.delete(each)
    order = world.audit(emptied=True)
    for kind in (
        "ClassicLoadBalancer",
        "LoadBalancerSecurityGroup",
        "ClusterSecurityGroup",
    ):
        (leftover,) = [
            each for each in world.provider.audit(order) if each.kind == kind
        ]
        world.provider.sweep(order, leftover)
    await world.delete_all(changed.objects)
    assert limited.remains() == []
    refused = [each for each in limited.ledger() if "Denied" in each.error]
    refused += [each for each in limited.ledger() if "Unauthorized" in each.error]
    assert refused == []


@pytest.mark.slow
async def test_without_a_right_the_call_is_refused_with_its_name(
    aws: FakeAws, world: World
) -> None:
    (vpc,) = [each for each in world.plan().objects if each.key == "net/vpc"]
    limit(aws, "operate")
    try:
        with pytest.raises(PermissionDenied) as caught:
            await world.ensure(vpc)
    finally:
        aws.account.policies.clear()
    new = f"arn:aws:ec2:us-east-2:{aws.account.number}:vpc/new"
    assert caught.value.message == (
        "the credential may not ec2:CreateVpc: ec2 create_vpc: UnauthorizedOperation: You "
        f"are not authorized to perform this operation. User: {aws.credential.principal} "
        f"is not authorized to perform: ec2:CreateVpc on resource: {new} because no "
        "identity-based policy allows the ec2:CreateVpc action."
    )
