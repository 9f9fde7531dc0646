"""The server between boto3 and moto.

It authenticates callers, applies faults, repeats answers, and keeps the ledger.
"""

import hashlib
import hmac
import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from werkzeug.serving import BaseWSGIServer, WSGIRequestHandler, make_server

from fakes.aws import policies
from fakes.aws.cloud import AwsCloud, tags_of
from fakes.aws.eks import (
    access,
    add_ons,
    clusters,
    node_groups,
    scaling,
    versions,
)
from fakes.aws.faults import (
    FaultKind,
    forbidden_code,
    held_code,
    throttled_code,
    unavailable_code,
)
from fakes.aws.ledger import AwsLedger
from fakes.aws.services import (
    identities,
    leaks,
    network,
    people,
    quotas,
    storage,
    zones,
)
from fakes.aws.services.hiding import hide_or_doom, made_by, without_hidden
from fakes.aws.services.pages import paged
from fakes.aws.signatures import AwsAuthorization, authorization, signature_of
from fakes.aws.wire import (
    AwsRequest,
    AwsResponse,
    NoSuchOperation,
    Raw,
    Refusal,
    answered,
    parsed,
    refused,
    service_of,
)
from fakes.callers import is_program

OWNER_TAG = "modelplane.ai/owner"
FOREIGN_OWNER = "00000000"
"""The owner of an object that a fault created with a taken name."""

_OWN: Mapping[str, Callable[[AwsCloud, AwsRequest], Mapping[str, Any]]] = {
    **network.OWN,
    **zones.OWN,
    **storage.OWN,
    **identities.OWN,
    **quotas.OWN,
    **leaks.OWN,
    **clusters.HANDLERS,
    **node_groups.HANDLERS,
    **add_ons.HANDLERS,
    **access.HANDLERS,
    **versions.HANDLERS,
    **scaling.HANDLERS,
}
_BEFORE = {**network.BEFORE, **storage.BEFORE, **identities.BEFORE, **leaks.BEFORE}
_AFTER = {**network.AFTER, **storage.AFTER, **leaks.AFTER}
# moto never handles calls of EKS.
_MOTO_SERVICES = (
    "ec2",
    "iam",
    "efs",
    "sts",
    "autoscaling",
    "elb",
    "elbv2",
    "resourcegroupstaggingapi",
)
_GLOBAL = ("iam", "sts")
_TOKENS = ("ClientToken", "clientRequestToken")
_UNKNOWN_KEY = {
    "ec2": "AuthFailure",
    "iam": "InvalidClientTokenId",
    "sts": "InvalidClientTokenId",
}
_WRONG_TIME = {"iam": "SignatureDoesNotMatch", "sts": "SignatureDoesNotMatch"}
_SIGNATURE_LIFE = timedelta(minutes=5)
_UNSIGNED = b"Action=AssumeRoleWithWebIdentity&"
_WRONG_SIGNATURE = {"ec2": "AuthFailure", "eks": "InvalidSignatureException"}


_UNAVAILABLE = "The service is unavailable. Back off and retry the operation."


class Cut(ConnectionAbortedError):
    """The connection ends here, without an answer.

    The server ignores an error of a connection.
    """


