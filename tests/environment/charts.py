"""Small Helm charts, and loopback repositories that serve them over HTTP and OCI."""

import contextlib
import gzip
import hashlib
import http.server
import io
import json
import ssl
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Self

from tests.environment.http_server import serving

_CONFIG_TYPE = "application/vnd.cncf.helm.config.v1+json"
_LAYER_TYPE = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
_JSON = "application/json"


@dataclass(frozen=True)
class PackedChart:
    """A chart as `helm package` writes it: the bytes of `<name>-<version>.tgz`."""

    name: str
    version: str
    archive: bytes = field(repr=False)

    @property
    def file(self) -> str:
        return f"{self.name}-{self.version}.tgz"


def chart(
    name: str,
    version: str = "1.0.0",
    *,
    templates: Mapping[str, str] | None = None,
    crds: Mapping[str, str] | None = None,
    subcharts: Sequence[PackedChart] = (),
    packed: bool = True,
    values: Mapping[str, Any] | None = None,
    values_schema: Mapping[str, Any] | None = None,
    library: bool = False,
) -> PackedChart:
    """Pack a chart from the files of its `templates/` and `crds/`, keyed by file name.

    Subcharts are archives in `charts/`, or folders if `packed` is False. Helm always
    renders them, because no condition disables them.
    """
    about = {
        "apiVersion": "v2",
        "name": name,
        "version": version,
        "type": "library" if library else "application",
    }
    files = {
        "Chart.yaml": json.dumps(about).encode(),
        "values.yaml": json.dumps(dict(values or {})).encode(),
    }
    files |= {
        f"templates/{file}": text.encode() for file, text in (templates or {}).items()
    }
    files |= {f"crds/{file}": text.encode() for file, text in (crds or {}).items()}
    if values_schema is not None:
        files["values.schema.json"] = json.dumps(dict(values_schema)).encode()
    for subchart in subcharts:
        files |= (
            {f"charts/{subchart.file}": subchart.archive}
            if packed
            else _unpacked(subchart)
        )
    return pack(name, version, files)


def pack(name: str, version: str, files: Mapping[str, bytes]) -> PackedChart:
    """Pack the files of a chart, keyed by their paths in its folder."""
    return PackedChart(
        name,
        version,
        _packed({f"{name}/{path}": content for path, content in files.items()}),
    )


def _packed(files: Mapping[str, bytes]) -> bytes:
    """Pack the files reproducibly, so that equal content has an equal digest."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as archive:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return gzip.compress(tar.getvalue(), mtime=0)


def _unpacked(subchart: PackedChart) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(subchart.archive), mode="r:gz") as archive:
        entries = [
            (entry.name, archive.extractfile(entry)) for entry in archive.getmembers()
        ]
        return {
            f"charts/{name}": content.read()
            for name, content in entries
            if content is not None
        }


class ChartRepository:
    """A chart repository for a `with` block.

    `url` serves an index, and `oci` serves the same charts; Helm needs `tls` for
    `oci://`. Charts may be added while it serves. `requests` lists the requested paths.
    """

    def __init__(self, *charts: PackedChart, tls: ssl.SSLContext | None = None) -> None:
        self._charts: dict[str, PackedChart] = {}
        self._tls = tls
        self._stack = contextlib.ExitStack()
        self.requests: list[str] = []
        self.url = self.oci = ""
        for each in charts:
            self.add(each)

    def add(self, packed: PackedChart) -> None:
        """Publish a chart. It replaces a chart of the same name and version."""
        self._charts[packed.file] = packed

    def __enter__(self) -> Self:
        host = self._stack.enter_context(self._serving())
        self.url, self.oci = (
            f"{'https' if self._tls else 'http'}://{host}",
            f"oci://{host}/charts",
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @contextlib.contextmanager
    def _serving(self) -> Iterator[str]:
        repository = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: Any) -> None:
                pass

            def do_HEAD(self) -> None:
                self._respond(with_body=False)

            def do_GET(self) -> None:
                self._respond(with_body=True)

            def _respond(self, *, with_body: bool) -> None:
                path = self.path.partition("?")[0]
                repository.requests.append(path)
                found = repository._answer(path)
                kind, body = found or (
                    _JSON,
                    b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}',
                )
                self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("Docker-Content-Digest", _digest(body))
                self.end_headers()
                if with_body:
                    self.wfile.write(body)

        with serving(Handler, self._tls) as host:
            yield host

    def _answer(self, path: str) -> tuple[str, bytes] | None:
        """Return the media type and the body of a path, or None for an unknown path."""
        if path == "/index.yaml":
            return _JSON, self._index()
        if (packed := self._charts.get(path.removeprefix("/"))) is not None:
            return "application/gzip", packed.archive
        if not path.startswith("/v2/"):
            return None
        if path == "/v2/":
            return _JSON, b"{}"
        folder, _, reference = path.removeprefix("/v2/charts/").rpartition("/")
        name, _, kind = folder.partition("/")
        of_name = [each for each in self._charts.values() if each.name == name]
        if kind == "tags" and of_name:
            return _JSON, json.dumps(
                {"name": f"charts/{name}", "tags": [each.version for each in of_name]}
            ).encode()
        for each in of_name:
            blobs, manifest = _oci(each)
            if kind == "manifests" and reference in (each.version, _digest(manifest)):
                return _MANIFEST_TYPE, manifest
            if kind == "blobs" and reference in blobs:
                return "application/octet-stream", blobs[reference]
        return None

    def _index(self) -> bytes:
        entries: dict[str, list[dict[str, Any]]] = {}
        for each in self._charts.values():
            about = {
                "apiVersion": "v2",
                "name": each.name,
                "version": each.version,
                "urls": [each.file],
            }
            entries.setdefault(each.name, []).append(
                about | {"digest": hashlib.sha256(each.archive).hexdigest()}
            )
        return json.dumps({"apiVersion": "v1", "entries": entries}).encode()


def _oci(packed: PackedChart) -> tuple[dict[str, bytes], bytes]:
    """Return the blobs of a chart by digest, and its manifest."""
    config = json.dumps(
        {"apiVersion": "v2", "name": packed.name, "version": packed.version}
    ).encode()
    blobs = {_digest(config): config, _digest(packed.archive): packed.archive}
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST_TYPE,
        "config": {
            "mediaType": _CONFIG_TYPE,
            "digest": _digest(config),
            "size": len(config),
        },
        "layers": [
            {
                "mediaType": _LAYER_TYPE,
                "digest": _digest(packed.archive),
                "size": len(packed.archive),
            }
        ],
    }
    return blobs, json.dumps(manifest).encode()


def _digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"
