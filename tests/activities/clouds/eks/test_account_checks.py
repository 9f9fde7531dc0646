"""What is asked about an account at a fake AWS before anything is created: permissions and quotas (provisioning.md 3.6)."""

import pytest

from api_types.errors import CredentialsInvalid, PermissionDenied
from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.aws.faults import Fault, Kind
from tests.activities.clouds.builders import BLOCK, an_eks_pool, warned
from tests.activities.clouds.eks.world import World

pytestmark = pytest.mark.slow

VPCS, ADDRESSES, G_CORES, P_CORES = "L-F678F1CE", "L-0263D0A3", "L-DB2E81BA", "L-417A185B"
G6_CORES, P5EN_CORES = 8, 192


def test_prv_3_6_a_credential_that_may_do_all_is_asked_once_about_what_creates_and_deletes(aws: FakeAws, world: World) -> None:
    assert warned(world.plan()) == []
    (asked,) = aws.ledger("SimulatePrincipalPolicy")
    actions = asked.parameters["ActionNames"]
    assert {"iam:PassRole", "ec2:CreateVpc", "ec2:DeleteVpc", "eks:CreateNodegroup", "eks:DeleteCluster"} <= set(actions)
    assert {"elasticfilesystem:CreateFileSystem", "iam:CreateRole", "iam:DeletePolicy"} <= set(actions)
    assert str(asked.parameters["PolicySourceArn"]).endswith(":role/provisioner")
    world.known["net/vpc"] = {"id": "vpc-1"}
    world.plan()
    assert len(aws.ledger("SimulatePrincipalPolicy")) == 1


def test_prv_3_6_what_no_policy_allows_is_a_warning(aws: FakeAws, world: World) -> None:
    aws.cloud.denied.update({"iam:PassRole": "implicitDeny", "eks:CreateCluster": "explicitDeny without aws:RequestedRegion"})
    (warning,) = world.plan().warnings
    assert (warning.reason, warning.at) == ("PermissionDenied", "")
    assert warning.text.startswith("no policy allows iam:PassRole to arn:aws:iam::")
    assert "eks:CreateCluster" not in warning.text


def test_prv_3_6_what_a_policy_forbids_is_refused_before_anything_is_created(aws: FakeAws, world: World) -> None:
    aws.cloud.denied["eks:CreateCluster"] = "explicitDeny"
    with pytest.raises(PermissionDenied, match="a policy forbids eks:CreateCluster to arn:aws:iam::"):
        world.plan()
    assert aws.remains() == []


@pytest.mark.parametrize("operation", ["SimulatePrincipalPolicy", "GetServiceQuota", "DescribeVpcs", "DescribeInstances"])
def test_prv_3_6_what_may_not_be_asked_is_left_out_with_a_warning(aws: FakeAws, world: World, operation: str) -> None:
    aws.fault(Fault(Kind.REFUSE, operation=operation, code="AccessDeniedException", message="not authorized"))
    desired = world.plan()
    assert (desired.refused, warned(desired), aws.faults_left()) == ((), [("CheckSkipped", "")], [])
    assert len(desired.objects) > 20


@pytest.mark.parametrize(
    ("operation", "code"),
    [("SimulatePrincipalPolicy", "ValidationError"), ("GetServiceQuota", "IllegalArgumentException")],
)
def test_prv_3_6_a_check_that_only_warns_stops_nothing_whatever_it_is_answered(
    aws: FakeAws, world: World, operation: str, code: str
) -> None:
    """IAM simulates nothing for a root or federated user; Service Quotas may be out of reach."""
    aws.fault(Fault(Kind.REFUSE, operation=operation, code=code, message="not for you"))
    desired = world.plan()
    assert (desired.refused, warned(desired), aws.faults_left()) == ((), [("CheckSkipped", "")], [])
    assert len(desired.objects) > 20


@pytest.mark.parametrize("operation", ["SimulatePrincipalPolicy", "GetServiceQuota"])
def test_prv_18_a_credential_that_is_refused_by_a_check_is_no_warning(aws: FakeAws, world: World, operation: str) -> None:
    aws.fault(Fault(Kind.REFUSE, operation=operation, code="ExpiredToken", message="expired"))
    with pytest.raises(CredentialsInvalid):
        world.plan()


QUOTAS = [
    pytest.param((VPCS, 1, "", "VPCs per region (quota L-F678F1CE of vpc): 1 needed, 0 of 1 left in us-east-2"), id="vpcs"),
    pytest.param((ADDRESSES, 0, "", "elastic IP addresses (quota L-0263D0A3 of ec2): 1 needed, 0 of 0 left"), id="addresses"),
    pytest.param((G_CORES, 7, "pool gpu", "G and VT instances (quota L-DB2E81BA of ec2): 8 needed, 7 of 7 left"), id="g"),
]


@pytest.mark.parametrize("case", QUOTAS)
def test_prv_3_6_a_quota_that_leaves_too_little_is_a_warning(aws: FakeAws, world: World, case: tuple[str, int, str, str]) -> None:
    code, limit, at, text = case
    aws.cloud.quotas[code] = limit
    desired = world.plan(an_eks_pool(nodeCount=1))
    assert (warned(desired), desired.refused) == ([("QuotaExceeded", at)], ())
    assert text in desired.warnings[0].text
    aws.cloud.quotas[code] = limit + G6_CORES
    assert warned(world.plan(an_eks_pool(nodeCount=1))) == []


def test_prv_3_6_machines_that_run_use_the_quota_and_capacity_blocks_do_not(aws: FakeAws, world: World) -> None:
    aws.cloud.quotas[P_CORES] = P5EN_CORES
    aws.plant_reservation(BLOCK, "us-east-2a", "p5en.48xlarge", 4)
    block = an_eks_pool("block", className="p5en", nodeCount=4, capacityBlock={"capacityReservationId": BLOCK}, zones=["us-east-2a"])
    pool = an_eks_pool("p5en", className="p5en", nodeCount=1)
    assert ("QuotaExceeded", "pool p5en") not in warned(world.plan(block, pool))
    client = aws.client("ec2")
    client.run_instances(ImageId="ami-12345678", InstanceType="p4d.24xlarge", MinCount=1, MaxCount=1)
    assert ("QuotaExceeded", "pool p5en") in warned(world.plan(block, pool))


def test_prv_3_6_what_is_there_is_not_counted_again(aws: FakeAws, world: World) -> None:
    aws.cloud.quotas.update({VPCS: 0, ADDRESSES: 0, G_CORES: 0})
    world.known.update({key: {"id": key} for key in ("net/vpc", "net/eip", "pool/gpu")})
    assert warned(world.plan(an_eks_pool())) == []
    assert aws.ledger(service="service-quotas") == []
