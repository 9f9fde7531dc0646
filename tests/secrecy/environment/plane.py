"""A control plane with canaries as secrets, driven through the command line."""

import asyncio
import base64
import json
import os
import secrets
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiClient
from temporalio.testing import WorkflowEnvironment

from api_types.sections.temporal import EncryptionSettings, TemporalSettings
from api_types.settings import Settings
from fleet_client.temporal.connection import connect
from testbed.manifests import secret_name
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.running import ClusterRunning, Running
from testbed.temporal import TEMPORAL
from tests.environment.waiting import pauses
from tests.secrecy.environment.canaries import Canaries
from tests.secrecy.environment.echo import EchoingProxy
from tests.workflows.environment.forking import forks
from tests.workflows.environment.harness import ControlPlane, Json, a_worker, eventually

CLUSTER = "prod-eu"
NAMESPACE = "vault"
SYSTEM = "modelplane-system"


def a_value(what: str) -> str:
    """A secret whose form tells no pattern its purpose."""
    return f"{what[:3]}{secrets.token_hex(24)}"


def kubeconfig(server: str, authority: str = "", **user: Any) -> str:
    """Return the kubeconfig of a user."""
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": {
                    "server": server,
                    **({"certificate-authority-data": authority} if authority else {}),
                },
            }
        ],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return str(yaml.safe_dump(tree))


def a_secret(
    name: str, namespace: str = NAMESPACE, kind: str = "Secret", **values: str
) -> Json:
    """Return a Secret or ConfigMap document that clusters get copies of."""
    metadata = {
        "name": name,
        "namespace": namespace,
        "labels": {"modelplane.ai/propagate": "true"},
    }
    return {
        "apiVersion": "v1",
        "kind": kind,
        "metadata": metadata,
        ("stringData" if kind == "Secret" else "data"): values,
    }


class SecretPlane(ControlPlane):
    """The control plane, its folder and its secret values."""

    def __init__(
        self, *parts: Any, folder: Path, proxy: EchoingProxy, settings: dict[str, str]
    ) -> None:
        super().__init__(*parts)
        self.folder, self.proxy, self.settings = folder, proxy, settings
        self.canaries = Canaries()
        self._commands = 0

    @property
    def store(self) -> Path:
        """The folder of the secret store."""
        return self.folder / "secrets"

    @property
    def keys(self) -> Path:
        """The folder of the operator's files."""
        return self.folder / "keys"

    def a_key(self, name: str) -> Path:
        """Write a file with 32 secret bytes."""
        file = self.keys / name
        file.write_text(base64.b64encode(os.urandom(32)).decode())
        self.canaries.add(file.name, file.read_text())
        return file

    async def cli(
        self,
        *words: str,
        document: Json | list[Json] | None = None,
        code: int | None = 0,
        **settings: str,
    ) -> str:
        """Run a command in a process of its own, as users do; return its output."""
        self._commands += 1
        log, arguments = (
            self.folder / "commands" / f"{self._commands:03}.log",
            list(words),
        )
        log.parent.mkdir(exist_ok=True)
        if document is not None:
            # The arguments may hold secrets.
            file = self.keys / f"{self._commands:03}.yaml"
            file.write_text(
                yaml.safe_dump_all(
                    document if isinstance(document, list) else [document]
                )
            )
            arguments += ["-f", str(file)]
        log.write_text(" ".join(arguments) + "\n")
        pid = forks().start(
            {**self.settings, **settings}, log, "client.main", arguments
        )
        for pause in pauses(shortest=0.05):
            if (ended := forks().exit_code(pid)) is not None:
                break
            await asyncio.sleep(pause)
        else:
            os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"{words} does not end: {log.read_text()}")
        assert code is None or ended == code, (
            f"{words}: exit code {ended}: {log.read_text()}"
        )
        self.canaries.add_store(self.store)
        return log.read_text()

    async def put(self, *documents: Json) -> None:
        await self.cli("apply", document=list(documents))

    async def connect(self) -> None:
        """Give the cluster a kubeconfig with a new token, and wait for its use."""
        token = a_value("token")
        text = kubeconfig(
            self.proxy.address,
            self.proxy.authority,
            token=token,
            **self.proxy.certificate,
        )
        await self.put(a_secret(secret_name(CLUSTER), SYSTEM, kubeconfig=text))
        if self.proxy.tokens:
            await self.cli("retry", f"ic/{CLUSTER}")

            async def tokens() -> set[str]:
                return set(self.proxy.tokens)

            await eventually(
                tokens,
                lambda seen: f"Bearer {token}" in seen,
                what="the new token is sent",
            )


@asynccontextmanager
async def secret_plane(
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
    proxy: EchoingProxy,
    folder: Path,
    **more: str,
) -> AsyncIterator[SecretPlane]:
    """Start the control plane, apply the cluster and wait until it is Ready."""
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == TEMPORAL
    )[TEMPORAL]
    home = folder / "home"
    home.mkdir()
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=str(program)
    ) as server:
        address = server.client.service_client.config.target_host
        settings = {
            "HOME": str(home),
            "TMPDIR": str(home),
            "MODELPLANE_TEMPORAL__ADDRESS": address,
            "MODELPLANE_SECRETS__DIRECTORY": str(folder / "secrets"),
            "MODELPLANE_KUBECONFIG__ALLOW_EXEC": "true",
            "MODELPLANE_LOG__LEVEL": "debug",
            **more,
        }
        plane = SecretPlane(
            server.client,
            testbed,
            None,
            kube,
            folder=folder,
            proxy=proxy,
            settings=settings,
        )
        plane.keys.mkdir()
        key, api_key = plane.a_key("k1"), plane.a_key("api-key")
        settings |= {
            "MODELPLANE_TEMPORAL__API_KEY_FILE": str(api_key),
            "MODELPLANE_ENCRYPTION__KEYS": json.dumps({"k1": str(key)}),
            "MODELPLANE_ENCRYPTION__ACTIVE_KEY": "k1",
        }
        plane.client = await connect(
            Settings(
                temporal=TemporalSettings(address=address),
                encryption=EncryptionSettings(keys={"k1": key}, active_key="k1"),
            )
        )
        with a_worker(
            address, folder / "secrets", folder / "worker.log", **settings
        ) as plane._worker:
            await plane.connect()
            files = [
                testbed.manifests / f"{name}.yaml" for name in ("classes", "clusters")
            ]
            documents = [
                document
                for file in files
                for document in yaml.safe_load_all(file.read_text())
            ]
            wanted = [
                one
                for one in documents
                if one["kind"] == "InferenceClass" or one["metadata"]["name"] == CLUSTER
            ]
            await plane.cli("apply", document=wanted)
            await plane.ready("InferenceCluster", CLUSTER)
            yield plane
