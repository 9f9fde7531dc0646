"""The charts of a stack from the Go modules of their projects, packed as released.

The steps are those of each project's release script. The registries of the released
charts are not needed.
"""

import io
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from api_types.pins import charts as pins
from api_types.pins.charts import ChartPin
from testbed.programs.install import download_module
from tests.environment.charts import PackedChart, pack

Files = dict[str, bytes]
_IGNORED = frozenset({"README.md", "README.template.md", "signkey_annotation.txt"})


@dataclass(frozen=True)
class ModuleChart:
    """A chart before its release, in the Go module of its project.

    `checksum` is that of the module, as in a go.sum. `fill` does the steps of the
    project's release script.
    """

    module: str
    checksum: str
    folder: str
    fill: Callable[[ChartPin, Path, Files], Files]


def real_charts() -> list[PackedChart]:
    """Pack every chart of the stack that can be had as a Go module."""
    return [_packed(pin, chart) for pin, chart in _CHARTS.items()]


def _packed(pin: ChartPin, chart: ModuleChart) -> PackedChart:
    version = pin.version.removeprefix("v")
    with tempfile.TemporaryDirectory() as scratch:
        module = download_module(chart.module, version, chart.checksum, Path(scratch))
    folder = module / chart.folder
    files = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in _IGNORED
    }
    files = chart.fill(pin, module, files)
    about = _read(files["Chart.yaml"])
    about |= {"version": pin.version, "appVersion": f"v{version}"}
    files["Chart.yaml"] = _written(about)
    return pack(pin.chart, pin.version, files)


def _leader_worker_set(pin: ChartPin, _: Path, files: Files) -> Files:
    # Without this, the chart would run the image of the main branch.
    values = _read(files["values.yaml"])
    values["image"]["manager"] |= {"tag": pin.version, "pullPolicy": "IfNotPresent"}
    return {**files, "values.yaml": _written(values)}


def _feature_discovery(_: ChartPin, __: Path, files: Files) -> Files:
    return files


def _cert_manager(_: ChartPin, module: Path, files: Files) -> Files:
    folder = module / "deploy" / "crds"
    definitions = [path.read_bytes() for path in sorted(folder.glob("crd-*.yaml"))]
    assert definitions
    about = files.pop("Chart.template.yaml").replace(b"{{IS_PRERELEASE}}", b"false")
    text = b"\n---\n".join(definitions)
    return {**files, "Chart.yaml": about, "templates/crds.yaml": text}


def _envoy_gateway(pin: ChartPin, _: Path, files: Files) -> Files:
    values = files.pop("values.tmpl.yaml")
    for name, value in {
        b"${GatewayImagePullPolicy}": b"IfNotPresent",
        b"${GatewayImage}": f"docker.io/envoyproxy/gateway:{pin.version}".encode(),
    }.items():
        assert name in values
        values = values.replace(name, value)
    return {**files, "values.yaml": values}


_CHARTS = {
    pins.LEADER_WORKER_SET: ModuleChart(
        module="sigs.k8s.io/lws",
        checksum="h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        folder="charts/lws",
        fill=_leader_worker_set,
    ),
    pins.NODE_FEATURE_DISCOVERY: ModuleChart(
        module="sigs.k8s.io/node-feature-discovery",
        checksum="h1:q5/qpyxrasI/F6838lflFNGAUszpMNRuFwornPLYdxQ=",
        folder="deployment/helm/node-feature-discovery",
        fill=_feature_discovery,
    ),
    pins.CERT_MANAGER: ModuleChart(
        module="github.com/cert-manager/cert-manager",
        checksum="h1:Aig+lWMoLsmpGd9TOlTvO4t0Ah3D+/vGB37x/f+ZKt0=",
        folder="deploy/charts/cert-manager",
        fill=_cert_manager,
    ),
    pins.ENVOY_GATEWAY: ModuleChart(
        module="github.com/envoyproxy/gateway",
        checksum="h1:i8POtrPtel3n0iGP55MNy6U1rTW4msyhkEWjXAF09ts=",
        folder="charts/gateway-helm",
        fill=_envoy_gateway,
    ),
}


def _read(text: bytes) -> dict[str, Any]:
    found: dict[str, Any] = YAML(typ="safe", pure=True).load(text)
    return found


def _written(tree: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    YAML(typ="safe", pure=True).dump(tree, out)
    return out.getvalue()
