"""The checks of permissions and quotas at a fake AWS before anything is created."""

import json
from pathlib import Path

import pytest

from activities.clouds.desired.plan import PlanProblem
from activities.clouds.eks.rights import RIGHTS
from api_types.errors import CredentialsInvalid, PermissionDenied
from fakes.aws.fake import FakeAws
from fakes.aws.faults import AwsFault, FaultKind
from tests.activities.clouds.builders import BLOCK, an_eks_pool, warned
from tests.activities.clouds.eks.world import World

pytestmark = pytest.mark.slow

VPCS, ADDRESSES, G_CORES, P_CORES = (
    "L-F678F1CE",
    "L-0263D0A3",
    "L-DB2E81BA",
    "L-417A185B",
)
G6_CORES, P5EN_CORES = 8, 192


def test_permissions_to_create_and_delete_are_checked_once(
    aws: FakeAws, world: World
) -> None:
    assert warned(world.plan()) == []
    asked = aws.ledger("SimulatePrincipalPolicy")
    actions = [action for each in asked for action in each.parameters["ActionNames"]]
    rights = {action for actions in RIGHTS.values() for action in actions}
    assert sorted(actions) == sorted(rights)
    for each in asked:
        assert each.parameters["PolicySourceArn"].endswith(":role/provisioner")
    world.known["net/vpc"] = {"id": "vpc-1"}
    world.plan()
    assert len(aws.ledger("SimulatePrincipalPolicy")) == len(asked)


@pytest.mark.parametrize("lacking", RIGHTS)
def test_rights_without_a_policy_are_named_with_their_document(
    aws: FakeAws, world: World, lacking: str
) -> None:
    folder = Path(__file__).parents[4] / "deploy" / "clouds" / "aws"
    documents = {
        name: json.loads((folder / f"{name}.json").read_text()) for name in RIGHTS
    }
    aws.limit("role/provisioner", *documents.values())
    assert world.plan().warnings == ()
    reading = documents.pop(lacking) if lacking == "operate" else None
    documents.pop(lacking, None)
    if reading:
        # Reads are needed for the check itself.
        documents["reads"] = {"Statement": reading["Statement"][:1]}
    aws.limit("role/provisioner", *documents.values())
    principal = f"arn:aws:iam::{aws.account.number}:role/provisioner"
    granted = {
        action
        for document in documents.values()
        for statement in document["Statement"]
        for action in statement["Action"]
    }
    actions = ", ".join(each for each in RIGHTS[lacking] if each not in granted)
    (warning,) = world.plan().warnings
    aws.account.policies.clear()
    assert warning == PlanProblem(
        "PermissionDenied",
        "",
        f"no policy allows {actions} to {principal} for all objects; attach "
        f"deploy/clouds/aws/{lacking}.json, or objects wait for these actions",
    )
    assert aws.remains() == []


def test_an_action_that_no_policy_allows_is_a_warning(
    aws: FakeAws, world: World
) -> None:
    aws.cloud.denied.update(
        {
            "iam:PassRole": "implicitDeny",
            "eks:CreateCluster": "explicitDeny without aws:RequestedRegion",
        }
    )
    (warning,) = world.plan().warnings
    assert (warning.reason, warning.at) == ("PermissionDenied", "")
    assert warning.text.startswith("no policy allows iam:PassRole to arn:aws:iam::")
    assert "eks:CreateCluster" not in warning.text


def test_an_explicitly_denied_action_is_refused_before_the_first_creation(
    aws: FakeAws, world: World
) -> None:
    aws.cloud.denied["eks:CreateCluster"] = "explicitDeny"
    with pytest.raises(
        PermissionDenied, match="a policy forbids eks:CreateCluster to arn:aws:iam::"
    ):
        world.plan()
    assert aws.remains() == []


