"""boto3's requests and responses, read and written with AWS's own service models."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl, unquote
from xml.sax.saxutils import escape

from botocore import parsers
from botocore.awsrequest import HeadersDict
from moto.core.parse import PROTOCOL_PARSERS
from moto.core.serialize import get_serializer_class
from moto.core.utils import get_service_model
from werkzeug.datastructures import Headers, MultiDict

ELB_VERSION = "2012-06-01"
SERVICES: Mapping[str, str] = {
    "ec2": "ec2",
    "eks": "eks",
    "iam": "iam",
    "sts": "sts",
    "autoscaling": "autoscaling",
    "elasticfilesystem": "efs",
    "elasticloadbalancing": "elbv2",
    "tagging": "resourcegroupstaggingapi",
    "servicequotas": "service-quotas",
}
"""The services of the account, by their signing names. `elb` and `elbv2` share one."""


_STATUSES: Mapping[str, int] = {
    "AccessDenied": 403,
    "AccessDeniedException": 403,
    "EntityAlreadyExists": 409,
    "InternalFailure": 500,
    "InvalidClientTokenId": 403,
    "InvalidSignatureException": 403,
    "RequestExpired": 400,
    "RequestLimitExceeded": 503,
    "ServiceUnavailable": 503,
    "SignatureDoesNotMatch": 403,
    "UnauthorizedOperation": 403,
    "UnrecognizedClientException": 403,
}
"""The HTTP status of codes that the models of the services do not have."""


class Refusal(Exception):
    """An error of the cloud: its code, its message, and members for JSON services."""

    def __init__(
        self, code: str, message: str, *, status: int = 0, **members: Any
    ) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.members = code, message, members
        self.status = status
        """The HTTP status, or 0 for the default status of the code."""


class NoSuchOperation(Exception):
    """A request that matches no operation of the service."""


@dataclass(frozen=True)
class Raw:
    """A request as received. `path` is unchanged, header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes
    environ: Mapping[str, Any] = field(repr=False, default_factory=dict)


@dataclass
class AwsRequest:
    """A parsed request. `parameters` have boto3's names."""

    service: str
    operation: str
    parameters: dict[str, Any]
    raw: Raw
    access_key: str = ""
    principal: str = ""

    def text(self, name: str) -> str:
        """Return a parameter, or an empty string."""
        return str(self.parameters.get(name) or "")


