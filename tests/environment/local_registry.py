"""An OCI registry on loopback: the parts of the distribution protocol that packs need."""

import base64
import contextlib
import http.server
import io
import json
import re
import ssl
import sys
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.environment import kit
from tests.environment.http_server import serving
from tests.environment.kit import digest_of

_MANIFEST = re.compile(r"/v2/(.+)/manifests/(.+)")
_BLOB = re.compile(r"/v2/(.+)/blobs/(.+)")
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


@dataclass
class LocalRegistry:
    """The registry and its requests.

    With a `password`, a pull needs a token, and a token needs the login `robot` with
    this password.
    """

    host: str = ""
    password: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def push(self, reference: str, files: Mapping[str, bytes]) -> str:
        """Push a pack of one layer as `<repository>:<tag>` and return its digest."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        blob = layer.getvalue()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": MANIFEST_TYPE,
                "layers": [{"digest": digest_of(blob), "size": len(blob)}],
            }
        ).encode()
        self.content |= {digest_of(blob): blob, digest_of(manifest): manifest}
        self.tags[reference] = digest_of(manifest)
        return digest_of(manifest)

    @property
    def docker_config(self) -> str:
        """Return a docker config with the login."""
        auth = base64.b64encode(f"robot:{self.password}".encode()).decode()
        return json.dumps({"auths": {self.host: {"auth": auth}}})

    def respond(
        self, path: str, authorization: str
    ) -> tuple[int, bytes, dict[str, str]]:
        self.requests.append(path)
        if path == "/token":
            login = base64.b64encode(f"robot:{self.password}".encode()).decode()
            if authorization != f"Basic {login}":
                return HTTPStatus.UNAUTHORIZED, b"{}", {}
            return (
                HTTPStatus.OK,
                json.dumps({"token": f"good-for-{self.password}"}).encode(),
                {},
            )
        if self.password and authorization != f"Bearer good-for-{self.password}":
            challenge = (
                f'Bearer realm="http://{self.host}/token",'
                'service="local",scope="repository:models:pull"'
            )
            return (
                HTTPStatus.UNAUTHORIZED,
                b'{"errors": [{"code": "UNAUTHORIZED"}]}',
                {"WWW-Authenticate": challenge},
            )
        if found := _MANIFEST.fullmatch(path):
            digest = self.tags.get(f"{found[1]}:{found[2]}", found[2])
            if digest in self.content:
                return (
                    HTTPStatus.OK,
                    self.content[digest],
                    {"Content-Type": MANIFEST_TYPE, "Docker-Content-Digest": digest},
                )
        if (found := _BLOB.fullmatch(path)) and found[2] in self.content:
            return HTTPStatus.OK, self.content[found[2]], {}
        return (
            HTTPStatus.NOT_FOUND,
            b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}',
            {},
        )


@contextlib.contextmanager
def local_registry(
    password: str = "", tls: ssl.SSLContext | None = None
) -> Iterator[LocalRegistry]:
    """Serve a registry on a free port."""
    registry = LocalRegistry(password=password)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            pass

        def do_GET(self) -> None:
            status, body, headers = registry.respond(
                self.path.partition("?")[0], self.headers.get("Authorization", "")
            )
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    with serving(Handler, tls) as registry.host:
        yield registry


def install_kit(folder: Path) -> None:
    """Write a `kit` program into a folder for PATH."""
    program = folder / "kit"
    program.write_text(
        f'#!/bin/sh\nexec {sys.executable} {Path(kit.__file__).resolve()} "$@"\n'
    )
    program.chmod(0o755)
