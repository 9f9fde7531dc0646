"""The worker: the composition root of the control plane.

It reads the settings, builds the clients, passes them to the activities and serves the task queues until a signal stops it. One process
serves all queues unless `queues.serve` names some. Beside the queues it answers `/healthz`, `/readyz` and `/metrics`. The file reads top to
bottom: `main`, then each step of a start in its order. Not here: what an activity or a workflow does.
"""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from pydantic import ValidationError
from temporalio.api.enums.v1 import IndexedValueType
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest, ListSearchAttributesRequest
from temporalio.client import Client
from temporalio.common import SearchAttributeIndexedValueType, VersioningBehavior, WorkerDeploymentVersion
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.arguments import ArgumentCheck, tolerant
from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities
from activities.clients.helm.pool import HelmClients
from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.hubs.s3 import S3Buckets
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clouds.accounts import CloudAccounts, ProviderFactory
from activities.clouds.activities import CloudActivities, Patience
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.identities import CloudIdentities
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.pace import Pace
from activities.clusters.activities import ClusterActivities
from activities.clusters.facts import facts_of_settings
from activities.clusters.permissions import Usage
from activities.log import configure_logging
from activities.messaging.entity_client import EntityClient
from activities.messaging.search_attributes import SEARCH_ATTRIBUTES
from activities.messaging.sending import ensure_scheduler
from activities.probes import free_port, http_app, serving_http, show_up
from activities.render.cache.artifact import SOURCE_HUGGINGFACE, SOURCE_OCI, SOURCE_S3
from activities.render.version import renderer_hash
from activities.render_settings import render_settings
from activities.routing.activities import RoutingActivities
from activities.routing.control_cluster import ControlCluster
from activities.secrets.selection import secret_store
from activities.stack.activities import StackActivities, no_control_cluster
from activities.workloads.activities import WorkloadActivities
from api_types import queues
from api_types.environment import CONFIG_VARIABLE
from api_types.queues import ClusterWork
from api_types.settings import Settings, UnreadableSettings, WorkerSettings, bad_settings, images_by_tag
from client.errors import CommandFailed, ExitCode
from client.temporal.build import build_id
from client.temporal.connection import connect
from client.temporal.shutdown import exit_process
from client.temporal.worker_versions import current_build
from scheduler.cel.selector import compile_selector
from testbed.programs.install import cached
from workflows import registry

# The workflows of a killed worker stay on its sticky queue for this time; with the default of ten seconds every user would notice.
STICKY_WAIT = timedelta(seconds=1)

# As long as the server waits for a workflow task. The SDK interrupts a workflow after two seconds of wall time, which a burst of signals on
# a busy processor takes too, and a workflow that was interrupted may never be evicted from its worker's cache.
DEADLOCK_SECONDS = 10

# Decisions are pure computation of one workflow: a second thread is for an audit of the ledger beside one.
DECISION_THREADS = 4

# For how long the SDK keeps back the progress that a heartbeat reports. A killed worker loses it,
# and the next attempt of a broadcast repeats the signals of that time. The default is 24 s if the
# heartbeat timeout is 30 s.
PROGRESS_KEPT = timedelta(seconds=1)

# Polls of one task queue of clusters at once. A process that hangs keeps its polls open, and loses a task with each of them; two are enough
# to start some hundred tasks a second.
CLUSTER_POLLS = 2

# A worker is often started together with its server.
CONNECT_SECONDS = 30.0

# Between two looks whether the server takes new search attributes, and for how long is looked: most servers read them once a minute.
SEARCH_ATTRIBUTES_PAUSE, SEARCH_ATTRIBUTES_SECONDS = 0.2, 120.0

_TYPES = {
    SearchAttributeIndexedValueType.KEYWORD: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    SearchAttributeIndexedValueType.INT: IndexedValueType.INDEXED_VALUE_TYPE_INT,
}

log = structlog.get_logger("modelplane.worker")


