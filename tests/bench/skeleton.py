"""A bare skeleton of the protocol: the least work with which Temporal can carry it.

Its workflows start, signal and update as many workflows as the product does, in the same order: a
deployment asks the scheduler for places, gets them, and starts its replicas; each replica reports
to the scheduler and to its deployment. They have no spec, no status, no ledger and no retries.
`temporal_burst.py` measures the skeleton and the product in one run.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

from temporalio import activity, workflow
from temporalio.client import Client, WorkflowHandle
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from api_types.sections.programs import WorkerSettings
from tests.workflows.environment.harness import eventually
from tests.workflows.environment.protocol_fleet import protocol_server

QUEUE = "skeleton"
SCHEDULER = "scheduler"
POLL_SECONDS, TIMEOUT_SECONDS = 0.25, 300.0
_TIMEOUT = timedelta(seconds=60)


@dataclass(frozen=True)
class Message:
    """A signal from one workflow to another; with `kind` it starts the receiver if needed."""

    receiver: str
    signal: str
    sender: str
    replicas: int = 0
    kind: str = ""


class Sending:
    """Send signals outside of the history, as the product does."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn
    async def send(self, messages: list[Message]) -> None:
        """Send all messages at once."""
        await asyncio.gather(*(self.deliver(each) for each in messages))

    async def deliver(self, message: Message) -> None:
        """Send one message."""
        if not message.kind:
            receiver = self._client.get_workflow_handle(message.receiver)
            await receiver.signal(message.signal, message)
            return
        await self._client.start_workflow(
            message.kind,
            id=message.receiver,
            task_queue=QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal=message.signal,
            start_signal_args=[message],
        )


async def _send(messages: list[Message]) -> None:
    await workflow.execute_local_activity_method(
        Sending.send, messages, start_to_close_timeout=_TIMEOUT
    )


@workflow.defn
class SkeletonScheduler:
    """Answer the requests of deployments in batches."""

    def __init__(self) -> None:
        self._requests: list[Message] = []
        self._placed = 0

    @workflow.run
    async def run(self) -> None:
        """Answer each request."""
        while True:
            await workflow.wait_condition(lambda: bool(self._requests))
            requests, self._requests = self._requests, []
            self._placed += sum(each.replicas for each in requests)
            await _send(
                [Message(each.sender, "placed", SCHEDULER) for each in requests]
            )

    @workflow.signal
    def request(self, message: Message) -> None:
        """Receive the request of a deployment."""
        self._requests.append(message)

    @workflow.signal
    def bound(self, message: Message) -> None:
        """Receive the report of a replica."""

    @workflow.query
    def placed(self) -> int:
        """Return the number of replicas that have a place."""
        return self._placed


@workflow.defn
class SkeletonDeployment:
    """Ask for places, and start a replica for each."""

    def __init__(self) -> None:
        self._wanted = 0
        self._started = 0
        self._answer: Message | None = None

    @workflow.run
    async def run(self) -> None:
        """Start as many replicas as are wanted."""
        name = workflow.info().workflow_id
        while True:
            await workflow.wait_condition(lambda: self._wanted > self._started)
            wanted, self._answer = self._wanted, None
            await _send([Message(SCHEDULER, "request", name, wanted - self._started)])
            await workflow.wait_condition(lambda: self._answer is not None)
            starts = [
                Message(
                    f"{name}-{number}", "apply", name, kind=SkeletonReplica.__name__
                )
                for number in range(self._started, wanted)
            ]
            await _send(starts)
            self._started = wanted

    @workflow.signal
    def scale(self, message: Message) -> None:
        """Receive the wanted number of replicas."""
        self._wanted = message.replicas

    @workflow.signal
    def placed(self, message: Message) -> None:
        """Receive the answer of the scheduler."""
        self._answer = message

    @workflow.query
    def started(self) -> int:
        """Return the number of replicas that were started."""
        return self._started

    @workflow.signal
    def replica_changed(self, message: Message) -> None:
        """Receive the report of a replica."""


@workflow.defn
class SkeletonReplica:
    """Report to the scheduler and to the deployment, and live on."""

    def __init__(self) -> None:
        self._deployment = ""

    @workflow.run
    async def run(self) -> None:
        """Report once."""
        await workflow.wait_condition(lambda: bool(self._deployment))
        name = workflow.info().workflow_id
        reports = [
            Message(SCHEDULER, "bound", name),
            Message(self._deployment, "replica_changed", name),
        ]
        await _send(reports)
        await workflow.wait_condition(lambda: False)

    @workflow.signal
    def apply(self, message: Message) -> None:
        """Receive the command of the deployment."""
        self._deployment = message.sender


