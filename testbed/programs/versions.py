"""Every version the testbed pins, and where each program comes from.

One module, so that raising a version is one edit here (with its checksum, for definitions) and one `go mod tidy` in `tools/<module>`.
Programs are built from Go modules when neither PATH nor an official download has them; resource definitions of other projects are read out
of their Go modules and never copied.
"""

from dataclasses import dataclass

TEMPORAL = "1.5.1"
TEMPORAL_SERVER = "1.29.1"
"""The server inside that program."""
ETCD = "3.6.8"
KUBERNETES = "1.35.4"
KWOK = "0.8.0"
LEADER_WORKER_SET = "0.8.0"
HELM = "4.3.1"
TRAEFIK = "3.7.13"
"""The control cluster's Gateway needs 3.7: earlier ones ignore the filters of a backendRef."""
GATEWAY_API = "1.5.1"
INFERENCE_EXTENSION = "1.0.1"
INFERENCE_EXTENSION_OF_SEVERAL_PORTS = "1.5.0"
"""The one that the pinned endpoint picker is made with; pools of the other have one port."""
PROMETHEUS_OPERATOR = "0.85.0"
ISTIO_API = "1.28.0"
KUEUE = "0.15.0"
"""The first whose ClusterQueues are v1beta2, which the capacity adapter reads."""
KAI_SCHEDULER = "0.12.0"
KEDA = "2.21.0"


@dataclass(frozen=True)
class Download:
    """An official release: where it lies and how it is packed. `{version}`, `{arch}` and `{binary}` are filled in.

    A release that publishes no checksums is not downloaded but built, from modules whose hashes are in go.sum.
    """

    url: str
    checksum_url: str
    """A checksum beside its file finds a damaged file, and one that was changed alone; who wrote both is a matter of the host's TLS."""
    member: str | None = None
    """Path inside the tar archive; None when the file is the program itself."""


@dataclass(frozen=True)
class LeftOut:
    """A package that a build does without, because it brings in many more that nothing here uses: a file of ours stands in its place."""

    module: str
    folder: str
    """Of the package, inside the module."""
    file: str
    """Under `tools/<module of the tool>`; it fails with an error for what was left out."""


