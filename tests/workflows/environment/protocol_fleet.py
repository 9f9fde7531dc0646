"""A fleet that consists of reports alone.

A real Temporal server, the real workers in this process, and no Kubernetes. To the
scheduler it looks like a fleet of machines. Each cluster's workflow has no spec, so it
neither connects nor reports. This module sends its reports, and replicas placed on the
cluster wait for its connection.
"""

import asyncio
import contextlib
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Worker

from activities.messaging.search_attributes import identity_at_start
from activities.messaging.sending import ensure_scheduler
from api_types import names, queues
from api_types.messages.delivery import SignalRequest
from api_types.messages.entities import Scale, SetSpec
from api_types.messages.scheduling import ReportCluster
from api_types.sections.programs import WorkerSettings
from api_types.sections.temporal import QueueSettings
from api_types.settings import Settings
from fleet_client.temporal.converter import DATA_CONVERTER
from fleet_client.temporal.queries import RetriedQueries
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import SERVER_SETTINGS, TEMPORAL
from tests.environment.waiting import pauses
from tests.workflows.environment.harness import (
    WorkerProcess,
    eventually,
    worker_process,
)
from worker import build_activities, build_workers, register_search_attributes

Json = dict[str, Any]

NAMESPACE = "ml-team"
# Workers without a grace period stop at once. This is far more than they need on a busy
# machine.
STOP_SECONDS = 60

# An entity without a worker must not delay a poll for long.
QUERY_TIMEOUT = timedelta(seconds=5)
# The workflow does not exist, no worker answered in time, the task queue never had a
# worker, or the server's limit of queries per workflow was reached.
_UNANSWERED = (
    RPCStatusCode.NOT_FOUND,
    RPCStatusCode.CANCELLED,
    RPCStatusCode.DEADLINE_EXCEEDED,
    RPCStatusCode.FAILED_PRECONDITION,
    RPCStatusCode.RESOURCE_EXHAUSTED,
    RPCStatusCode.UNAVAILABLE,
)


@dataclass(frozen=True)
class ReportedCluster:
    """One cluster of the fleet: the nodes of each pool by name."""

    name: str
    pools: dict[str, int]

    def report(self, sequence: int, uid: str = "") -> ReportCluster:
        """Return the report that InferenceCluster would send.

        Eight GPUs per node, Ready, with a gateway.
        """
        device = {
            "name": "gpu",
            "claim": "DRA",
            "driver": "gpu.nvidia.com",
            "deviceClassName": "gpu.nvidia.com",
            "count": 8,
        }
        manifest = {
            "metadata": {
                "name": self.name,
                "uid": uid or f"uid-{self.name}",
                "labels": {},
                "annotations": {},
            },
            "spec": {
                "nodePools": [
                    {"name": pool, "className": "h100", "nodeCount": nodes}
                    for pool, nodes in self.pools.items()
                ]
            },
            "status": {
                "conditions": [
                    {
                        "type": "Ready",
                        "status": "True",
                        "reason": "Available",
                        "message": "",
                    }
                ],
                "gateway": {"address": "10.245.0.1"},
                "gpuPools": [
                    {"name": pool, "nodes": nodes, "devices": [device]}
                    for pool, nodes in self.pools.items()
                ],
            },
        }
        return ReportCluster(
            name=self.name,
            uid=uid or f"uid-{self.name}",
            sequence=sequence,
            manifest=manifest,
        )


def workers_here(
    client: Client, settings: Settings, threads: ThreadPoolExecutor
) -> dict[str, Worker]:
    """Return the workers that users run, in this process, by task queue.

    The deadlock detector is off. It measures wall time, and this process runs clients,
    workers and the test on a machine that may be busy.
    """
    with patch.dict(os.environ, {"TEMPORAL_DEBUG": "1"}):
        return build_workers(client, settings, build_activities(settings), threads)


@dataclass
class WorkersHere:
    """Workers for both workflow task queues in this process, which can restart without
    any other process.
    """

    address: str
    _workers: dict[asyncio.Task[None], Worker] = field(default_factory=dict)
    _threads: list[ThreadPoolExecutor] = field(default_factory=list)

    async def start(self) -> None:
        await self._serve(queues.WORKFLOWS, queues.SCHEDULER)

    @contextlib.asynccontextmanager
    async def without(self, queue: str) -> AsyncIterator[None]:
        """Stop serving one of the queues while the body runs."""
        task, worker = next(
            (task, worker)
            for task, worker in self._workers.items()
            if worker.task_queue == queue
        )
        await worker.shutdown()
        await task
        del self._workers[task]
        yield
        await self._serve(queue)

    async def _serve(self, *served: str) -> None:
        settings = Settings(
            queues=QueueSettings(serve=served),
            worker=WorkerSettings(graceful_shutdown_seconds=0),
        )
        threads = ThreadPoolExecutor(
            max_workers=settings.worker.max_concurrent_activities
        )
        workers = workers_here(await _connect(self.address), settings, threads)
        self._threads.append(threads)
        self._workers |= {
            asyncio.create_task(worker.run()): worker for worker in workers.values()
        }

    async def lose(self) -> None:
        """Stop the workers abruptly, as far as a process can do that to a part of itself."""
        for task in self._workers:
            task.cancel()
        await self._until_ended()

    async def shut_down(self) -> None:
        """Stop the workers gracefully, so that no task of theirs remains in this process."""
        await asyncio.gather(*(worker.shutdown() for worker in self._workers.values()))
        await self._until_ended()

    async def _until_ended(self) -> None:
        ending, self._workers = self._workers, {}
        async with asyncio.timeout(STOP_SECONDS):
            outcomes = await asyncio.gather(*ending, return_exceptions=True)
        for threads in self._threads:
            threads.shutdown()
        self._threads.clear()
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


