"""A cluster of the testbed for activities, and a Temporal client that records signals."""

import asyncio
import itertools
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import ActivityEnvironment

from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.secrets.directory import SecretDirectory
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId, Selection
from activities.cluster_objects.kinds import DEPLOYMENT, LEADER_WORKER_SET, POD
from activities.clusters.activities import ClusterActivities
from activities.render.inputs.settings import RenderSettings
from activities.secrets.store import StoredSecret
from activities.workloads.activities import WorkloadActivities
from api_types import labels, names
from api_types.messages.cluster_work import (
    Applied,
    ApplyReplica,
    ClusterFacts,
    Connect,
    Connection,
    RunTeardownStep,
    TeardownStepResult,
    WatchCluster,
)
from api_types.messages.observations import Observed, ObservedCluster, ObservedReplica
from api_types.sections.clusters import KubeconfigSettings
from api_types.setting_types import AdoptRenderer
from tests.activities.environment.asking import asked_by
from tests.environment.background import in_background
from tests.environment.waiting import TIMEOUT_SECONDS, pauses

_NUMBERS = itertools.count()
LAST_STEP = 11


class RecordingClient:
    """Accepts signals like Temporal, and records them.

    Ids in `missing` do not exist. While `down`, no signal is accepted. `replicas` are
    the replicas in visibility with their accounts.
    """

    def __init__(self) -> None:
        self.signals: list[tuple[float, str, Observed]] = []
        self.missing: set[str] = set()
        self.replicas: dict[str, Json] = {}
        self.down = False

    def get_workflow_handle(self, workflow_id: str) -> "_Handle":
        return _Handle(self, workflow_id)

    def list_workflows(self, _query: str, **_: Any) -> "_Listing":
        return _Listing([_Row(workflow_id) for workflow_id in self.replicas])

    def of(self, workflow_id: str) -> list[Observed]:
        return [observed for _, found, observed in self.signals if found == workflow_id]

    def replica(self, workflow_id: str) -> ObservedReplica | None:
        found = self.of(workflow_id)
        return found[-1].replica if found else None

    def cluster(self, workflow_id: str) -> ObservedCluster | None:
        found = self.of(workflow_id)
        return found[-1].cluster if found else None


@dataclass
class _Row:
    id: str
    typed_search_attributes: dict[Any, str] = field(default_factory=dict)


@dataclass
class _Listing:
    current_page: list[_Row]
    next_page_token: bytes | None = None

    async def fetch_next_page(self) -> None:
        """All entries are on the first page."""

    async def __aiter__(self) -> AsyncIterator[_Row]:
        """Return the terminated entities: none."""
        none: list[_Row] = []
        for row in none:
            yield row


@dataclass
class _Handle:
    client: RecordingClient
    workflow_id: str

    async def query(self, name: str, **_: Any) -> Json:
        assert name == "account"
        return self.client.replicas[self.workflow_id]

    async def signal(self, name: str, message: Json, **_: Any) -> None:
        assert name == "observed"
        if self.client.down:
            raise RPCError("down", RPCStatusCode.UNAVAILABLE, b"")
        if self.workflow_id in self.client.missing:
            raise RPCError("not found", RPCStatusCode.NOT_FOUND, b"")
        self.client.signals.append(
            (time.monotonic(), self.workflow_id, Observed.model_validate(message))
        )


