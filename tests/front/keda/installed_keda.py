"""KEDA's operator and metrics adapter: the real programs with KEDA's own manifests.

They run outside the cluster like its other controllers, with KEDA's service account and
roles.
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
"""The user that KEDA uses for writes."""
_METRICS_SERVICE = "keda-metrics-apiserver"
_LOG_SHOWN = 4000
# The operator logs this after a poll that needs no scaling, at level debug.
_POLLED = '"msg":"ScaleTarget no change"'
# Kinds with a finalizer of KEDA.
_KINDS = (
    "scaledobjects.keda.sh",
    "triggerauthentications.keda.sh",
    "cloudeventsources.eventing.keda.sh",
)


@dataclass
class Keda:
    """A running KEDA. `log` is the log of its operator, a JSON object per line."""

    log: Path
    processes: tuple[Process, ...]

    def check(self) -> None:
        """Fail if one of its programs has exited."""
        assert all(process.returncode is None for process in self.processes), (
            self.log.read_text()[-_LOG_SHOWN:]
        )

    def polled(self, name: str) -> bool:
        """Return whether KEDA has polled the triggers of a ScaledObject.

        The status of the ScaledObject does not always show it: the first poll may
        read an object without names of metrics from its cache, and the status that it
        writes may be overwritten by the one that the reconciler read before.
        """
        wanted = f'"scaledobject.Name":"{name}"'
        return any(
            _POLLED in line and wanted in line
            for line in self.log.read_text().splitlines()
        )


@asynccontextmanager
async def installed_keda(
    aggregated: Aggregated, folder: Path, trusted: Path
) -> AsyncIterator[Keda]:
    """Install KEDA on a cluster, and wait until it answers; remove it after the block.

    ScaledObjects are removed too. `folder` stores its files. `trusted` is a folder with
    authorities that the operator trusts in addition to those of the machine.
    """
    programs = Installer().programs(KEDA_TOOLS)
    pki = Authority(
        folder,
        {},
        {
            "tls": [
                f"keda-operator.{NAMESPACE}.svc",
                f"{_METRICS_SERVICE}.{NAMESPACE}.svc",
            ]
        },
    )
    pki.ensure()
    health, service, api = free_port(), free_port(), free_port()
    *documents, metrics = _manifests(pki, api)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(aggregated.applied(*documents))
        kinds = [
            each["metadata"]["name"]
            for each in documents
            if each["kind"] == "CustomResourceDefinition"
        ]
        await aggregated.kubectl(
            "wait",
            "--for=condition=Established",
            "customresourcedefinition",
            *kinds,
            "--timeout=240s",
        )
        environment = await _environment(aggregated, folder)
        operator = [
            f"--kubeconfig={environment['KUBECONFIG']}",
            "--enable-prometheus-metrics=false",
            "--zap-log-level=debug",
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
            # Ports for KEDA's own metrics: any free one.
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
                await stack.enter_async_context(
                    _running(programs["keda-operator"], operator, trusting, log)
                ),
                await stack.enter_async_context(
                    _running(
                        programs["keda-adapter"],
                        adapter,
                        environment,
                        folder / "adapter.log",
                    )
                ),
            ),
        )
        # While the operator runs, because it removes its finalizers.
        stack.push_async_callback(_delete_all, aggregated)

        async def is_ready() -> bool:
            keda.check()
            return await _answers(
                f"http://127.0.0.1:{health}/readyz"
            ) and await _answers(f"https://127.0.0.1:{api}/readyz")

        await eventually(is_ready, bool, what="KEDA")
        # Before the programs stop: with an unavailable APIService, no namespace of the
        # cluster could be deleted.
        await stack.enter_async_context(aggregated.applied(metrics))
        await aggregated.until_available(METRICS_APISERVICE)
        yield keda
        keda.check()


def _manifests(pki: Authority, port: int) -> list[Json]:
    """Return KEDA's objects for programs outside the cluster; the APIService comes
    last.
    """
    folder = Installer().definitions("keda")
    documents: list[Json] = [
        document
        for file in sorted(folder.rglob("*.json"))
        for document in read_json(file)
    ]
    # A namespace must exist before the objects in it.
    documents.sort(key=lambda each: each["kind"] != "Namespace")
    (metrics,) = [each for each in documents if each["kind"] == "APIService"]
    metrics["spec"]["service"]["port"] = port
    metrics["spec"]["caBundle"] = base64.b64encode(pki.ca.read_bytes()).decode()
    return [
        *(each for each in documents if each is not metrics),
        outside(_METRICS_SERVICE, NAMESPACE, port),
        metrics,
    ]


async def _environment(aggregated: Aggregated, folder: Path) -> dict[str, str]:
    """Return the environment of KEDA's programs, with its service account's kubeconfig."""
    token = (
        await aggregated.kubectl(
            "-n", NAMESPACE, "create", "token", "keda-operator", "--duration=6h"
        )
    ).strip()
    authority = (aggregated.cluster.kubeconfig.parent / "pki" / "ca.crt").read_bytes()
    cluster = {
        "server": aggregated.cluster.server,
        "certificate-authority-data": base64.b64encode(authority).decode(),
    }
    kubeconfig = folder / "kubeconfig"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "keda", "user": {"token": token}}],
        "contexts": [
            {"name": "keda", "context": {"cluster": "cluster", "user": "keda"}}
        ],
        "current-context": "keda",
    }
    kubeconfig.write_text(json.dumps(config))
    namespaces = {
        "WATCH_NAMESPACE": "",
        "POD_NAMESPACE": NAMESPACE,
        "KEDA_CLUSTER_OBJECT_NAMESPACE": NAMESPACE,
    }
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "KUBECONFIG": str(kubeconfig),
        **namespaces,
    }


@asynccontextmanager
async def _running(
    program: Path, arguments: list[str], environment: dict[str, str], log: Path
) -> AsyncIterator[Process]:
    with log.open("w") as output:
        process = await asyncio.create_subprocess_exec(
            program, *arguments, env=environment, stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _answers(url: str) -> bool:
    # This test does not check their TLS trust.
    anybody = ssl.create_default_context()
    anybody.check_hostname, anybody.verify_mode = False, ssl.CERT_NONE
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=anybody) as answer,
        ):
            return answer.status == 200
    except aiohttp.ClientError:
        return False


async def _delete_all(aggregated: Aggregated) -> None:
    for kind in _KINDS:
        await aggregated.kubectl(
            "delete", kind, "--all", "--all-namespaces", "--timeout=40s"
        )
