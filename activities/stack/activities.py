"""The activities of a serving stack, each a thin shell: who may order it, heartbeats, and one function that does the work."""

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
from activities.stack import balancers, control_gateway, preflight, readiness, releases, removal
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
from api_types.settings import StackSettings

_GATEWAY = "InferenceGateway"
_NOTES_MAX = 20


async def no_control_cluster() -> ClusterApi | None:
    """Give no client: the cluster is compared with none."""
    return None


@dataclass(frozen=True)
class StackActivities:
    """What an InferenceCluster does for the stack of its cluster, and an InferenceGateway for what runs on the control cluster.

    `control` gives the control cluster, if there is one; `control_connection` is the reference to its kubeconfig.
    """

    clusters: ClusterPool
    helm: HelmPool
    settings: StackSettings
    control: preflight.ControlCluster = no_control_cluster
    control_connection: Connection | None = None

    # --- installation -------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def preflight_stack(self, order: PreflightStack) -> StackPlan:
        """Make the plan, check that nothing of others is in its way, and leave out of it what cannot go back to an older version.

        Raises InvalidInput for versions that do not go together, Unsupported on the control cluster or without a helm, PermissionDenied
        for a user who is no administrator, NameConflict where others have what the stack needs.
        """
        check_caller(KIND, "", order.connection.cluster)
        plan = preflight.make_plan(order.source, order.connection, self.settings)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report, self.helm.at(order.connection) as helm:
            await preflight.check_other_cluster(cluster, self.control)
            await preflight.check(cluster, helm, order, plan, report)
            return await without_downgrades(cluster, helm, order, plan, report)

    @activity.defn
    async def apply_stack_objects(self, order: ApplyStackObjects) -> StackApplied:
        """Apply a group of objects; definitions are awaited. Raises NameConflict if one belongs to others."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            return await apply_group(cluster, order, report)

    @activity.defn
    async def apply_chart_crds(self, order: ApplyChartCrds) -> StackApplied:
        """Apply the definitions of charts, and wait until they are established.

        Raises InvalidInput where that would lose objects, NameConflict if the stack of the cluster is another one's.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report, self.helm.at(order.connection) as helm:
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            documents = [each for release in order.releases for each in await helm.crds(releases.as_chart(release))]
            applied, notes = await apply_definitions(cluster, documents, report)
        return StackApplied(objects=len(applied), notes=notes[:_NOTES_MAX])

    @activity.defn
    async def helm_ensure(self, order: EnsureRelease) -> EnsuredRelease:
        """Install or upgrade one release, without waiting for its workloads.

        Raises what `HelmPort.ensure` does, and NameConflict if the stack of the cluster is another one's.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection), self.helm.at(order.connection) as helm:
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            return await releases.ensure(helm, order.release, rewrite=order.rewrite)

    @activity.defn
    async def stack_readiness(self, order: CheckStack) -> StackSeen:
        """Look until something differs from what is known, or the time is up. A cluster that does not answer is looked at again.

        Raises a TransientError when its worker shuts down, so that another worker goes on at once.
        """
        check_caller(KIND, "", order.connection.cluster)
        found: list[StackSeen] = []
        async with _working(order.connection) as report:
            resolve = partial(self.clusters.at, order.connection)

            async def watch() -> None:
                found.append(await _until_changed(resolve, order, self._wanted(order), report))

            await until_first_ends(watch(), until_shutdown())
        return found[0]

    def _wanted(self, order: CheckStack) -> readiness.WantedStack:
        """Give what the settings say now; while they make no plan, the one that is carried out stays, and people are told why."""
        at_once = self.settings.upgrade_parallelism
        try:
            digest = preflight.make_plan(order.source, order.connection, self.settings).digest
        except InvalidInput as error:
            return readiness.WantedStack(order.plan, f"the stack stays as it is: {error.message}", at_once)
        return readiness.WantedStack(digest, "", at_once)

    @activity.defn
    async def restart_ai_gateway(self, order: StackOrder) -> bool:
        """Restart the AI gateway, which looks for InferencePools only when it starts; once per definition of these.

        False where there is nothing to restart. Raises NameConflict if the stack of the cluster is another one's.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            await check_mark(cluster, order.connection.cluster, order.cluster_uid)
            return await readiness.restart(cluster)

    # --- removal ------------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def await_no_routes(self, order: AwaitNoRoutes) -> TeardownStepResult:
        """Wait until no route and no pool of ours is left; gives those that are. None is waited for where the stack is another one's."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            if problem := await taken_over(cluster, order.connection.cluster, order.cluster_uid):
                return TeardownStepResult(skipped=[problem])
            return await removal.until_no_routes(cluster, order.wait_seconds, report)

    @activity.defn
    async def remove_stack_objects(self, order: RemoveStackObjects) -> TeardownStepResult:
        """Delete a group of objects; gives what is left of it at the time limit, and what holds it."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report:
            return await removal.remove_group(cluster, order, report)

    @activity.defn
    async def helm_uninstall(self, order: UninstallRelease) -> TeardownStepResult:
        """Uninstall one release, and wait for its pods; gives what is left at the time limit. One that does not exist is uninstalled.

        Where the stack has become that of another one meanwhile, its releases are left.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report, self.helm.at(order.connection) as helm:
            if problem := await taken_over(cluster, order.connection.cluster, order.cluster_uid):
                return TeardownStepResult(skipped=[f"release {order.namespace}/{order.name}: {problem}"])
            return await releases.uninstall(cluster, helm, order, report)

    @activity.defn
    async def purge_definitions(self, order: PurgeDefinitions) -> PurgedDefinitions:
        """Delete the definitions that charts left, where nobody uses them; gives those that stay, and what is left at the time limit.

        None is deleted where the stack has become that of another one meanwhile. Raises what `HelmPort.crds` does.
        """
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection) as report, self.helm.at(order.connection) as helm:
            if problem := await taken_over(cluster, order.connection.cluster, order.cluster_uid):
                return PurgedDefinitions(skipped=[f"definitions of charts: {problem}"])
            return await purge(cluster, helm, order, report)

    @activity.defn
    async def remove_finalizer(self, order: RemoveFinalizer) -> RemovedFinalizer:
        """Remove a finalizer that an operator named. Nothing is written where the stack has become that of another one meanwhile."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            if problem := await taken_over(cluster, order.connection.cluster, order.cluster_uid):
                return RemovedFinalizer(why=problem)
            return await removal.remove_finalizer(cluster, order)

    @activity.defn
    async def list_load_balancers(self, order: ListLoadBalancers) -> LoadBalancers:
        """List the LoadBalancer Services that are not those of the gateway."""
        check_caller(KIND, "", order.connection.cluster)
        cluster = await self.clusters.at(order.connection)
        async with _working(order.connection):
            return await balancers.all_of(cluster)

    # --- the control cluster ------------------------------------------------------------------------------------------------------

    @activity.defn
    async def run_install_step(self, order: RunInstallStep) -> InstallStepResult:
        """Install a part of the gateway of the control cluster, or take it away; what is not complete says what it waits for.

        Raises NoControlCluster if none is configured, NameConflict if what it needs belongs to others.
        """
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        where = self.control_connection
        if where is None:
            raise NoControlCluster("no control cluster is configured; set controlCluster.name to a Secret with its kubeconfig")
        cluster = await self.clusters.at(where)
        async with _working(where) as report, self.helm.at(where) as helm:
            if order.remove:
                return await control_gateway.remove_step(cluster, helm, where, order, report)
            return await control_gateway.install_step(cluster, helm, order, report)


