"""The error class of each code of AWS. No message contains a credential."""

from datetime import timedelta
from typing import Any

import pytest
from botocore import exceptions as aws

from activities.clouds.eks.failures import (
    Purpose,
    failure,
    issue_error,
    says_exists,
    says_missing,
)
from api_types import errors

READ, CREATE, UPDATE, DELETE = Purpose
SECRET = "wJalrXUtnFEMIabcdefghijklmnop"  # noqa: S105 - made up


def refusal(
    code: str, message: str = "no", status: int = 400, **headers: str
) -> aws.ClientError:
    answer: Any = {
        "Error": {"Code": code, "Message": message},
        "ResponseMetadata": {
            "HTTPStatusCode": status,
            "HTTPHeaders": {
                name.replace("_", "-"): value for name, value in headers.items()
            },
        },
    }
    return aws.ClientError(answer, "Operation")


def error_of(
    code: str, purpose: Purpose, operation: str = "create_x", **more: Any
) -> str:
    message = more.pop("message", "no")
    status = more.pop("status", 400)
    return type(
        failure(refusal(code, message, status), "ec2", operation, purpose, **more)
    ).__name__


THROTTLED = (
    "Throttling ThrottlingException ThrottledException "
    "RequestThrottled RequestThrottledException "
    "TooManyRequestsException TooManyRequests "
    "RequestLimitExceeded SlowDown EC2ThrottledException "
    "PriorRequestNotComplete BandwidthLimitExceeded "
    "LimitExceededException"
)
TRANSIENT = (
    "ServerException ServiceUnavailableException InternalError "
    "InternalFailure InternalServerError ServiceFailure Unavailable"
)
CREDENTIALS = (
    "ExpiredToken ExpiredTokenException RequestExpired "
    "InvalidClientTokenId UnrecognizedClientException "
    "SignatureDoesNotMatch AuthFailure"
)
PERMISSION = "UnauthorizedOperation AccessDenied AccessDeniedException OptInRequired"
QUOTA = (
    "VpcLimitExceeded SubnetLimitExceeded "
    "InternetGatewayLimitExceeded AddressLimitExceeded "
    "NatGatewayLimitExceeded "
    "RouteTableLimitExceeded SecurityGroupLimitExceeded RulesPerSecurityGroupLimitExceeded "
    "VcpuLimitExceeded ResourceLimitExceededException LimitExceeded "
    "FileSystemLimitExceeded NetworkInterfaceLimitExceeded"
)
CAPACITY = "InsufficientInstanceCapacity ReservationCapacityExceeded"
MISSING = (
    "InvalidVpcID.NotFound InvalidSubnetID.NotFound "
    "InvalidGroup.NotFound NoSuchEntity ResourceNotFoundException "
    "NatGatewayNotFound"
)
INPUT = (
    "InvalidParameterException InvalidParameterValue InvalidRequestException Unsupported "
    "InvalidSubnet.Range UnsupportedAvailabilityZoneException "
    "UnsupportedAvailabilityZone "
    "MalformedPolicyDocument InvalidLaunchTemplateId.Malformed"
)
IN_USE = (
    "DependencyViolation ResourceInUseException DeleteConflict "
    "FileSystemInUse DependencyTimeout "
    "Ec2SecurityGroupDeletionFailure "
    "InvalidIPAddress.InUse"
)
EVERY = (READ, CREATE, UPDATE, DELETE)
ROWS: list[tuple[str, str, tuple[Purpose, ...]]] = [
    ("Throttled", THROTTLED, EVERY),
    ("ServerError", TRANSIENT, EVERY),
    ("CredentialsInvalid", CREDENTIALS, EVERY),
    ("PermissionDenied", PERMISSION, EVERY),
    ("QuotaExceeded", QUOTA, EVERY),
    ("CapacityUnavailable", CAPACITY, EVERY),
    ("NotYet", f"{MISSING} IncorrectFileSystemLifeCycleState", (CREATE, UPDATE)),
    (
        "Busy",
        "ResourceInUseException InvalidStateException",
        (UPDATE,),
    ),
    ("Dependency", IN_USE, (DELETE,)),
    ("InvalidInput", INPUT, (CREATE, UPDATE)),
]
TABLE = [
    (want, code, purpose)
    for want, codes, purposes in ROWS
    for code in codes.split()
    for purpose in purposes
]