@dataclass(frozen=True)
class AwsResponse:
    """A response. `result` has boto3's form, `error` is a code."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    result: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""


def service_of(signed_for: str, raw: Raw) -> str:
    """Return the service of a request by its signing name.

    Raise NoSuchOperation if it is unknown.
    """
    service = SERVICES.get(signed_for)
    if service is None:
        raise NoSuchOperation(f"the fake account has no service {signed_for}")
    if (
        service == "elbv2"
        and dict(parse_qsl(raw.body.decode())).get("Version") == ELB_VERSION
    ):
        return "elb"
    return service


def parsed(service: str, raw: Raw) -> AwsRequest:
    """Parse a request. Raise NoSuchOperation."""
    model = get_service_model(service)
    protocol = model.protocol
    form = protocol in ("ec2", "query")
    values = MultiDict(
        parse_qsl(raw.body.decode() if form else raw.query, keep_blank_values=True)
    )
    in_path: dict[str, str] = {}
    if form:
        operation = values.get("Action", "")
    elif protocol == "json":
        operation = raw.headers.get("x-amz-target", "").rpartition(".")[2]
    else:
        operation, in_path = _route(service, raw)
    if operation not in model.operation_names:
        raise NoSuchOperation(f"{service} has no operation {operation or raw.path}")
    parser = PROTOCOL_PARSERS[protocol](model.operation_model(operation))
    request = {
        "method": raw.method,
        "values": values,
        "headers": Headers(list(raw.headers.items())),
        "body": raw.body.decode(),
        "url_path": raw.path,
        "url_params": in_path,
    }
    parameters = {
        key: value for key, value in parser.parse(request).items() if value is not None
    }
    return AwsRequest(service, operation, parameters, raw)


def answered(request: AwsRequest, result: Mapping[str, Any]) -> AwsResponse:
    """Return the response to a successful request."""
    model = get_service_model(request.service)
    serializer = get_serializer_class(request.service, model.protocol)(
        model.operation_model(request.operation)
    )
    response = serializer.serialize(result)
    body = response["body"]
    headers = {str(key): str(value) for key, value in response["headers"].items()}
    return AwsResponse(
        response["status_code"],
        headers,
        body.encode() if isinstance(body, str) else body,
        result,
    )


def refused(request: AwsRequest, refusal: Refusal) -> AwsResponse:
    """Return the response to a refused request."""
    model = get_service_model(request.service)
    code, text = escape(refusal.code), escape(refusal.message)
    if model.protocol == "ec2":
        error_xml = f"<Error><Code>{code}</Code><Message>{text}</Message></Error>"
        body = (
            f"<Response><Errors>{error_xml}</Errors>"
            "<RequestID>fake</RequestID></Response>"
        )
    elif model.protocol == "query":
        body = (
            f"<ErrorResponse><Error><Type>Sender</Type><Code>{code}</Code>"
            f"<Message>{text}</Message></Error></ErrorResponse>"
        )
    else:
        error = {
            "message": refusal.message,
            "Message": refusal.message,
            "ErrorCode": refusal.code,
            "code": refusal.code,
            "__type": refusal.code,
        }
        body = json.dumps({**error, **refusal.members})
    kind = "application/json" if "json" in model.protocol else "text/xml"
    headers = {"Content-Type": kind, "x-amzn-ErrorType": refusal.code}
    status = refusal.status or _status(request.service, refusal.code)
    return AwsResponse(status, headers, body.encode(), {}, refusal.code)


def understood(
    request: AwsRequest, status: int, headers: Mapping[str, str], body: bytes
) -> AwsResponse:
    """Parse another server's response to a request."""
    model = get_service_model(request.service)
    shape = model.operation_model(request.operation).output_shape
    response = {"status_code": status, "headers": HeadersDict(headers), "body": body}
    result = parsers.create_parser(model.protocol).parse(response, shape)
    error = (
        str(result.get("Error", {}).get("Code", ""))
        if status >= HTTPStatus.MULTIPLE_CHOICES
        else ""
    )
    return AwsResponse(status, headers, body, result, error)


@cache
def _status(service: str, code: str) -> int:
    shapes = get_service_model(service).error_shapes
    given = next(
        (
            each.metadata.get("error", {}).get("httpStatusCode")
            for each in shapes
            if code in (each.name, each.error_code)
        ),
        None,
    )
    return int(given or _STATUSES.get(code, HTTPStatus.BAD_REQUEST))


def _route(service: str, raw: Raw) -> tuple[str, dict[str, str]]:
    for method, pattern, operation in _routes(service):
        if method == raw.method and (matched := pattern.fullmatch(raw.path)):
            return operation, {
                name: unquote(value)
                for name, value in zip(
                    _names(operation, service), matched.groups(), strict=True
                )
            }
    raise NoSuchOperation(f"{service} has no operation {raw.method} {raw.path}")


@cache
def _routes(service: str) -> list[tuple[str, re.Pattern[str], str]]:
    model = get_service_model(service)
    routes = []
    for name in model.operation_names:
        http = model.operation_model(name).http
        path = http["requestUri"].partition("?")[0]
        pattern = re.sub(r"\\\{[^}]+\\\}", "([^/]+)", re.escape(path))
        routes.append((str(http["method"]), re.compile(pattern), str(name)))
    return routes


@cache
def _names(operation: str, service: str) -> tuple[str, ...]:
    path = get_service_model(service).operation_model(operation).http["requestUri"]
    return tuple(re.findall(r"\{([^}+]+)\+?\}", path))
