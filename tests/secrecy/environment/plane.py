"""A control plane whose every secret is a canary, used through the command line as its users do."""

import asyncio
import base64
import json
import os
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes.client import ApiClient
from temporalio.testing import WorkflowEnvironment

from api_types.settings import EncryptionSettings, Settings, TemporalSettings
from client.temporal.connection import connect
from testbed.manifests import secret_name
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.running import ClusterRunning, Running
from testbed.temporal import TEMPORAL
from tests.environment.waiting import pauses
from tests.secrecy.environment.canaries import Canaries
from tests.secrecy.environment.echo import EchoingProxy
from tests.workflows.environment.forking import forks
from tests.workflows.environment.harness import ControlPlane, Json, a_worker

CLUSTER = "prod-eu"
NAMESPACE = "vault"
SYSTEM = "modelplane-system"


def a_value(what: str) -> str:
    """A secret that no pattern recognizes: what it is for is not told by its form."""
    return f"{what[:3]}{secrets.token_hex(24)}"


def a_key(folder: Path, name: str) -> Path:
    file = folder / name
    file.write_text(base64.b64encode(os.urandom(32)).decode())
    return file


def kubeconfig(server: str, token: str) -> str:
    """The kubeconfig of a user with a token."""
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {"token": token}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    return str(yaml.safe_dump(tree))


def a_secret(name: str, namespace: str = NAMESPACE, kind: str = "Secret", **values: str) -> Json:
    """A Secret or ConfigMap document, to be copied to clusters."""
    metadata = {"name": name, "namespace": namespace, "labels": {"modelplane.ai/propagate": "true"}}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, ("stringData" if kind == "Secret" else "data"): values}


class SecretPlane(ControlPlane):
    """The control plane, its folder and what must not be seen."""

    def __init__(self, *parts: Any, folder: Path, proxy: EchoingProxy, settings: dict[str, str]) -> None:
        super().__init__(*parts)
        self.folder, self.proxy, self.settings = folder, proxy, settings
        self.canaries = Canaries()
        self._commands = 0

    @property
    def store(self) -> Path:
        """The folder of the secret store."""
        return self.folder / "secrets"

    async def cli(self, *words: str, document: Json | list[Json] | None = None, code: int | None = 0) -> str:
        """Run a command as a user does, in a process of its own; gives what it prints."""
        self._commands += 1
        log, arguments = self.folder / "commands" / f"{self._commands:03}.log", list(words)
        log.parent.mkdir(exist_ok=True)
        if document is not None:
            # Documents with secrets lie where the secrets of the store lie.
            file = self.store / f"{self._commands:03}.yaml"
            file.parent.mkdir(exist_ok=True)
            file.write_text(yaml.safe_dump_all(document if isinstance(document, list) else [document]))
            arguments += ["-f", str(file)]
        log.write_text(" ".join(arguments) + "\n")
        pid = forks().start(self.settings, log, "client.main", arguments)
        for pause in pauses(shortest=0.05):
            if (ended := forks().exit_code(pid)) is not None:
                break
            await asyncio.sleep(pause)
        assert code is None or ended == code, f"{words}: exit code {ended}: {log.read_text()}"
        self.canaries.add_store(self.store)
        return log.read_text()

    async def put(self, *documents: Json) -> None:
        """Store secrets."""
        await self.cli("apply", document=list(documents))


@asynccontextmanager
async def secret_plane(
    testbed: Running, kube: Callable[[ClusterRunning], ApiClient], proxy: EchoingProxy, folder: Path, **more: str
) -> AsyncIterator[SecretPlane]:
    """Start it with the one cluster applied and Ready."""
    program = Installer(print).programs(tool for tool in TOOLS if tool.name == TEMPORAL)[TEMPORAL]
    keys = folder / "keys"
    keys.mkdir()
    key, home = a_key(keys, "k1"), folder / "home"
    home.mkdir()
    async with await WorkflowEnvironment.start_local(dev_server_existing_path=str(program)) as server:
        address = server.client.service_client.config.target_host
        settings = {
            "HOME": str(home),
            "TMPDIR": str(home),
            "MODELPLANE_TEMPORAL__ADDRESS": address,
            "MODELPLANE_SECRETS__DIRECTORY": str(folder / "secrets"),
            "MODELPLANE_ENCRYPTION__KEYS": json.dumps({"k1": str(key)}),
            "MODELPLANE_ENCRYPTION__ACTIVE_KEY": "k1",
            "MODELPLANE_LOG__LEVEL": "debug",
            **more,
        }
        client = await connect(
            Settings(temporal=TemporalSettings(address=address), encryption=EncryptionSettings(keys={"k1": key}, active_key="k1"))
        )
        with a_worker(address, folder / "secrets", folder / "worker.log", **settings) as worker:
            plane = SecretPlane(client, testbed, worker, kube, folder=folder, proxy=proxy, settings=settings)
            plane.canaries.add("encryption key k1", key.read_text())
            await plane.put(a_secret(secret_name(CLUSTER), SYSTEM, kubeconfig=kubeconfig(proxy.address, a_value("kubeconfig"))))
            files = [testbed.manifests / f"{name}.yaml" for name in ("classes", "clusters")]
            documents = [document for file in files for document in yaml.safe_load_all(file.read_text())]
            wanted = [one for one in documents if one["kind"] == "InferenceClass" or one["metadata"]["name"] == CLUSTER]
            await plane.cli("apply", document=wanted)
            await plane.ready("InferenceCluster", CLUSTER)
            yield plane
