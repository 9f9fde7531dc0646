"""Translate errors of AWS into errors of `api_types.errors`.

The same code means different things for different calls. If an object is missing, its
deletion is complete. In the creation of another object, the same code means that AWS
has not propagated the missing object yet. So an error is interpreted together with the
purpose of its call.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from botocore import exceptions as aws

from activities.clouds.clock import clock_wrong, is_wrong, offset_of, seconds_between
from activities.clouds.eks.texts import class_by_text, next_step
from api_types.errors import (
    Busy,
    CapacityUnavailable,
    CloudObjectBroken,
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
    Throttled,
    TransientError,
)
from api_types.text.printable import escaped

ROLE_SECONDS = 120.0
"""Seconds after the creation of a role during which services may not know it."""


class Purpose(StrEnum):
    READ = "read"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


_TEXT_MAX = 400
_RETRY_AFTER_MAX = 300

_EXISTS = frozenset(
    {
        "ResourceInUseException",
        "EntityAlreadyExists",
        "RouteAlreadyExists",
        "Resource.AlreadyAssociated",
        "InvalidGroup.Duplicate",
        "InvalidPermission.Duplicate",
        "InvalidLaunchTemplateName.AlreadyExistsException",
        "InvalidSubnet.Conflict",
        "FileSystemAlreadyExists",
        "MountTargetConflict",
    }
)
# For example `InvalidVpcID.NotFound`, `NatGatewayNotFound`,
# `ResourceNotFoundException`.
_MISSING = re.compile(
    r".*NotFound(Exception)?|NoSuch(Entity|Resource)(Exception)?|Gateway\.NotAttached"
)

_CLASSES: Mapping[type[ModelplaneError], frozenset[str]] = {
    Throttled: frozenset(
        {
            "Throttling",
            "ThrottlingException",
            "ThrottledException",
            "RequestThrottled",
            "RequestThrottledException",
            "TooManyRequestsException",
            "TooManyRequests",
            "RequestLimitExceeded",
            "SlowDown",
            "EC2ThrottledException",
            "PriorRequestNotComplete",
            "BandwidthLimitExceeded",
            # IAM reports its quota as `LimitExceeded`. AWS's own client treats this code
            # as a rate limit.
            "LimitExceededException",
        }
    ),
    ServerError: frozenset(
        {
            "ServerException",
            "ServiceUnavailableException",
            "ServiceUnavailable",
            "InternalError",
            "InternalFailure",
            "InternalServerError",
            "ServiceFailure",
            "Unavailable",
            "IDPCommunicationError",
        }
    ),
    CredentialsInvalid: frozenset(
        {
            "ExpiredToken",
            "ExpiredTokenException",
            "RequestExpired",
            "InvalidClientTokenId",
            "UnrecognizedClientException",
            "SignatureDoesNotMatch",
            "InvalidSignatureException",
            "IncompleteSignature",
            "AuthFailure",
        }
    ),
    PermissionDenied: frozenset(
        {
            "UnauthorizedOperation",
            "AccessDenied",
            "AccessDeniedException",
            "OptInRequired",
            "PendingVerification",
            "Blocked",
            "RegionDisabledException",
            "DependencyAccessDeniedException",
        }
    ),
    QuotaExceeded: frozenset(
        {
            "VpcLimitExceeded",
            "SubnetLimitExceeded",
            "InternetGatewayLimitExceeded",
            "AddressLimitExceeded",
            "NatGatewayLimitExceeded",
            "RouteTableLimitExceeded",
            "SecurityGroupLimitExceeded",
            "RulesPerSecurityGroupLimitExceeded",
            "VcpuLimitExceeded",
            "ResourceLimitExceededException",
            "LimitExceeded",
            "ServiceQuotaExceededException",
            "FileSystemLimitExceeded",
            "NetworkInterfaceLimitExceeded",
            "InstanceLimitExceeded",
            "AccessPointLimitExceeded",
            "MaxSpotInstanceCountExceeded",
        }
    ),
    CapacityUnavailable: frozenset(
        {
            "InsufficientInstanceCapacity",
            "InsufficientHostCapacity",
            "InsufficientReservedInstanceCapacity",
            "InsufficientThroughputCapacity",
            "ReservationCapacityExceeded",
            "UnfulfillableCapacity",
        }
    ),
    NotYet: frozenset({"ResourcePropagationDelayException"}),
    # Another client changes the same object at the same time.
    Busy: frozenset(
        {
            "EntityTemporarilyUnmodifiable",
            "ConcurrentModification",
            "ConcurrentModificationException",
            "ConcurrentTagAccess",
            "IncorrectState",
            "IncorrectMountTargetState",
            "ResourceBusy",
        }
    ),
}
_CLASS_OF = {code: error for error, codes in _CLASSES.items() for code in codes}

_BUSY_TO_CHANGE = frozenset({"ResourceInUseException", "InvalidStateException"})
_IN_USE = frozenset(
    {
        "DependencyViolation",
        "ResourceInUseException",
        "ResourceInUse",
        "DeleteConflict",
        "FileSystemInUse",
        "DependencyTimeout",
        "Ec2SecurityGroupDeletionFailure",
        "InvalidIPAddress.InUse",
        "InvalidNetworkInterface.InUse",
        "VolumeInUse",
        "OperationNotPermitted",
    }
)
# Codes of health issues of node groups, clusters and add-ons, and of failed updates.
# Other codes need a person.
_ISSUES: Mapping[str, type[ModelplaneError]] = {
    "InstanceLimitExceeded": QuotaExceeded,
    "IamLimitExceeded": QuotaExceeded,
    "LimitExceeded": QuotaExceeded,
    "ResourceLimitExceeded": QuotaExceeded,
    "EniLimitReached": QuotaExceeded,
    "Ec2LaunchTemplateMaxLimitExceeded": QuotaExceeded,
    "Ec2LaunchTemplateVersionMaxLimitExceeded": QuotaExceeded,
    "AsgInstanceLaunchFailures": CapacityUnavailable,
    "AccessDenied": PermissionDenied,
    "AddonPermissionFailure": PermissionDenied,
    "Ec2ServiceNotSubscribed": PermissionDenied,
    "AutoScalingGroupOptInRequired": PermissionDenied,
    "KmsGrantRevoked": PermissionDenied,
    "IamThrottling": Throttled,
    "AutoScalingGroupRateLimitExceeded": Throttled,
    "InternalFailure": ServerError,
    "Ec2InstanceTypeDoesNotExist": InvalidInput,
    "InsufficientFreeAddresses": InvalidInput,
    "KubernetesLabelInvalid": InvalidInput,
    "NodeCreationFailure": CloudObjectBroken,
}
_ROLE_WORDS = re.compile(
    r"\brole\b.*(assum|not exist|not found|cannot be found)", re.IGNORECASE | re.DOTALL
)
# STS, IAM and services with JSON answer with the time of the signature, and with AWS's
# time in parentheses.
_SIGNED_AT = re.compile(
    r"Signature (?:expired|not yet current): (\d{8}T\d{6}Z) is .*\((\d{8}T\d{6}Z) [+-] "
)
_CLOCK_CODES = frozenset({"RequestTimeTooSkewed", "RequestInTheFuture"})
# Calls that botocore makes itself, before a call with the keys of a role.
_ROLE_CALLS = frozenset({"AssumeRole", "AssumeRoleWithWebIdentity"})
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_ACTION = re.compile(r"(?:perform: |permissions for ')([a-z0-9-]+:[A-Za-z0-9]+)")
# With these codes the account itself may not use the service. Policies do not matter.
_ACCOUNT = frozenset(
    {"OptInRequired", "PendingVerification", "Blocked", "RegionDisabledException"}
)


def code_of(error: aws.ClientError) -> str:
    """Return the code of an error response."""
    return str(error.response.get("Error", {}).get("Code", ""))


def is_of_role(error: aws.ClientError) -> bool:
    """Return True if STS refused the role of the credential, before the call itself."""
    return error.operation_name in _ROLE_CALLS


def says_missing(error: aws.ClientError) -> bool:
    """Return True if the object of the call, or a part of it, does not exist."""
    return _MISSING.fullmatch(code_of(error)) is not None


def says_exists(error: aws.ClientError) -> bool:
    """Return True if the created object exists already. It may have any owner.

    EKS has one code for an existing object and for a running operation.
    """
    code = code_of(error)
    return code in _EXISTS and class_by_text(code, _message(error)) is not Busy


def says_role(error: aws.ClientError) -> bool:
    """Return True if a service rejects a role that may not be propagated yet."""
    return (
        code_of(error).startswith("InvalidParameter")
        and _ROLE_WORDS.search(_message(error)) is not None
    )


def issue_error(code: str, text: str) -> type[ModelplaneError] | None:
    """Return the error class of a health issue or of a failed update.

    Returns None for issues that neither their code nor their text explains.
    """
    return class_by_text(code, text) or _ISSUES.get(code)


def failure(
    error: Exception,
    service: str,
    operation: str,
    purpose: Purpose,
    *,
    hide: Sequence[str] = (),
    role_seconds: float | None = None,
    now: float | None = None,
) -> ModelplaneError:
    """Return the error of a failed call.

    `hide` are texts of the credential, `role_seconds` is the age of the role that the
    call names, and `now` is the worker's time in seconds since 1970. Messages contain
    service, operation and code, and AWS's own text unless it is about the credential.
    """
    where = f"{service} {operation}"
    if isinstance(error, aws.ClientError):
        if is_of_role(error):
            where, operation = f"sts {error.operation_name}", ""
            purpose = Purpose.CREATE
        offset = _clock_offset(error, now)
        if code_of(error) in _CLOCK_CODES or (
            is_wrong(offset)
            and _class_of(error, operation, purpose, None) is CredentialsInvalid
        ):
            return clock_wrong(where, "AWS", offset)
        return _refused(
            error, where, operation, purpose, hide=hide, role_seconds=role_seconds
        )
    name = type(error).__name__
    if isinstance(error, aws.ParamValidationError):
        return InvalidInput(f"{where}: {_clean(str(error), hide)}")
    if isinstance(
        error,
        aws.NoCredentialsError
        | aws.PartialCredentialsError
        | aws.CredentialRetrievalError,
    ):
        return CredentialsInvalid(f"{where}: {name}")
    if isinstance(
        error,
        aws.InvalidRegionError | aws.UnknownServiceError | aws.UnknownEndpointError,
    ):
        return InvalidInput(f"{where}: {_clean(str(error), hide)}")
    return ServerError(f"{where}: no usable response ({name})")


def _refused(
    error: aws.ClientError,
    where: str,
    operation: str,
    purpose: Purpose,
    *,
    hide: Sequence[str],
    role_seconds: float | None,
) -> ModelplaneError:
    code = code_of(error)
    parts = where, _clean(code, hide), _clean(_message(error), hide)
    text = ": ".join(parts).rstrip(": ")
    if step := next_step(code, _message(error)):
        text = f"{text}; {step}"
    found = _class_of(error, operation, purpose, role_seconds)
    if is_of_role(error) and not issubclass(found, TransientError):
        return CredentialsInvalid(
            f"{text}; the trust policy of the role must name the identity that assumes it, "
            "and the external ID of the credential"
        )
    if found is CredentialsInvalid:
        # AWS quotes the request, which may contain the session token.
        return CredentialsInvalid(
            f"{where}: AWS rejects the credential ({_clean(code, hide)})"
        )
    if found is PermissionDenied and code not in _ACCOUNT:
        return PermissionDenied(
            f"the credential may not {_action(error, where)}: {text}"
        )
    return (
        Throttled(text, after=_retry_after(error))
        if found is Throttled
        else found(text)
    )


def _action(error: aws.ClientError, where: str) -> str:
    """Return the action in policies that was denied. EC2's text often names none."""
    if named := _ACTION.search(_message(error)):
        return named[1]
    service, _, operation = where.partition(" ")
    if service != "ec2":
        return where
    return f"ec2:{''.join(word.capitalize() for word in operation.split('_'))}"