@dataclass
class AwsFront:
    """A WSGI application.

    It answers one call at a time, because moto is not thread-safe.
    """

    cloud: AwsCloud
    others: Mapping[str, AwsCloud] = field(default_factory=dict)
    """The other regions of the account, by name. A call is for the region of its
    signature.
    """
    ledger: AwsLedger = field(default_factory=AwsLedger)
    control: Callable[[str, Mapping[str, Any]], Any] | None = None
    """The handler of the fake's own paths, for a fake in another process."""
    defects: list[str] = field(default_factory=list)
    """Errors of the fake itself, with their tracebacks."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._tokens: dict[tuple[str, str, str], tuple[str, AwsResponse]] = {}

    def reset(self) -> None:
        """Forget the calls and the tokens."""
        self.ledger = AwsLedger()
        self._tokens.clear()

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Answer a request, or end its connection."""
        raw = _raw(environ)
        if raw.path.startswith("/_fake/") and self.control is not None:
            # A browser sends no Origin with the GET of an image or of a link.
            is_post = environ["REQUEST_METHOD"] == "POST"
            host, origin = raw.headers.get("host", ""), raw.headers.get("origin")
            if not (is_post and is_program(host, origin)):
                start_response("403 Forbidden", [("Content-Length", "0")])
                return [b""]
            content = json.dumps(
                self.control(
                    raw.path.removeprefix("/_fake/"), json.loads(raw.body or b"{}")
                )
            ).encode()
            start_response(
                "200 OK",
                [
                    ("Content-Type", "application/json"),
                    ("Content-Length", str(len(content))),
                ],
            )
            return [content]
        try:
            answer, seconds = self._answer(raw)
        except Cut:
            if "werkzeug.socket" in environ:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise
        except Exception:
            # The server answers 500. Tests read the traceback.
            self.defects.append(traceback.format_exc())
            raise
        self.stopping.wait(seconds)
        headers = [
            (key, value)
            for key, value in answer.headers.items()
            if key.lower() not in ("content-length", "connection", "date")
        ]
        headers.append(("Date", format_datetime(self._now(), usegmt=True)))
        start_response(
            f"{answer.status} {HTTPStatus(answer.status).phrase}",
            [*headers, ("Content-Length", str(len(answer.body)))],
        )
        return [answer.body]

    def _answer(self, raw: Raw) -> tuple[AwsResponse, float]:
        try:
            if _is_unsigned(raw):
                signed, request = None, parsed("sts", raw)
            else:
                signed = authorization(raw.headers.get("authorization", ""))
                request = parsed(service_of(signed.scope.service, raw), raw)
        except (ValueError, NoSuchOperation) as error:
            with self.lock:
                self.ledger.add("unknown", raw.path, {}, error=str(error))
            return AwsResponse(
                404,
                {
                    "Content-Type": "text/plain",
                    "x-amzn-ErrorType": "UnknownOperationException",
                },
                str(error).encode(),
            ), 0.0
        with self.lock:
            cloud = self._cloud_of(request, signed)
            slow = cloud.take(FaultKind.SLOW, request)
            return self._recorded(cloud, request, signed), slow.seconds if slow else 0.0

    def _cloud_of(
        self, request: AwsRequest, signed: AwsAuthorization | None
    ) -> AwsCloud:
        """Return the region of a call. The services of the whole account are in the first."""
        if signed is None or request.service in _GLOBAL:
            return self.cloud
        return self.others.get(signed.scope.region, self.cloud)

    def _recorded(
        self, cloud: AwsCloud, request: AwsRequest, signed: AwsAuthorization | None
    ) -> AwsResponse:
        """Answer a call, and enter it in the ledger.

        Raise Cut if its answer is lost.
        """
        replayed, lost = False, False
        try:
            if signed is not None:
                self._authenticate(cloud, request, signed)
                policies.check(cloud, request)
            self._refuse(cloud, request)
            replay = self._replay(request)
            if replay is not None:
                answer, replayed = replay, True
            else:
                answer = self._effect(cloud, request)
                self._remember(request, answer)
            if not answer.error and cloud.take(FaultKind.LOSE_ANSWER, request):
                lost = True
            elif not answer.error and cloud.take(FaultKind.LATE_ERROR, request):
                answer = replace(
                    refused(
                        request,
                        Refusal("InternalFailure", "An internal error has occurred"),
                    ),
                    status=500,
                )
                lost = True
        except Refusal as refusal:
            answer = refused(request, refusal)
        made = made_by(request, answer) or tags_of(request).get("Name", "")
        facts = {
            "principal": request.principal,
            "answer_id": made,
            "error": "" if lost else answer.error,
        }
        self.ledger.add(
            request.service,
            request.operation,
            request.parameters,
            **facts,
            lost=lost,
            replayed=replayed,
        )
        if lost and not answer.error:
            raise Cut
        return answer

    def _authenticate(
        self, cloud: AwsCloud, request: AwsRequest, signed: AwsAuthorization
    ) -> None:
        code = _UNKNOWN_KEY.get(request.service, "UnrecognizedClientException")
        # EC2 uses this code with another status for addresses of others.
        status = 401 if code == "AuthFailure" else 0
        text = "The security token included in the request is invalid"
        unknown = Refusal(code, text, status=status)
        credential = cloud.account.known(signed.scope.access_key)
        if credential is None or cloud.take(FaultKind.CREDENTIAL, request) is not None:
            raise unknown
        if cloud.take(FaultKind.CLOCK, request):
            self._check_time(request, self._now() + timedelta(hours=1))
        raw = request.raw
        if raw.headers.get("x-amz-security-token") != credential.session_token:
            raise unknown
        headers = {name: raw.headers.get(name, "") for name in signed.headers}
        wanted = signature_of(
            method=raw.method,
            path=raw.path,
            query=parse_qsl(raw.query, keep_blank_values=True),
            headers=headers,
            payload=hashlib.sha256(raw.body).hexdigest(),
            scope=signed.scope,
            date=raw.headers.get("x-amz-date", ""),
            secret_key=credential.secret_key,
        )
        if not hmac.compare_digest(wanted, signed.signature):
            code = _WRONG_SIGNATURE.get(request.service, "SignatureDoesNotMatch")
            raise Refusal(
                code,
                "The request signature we calculated does not match the signature you provided.",
            )
        self._check_time(request, self._now())
        request.access_key, request.principal = (
            credential.access_key,
            credential.principal,
        )

    def _check_time(self, request: AwsRequest, now: datetime) -> None:
        """Refuse a signature that is more than five minutes off AWS's clock."""
        signed = request.raw.headers.get("x-amz-date", "")
        at = datetime.strptime(signed, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        early, late = now - _SIGNATURE_LIFE, now + _SIGNATURE_LIFE
        if early <= at <= late:
            return
        if request.service == "ec2":
            raise Refusal("RequestExpired", "Request has expired.")
        code = _WRONG_TIME.get(request.service, "InvalidSignatureException")
        limit, now_text = (
            f"{each:%Y%m%dT%H%M%SZ}" for each in (early if at < early else late, now)
        )
        raise Refusal(
            code,
            f"Signature expired: {signed} is now earlier than {limit} ({now_text} - 5 min.)"
            if at < early
            else f"Signature not yet current: {signed} is still later than {limit} "
            f"({now_text} + 5 min.)",
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self.cloud.account.now(), UTC)

    def _refuse(self, cloud: AwsCloud, request: AwsRequest) -> None:
        """Refuse a call if a fault says so."""
        if cloud.take(FaultKind.THROTTLE, request):
            raise Refusal(throttled_code(request.service), "Rate exceeded")
        if cloud.take(FaultKind.OUTAGE, request):
            raise Refusal(unavailable_code(request.service), _UNAVAILABLE, status=503)
        if cloud.take(FaultKind.FORBID, request):
            raise _forbidden(request)
        if fault := cloud.take(FaultKind.REFUSE, request):
            raise Refusal(fault.code, fault.message or "refused", status=fault.status)
        if fault := cloud.take(FaultKind.HOLD, request):
            raise Refusal(
                fault.code or held_code(request.service),
                fault.message or "another object depends on it",
            )

    def _replay(self, request: AwsRequest) -> AwsResponse | None:
        """Return the answer of an earlier call with the same token.

        Its object may be gone.
        """
        key, digest = _token(request)
        if key is None or key not in self._tokens:
            return None
        before, answer = self._tokens[key]
        if before == digest:
            return answer
        code = (
            "IdempotentParameterMismatch"
            if request.service == "ec2"
            else "InvalidParameterException"
        )
        raise Refusal(code, "The token was used with other parameters.")

    def _remember(self, request: AwsRequest, answer: AwsResponse) -> None:
        key, digest = _token(request)
        if key is not None and not answer.error:
            self._tokens[key] = (digest, answer)

    def _effect(self, cloud: AwsCloud, request: AwsRequest) -> AwsResponse:
        people.interfere(cloud, request)
        return paged(cloud, request, lambda each: self._done(cloud, each))

    def _done(self, cloud: AwsCloud, request: AwsRequest) -> AwsResponse:
        if request.service == "eks":
            self._namesake(cloud, request)
            leaks.leak(cloud, request)
        with without_hidden(cloud, request):
            own = _OWN.get(request.operation)
            if own is not None:
                return answered(request, own(cloud, request))
            if request.service not in _MOTO_SERVICES:
                raise Refusal(
                    "UnknownOperationException", f"the fake has no {request.operation}"
                )
            if request.operation in _BEFORE:
                _BEFORE[request.operation](cloud, request)
            answer = cloud.forward(request)
            if not answer.error and request.operation in _AFTER:
                _AFTER[request.operation](cloud, request, answer)
                if request.operation == "CreateNatGateway":
                    answer = self._nat_pending(answer)
        hide_or_doom(cloud, request, made_by(request, answer))
        return answer

    def _nat_pending(self, answer: AwsResponse) -> AwsResponse:
        """Correct the state in an answer that moto gave before the state was set."""
        body = answer.body.replace(
            b"<state>available</state>", b"<state>pending</state>"
        )
        return replace(answer, body=body)

    def _namesake(self, cloud: AwsCloud, request: AwsRequest) -> None:
        """Create the object for another owner first, if a fault says so."""
        if "tags" not in request.parameters or not cloud.take(
            FaultKind.FOREIGN, request
        ):
            return
        tags = {**request.parameters["tags"], OWNER_TAG: FOREIGN_OWNER}
        _OWN[request.operation](
            cloud,
            replace(request, parameters={**request.parameters, "tags": tags}),
        )


def _forbidden(request: AwsRequest) -> Refusal:
    """Return the refusal of a service for a missing permission."""
    if request.service == "ec2":
        text = "You are not authorized to perform this operation."
    else:
        service = policies.PREFIXES.get(request.service, request.service)
        text = (
            f"User: {request.principal} is not authorized to perform: "
            f"{service}:{request.operation} on resource: * because no "
            "identity-based policy allows this action"
        )
    return Refusal(forbidden_code(request.service), text, status=403)


def _token(request: AwsRequest) -> tuple[tuple[str, str, str] | None, str]:
    """Return the key of a request's token, and a digest of its other parameters."""
    token = next((request.text(name) for name in _TOKENS if request.text(name)), "")
    if not token:
        return None, ""
    others = {
        key: value for key, value in request.parameters.items() if key not in _TOKENS
    }
    return (request.service, request.operation, token), json.dumps(
        others, sort_keys=True, default=str
    )


def _is_unsigned(raw: Raw) -> bool:
    return "authorization" not in raw.headers and raw.body.startswith(_UNSIGNED)


def _raw(environ: Mapping[str, Any]) -> Raw:
    path, _, query = str(environ.get("RAW_URI") or environ["PATH_INFO"]).partition("?")
    headers = {
        key[5:].replace("_", "-").lower(): str(value)
        for key, value in environ.items()
        if key.startswith("HTTP_")
    }
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return Raw(environ["REQUEST_METHOD"], path, query, headers, body, environ)


class _AwsHandler(WSGIRequestHandler):  # type: ignore[misc]
    """A handler without a log: the ledger has every call."""

    def log(self, *_: Any) -> None:
        pass


def make_http_server(host: str, port: int, front: AwsFront) -> BaseWSGIServer:
    """Return the HTTP server, with a thread per call, on a free port if `port` is 0."""
    return make_server(host, port, front, threaded=True, request_handler=_AwsHandler)
