"""Sending signals, and starting the workflows that receive them."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.delivery import HoldSignals, SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplica
from api_types.messages.signals import RedeliverySignals, redelivery

# As many calls as the server answers at once without queueing them behind a busy workflow.
CALLS_AT_ONCE = 32

# The server answers these to a call that it will refuse again. All others may be the server's own trouble, which concerns all receivers.
REFUSALS = frozenset({RPCStatusCode.INVALID_ARGUMENT, RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.OUT_OF_RANGE})

# The client retries a call that a busy server refuses. A local activity must end within the ten seconds that it has: one that times out
# may never be retried, and its workflow would wait for it for ever.
CALL_SECONDS = 8


async def ensure_scheduler(client: Client, request: SignalRequest | None = None) -> None:
    """Start the one FleetScheduler if it does not run, and signal it."""
    signal: Mapping[str, Any] = {"start_signal": request.signal, "start_signal_args": [request.payload]} if request else {}
    await client.start_workflow(
        "FleetScheduler",
        None,
        id=names.FLEET_SCHEDULER_ID,
        task_queue=queues.SCHEDULER,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        static_summary="FleetScheduler default",
        **identity_at_start("FleetScheduler", "", "default", ready=""),
        **signal,
    )


async def ensure_directory(client: Client, namespace: str, request: SignalRequest) -> None:
    """Signal the EndpointDirectory of a namespace, and start it if it does not run."""
    identity = identity_at_start("EndpointDirectory", namespace, namespace, phase="Ready", ready="")
    await _start_with(client, "EndpointDirectory", namespace, request, identity)


async def ensure_upgrades(client: Client, request: SignalRequest) -> None:
    """Signal the one StackUpgrades, and start it if it does not run."""
    identity = identity_at_start("StackUpgrades", "", "default", phase="Ready", ready="")
    await _start_with(client, "StackUpgrades", "default", request, identity)


async def ensure_cloud_cluster(client: Client, request: SignalRequest) -> bool:
    """Signal a CloudCluster, and start it if it does not run; False for one that is complete: nothing is left to do for it.

    One that was terminated finds at the cloud what it had created. What arrives late, after everything was deleted, starts nothing.
    """
    cluster, _ = names.cluster_of_cloud(request.workflow_id)
    identity = identity_at_start("CloudCluster", "", cluster, phase="Pending", ready="", cluster=cluster)
    try:
        await _start_with(client, "CloudCluster", cluster, request, identity, reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY)
    except WorkflowAlreadyStartedError:
        return False
    return True


async def ensure_redelivery(client: Client, receiver: str, held: HoldSignals) -> None:
    """Hand refused signals to the Redelivery of their receiver, and start it if it does not run."""
    request = RedeliverySignals.HOLD.request(redelivery(receiver), held)
    identity = identity_at_start("Redelivery", "", receiver, phase="Pending", ready="")
    await _start_with(client, "Redelivery", receiver, request, identity)


async def _start_with(
    client: Client,
    kind: str,
    name: str,
    request: SignalRequest,
    identity: Mapping[str, Any],
    *,
    reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE,
) -> None:
    """Signal a workflow, and start it if it does not run."""
    await client.start_workflow(
        kind,
        None,
        id=request.workflow_id,
        task_queue=queues.WORKFLOWS,
        id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
        id_reuse_policy=reuse,
        static_summary=f"{kind} {name}",
        start_signal=request.signal,
        start_signal_args=[request.payload],
        **identity,
    )


async def send_signal(client: Client, request: SignalRequest) -> bool:
    """Send one signal; False when its receiver does not run.

    The scheduler, directories of endpoints, StackUpgrades and CloudClusters are started.
    """
    async with asyncio.timeout(CALL_SECONDS):
        if request.workflow_id == names.FLEET_SCHEDULER_ID:
            await ensure_scheduler(client, request)
            return True
        if request.workflow_id == names.STACK_UPGRADES_ID:
            await ensure_upgrades(client, request)
            return True
        if namespace := names.namespace_of_directory(request.workflow_id):
            await ensure_directory(client, namespace, request)
            return True
        if names.cluster_of_cloud(request.workflow_id)[0]:
            return await ensure_cloud_cluster(client, request)
        try:
            await client.get_workflow_handle(request.workflow_id).signal(request.signal, request.payload)
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True


class Start(Enum):
    """What became of a start: the replica runs, or has been deleted already, or its name is held by another uid.

    `COMPLETED`: it is gone, and all were told. What is late of that would be taken for the end of a run that came after it.
    `TAKEN`: the other one runs. `UNFINISHED`: it was terminated or failed. What it applied is still there, and with a run of another uid on
    top its owner could not be read any more. `REFUSED`: the server does not accept it.
    """

    RUNS = "runs"
    COMPLETED = "completed"
    TAKEN = "taken"
    UNFINISHED = "unfinished"
    REFUSED = "refused"


async def start_replicas(client: Client, replicas: Sequence[StartReplica]) -> StartedReplicas:
    """Start the workflows of replicas, and return the replicas that do not run. A refused start delays no other start."""
    slots = asyncio.Semaphore(CALLS_AT_ONCE)
    refused: dict[str, str] = {}

    async def start(replica: StartReplica) -> Start:
        async with slots, asyncio.timeout(CALL_SECONDS):
            try:
                return await start_replica(client, replica)
            except RPCError as error:
                if error.status not in REFUSALS:
                    raise
                refused[replica.name] = str(error)
                return Start.REFUSED

    started = started_replicas(replicas, await asyncio.gather(*map(start, replicas)))
    return started.model_copy(update={"refused": refused})


async def start_replica(client: Client, replica: StartReplica) -> Start:
    """Start the workflow of a replica, unless it is gone already or its name is held by another uid."""
    handle = client.get_workflow_handle(names.workflow_id("ModelReplica", replica.namespace, replica.name))
    # Most names are new, and cost one call.
    for policy in (WorkflowIDReusePolicy.REJECT_DUPLICATE, WorkflowIDReusePolicy.ALLOW_DUPLICATE):
        if await _start(client, handle.id, replica, policy):
            return Start.RUNS
        last = await handle.describe()
        is_same = await last.memo_value("uid", "") == replica.uid
        if last.status == WorkflowExecutionStatus.RUNNING:
            return Start.RUNS if is_same else Start.TAKEN
        is_complete = last.status == WorkflowExecutionStatus.COMPLETED
        if is_same == is_complete:
            return Start.COMPLETED if is_same else Start.UNFINISHED
    return Start.TAKEN


def started_replicas(replicas: Sequence[StartReplica], starts: Sequence[Start]) -> StartedReplicas:
    """Give the names of those that do not run."""
    of = [(replica.name, start) for replica, start in zip(replicas, starts, strict=True)]
    return StartedReplicas(
        conflicts=[name for name, start in of if start not in (Start.RUNS, Start.REFUSED)],
        unfinished=[name for name, start in of if start is Start.UNFINISHED],
        completed=[name for name, start in of if start is Start.COMPLETED],
    )


async def _start(client: Client, workflow_id: str, replica: StartReplica, policy: WorkflowIDReusePolicy) -> bool:
    try:
        await client.start_workflow(
            "ModelReplica",
            {"birth": replica.wire()},
            id=workflow_id,
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=policy,
            static_summary=f"ModelReplica {replica.namespace}/{replica.name} on {replica.cluster}",
            **identity_at_start(
                "ModelReplica",
                replica.namespace,
                replica.name,
                phase="Pending",
                cluster=replica.cluster,
                deployment=replica.deployment,
                memo={"uid": replica.uid},
            ),
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