@dataclass
class WorkerApart:
    """The worker as a separate process, which SIGKILL ends."""

    process: WorkerProcess

    async def start(self) -> None:
        await asyncio.to_thread(self.process.start)

    async def lose(self) -> None:
        await asyncio.to_thread(self.process.kill)

    async def shut_down(self) -> None:
        await self.lose()


@dataclass
class ProtocolFleet:
    """The server, the workers, the clusters and helpers for tests.

    Each of `clients` has its own connection, like different users.
    """

    client: Client
    clients: list[Client]
    workers: "WorkersHere | WorkerApart"
    clusters: dict[str, ReportedCluster] = field(default_factory=dict)
    _sequence: int = 0
    _uids: dict[str, str] = field(default_factory=dict)

    # Workers

    async def start_workers(self) -> None:
        """Start the workers and the scheduler."""
        await self.workers.start()
        await ensure_scheduler(self.client)

    async def lose_workers(self) -> None:
        """Stop the workers abruptly, without waiting for their tasks."""
        await self.workers.lose()

    async def restart_workers(self) -> None:
        """Stop the workers abruptly and start new ones."""
        await self.lose_workers()
        await self.start_workers()

    # The scheduler

    async def terminate_scheduler(
        self, reason: str = "rebuild: lost on purpose"
    ) -> None:
        """Terminate the scheduler and start another.

        A scheduler that rebuilds does not find clusters that were only reported.
        """
        await self.client.get_workflow_handle(names.FLEET_SCHEDULER_ID).terminate(
            reason=reason
        )
        await ensure_scheduler(self.client)

    async def replica(self, name: str) -> Any:
        """Describe a replica; return None if it cannot answer or is not started yet."""
        return await self._query(
            names.workflow_id("ModelReplica", NAMESPACE, name), "describe"
        )

    async def scheduler(self, query: str, *arguments: Any) -> Any:
        """Query the scheduler; return None if it cannot answer."""
        return await self._query(names.FLEET_SCHEDULER_ID, query, *arguments)

    # Clusters

    async def add(self, clusters: Iterable[ReportedCluster]) -> None:
        """Report clusters that are new or have changed capacity."""
        for cluster in clusters:
            self.clusters[cluster.name] = cluster
            await self.client.start_workflow(
                "InferenceCluster",
                None,
                id=names.workflow_id("InferenceCluster", "", cluster.name),
                task_queue=queues.WORKFLOWS,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                **identity_at_start("InferenceCluster", "", cluster.name),
            )
        await self.report()

    async def report(self) -> None:
        """Send a newer report of every cluster."""
        self._sequence += 1
        for cluster in self.clusters.values():
            report = cluster.report(
                self._sequence, await self._uid_of(cluster.name)
            ).wire()
            await ensure_scheduler(
                self.client,
                SignalRequest(
                    workflow_id=names.FLEET_SCHEDULER_ID,
                    signal="report_cluster",
                    payload=report,
                ),
            )

    async def _uid_of(self, cluster: str) -> str:
        """Return the uid of a cluster's workflow.

        The scheduler queries that workflow if it receives a report with another uid.
        """
        workflow_id = names.workflow_id("InferenceCluster", "", cluster)
        if cluster not in self._uids:
            shown = await eventually(
                partial(self._query, workflow_id, "describe"),
                lambda seen: seen is not None and bool(seen["metadata"]["uid"]),
                what=f"the uid of {workflow_id}",
            )
            self._uids[cluster] = shown["metadata"]["uid"]
        return self._uids[cluster]

    # Deployments

    async def submit(self, documents: list[Json]) -> None:
        """Apply all documents at once, spread over the clients."""
        await asyncio.gather(
            *(
                self.apply(document, self.clients[i % len(self.clients)])
                for i, document in enumerate(documents)
            )
        )

    async def apply(
        self, document: Json, client: Client | None = None, request_id: str = ""
    ) -> None:
        """Apply a deployment as every client does, with one signal that also starts it.

        Without a `request_id`, it is the first deployment of its name.
        """
        name, namespace = (
            document["metadata"]["name"],
            document["metadata"]["namespace"],
        )
        await (client or self.client).start_workflow(
            "ModelDeployment",
            None,
            id=names.workflow_id("ModelDeployment", namespace, name),
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            **identity_at_start("ModelDeployment", namespace, name),
            start_signal="set_spec",
            start_signal_args=[
                SetSpec(
                    request_id=request_id or f"apply/{name}",
                    by="test",
                    manifest=document,
                ).wire()
            ],
        )

    async def scale(self, name: str, replicas: int, request_id: str) -> None:
        order = Scale(request_id=request_id, by="test", replicas=replicas).wire()
        await self.client.get_workflow_handle(
            names.workflow_id("ModelDeployment", NAMESPACE, name)
        ).signal("scale", order)

    async def describe(self, name: str) -> Json | None:
        """Return a deployment as its manifest; None if it cannot answer."""
        seen: Json | None = await self._query(
            names.workflow_id("ModelDeployment", NAMESPACE, name), "describe"
        )
        return seen

    async def running(self, kind: str) -> int:
        """Count the running workflows of a kind in visibility."""
        return (
            await self.client.count_workflows(
                f'ExecutionStatus = "Running" AND WorkflowType = "{kind}"'
            )
        ).count

    async def _query(self, workflow_id: str, query: str, *arguments: Any) -> Any:
        try:
            return await self.client.get_workflow_handle(workflow_id).query(
                query, args=arguments, rpc_timeout=QUERY_TIMEOUT
            )
        except RPCError as error:
            if error.status in _UNANSWERED:
                return None
            raise


