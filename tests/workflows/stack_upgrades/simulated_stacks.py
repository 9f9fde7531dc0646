"""Simulated clusters with managed stacks.

Every step succeeds at once, and tests set the versions that workers want.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity

from activities.render.stack import components
from activities.stack.preflight import make_plan
from api_types import labels
from api_types.digests import short_hash
from api_types.messages.cluster_work import TeardownStepResult
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
    RemoveStackObjects,
    StackApplied,
    StackPlan,
    StackSeen,
    UninstallRelease,
)
from api_types.sections.stacks import StackSettings
from tests.workflows.environment.harness import Json
from tests.workflows.environment.simulated_clusters import SimulatedClusters, a_cluster

LOOK_SECONDS = 0.2


@dataclass
class SimulatedStacks(SimulatedClusters):
    """Simulate clusters whose workers all have `stack_settings`.

    `written` has the written releases of LeaderWorkerSet as (cluster, version). Before
    each write, its helm waits for `open`.
    """

    stack_settings: StackSettings = field(default_factory=StackSettings)
    written: list[tuple[str, str]] = field(default_factory=list)
    began: list[str] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    @activity.defn
    async def preflight_stack(self, order: PreflightStack) -> StackPlan:
        return make_plan(order.source, order.connection, self.stack_settings)

    @activity.defn
    async def apply_stack_objects(self, order: ApplyStackObjects) -> StackApplied:
        del order
        return StackApplied(objects=1)

    @activity.defn
    async def apply_chart_crds(self, order: ApplyChartCrds) -> StackApplied:
        del order
        return StackApplied(objects=1)

    @activity.defn
    async def helm_ensure(self, order: EnsureRelease) -> EnsuredRelease:
        release = order.release
        if release.name == components.LEADER_WORKER_SET.pin.release:
            self.began.append(order.connection.cluster)
            while not self.open.is_set():
                activity.heartbeat()
                await asyncio.sleep(LOOK_SECONDS)
            self.written.append((order.connection.cluster, release.version))
        return EnsuredRelease(
            name=release.name, revision=1, status="deployed", version=release.version
        )

    @activity.defn
    async def stack_readiness(self, order: CheckStack) -> StackSeen:
        while True:
            wanted = make_plan(
                order.source, order.connection, self.stack_settings
            ).digest
            seen = StackSeen(
                wanted=wanted,
                address="10.245.0.1",
                upgrades_at_once=self.stack_settings.upgrade_parallelism,
            )
            digest = short_hash(seen.wire())
            if digest != order.known:
                return seen.model_copy(update={"digest": digest})
            activity.heartbeat()
            await asyncio.sleep(LOOK_SECONDS)

    @activity.defn
    async def await_no_routes(self, order: AwaitNoRoutes) -> TeardownStepResult:
        del order
        return TeardownStepResult()

    @activity.defn
    async def remove_stack_objects(
        self, order: RemoveStackObjects
    ) -> TeardownStepResult:
        del order
        return TeardownStepResult()

    @activity.defn
    async def helm_uninstall(self, order: UninstallRelease) -> TeardownStepResult:
        del order
        return TeardownStepResult()

    @activity.defn
    async def list_load_balancers(self, order: ListLoadBalancers) -> LoadBalancers:
        del order
        return LoadBalancers()

    def activities(self) -> list[Callable[..., Any]]:
        return [
            *super().activities(),
            self.preflight_stack,
            self.apply_stack_objects,
            self.apply_chart_crds,
            self.helm_ensure,
            self.stack_readiness,
            self.await_no_routes,
            self.remove_stack_objects,
            self.helm_uninstall,
            self.list_load_balancers,
        ]


def a_managed_cluster(name: str) -> Json:
    """Return a cluster whose stack is installed and upgraded."""
    document = a_cluster(name)
    del document["metadata"]["annotations"][labels.STACK]
    return document
