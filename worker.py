"""The worker: the composition root of the control plane.

It reads the settings, builds the clients, passes them to the activities, and serves the
task queues until a signal stops it. One process serves all queues unless `queues.serve`
names some. It also answers `/healthz`, `/readyz` and `/metrics`. The file reads top to
bottom: `main`, then each step of the start in order. The behaviour of activities and
workflows is defined in their own packages.
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
from temporalio.api.operatorservice.v1 import (
    AddSearchAttributesRequest,
    ListSearchAttributesRequest,
)
from temporalio.client import Client
from temporalio.common import (
    SearchAttributeIndexedValueType,
    VersioningBehavior,
    WorkerDeploymentVersion,
)
from temporalio.runtime import PrometheusConfig, Runtime, TelemetryConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker, WorkerDeploymentConfig

from activities.arguments import ArgumentCheck, tolerant
from activities.caches.activities import CacheActivities
from activities.caches.revisions import RevisionActivities, RevisionSource
from activities.clients.helm.pool import HelmClients
from activities.clients.hubs.huggingface import HuggingFaceHub
from activities.clients.hubs.oci import OciRegistry
from activities.clients.hubs.s3 import S3Buckets
from activities.clients.kubernetes.pool import KubernetesPool
from activities.clients.outward.gateway import gateway_answers
from activities.clouds.accounts import CloudAccounts, ProviderFactory
from activities.clouds.activities import CloudActivities
from activities.clouds.eks.clients import AwsClients
from activities.clouds.eks.provider import EksProvider
from activities.clouds.gke.clients import CredentialClients
from activities.clouds.gke.provider import GkeProvider
from activities.clouds.identities import CloudIdentities
from activities.clouds.in_cluster import InCluster
from activities.clouds.lifecycle.pace import PollPace
from activities.clouds.patience import Patience
from activities.clouds.permitted import permitted_sources
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
from api_types.sections.programs import WorkerSettings
from api_types.settings import Settings, UnreadableSettings, bad_settings, images_by_tag
from fleet_client.errors import CommandFailed
from fleet_client.temporal.build import build_id
from fleet_client.temporal.connection import connect
from fleet_client.temporal.shutdown import BAD_SETTINGS, exit_failed, exit_process
from fleet_client.temporal.worker_versions import current_build
from scheduler.cel.selector import compile_selector
from workflows import registry

# The workflows of a killed worker stay on its sticky queue for this time. Users would
# notice the default of ten seconds.
STICKY_WAIT = timedelta(seconds=1)

# The server waits as long for a workflow task. By default the SDK interrupts a workflow
# after two seconds of wall time. A burst of signals on a busy processor takes that
# long, and the worker may never evict an interrupted workflow from its cache.
DEADLOCK_SECONDS = 10

# A decision is pure computation of one workflow. The other threads let audits of the
# ledger run at the same time.
DECISION_THREADS = 4

# How long the SDK delays the progress that a heartbeat reports. A killed worker loses
# delayed progress, and the next attempt of a broadcast repeats the signals of that
# time. The default is 24 s if the heartbeat timeout is 30 s.
PROGRESS_KEPT = timedelta(seconds=1)

# Concurrent polls of one cluster task queue. A process that hangs keeps its polls open,
# and loses a task with each of them. Two polls are enough to start some hundred tasks a
# second.
CLUSTER_POLLS = 2

# Temporal may still be starting when the worker starts.
CONNECT_SECONDS = 30.0

# The pause between checks that the server accepts new search attributes, and the limit
# for them. Most servers load new attributes once a minute.
SEARCH_ATTRIBUTES_PAUSE, SEARCH_ATTRIBUTES_SECONDS = 0.2, 120.0

_TYPES = {
    SearchAttributeIndexedValueType.KEYWORD: IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD,
    SearchAttributeIndexedValueType.INT: IndexedValueType.INDEXED_VALUE_TYPE_INT,
}

log = structlog.get_logger("modelplane.worker")


def cloud_providers(settings: Settings) -> dict[str, ProviderFactory]:
    """Return the factories of cloud providers, by source of InferenceClusters.

    A factory creates a provider for a credential and a region.
    """
    unused_since: dict[str, dict[str, float]] = {}
    permitted = permitted_sources(settings.provision)
    google = partial(CredentialClients, permitted=permitted)
    return {
        "EKS": lambda credential, region: EksProvider(
            credential,
            region,
            settings.eks,
            unused_since=unused_since,
            permitted=permitted,
        ),
        "GKE": lambda credential, region: GkeProvider(
            credential, region, settings.gke, clients=google
        ),
    }


def cloud_identities(settings: Settings) -> CloudIdentities:
    """Return the identities for existing clusters."""
    permitted = permitted_sources(settings.provision)
    return CloudIdentities(
        partial(CredentialClients, permitted=permitted),
        partial(AwsClients, permitted=permitted),
        permitted=permitted,
    )


@dataclass(frozen=True)
class CloudProviders:
    """The clouds where clusters are created, and the pace of checks on created objects.

    Tests and the testbed pass fake clouds.
    """

    providers: Callable[[Settings], dict[str, ProviderFactory]] = cloud_providers
    pace: PollPace = field(default_factory=PollPace)
    patience: Patience = field(default_factory=Patience)


def main(clouds: CloudProviders | None = None) -> None:
    """Start the worker.

    Exit codes: 0 after a signal, 2 for invalid settings, 6 if Temporal does not answer.
    """
    settings = load_settings()
    configure_logging(settings.log)
    try:
        asyncio.run(_run_until_signal(settings, clouds or CloudProviders()))
    except CommandFailed as error:
        exit_failed(error)
    exit_process(0)


async def _run_until_signal(settings: Settings, clouds: CloudProviders) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await run(settings, stop, clouds)


async def run(settings: Settings, stop: asyncio.Event, clouds: CloudProviders) -> None:
    """Serve until `stop` is set, then finish running tasks."""
    raise_open_files_limit()
    sdk_metrics = f"127.0.0.1:{free_port()}"
    runtime = Runtime(
        telemetry=TelemetryConfig(metrics=PrometheusConfig(bind_address=sdk_metrics))
    )
    client = await connect(settings, runtime=runtime, within_seconds=CONNECT_SECONDS)
    await register_search_attributes(client)
    if named := images_by_tag(settings):
        log.warning(
            "images are named by tags, which a registry may move: set them with digests "
            "(docs/how-to/images.md)",
            images=named,
        )
    activities = build_activities(settings, clouds)
    await activities.helm.start(serves_clusters=serves_clusters(settings))
    with ThreadPoolExecutor(
        max_workers=DECISION_THREADS, thread_name_prefix="decision"
    ) as threads:
        # Loads the selector grammar, which would delay the first decision by a quarter
        # of a second.
        threads.submit(compile_selector, "true")
        workers = build_workers(client, settings, activities, threads)
        unready = partial(why_unready, client, settings)
        async with contextlib.AsyncExitStack() as stack:
            for queue, worker in workers.items():
                await stack.enter_async_context(worker)
                show_up(queue, worker)
            app = http_app(workers, sdk_metrics, unready)
            await stack.enter_async_context(serving_http(app, settings.worker.listen))
            if queues.SCHEDULER in workers:
                await ensure_scheduler(client)
            served = {
                "queues": list(workers),
                "temporal": settings.temporal.address,
                "listen": settings.worker.listen,
            }
            log.info("serving", build=build_id(settings.worker), **served)
            if problem := await unready():
                log.warning("this worker runs no workflow", reason=problem)
            await stop.wait()
            log.info(
                "stopping", grace_seconds=settings.worker.graceful_shutdown_seconds
            )
    await activities.pool.close()
    activities.helm.close()


# Settings


def load_settings() -> Settings:
    """Load the settings, or print every problem to standard error and exit."""
    named = os.environ.get(CONFIG_VARIABLE)
    if named and not Path(named).expanduser().is_file():
        print(
            f"{CONFIG_VARIABLE}: the file {named} does not exist; create it, or unset the "
            "variable to use the defaults",
            file=sys.stderr,
        )
        raise SystemExit(BAD_SETTINGS)
    try:
        return Settings()
    except ValidationError as error:
        for problem in bad_settings(error):
            print(f"setting {problem}", file=sys.stderr)
        raise SystemExit(BAD_SETTINGS) from None
    except UnreadableSettings as error:
        print(error, file=sys.stderr)
        raise SystemExit(BAD_SETTINGS) from None


# Connection


async def register_search_attributes(client: Client) -> None:
    """Add the missing search attributes, or log a warning if the server forbids it."""
    namespace = client.namespace
    try:
        known = await client.operator_service.list_search_attributes(
            ListSearchAttributesRequest(namespace=namespace)
        )
        missing = {
            key.name: _TYPES[key.indexed_value_type]
            for key in SEARCH_ATTRIBUTES
            if key.name not in known.custom_attributes
        }
        if missing:
            await client.operator_service.add_search_attributes(
                AddSearchAttributesRequest(
                    namespace=namespace, search_attributes=missing
                )
            )
            log.info("registered search attributes", names=list(missing))
            await _until_usable(client)
    except RPCError as error:
        if error.status not in (
            RPCStatusCode.PERMISSION_DENIED,
            RPCStatusCode.UNIMPLEMENTED,
            RPCStatusCode.ALREADY_EXISTS,
        ):
            raise
        wanted = ", ".join(
            f"{key.name} ({key.indexed_value_type.name.title()})"
            for key in SEARCH_ATTRIBUTES
        )
        log.warning(
            "cannot register search attributes; ask an administrator to add them",
            names=wanted,
            error=str(error),
        )


async def _until_usable(client: Client) -> None:
    """Wait until the server accepts the search attributes.

    It loads new attributes every few seconds, and rejects all starts until then. After
    `SEARCH_ATTRIBUTES_SECONDS`, log a warning and return: the server will reject each
    start with the reason.
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
                log.warning(
                    "the server does not accept the search attributes yet; no workflow "
                    "can start until it does",
                    error=str(error),
                )
                return
            await asyncio.sleep(SEARCH_ATTRIBUTES_PAUSE)
        else:
            return


