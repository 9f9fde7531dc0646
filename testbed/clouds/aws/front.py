"""The server between boto3 and moto: it checks who calls, lets faults strike, repeats answers, and keeps the ledger."""

import hashlib
import hmac
import json
import socket
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from testbed.clouds.aws.cloud import Cloud, tags_of
from testbed.clouds.aws.eks import access, add_ons, clusters, node_groups, scaling, versions
from testbed.clouds.aws.faults import Kind, held_code, throttled_code
from testbed.clouds.aws.ledger import Ledger
from testbed.clouds.aws.services import identities, leaks, network, quotas, storage
from testbed.clouds.aws.services.hiding import hide_or_doom, made_by, without_hidden
from testbed.clouds.aws.signatures import Signed, authorization, signature_of
from testbed.clouds.aws.wire import Answer, NoSuchOperation, Raw, Refusal, Request, answered, parsed, refused, service_of
from testbed.clouds.callers import is_program

OWNER_TAG = "modelplane.ai/owner"
FOREIGN_OWNER = "00000000"
"""The owner of a namesake that a fault has put there."""

_OWN: Mapping[str, Callable[[Cloud, Request], Mapping[str, Any]]] = {
    **network.OWN,
    **storage.OWN,
    **identities.OWN,
    **quotas.OWN,
    **clusters.HANDLERS,
    **node_groups.HANDLERS,
    **add_ons.HANDLERS,
    **access.HANDLERS,
    **versions.HANDLERS,
    **scaling.HANDLERS,
}
_BEFORE = {**network.BEFORE, **storage.BEFORE, **identities.BEFORE, **leaks.BEFORE}
_AFTER = {**network.AFTER, **storage.AFTER, **leaks.AFTER}
# Of EKS moto is never asked.
_MOTO_SERVICES = ("ec2", "iam", "efs", "sts", "autoscaling", "elb", "elbv2", "resourcegroupstaggingapi")
_TOKENS = ("ClientToken", "clientRequestToken")
_UNKNOWN_KEY = {"ec2": "AuthFailure", "iam": "InvalidClientTokenId", "sts": "InvalidClientTokenId"}
_WRONG_SIGNATURE = {"ec2": "AuthFailure"}


class Cut(ConnectionAbortedError):
    """The connection ends here, without an answer. The server writes none for an error of a connection."""


