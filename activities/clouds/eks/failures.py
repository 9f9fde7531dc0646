"""What AWS refuses a call with, as an error of this project: the one table (spec/provisioning.md 4.3).

The same code means different things of different calls: what is not there is the end of a delete, and of a create the sign that AWS does
not know everywhere yet what it was just told. So a failure is read together with the purpose of its call.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from http import HTTPStatus
from typing import Any

from botocore import exceptions as aws

from api_types.errors import (
    Busy,
    CapacityUnavailable,
    CredentialsInvalid,
    Dependency,
    InvalidInput,
    ModelplaneError,
    NotYet,
    PermissionDenied,
    QuotaExceeded,
    ServerError,
    Throttled,
)
from api_types.text.printable import escaped

ROLE_SECONDS = 120.0
"""How long after its creation a role may be unknown to the services that use it."""


class Purpose(StrEnum):
    """What a call is for."""

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
# `InvalidVpcID.NotFound`, `NatGatewayNotFound`, `ResourceNotFoundException` and so on.
_MISSING = re.compile(r".*NotFound(Exception)?|NoSuch(Entity|Resource)(Exception)?|Gateway\.NotAttached")

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
            # The quota of IAM is `LimitExceeded`; this one is of rates, and AWS's client takes it so too.
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
    PermissionDenied: frozenset({"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OptInRequired"}),
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
            "IamLimitExceeded",
        }
    ),
    CapacityUnavailable: frozenset({"InsufficientInstanceCapacity", "ReservationCapacityExceeded", "Unsupported"}),
    # Whoever else changes the same object at the same moment.
    Busy: frozenset(
        {"EntityTemporarilyUnmodifiable", "ConcurrentModification", "ConcurrentModificationException", "IncorrectState", "ResourceBusy"}
    ),
}
_CLASS_OF = {code: error for error, codes in _CLASSES.items() for code in codes}

_BUSY_TO_CHANGE = frozenset({"ResourceInUseException", "InvalidRequestException", "InvalidStateException"})
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
# Codes of health issues, which a person reads: what they say of the class of a failure. Of node groups, and the last of clusters too.
_ISSUES: Mapping[str, type[ModelplaneError]] = {
    "InstanceLimitExceeded": QuotaExceeded,
    "IamLimitExceeded": QuotaExceeded,
    "AsgInstanceLaunchFailures": CapacityUnavailable,
    "AccessDenied": PermissionDenied,
    "ResourceLimitExceeded": QuotaExceeded,
    "Ec2ServiceNotSubscribed": PermissionDenied,
}
_QUOTA_WORDS = re.compile(r"VcpuLimitExceeded|InstanceLimitExceeded|vCPU capacity than your current|limit", re.IGNORECASE)
_ROLE_WORDS = re.compile(r"\brole\b.*(assum|not exist|not found|cannot be found)", re.IGNORECASE | re.DOTALL)
_ENCODED = re.compile(r"\s*Encoded authorization failure message:.*", re.DOTALL)
_ACTION = re.compile(r"perform: ([a-z0-9-]+:[A-Za-z0-9]+)")


def code_of(error: aws.ClientError) -> str:
    """Give the code of a refusal."""
    return str(error.response.get("Error", {}).get("Code", ""))


def says_missing(error: aws.ClientError) -> bool:
    """Whether what the call is about, or a part of it, does not exist."""
    return _MISSING.fullmatch(code_of(error)) is not None


def says_exists(error: aws.ClientError) -> bool:
    """Whether what the call creates is there already; whose it is, a look says."""
    return code_of(error) in _EXISTS


def says_role(error: aws.ClientError) -> bool:
    """Whether a service does not accept a role, which it may not know yet."""
    return code_of(error).startswith("InvalidParameter") and _ROLE_WORDS.search(_message(error)) is not None


def issue_error(code: str, text: str) -> type[ModelplaneError] | None:
    """Give the error that a health issue of a cluster or node group stands for; None where it is neither quota, capacity nor permission."""
    if code == "AsgInstanceLaunchFailures" and _QUOTA_WORDS.search(text):
        return QuotaExceeded
    return _ISSUES.get(code)


def failure(
    error: Exception, service: str, operation: str, purpose: Purpose, *, hide: Sequence[str] = (), role_seconds: float | None = None
) -> ModelplaneError:
    """Give the error of a failed call. `hide` are texts of the credential, `role_seconds` the age of the role that the call names.

    Messages name the service, the operation and the code, and have AWS's own words unless these are about the credential.
    """
    where = f"{service} {operation}"
    if isinstance(error, aws.ClientError):
        return _refused(error, where, operation, purpose, hide=hide, role_seconds=role_seconds)
    name = type(error).__name__
    if isinstance(error, aws.ParamValidationError):
        return InvalidInput(f"{where}: {_clean(str(error), hide)}")
    if isinstance(error, aws.NoCredentialsError | aws.PartialCredentialsError | aws.CredentialRetrievalError):
        return CredentialsInvalid(f"{where}: {name}")
    if isinstance(error, aws.InvalidRegionError | aws.UnknownServiceError | aws.UnknownEndpointError):
        return InvalidInput(f"{where}: {_clean(str(error), hide)}")
    return ServerError(f"{where}: no usable answer ({name})")


def _refused(
    error: aws.ClientError, where: str, operation: str, purpose: Purpose, *, hide: Sequence[str], role_seconds: float | None
) -> ModelplaneError:
    code = code_of(error)
    text = f"{where}: {_clean(code, hide)}: {_clean(_message(error), hide)}".rstrip(": ")
    found = _class_of(error, operation, purpose, role_seconds)
    if found is CredentialsInvalid:
        # AWS quotes the request, in which the session token may be.
        return CredentialsInvalid(f"{where}: AWS does not accept the credential ({_clean(code, hide)})")
    if found is PermissionDenied:
        action = _ACTION.search(_message(error))
        return PermissionDenied(f"the credential may not {action[1] if action else where}: {text}")
    return Throttled(text, after=_retry_after(error)) if found is Throttled else found(text)


def _class_of(error: aws.ClientError, operation: str, purpose: Purpose, role_seconds: float | None) -> type[ModelplaneError]:
    code = code_of(error)
    if purpose is Purpose.DELETE and (code in _IN_USE or (code == "AuthFailure" and operation == "release_address")):
        # An address cannot be released while its NAT gateway is not gone, and EC2 says that of its owner.
        return Dependency
    if known := _CLASS_OF.get(code):
        return known
    if says_role(error):
        return NotYet if role_seconds is not None and role_seconds < ROLE_SECONDS else InvalidInput
    if says_missing(error):
        return NotYet
    if code == "IncorrectFileSystemLifeCycleState":
        return Busy if purpose is Purpose.DELETE else NotYet
    if code in _BUSY_TO_CHANGE:
        return Busy
    return _by_status(int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)), purpose)


def _by_status(status: int, purpose: Purpose) -> type[ModelplaneError]:
    """Give the error for a code that is not in the table."""
    known = {HTTPStatus.UNAUTHORIZED: CredentialsInvalid, HTTPStatus.FORBIDDEN: PermissionDenied, HTTPStatus.TOO_MANY_REQUESTS: Throttled}
    if status in known:
        return known[HTTPStatus(status)]
    refused = HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR
    # A refused delete may succeed once something else has changed; a refused create says what is wrong with the input.
    return InvalidInput if refused and purpose in (Purpose.CREATE, Purpose.UPDATE) else ServerError


def _retry_after(error: aws.ClientError) -> timedelta | None:
    header = str(error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("retry-after", ""))
    return timedelta(seconds=min(int(header), _RETRY_AFTER_MAX)) if header.isascii() and header.isdigit() else None


def _message(error: aws.ClientError) -> str:
    given: Any = error.response.get("Error", {}).get("Message", "")
    return given if isinstance(given, str) else ""


def _clean(text: str, hide: Sequence[str]) -> str:
    """Give text of AWS on one line, without its encoded parts and without the credential."""
    text = _ENCODED.sub("", text)
    for secret in hide:
        text = text.replace(secret, "(hidden)")
    text = escaped(" ".join(text.split()))
    return text if len(text) <= _TEXT_MAX else f"{text[:_TEXT_MAX]} ..."