def raise_open_files_limit() -> None:
    """Raise the limit of open files to the hard limit.

    A watched cluster needs about twenty connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


# Activities and workers


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


def build_activities(
    settings: Settings, clouds: CloudProviders | None = None
) -> Activities:
    clouds = clouds or CloudProviders()
    store = secret_store(settings)
    accounts = CloudAccounts(store, clouds.providers(settings), settings.provision)
    pool = KubernetesPool(
        store,
        settings.kubeconfig,
        settings.cluster.max_concurrent_requests,
        settings.cluster.max_concurrent_applies,
        accounts,
        cloud_identities(settings),
    )
    helm = HelmClients(pool, settings.stack)
    control = ControlCluster(pool, settings.control_cluster)
    force_after: timedelta | None = None
    if settings.teardown.force_after is not None:
        force_after = timedelta(seconds=settings.teardown.force_after)
    rendering = render_settings(settings)
    renderer = renderer_hash(rendering, settings.workloads.adopt_renderer)
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
            ),
            gateway_answers=gateway_answers,
        ),
        workloads=WorkloadActivities(
            pool,
            store,
            rendering,
            force_after,
            settings.workloads.adopt_renderer,
            renderer,
        ),
        caches=CacheActivities(pool, store, rendering, force_after),
        revisions=RevisionActivities(store, _hubs(settings)),
        routing=RoutingActivities(control),
        stack=StackActivities(
            pool,
            helm,
            settings.stack,
            control.api if settings.control_cluster.name else no_control_cluster,
            control.connection if settings.control_cluster.name else None,
        ),
        clouds=CloudActivities(
            accounts,
            InCluster(pool, helm),
            settings.provision,
            clouds.pace,
            clouds.patience,
        ),
        pool=pool,
        helm=helm,
    )


def _hubs(settings: Settings) -> dict[str, RevisionSource]:
    return {
        SOURCE_HUGGINGFACE: HuggingFaceHub(settings.cache.hub_endpoint),
        SOURCE_S3: S3Buckets(
            settings.outbound.private_addresses,
            allow_plain_http=settings.s3.allow_plain_http,
        ),
        SOURCE_OCI: OciRegistry(
            settings.outbound.private_addresses,
            allow_plain_http=settings.oci.allow_plain_http,
        ),
    }


def build_workers(
    client: Client,
    settings: Settings,
    activities: Activities,
    threads: ThreadPoolExecutor,
) -> dict[str, Worker]:
    """Build one Temporal worker per served task queue.

    Only decisions of the scheduler run on `threads`.
    """
    limits = settings.worker
    grace = timedelta(seconds=limits.graceful_shutdown_seconds)
    shared: dict[str, Any] = {
        "graceful_shutdown_timeout": grace,
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
    messaging = messaging_activities(activities)
    parts: dict[str, dict[str, Any]] = {
        queues.WORKFLOWS: {
            **of_workflows,
            "workflows": list(registry.BESIDE_SCHEDULER),
            "activities": [*messaging, *registry.REBUILD_ACTIVITIES],
            "max_concurrent_activities": limits.max_concurrent_activities,
            "max_heartbeat_throttle_interval": PROGRESS_KEPT,
        },
        queues.SCHEDULER: {
            **of_workflows,
            "workflows": registry.SCHEDULER_WORKFLOWS,
            "activities": [*messaging, *registry.SCHEDULER_ACTIVITIES],
            "activity_executor": threads,
            # The scheduler's own activities are local. Batches for entities go to their
            # queue.
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
            # Most cloud activities wait for their cloud.
            "max_concurrent_activities": limits.max_concurrent_waits,
        },
    }
    served: dict[str, dict[str, Any]] = {}
    for name in settings.queues.serve or (*parts, queues.CLUSTERS):
        if name in parts:
            served[name] = parts[name]
            continue
        # Every other name (annotation modelplane.ai/task-queue) is for a worker near a
        # cluster that other workers cannot reach.
        for queue, work in queues.served_queues(name).items():
            of_class = work_on_clusters(activities, limits)[work]
            served[queue] = {
                **of_activities,
                "activities": list(of_class.activities),
                "max_concurrent_activities": of_class.slots,
                "max_concurrent_activity_task_polls": CLUSTER_POLLS,
            }
    return {
        queue: build_worker(client, queue, **options)
        for queue, options in served.items()
    }


def messaging_activities(activities: Activities) -> list[Callable[..., Any]]:
    """Return the activities that send messages to other entities."""
    return [
        activities.messaging.signal,
        activities.messaging.signal_many,
        activities.messaging.read_memo,
        activities.messaging.count_entities,
        activities.messaging.query_each,
        activities.messaging.start_replicas,
        activities.messaging.survey,
        activities.messaging.broadcast,
        activities.messaging.redeliver,
        activities.messaging.check_receivers,
        activities.messaging.await_running,
    ]


def versioning(limits: WorkerSettings) -> dict[str, Any]:
    """Return the options that register the build of a workflow worker with Temporal.

    Activity workers have no versioning. A worker near a cluster may run another build
    than the workflows, and Temporal would send it no task after a promotion
    (docs/adr/0035).
    """
    if not limits.deployment_name:
        return {"build_id": build_id(limits)}
    version = WorkerDeploymentVersion(limits.deployment_name, build_id(limits))
    # Entities live for months, so each continues on the build that is current at its
    # next task.
    config = WorkerDeploymentConfig(
        version,
        use_worker_versioning=True,
        default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE,
    )
    return {"deployment_config": config}


async def why_unready(client: Client, settings: Settings) -> str:
    """Return why a versioned process runs no workflow.

    The result is empty if it runs workflows, serves no workflow queue, or is not
    versioned.
    """
    deployment, build = settings.worker.deployment_name, build_id(settings.worker)
    if not deployment or not serves_workflows(settings):
        return ""
    try:
        current = await current_build(client, deployment)
    except RPCError as error:
        return f"cannot query the current build from Temporal: {error.message}"
    if current == build:
        return ""
    return (
        f"build {build} is not current, {current} is: run `modelplane workers promote "
        f"{build}` to let it run the workflows"
    )


def serves_workflows(settings: Settings) -> bool:
    """Return whether this worker serves a workflow task queue."""
    served = settings.queues.serve
    return not served or queues.WORKFLOWS in served or queues.SCHEDULER in served


def serves_clusters(settings: Settings) -> bool:
    """Return whether this worker serves a queue for work on clusters."""
    served = settings.queues.serve
    return not served or any(
        name not in (queues.WORKFLOWS, queues.SCHEDULER) for name in served
    )


class WorkClass(NamedTuple):
    """Return the activities of each class of work.

    Slots bound memory rather than CPU.

    The activities mostly wait for other systems.
    """

    activities: Sequence[Callable[..., Any]]
    slots: int


def work_on_clusters(
    activities: Activities, limits: WorkerSettings
) -> dict[ClusterWork, WorkClass]:
    """Return the activities of each class of work.

    They all mostly wait for other systems, so slots bound memory rather than CPU.
    """
    return {
        ClusterWork.CALL: WorkClass(
            [
                activities.clusters.connect_cluster,
                activities.clusters.await_worker,
                activities.routing.connect_gateway,
            ],
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
            [
                activities.workloads.teardown_replica_step,
                activities.workloads.prune_replica,
                activities.clusters.empty_cluster,
            ],
            limits.max_concurrent_waits,
        ),
        ClusterWork.CACHE: WorkClass(
            [activities.caches.apply_cache, activities.revisions.resolve_revision],
            limits.max_concurrent_activities,
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
            [
                activities.caches.delete_cache_objects,
                activities.caches.await_credential,
                activities.stack.stack_readiness,
            ],
            limits.max_concurrent_waits,
        ),
    }


def build_worker(client: Client, queue: str, **parts: Any) -> Worker:
    """Build a worker with a longer deadlock timeout, and readable errors for arguments.

    The SDK has no option for either: its pull request 1614 for the timeout was closed,
    and it uses one converter for workflows and activities.
    """
    worker = Worker(client, task_queue=queue, interceptors=[ArgumentCheck()], **parts)
    if worker._activity_worker is not None:  # noqa: SLF001
        worker._activity_worker._data_converter = tolerant(  # noqa: SLF001
            worker._activity_worker._data_converter  # noqa: SLF001
        )
    inner = worker._workflow_worker  # noqa: SLF001
    if inner is not None and inner._deadlock_timeout_seconds is not None:  # noqa: SLF001
        inner._deadlock_timeout_seconds = DEADLOCK_SECONDS  # noqa: SLF001
    return worker


if __name__ == "__main__":
    main()
