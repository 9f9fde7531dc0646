"""The process with the fake clouds of a testbed: `python -m testbed.cloud_process CONFIG`.

A cluster that becomes ready at a cloud is reached at the API server of a cluster of this testbed, which takes the tokens of that cloud.
Such a cluster belongs to one cluster of the cloud until that one is deleted; while none is left, the next one has an address that leads
nowhere. Beside the clouds there is one more address, which tells what is at them and serves Helm charts that install nothing.
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

from testbed.clouds.aws.fake import FakeAws
from testbed.clouds.callers import is_program
from testbed.cluster.kube import Kube
from testbed.cluster.pki import Authority
from testbed.documents import read_json, write_text

GKE, EKS = "GKE", "EKS"
CLOUDS = (GKE, EKS)
PARTS = ("google-grpc", "google-http", "aws", "control")
"""What listens on a port of its own."""
AWS_REGION = "us-east-2"
REMAINS, CALLS, CHARTS = "/remains", "/calls", "/charts/"

_REVIEWS = {GKE: ("google-http", "/tokenreview"), EKS: ("aws", "/_fake/token-review")}
_READS = ("get", "list", "aggregated_list", "test_", "query", "describe", "token", "search")
_STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
# Of an earlier cluster: its cloud would have deleted them with the rest of it.
_OF_ONE_CLUSTER = tuple(f"{_STORAGE_CLASSES}/{name}" for name in ("modelplane-rwx", "modelplane-rwx-efs"))


def command(config: Path) -> list[str]:
    """Give the command that starts it."""
    return [sys.executable, "-m", "testbed.cloud_process", str(config)]


def review_url(cloud: str, ports: Mapping[str, int]) -> str:
    """Where an API server asks a cloud about a token."""
    part, path = _REVIEWS[cloud]
    return f"http://127.0.0.1:{ports[part]}{path}"


def secret_name(cloud: str) -> str:
    """Name the Secret with the credential that manifests mean that name none."""
    return f"{cloud.lower()}-default"


def credential_file(folder: Path, cloud: str) -> Path:
    """Where the credential of a cloud is kept."""
    return folder / secret_name(cloud)


@dataclass(frozen=True)
class Spare:
    """A cluster of the testbed that a cloud may hand out."""

    cloud: str
    server: str
    authority: Authority

    def made_new(self) -> tuple[str, str]:
        """Take away what an earlier cluster left, and give the address and the CA certificate (PEM in Base64)."""
        with Kube(self.server, self.authority) as kube:
            for path in _OF_ONE_CLUSTER:
                kube.delete(path)
        return self.server, base64.b64encode(self.authority.ca.read_bytes()).decode()


class Spares:
    """Which cluster of a cloud has which cluster of the testbed."""

    def __init__(self, spares: list[Spare]) -> None:
        self._spares = spares
        self._holders: dict[int, str] = {}

    def take(self, cloud: str, cluster: str, exists: Callable[[str], bool]) -> tuple[str, str] | None:
        """Give the address and CA certificate for a cluster that is ready; None while all are those of clusters that exist."""
        for number, spare in enumerate(self._spares):
            holder = self._holders.get(number)
            if spare.cloud == cloud and (holder in (None, cluster) or not exists(str(holder))):
                self._holders[number] = cluster
                return spare.made_new()
        return None


class Clouds:
    """Both clouds, as the control address shows them."""

    def __init__(self, google: Any, aws: FakeAws) -> None:
        self._google = google
        self._aws = aws

    def remains(self) -> dict[str, Any]:
        """Give what was created and not deleted, by cloud."""
        return {
            GKE: {"place": f"project {self._google.project}", "objects": self._google.remains()},
            EKS: {"place": f"account {self._aws.account.number} in {self._aws.region}", "objects": self._aws.remains()},
        }

    def calls(self) -> dict[str, Any]:
        """Give the calls that changed something, in order, by cloud."""
        google = [f"{each.name} {each.target}" for each in self._google.ledger().calls(effective=True) if _changes(each.method)]
        aws = [
            f"{each.service}.{each.operation} {each.answer_id or _first(each.parameters)}".rstrip()
            for each in self._aws.ledger()
            if each.effective and _changes(each.operation)
        ]
        return {GKE: google, EKS: aws}


def _changes(operation: str) -> bool:
    return not operation.lower().startswith(_READS)


def _first(parameters: Mapping[str, Any]) -> str:
    """Give the first argument that names something."""
    named = (value for key, value in parameters.items() if key.lower().endswith(("id", "name", "arn")) and isinstance(value, str))
    return next(named, "")


def packed(name: str, version: str) -> bytes:
    """Pack a Helm chart that installs nothing; the same bytes each time, for their digest is in the index."""
    about = {"apiVersion": "v2", "name": name, "version": version, "description": "Stands in for a program that has nothing to do here."}
    content, tar = json.dumps(about).encode(), io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        entry = tarfile.TarInfo(f"{name}/Chart.yaml")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)


def chart_answer(path: str) -> bytes | None:
    """Answer as a repository at `/charts/<name>/<version>` whose only chart is that one; None for other paths."""
    name, _, rest = path.removeprefix(CHARTS).partition("/")
    version, _, file = rest.partition("/")
    archive = f"{name}-{version}.tgz"
    if file == archive:
        return packed(name, version)
    if file != "index.yaml":
        return None
    digest = hashlib.sha256(packed(name, version)).hexdigest()
    entry = {"apiVersion": "v2", "name": name, "version": version, "urls": [archive], "digest": digest}
    return json.dumps({"apiVersion": "v1", "entries": {name: [entry]}}).encode()


@contextmanager
def controlled(clouds: Clouds, port: int) -> Iterator[None]:
    """Serve the control address until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name is the base class's
            """Log nothing."""

        def do_GET(self) -> None:
            body = self._body() if is_program(self.headers.get("Host", ""), self.headers.get("Origin")) else None
            self.send_response(HTTPStatus.NOT_FOUND if body is None else HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

        def _body(self) -> bytes | None:
            if self.path.startswith(CHARTS):
                return chart_answer(self.path)
            answers = {REMAINS: clouds.remains, CALLS: clouds.calls}
            return json.dumps(answers[self.path]()).encode() if self.path in answers else None

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
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
    # The libraries of Google take seconds to import, which whoever only asks for an address does not want to wait.
    from testbed.clouds.gcp.fake import FakeGoogle  # noqa: PLC0415
    from testbed.clouds.gcp.services.world import NO_ENDPOINT, Endpoint  # noqa: PLC0415

    folder, ports = Path(config["folder"]), config["ports"]
    spares = Spares([Spare(each["cloud"], each["server"], Authority(Path(each["pki"]))) for each in config["clusters"]])
    kept = credential_file(folder, GKE)

    def of_google(cluster: str) -> Endpoint:
        taken = spares.take(GKE, cluster, lambda name: name in google.objects())
        return Endpoint(taken[0].removeprefix("https://"), taken[1]) if taken else NO_ENDPOINT

    google = FakeGoogle(
        grpc_port=ports["google-grpc"],
        http_port=ports["google-http"],
        credential=kept.read_text() if kept.is_file() else "",
    )
    aws = FakeAws(
        AWS_REGION,
        port=ports["aws"],
        role="provisioner",
        only_reviews=True,
        on_cluster_ready=lambda cluster: spares.take(EKS, cluster, lambda name: name in aws.cloud.eks.clusters),
    )
    with google:
        google.connect(of_google)
        write_text(kept, google.credential)
        write_text(credential_file(folder, EKS), aws.credential.text)
        with aws, controlled(Clouds(google, aws), ports["control"]):
            ended.wait()


def main() -> None:
    """Serve until SIGTERM."""
    ended = threading.Event()
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, lambda *_: ended.set())
    serve(read_json(Path(sys.argv[1])), ended)


if __name__ == "__main__":
    main()
