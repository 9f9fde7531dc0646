"""The error class of each error of Google Cloud. No message contains a credential."""

from datetime import timedelta
from typing import Any

import grpc
import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo

from activities.clouds.gke import failures
from activities.clouds.gke.failures import GcpErrorInfo
from api_types import errors

QUOTA = (
    "Insufficient regional quota to satisfy request: resource "
    "\"NVIDIA_L4_GPUS\": request requires '2.0' and is short "
    "'2.0'. "
    "project has a quota of '0.0' with '0.0' available."
)
RATE = (
    "Quota exceeded for quota metric 'Requests' and limit "
    "'Requests per minute' of service 'container.googleapis.com'."
)
RUNNING = "Cluster is running incompatible operation operation-1700000000000-0a1b2c3d."
PLUGIN = (
    "Getting metadata from plugin failed with error: "
    "('invalid_grant: Invalid JWT Signature.', {'error': "
    "'invalid_grant'})"
)


def grpc_error(
    kind: type[api.GoogleAPICallError],
    text: str = "text",
    reason: str = "",
    **metadata: str,
) -> Exception:
    """Return an error of a gRPC client."""
    info = (
        ErrorInfo(reason=reason, domain="googleapis.com", metadata=metadata)
        if reason
        else None
    )
    error: Exception = kind(text, details=[info] if info else [], error_info=info)
    return error


def rest_error(status: int, text: str = "text", reason: str = "") -> Exception:
    """Return an error of a Compute Engine client."""
    error: Exception = api.from_http_status(
        status, text, errors=[{"reason": reason}] if reason else []
    )
    return error


ROWS: list[tuple[str, Exception, type[errors.ModelplaneError]]] = [
    ("UNAVAILABLE", grpc_error(api.ServiceUnavailable), errors.ServerError),
    ("DEADLINE_EXCEEDED", grpc_error(api.DeadlineExceeded), errors.ServerError),
    ("INTERNAL", grpc_error(api.InternalServerError), errors.ServerError),
    ("ABORTED", grpc_error(api.Aborted), errors.ServerError),
    ("HTTP 500", rest_error(500), errors.ServerError),
    ("HTTP 502", rest_error(502), errors.ServerError),
    ("HTTP 503", rest_error(503), errors.ServerError),
    ("HTTP 504", rest_error(504), errors.ServerError),
    (
        "no connection",
        requests.exceptions.ConnectionError("refused"),
        errors.ServerError,
    ),
    (
        "the library gave up reading",
        api.RetryError("timeout", cause=grpc_error(api.ServiceUnavailable)),
        errors.ServerError,
    ),
    (
        "rate limit of gRPC",
        grpc_error(api.ResourceExhausted, RATE, "RATE_LIMIT_EXCEEDED"),
        errors.Throttled,
    ),
    ("rate limit as 403", rest_error(403, RATE, "rateLimitExceeded"), errors.Throttled),
    ("HTTP 429", rest_error(429), errors.Throttled),
    (
        "too many operations",
        grpc_error(
            api.ResourceExhausted, "Too many operations: concurrent operations quota"
        ),
        errors.Busy,
    ),
    ("an operation runs", grpc_error(api.FailedPrecondition, RUNNING), errors.Busy),
    (
        "a pool is being created",
        grpc_error(api.FailedPrecondition, "Cluster is currently creating a node pool"),
        errors.Busy,
    ),
    (
        "being created",
        grpc_error(
            api.FailedPrecondition, "is being created, deleted, updated or repaired"
        ),
        errors.Busy,
    ),
    (
        "quota as 403 of gRPC",
        grpc_error(api.PermissionDenied, QUOTA),
        errors.QuotaExceeded,
    ),
    (
        "quota as 403 of HTTP",
        rest_error(
            403, "Quota 'NETWORKS' exceeded.  Limit: 5.0 globally.", "quotaExceeded"
        ),
        errors.QuotaExceeded,
    ),
    (
        "quota as RESOURCE_EXHAUSTED",
        grpc_error(api.ResourceExhausted, QUOTA),
        errors.QuotaExceeded,
    ),
    (
        "stock-out",
        grpc_error(
            api.ResourceExhausted, "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS: zone"
        ),
        errors.CapacityUnavailable,
    ),
    (
        "API disabled",
        grpc_error(api.PermissionDenied, "not used before", "SERVICE_DISABLED"),
        errors.PermissionDenied,
    ),
    (
        "PERMISSION_DENIED",
        grpc_error(api.PermissionDenied, "Required container.clusters.create"),
        errors.PermissionDenied,
    ),
    (
        "organisation policy",
        grpc_error(
            api.FailedPrecondition, "constraints/iam.disableServiceAccountKeyCreation"
        ),
        errors.PermissionDenied,
    ),
    ("UNAUTHENTICATED", grpc_error(api.Unauthenticated), errors.CredentialsInvalid),
    ("HTTP 401", rest_error(401), errors.CredentialsInvalid),
    (
        "refresh error",
        auth.RefreshError("invalid_grant: x", {"error": "invalid_grant"}),
        errors.CredentialsInvalid,
    ),
    (
        "refresh error inside gRPC",
        grpc_error(api.ServiceUnavailable, PLUGIN),
        errors.CredentialsInvalid,
    ),
    ("no answer to a refresh", auth.TransportError("no route"), errors.ServerError),
    (
        "refresh that may be repeated",
        auth.RefreshError("internal_failure", retryable=True),
        errors.ServerError,
    ),
    ("INVALID_ARGUMENT", grpc_error(api.InvalidArgument), errors.InvalidInput),
    ("OUT_OF_RANGE", grpc_error(api.OutOfRange), errors.InvalidInput),
    ("HTTP 400", rest_error(400, reason="invalid"), errors.InvalidInput),
    (
        "used by another, on create",
        rest_error(400, reason="resourceInUseByAnotherResource"),
        errors.Busy,
    ),
    ("not ready, on create", rest_error(400, reason="resourceNotReady"), errors.Busy),
    ("NOT_FOUND of a parent", grpc_error(api.NotFound), errors.NotYet),
    ("UNIMPLEMENTED", grpc_error(api.MethodNotImplemented), errors.Unsupported),
]