@pytest.mark.parametrize(
    "operation",
    ["SimulatePrincipalPolicy", "GetServiceQuota", "DescribeVpcs", "DescribeInstances"],
)
def test_a_check_without_permission_is_skipped_with_a_warning(
    aws: FakeAws, world: World, operation: str
) -> None:
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation=operation,
            code="AccessDeniedException",
            message="not authorized",
        )
    )
    desired = world.plan()
    assert (desired.refused, warned(desired), aws.faults_left()) == (
        (),
        [("CheckSkipped", "")],
        [],
    )
    assert len(desired.objects) > 20


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        ("SimulatePrincipalPolicy", "ValidationError"),
        ("GetServiceQuota", "IllegalArgumentException"),
    ],
)
def test_a_failed_advisory_check_does_not_block_the_plan(
    aws: FakeAws, world: World, operation: str, code: str
) -> None:
    """IAM cannot simulate a root or federated user, and Service Quotas may be
    unavailable.
    """
    aws.fault(
        AwsFault(
            FaultKind.REFUSE, operation=operation, code=code, message="not for you"
        )
    )
    desired = world.plan()
    assert (desired.refused, warned(desired), aws.faults_left()) == (
        (),
        [("CheckSkipped", "")],
        [],
    )
    assert len(desired.objects) > 20


@pytest.mark.parametrize("operation", ["SimulatePrincipalPolicy", "GetServiceQuota"])
def test_a_credential_that_a_check_rejects_is_an_error(
    aws: FakeAws, world: World, operation: str
) -> None:
    aws.fault(
        AwsFault(
            FaultKind.REFUSE,
            operation=operation,
            code="ExpiredToken",
            message="expired",
        )
    )
    with pytest.raises(CredentialsInvalid):
        world.plan()


QUOTAS = [
    pytest.param(
        (
            VPCS,
            1,
            "",
            "VPCs per region (quota L-F678F1CE of vpc): 1 needed, 0 of 1 left in us-east-2",
        ),
        id="vpcs",
    ),
    pytest.param(
        (
            ADDRESSES,
            0,
            "",
            "elastic IP addresses (quota L-0263D0A3 of ec2): 1 needed, 0 of 0 left",
        ),
        id="addresses",
    ),
    pytest.param(
        (
            G_CORES,
            7,
            "pool gpu",
            "G and VT instances (quota L-DB2E81BA of ec2): 8 needed, 7 of 7 left",
        ),
        id="g",
    ),
]


@pytest.mark.parametrize("case", QUOTAS)
def test_a_quota_that_leaves_too_little_is_a_warning(
    aws: FakeAws, world: World, case: tuple[str, int, str, str]
) -> None:
    code, limit, at, text = case
    aws.cloud.quotas[code] = limit
    desired = world.plan(an_eks_pool(nodeCount=1))
    assert (warned(desired), desired.refused) == ([("QuotaExceeded", at)], ())
    assert text in desired.warnings[0].text
    aws.cloud.quotas[code] = limit + G6_CORES
    assert warned(world.plan(an_eks_pool(nodeCount=1))) == []


def test_machines_that_run_use_the_quota_and_capacity_blocks_do_not(
    aws: FakeAws, world: World
) -> None:
    aws.cloud.quotas[P_CORES] = P5EN_CORES
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 4)
    block = an_eks_pool(
        "block",
        className="p5en",
        nodeCount=4,
        capacityBlock={"capacityReservationId": BLOCK},
        zones=["us-east-2a"],
    )
    pool = an_eks_pool("p5en", className="p5en", nodeCount=1)
    assert ("QuotaExceeded", "pool p5en") not in warned(world.plan(block, pool))
    client = aws.client("ec2")
    client.run_instances(
        ImageId="ami-12345678", InstanceType="p4d.24xlarge", MinCount=1, MaxCount=1
    )
    assert ("QuotaExceeded", "pool p5en") in warned(world.plan(block, pool))


def test_existing_objects_are_not_counted_again(aws: FakeAws, world: World) -> None:
    aws.cloud.quotas.update({VPCS: 0, ADDRESSES: 0, G_CORES: 0})
    world.known.update({key: {"id": key} for key in ("net/vpc", "net/eip", "pool/gpu")})
    assert warned(world.plan(an_eks_pool())) == []
    assert aws.ledger(service="service-quotas") == []
