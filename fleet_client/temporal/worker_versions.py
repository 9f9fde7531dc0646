"""The builds of workers that Temporal knows, and their promotion.

Temporal dispatches workflow tasks to the current build of a Worker Deployment. A worker
of any other build waits until its build is promoted.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerDeploymentVersionStatus
from temporalio.api.taskqueue.v1 import PollerInfo, TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    GetSystemInfoRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api_types import queues
from api_types.setting_types import UNVERSIONED
from fleet_client.errors import NotFound, WriteConflict

CURRENT = "Current"
_QUEUES = (queues.WORKFLOWS, queues.SCHEDULER)
# A promotion takes a second or two on a busy server.
_WAIT = timedelta(seconds=20)
# Temporal queries an internal workflow for this, which takes five seconds if a task of
# that workflow has just failed. The probe of Kubernetes waits longer
# (deploy/kubernetes/worker.yaml).
_PROBE = timedelta(seconds=9)
# Temporal answers a poll after at most a minute, and the worker polls again.
POLLED_LATELY = 120
"""Seconds after which a worker that has not polled is silent."""
_STATUS = "WORKER_DEPLOYMENT_VERSION_STATUS_"


@dataclass(frozen=True)
class WorkerVersions:
    """The builds of one Worker Deployment, the newest first.

    `status` has the state of each build, as Temporal names it. `serves` has the
    workflow task queues that workers of a build polled within the last five minutes.
    Temporal remembers pollers for that long.
    """

    current: str = UNVERSIONED
    status: dict[str, str] = field(default_factory=dict)
    serves: dict[str, list[str]] = field(default_factory=dict)
    conflict_token: bytes = b""


async def current_build(client: Client, deployment: str) -> str:
    """Return the build that runs workflows. Raise `RPCError`."""
    return (await _routing(client, deployment, _PROBE)).current


async def worker_versions(client: Client, deployment: str) -> WorkerVersions:
    """Return all builds. Raise `RPCError`."""
    versions = await _routing(client, deployment, _WAIT)
    for queue in _QUEUES:
        for build in sorted(await _pollers(client, deployment, queue)):
            versions.serves.setdefault(build, []).append(queue)
    return versions


async def polling_builds(client: Client) -> list[str]:
    """Return the builds of the workers that served workflows lately, sorted.

    They are those of the last five minutes, with or without versioning. Raise
    `RPCError`.
    """
    found = set()
    for queue in _QUEUES:
        for poller in await _described_pollers(client, queue):
            found.add(
                poller.deployment_options.build_id
                or poller.worker_version_capabilities.build_id
                or UNVERSIONED
            )
    return sorted(found)


async def is_polled(client: Client, queue: str) -> bool:
    """Return whether a worker polls a queue of workflow tasks. Raise `RPCError`."""
    polled = await last_poll(client, queue)
    return polled is not None and time.time() - polled < POLLED_LATELY


async def last_poll(client: Client, queue: str) -> float | None:
    """Return when a worker last polled a queue of workflow tasks.

    The time is in seconds since 1970. Return None if Temporal remembers no poller.
    Raise `RPCError`.
    """
    pollers = await _described_pollers(client, queue)
    times = [float(each.last_access_time.seconds) for each in pollers]
    return max(times, default=None)


async def last_polls(client: Client) -> dict[str, float | None]:
    """Return the result of `last_poll` for each queue of workflows."""
    return {queue: await last_poll(client, queue) for queue in _QUEUES}


async def server_version(client: Client) -> str:
    """Return the version of the Temporal server. Raise `RPCError`."""
    answer = await client.workflow_service.get_system_info(
        GetSystemInfoRequest(), timeout=_WAIT
    )
    return answer.server_version


async def promote(client: Client, deployment: str, build: str) -> bool:
    """Make a build the current one.

    Return False if it is current already. Raise `NotFound` unless workers of the build
    serve both task queues, because workflows would get stuck. Raise `WriteConflict` if
    another promotion came first, and `RPCError`.
    """
    versions = await worker_versions(client, deployment)
    if versions.current == build:
        return False
    served_by_build = versions.serves.get(build, ())
    unserved = [queue for queue in _QUEUES if queue not in served_by_build]
    if unserved:
        raise NotFound(
            f"build {build} of Worker Deployment {deployment} cannot be "
            f"promoted: none of its workers serves {' and '.join(unserved)}",
            details=[
                f"{each} serves {', '.join(served)}"
                for each, served in versions.serves.items()
            ],
            next_step=(
                "start workers of this build, and promote it with `--wait`; "
                "`modelplane workers status` shows the builds that do"
            ),
        )
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=deployment,
        # An empty id means workers without versioning.
        build_id="" if build == UNVERSIONED else build,
        conflict_token=versions.conflict_token,
        identity=client.identity,
    )
    try:
        await client.workflow_service.set_worker_deployment_current_version(
            request, timeout=_WAIT
        )
    except RPCError as error:
        if error.status not in (
            RPCStatusCode.FAILED_PRECONDITION,
            RPCStatusCode.NOT_FOUND,
        ):
            raise
        raise WriteConflict(
            f"build {build} of Worker Deployment {deployment} was not promoted: {error.message}",
            next_step="check `modelplane workers status`, and promote the build again if needed",
        ) from error
    return True


async def _routing(
    client: Client, deployment: str, within: timedelta
) -> WorkerVersions:
    request = DescribeWorkerDeploymentRequest(
        namespace=client.namespace, deployment_name=deployment
    )
    try:
        described = await client.workflow_service.describe_worker_deployment(
            request, timeout=within
        )
    except RPCError as error:
        if (
            error.status is RPCStatusCode.NOT_FOUND
            and "namespace" not in error.message.lower()
        ):
            # the deployment exists once its first worker has polled
            return WorkerVersions()
        raise
    found = described.worker_deployment_info
    status = {}
    for version in found.version_summaries:
        name = WorkerDeploymentVersionStatus.Name(version.status)
        build = version.deployment_version.build_id
        status[build] = name.removeprefix(_STATUS).capitalize()
    return WorkerVersions(
        current=found.routing_config.current_deployment_version.build_id or UNVERSIONED,
        status=status,
        conflict_token=described.conflict_token,
    )


async def _pollers(client: Client, deployment: str, queue: str) -> set[str]:
    pollers = await _described_pollers(client, queue)
    options = [poller.deployment_options for poller in pollers]
    versioned = {
        each.build_id for each in options if each.deployment_name == deployment
    }
    return versioned | {UNVERSIONED for each in options if not each.deployment_name}


async def _described_pollers(client: Client, queue: str) -> Sequence[PollerInfo]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    described = await client.workflow_service.describe_task_queue(
        request, timeout=_WAIT
    )
    return list(described.pollers)
