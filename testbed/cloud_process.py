"""Serve the fake clouds of a testbed: `python -m testbed.cloud_process CONFIG`.

When a cluster becomes ready at a fake cloud, it gets the API server of a spare cluster
of this testbed, which accepts the tokens of that cloud. The spare stays assigned until
the cluster is deleted. If no spare is free, the cluster gets an address at which
nothing listens. A control address lists the objects of both clouds, begins and ends
their troubles, and serves Helm charts that install nothing.
"""

import base64
import gzip
import hashlib
import io
import json
import signal
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from fakes.aws import lasting as aws_troubles
from fakes.aws.fake import FakeAws
from fakes.callers import is_program
from fakes.gcp import troubles as google_troubles
from fakes.gcp.fake import FakeGoogle
from fakes.gcp.services.world import NO_ENDPOINT, GcpEndpoint
from testbed.cloud_addresses import (
    CALLS,
    CHARTS,
    EKS,
    GKE,
    REMAINS,
    TROUBLES,
    credential_file,
)
from testbed.cluster.kube import Kube
from testbed.cluster.pki import Authority
from testbed.documents import load_all, read_json, write_text

_READS = (
    "get",
    "list",
    "aggregated_list",
    "test_",
    "query",
    "describe",
    "token",
    "search",
)
_AWS_REGIONS = ("us-east-2", "us-east-1", "us-west-2")
_ROLE = "provisioner"
_DOCUMENTS = Path(__file__).parents[1] / "deploy" / "clouds"
_STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
# Objects of an earlier cluster on the same spare. A real cloud would have deleted them
# with that cluster.
_OF_ONE_CLUSTER = tuple(
    f"{_STORAGE_CLASSES}/{name}" for name in ("modelplane-rwx", "modelplane-rwx-efs")
)


@dataclass(frozen=True)
class Spare:
    """A cluster of the testbed that a fake cloud may hand out."""

    cloud: str
    server: str
    authority: Authority

    def made_new(self) -> tuple[str, str]:
        """Delete the objects of the spare's earlier cluster.

        Return the address and the CA certificate (PEM in Base64).
        """
        with Kube(self.server, self.authority) as kube:
            for path in _OF_ONE_CLUSTER:
                kube.delete(path)
        return self.server, base64.b64encode(self.authority.ca.read_bytes()).decode()


class Spares:
    """The assignment of spare clusters to clusters of the fake clouds."""

    def __init__(self, spares: list[Spare]) -> None:
        self._spares = spares
        self._holders: dict[int, str] = {}

    def take(
        self, cloud: str, cluster: str, exists: Callable[[str], bool]
    ) -> tuple[str, str] | None:
        """Return the address and CA certificate of a free spare, or None."""
        for number, spare in enumerate(self._spares):
            holder = self._holders.get(number)
            is_free = holder in (None, cluster) or not exists(str(holder))
            if spare.cloud == cloud and is_free:
                self._holders[number] = cluster
                return spare.made_new()
        return None


class FakeClouds:
    """Both clouds, as the control address shows them."""

    def __init__(self, google: Any, aws: FakeAws) -> None:
        self._google = google
        self._aws = aws
        self._lock = threading.Lock()
        self._ends: dict[tuple[str, str], Callable[[], None]] = {}

    def remains(self) -> dict[str, Any]:
        """Return the objects that were created and not deleted, by cloud."""
        return {
            GKE: {
                "place": f"project {self._google.project}",
                "objects": self._google.remains(),
            },
            EKS: {
                "place": f"account {self._aws.account.number}",
                "objects": self._aws.remains(),
            },
        }

    def calls(self) -> dict[str, Any]:
        """Return the calls that changed an object, in order, by cloud."""
        google = [
            f"{each.name} {each.target}"
            for each in self._google.ledger().calls(effective=True)
            if _changes(each.method)
        ]
        aws = []
        for each in self._aws.ledger():
            if each.effective and _changes(each.operation):
                target = each.answer_id or _first(each.parameters)
                aws.append(f"{each.service}.{each.operation} {target}".rstrip())
        return {GKE: google, EKS: aws}

    def troubles(self) -> dict[str, dict[str, bool]]:
        """Return the troubles of each cloud, and whether each of them lasts now."""
        return {
            cloud: {name: (cloud, name) in self._ends for name in names}
            for cloud, names in _TROUBLES.items()
        }

    def set_trouble(self, cloud: str, name: str, *, lasts: bool) -> None:
        """Begin or end a trouble. Raise KeyError if a cloud has no such trouble."""
        known, key = name in _TROUBLES[cloud], (cloud, name)
        if not known:
            raise KeyError(name)
        with self._lock:
            if lasts and key not in self._ends:
                self._ends[key] = (
                    google_troubles.begin(name, self._google)
                    if cloud == GKE
                    else aws_troubles.begin(name, self._aws)
                )
            elif not lasts and key in self._ends:
                self._ends.pop(key)()


_TROUBLES: Mapping[str, tuple[str, ...]] = {
    GKE: (*google_troubles.TROUBLES, *google_troubles.LASTING),
    EKS: tuple(aws_troubles.LASTING),
}