def cloud_providers(settings: Settings) -> dict[str, ProviderFactory]:
    """Give what makes a cloud from a credential and a region, by source of InferenceClusters."""
    unused_since: dict[str, dict[str, float]] = {}
    return {
        "EKS": lambda credential, region: EksProvider(credential, region, settings.eks, unused_since=unused_since),
        "GKE": lambda credential, region: GkeProvider(credential, region, settings.gke),
    }


@dataclass(frozen=True)
class Clouds:
    """The clouds that clusters are created at, and how often what is created there is looked at; other programs have fake ones."""

    providers: Callable[[Settings], dict[str, ProviderFactory]] = cloud_providers
    pace: Pace = field(default_factory=Pace)
    patience: Patience = field(default_factory=Patience)


def main(clouds: Clouds | None = None) -> None:
    """Start the worker. Exit codes: 0 stopped, 2 bad settings, 6 Temporal does not answer."""
    settings = load_settings()
    configure_logging(settings.log)
    try:
        asyncio.run(_run_until_signal(settings, clouds or Clouds()))
    except CommandFailed as error:
        print("\n".join(filter(None, (error.message, *error.details, error.next_step))), file=sys.stderr)
        exit_process(error.code)
    exit_process(ExitCode.DONE)


async def _run_until_signal(settings: Settings, clouds: Clouds) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await run(settings, stop, clouds)


async def run(settings: Settings, stop: asyncio.Event, clouds: Clouds) -> None:
    """Serve until `stop` is set, then finish what is running."""
    raise_open_files_limit()
    sdk_metrics = f"127.0.0.1:{free_port()}"
    runtime = Runtime(telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=sdk_metrics)))
    client = await connect(settings, runtime=runtime, within_seconds=CONNECT_SECONDS)
    await register_search_attributes(client)
    if named := images_by_tag(settings):
        log.warning("images are named by tags, which a registry may move: set them with digests (README.md, Images)", images=named)
    activities = build_activities(settings, clouds)
    await activities.helm.start(serves_clusters=serves_clusters(settings))
    with ThreadPoolExecutor(max_workers=DECISION_THREADS, thread_name_prefix="decision") as threads:
        # Loads the grammar of selectors, a quarter of a second that the first decision would wait for.
        threads.submit(compile_selector, "true")
        workers = build_workers(client, settings, activities, threads)
        unready = partial(why_unready, client, settings)
        async with contextlib.AsyncExitStack() as stack:
            for queue, worker in workers.items():
                await stack.enter_async_context(worker)
                show_up(queue, worker)
            await stack.enter_async_context(serving_http(http_app(workers, sdk_metrics, unready), settings.worker.listen))
            if queues.SCHEDULER in workers:
                await ensure_scheduler(client)
            served = {"queues": list(workers), "temporal": settings.temporal.address, "listen": settings.worker.listen}
            log.info("serving", build=build_id(settings.worker), **served)
            if problem := await unready():
                log.warning("this worker runs no workflow", reason=problem)
            await stop.wait()
            log.info("stopping", grace_seconds=settings.worker.graceful_shutdown_seconds)
    await activities.pool.close()
    activities.helm.close()


# --- settings -----------------------------------------------------------------------------------------------------------------------------


