"""The HTTP side: the compute API, the token endpoint of OAuth2, and a TokenReview for API servers that shall accept the tokens."""

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from testbed.clouds.callers import is_program
from testbed.clouds.gcp.calls.errors import CloudError, ConnectionCut
from testbed.clouds.gcp.calls.ledger import OK
from testbed.clouds.gcp.calls.tokens import InvalidGrant
from testbed.clouds.gcp.services.compute import service as compute
from testbed.clouds.gcp.services.compute.collections import parse
from testbed.clouds.gcp.services.dispatch import Dispatcher, Request
from testbed.clouds.gcp.services.service_usage import check_enabled

TOKEN_PATH, REVIEW_PATH = "/token", "/tokenreview"
_COMPUTE = "compute.googleapis.com"
_ADMIN_ROLES = ("roles/container.admin", "roles/owner")


class HttpServer:
    """Serves on one loopback port, a free one where `port` is 0, with a thread for each connection."""

    def __init__(self, dispatcher: Dispatcher, port: int = 0) -> None:
        self._server = _Server(dispatcher, port)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the server, and with it the connections that clients keep open."""
        self._server.shutdown()
        self._server.end_connections()
        self._server.server_close()
        self._thread.join()


def compute_answer(dispatcher: Dispatcher, verb: str, url: str, body: bytes, token: str | None = None) -> dict[str, Any]:
    """Answer a call of the compute API. Raises CloudError, or ConnectionCut for no answer."""
    parts = urlsplit(url)
    query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
    path, document = parse(parts.path), json.loads(body or b"{}")
    method = compute.method_of(verb, path)
    target = f"{path.full_name}/{document.get('name', '')}" if method == "insert" else path.full_name
    message = {key: value for key, value in query.items() if key != "$alt"}
    message |= {"body": document} if document else {}
    request = Request(_COMPUTE, path.service, method, target, message, token)

    def act() -> dict[str, Any]:
        check_enabled(dispatcher.world, _COMPUTE)
        return dict(compute.answer(dispatcher.world, method, path, query, document))

    return dispatcher.run(request, act)


class _Server(ThreadingHTTPServer):
    # With it the end of the server waits for the threads of its connections.
    daemon_threads = False

    def __init__(self, dispatcher: Dispatcher, port: int) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
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
                    # Its client ended it already.
                    continue


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    # Head and body leave together: two writes would wait for an acknowledgement between them.
    wbufsize = -1

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        self._serve()

    def do_PATCH(self) -> None:
        self._serve()

    def do_DELETE(self) -> None:
        self._serve()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  (the name is the base class's)
        """Log nothing: the ledger has every call."""

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            here = is_program(self.headers.get("Host", ""), self.headers.get("Origin"))
            status, document = self._answer(body) if here else (403, {"error": "only programs of this machine are served"})
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
        if url.path == REVIEW_PATH and self.command == "POST":
            return 200, self._review(json.loads(body))
        return 200, compute_answer(self.server.dispatcher, self.command, self.path, body, self._bearer())

    def _bearer(self) -> str | None:
        header = self.headers.get("Authorization")
        return header.removeprefix("Bearer ") if header else None

    def _token(self, body: bytes) -> tuple[int, dict[str, Any]]:
        form = {key: values[-1] for key, values in parse_qs(body.decode()).items()}
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            try:
                issued = dispatcher.world.tokens.grant(form.get("grant_type", ""), form.get("assertion", ""))
            except InvalidGrant as refusal:
                dispatcher.world.ledger.add("oauth2", "token", "", {}, outcome="UNAUTHENTICATED", account="")
                return 400, {"error": "invalid_grant", "error_description": str(refusal)}
            account = dispatcher.world.tokens.account_of(issued["access_token"]) or ""
            dispatcher.world.ledger.add("oauth2", "token", account, {}, outcome=OK, account=account)
            return 200, issued

    def _review(self, review: dict[str, Any]) -> dict[str, Any]:
        """Answer a TokenReview: an account that may administer clusters of the project is a cluster admin, as on GKE."""
        dispatcher = self.server.dispatcher
        with dispatcher.lock:
            account = dispatcher.world.tokens.account_of(review.get("spec", {}).get("token", ""))
            status: dict[str, Any] = {"authenticated": account is not None}
            if account is not None:
                member = f"serviceAccount:{account}"
                admin = any(member in dispatcher.world.policy.members(role) for role in _ADMIN_ROLES)
                status["user"] = {"username": account, "groups": ["system:masters"] if admin else []}
        return {"apiVersion": review.get("apiVersion"), "kind": "TokenReview", "status": status}