@contextlib.asynccontextmanager
async def _working(connection: Connection) -> AsyncIterator[Callable[[Progress], None]]:
    """Send heartbeats meanwhile. What a cluster answers that is not as it must be is an error in plain words."""
    with reading_all(connection.cluster):
        async with heartbeating() as report:
            yield report


async def _until_changed(
    cluster: Resolve, order: CheckStack, wanted: readiness.WantedStack, report: Callable[[Progress], None]
) -> StackSeen:
    """Look every few seconds, or minutes, until a look differs from what is known; a difference is looked at twice where that is told."""
    clock = asyncio.get_running_loop().time
    deadline = clock() + order.max_seconds
    while True:
        seen, problem = await _seen(cluster, order, wanted)
        if seen and seen.digest != order.known and order.confirm_seconds:
            await asyncio.sleep(order.confirm_seconds)
            seen, problem = await _seen(cluster, order, wanted)
        if seen and (seen.digest != order.known or clock() >= deadline):
            return seen
        report({"problem": problem, "lags": [f"{lag.object}: {lag.why}" for lag in (seen.lags if seen else [])]})
        await asyncio.sleep(order.poll_seconds)


async def _seen(cluster: Resolve, order: CheckStack, wanted: readiness.WantedStack) -> tuple[StackSeen | None, str]:
    """Look once; a cluster that does not answer now may do so at the next look."""
    try:
        with reading_all(order.connection.cluster):
            return await readiness.look(await cluster(), order, wanted), ""
    except TransientError as error:
        return None, error.message