@dataclass
class Front:
    """A WSGI application. One call is answered at a time: moto's objects are not safe to use from several threads."""

    cloud: Cloud
    ledger: Ledger = field(default_factory=Ledger)
    control: Callable[[str, Mapping[str, Any]], Any] | None = None
    """Answers the fake's own paths, for a fake in another process."""
    defects: list[str] = field(default_factory=list)
    """Errors of the fake itself, with where they came from."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()
        self.stopping = threading.Event()
        self._tokens: dict[tuple[str, str, str], tuple[str, Answer]] = {}

    def reset(self) -> None:
        """Forget the calls and the tokens."""
        self.ledger = Ledger()
        self._tokens.clear()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer a request, or end its connection."""
        raw = _raw(environ)
        if raw.path.startswith("/_fake/") and self.control is not None:
            if not is_program(raw.headers.get("host", ""), raw.headers.get("origin")):
                start_response("403 Forbidden", [("Content-Length", "0")])
                return [b""]
            content = json.dumps(self.control(raw.path.removeprefix("/_fake/"), json.loads(raw.body or b"{}"))).encode()
            start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(content)))])
            return [content]
        try:
            answer, seconds = self._answer(raw)
        except Cut:
            if "werkzeug.socket" in environ:
                environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise
        except Exception:
            # The server answers 500; why is for the test to see.
            self.defects.append(traceback.format_exc())
            raise
        self.stopping.wait(seconds)
        headers = [(key, value) for key, value in answer.headers.items() if key.lower() not in ("content-length", "connection")]
        start_response(f"{answer.status} {HTTPStatus(answer.status).phrase}", [*headers, ("Content-Length", str(len(answer.body)))])
        return [answer.body]

    def _answer(self, raw: Raw) -> tuple[Answer, float]:
        try:
            signed = authorization(raw.headers.get("authorization", ""))
            request = parsed(service_of(signed.scope.service, raw), raw)
        except (ValueError, NoSuchOperation) as error:
            with self.lock:
                self.ledger.add("unknown", raw.path, {}, error=str(error))
            return Answer(404, {"Content-Type": "text/plain", "x-amzn-ErrorType": "UnknownOperationException"}, str(error).encode()), 0.0
        with self.lock:
            slow = self.cloud.take(Kind.SLOW, request)
            return self._recorded(request, signed), slow.seconds if slow else 0.0

    def _recorded(self, request: Request, signed: Signed) -> Answer:
        """Answer a call and enter it in the ledger; raises Cut where its answer gets lost."""
        replayed, lost = False, False
        try:
            self._authenticate(request, signed)
            self._refuse(request)
            replay = self._replay(request)
            if replay is not None:
                answer, replayed = replay, True
            else:
                answer = self._effect(request)
                self._remember(request, answer)
            if not answer.error and self.cloud.take(Kind.LOSE_ANSWER, request):
                lost = True
            elif not answer.error and self.cloud.take(Kind.LATE_ERROR, request):
                answer = replace(refused(request, Refusal("InternalFailure", "An internal error has occurred")), status=500)
                lost = True
        except Refusal as refusal:
            answer = refused(request, refusal)
        made = made_by(request, answer) or tags_of(request).get("Name", "")
        facts = {"principal": request.principal, "answer_id": made, "error": "" if lost else answer.error}
        self.ledger.add(request.service, request.operation, request.parameters, **facts, lost=lost, replayed=replayed)
        if lost and not answer.error:
            raise Cut
        return answer

    def _authenticate(self, request: Request, signed: Signed) -> None:
        unknown = Refusal(_UNKNOWN_KEY.get(request.service, "UnrecognizedClientException"), "The security token in the request is invalid")
        credential = self.cloud.account.known(signed.scope.access_key)
        if credential is None or self.cloud.take(Kind.CREDENTIAL, request) is not None:
            raise unknown
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
            raise Refusal(code, "The request signature we calculated does not match the signature you provided.")
        request.access_key, request.principal = credential.access_key, credential.principal

    def _refuse(self, request: Request) -> None:
        """Refuse a call that a fault says so of."""
        if self.cloud.take(Kind.THROTTLE, request):
            raise Refusal(throttled_code(request.service), "Rate exceeded")
        if fault := self.cloud.take(Kind.REFUSE, request):
            raise Refusal(fault.code, fault.message or "refused")
        if fault := self.cloud.take(Kind.HOLD, request):
            raise Refusal(fault.code or held_code(request.service), fault.message or "another object depends on it")

    def _replay(self, request: Request) -> Answer | None:
        """Give the answer that a call with the same token got, also where what it made is gone."""
        key, digest = _token(request)
        if key is None or key not in self._tokens:
            return None
        before, answer = self._tokens[key]
        if before == digest:
            return answer
        code = "IdempotentParameterMismatch" if request.service == "ec2" else "InvalidParameterException"
        raise Refusal(code, "The token was used with other parameters.")

    def _remember(self, request: Request, answer: Answer) -> None:
        key, digest = _token(request)
        if key is not None and not answer.error:
            self._tokens[key] = (digest, answer)

    def _effect(self, request: Request) -> Answer:
        if request.service == "eks":
            self._namesake(request)
            leaks.leak(self.cloud, request)
        with without_hidden(self.cloud, request):
            own = _OWN.get(request.operation)
            if own is not None:
                return answered(request, own(self.cloud, request))
            if request.service not in _MOTO_SERVICES:
                raise Refusal("UnknownOperationException", f"the fake has no {request.operation}")
            if request.operation in _BEFORE:
                _BEFORE[request.operation](self.cloud, request)
            answer = self.cloud.forward(request)
            if not answer.error and request.operation in _AFTER:
                _AFTER[request.operation](self.cloud, request, answer)
                if request.operation == "CreateNatGateway":
                    answer = self._nat_pending(answer)
        hide_or_doom(self.cloud, request, made_by(request, answer))
        return answer

    def _nat_pending(self, answer: Answer) -> Answer:
        """Correct the state in an answer that moto gave before it was known."""
        body = answer.body.replace(b"<state>available</state>", b"<state>pending</state>")
        return replace(answer, body=body)

    def _namesake(self, request: Request) -> None:
        """Let another owner have made the object first, where a fault says so."""
        if "tags" not in request.parameters or not self.cloud.take(Kind.FOREIGN, request):
            return
        tags = {**request.parameters["tags"], OWNER_TAG: FOREIGN_OWNER}
        _OWN[request.operation](self.cloud, replace(request, parameters={**request.parameters, "tags": tags}))


def _token(request: Request) -> tuple[tuple[str, str, str] | None, str]:
    """Give under what the token of a request is remembered, and a digest of its other parameters."""
    token = next((request.text(name) for name in _TOKENS if request.text(name)), "")
    if not token:
        return None, ""
    others = {key: value for key, value in request.parameters.items() if key not in _TOKENS}
    return (request.service, request.operation, token), json.dumps(others, sort_keys=True, default=str)


def _raw(environ: Mapping[str, Any]) -> Raw:
    path, _, query = str(environ.get("RAW_URI") or environ["PATH_INFO"]).partition("?")
    headers = {key[5:].replace("_", "-").lower(): str(value) for key, value in environ.items() if key.startswith("HTTP_")}
    if environ.get("CONTENT_TYPE"):
        headers["content-type"] = environ["CONTENT_TYPE"]
    body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    return Raw(environ["REQUEST_METHOD"], path, query, headers, body, environ)
