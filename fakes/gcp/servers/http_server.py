"""The HTTP server: the compute API, the endpoints that issue tokens, and TokenReview."""

import json
import socket
import threading
import time
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fakes.callers import is_program
from fakes.gcp.calls.errors import CloudError, ConnectionCut
from fakes.gcp.calls.federation import IMPERSONATION_DENIED, ExchangeRefused
from fakes.gcp.calls.ledger import OK
from fakes.gcp.calls.tokens import InvalidGrant
from fakes.gcp.services.compute import service as compute
from fakes.gcp.services.compute.collections import parse
from fakes.gcp.services.dispatch import Dispatcher, GcpRequest
from fakes.gcp.services.service_usage import check_enabled

TOKEN_PATH, REVIEW_PATH = "/token", "/tokenreview"
STS_PATH, CREDENTIALS_PATH = "/v1/token", "/v1"
_ACCOUNTS_PATH = f"{CREDENTIALS_PATH}/projects/-/serviceAccounts/"
_METADATA_PATH = "/computeMetadata/v1/instance/service-accounts/"
_COMPUTE = "compute.googleapis.com"
_ADMIN_ROLES = ("roles/container.admin", "roles/owner")


class HttpServer:
    """Serves on one loopback port, with a thread per connection.

    Port 0 selects a free one.
    """

    def __init__(self, dispatcher: Dispatcher, port: int = 0) -> None:
        self._server = _GcpServer(dispatcher, port)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            daemon=True,
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the server, and close the connections that clients keep open."""
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()


def compute_answer(
    dispatcher: Dispatcher, verb: str, url: str, body: bytes, token: str | None = None
) -> dict[str, Any]:
    """Answer a call of the compute API.

    Raise CloudError, or ConnectionCut for no answer.
    """
    parts = urlsplit(url)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    path, document = parse(parts.path), json.loads(body or b"{}")
    method = compute.method_of(verb, path)
    target = (
        f"{path.full_name}/{document.get('name', '')}"
        if method == "insert"
        else path.full_name
    )
    message = {key: value for key, value in query.items() if key != "$alt"}
    message |= {"body": document} if document else {}
    request = GcpRequest(_COMPUTE, path.service, method, target, message, token)

    def act() -> dict[str, Any]:
        check_enabled(dispatcher.world, _COMPUTE)
        return dict(compute.answer(dispatcher.world, method, path, query, document))

    return dispatcher.run(request, act)


class _GcpServer(ThreadingHTTPServer):
    # This makes the end of the server wait for the threads of its connections.
    daemon_threads = False

    def __init__(self, dispatcher: Dispatcher, port: int) -> None:
        super().__init__(("127.0.0.1", port), _GcpHandler)
        self.dispatcher = dispatcher
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.discard(request)
        super().shutdown_request(request)

    def end_connections(self) -> None:
        with self._lock:
            for connection in self._open:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    # The client has closed it already.
                    continue


class _GcpHandler(BaseHTTPRequestHandler):
    server: _GcpServer
    protocol_version = "HTTP/1.1"
    # Send head and body together. Two writes would wait for an acknowledgement between
    # them.
    wbufsize = -1

    def do_HEAD(self) -> None:
        """Answer only with the head, which has the date of Google's clock."""
        self.send_response(404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def date_time_string(self, timestamp: float | None = None) -> str:
        """Return the date by Google's clock."""
        ahead = self.server.dispatcher.world.tokens.ahead_seconds
        return super().date_time_string((timestamp or time.time()) + ahead)

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Log nothing: the ledger has every call."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            here = is_program(self.headers.get("Host", ""), self.headers.get("Origin"))
            status, document = (
                self._answer(body)
                if here
                else (403, {"error": "only programs of this machine are served"})
            )
        except CloudError as error:
            status, document = error.http_status, error.body()
        except ConnectionCut:
            self.close_connection = True
            return
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json; charset=UTF-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _answer(self, body: bytes) -> tuple[int, dict[str, Any]]:
        url = urlsplit(self.path)
        if url.path == TOKEN_PATH and self.command == "POST":
            return self._token(body)
        if url.path == STS_PATH and self.command == "POST":
            return self._exchange(body)
        if url.path.startswith(_ACCOUNTS_PATH) and self.command == "POST":
            email = url.path.removeprefix(_ACCOUNTS_PATH).partition(":")[0]
            return 200, self._impersonated(email)
        if url.path.startswith(_METADATA_PATH):
            return self._metadata(url.path)
        if url.path == REVIEW_PATH and self.command == "POST":
            return 200, self._review(json.loads(body))
        return 200, compute_answer(
            self.server.dispatcher, self.command, self.path, body, self._bearer()
        )

    def _bearer(self) -> str | None:
        header = self.headers.get("Authorization")
        return header.removeprefix("Bearer ") if header else None

    def _token(self, body: bytes) -> tuple[int, dict[str, Any]]:
        form = {key: values[-1] for key, values in parse_qs(body.decode()).items()}
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            try:
                issued = dispatcher.world.tokens.grant(
                    form.get("grant_type", ""), form.get("assertion", "")
                )
            except InvalidGrant as refusal:
                dispatcher.world.ledger.add(
                    "oauth2", "token", "", {}, outcome="UNAUTHENTICATED", account=""
                )
                return 400, {
                    "error": "invalid_grant",
                    "error_description": str(refusal),
                }
            account = dispatcher.world.tokens.account_of(issued["access_token"]) or ""
            dispatcher.world.ledger.add(
                "oauth2", "token", account, {}, outcome=OK, account=account
            )
            return 200, issued

    def _exchange(self, body: bytes) -> tuple[int, dict[str, Any]]:
        """Exchange a token of an identity provider (sts.googleapis.com)."""
        form = {key: values[-1] for key, values in parse_qs(body.decode()).items()}
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            tokens, ledger = dispatcher.world.tokens, dispatcher.world.ledger
            try:
                principal = tokens.federation.exchange(form)
            except ExchangeRefused as refusal:
                ledger.add(
                    "sts", "token", "", {}, outcome="UNAUTHENTICATED", account=""
                )
                error, text = refusal.error, str(refusal)
                return 400, {"error": error, "error_description": text}
            ledger.add("sts", "token", principal, {}, outcome=OK, account=principal)
            issued = tokens.issue(principal)
            kind = "urn:ietf:params:oauth:token-type:access_token"
            return 200, {**issued, "issued_token_type": kind}

    def _impersonated(self, email: str) -> dict[str, Any]:
        """Issue a token of an account (generateAccessToken of iamcredentials)."""
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            tokens, ledger = dispatcher.world.tokens, dispatcher.world.ledger
            caller = tokens.check(self._bearer())
            allowed = (caller, email) in tokens.federation.impersonators
            outcome = OK if allowed else "PERMISSION_DENIED"
            ledger.add(
                "iamcredentials",
                "generate_access_token",
                email,
                {},
                outcome=outcome,
                account=caller,
            )
            if not allowed:
                raise CloudError(
                    "PERMISSION_DENIED",
                    IMPERSONATION_DENIED,
                    reason="IAM_PERMISSION_DENIED",
                    metadata={"permission": "iam.serviceAccounts.getAccessToken"},
                )
            token = tokens.issue(email)["access_token"]
            end = datetime.fromtimestamp(tokens.expiry(token), UTC)
        return {
            "accessToken": token,
            "expireTime": end.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _metadata(self, path: str) -> tuple[int, dict[str, Any]]:
        """Answer as the metadata server of the worker's machine."""
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            tokens = dispatcher.world.tokens
            worker = tokens.federation.worker
            if not worker or self.headers.get("Metadata-Flavor") != "Google":
                return 404, {"error": "not found"}
            if path.endswith("/token"):
                return 200, tokens.issue(worker)
        return 200, {"email": worker, "aliases": ["default"], "scopes": []}

    def _review(self, review: dict[str, Any]) -> dict[str, Any]:
        """Answer a TokenReview.

        An administrator of the project's clusters is a cluster admin, as on GKE.
        """
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            account = dispatcher.world.tokens.account_of(
                review.get("spec", {}).get("token", "")
            )
            status: dict[str, Any] = {"authenticated": account is not None}
            if account is not None:
                member = f"serviceAccount:{account}"
                admin = any(
                    member in dispatcher.world.policy.members(role)
                    for role in _ADMIN_ROLES
                )
                status["user"] = {
                    "username": account,
                    "groups": ["system:masters"] if admin else [],
                }
        return {
            "apiVersion": review.get("apiVersion"),
            "kind": "TokenReview",
            "status": status,
        }