def load_settings() -> Settings:
    """Read the settings, or exit with every problem on standard error."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).expanduser().is_file():
        print(f"{CONFIG_VARIABLE}: there is no file {named}; create it, or unset the variable to run with the defaults", file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED)
    try:
        return Settings()
    except ValidationError as error:
        for problem in bad_settings(error):
            print(f"setting {problem}", file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None
    except UnreadableSettings as error:
        print(error, file=sys.stderr)
        raise SystemExit(ExitCode.REFUSED) from None


# --- the connection ---------------------------------------------------------------------------------------------------------------------


async def register_search_attributes(client: Client) -> None:
    """Add the search attributes that the server lacks, or log a warning where that is not allowed."""
    namespace = client.namespace
    try:
        known = await client.operator_service.list_search_attributes(ListSearchAttributesRequest(namespace=namespace))
        missing = {key.name: _TYPES[key.indexed_value_type] for key in SEARCH_ATTRIBUTES if key.name not in known.custom_attributes}
        if missing:
            await client.operator_service.add_search_attributes(AddSearchAttributesRequest(namespace=namespace, search_attributes=missing))
            log.info("registered search attributes", names=list(missing))
            await _until_usable(client)
    except RPCError as error:
        if error.status not in (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNIMPLEMENTED, RPCStatusCode.ALREADY_EXISTS):
            raise
        wanted = ", ".join(f"{key.name} ({key.indexed_value_type.name.title()})" for key in SEARCH_ATTRIBUTES)
        log.warning("cannot register search attributes; have an administrator add these", names=wanted, error=str(error))


async def _until_usable(client: Client) -> None:
    """Return when the server takes the search attributes: it looks every few seconds for new ones, and refuses all starts until then.

    One that does not for `SEARCH_ATTRIBUTES_SECONDS` is left to it, with a warning: it refuses each start with the reason.
    """
    query = " AND ".join(f"{key.name} IS NOT NULL" for key in SEARCH_ATTRIBUTES)
    deadline = asyncio.get_running_loop().time() + SEARCH_ATTRIBUTES_SECONDS
    while True:
        try:
            await client.count_workflows(query)
        except RPCError as error:
            if error.status is not RPCStatusCode.INVALID_ARGUMENT:
                raise
            if asyncio.get_running_loop().time() > deadline:
                log.warning("the server does not take the search attributes yet; nothing can be started until it does", error=str(error))
                return
            await asyncio.sleep(SEARCH_ATTRIBUTES_PAUSE)
        else:
            return


def raise_open_files_limit() -> None:
    """Allow as many open files as the system lets this process have: a watched cluster needs some twenty connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# --- activities and workers -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Activities:
    """All activities, with the clients that they share."""

    messaging: EntityClient
    clusters: ClusterActivities
    workloads: WorkloadActivities
    caches: CacheActivities
    revisions: RevisionActivities
    routing: RoutingActivities
    stack: StackActivities
    clouds: CloudActivities
    pool: KubernetesPool
    helm: HelmClients


def build_activities(settings: Settings, clouds: Clouds | None = None) -> Activities:
    """Build every activity from the settings."""
    clouds = clouds or Clouds()
    store = secret_store(settings)
    accounts = CloudAccounts(store, clouds.providers(settings), settings.provision)
    requests, applies = settings.cluster.max_concurrent_requests, settings.cluster.max_concurrent_applies
    pool = KubernetesPool(store, settings.kubeconfig, requests, applies, accounts, CloudIdentities())
    # The helm that `modelplane up` and the tests use serves a worker beside them.
    helm = HelmClients(pool, settings.stack, cached("helm"))
    control = ControlCluster(pool, settings.control_cluster)
    force_after = timedelta(seconds=settings.teardown.force_after) if settings.teardown.force_after is not None else None
    renderer = renderer_hash(render_settings(settings), settings.workloads.adopt_renderer)
    return Activities(
        messaging=EntityClient(),
        clusters=ClusterActivities(
            pool,
            settings=facts_of_settings(settings, renderer),
            toleration_keys=settings.workloads.toleration_keys,
            store=store,
            usage=Usage(
                metrics_auth=settings.epp.metrics_auth,
                force_delete=force_after is not None,
                picker_replicas=settings.epp.replicas,
            ),
        ),
        workloads=WorkloadActivities(pool, store, render_settings(settings), force_after, settings.workloads.adopt_renderer, renderer),
        caches=CacheActivities(pool, store, render_settings(settings), force_after),
        revisions=RevisionActivities(
            store,
            {
                SOURCE_HUGGINGFACE: HuggingFaceHub(settings.cache.hub_endpoint),
                SOURCE_S3: S3Buckets(settings.outbound.private_addresses, allow_plain_http=settings.s3.allow_plain_http),
                SOURCE_OCI: OciRegistry(settings.outbound.private_addresses, allow_plain_http=settings.oci.allow_plain_http),
            },
        ),
        routing=RoutingActivities(control),
        stack=StackActivities(
            pool,
            helm,
            settings.stack,
            control.api if settings.control_cluster.name else no_control_cluster,
            control.connection if settings.control_cluster.name else None,
        ),
        clouds=CloudActivities(accounts, InCluster(pool, helm), settings.provision, clouds.pace, clouds.patience),
        pool=pool,
        helm=helm,
    )