@dataclass
class ClusterUnderTest:
    """One cluster of the testbed, with everything that activities need to work on it."""

    name: str
    connection: Connection
    store: SecretDirectory
    pool: KubernetesPool
    facts: ClusterFacts = field(default_factory=ClusterFacts)
    client: RecordingClient = field(default_factory=RecordingClient)
    heartbeats: list[Any] = field(default_factory=list)
    namespaces: set[str] = field(default_factory=set)

    @property
    def workflow_id(self) -> str:
        return f"inferencecluster/{self.name}"

    def environment(self, order: ApplyReplica | None = None) -> ActivityEnvironment:
        """Return the environment of an activity for the cluster, or for a replica."""
        workflow_id = (
            names.workflow_id("ModelReplica", order.namespace, order.name)
            if order
            else self.workflow_id
        )
        return self.environment_of(workflow_id)

    def environment_of(self, workflow_id: str) -> ActivityEnvironment:
        """Return the environment of an activity for any object."""
        environment = asked_by(workflow_id, self.client)
        environment.on_heartbeat = lambda *details: self.heartbeats.append(details)
        return environment

    async def api(self) -> ClusterApi:
        return await self.pool.at(self.connection)

    async def connect(self) -> ClusterFacts:
        return await self.environment().run(
            ClusterActivities(self.pool).connect_cluster,
            Connect(connection=self.connection),
        )

    def order(
        self,
        engines: list[Json],
        *,
        namespace: str = "",
        name: str = "",
        uid: str = "",
        **fields: Any,
    ) -> ApplyReplica:
        """One replica in a namespace of its own."""
        number = next(_NUMBERS)
        namespace = namespace or f"team-{secrets.token_hex(4)}"
        self.namespaces.add(namespace)
        return ApplyReplica(
            connection=self.connection,
            facts=self.facts,
            namespace=namespace,
            name=name or f"qwen-{number}",
            uid=uid or f"uid-{secrets.token_hex(4)}",
            generation=fields.pop("generation", 1),
            deployment="qwen",
            cluster=self.name,
            index=0,
            spec={"clusterName": self.name, "engines": engines},
            **fields,
        )

    def workloads(self, settings: RenderSettings | None = None) -> WorkloadActivities:
        return WorkloadActivities(self.pool, self.store, settings or RenderSettings())

    async def apply(
        self,
        order: ApplyReplica,
        settings: RenderSettings | None = None,
        adopt_renderer: AdoptRenderer = "OnRestart",
        attempt: int = 1,
    ) -> Applied:
        workloads = replace(self.workloads(settings), adopt_renderer=adopt_renderer)
        environment = self.environment(order)
        environment.info = replace(environment.info, attempt=attempt)
        return await environment.run(workloads.apply_replica, order)

    async def prune(self, order: ApplyReplica) -> list[str]:
        return (
            await self.environment(order).run(self.workloads().prune_replica, order)
        ).removed

    async def step(
        self,
        order: ApplyReplica,
        applied: Applied,
        number: int,
        *,
        wait_seconds: float = 0,
        force_after: timedelta | None = None,
    ) -> TeardownStepResult:
        step = RunTeardownStep(
            connection=order.connection,
            facts=order.facts,
            namespace=order.namespace,
            uid=order.uid,
            workload_name=applied.workload_name,
            workload_namespace=applied.workload_namespace,
            number=number,
            inventory=applied.inventory,
            wait_seconds=wait_seconds,
        )
        activities = replace(self.workloads(), force_after=force_after)
        # A step has no limit of its own: it waits until its objects are gone.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self.environment(order).run(
                activities.teardown_replica_step, step
            )

    async def tear_down(self, order: ApplyReplica, applied: Applied) -> list[str]:
        """Run every step in order, and return the skipped objects."""
        return [
            skipped
            for number in range(3, LAST_STEP + 1)
            for skipped in (await self.step(order, applied, number)).skipped
        ]

    @asynccontextmanager
    async def watching(
        self, client: RecordingClient | None = None, **settings: Any
    ) -> AsyncIterator[RecordingClient]:
        """Run the watch like a worker, and kill it at the end."""
        recording = client or RecordingClient()
        environment = asked_by(self.workflow_id, recording)
        environment.on_heartbeat = lambda *details: self.heartbeats.append(details)
        order = WatchCluster(connection=self.connection, cluster_uid="cluster-uid")
        async with in_background(
            environment.run(
                ClusterActivities(self.pool, **settings).watch_cluster, order
            )
        ):
            yield recording

    async def clear(self) -> None:
        """Delete all ordered workloads, and wait until their pods end."""
        api = await self.api()
        for namespace in self.namespaces:
            for kind in (DEPLOYMENT, LEADER_WORKER_SET):
                for item in (await api.list(Selection(kind, namespace))).items:
                    await api.delete(ObjectId.of(item), propagation="Background")
        for namespace in self.namespaces:
            await eventually(partial(self._is_idle, namespace))
        self.namespaces.clear()

    async def _is_idle(self, namespace: str) -> bool:
        return not (await (await self.api()).list(Selection(POD, namespace))).items

    async def everything_labelled(self, applied: Applied) -> list[str]:
        """List every object on the cluster with this replica's label.

        The objects were created by us or by controllers.
        """
        api = await self.api()
        found: list[str] = []
        for kind, resource in (await api.resources(refresh=True)).items():
            if "list" not in resource.verbs:
                continue
            for item in (await api.list(Selection(kind, metadata_only=True))).items:
                item_labels = item["metadata"].get("labels") or {}
                named = applied.workload_namespace == item["metadata"].get(
                    "namespace"
                ) and kind.kind in {
                    "Pod",
                    "ResourceClaim",
                    "ReplicaSet",
                }
                if item_labels.get(labels.REPLICA) == applied.workload_name or named:
                    found.append(str(ObjectId.of(item)))
        return found


def target(applied: Applied, key: str) -> ObjectId:
    """Return the id of an object of an inventory."""
    return ObjectId.parse(
        next(entry.id for entry in applied.inventory if entry.key == key)
    )


async def cluster_from(
    name: str, kubeconfig: str, folder: Path, **settings: bool
) -> ClusterUnderTest:
    """Return the cluster of a kubeconfig."""
    store = SecretDirectory(folder)
    connection = Connection(
        cluster=name, namespace="modelplane-system", name=f"{name}-kubeconfig"
    )
    await store.put(
        StoredSecret(
            connection.namespace, connection.name, {connection.key: kubeconfig.encode()}
        )
    )
    return ClusterUnderTest(
        name,
        connection,
        store,
        KubernetesPool(
            store, KubeconfigSettings(**{"allow_loopback": True, **settings})
        ),
    )


async def eventually(
    check: Callable[[], Any], within_seconds: float = TIMEOUT_SECONDS
) -> Any:
    """Wait until a check (which may be awaitable) returns a true value, and return it."""
    for pause in pauses(within_seconds, shortest=0.05):
        found = check()
        if isinstance(found, Awaitable):
            found = await found
        if found:
            return found
        await asyncio.sleep(pause)
    raise AssertionError(f"not within {within_seconds} s")
