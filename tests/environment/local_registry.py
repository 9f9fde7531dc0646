"""An OCI registry on loopback, and a `kit` that unpacks from it: the parts of the distribution protocol that packs need.

The real unpacker is a Go program of another project; what stands in for it speaks the registry's real protocol, so that references, logins
and digests are proven, while files come out as the layers say.
"""

import base64
import contextlib
import hashlib
import http.server
import io
import json
import os
import re
import sys
import tarfile
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any

_MANIFEST = re.compile(r"/v2/(.+)/manifests/(.+)")
_BLOB = re.compile(r"/v2/(.+)/blobs/(.+)")
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"


def digest_of(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


@dataclass
class LocalRegistry:
    """The registry and its memory. With a `password`, whoever pulls needs a token, and for that the login `robot` and the password."""

    host: str = ""
    password: str = ""
    tags: dict[str, str] = field(default_factory=dict)
    content: dict[str, bytes] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def push(self, reference: str, files: Mapping[str, bytes]) -> str:
        """Put a pack of one layer under `<repository>:<tag>`; gives its digest."""
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for name, content in files.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(content)
                tar.addfile(entry, io.BytesIO(content))
        blob = layer.getvalue()
        manifest = json.dumps(
            {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "layers": [{"digest": digest_of(blob), "size": len(blob)}]}
        ).encode()
        self.content |= {digest_of(blob): blob, digest_of(manifest): manifest}
        self.tags[reference] = digest_of(manifest)
        return digest_of(manifest)

    @property
    def docker_config(self) -> str:
        """A docker config with the login."""
        auth = base64.b64encode(f"robot:{self.password}".encode()).decode()
        return json.dumps({"auths": {self.host: {"auth": auth}}})

    def answer(self, path: str, authorization: str) -> tuple[int, bytes, dict[str, str]]:
        """Answer one request."""
        self.asked.append(path)
        if path == "/token":
            login = base64.b64encode(f"robot:{self.password}".encode()).decode()
            if authorization != f"Basic {login}":
                return HTTPStatus.UNAUTHORIZED, b"{}", {}
            return HTTPStatus.OK, json.dumps({"token": f"good-for-{self.password}"}).encode(), {}
        if self.password and authorization != f"Bearer good-for-{self.password}":
            challenge = f'Bearer realm="http://{self.host}/token",service="local",scope="repository:models:pull"'
            return HTTPStatus.UNAUTHORIZED, b'{"errors": [{"code": "UNAUTHORIZED"}]}', {"WWW-Authenticate": challenge}
        if found := _MANIFEST.fullmatch(path):
            digest = self.tags.get(f"{found[1]}:{found[2]}", found[2])
            if digest in self.content:
                return HTTPStatus.OK, self.content[digest], {"Content-Type": MANIFEST_TYPE, "Docker-Content-Digest": digest}
        if (found := _BLOB.fullmatch(path)) and found[2] in self.content:
            return HTTPStatus.OK, self.content[found[2]], {}
        return HTTPStatus.NOT_FOUND, b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}', {}


@contextlib.contextmanager
def local_registry(password: str = "") -> Iterator[LocalRegistry]:
    """Serve a registry on a free port."""
    registry = LocalRegistry(password=password)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: Any) -> None:
            """Keep quiet."""

        def do_GET(self) -> None:
            status, body, headers = registry.answer(self.path.partition("?")[0], self.headers.get("Authorization", ""))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.host = f"127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def install_kit(folder: Path) -> None:
    """Lay down a `kit` in a folder for PATH."""
    program = folder / "kit"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {Path(__file__).resolve()} "$@"\n')
    program.chmod(0o755)


def unpack(arguments: list[str]) -> None:
    """Do what `kit unpack REFERENCE -o -d FOLDER [--plain-http]` does."""
    command, reference, *flags = arguments
    assert (command, flags[:2]) == ("unpack", ["-o", "-d"]), arguments
    scheme = "http" if "--plain-http" in flags else "https"
    host, _, rest = reference.partition("/")
    repository, _, digest = rest.partition("@")
    base = f"{scheme}://{host}/v2/{repository}"
    manifest = _get(f"{base}/manifests/{digest}", host)
    assert digest_of(manifest) == digest
    for layer in json.loads(manifest)["layers"]:
        with tarfile.open(fileobj=io.BytesIO(_get(f"{base}/blobs/{layer['digest']}", host))) as tar:
            tar.extractall(flags[2], filter="data")


def _get(url: str, host: str) -> bytes:
    try:
        return _opened(url, "")
    except urllib.error.HTTPError as error:
        if error.code != HTTPStatus.UNAUTHORIZED or not os.environ.get("DOCKER_CONFIG"):
            raise
        challenge = error.headers["WWW-Authenticate"]
    config = json.loads((Path(os.environ["DOCKER_CONFIG"]) / "config.json").read_text())
    realm = re.search(r'realm="([^"]+)"', challenge)
    assert realm
    token = json.loads(_opened(realm[1], f"Basic {config['auths'][host]['auth']}"))["token"]
    return _opened(url, f"Bearer {token}")


def _opened(url: str, authorization: str) -> bytes:
    request = urllib.request.Request(url, headers={"Authorization": authorization} if authorization else {})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 -- loopback
        content: bytes = answer.read()
        return content


if __name__ == "__main__":
    try:
        unpack(sys.argv[1:])
    except (urllib.error.URLError, OSError) as failure:
        sys.exit(f"Error: failed to pull: {failure}")
