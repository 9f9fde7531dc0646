"""The processes of one cluster.

They are etcd, the Kubernetes control plane, kwok in place of kubelets, and the
LeaderWorkerSet controller. All are the real programs with their defaults. A flag sets
only a loopback address, a certificate, or a wait that is too long for one machine.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cluster.kube import write_kubeconfig
from testbed.cluster.pki import Authority
from testbed.documents import dump_all, load_all, write_json, write_text
from testbed.fleet.home import Home
from testbed.node.images import EXITED, IS_REAL
from testbed.process.processes import ProcessSpec

SERVICE_CIDR = "10.96.0.0/16"
STAGE_STORE, STAGE_SERVER, STAGE_CONTROLLER = 1, 2, 3
STAGES = Path(__file__).parent / "kwok-stages.yaml"

# The data plane sets this annotation on a pod while the pod has an engine. It applies
# to pods that listen on the port of engines.
HAS_ENGINE = {
    "key": (
        "if [(.spec.containers[], .spec.initContainers[]?) | .ports[]?.containerPort] "
        "| any(. == 8000) "
        'then .metadata.annotations["testbed.modelplane.ai/served"] // "not yet" '
        'else "true" end'
    ),
    "operator": "In",
    "values": ["true"],
}

# Pods that run real programs get their readiness from the data plane. A pod of a Job
# has succeeded when its program has ended with success.
READY_OUTSIDE = {
    "key": f'if ({IS_REAL}) then "outside" else "here" end',
    "operator": "In",
    "values": ["here"],
}
HAS_EXITED = {
    "key": f'if ({IS_REAL}) then .metadata.annotations["{EXITED}"] // "not yet" '
    'else "true" end',
    "operator": "In",
    "values": ["true"],
}

# Requests per second that a controller may send. With the defaults of 20 to 50, a burst
# of pods waits for the limiter instead of the cluster.
CLIENT_QPS, CLIENT_BURST = 300, 600

TOKEN_SECONDS = 5
"""How long an API server accepts a token before it asks the cloud again."""


@dataclass(frozen=True)
class ClusterControlPlane:
    """One cluster's folder, ports and programs."""

    name: str
    home: Home
    programs: dict[str, Path]
    simulated: bool
    """False for the control cluster, which has no GPU nodes.

    It has one node for Envoy Gateway with `real_pods`, and otherwise none and no pods.
    """
    data_plane: bool = False
    """Whether pods have engines, which must listen before a pod is ready."""
    real_pods: bool = False
    """Whether pods with images of `testbed/node/images.py` run real programs."""
    stack: bool = True
    """Whether the testbed installs the parts of a serving stack.

    The LeaderWorkerSet controller needs them.
    """
    token_review: str = ""
    """The URL at which the API server reviews bearer tokens; empty for none."""

    @property
    def has_nodes(self) -> bool:
        """Whether pods run in the cluster."""
        return self.simulated or self.real_pods

    @property
    def folder(self) -> Path:
        """The folder of the cluster's files."""
        return self.home.clusters / self.name

    @property
    def authority(self) -> Authority:
        """The cluster's certificates."""
        return Authority(self.folder / "pki")

    @property
    def server(self) -> str:
        """The address of the API server."""
        return f"https://127.0.0.1:{self.port('kube-apiserver')}"

    @property
    def service_cidr(self) -> str:
        """The address range of the cluster's Services."""
        return self.home.service_cidr(self.name) if self.real_pods else SERVICE_CIDR

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    def ports(self) -> list[str]:
        """Return the names of the ports that the cluster needs."""
        parts = ["etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager"]
        if self.has_nodes:
            parts += ["kube-scheduler", "kwok"]
        if self.simulated:
            parts += ["lws-health", "lws-webhook"]
        if self.kubelet:
            parts.append("kubelet")
        return [f"{self.name}/{part}" for part in parts]

    @property
    def kubelet(self) -> bool:
        """Whether the data plane serves logs and ports of the cluster's pods."""
        return self.simulated and self.data_plane

    def port(self, part: str) -> int:
        """Return the port of one process."""
        return self.home.port(f"{self.name}/{part}")

    def write_files(self) -> None:
        """Write certificates, kubeconfigs and configuration files for the chosen ports."""
        self.authority.ensure()
        for user in ("admin", "controller-manager", "scheduler"):
            write_kubeconfig(
                self.folder / f"{user}.kubeconfig",
                self.name,
                self.server,
                self.authority,
                user,
            )
        if self.token_review:
            write_json(self._review_file, _webhook(self.token_review))
        if not self.has_nodes:
            return
        write_text(self.folder / "kwok-stages.yaml", dump_all(self._stages()))
        client = {"qps": CLIENT_QPS, "burst": CLIENT_BURST}
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {
                "kubeconfig": str(self.folder / "scheduler.kubeconfig"),
                **client,
            },
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": 2,
        }
        write_json(self.folder / "scheduler.json", scheduler)
        if not self.simulated:
            return
        lws = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {
                "host": "127.0.0.1",
                "port": self.port("lws-webhook"),
                "certDir": str(self.folder / "pki" / "webhook"),
            },
            "health": {
                "healthProbeBindAddress": f"127.0.0.1:{self.port('lws-health')}"
            },
            "metrics": {"bindAddress": "0"},
            "clientConnection": client,
        }
        write_json(self.folder / "lws.json", lws)

    def store_and_server(self) -> list[ProcessSpec]:
        """Return the processes that must run before any client can connect."""
        return [self._etcd(), self._apiserver()]

    def controllers(self) -> list[ProcessSpec]:
        """Return the processes that use the API server.

        They exit and are restarted until the API server is ready.
        """
        if not self.has_nodes:
            return [self._controller_manager()]
        return [
            self._controller_manager(),
            self._scheduler(),
            self._kwok(),
            *([self._lws()] if self.simulated and self.stack else []),
        ]

    def _spec(self, part: str, stage: int, *arguments: str) -> ProcessSpec:
        return ProcessSpec(
            f"{self.name}.{part}", [str(self.programs[part]), *arguments], stage=stage
        )

    def _etcd(self) -> ProcessSpec:
        server, client, peer = (
            self.authority.pair("etcd"),
            self.port("etcd"),
            self.port("etcd-peer"),
        )
        return self._spec(
            "etcd",
            STAGE_STORE,
            f"--name={self.name}",
            f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls=https://127.0.0.1:{client}",
            f"--advertise-client-urls=https://127.0.0.1:{client}",
            f"--listen-peer-urls=https://127.0.0.1:{peer}",
            f"--initial-advertise-peer-urls=https://127.0.0.1:{peer}",
            f"--initial-cluster={self.name}=https://127.0.0.1:{peer}",
            f"--cert-file={server.certificate}",
            f"--key-file={server.key}",
            f"--trusted-ca-file={self.authority.ca}",
            "--client-cert-auth",
            f"--peer-cert-file={server.certificate}",
            f"--peer-key-file={server.key}",
            f"--peer-trusted-ca-file={self.authority.ca}",
            "--peer-client-cert-auth",
            # Skip the wait for the disk, which costs every write milliseconds. Only a
            # power cut can lose data, not a killed process.
            "--unsafe-no-fsync",
            "--auto-compaction-retention=30m",
            "--log-level=warn",
        )

    def _apiserver(self) -> ProcessSpec:
        pki = self.authority
        server, client, proxy = (
            pki.pair("apiserver"),
            pki.pair("etcd-client"),
            pki.pair("front-proxy-client"),
        )
        return self._spec(
            "kube-apiserver",
            STAGE_SERVER,
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port('kube-apiserver')}",
            # The Service "kubernetes" would need an endpoint that is not on loopback.
            # No simulated pod dials it.
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=https://127.0.0.1:{self.port('etcd')}",
            f"--etcd-cafile={pki.ca}",
            f"--etcd-certfile={client.certificate}",
            f"--etcd-keyfile={client.key}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={pki.ca}",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            f"--service-cluster-ip-range={self.service_cidr}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki.service_account.certificate}",
            f"--service-account-signing-key-file={pki.service_account.key}",
            f"--requestheader-client-ca-file={pki.ca}",
            "--requestheader-allowed-names=front-proxy-client",
            "--requestheader-username-headers=X-Remote-User",
            "--requestheader-group-headers=X-Remote-Group",
            "--requestheader-extra-headers-prefix=X-Remote-Extra-",
            f"--proxy-client-cert-file={proxy.certificate}",
            f"--proxy-client-key-file={proxy.key}",
            # The beta versions are off by default once v1 exists. Tests apply objects
            # for older clusters to them.
            "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
            f"--kubelet-certificate-authority={pki.ca}",
            f"--kubelet-client-certificate={client.certificate}",
            f"--kubelet-client-key={client.key}",
            "--kubelet-preferred-address-types=InternalIP",
            "--profiling=false",
            *self._review_arguments(),
        )

    @property
    def _review_file(self) -> Path:
        return self.folder / "token-review.json"

    def _review_arguments(self) -> list[str]:
        if not self.token_review:
            return []
        return [
            f"--authentication-token-webhook-config-file={self._review_file}",
            "--authentication-token-webhook-version=v1",
            # Reject a token soon after its cloud has revoked it. The default is two
            # minutes.
            f"--authentication-token-webhook-cache-ttl={TOKEN_SECONDS}s",
        ]

    def _controller_manager(self) -> ProcessSpec:
        kubeconfig = self.folder / "controller-manager.kubeconfig"
        return self._spec(
            "kube-controller-manager",
            STAGE_CONTROLLER,
            f"--kubeconfig={kubeconfig}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port('kube-controller-manager')}",
            f"--root-ca-file={self.authority.ca}",
            f"--service-account-private-key-file={self.authority.service_account.key}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            f"--kube-api-qps={CLIENT_QPS}",
            f"--kube-api-burst={CLIENT_BURST}",
            "--profiling=false",
        )

    def _scheduler(self) -> ProcessSpec:
        kubeconfig = self.folder / "scheduler.kubeconfig"
        return self._spec(
            "kube-scheduler",
            STAGE_CONTROLLER,
            f"--config={self.folder / 'scheduler.json'}",
            f"--authentication-kubeconfig={kubeconfig}",
            f"--authorization-kubeconfig={kubeconfig}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self.port('kube-scheduler')}",
            "--profiling=false",
        )

    def _kwok(self) -> ProcessSpec:
        return self._spec(
            "kwok",
            STAGE_CONTROLLER,
            f"--kubeconfig={self.kubeconfig}",
            f"--config={self.folder / 'kwok-stages.yaml'}",
            "--manage-all-nodes",
            f"--cidr={self.home.pod_cidr(self.name)}",
            f"--server-address=127.0.0.1:{self.port('kwok')}",
            "--node-lease-duration-seconds=40",
        )

    def _stages(self) -> list[dict[str, Any]]:
        stages: list[dict[str, Any]] = load_all(STAGES.read_text())
        added: dict[str, list[Any]] = {
            "pod-ready": [],
            "pod-complete": [],
        }
        if self.data_plane:
            added["pod-ready"].append(HAS_ENGINE)
        if self.real_pods:
            added["pod-ready"].append(READY_OUTSIDE)
            added["pod-complete"].append(HAS_EXITED)
        for stage in stages:
            expressions = stage["spec"]["selector"]["matchExpressions"]
            expressions += added.get(stage["metadata"]["name"], [])
        return stages

    def _lws(self) -> ProcessSpec:
        return self._spec(
            "lws",
            STAGE_CONTROLLER,
            f"--kubeconfig={self.kubeconfig}",
            f"--config={self.folder / 'lws.json'}",
        )


def _webhook(url: str) -> dict[str, Any]:
    """Return the kubeconfig that names a webhook.

    An API server reads the address of a webhook only in this form.
    """
    context = {"name": "review", "context": {"cluster": "review", "user": "api-server"}}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "review", "cluster": {"server": url}}],
        "users": [{"name": "api-server", "user": {}}],
        "contexts": [context],
        "current-context": "review",
    }
