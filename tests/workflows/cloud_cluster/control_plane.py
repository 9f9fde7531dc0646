"""The fixture of a CloudCluster: a real Temporal server and workers, and a scripted cloud.

The test plays the InferenceCluster.
"""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.worker import Worker

from activities.clients.helm.port import ReleaseState
from activities.clouds.accounts import CloudAccounts
from activities.clouds.activities import CloudActivities
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.patience import Patience
from activities.cluster_objects.cluster_api import (
    GroupVersionKind,
    ObjectList,
    Selection,
)
from activities.messaging.entity_client import EntityClient
from activities.messaging.sending import send_signal
from activities.secrets.store import SecretMissing
from api_types import names, queues
from api_types.base import Message
from api_types.errors import CredentialsInvalid
from api_types.messages.clouds import CloudDelete, CloudOrder
from api_types.messages.entities import RetryNow
from api_types.messages.signals import CloudClusterSignals, cloud_cluster
from api_types.sections.clouds import ProvisionSettings
from tests.activities.clouds.builders import G6, L4, a_node
from tests.environment.scripted_cloud import GOOD, ScriptedCloud
from tests.workflows.environment.harness import eventually
from workflows import registry
from workflows.cloud_cluster.workflow import CloudClusterWorkflow

Json = dict[str, Any]
NAME = "prod"
CLASSES: Mapping[str, Json] = {
    "l4": {
        "devices": [
            {
                "name": "gpu",
                "driver": "gpu.nvidia.com",
                "deviceClassName": "gpu.nvidia.com",
            }
        ],
        "provisioning": L4,
    },
    "g6": {
        "devices": [
            {
                "name": "gpu",
                "driver": "gpu.nvidia.com",
                "deviceClassName": "gpu.nvidia.com",
            }
        ],
        "provisioning": G6,
    },
}
_WITHIN = 40.0


class Secrets:
    """A secret store that holds the cloud's credential."""

    def __init__(self) -> None:
        self.credential: str | None = GOOD

    async def get(self, namespace: str, name: str, key: str) -> bytes:
        """Return the credential.

        Raise SecretMissing if it was removed or another is requested.
        """
        if (
            name in ("gke-default", "eks-default")
            and key == "credentials"
            and self.credential is not None
        ):
            return self.credential.encode()
        raise SecretMissing(namespace, name, key)

    async def read(self, namespace: str, name: str) -> Any:
        raise SecretMissing(namespace, name)

    async def describe(self, namespace: str, name: str) -> None:
        del namespace, name


class StubCluster:
    """The API server of the created cluster. It refuses all calls while `shut`."""

    def __init__(self) -> None:
        self.shut: Callable[[], bool] = lambda: False
        self.nodes_ready = True
        self.applied: list[str] = []
        self.releases: list[tuple[str, str]] = []

    async def at(self, connection: Any) -> Any:
        del connection
        if self.shut():
            raise CredentialsInvalid(
                "the API server does not accept this credential (401)"
            )
        return self

    async def version(self) -> str:
        return "v1.35.4"

    async def list(self, selection: Selection) -> ObjectList:
        assert selection == Selection(
            GroupVersionKind("v1", "Node"), labels="modelplane.ai/pool=system"
        )
        return ObjectList([a_node("system", ready=self.nodes_ready)], "1")

    async def apply(self, manifest: Json) -> Json:
        self.applied.append(manifest["metadata"]["name"])
        return manifest

    async def get(self, target: Any) -> Any:
        return {} if target.name in self.applied else None

    async def delete(self, target: Any) -> bool:
        self.applied.remove(target.name)
        return True


