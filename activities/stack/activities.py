"""The activities of a serving stack.

Each activity checks the caller, sends heartbeats, and calls one function that does the
work.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

from temporalio import activity

from activities.caller import check_caller
from activities.clients.helm.port import HelmPool
from activities.cluster_objects.answers import reading_all
from activities.cluster_objects.cluster_api import ClusterApi, ClusterPool
from activities.heartbeat import Progress, heartbeating
from activities.stack import (
    balancers,
    control_gateway,
    preflight,
    readiness,
    releases,
    removal,
)
from activities.stack.applying import apply_group
from activities.stack.definitions import apply_definitions
from activities.stack.downgrades import without_downgrades
from activities.stack.ownership import KIND, check_mark, taken_over
from activities.stack.purge import purge
from activities.watching.health import Resolve
from activities.watching.running import until_first_ends, until_shutdown
from api_types.errors import InvalidInput, NoControlCluster, TransientError
from api_types.messages.cluster_work import Connection, TeardownStepResult
from api_types.messages.gateway_work import InstallStepResult, RunInstallStep
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    AwaitNoRoutes,
    CheckStack,
    EnsuredRelease,
    EnsureRelease,
    ListLoadBalancers,
    LoadBalancers,
    PreflightStack,
    PurgedDefinitions,
    PurgeDefinitions,
    RemovedFinalizer,
    RemoveFinalizer,
    RemoveStackObjects,
    StackApplied,
    StackOrder,
    StackPlan,
    StackSeen,
    UninstallRelease,
)
from api_types.resources.inference_gateway import SINGLETON_NAME
from api_types.sections.stacks import StackSettings

_GATEWAY = "InferenceGateway"
_NOTES_MAX = 20


async def no_control_cluster() -> ClusterApi | None:
    """Return None, because no control cluster is configured."""
    return None


@dataclass(frozen=True)
class StackActivities:
    """Activities of serving stacks, and of the control cluster's gateway.

    An InferenceCluster orders work on its own cluster, and the InferenceGateway on the
    control cluster. `control` returns the client of the control cluster, or None.
    `control_connection` refers to its kubeconfig.
    """

    clusters: ClusterPool
    helm: HelmPool
    settings: StackSettings
    control: preflight.ControlCluster = no_control_cluster
    control_connection: Connection | None = None

    # Installation

    @activity.defn
    async def preflight_stack(self, order: PreflightStack) -> StackPlan:
        """Plan a stack, and check that no objects of other owners conflict with it.

        Releases that cannot be downgraded keep their version in the plan. Components
        that others installed are used and not installed again. Raises
        InvalidInput for versions that do not work together, Unsupported on the control
        cluster or without the helm program, PermissionDenied if the user is not an
        administrator, and NameConflict if an object that the stack needs belongs to
        another owner.
        """
        check_caller(KIND, "", order.connection.cluster)
        plan = preflight.make_plan(order.source, order.connection, self.settings)
        cluster = await self.clusters.at(order.connection)
        async with (
            _working(order.connection) as report,
            self.helm.at(order.connection) as helm,
        ):
            await preflight.check_other_cluster(cluster, self.control)
            checked = await preflight.check(cluster, helm, order, plan, report)
            return await without_downgrades(cluster, helm, order, checked, report)

    @activity.defn
    async def apply_stack_objects(self, order: ApplyStackObjects) -> StackApplied:
        """Apply a group of objects, and wait until its definitions are established.

        Raises NameConflict if an object belongs to another owner.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            return await apply_group(cluster, order, report)

    @activity.defn
    async def apply_chart_crds(self, order: ApplyChartCrds) -> StackApplied:
        """Apply the definitions of charts, and wait until they are established.

        Raises InvalidInput if that would lose objects, and NameConflict if another
        InferenceCluster owns the stack.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with (
            _working(order.connection) as report,
            self.helm.at(order.connection) as helm,
        ):
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            documents = await releases.definitions_of(helm, order.releases)
            applied, notes = await apply_definitions(cluster, documents, report)
        return StackApplied(objects=len(applied), notes=notes[:_NOTES_MAX])

    @activity.defn
    async def helm_ensure(self, order: EnsureRelease) -> EnsuredRelease:
        """Install or upgrade one release, without waiting for its workloads.

        Raises the errors of `HelmPort.ensure`, and NameConflict if another
        InferenceCluster owns the stack.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection), self.helm.at(order.connection) as helm:
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            return await releases.ensure(helm, order.release, rewrite=order.rewrite)

    @activity.defn
    async def stack_readiness(self, order: CheckStack) -> StackSeen:
        """Return the state of the stack when it changes, or after a time limit.

        A cluster that does not respond is checked again. Raises a TransientError when
        the worker shuts down, so that another worker continues at once.
        """
        check_caller(KIND, "", order.connection.cluster)
        found: list[StackSeen] = []
        async with _working(order.connection) as report:
            resolve = partial(self.clusters.at, order.connection)

            async def watch() -> None:
                found.append(
                    await _until_changed(resolve, order, self._wanted(order), report)
                )

            await until_first_ends(watch(), until_shutdown())
        return found[0]

    def _wanted(self, order: CheckStack) -> readiness.WantedStack:
        """Return the plan that this worker's settings produce.

        If the settings produce no valid plan, the current plan is returned, with a note
        that tells users the reason.
        """
        at_once = self.settings.upgrade_parallelism
        try:
            digest = preflight.make_plan(
                order.source, order.connection, self.settings
            ).digest
        except InvalidInput as error:
            return readiness.WantedStack(
                order.plan, f"the stack is not changed: {error.message}", at_once
            )
        return readiness.WantedStack(digest, "", at_once)

    @activity.defn
    async def restart_ai_gateway(self, order: StackOrder) -> bool:
        """Restart the AI gateway, at most once per definition of InferencePool.

        The AI gateway looks for InferencePools only when it starts. Returns False if
        there is nothing to restart. Raises NameConflict if another InferenceCluster
        owns the stack.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            return await readiness.restart(cluster)

    # Removal

    @activity.defn
    async def await_no_routes(self, order: AwaitNoRoutes) -> TeardownStepResult:
        """Wait until no route or pool of Modelplane is left.

        Returns the remaining ones.

        If another InferenceCluster owns the stack, the activity does not wait.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            if problem := await taken_over(
                cluster, order.connection.cluster, order.cluster_uid
            ):
                return TeardownStepResult(skipped=[problem])
            return await removal.until_no_routes(cluster, order.wait_seconds, report)

    @activity.defn
    async def remove_stack_objects(
        self, order: RemoveStackObjects
    ) -> TeardownStepResult:
        """Delete a group of objects.

        Returns the remaining objects at the time limit, with reasons.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            return await removal.remove_group(cluster, order, report)

    @activity.defn
    async def helm_uninstall(self, order: UninstallRelease) -> TeardownStepResult:
        """Uninstall one release, and wait until its pods are gone.

        Returns the remaining objects at the time limit. A release that does not exist
        counts as uninstalled. If another InferenceCluster owns the stack now, its
        releases are kept.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with (
            _working(order.connection) as report,
            self.helm.at(order.connection) as helm,
        ):
            if problem := await taken_over(
                cluster, order.connection.cluster, order.cluster_uid
            ):
                return TeardownStepResult(
                    skipped=[f"release {order.namespace}/{order.name}: {problem}"]
                )
            return await releases.uninstall(cluster, helm, order, report)

    @activity.defn
    async def purge_definitions(self, order: PurgeDefinitions) -> PurgedDefinitions:
        """Delete unused definitions of charts. Returns the kept and remaining ones.

        If another InferenceCluster owns the stack now, nothing is deleted. Raises the
        errors of `HelmPort.crds`.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with (
            _working(order.connection) as report,
            self.helm.at(order.connection) as helm,
        ):
            if problem := await taken_over(
                cluster, order.connection.cluster, order.cluster_uid
            ):
                return PurgedDefinitions(skipped=[f"definitions of charts: {problem}"])
            return await purge(cluster, helm, order, report)

    @activity.defn
    async def remove_finalizer(self, order: RemoveFinalizer) -> RemovedFinalizer:
        """Remove a finalizer that an operator named.

        If another InferenceCluster owns the stack now, nothing is written.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            if problem := await taken_over(
                cluster, order.connection.cluster, order.cluster_uid
            ):
                return RemovedFinalizer(why=problem)
            return await removal.remove_finalizer(cluster, order)

    @activity.defn
    async def list_load_balancers(self, order: ListLoadBalancers) -> LoadBalancers:
        """List the LoadBalancer Services that do not belong to the gateway."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            return await balancers.all_of(cluster)

    # The control cluster

    @activity.defn
    async def run_install_step(self, order: RunInstallStep) -> InstallStepResult:
        """Install or remove one part of the control cluster's gateway.

        The message of an incomplete part names the missing object. Raises
        NoControlCluster if none is configured, and NameConflict if an object that it
        needs belongs to another owner.
        """
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        where = self.control_connection
        if where is None:
            raise NoControlCluster(
                "no control cluster is configured; set controlCluster.name to a Secret "
                "with its kubeconfig"
            )
        cluster = await self.clusters.at(where)
        async with _working(where) as report, self.helm.at(where) as helm:
            if order.remove:
                return await control_gateway.remove_step(
                    cluster, helm, where, order, report
                )
            return await control_gateway.install_step(cluster, helm, order, report)


@contextlib.asynccontextmanager
async def _working(connection: Connection) -> AsyncIterator[Callable[[Progress], None]]:
    """Send heartbeats during the block, and raise ServerError for malformed responses."""
    with reading_all(connection.cluster):
        async with heartbeating() as report:
            yield report


async def _until_changed(
    cluster: Resolve,
    order: CheckStack,
    wanted: readiness.WantedStack,
    report: Callable[[Progress], None],
) -> StackSeen:
    """Poll until the state differs from the known one, or the time limit passes.

    With `confirm_seconds` a difference is read a second time before it is returned.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + order.max_seconds
    while True:
        seen, problem = await _seen(cluster, order, wanted)
        if seen and seen.digest != order.known and order.confirm_seconds:
            await asyncio.sleep(order.confirm_seconds)
            seen, problem = await _seen(cluster, order, wanted)
        if seen and (seen.digest != order.known or clock() >= deadline):
            return seen
        lags = seen.lags if seen else []
        report(
            {"problem": problem, "lags": [f"{lag.object}: {lag.why}" for lag in lags]}
        )
        await asyncio.sleep(order.poll_seconds)


async def _seen(
    cluster: Resolve, order: CheckStack, wanted: readiness.WantedStack
) -> tuple[StackSeen | None, str]:
    """Observe once. Returns the problem instead if the cluster does not respond now."""
    try:
        with reading_all(order.connection.cluster):
            return await readiness.look(await cluster(), order, wanted), ""
    except TransientError as error:
        return None, error.message
