"""One control plane for all workflow tests.

The testbed, a worker process, and the testbed's clusters.
"""

import base64
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.client import ApiClient

from activities.secrets.selection import secret_store
from activities.secrets.store import SecretStore, StoredSecret
from api_types.clock import utc_now
from api_types.sections.clusters import SecretSettings
from api_types.settings import Settings
from testbed.running import ClusterRunning, Running
from tests.environment.local_hub import LocalHub, local_hub
from tests.workflows.environment.harness import (
    ControlPlane,
    a_worker,
    connected,
    eventually,
)
from tests.workflows.environment.replaying import replay_all

# Seconds that a cache keeps a volume on a cluster that it no longer selects.
EVICT_GRACE_SECONDS = 3


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the worker's secrets and log."""
    return tmp_path_factory.mktemp("plane")


@pytest.fixture(scope="session")
def store(folder: Path) -> SecretStore:
    return secret_store(Settings(secrets=SecretSettings(directory=folder / "secrets")))


@pytest.fixture(scope="session")
def hub() -> Iterator[LocalHub]:
    with local_hub() as hub:
        yield hub


@pytest.fixture(scope="session")
async def plane(
    testbed: Running,
    kube: Callable[[ClusterRunning], ApiClient],
    folder: Path,
    store: SecretStore,
    hub: LocalHub,
) -> AsyncIterator[ControlPlane]:
    """Start the testbed and a worker, and wait until the testbed's clusters are Ready.

    At the end, replay every workflow run of the session.
    """
    await put_secrets(testbed, store)
    began = utc_now()
    settings = {
        "MODELPLANE_CACHE__HUB_ENDPOINT": hub.address,
        "MODELPLANE_CACHE__EVICT_GRACE": str(EVICT_GRACE_SECONDS),
        "MODELPLANE_OCI__ALLOW_PLAIN_HTTP": "true",
        "MODELPLANE_OUTBOUND__PRIVATE_ADDRESSES": '["127.0.0.0/8"]',
    }
    with a_worker(
        testbed.temporal_address, folder / "secrets", folder / "worker.log", **settings
    ) as worker:
        async with connected(testbed) as client:
            plane = ControlPlane(client, testbed, worker, kube)
            await apply_clusters(plane)
            yield plane
            # The code must be able to replay every history that these tests produced.
            await replay_all(client, began, folder)


@pytest.fixture
async def namespace(plane: ControlPlane) -> AsyncIterator[str]:
    """Create a namespace for the test.

    Delete the remains of a failed test, because nodes are few.
    """
    # A test that kills the worker may have failed before it started another one.
    if not plane.worker.is_running():
        plane.worker.start()
    name = f"t-{uuid.uuid4().hex[:8]}"
    yield name
    await plane.delete_deployments(name)


async def put_secrets(testbed: Running, store: SecretStore) -> None:
    """Store the credentials of the testbed's clusters for a worker."""
    for document in documents(testbed.manifests / "secrets.yaml"):
        data = {key: base64.b64decode(value) for key, value in document["data"].items()}
        await store.put(
            StoredSecret(
                document["metadata"]["namespace"], document["metadata"]["name"], data
            )
        )


async def apply_clusters(plane: ControlPlane) -> None:
    """Apply the testbed's classes and clusters, and wait until all are Ready.

    A cluster is Ready shortly before the scheduler has read its report.
    """
    for file in ("classes.yaml", "clusters.yaml"):
        for document in documents(plane.running.manifests / file):
            await plane.apply(document)
    for cluster in plane.running.clusters:
        await plane.ready("InferenceCluster", cluster)

    await eventually(
        lambda: plane.scheduler("describe"),
        lambda seen: seen["status"]["readyClusters"] == len(plane.running.clusters),
        what="the scheduler's view of the clusters",
    )


def documents(file: Path) -> list[dict[str, Any]]:
    return [document for document in yaml.safe_load_all(file.read_text()) if document]
