"""A wrong clock of the worker is no wrong credential."""

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from activities.clouds.eks.failures import Purpose, failure
from api_types.errors import CredentialsInvalid, WorkerClockWrong
from fakes.aws.fake import FakeAws
from tests.activities.clouds.eks.world import provider_of

NOW = 1_706_745_600.0  # 2024-02-01 00:00:00
SAME, EARLIER = "Thu, 01 Feb 2024 00:00:10 GMT", "Wed, 31 Jan 2024 23:43:00 GMT"
NEXT = (
    "so AWS refuses its signatures; synchronize the clock of the machine of the worker "
    "(NTP). The credential may be valid"
)
# Texts like those of https://github.com/devsecops/bootcamp/issues/101,
# https://github.com/convox/rack/issues/235 and
# https://github.com/aws/aws-sdk-js/issues/2565
ANSWERS: list[tuple[str, str, str, type[CredentialsInvalid], str]] = [
    (
        "SignatureDoesNotMatch",
        (
            "Signature expired: 20240131T233000Z is now earlier than 20240131T235500Z "
            "(20240201T000000Z - 5 min.)"
        ),
        SAME,
        WorkerClockWrong,
        f"the clock of the worker is 30 minutes off, behind AWS, {NEXT}",
    ),
    (
        "InvalidSignatureException",
        (
            "Signature not yet current: 20240201T001800Z is still later than "
            "20240201T000500Z (20240201T000000Z + 5 min.)"
        ),
        "",
        WorkerClockWrong,
        f"the clock of the worker is 18 minutes off, ahead of AWS, {NEXT}",
    ),
    (
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
        "",
        WorkerClockWrong,
        f"the clock of the worker is not that of AWS, {NEXT}",
    ),
    (
        "RequestExpired",
        "Request has expired.",
        EARLIER,
        WorkerClockWrong,
        f"the clock of the worker is 17 minutes off, ahead of AWS, {NEXT}",
    ),
    (
        "AuthFailure",
        "AWS was not able to validate the provided access credentials",
        EARLIER,
        WorkerClockWrong,
        f"the clock of the worker is 17 minutes off, ahead of AWS, {NEXT}",
    ),
    (
        "AuthFailure",
        "AWS was not able to validate the provided access credentials",
        SAME,
        CredentialsInvalid,
        "AWS rejects the credential (AuthFailure)",
    ),
    (
        "SignatureDoesNotMatch",
        "The request signature we calculated does not match",
        "no date",
        CredentialsInvalid,
        "AWS rejects the credential (SignatureDoesNotMatch)",
    ),
]


@pytest.mark.parametrize(("code", "text", "date", "kind", "why"), ANSWERS)
def test_an_answer_about_the_clock_names_the_difference(
    code: str, text: str, date: str, kind: type[CredentialsInvalid], why: str
) -> None:
    answer: Any = {
        "Error": {"Code": code, "Message": text},
        "ResponseMetadata": {"HTTPStatusCode": 403, "HTTPHeaders": {"date": date}},
    }
    found = failure(
        ClientError(answer, "DescribeVpcs"),
        "ec2",
        "describe_vpcs",
        Purpose.READ,
        now=NOW,
    )
    assert (type(found), found.message) == (kind, f"ec2 describe_vpcs: {why}")


def test_a_missing_permission_stays_one_with_a_wrong_clock() -> None:
    answer: Any = {
        "Error": {"Code": "UnauthorizedOperation", "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": 403, "HTTPHeaders": {"date": EARLIER}},
    }
    error = ClientError(answer, "DescribeVpcs")
    found = failure(error, "ec2", "describe_vpcs", Purpose.READ, now=NOW)
    assert type(found).__name__ == "PermissionDenied"


@pytest.fixture
def skewed(aws: FakeAws) -> Iterator[FakeAws]:
    aws.set_clock(-720.0)
    yield aws
    aws.set_clock(0.0)


@pytest.mark.slow
@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("service", "operation"),
    [
        ("sts", "get_caller_identity"),
        ("ec2", "describe_vpcs"),
        ("eks", "list_clusters"),
        ("iam", "list_roles"),
        ("efs", "describe_file_systems"),
    ],
)
def test_every_service_reports_the_clock(
    skewed: FakeAws, service: str, operation: str
) -> None:
    with pytest.raises(WorkerClockWrong) as caught:
        provider_of(skewed).clients.read(service, operation)
    assert caught.value.message == (
        f"{service} {operation}: the clock of the worker is 12 minutes off, ahead of AWS, "
        f"{NEXT}"
    )