def build_workers(client: Client, settings: Settings, activities: Activities, threads: ThreadPoolExecutor) -> dict[str, Worker]:
    """Build one Temporal worker per served task queue. Only decisions of the scheduler run on `threads`."""
    limits = settings.worker
    shared: dict[str, Any] = {
        "graceful_shutdown_timeout": timedelta(seconds=limits.graceful_shutdown_seconds),
        "identity": limits.identity or f"{socket.gethostname()}/{os.getpid()}",
    }
    of_activities: dict[str, Any] = {**shared, "build_id": build_id(limits)}
    of_workflows: dict[str, Any] = {
        **shared,
        **versioning(limits),
        "workflow_runner": registry.runner(),
        "sticky_queue_schedule_to_start_timeout": STICKY_WAIT,
        "max_cached_workflows": limits.max_cached_workflows,
        "max_concurrent_workflow_tasks": limits.max_concurrent_workflow_tasks,
    }
    to_entities = [
        activities.messaging.signal,
        activities.messaging.signal_many,
        activities.messaging.read_memo,
        activities.messaging.query_each,
        activities.messaging.start_replicas,
        activities.messaging.survey,
        activities.messaging.broadcast,
        activities.messaging.redeliver,
        activities.messaging.check_receivers,
        activities.messaging.await_running,
    ]
    parts: dict[str, dict[str, Any]] = {
        queues.WORKFLOWS: {
            **of_workflows,
            "workflows": list(registry.BESIDE_SCHEDULER),
            "activities": [*to_entities, *registry.REBUILD_ACTIVITIES],
            "max_concurrent_activities": limits.max_concurrent_activities,
            "max_heartbeat_throttle_interval": PROGRESS_KEPT,
        },
        queues.SCHEDULER: {
            **of_workflows,
            "workflows": registry.SCHEDULER_WORKFLOWS,
            "activities": [*to_entities, *registry.SCHEDULER_ACTIVITIES],
            "activity_executor": threads,
            # What the scheduler does itself is local; batches for other entities go to the queue of those.
            "no_remote_activities": True,
        },
        queues.CLOUD: {
            **of_activities,
            "activities": [
                activities.clouds.plan_cloud,
                activities.clouds.ensure_cloud_object,
                activities.clouds.delete_cloud_object,
                activities.clouds.observe_cloud,
                activities.clouds.audit_cloud,
            ],
            # Most of them wait for their cloud.
            "max_concurrent_activities": limits.max_concurrent_waits,
        },
    }
    served: dict[str, dict[str, Any]] = {}
    for name in settings.queues.serve or (*parts, queues.CLUSTERS):
        if name in parts:
            served[name] = parts[name]
            continue
        # Any other name (annotation modelplane.ai/task-queue) is for a worker beside a cluster that others cannot reach.
        for queue, work in queues.served_queues(name).items():
            of_class = work_on_clusters(activities, limits)[work]
            served[queue] = {
                **of_activities,
                "activities": list(of_class.activities),
                "max_concurrent_activities": of_class.slots,
                "max_concurrent_activity_task_polls": CLUSTER_POLLS,
            }
    return {queue: build_worker(client, queue, **options) for queue, options in served.items()}


def versioning(limits: WorkerSettings) -> dict[str, Any]:
    """Return the options that tell Temporal the build of a worker of workflows.

    Workers of activities have no versioning: a worker beside a cluster may run another build than the
    workflows, and Temporal would give it no task after a promotion (docs/adr/0035).
    """
    if not limits.deployment_name:
        return {"build_id": build_id(limits)}
    version = WorkerDeploymentVersion(limits.deployment_name, build_id(limits))
    # Entities live for months, so each goes on with the build that is current at its next task.
    config = WorkerDeploymentConfig(version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE)
    return {"deployment_config": config}


