"""KEDA's operator and metrics adapter on a cluster: the real programs, with the service account and the roles of KEDA's own manifests.

They run beside the API server, as its other controllers here do.
"""

import asyncio
import base64
import json
import os
import ssl
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from testbed.cluster.pki import Authority
from testbed.documents import read_json
from testbed.programs.install import Installer
from testbed.programs.versions import KEDA_TOOLS
from tests.front.aggregation.aggregated import METRICS_APISERVICE, Aggregated, outside
from tests.workflows.environment.harness import Json, eventually, free_port

NAMESPACE = "keda"
WRITER = "system:serviceaccount:keda:keda-operator"
"""The user as which KEDA writes."""
_METRICS_SERVICE = "keda-metrics-apiserver"
_LOG_SHOWN = 4000
# Those that KEDA has a finalizer on.
_KINDS = ("scaledobjects.keda.sh", "triggerauthentications.keda.sh", "cloudeventsources.eventing.keda.sh")


@dataclass
class Keda:
    """KEDA that runs. `log`: of its operator."""

    log: Path
    processes: tuple[Process, ...]

    def check(self) -> None:
        """Fail if one of its programs has ended."""
        assert all(process.returncode is None for process in self.processes), self.log.read_text()[-_LOG_SHOWN:]


@asynccontextmanager
async def installed_keda(aggregated: Aggregated, folder: Path, trusted: Path) -> AsyncIterator[Keda]:
    """Install KEDA on a cluster, and wait until it answers; it is gone after the block, with all ScaledObjects.

    `folder`: of its files. `trusted`: a folder with authorities that the operator trusts beside those of the machine.
    """
    programs = Installer().programs(KEDA_TOOLS)
    pki = Authority(folder, {}, {"tls": [f"keda-operator.{NAMESPACE}.svc", f"{_METRICS_SERVICE}.{NAMESPACE}.svc"]})
    pki.ensure()
    health, service, api = free_port(), free_port(), free_port()
    *documents, metrics = _manifests(pki, api)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(aggregated.applied(*documents))
        kinds = [each["metadata"]["name"] for each in documents if each["kind"] == "CustomResourceDefinition"]
        await aggregated.kubectl("wait", "--for=condition=Established", "customresourcedefinition", *kinds, "--timeout=240s")
        environment = await _environment(aggregated, folder)
        operator = [
            f"--kubeconfig={environment['KUBECONFIG']}",
            "--enable-prometheus-metrics=false",
            f"--health-probe-bind-address=127.0.0.1:{health}",
            f"--metrics-service-bind-address=127.0.0.1:{service}",
            f"--cert-dir={folder}",
        ]
        trusting = {**environment, "SSL_CERT_DIR": str(trusted)}
        adapter = [
            f"--lister-kubeconfig={environment['KUBECONFIG']}",
            f"--authentication-kubeconfig={environment['KUBECONFIG']}",
            f"--authorization-kubeconfig={environment['KUBECONFIG']}",
            "--bind-address=127.0.0.1",
            f"--secure-port={api}",
            # Of its own metrics: any that is free.
            "--port=0",
            f"--metrics-service-address=127.0.0.1:{service}",
            f"--cert-dir={folder}",
            f"--tls-cert-file={pki.pair('tls').certificate}",
            f"--tls-private-key-file={pki.pair('tls').key}",
        ]
        log = folder / "operator.log"
        keda = Keda(
            log,
            (
                await stack.enter_async_context(_running(programs["keda-operator"], operator, trusting, log)),
                await stack.enter_async_context(_running(programs["keda-adapter"], adapter, environment, folder / "adapter.log")),
            ),
        )
        # While the operator runs: it takes its finalizers away.
        stack.push_async_callback(_delete_all, aggregated)

        async def is_ready() -> bool:
            keda.check()
            return await _answers(f"http://127.0.0.1:{health}/readyz") and await _answers(f"https://127.0.0.1:{api}/readyz")

        await eventually(is_ready, bool, what="KEDA")
        # Before the programs end: no namespace of the cluster could be deleted while it leads nowhere.
        await stack.enter_async_context(aggregated.applied(metrics))
        await aggregated.until_available(METRICS_APISERVICE)
        yield keda
        keda.check()


def _manifests(pki: Authority, port: int) -> list[Json]:
    """Give what KEDA installs, for programs outside of the cluster; its APIService is the last."""
    folder = Installer().definitions("keda")
    documents: list[Json] = [document for file in sorted(folder.rglob("*.json")) for document in read_json(file)]
    # What is in a namespace cannot be made before it is there.
    documents.sort(key=lambda each: each["kind"] != "Namespace")
    (metrics,) = [each for each in documents if each["kind"] == "APIService"]
    metrics["spec"]["service"]["port"] = port
    metrics["spec"]["caBundle"] = base64.b64encode(pki.ca.read_bytes()).decode()
    return [*(each for each in documents if each is not metrics), outside(_METRICS_SERVICE, NAMESPACE, port), metrics]


async def _environment(aggregated: Aggregated, folder: Path) -> dict[str, str]:
    """Give the environment of KEDA's programs, with a kubeconfig of its service account."""
    token = (await aggregated.kubectl("-n", NAMESPACE, "create", "token", "keda-operator", "--duration=6h")).strip()
    authority = (aggregated.cluster.kubeconfig.parent / "pki" / "ca.crt").read_bytes()
    cluster = {"server": aggregated.cluster.server, "certificate-authority-data": base64.b64encode(authority).decode()}
    kubeconfig = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "keda", "user": {"token": token}}],
        "contexts": [{"name": "keda", "context": {"cluster": "cluster", "user": "keda"}}],
        "current-context": "keda",
    }
    kubeconfig.write_text(json.dumps(config))
    namespaces = {"WATCH_NAMESPACE": "", "POD_NAMESPACE": NAMESPACE, "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE}
    return {"PATH": os.environ["PATH"], "HOME": str(folder), "KUBECONFIG": str(kubeconfig), **namespaces}


@asynccontextmanager
async def _running(program: Path, arguments: list[str], environment: dict[str, str], log: Path) -> AsyncIterator[Process]:
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(program, *arguments, env=environment, stdout=output, stderr=output)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(url: str) -> bool:
    # Whom they trust is not asked here.
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        async with aiohttp.ClientSession() as session, session.get(url, ssl=anybody) as answer:
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _delete_all(aggregated: Aggregated) -> None:
    for kind in _KINDS:
        await aggregated.kubectl("delete", kind, "--all", "--all-namespaces", "--timeout=40s")
