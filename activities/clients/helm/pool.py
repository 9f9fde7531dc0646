"""Helm for all clusters of a worker, with the kubeconfigs of the Kubernetes clients."""

import contextlib
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import structlog

from activities.clients.helm.binary import HelmBinary
from activities.clients.helm.charts import ChartStore
from activities.clients.helm.client import HelmTools, helm_client
from activities.clients.helm.folders import WorkerFolder, memory_folder, sweep
from activities.clients.helm.limits import HelmLimits
from activities.clients.helm.port import HelmPool, HelmPort
from activities.clients.kubernetes.kubeconfig import ApiServerAccess
from api_types.errors import Unsupported
from api_types.messages.cluster_work import Connection
from api_types.sections.stacks import StackSettings

log = structlog.get_logger("modelplane.helm")


class AccessSource(Protocol):
    """Resolves kubeconfigs."""

    async def access(self, connection: Connection) -> ApiServerAccess:
        """Resolve the reference to a kubeconfig and read it.

        Raises CredentialsInvalid and PermissionDenied.
        """
        ...


class HelmClients(HelmPool):
    """The helm of one worker: its program, its folders, its limits."""

    def __init__(self, source: AccessSource, settings: StackSettings) -> None:
        self._source = source
        self._settings = settings
        self._binary = HelmBinary(settings.helm)
        self._limits = HelmLimits(settings.helm_concurrency)
        self._memory: WorkerFolder | None = None
        self._disk: WorkerFolder | None = None

    async def start(self, *, serves_clusters: bool) -> None:
        """Remove the folders of killed workers, and check the helm program.

        Logs at once if this worker serves clusters but cannot install stacks.
        """
        for base in dict.fromkeys((memory_folder(), Path(tempfile.gettempdir()))):
            if removed := sweep(base):
                log.info(
                    "removed folders of killed workers",
                    folders=[str(each) for each in removed],
                )
        if not serves_clusters:
            return
        try:
            helm = await self._binary.get()
        except Unsupported as error:
            log.warning("serving stacks cannot be installed", reason=error.message)
        else:
            log.info("helm", path=helm.path, version=".".join(map(str, helm.version)))

    @contextlib.asynccontextmanager
    async def at(self, connection: Connection) -> AsyncIterator[HelmPort]:
        """See `HelmPool`."""
        helm = await self._binary.get()
        access = await self._source.access(connection)
        if self._memory is None or self._disk is None:
            self._memory = WorkerFolder(memory_folder())
            self._disk = WorkerFolder(Path(tempfile.gettempdir()))
            self._charts = ChartStore(self._disk, self._limits, self._settings)
        tools = HelmTools(helm, self._charts, self._memory, self._limits)
        async with helm_client(access, connection.cluster, tools=tools) as client:
            yield client

    def close(self) -> None:
        """Remove all files."""
        for folder in (self._memory, self._disk):
            if folder is not None:
                folder.remove()
        self._memory = self._disk = None