async def why_unready(client: Client, settings: Settings) -> str:
    """Return why a process with versioning runs no workflow; "" if it runs them, serves none or has no versioning."""
    deployment, build = settings.worker.deployment_name, build_id(settings.worker)
    if not deployment or not serves_workflows(settings):
        return ""
    try:
        current = await current_build(client, deployment)
    except RPCError as error:
        return f"Temporal does not say which build is current: {error.message}"
    if current == build:
        return ""
    return f"build {build} is not current, {current} is: `modelplane workers promote {build}` lets it run the workflows"


def serves_workflows(settings: Settings) -> bool:
    """Whether this worker serves a task queue of workflows."""
    return not settings.queues.serve or not {queues.WORKFLOWS, queues.SCHEDULER}.isdisjoint(settings.queues.serve)


def serves_clusters(settings: Settings) -> bool:
    """Whether this worker serves a queue with work on clusters."""
    served = settings.queues.serve
    return not served or any(name not in (queues.WORKFLOWS, queues.SCHEDULER) for name in served)


class WorkClass(NamedTuple):
    """The activities of one class of work on clusters, and how many of them run at once."""

    activities: Sequence[Callable[..., Any]]
    slots: int


def work_on_clusters(activities: Activities, limits: WorkerSettings) -> dict[ClusterWork, WorkClass]:
    """List the activities of each class of work. They all wait for others most of the time, so slots bound memory, not processors."""
    return {
        ClusterWork.CALL: WorkClass(
            [activities.clusters.connect_cluster, activities.clusters.await_worker, activities.routing.connect_gateway],
            limits.max_concurrent_watches,
        ),
        ClusterWork.WATCH: WorkClass(
            [
                activities.clusters.watch_cluster,
                activities.clusters.await_connection,
                activities.clusters.await_worker,
                activities.routing.watch_gateway,
            ],
            limits.max_concurrent_watches,
        ),
        ClusterWork.APPLY: WorkClass(
            [
                activities.workloads.apply_replica,
                activities.workloads.await_copies,
                activities.routing.apply_endpoint_backend,
                activities.routing.remove_endpoint_backend,
                activities.routing.apply_service_route,
                activities.routing.remove_service_route,
            ],
            limits.max_concurrent_activities,
        ),
        ClusterWork.TEARDOWN: WorkClass(
            [activities.workloads.teardown_replica_step, activities.workloads.prune_replica, activities.clusters.empty_cluster],
            limits.max_concurrent_waits,
        ),
        ClusterWork.CACHE: WorkClass(
            [activities.caches.apply_cache, activities.revisions.resolve_revision], limits.max_concurrent_activities
        ),
        ClusterWork.STACK: WorkClass(
            [
                activities.stack.preflight_stack,
                activities.stack.apply_stack_objects,
                activities.stack.apply_chart_crds,
                activities.stack.helm_ensure,
                activities.stack.restart_ai_gateway,
                activities.stack.await_no_routes,
                activities.stack.remove_stack_objects,
                activities.stack.helm_uninstall,
                activities.stack.purge_definitions,
                activities.stack.remove_finalizer,
                activities.stack.list_load_balancers,
                activities.stack.run_install_step,
            ],
            limits.max_concurrent_activities,
        ),
        ClusterWork.WAIT: WorkClass(
            [activities.caches.delete_cache_objects, activities.caches.await_credential, activities.stack.stack_readiness],
            limits.max_concurrent_waits,
        ),
    }


def build_worker(client: Client, queue: str, **parts: Any) -> Worker:
    """Build a worker with a longer deadlock timeout (the SDK's pull request 1614 was closed), and one that refuses bad arguments in words.

    The SDK has an option for neither: it has one converter for workflows and activities.
    """
    worker = Worker(client, task_queue=queue, interceptors=[ArgumentCheck()], **parts)
    if worker._activity_worker is not None:  # noqa: SLF001
        worker._activity_worker._data_converter = tolerant(worker._activity_worker._data_converter)  # noqa: SLF001
    inner = worker._workflow_worker  # noqa: SLF001
    if inner is not None and inner._deadlock_timeout_seconds is not None:  # noqa: SLF001
        inner._deadlock_timeout_seconds = DEADLOCK_SECONDS  # noqa: SLF001
    return worker


if __name__ == "__main__":
    main()
