"""The builds of workers that Temporal knows, and their promotion.

Temporal hands out tasks of workflows to the current build of a Worker Deployment. A worker of any other
build waits until its build is promoted.
"""

from dataclasses import dataclass, field
from datetime import timedelta

from temporalio.api.enums.v1 import TaskQueueType, WorkerDeploymentVersionStatus
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueRequest,
    DescribeWorkerDeploymentRequest,
    SetWorkerDeploymentCurrentVersionRequest,
)
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from api_types import queues
from api_types.setting_types import UNVERSIONED
from client.errors import Conflict, NotFound

CURRENT = "Current"
_QUEUES = (queues.WORKFLOWS, queues.SCHEDULER)
# A promotion takes a second or two on a busy server.
_WAIT = timedelta(seconds=20)
# Temporal asks a workflow of its own, which takes five seconds if a task of that has just failed. A
# probe of Kubernetes waits longer (deploy/kubernetes/worker.yaml).
_PROBE = timedelta(seconds=9)
_STATUS = "WORKER_DEPLOYMENT_VERSION_STATUS_"


@dataclass(frozen=True)
class WorkerVersions:
    """The builds of one Worker Deployment, the newest first.

    `status` has the state of each build in the words of Temporal. `serves` has the task queues of
    workflows that workers of a build polled within the last five minutes: Temporal forgets them then.
    """

    current: str = UNVERSIONED
    status: dict[str, str] = field(default_factory=dict)
    serves: dict[str, list[str]] = field(default_factory=dict)
    conflict_token: bytes = b""


async def current_build(client: Client, deployment: str) -> str:
    """Return the build that runs workflows. Raises `RPCError`."""
    return (await _routing(client, deployment, _PROBE)).current


async def worker_versions(client: Client, deployment: str) -> WorkerVersions:
    """Return all builds. Raises `RPCError`."""
    versions = await _routing(client, deployment, _WAIT)
    for queue in _QUEUES:
        for build in sorted(await _pollers(client, deployment, queue)):
            versions.serves.setdefault(build, []).append(queue)
    return versions


async def promote(client: Client, deployment: str, build: str) -> bool:
    """Make a build the current one; return False if it is current already.

    Raises `NotFound` unless workers of the build serve both task queues, since workflows would stand
    still, `Conflict` if another promotion came first, and `RPCError`.
    """
    versions = await worker_versions(client, deployment)
    if versions.current == build:
        return False
    if unserved := [queue for queue in _QUEUES if queue not in versions.serves.get(build, ())]:
        raise NotFound(
            f"build {build} of Worker Deployment {deployment} cannot be promoted: no worker of it serves {' and '.join(unserved)}",
            details=[f"{each} serves {', '.join(served)}" for each, served in versions.serves.items()],
            next_step="start workers of this build, and promote it with `--wait`; `modelplane workers status` shows which serve",
        )
    request = SetWorkerDeploymentCurrentVersionRequest(
        namespace=client.namespace,
        deployment_name=deployment,
        # An empty one stands for workers without versioning.
        build_id="" if build == UNVERSIONED else build,
        conflict_token=versions.conflict_token,
        identity=client.identity,
    )
    try:
        await client.workflow_service.set_worker_deployment_current_version(request, timeout=_WAIT)
    except RPCError as error:
        if error.status not in (RPCStatusCode.FAILED_PRECONDITION, RPCStatusCode.NOT_FOUND):
            raise
        raise Conflict(
            f"build {build} of Worker Deployment {deployment} was not promoted: {error.message}",
            next_step="see `modelplane workers status`, and promote the build again if you still want it",
        ) from error
    return True


async def _routing(client: Client, deployment: str, within: timedelta) -> WorkerVersions:
    request = DescribeWorkerDeploymentRequest(namespace=client.namespace, deployment_name=deployment)
    try:
        described = await client.workflow_service.describe_worker_deployment(request, timeout=within)
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND and "namespace" not in error.message.lower():
            return WorkerVersions()  # until its first worker polls
        raise
    found = described.worker_deployment_info
    names = WorkerDeploymentVersionStatus.Name
    return WorkerVersions(
        current=found.routing_config.current_deployment_version.build_id or UNVERSIONED,
        status={
            version.deployment_version.build_id: names(version.status).removeprefix(_STATUS).capitalize()
            for version in found.version_summaries
        },
        conflict_token=described.conflict_token,
    )


async def _pollers(client: Client, deployment: str, queue: str) -> set[str]:
    request = DescribeTaskQueueRequest(
        namespace=client.namespace,
        task_queue=TaskQueue(name=queue),
        task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
    )
    described = await client.workflow_service.describe_task_queue(request, timeout=_WAIT)
    options = [poller.deployment_options for poller in described.pollers]
    versioned = {each.build_id for each in options if each.deployment_name == deployment}
    return versioned | {UNVERSIONED for each in options if not each.deployment_name}
