"""Send signals, and start the workflows that receive them."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from activities.messaging.search_attributes import identity_at_start
from api_types import names, queues
from api_types.messages.delivery import HoldSignals, SignalRequest
from api_types.messages.entities import StartedReplicas, StartReplica
from api_types.messages.signals import RedeliverySignals, redelivery

# The number of concurrent calls that the server processes without queueing them behind
# a busy workflow.
CALLS_AT_ONCE = 32

# Statuses of calls that the server will refuse again. Any other error may be caused by
# the server, which then affects all receivers.
REFUSALS = frozenset(
    {
        RPCStatusCode.INVALID_ARGUMENT,
        RPCStatusCode.FAILED_PRECONDITION,
        RPCStatusCode.OUT_OF_RANGE,
    }
)

# The converter raises these for a payload that it cannot decode, for example without
# the sender's key.
DECODING_ERRORS = (KeyError, RuntimeError, ValueError)

# The client retries a call that a busy server refuses. A local activity must end within
# its ten seconds: after a timeout it may never be retried, and its workflow would wait
# forever.
CALL_SECONDS = 8

_UNREADABLE_RUN = (
    "the memo of an earlier run of this name cannot be decoded; give the workers the "
    "encryption key of that run"
)


async def ensure_scheduler(
    client: Client, request: SignalRequest | None = None
) -> None:
    """Start the one FleetScheduler if it does not run, and signal it."""
    signal: Mapping[str, Any] = {}
    if request:
        signal = {
            "start_signal": request.signal,
            "start_signal_args": [request.payload],
        }
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


async def ensure_directory(
    client: Client, namespace: str, request: SignalRequest
) -> None:
    """Signal the EndpointDirectory of a namespace, and start it if it does not run."""
    identity = identity_at_start(
        "EndpointDirectory", namespace, namespace, phase="Ready", ready=""
    )
    await _start_with(client, "EndpointDirectory", namespace, request, identity)


async def ensure_upgrades(client: Client, request: SignalRequest) -> None:
    """Signal the one StackUpgrades, and start it if it does not run."""
    identity = identity_at_start(
        "StackUpgrades", "", "default", phase="Ready", ready=""
    )
    await _start_with(client, "StackUpgrades", "default", request, identity)


async def ensure_cloud_cluster(client: Client, request: SignalRequest) -> bool:
    """Signal a CloudCluster, and start it if it does not run.

    Returns False if it is complete, because there is nothing left to do. A terminated
    one is started again and finds the cloud objects that it had created. A late signal,
    after everything was deleted, starts nothing.
    """
    cluster, _ = names.cluster_of_cloud(request.workflow_id)
    identity = identity_at_start(
        "CloudCluster", "", cluster, phase="Pending", ready="", cluster=cluster
    )
    try:
        await _start_with(
            client,
            "CloudCluster",
            cluster,
            request,
            identity,
            reuse=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
        )
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
    """Send one signal.

    Returns False if its receiver does not run. The scheduler, endpoint directories,
    StackUpgrades and CloudClusters are started if they do not run.
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
            await client.get_workflow_handle(request.workflow_id).signal(
                request.signal, request.payload
            )
        except RPCError as error:
            if error.status == RPCStatusCode.NOT_FOUND:
                return False
            raise
        return True


class StartResult(Enum):
    """The result of starting a replica.

    - `RUNS`: it runs.
    - `COMPLETED`: it was deleted, and all others were notified. A late message of that
      run would look like the end of a later run.
    - `TAKEN`: a run of another uid has its name.
    - `UNFINISHED`: a run of another uid was terminated or failed. Its objects still
      exist, and a run of another uid would hide their owner.
    - `REFUSED`: the server does not accept the start, or the uid of an earlier run of
      its name cannot be read.
    """

    RUNS = "runs"
    COMPLETED = "completed"
    TAKEN = "taken"
    UNFINISHED = "unfinished"
    REFUSED = "refused"