@contextlib.asynccontextmanager
async def _served(clients: int) -> AsyncIterator[list[Client]]:
    """Start a server and a worker. Yields clients with connections of their own."""
    async with protocol_server() as client:
        address = client.service_client.config.target_host
        first, *others = [await Client.connect(address) for _ in range(clients + 1)]
        worker = Worker(
            first,
            task_queue=QUEUE,
            workflows=[SkeletonScheduler, SkeletonDeployment, SkeletonReplica],
            activities=[Sending(first).send],
            workflow_runner=UnsandboxedWorkflowRunner(),
            max_cached_workflows=WorkerSettings().max_cached_workflows,
        )
        async with worker:
            await first.start_workflow(
                SkeletonScheduler.run, id=SCHEDULER, task_queue=QUEUE
            )
            yield others


async def _scale(client: Client, name: str, replicas: int) -> None:
    """Scale a deployment. The first time, this starts it."""
    user, kind = request_of(name, replicas), SkeletonDeployment.__name__
    order = Message(name, "scale", user, replicas, kind)
    await Sending(client).deliver(order)


async def _burst(clients: list[Client], deployments: list[str], replicas: int) -> float:
    """Return the seconds until the scheduler has placed the last replica."""
    wanted = len(deployments) * replicas
    scheduler = clients[0].get_workflow_handle(SCHEDULER)
    started = time.perf_counter()
    starts = (
        _scale(clients[number % len(clients)], name, replicas)
        for number, name in enumerate(deployments)
    )
    await asyncio.gather(*starts)
    await eventually(
        partial(scheduler.query, SkeletonScheduler.placed),
        lambda placed: placed >= wanted,
        what="a place for each replica",
        within=TIMEOUT_SECONDS,
        longest_pause=POLL_SECONDS,
    )
    return time.perf_counter() - started


async def _settle(client: Client, replicas: int) -> None:
    """Wait until all replicas run."""
    running = (
        f'ExecutionStatus = "Running" AND WorkflowType = "{SkeletonReplica.__name__}"'
    )
    await eventually(
        partial(client.count_workflows, running),
        lambda found: found.count >= replicas,
        what="a workflow for each replica",
        within=TIMEOUT_SECONDS,
        longest_pause=POLL_SECONDS,
    )


async def _change(client: Client, name: str, replicas: int) -> float:
    """Scale a deployment. Returns the seconds until it has the answer of the scheduler."""
    await _scale(client, name, replicas)
    deployment = client.get_workflow_handle(name)
    await eventually(
        partial(deployment.query, SkeletonDeployment.started),
        lambda started: started >= replicas,
        what=f"{replicas} replicas of {name}",
        within=TIMEOUT_SECONDS,
    )
    return await seconds_until_answered(deployment, request_of(name, replicas))


async def seconds_until_answered(
    deployment: WorkflowHandle[Any, Any], request: str
) -> float:
    """Read from a history how long a scale waited until the task with its answer was complete.

    `request` is a text in the payload of the signal. Raises LookupError if it was not answered.
    """
    began, is_answered = None, False
    async for event in deployment.fetch_history_events():
        signal = event.workflow_execution_signaled_event_attributes
        if (
            signal.signal_name == "scale"
            and request.encode() in signal.input.payloads[0].data
        ):
            began = event.event_time.ToDatetime()
        is_answered = is_answered or (
            began is not None and signal.signal_name == "placed"
        )
        is_complete = event.HasField("workflow_task_completed_event_attributes")
        if began is not None and is_answered and is_complete:
            spent: float = (event.event_time.ToDatetime() - began).total_seconds()
            return spent
    raise LookupError(f"{deployment.id} got no places for {request}")


def request_of(name: str, replicas: int) -> str:
    """Return the id of the request for so many replicas."""
    return f"{name}/{replicas}"


async def measure(
    deployments: int, replicas: int, changes: int, clients: int = 8
) -> dict[str, float]:
    """Measure the burst, and single changes after it. The times are seconds of wall time."""
    names = [f"bench-{number:04}" for number in range(deployments)]
    async with _served(clients) as served:
        figures = {"burst_decided_s": await _burst(served, names, replicas)}
        if not changes:
            return figures
        await _settle(served[0], deployments * replicas)
        spent = []
        for number in range(changes):
            name, wanted = (
                names[number % deployments],
                replicas + 1 + number // deployments,
            )
            spent.append(await _change(served[0], name, wanted))
    spent.sort()
    figures["single_p50_s"] = spent[len(spent) // 2]
    figures["single_p99_s"] = spent[math.ceil(len(spent) * 0.99) - 1]
    return figures
