"""The processes of one cluster: etcd, the Kubernetes control plane, kwok in place of kubelets, and the LeaderWorkerSet controller.

Everything is the real program with its defaults; a flag stands here only for a loopback address, a certificate, or a wait that makes sense
on real hardware and not on one machine.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.cluster.kube import write_kubeconfig
from testbed.cluster.pki import Authority
from testbed.documents import dump_all, load_all, write_json, write_text
from testbed.fleet.home import Home
from testbed.process.processes import ProcessSpec

SERVICE_CIDR = "10.96.0.0/16"
STAGE_STORE, STAGE_SERVER, STAGE_CONTROLLER = 1, 2, 3
STAGES = Path(__file__).parent / "kwok-stages.yaml"

# Of a pod that says that it listens where engines do: the data plane has started its engine.
HAS_ENGINE = {
    "key": "if [(.spec.containers[], .spec.initContainers[]?) | .ports[]?.containerPort] | any(. == 8000) "
    'then .metadata.annotations["testbed.modelplane.ai/served"] // "not yet" else "true" end',
    "operator": "In",
    "values": ["true"],
}

# Requests per second a controller may send. The defaults of 20 to 50 make a burst of pods wait for the limiter, not for the cluster.
CLIENT_QPS, CLIENT_BURST = 300, 600

TOKEN_SECONDS = 5
"""For how long an API server takes a token without asking its cloud again."""


@dataclass(frozen=True)
class ControlPlane:
    """One cluster's folder, ports and programs."""

    name: str
    home: Home
    programs: dict[str, Path]
    simulated: bool
    """False for the control cluster: it has no nodes, so nothing there schedules or plays pods."""
    data_plane: bool = False
    """Whether pods have engines, which are asked before a pod is ready."""
    stack: bool = True
    """Whether what a serving stack would have is laid down; without, nothing runs that needs it."""
    token_review: str = ""
    """URL that the API server asks about bearer tokens; empty for none."""

    @property
    def folder(self) -> Path:
        """Where the cluster keeps everything."""
        return self.home.clusters / self.name

    @property
    def authority(self) -> Authority:
        """Answer the cluster's certificates."""
        return Authority(self.folder / "pki")

    @property
    def server(self) -> str:
        """Address of the API server."""
        return f"https://127.0.0.1:{self.port('kube-apiserver')}"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.folder / "admin.kubeconfig"

    def ports(self) -> list[str]:
        """Name every port the cluster needs."""
        parts = ["etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager"]
        if self.simulated:
            parts += ["kube-scheduler", "kwok", "lws-health", "lws-webhook"]
        return [f"{self.name}/{part}" for part in parts]

    def port(self, part: str) -> int:
        """Answer the port of one process."""
        return self.home.port(f"{self.name}/{part}")

    def write_files(self) -> None:
        """Write certificates, kubeconfigs and configuration files for the ports now chosen."""
        self.authority.ensure()
        for user in ("admin", "controller-manager", "scheduler"):
            write_kubeconfig(self.folder / f"{user}.kubeconfig", self.name, self.server, self.authority, user)
        if self.token_review:
            write_json(self._review_file, _webhook(self.token_review))
        if not self.simulated:
            return
        write_text(self.folder / "kwok-stages.yaml", dump_all(self._stages()))
        client = {"qps": CLIENT_QPS, "burst": CLIENT_BURST}
        scheduler = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(self.folder / "scheduler.kubeconfig"), **client},
            "leaderElection": {"leaderElect": False},
            "podMaxBackoffSeconds": 2,
        }
        write_json(self.folder / "scheduler.json", scheduler)
        lws = {
            "apiVersion": "config.lws.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"host": "127.0.0.1", "port": self.port("lws-webhook"), "certDir": str(self.folder / "pki" / "webhook")},
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.port('lws-health')}"},
            "metrics": {"bindAddress": "0"},
            "clientConnection": client,
        }
        write_json(self.folder / "lws.json", lws)

    def store_and_server(self) -> list[ProcessSpec]:
        """List what must be up before anything can speak to the cluster."""
        return [self._etcd(), self._apiserver()]

    def controllers(self) -> list[ProcessSpec]:
        """List what works through the API server; each wants it ready, or it starts over."""
        if not self.simulated:
            return [self._controller_manager()]
        return [self._controller_manager(), self._scheduler(), self._kwok(), *([self._lws()] if self.stack else [])]

    def _spec(self, part: str, stage: int, *arguments: str) -> ProcessSpec:
        return ProcessSpec(f"{self.name}.{part}", [str(self.programs[part]), *arguments], stage=stage)

    def _etcd(self) -> ProcessSpec:
        server, client, peer = self.authority.pair("etcd"), self.port("etcd"), self.port("etcd-peer")
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
            # A killed process loses nothing, only a power cut would; waiting for the disk costs every write milliseconds.
            "--unsafe-no-fsync",
            "--auto-compaction-retention=30m",
            "--log-level=warn",
        )

    def _apiserver(self) -> ProcessSpec:
        pki = self.authority
        server, client, proxy = pki.pair("apiserver"), pki.pair("etcd-client"), pki.pair("front-proxy-client")
        return self._spec(
            "kube-apiserver",
            STAGE_SERVER,
            "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1",
            f"--secure-port={self.port('kube-apiserver')}",
            # The Service "kubernetes" would need an endpoint that is not loopback; no simulated pod ever dials it.
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
            f"--service-cluster-ip-range={SERVICE_CIDR}",
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
            # Off by default once v1 is there; what is made for older clusters is tried against them.
            "--runtime-config=resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
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
            # A token that its cloud ends is refused soon, and not after two minutes.
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
        if self.data_plane:
            ready = next(stage for stage in stages if stage["metadata"]["name"] == "pod-ready")
            ready["spec"]["selector"]["matchExpressions"].append(HAS_ENGINE)
        return stages

    def _lws(self) -> ProcessSpec:
        return self._spec("lws", STAGE_CONTROLLER, f"--kubeconfig={self.kubeconfig}", f"--config={self.folder / 'lws.json'}")


def _webhook(url: str) -> dict[str, Any]:
    """Give the kubeconfig that names a webhook: an API server takes its address in no other form."""
    context = {"name": "review", "context": {"cluster": "review", "user": "api-server"}}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "review", "cluster": {"server": url}}],
        "users": [{"name": "api-server", "user": {}}],
        "contexts": [context],
        "current-context": "review",
    }