class StubHelm:
    """Helm for the created cluster."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    @contextlib.asynccontextmanager
    async def at(self, connection: Any) -> AsyncIterator[Any]:
        del connection
        yield self

    async def ensure(self, release: Any) -> Any:
        self.calls.append(("ensure", release.name))
        return await self.status(release.name, release.namespace)

    async def status(self, name: str, namespace: str) -> Any:
        return ReleaseState(name, namespace, 1, "deployed", name, "1", "")

    async def uninstall(self, name: str, namespace: str) -> None:
        del namespace
        self.calls.append(("uninstall", name))


class CloudCalls:
    """The activities of the cloud worker, at a scripted cloud."""

    def __init__(self, source: str, **settings: Any) -> None:
        self.source = source
        self.cloud = ScriptedCloud()
        self.secrets = Secrets()
        self.cluster, self.helm = StubCluster(), StubHelm()
        waits = {
            "drift_interval": 3600,
            "quota_retry": 3600,
            "capacity_retry": 3600,
            "pool_drain_wait": 3600,
        }
        self.settings = ProvisionSettings(
            installation_id="acme", **{**waits, **settings}
        )
        self.patience = Patience()

    def activities(self) -> CloudActivities:
        accounts = CloudAccounts(
            self.secrets, {self.source: self.cloud.open}, self.settings
        )
        pace = PollPace(
            poll=0.05, poll_later=0.05, second_look=0.2, second_look_every=0.05
        )
        return CloudActivities(
            accounts,
            InCluster(self.cluster, self.helm),
            self.settings,
            pace,
            self.patience,
        )

    def calls(self) -> list[Callable[..., Any]]:
        cloud = self.activities()
        return [
            cloud.plan_cloud,
            cloud.ensure_cloud_object,
            cloud.delete_cloud_object,
            cloud.observe_cloud,
            cloud.audit_cloud,
        ]

    async def until_cloud(
        self, holds: Callable[[ScriptedCloud], bool], what: str = ""
    ) -> None:
        async def look() -> ScriptedCloud:
            return self.cloud

        await eventually(look, holds, within=_WITHIN, longest_pause=0.1, what=what)


class CloudPlane(CloudCalls):
    """The control plane of one cluster at a scripted cloud."""

    def __init__(self, client: Client, source: str, **settings: Any) -> None:
        super().__init__(source, **settings)
        self.client = client
        self.uid = str(uuid.uuid4())
        self.numbers = 0
        self._workers = AsyncExitStack()

    @property
    def id(self) -> str:
        return names.cloud_cluster_id(NAME, self.uid)

    @property
    def handle(self) -> WorkflowHandle[Any, Any]:
        return self.client.get_workflow_handle(self.id)

    # Workers

    async def start_cloud_worker(self) -> None:
        worker = Worker(
            self.client,
            task_queue=queues.CLOUD,
            activities=self.calls(),
            max_heartbeat_throttle_interval=timedelta(seconds=0.2),
            default_heartbeat_throttle_interval=timedelta(seconds=0.2),
        )
        await self._workers.enter_async_context(worker)

    async def stop_cloud_worker(self) -> None:
        """Stop the cloud worker gracefully, as a rolling update does."""
        await self._workers.aclose()

    # Messages

    def order(
        self,
        *pools: Json,
        classes: Mapping[str, Json] | None = None,
        removable: tuple[str, ...] = (),
        **block: Any,
    ) -> CloudOrder:
        """Return a new order for these pools."""
        self.numbers += 1
        region = {"GKE": "europe-west4", "EKS": "us-east-2"}[self.source]
        cluster = {
            "source": self.source,
            self.source.lower(): {"region": region, **block},
        }
        spec = {"cluster": cluster, **({"nodePools": list(pools)} if pools else {})}
        return CloudOrder(
            uid=self.uid,
            sequence=self.numbers,
            generation=self.numbers,
            manifest={"spec": spec},
            classes=dict(CLASSES if classes is None else classes),
            removable_pools=list(removable),
        )

    async def apply(self, *pools: Json, **more: Any) -> None:
        await self.send(CloudClusterSignals.APPLY, self.order(*pools, **more))

    async def delete(self, **more: Any) -> None:
        self.numbers += 1
        await self.send(
            CloudClusterSignals.DELETE,
            CloudDelete(uid=self.uid, sequence=self.numbers, **more),
        )

    async def retry_now(self) -> None:
        await self.send(CloudClusterSignals.RETRY_NOW, RetryNow(by="test"))

    async def send(self, signal: Any, message: Message) -> bool:
        return await send_signal(
            self.client, signal.request(cloud_cluster(NAME, self.uid), message)
        )

    # Looks

    async def progress(self) -> Json:
        seen: Json = await self.handle.query("progress")
        return seen

    async def until(self, holds: Callable[[Json], bool], what: str = "") -> Json:
        seen: Json = await eventually(
            self.progress, holds, within=_WITHIN, longest_pause=0.3, what=what
        )
        return seen

    async def ready(self) -> Json:
        """Wait until all objects match the plan."""
        return await self.until(lambda seen: bool(seen["complete"]), "complete")

    async def settled(self) -> Json:
        """Wait until the newest order is planned and all its work has ended."""
        return await self.until(
            lambda seen: (
                seen["planned"] and not any(each["running"] for each in seen["objects"])
            ),
            "settled",
        )

    async def gone(self) -> None:
        await asyncio.wait_for(self.handle.result(), _WITHIN)

    async def events(self) -> list[tuple[str, str]]:
        seen = await self.handle.query("describe")
        return [
            (event["reason"], event["message"]) for event in seen["status"]["events"]
        ]


def row(seen: Json, key: str) -> Json:
    """Return one object of the progress, or one without a phase if it is missing."""
    found: list[Json] = [each for each in seen["objects"] if each["key"] == key]
    return found[0] if found else {"key": key, "phase": ""}


@asynccontextmanager
async def workflow_worker(client: Client) -> AsyncIterator[None]:
    """Serve the workflow and its messaging activities."""
    messaging = EntityClient()
    async with Worker(
        client,
        task_queue=queues.WORKFLOWS,
        workflows=[CloudClusterWorkflow],
        activities=[messaging.signal, messaging.signal_many],
        workflow_runner=registry.runner(),
        # The deadlock detector measures wall time, which this process shares with the
        # test and the activities.
        debug_mode=True,
    ):
        yield


@asynccontextmanager
async def cloud_plane(
    client: Client, source: str, **settings: Any
) -> AsyncIterator[CloudPlane]:
    """Start the cloud worker of one cluster, and terminate its workflow at the end."""
    plane = CloudPlane(client, source, **settings)
    await plane.start_cloud_worker()
    try:
        yield plane
    finally:
        with contextlib.suppress(RPCError):
            await plane.handle.terminate("the test is over")
        await plane.stop_cloud_worker()