@pytest.mark.parametrize(
    ("want", "code", "purpose"),
    TABLE,
    ids=[f"{code} {purpose}" for _, code, purpose in TABLE],
)
def test_codes(want: str, code: str, purpose: Purpose) -> None:
    assert error_of(code, purpose) == want


def test_releasing_the_address_of_an_existing_gateway_fails_as_if_it_were_foreign() -> (
    None
):
    assert error_of("AuthFailure", DELETE, "release_address") == "Dependency"
    assert error_of("AuthFailure", DELETE, "delete_vpc") == "CredentialsInvalid"


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_internal_errors_are_transient(status: int) -> None:
    assert {error_of("Odd", purpose, status=status) for purpose in EVERY} == {
        "ServerError"
    }


@pytest.mark.parametrize(
    ("status", "want"),
    [(401, "CredentialsInvalid"), (403, "PermissionDenied"), (429, "Throttled")],
)
def test_unknown_codes_are_classified_by_their_status(status: int, want: str) -> None:
    assert error_of("Odd", CREATE, status=status) == want


def test_an_unknown_code_is_invalid_input_only_for_a_write() -> None:
    assert [error_of("Odd", purpose) for purpose in EVERY] == [
        "ServerError",
        "InvalidInput",
        "InvalidInput",
        "ServerError",
    ]


ROLE_TEXTS = [
    "The role arn:aws:iam::1:role/x could not be assumed",
    "Role with arn: x, could not be assumed because it does not exist",
]


@pytest.mark.parametrize("text", ROLE_TEXTS)
@pytest.mark.parametrize(
    ("age", "want"),
    [
        (0.0, "NotYet"),
        (119.0, "NotYet"),
        (121.0, "InvalidInput"),
        (None, "InvalidInput"),
    ],
)
def test_a_new_role_may_be_unknown_for_two_minutes(
    text: str, age: float | None, want: str
) -> None:
    assert (
        error_of("InvalidParameterException", CREATE, message=text, role_seconds=age)
        == want
    )


EXISTS = (
    "ResourceInUseException EntityAlreadyExists RouteAlreadyExists "
    "Resource.AlreadyAssociated InvalidGroup.Duplicate "
    "InvalidPermission.Duplicate "
    "InvalidLaunchTemplateName.AlreadyExistsException "
    "InvalidSubnet.Conflict FileSystemAlreadyExists "
    "MountTargetConflict"
)


def test_codes_for_existing_objects() -> None:
    assert all(says_exists(refusal(code)) for code in EXISTS.split())
    assert not says_exists(refusal("VpcLimitExceeded"))


def test_the_code_of_an_existing_object_with_the_text_of_a_running_change() -> None:
    text = (
        "Cannot create Addon because cluster prod currently has an update in progress"
    )
    assert not says_exists(refusal("ResourceInUseException", text))
    assert error_of("ResourceInUseException", CREATE, message=text) == "Busy"


def test_a_new_launch_template_may_be_unknown_to_eks() -> None:
    text = "Launch template lt-1 not found"
    assert error_of("InvalidRequestException", CREATE, message=text) == "NotYet"


def test_a_launch_template_that_eks_refuses_is_a_defect_to_report() -> None:
    text = "Cannot specify instance types in launch template and API request"
    refused = refusal("InvalidRequestException", text)
    found = failure(refused, "eks", "create_nodegroup", CREATE)
    assert isinstance(found, errors.InvalidInput)
    assert found.message.endswith("about the launch template: report this text")


@pytest.mark.parametrize(
    ("code", "text", "want"),
    [
        (
            "ResourceInUseException",
            "you reached the limit of the cluster",
            "Dependency",
        ),
        (
            "InvalidRequestException",
            "Your requested instance type is not supported in your requested Availability Zone",
            "ServerError",
        ),
    ],
)
def test_a_refused_deletion_is_repeated_whatever_its_text_names(
    code: str, text: str, want: str
) -> None:
    assert error_of(code, DELETE, "delete_nodegroup", message=text) == want


def test_codes_for_missing_objects() -> None:
    codes = (
        f"{MISSING} Gateway.NotAttached "
        "InvalidLaunchTemplateName.NotFoundException "
        "FileSystemNotFound MountTargetNotFound"
    )
    assert all(says_missing(refusal(code)) for code in codes.split())
    assert not any(
        says_missing(refusal(code))
        for code in ("404", "DependencyViolation", "AccessDenied")
    )