async def start_replicas(
    client: Client, replicas: Sequence[StartReplica]
) -> StartedReplicas:
    """Start the workflows of replicas, and return those that do not run.

    A refused start delays no other start.
    """
    slots = asyncio.Semaphore(CALLS_AT_ONCE)
    refused: dict[str, str] = {}

    async def start(replica: StartReplica) -> StartResult:
        async with slots, asyncio.timeout(CALL_SECONDS):
            try:
                result = await start_replica(client, replica)
            except RPCError as error:
                if error.status not in REFUSALS:
                    raise
                refused[replica.name] = str(error)
                return StartResult.REFUSED
        if result is StartResult.REFUSED:
            refused[replica.name] = _UNREADABLE_RUN
        return result

    started = started_replicas(replicas, await asyncio.gather(*map(start, replicas)))
    return started.model_copy(update={"refused": refused})


async def start_replica(client: Client, replica: StartReplica) -> StartResult:
    """Start the workflow of a replica, unless it completed or another uid has its name.

    A request of an earlier attempt may arrive late, even after the replica has
    completed. All attempts to start a run after the same earlier run have one request
    id, so Temporal starts no second run for the late request.
    """
    handle = client.get_workflow_handle(
        names.workflow_id("ModelReplica", replica.namespace, replica.name)
    )
    # Most names are new, and their start takes one call.
    reject, allow = (
        WorkflowIDReusePolicy.REJECT_DUPLICATE,
        WorkflowIDReusePolicy.ALLOW_DUPLICATE,
    )
    if await _start(client, handle.id, replica, reject):
        return StartResult.RUNS
    last = await handle.describe()
    if (found := await _other_result(last, replica)) is not None:
        return found
    if await _start(client, handle.id, replica, allow, f"{replica.uid}/{last.run_id}"):
        return StartResult.RUNS
    last = await handle.describe()
    return await _other_result(last, replica) or StartResult.TAKEN


async def _other_result(
    last: WorkflowExecutionDescription, replica: StartReplica
) -> StartResult | None:
    """Return why a replica is not started after a run of its name, or None."""
    try:
        is_same = await last.memo_value("uid", "") == replica.uid
    except DECODING_ERRORS:
        return StartResult.REFUSED
    if last.status == WorkflowExecutionStatus.RUNNING:
        return StartResult.RUNS if is_same else StartResult.TAKEN
    is_complete = last.status == WorkflowExecutionStatus.COMPLETED
    if is_same != is_complete:
        return None
    return StartResult.COMPLETED if is_same else StartResult.UNFINISHED


def started_replicas(
    replicas: Sequence[StartReplica], starts: Sequence[StartResult]
) -> StartedReplicas:
    """Return the names of the replicas that do not run."""
    of = [
        (replica.name, start) for replica, start in zip(replicas, starts, strict=True)
    ]
    return StartedReplicas(
        conflicts=[
            name
            for name, start in of
            if start not in (StartResult.RUNS, StartResult.REFUSED)
        ],
        unfinished=[name for name, start in of if start is StartResult.UNFINISHED],
        completed=[name for name, start in of if start is StartResult.COMPLETED],
    )


async def _start(
    client: Client,
    workflow_id: str,
    replica: StartReplica,
    policy: WorkflowIDReusePolicy,
    request_id: str | None = None,
) -> bool:
    # The SDK takes a request id, and does not declare it.
    hidden: dict[str, Any] = {"request_id": request_id}
    try:
        await client.start_workflow(
            "ModelReplica",
            {"start": replica.wire()},
            id=workflow_id,
            task_queue=queues.WORKFLOWS,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            id_reuse_policy=policy,
            static_summary=(
                f"ModelReplica {replica.namespace}/{replica.name} on {replica.cluster}"
            ),
            **identity_at_start(
                "ModelReplica",
                replica.namespace,
                replica.name,
                phase="Pending",
                cluster=replica.cluster,
                deployment=replica.deployment,
                memo={"uid": replica.uid},
            ),
            **hidden,
        )
    except WorkflowAlreadyStartedError:
        return False
    return True
