"""A Hugging Face hub on loopback.

It has the endpoints that revision resolution and the real `huggingface_hub` client use.
"""

import contextlib
import hashlib
import http.server
import json
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from http import HTTPStatus
from typing import Any

from tests.environment.http_server import serving

_MODEL = re.compile(r"/api/models/([\w.-]+(?:/[\w.-]+)?)(?:/revision/([^/]+))?")
_TREE = re.compile(r"/api/models/([\w.-]+/[\w.-]+)/tree/([^/]+)")
_FILE = re.compile(r"/([\w.-]+/[\w.-]+)/resolve/([^/]+)/(.+)")
_RANGE = re.compile(r"bytes=(\d+)-")


def a_commit(seed: str) -> str:
    """Return a commit hash that depends on the seed."""
    return hashlib.sha1(seed.encode(), usedforsecurity=False).hexdigest()


@dataclass
class Repo:
    """A repository.

    `branches` maps names to commits.

    With a `token` the whole repository is private; with `gated` only its files are.
    """

    files: dict[str, bytes] = field(
        default_factory=lambda: {
            "config.json": b"{}",
            "weights/model.safetensors": b"w" * 4096,
        }
    )
    branches: dict[str, str] = field(
        default_factory=lambda: {"main": a_commit("first")}
    )
    token: str = ""
    gated: bool = False


@dataclass
class LocalHub:
    """The hub and its requests.

    `cut_after` breaks the next file download after so many bytes, and `stall_after`
    stalls it there. With `error_status`, every response has this status.
    """

    address: str = ""
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    cut_after: int = 0
    stall_after: int = 0
    error_status: int = 0

    def respond(self, path: str, headers: Message, *, head: bool) -> "Response":
        self.requests.append(path)
        if self.error_status:
            return refused(self.error_status, "", "the hub is down")
        auth = headers.get("Authorization", "").removeprefix("Bearer ")
        if found := _TREE.fullmatch(path):
            return self._tree(found[1])
        if found := _MODEL.fullmatch(path):
            return self._model(found[1], found[2], auth)
        if found := _FILE.fullmatch(path):
            return self._file(
                found[1], found[3], auth, headers.get("Range", ""), head=head
            )
        return refused(HTTPStatus.NOT_FOUND, "", "no such page")

    def _model(self, name: str, revision: str | None, auth: str) -> "Response":
        repo = self.repos.get(name)
        hidden = repo is None or (repo.token and not repo.gated and auth != repo.token)
        if repo is None or hidden:
            # Without a valid token a missing repository looks like a private one.
            status = (
                HTTPStatus.NOT_FOUND
                if auth and repo is None
                else HTTPStatus.UNAUTHORIZED
            )
            return refused(status, "RepoNotFound", "Repository not found")
        commit = repo.branches.get(revision or "main") or (
            revision if revision in repo.branches.values() else None
        )
        if commit is None:
            return refused(HTTPStatus.NOT_FOUND, "RevisionNotFound", "Invalid rev id")
        siblings = [
            {"rfilename": path, "size": len(content), "blobId": "x"}
            for path, content in repo.files.items()
        ]
        return as_json(
            {"id": name, "modelId": name, "sha": commit, "siblings": siblings}
        )

    def _tree(self, name: str) -> "Response":
        files = self.repos[name].files
        return as_json(
            [
                {"type": "file", "path": path, "size": len(content), "oid": "x"}
                for path, content in files.items()
            ]
        )

    def _file(
        self, name: str, path: str, auth: str, wanted: str, *, head: bool
    ) -> "Response":
        repo = self.repos[name]
        if repo.token and auth != repo.token:
            return refused(
                HTTPStatus.FORBIDDEN, "GatedRepo", "Access to model is restricted"
            )
        content = repo.files[path]
        headers = {
            "ETag": f'"{hashlib.sha256(content).hexdigest()}"',
            "X-Repo-Commit": next(iter(repo.branches.values())),
            "Accept-Ranges": "bytes",
        }
        if head:
            return Response(HTTPStatus.OK, content, headers)
        if found := _RANGE.match(wanted):
            self.ranges.append(wanted)
            start = int(found[1])
            headers["Content-Range"] = (
                f"bytes {start}-{len(content) - 1}/{len(content)}"
            )
            return Response(HTTPStatus.PARTIAL_CONTENT, content[start:], headers)
        cut, self.cut_after = (
            (self.cut_after, 0)
            if len(content) > self.cut_after > 0
            else (0, self.cut_after)
        )
        if len(content) > self.stall_after > 0:
            cut, self.stall_after = self.stall_after, 0
            return Response(HTTPStatus.OK, content, headers, cut, stalls=True)
        return Response(HTTPStatus.OK, content, headers, cut)


@dataclass
class Response:
    """A response.

    With `cut`, the connection breaks after so many bytes of the body. With `stalls`, it
    stays open until the client closes it.
    """

    status: int
    body: bytes
    headers: dict[str, str] = field(default_factory=dict)
    cut: int = 0
    stalls: bool = False


def as_json(tree: Any) -> Response:
    return Response(
        HTTPStatus.OK, json.dumps(tree).encode(), {"Content-Type": "application/json"}
    )


def refused(status: int, code: str, message: str) -> Response:
    headers = {
        "Content-Type": "application/json",
        **({"X-Error-Code": code, "X-Error-Message": message} if code else {}),
    }
    return Response(status, json.dumps({"error": message}).encode(), headers)


@contextlib.contextmanager
def local_hub(tls: ssl.SSLContext | None = None) -> Iterator[LocalHub]:
    """Serve a hub on a free port."""
    hub = LocalHub()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            response = hub.respond(
                self.path.partition("?")[0], self.headers, head=self.command == "HEAD"
            )
            self.send_response(response.status)
            for name, value in {
                **response.headers,
                "Content-Length": str(len(response.body)),
            }.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(
                    response.body[: response.cut] if response.cut else response.body
                )
            if response.stalls:
                self.connection.recv(1)
            if response.cut:
                self.close_connection = True

        do_HEAD = do_GET  # noqa: N815 -- the name that the library calls

    with serving(Handler, tls) as address:
        hub.address = f"{'https' if tls else 'http'}://{address}"
        yield hub