def _changes(operation: str) -> bool:
    return not operation.lower().startswith(_READS)


def _first(parameters: Mapping[str, Any]) -> str:
    """Return the first argument that is an id or a name."""
    named = (
        value
        for key, value in parameters.items()
        if key.lower().endswith(("id", "name", "arn")) and isinstance(value, str)
    )
    return next(named, "")


def limit_credentials(google: Any, aws: FakeAws) -> None:
    """Limit the credentials to the rights in `deploy/clouds`, as a user's are."""
    texts = [each.read_text() for each in _DOCUMENTS.glob("gcp/*.yaml")]
    roles = load_all("\n---\n".join(texts))
    permissions = [each for role in roles for each in role["includedPermissions"]]
    google.limit(google.email, *permissions)
    policies = [json.loads(each.read_text()) for each in _DOCUMENTS.glob("aws/*.json")]
    aws.limit(f"role/{_ROLE}", *policies)


def packed(name: str, version: str) -> bytes:
    """Pack a Helm chart that installs nothing.

    The bytes are always the same, because the index contains their digest.
    """
    about = {
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "description": "Stands in for a program that has nothing to do here.",
    }
    content, tar = json.dumps(about).encode(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo(f"{name}/Chart.yaml")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)


def chart_answer(path: str) -> bytes | None:
    """Serve a chart repository at `/charts/<name>/<version>`.

    Return None for other paths.
    """
    name, _, rest = path.removeprefix(CHARTS).partition("/")
    version, _, file = rest.partition("/")
    archive = f"{name}-{version}.tgz"
    if file == archive:
        return packed(name, version)
    if file != "index.yaml":
        return None
    digest = hashlib.sha256(packed(name, version)).hexdigest()
    entry = {
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "urls": [archive],
        "digest": digest,
    }
    return json.dumps({"apiVersion": "v1", "entries": {name: [entry]}}).encode()


@contextmanager
def controlled(clouds: FakeClouds, port: int) -> Iterator[None]:
    """Serve the control address until the end of the block."""

    class ControlHandler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

        def do_GET(self) -> None:
            self._answer(self._body)

        def do_POST(self) -> None:
            self._answer(self._changed)

        def _answer(self, body_of: Callable[[], bytes | None]) -> None:
            host, origin = self.headers.get("Host", ""), self.headers.get("Origin")
            body = body_of() if is_program(host, origin) else None
            self.send_response(HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def _body(self) -> bytes | None:
            if self.path.startswith(CHARTS):
                return chart_answer(self.path)
            answers: dict[str, Callable[[], Any]] = {
                REMAINS: clouds.remains,
                CALLS: clouds.calls,
                TROUBLES: clouds.troubles,
            }
            if self.path not in answers:
                return None
            return json.dumps(answers[self.path]()).encode()

        def _changed(self) -> bytes | None:
            """Begin or end a trouble. Return all troubles, or None for an unknown one."""
            if self.path != TROUBLES:
                return None
            length = int(self.headers.get("Content-Length") or 0)
            try:
                wanted = json.loads(self.rfile.read(length))
                cloud, name = wanted["cloud"], wanted["name"]
                clouds.set_trouble(cloud, name, lasts=wanted["lasts"])
            except (KeyError, TypeError, ValueError):
                return None
            return json.dumps(clouds.troubles()).encode()

    server = ThreadingHTTPServer(("127.0.0.1", port), ControlHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def serve(config: Mapping[str, Any], ended: threading.Event) -> None:
    """Serve both clouds until `ended` is set."""
    folder, ports = Path(config["folder"]), config["ports"]
    spares = Spares(
        [
            Spare(each["cloud"], each["server"], Authority(Path(each["pki"])))
            for each in config["clusters"]
        ]
    )
    kept = credential_file(folder, GKE)

    def of_google(cluster: str) -> GcpEndpoint:
        taken = spares.take(GKE, cluster, lambda name: name in google.objects())
        if not taken:
            return NO_ENDPOINT
        address, certificate = taken
        return GcpEndpoint(address.removeprefix("https://"), certificate)

    google = FakeGoogle(
        grpc_port=ports["google-grpc"],
        http_port=ports["google-http"],
        credential=kept.read_text() if kept.is_file() else "",
    )
    aws = FakeAws(
        _AWS_REGIONS[0],
        more_regions=_AWS_REGIONS[1:],
        port=ports["aws"],
        role=_ROLE,
        only_reviews=True,
        on_cluster_ready=lambda cluster: spares.take(
            EKS, cluster, lambda name: name in aws.clusters()
        ),
    )
    with google, aws:
        google.connect(of_google)
        limit_credentials(google, aws)
        write_text(kept, google.credential)
        write_text(credential_file(folder, EKS), aws.credential.text)
        with controlled(FakeClouds(google, aws), ports["control"]):
            ended.wait()


def main() -> None:
    """Serve until SIGTERM."""
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    serve(read_json(Path(sys.argv[1])), ended)


if __name__ == "__main__":
    main()