@dataclass(frozen=True)
class Tool:
    """One program, or several that are built together because they share almost all of their code."""

    name: str
    version: str
    module: str
    """Folder under `tools/` with the go.mod that pins the build."""
    packages: dict[str, str]
    """Name of the program to the Go package that builds it; two of them end in different words."""
    minutes: float
    """What a build takes on two cores, printed for the person who waits."""
    linker_variables: tuple[str, ...] = ()
    download: Download | None = None
    version_arguments: tuple[str, ...] | None = ("--version",)
    """Arguments with which the program on PATH prints its version; None when its name is too common to look for."""
    left_out: tuple[LeftOut, ...] = ()


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
        packages={name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler")},
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
            url="https://github.com/etcd-io/etcd/releases/download/v{version}/etcd-v{version}-linux-{arch}.tar.gz",
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
        # A plain build calls itself 0.0.0-DEV, which a later look on PATH would refuse.
        linker_variables=(f"github.com/temporalio/cli/temporalcli.Version={TEMPORAL}",),
        download=Download(
            url="https://github.com/temporalio/cli/releases/download/v{version}/temporal_cli_{version}_linux_{arch}.tar.gz",
            checksum_url="https://github.com/temporalio/cli/releases/download/v{version}/checksums.txt",
            member="temporal",
        ),
    ),
    Tool(
        name="lws",
        version=LEADER_WORKER_SET,
        module="lws",
        packages={"lws": "sigs.k8s.io/lws/cmd"},
        minutes=3.5,
        linker_variables=(f"sigs.k8s.io/lws/pkg/version.GitVersion=v{LEADER_WORKER_SET}",),
        version_arguments=None,
    ),
    Tool(
        name="helm",
        version=HELM,
        module="helm",
        packages={"helm": "helm.sh/helm/v4/cmd/helm"},
        minutes=3,
        # Without the stamp helm reports "v4.3", which callers that parse three numbers refuse.
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
        linker_variables=(f"github.com/traefik/traefik/v3/pkg/version.Version={TRAEFIK}",),
        download=Download(
            url="https://github.com/traefik/traefik/releases/download/v{version}/traefik_v{version}_linux_{arch}.tar.gz",
            checksum_url="https://github.com/traefik/traefik/releases/download/v{version}/traefik_v{version}_checksums.txt",
            member="traefik",
        ),
        version_arguments=("version",),
        # Half of the build: a client for each of two hundred DNS services, and for Amazon's EC2.
        left_out=(
            LeftOut("github.com/go-acme/lego/v5", "providers/dns", "without_dns.go"),
            LeftOut("github.com/traefik/traefik/v3", "pkg/provider/ecs", "without_ecs.go"),
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

# The `temporal` program embeds this server with SQLite alone. These programs also store in
# PostgreSQL. The go.mod of `temporal` builds them, so both have the same version. Only tests of that
# store build them.
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

# Built only where it is asked for: no testbed runs it by itself, and it takes longer than any other.
KEDA_TOOLS: tuple[Tool, ...] = (
    Tool(
        name="keda",
        version=KEDA,
        module="keda",
        packages={f"keda-{part}": f"github.com/kedacore/keda/v2/cmd/{part}" for part in ("operator", "adapter")},
        minutes=9,
        linker_variables=(f"github.com/kedacore/keda/v2/version.Version={KEDA}",),
        version_arguments=None,
    ),
)


@dataclass(frozen=True)
class Definitions:
    """Manifests that another project ships inside its Go module."""

    name: str
    module: str
    version: str
    checksum: str
    """Of the module, as in a go.sum."""
    files: tuple[str, ...]
    """Glob patterns inside the module."""


DEFINITIONS: tuple[Definitions, ...] = (
    Definitions(
        name="gateway-api",
        module="sigs.k8s.io/gateway-api",
        version=GATEWAY_API,
        checksum="h1:RqVRIlkhLhUO8wOHKTLnTJA6o/1un4po4/6M1nRzdd0=",
        # The bundle's admission policy (vap_*) guards upgrades on shared clusters; nothing is upgraded here.
        files=("config/crd/standard/gateway.networking.k8s.io_[a-u]*.yaml",),
    ),
    Definitions(
        name="inference-extension",
        module="sigs.k8s.io/gateway-api-inference-extension",
        version=INFERENCE_EXTENSION,
        checksum="h1:n/zyxk/1RCT1nNoCdKiZsN7XTz9mTk3Cu1fWWbtZMBw=",
        files=("config/crd/bases/*.yaml",),
    ),
    Definitions(
        name="lws",
        module="sigs.k8s.io/lws",
        version=LEADER_WORKER_SET,
        checksum="h1:DdhJ8QabwTfWgbgaHH2gdf8twliioHaoSfmDXRYEVU0=",
        files=("config/crd/bases/*.yaml", "config/webhook/manifests.yaml", "config/webhook/*-patch.yaml"),
    ),
    Definitions(
        name="traefik",
        module="github.com/traefik/traefik/v3",
        version=TRAEFIK,
        checksum="h1:T8wy9KuaFzCkmXCqAzDy7t73pBDR1DHrJe3pqXpNXTw=",
        # Its provider waits until all kinds of it are served.
        files=("docs/content/reference/dynamic-configuration/kubernetes-crd-definition-v1.yml",),
    ),
)

# Of software that no simulated cluster runs, for tests of objects that only some clusters know.
ADD_ONS: tuple[Definitions, ...] = (
    Definitions(
        name="inference-extension-of-several-ports",
        module="sigs.k8s.io/gateway-api-inference-extension",
        version=INFERENCE_EXTENSION_OF_SEVERAL_PORTS,
        checksum="h1:w9Awt60cmI1vM7Y6N81h8wDCBP0WkmxpdI7GKY0v070=",
        files=("config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",),
    ),
    Definitions(
        name="inference-extension-rewrites",
        module="sigs.k8s.io/gateway-api-inference-extension",
        version=INFERENCE_EXTENSION_OF_SEVERAL_PORTS,
        checksum="h1:w9Awt60cmI1vM7Y6N81h8wDCBP0WkmxpdI7GKY0v070=",
        files=("config/crd/bases/inference.networking.x-k8s.io_inferencemodelrewrites.yaml",),
    ),
    Definitions(
        name="prometheus-operator",
        module="github.com/prometheus-operator/prometheus-operator",
        version=PROMETHEUS_OPERATOR,
        checksum="h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        files=("example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",),
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
            for plural in ("clusterqueues", "cohorts", "localqueues", "resourceflavors", "workloads")
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

# What KEDA installs beside its programs, as its own manifests have it.
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