@pytest.mark.parametrize(
    ("error", "kind"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_an_error_maps_to_its_class(
    error: Exception, kind: type[errors.ModelplaneError]
) -> None:
    assert type(failures.failure_of(error, "create it")) is kind


@pytest.mark.parametrize(
    "reason", ["resourceInUseByAnotherResource", "resourceNotReady"]
)
def test_deleting_an_object_in_use_is_a_dependency_error(reason: str) -> None:
    assert (
        type(
            failures.failure_of(
                rest_error(400, reason=reason), "delete it", deleting=True
            )
        )
        is errors.Dependency
    )


CONDITIONS: list[tuple[str, str, type[errors.ModelplaneError]]] = [
    ("GCE_STOCKOUT", "no machines", errors.CapacityUnavailable),
    ("GCE_QUOTA_EXCEEDED", "no quota", errors.QuotaExceeded),
    ("GKE_SERVICE_ACCOUNT_DELETED", "gone", errors.PermissionDenied),
    ("NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS", "may not", errors.PermissionDenied),
    ("UNKNOWN", QUOTA, errors.QuotaExceeded),
    ("UNKNOWN", "something else", errors.CloudObjectBroken),
    ("", "ZONE_RESOURCE_POOL_EXHAUSTED", errors.CapacityUnavailable),
]


@pytest.mark.parametrize(("code", "text", "kind"), CONDITIONS)
def test_a_condition_maps_to_its_error_class(
    code: str, text: str, kind: type[errors.ModelplaneError]
) -> None:
    assert type(failures.condition_failure(code, text, "pool gpu")) is kind


OPERATIONS = [
    (
        "quota in an operation",
        GcpErrorInfo("", f"QUOTA_EXCEEDED: {QUOTA}"),
        errors.QuotaExceeded,
    ),
    (
        "stock-out in an operation",
        GcpErrorInfo("RESOURCE_EXHAUSTED", "does not have enough resources available"),
        errors.CapacityUnavailable,
    ),
    (
        "internal in an operation",
        GcpErrorInfo("INTERNAL", "An internal error has occurred."),
        errors.ServerError,
    ),
]


@pytest.mark.parametrize(
    ("signal", "kind"),
    [row[1:] for row in OPERATIONS],
    ids=[row[0] for row in OPERATIONS],
)
def test_the_error_of_an_operation_maps_to_its_class(
    signal: GcpErrorInfo, kind: type[errors.ModelplaneError]
) -> None:
    assert type(failures.failure(signal, "create pool gpu")) is kind


def test_an_exceeded_quota_is_named_with_need_and_rest() -> None:
    error = failures.failure_of(grpc_error(api.PermissionDenied, QUOTA), "pool gpu")
    assert error.message.startswith(
        "pool gpu: NVIDIA_L4_GPUS needs 2, has 0: Insufficient regional quota"
    )


def test_an_api_that_is_disabled_is_named() -> None:
    error = failures.failure_of(
        grpc_error(
            api.PermissionDenied,
            "disabled",
            "SERVICE_DISABLED",
            service="file.googleapis.com",
        ),
        "list instances",
    )
    assert (
        error.message
        == "list instances: enable the API file.googleapis.com in the project: disabled"
    )


def test_a_hint_of_the_server_delays_the_next_attempt() -> None:
    hint = RetryInfo(retry_delay=Duration(seconds=7))
    error = failures.failure_of(api.ResourceExhausted(RATE, details=[hint]), "read it")
    assert error.next_retry_delay == timedelta(seconds=7)


THERE = [
    ("gRPC", grpc_error(api.AlreadyExists), True),
    ("HTTP", rest_error(409, reason="alreadyExists"), True),
    ("a race of etags", grpc_error(api.Aborted), False),
    ("a race of etags over HTTP", rest_error(409, reason="conditionNotMet"), False),
    ("another error", grpc_error(api.NotFound), False),
]


@pytest.mark.parametrize(
    ("error", "there"), [row[1:] for row in THERE], ids=[row[0] for row in THERE]
)
def test_an_existing_object_is_distinguished_from_a_race(
    error: Exception, there: bool
) -> None:
    assert failures.is_there_already(error) is there


SECRETS = [
    "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END PRIVATE KEY-----",
    "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJhIn0.c2lnbmF0dXJl",
    "ya29.c.b0Aaekm1K7-secret_part",
    "Bearer 0123456789abcdef",
    '{"private_key": "MIIEvQIBADANBg"}',
    "assertion=eyJsecretpart",
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize(
    "kind", [api.InvalidArgument, api.Unauthenticated, api.ServiceUnavailable]
)
def test_messages_contain_no_part_of_a_credential(kind: Any, secret: str) -> None:
    with pytest.raises(errors.ModelplaneError) as caught, failures.translated("do it"):
        raise grpc_error(kind, f"request was: {secret}")
    parts = [secret[start : start + 12] for start in range(0, len(secret) - 12, 6)]
    hidden = [
        part
        for part in parts
        if part
        not in (
            "-----BEGIN P",
            "BEGIN PRIVAT",
            "PRIVATE KEY-",
            '{"private_ke',
            'vate_key": "',
        )
    ]
    assert [part for part in hidden if part in caught.value.message] == []
    assert (caught.value.__cause__, caught.value.details) == (None, ())


def test_a_rejected_login_keeps_only_the_code_of_the_response() -> None:
    error = failures.failure_of(
        auth.RefreshError("invalid_grant: Bad Request", {"assertion": "secret"}),
        "fetch a token",
    )
    assert (
        error.message == "fetch a token: Google rejects the credential: invalid_grant"
    )


@pytest.mark.slow
def test_a_text_has_a_limit() -> None:
    error = failures.failure_of(
        grpc_error(api.InvalidArgument, "x" * 1_000_000), "do it"
    )
    assert len(error.message) < 700


def test_an_error_of_grpc_itself_is_transient() -> None:
    with pytest.raises(errors.ServerError), failures.translated("do it"):
        raise grpc.RpcError