def _class_of(
    error: aws.ClientError, operation: str, purpose: Purpose, role_seconds: float | None
) -> type[ModelplaneError]:
    code = code_of(error)
    by_text = class_by_text(code, _message(error))
    if by_text is not None and not (
        purpose is Purpose.DELETE and by_text in (InvalidInput, QuotaExceeded)
    ):
        return by_text
    if purpose is Purpose.DELETE and (
        code in _IN_USE or (code == "AuthFailure" and operation == "release_address")
    ):
        # EC2 reports an ownership error for an address whose NAT gateway is not gone.
        return Dependency
    if known := _CLASS_OF.get(code):
        return known
    if says_role(error):
        return (
            NotYet
            if role_seconds is not None and role_seconds < ROLE_SECONDS
            else InvalidInput
        )
    if says_missing(error):
        return NotYet
    if code == "IncorrectFileSystemLifeCycleState":
        return Busy if purpose is Purpose.DELETE else NotYet
    if code in _BUSY_TO_CHANGE:
        return Busy
    return _by_status(
        int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)),
        purpose,
    )


def _by_status(status: int, purpose: Purpose) -> type[ModelplaneError]:
    """Return the error class for a code that is not in the table."""
    known = {
        HTTPStatus.UNAUTHORIZED: CredentialsInvalid,
        HTTPStatus.FORBIDDEN: PermissionDenied,
        HTTPStatus.TOO_MANY_REQUESTS: Throttled,
    }
    if status in known:
        return known[HTTPStatus(status)]
    refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    # A rejected deletion may succeed after another change. A rejected creation has
    # invalid input.
    return (
        InvalidInput
        if refused and purpose in (Purpose.CREATE, Purpose.UPDATE)
        else ServerError
    )


def _clock_offset(error: aws.ClientError, now: float | None) -> float | None:
    """Return the seconds by which the worker's clock is ahead, if AWS shows its time."""
    if signed := _SIGNED_AT.search(_message(error)):
        return seconds_between(signed[1], signed[2])
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    return None if now is None else offset_of(headers, now)


def _retry_after(error: aws.ClientError) -> timedelta | None:
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    seconds = str(headers.get("retry-after", ""))
    if not (seconds.isascii() and seconds.isdigit()):
        return None
    return timedelta(seconds=min(int(seconds), _RETRY_AFTER_MAX))


def _message(error: aws.ClientError) -> str:
    given: Any = error.response.get("Error", {}).get("Message", "")
    return given if isinstance(given, str) else ""


def _clean(text: str, hide: Sequence[str]) -> str:
    """Return AWS's text on one line, without encoded parts and without the credential."""
    text = _ENCODED.sub("", text)
    for secret in hide:
        text = text.replace(secret, "(hidden)")
    text = escaped(" ".join(text.split()))
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]} ..."
