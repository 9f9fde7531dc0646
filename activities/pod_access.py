"""Opens the API server of a cluster for the logs, commands and ports of its pods.

The client process has no composition root, so that this module is the one through which
it knows the client of an API server. Workers do not use it.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

from activities.clients.kubernetes.client import KubernetesCluster
from activities.clients.kubernetes.pod_streams import (
    STDERR,
    STDOUT,
    CommandStream,
    PodId,
    PodStreams,
    PortStream,
)
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.kubernetes.session import Session
from activities.cluster_objects.cluster_api import ClusterApi
from activities.secrets.selection import secret_store
from api_types.messages.cluster_work import Connection
from api_types.settings import Settings

__all__ = [
    "STDERR",
    "STDOUT",
    "CommandStream",
    "OpenCluster",
    "PodId",
    "PodStreams",
    "PortStream",
    "open_cluster",
]


class OpenCluster(NamedTuple):
    """The API server of one cluster."""

    api: ClusterApi
    pods: PodStreams


@asynccontextmanager
async def open_cluster(
    settings: Settings, connection: Connection
) -> AsyncIterator[OpenCluster]:
    """Open a cluster with the kubeconfig in the secret store that the settings name.

    Raises the errors of `KubernetesPool.access`.
    """
    pool = KubernetesPool(secret_store(settings), settings.kubeconfig)
    session = Session(connection.cluster, await pool.access(connection))
    try:
        yield OpenCluster(KubernetesCluster(session), PodStreams(session))
    finally:
        await session.close()