def nodes_charged(ledger: list[Json]) -> Counter[tuple[str, str]]:
    """Count the charged nodes by (cluster, pool) without the scheduler's arithmetic.

    A whole node per pod.
    """
    charged: Counter[tuple[str, str]] = Counter()
    for entry in ledger:
        for engine in entry["engines"]:
            for member in engine["members"]:
                charged[entry["cluster"], member["pool"]] += engine.get(
                    "copies", 1
                ) * member.get("workerNodes", 1)
    return charged


@contextlib.asynccontextmanager
async def protocol_fleet(
    clients: int = 8,
    apart: Path | None = None,
    module: str = "worker",
    events: int = 0,
    signals: int = 0,
) -> AsyncIterator[ProtocolFleet]:
    """Start the server with the testbed's timing, the workers and the scheduler; stop
    all of them at the end.

    With a folder `apart`, the worker is a separate process that runs `module` and logs
    there. `events` is the number of events after which the server suggests a new run;
    `signals` is the maximum of signals per run.
    """
    async with protocol_server(events, signals) as client:
        address = client.service_client.config.target_host
        workers = (
            _worker_apart(address, apart, module) if apart else WorkersHere(address)
        )
        fleet = ProtocolFleet(
            client, [await _connect(address) for _ in range(clients)], workers
        )
        await fleet.start_workers()
        try:
            yield fleet
        finally:
            await workers.shut_down()


@contextlib.asynccontextmanager
async def protocol_server(events: int = 0, signals: int = 0) -> AsyncIterator[Client]:
    """Start a server with the testbed's timing and no worker; yield a client.

    `events` and `signals` are as in `protocol_fleet`.
    """
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == TEMPORAL
    )[TEMPORAL]
    limits = [f"limit.historyCount.suggestContinueAsNew={events}"] if events else []
    limits += [f"history.maximumSignalsPerExecution={signals}"] if signals else []
    arguments = [
        word
        for value in (*SERVER_SETTINGS, *limits)
        for word in ("--dynamic-config-value", value)
    ]
    async with await WorkflowEnvironment.start_local(
        data_converter=DATA_CONVERTER,
        interceptors=[RetriedQueries()],
        dev_server_existing_path=os.fspath(program),
        dev_server_extra_args=arguments,
    ) as server:
        await _until_served(server.client)
        await register_search_attributes(server.client)
        yield server.client


async def _until_served(client: Client) -> None:
    """Wait until the namespace is served.

    A server that was queried too early reports for seconds that the namespace does not
    exist.
    """
    for pause in pauses():
        with contextlib.suppress(RPCError):
            await client.count_workflows()
            return
        await asyncio.sleep(pause)
    raise TimeoutError("the server does not serve its namespace")


def _worker_apart(address: str, folder: Path, module: str) -> WorkerApart:
    served = json.dumps([queues.WORKFLOWS, queues.SCHEDULER])
    settings = {"MODELPLANE_QUEUES__SERVE": served}
    return WorkerApart(
        worker_process(
            address, folder / "secrets", folder / "worker.log", module, **settings
        )
    )


async def _connect(address: str) -> Client:
    return await Client.connect(
        address, data_converter=DATA_CONVERTER, interceptors=[RetriedQueries()]
    )