CLIENT_ERRORS: list[tuple[aws.BotoCoreError, str]] = [
    (aws.EndpointConnectionError(endpoint_url="https://x"), "ServerError"),
    (aws.ReadTimeoutError(endpoint_url="https://x"), "ServerError"),
    (aws.ConnectionClosedError(endpoint_url="https://x"), "ServerError"),
    (aws.SSLError(endpoint_url="https://x", error="x"), "ServerError"),
    (aws.ParamValidationError(report="Unknown parameter"), "InvalidInput"),
    (aws.NoCredentialsError(), "CredentialsInvalid"),
]


@pytest.mark.parametrize(
    ("error", "want"),
    CLIENT_ERRORS,
    ids=[type(error).__name__ for error, _ in CLIENT_ERRORS],
)
def test_errors_of_the_client(error: Exception, want: str) -> None:
    assert type(failure(error, "ec2", "create_vpc", CREATE)).__name__ == want


ISSUES = [
    ("InstanceLimitExceeded", "", "QuotaExceeded"),
    ("IamLimitExceeded", "", "QuotaExceeded"),
    (
        "AsgInstanceLaunchFailures",
        "We currently do not have sufficient p5.48xlarge capacity",
        "CapacityUnavailable",
    ),
    (
        "AsgInstanceLaunchFailures",
        "VcpuLimitExceeded: you have requested more vCPU capacity than your current vCPU limit",
        "QuotaExceeded",
    ),
    (
        "Unknown",
        "We currently do not have sufficient p5.48xlarge capacity",
        "CapacityUnavailable",
    ),
    ("NodeCreationFailure", "Instances failed to join", "CloudObjectBroken"),
    ("ClusterUnreachable", "no answer", "None"),
]


@pytest.mark.parametrize(("code", "text", "want"), ISSUES)
def test_health_issues_of_node_groups(code: str, text: str, want: str) -> None:
    found = issue_error(code, text)
    assert (found.__name__ if found else "None") == want


def test_the_message_names_the_permission_that_is_missing() -> None:
    text = (
        "User: arn:aws:iam::1:user/x is not authorized to perform: "
        "ec2:CreateVpc on resource: y. Encoded authorization failure "
        "message: Zk"
    )
    found = failure(refusal("UnauthorizedOperation", text), "ec2", "create_vpc", CREATE)
    assert found.message.startswith(
        "the credential may not ec2:CreateVpc: ec2 create_vpc: UnauthorizedOperation: User:"
    )
    assert "Encoded" not in found.message


def test_the_permission_is_named_although_ec2_does_not() -> None:
    text = "You are not authorized to perform this operation."
    error = refusal("UnauthorizedOperation", text)
    found = failure(error, "ec2", "describe_nat_gateways", CREATE)
    assert found.message.startswith("the credential may not ec2:DescribeNatGateways: ")


def test_no_message_has_a_part_of_the_credential() -> None:
    canonical = (
        "The Canonical String for this request should have been "
        f"x-amz-security-token:{SECRET}"
    )
    for code in ("SignatureDoesNotMatch", "InvalidParameterValue", "Odd"):
        found = failure(
            refusal(code, canonical), "ec2", "create_vpc", CREATE, hide=(SECRET,)
        )
        assert SECRET not in repr(found) + found.message
        assert found.__cause__ is None
    assert (
        "Canonical"
        not in failure(
            refusal("SignatureDoesNotMatch", canonical), "ec2", "create_vpc", CREATE
        ).message
    )


def test_a_hint_of_the_server_delays_the_next_attempt_within_bounds() -> None:
    hinted = failure(refusal("Throttling", retry_after="7"), "ec2", "x", READ)
    absurd = failure(refusal("Throttling", retry_after="99999999"), "ec2", "x", READ)
    assert (hinted.next_retry_delay, absurd.next_retry_delay) == (
        timedelta(seconds=7),
        timedelta(seconds=300),
    )
    assert (
        failure(
            refusal("Throttling", retry_after="soon"), "ec2", "x", READ
        ).next_retry_delay
        is None
    )


def test_long_and_odd_texts_are_one_short_line() -> None:
    found = failure(refusal("Odd", "a\n\x1b[31m" + "x" * 5000), "ec2", "x", CREATE)
    assert len(found.message) < 600
    assert "\n" not in found.message
    assert "\x1b" not in found.message


def test_only_errors_of_the_project_are_raised() -> None:
    assert {want for want, _, _ in ROWS} <= set(errors._TYPES)
