"""Fixtures of the Helm tests: pinned helm, stand-ins, and a cluster with charts."""

import base64
import gzip
import itertools
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from activities.clients.helm.binary import Helm, HelmBinary
from activities.clients.helm.charts import ChartStore
from activities.clients.helm.client import HelmTools, helm_client
from activities.clients.helm.folders import WorkerFolder
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import Chart, HelmPort, Release
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from api_types.clock import utc_now
from api_types.sections.stacks import StackSettings
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.running import ClusterRunning, Running
from tests.activities.environment.cluster_under_test import cluster_from, eventually
from tests.environment.charts import ChartRepository, chart

Script = Callable[..., str]


@pytest.fixture(scope="session")
def helm_path() -> str:
    """Return the helm that the testbed pins, and install it if missing."""
    return str(
        Installer().programs(tool for tool in TOOLS if tool.name == "helm")["helm"]
    )


@pytest_asyncio.fixture(scope="session")
async def helm(helm_path: str) -> Helm:
    return await HelmBinary(helm_path).get()


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Create a program of a few lines of shell, and return its path."""

    def make(text: str, name: str = "helm", mode: int = 0o755) -> str:
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(mode)
        return str(program)

    return make


@pytest.fixture
def worker_folder(tmp_path: Path) -> Iterator[WorkerFolder]:
    folder = WorkerFolder(tmp_path)
    yield folder
    folder.remove()


async def numbers_in(file: Path, count: int = 1) -> list[int]:
    """Wait until a program has written this number of lines, each the id of a process."""

    def read() -> list[int]:
        lines = file.read_text().split() if file.exists() else []
        return [int(line) for line in lines] if len(lines) == count else []

    found: list[int] = await eventually(read)
    return found


async def ended(*pids: int) -> None:
    """Wait until killed processes are gone.

    A killed process is listed until the kernel has removed it.
    """
    await eventually(lambda: not any(map(_is_alive, pids)), within_seconds=30)


def _is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


# On a cluster

CLUSTER = "prod-eu"
_NUMBERS = itertools.count()


@dataclass(frozen=True)
class OnCluster:
    """Real helm on a real cluster, in a namespace of the test.

    Tests publish the charts that they need.
    """

    helm: HelmPort
    core: Any
    namespace: str
    access: ApiServerAccess
    tools: HelmTools
    repository: ChartRepository

    def publish(self, **parts: Any) -> Chart:
        """Publish a chart that no other test has."""
        packed = chart(f"demo-{next(_NUMBERS)}", **{"version": "1.0.0", **parts})
        self.repository.add(packed)
        return Chart(packed.name, self.repository.url, packed.version)

    def release(
        self, wanted: Chart | None = None, *, name: str = "mp-demo", **values: Any
    ) -> Release:
        """Return a release in the namespace of the test.

        Its default chart has a ConfigMap that contains the values.
        """
        return Release(
            name,
            self.namespace,
            wanted or self.publish(templates={"config.yaml": CONFIG}),
            values,
        )

    def config(self, name: str = "mp-demo") -> Any:
        """Return the data of a ConfigMap, or None if there is none."""
        found = self.core.list_namespaced_config_map(
            self.namespace, field_selector=f"metadata.name={name}"
        ).items
        return found[0].data if found else None

    def values(self) -> Any:
        """Return the values with which the default chart was rendered."""
        data = self.config()
        return json.loads(base64.b64decode(data["values"])) if data else None

    def revisions(self, name: str = "mp-demo") -> dict[int, str]:
        """Return the stored status of each revision of a release."""
        found = self.core.list_namespaced_secret(
            self.namespace, label_selector=f"owner=helm,name={name}"
        ).items
        return {
            int(each.metadata.labels["version"]): each.metadata.labels["status"]
            for each in found
        }

    def jobs(self) -> list[str]:
        """Return the names of the jobs in the namespace of the test."""
        from kubernetes import client  # noqa: PLC0415 - takes a second to load

        batch = client.BatchV1Api(self.core.api_client)
        found = batch.list_namespaced_job(self.namespace).items
        return [job.metadata.name for job in found]

    def rewrite(
        self, revision: int, status: str, *, seconds_ago: float, name: str = "mp-demo"
    ) -> None:
        """Write a status that a helm left in a stored revision this long ago."""
        stored = self.core.read_namespaced_secret(
            f"sh.helm.release.v1.{name}.v{revision}", self.namespace
        )
        release = json.loads(
            gzip.decompress(base64.b64decode(base64.b64decode(stored.data["release"])))
        )
        when, before = (
            utc_now() - timedelta(seconds=seconds)
            for seconds in (seconds_ago, seconds_ago + 3600)
        )
        times = (
            {"last_deployed": before, "deleted": when}
            if status == "uninstalling"
            else {"last_deployed": when}
        )
        release["info"] |= {
            "status": status,
            **{name: time.isoformat() for name, time in times.items()},
        }
        packed = base64.b64encode(
            base64.b64encode(gzip.compress(json.dumps(release).encode()))
        ).decode()
        patch = {
            "data": {"release": packed},
            "metadata": {"labels": {"status": status}},
        }
        self.core.patch_namespaced_secret(stored.metadata.name, self.namespace, patch)

    @asynccontextmanager
    async def client(
        self, access: ApiServerAccess | None = None, **tools: Any
    ) -> AsyncIterator[HelmPort]:
        """Return another client of the cluster with another credential or other times."""
        async with helm_client(
            access or self.access, CLUSTER, tools=replace(self.tools, **tools)
        ) as client:
            yield client


CONFIG = """apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .Release.Name }}
data:
  values: {{ toJson .Values | b64enc }}
"""


@pytest.fixture(scope="session")
def repository() -> Iterator[ChartRepository]:
    with ChartRepository() as serving:
        yield serving


@pytest_asyncio.fixture(scope="session")
async def tools(
    helm: Helm, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[HelmTools]:
    limits, folder = HelmLimits(8), WorkerFolder(tmp_path_factory.mktemp("helm"))
    yield HelmTools(helm, ChartStore(folder, limits, StackSettings()), folder, limits)
    folder.remove()


@pytest_asyncio.fixture(scope="session")
async def access(
    testbed: Running, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[ApiServerAccess]:
    """Return the kubeconfig of the cluster, read like a worker reads it."""
    under_test = await cluster_from(
        CLUSTER,
        testbed.clusters[CLUSTER].kubeconfig.read_text(),
        tmp_path_factory.mktemp("secrets"),
    )
    yield await under_test.pool.access(under_test.connection)
    await under_test.pool.close()


@pytest_asyncio.fixture
async def here(
    testbed: Running,
    kube: Callable[[ClusterRunning], Any],
    access: ApiServerAccess,
    tools: HelmTools,
    repository: ChartRepository,
) -> AsyncIterator[OnCluster]:
    from kubernetes import client  # noqa: PLC0415 - takes a second to load

    core, namespace = (
        client.CoreV1Api(kube(testbed.clusters[CLUSTER])),
        f"t-{secrets.token_hex(4)}",
    )
    core.create_namespace({"metadata": {"name": namespace}})
    async with helm_client(access, CLUSTER, tools=tools) as port:
        yield OnCluster(port, core, namespace, access, tools, repository)
    core.delete_namespace(namespace)
