"""A bare cluster with short helpers for the activities of one InferenceCluster."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from activities.clients.helm.pool import HelmClients
from activities.cluster_objects.cluster_api import ClusterApi
from activities.render.stack.install import INSTALL, UPGRADE, Action, Step
from activities.render.stack.removal import Removal, RemovalStep
from activities.stack.activities import StackActivities
from api_types.messages.cluster_work import TeardownStepResult
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    CheckStack,
    EnsuredRelease,
    EnsureRelease,
    HelmRelease,
    InstalledRelease,
    PreflightStack,
    RemoveStackObjects,
    StackApplied,
    StackOrder,
    StackPlan,
    StackSeen,
    UninstallRelease,
)
from api_types.sections.stacks import StackSettings
from tests.activities.environment.cluster_under_test import ClusterUnderTest, eventually
from tests.environment.cached_programs import with_cached_helm
from tests.environment.stack_testbed import StackCluster
from tests.environment.waiting import TIMEOUT_SECONDS

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
GATEWAY_API = "/apis/gateway.networking.k8s.io/v1"
GATEWAY = f"{GATEWAY_API}/namespaces/modelplane-system/gateways/inference-gateway"
MARK = "/api/v1/namespaces/modelplane-system"
SERVICES = "/api/v1/namespaces/envoy-gateway-system/services"
POOLS = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
EVENTS = "/api/v1/namespaces/envoy-gateway-system/events"


@dataclass
class StackUnderTest:
    """One InferenceCluster and its cluster.

    `ensured` has the installed releases by component, and `groups` the applied groups.
    """

    world: StackCluster
    cluster: ClusterUnderTest
    activities: StackActivities
    uid: str
    ensured: dict[str, EnsuredRelease] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)

    async def run(self, activity: Any, order: Any) -> Any:
        """Run an activity on the order of the cluster's workflow."""
        return await self.cluster.environment().run(activity, order)

    async def api(self) -> ClusterApi:
        """Return the client that activities use."""
        return await self.cluster.api()

    def with_settings(self, **settings: Any) -> "StackUnderTest":
        """Return the same stack for a worker with other settings."""
        changed = StackSettings(**{**self.activities.settings.model_dump(), **settings})
        helm = HelmClients(self.cluster.pool, with_cached_helm(changed))
        return replace(
            self, activities=StackActivities(self.cluster.pool, helm, changed)
        )

    def reached_by(self, cluster: ClusterUnderTest) -> "StackUnderTest":
        """Return the same stack with another connection or credential."""
        settings = self.activities.settings
        helm = HelmClients(cluster.pool, with_cached_helm(settings))
        return replace(
            self,
            cluster=cluster,
            activities=StackActivities(cluster.pool, helm, settings),
        )

    def of_another(self, uid: str = "another") -> "StackUnderTest":
        """Return the same cluster for a new InferenceCluster of the same name with
        another uid.
        """
        return StackUnderTest(self.world, self.cluster, self.activities, uid)

    @property
    def base(self) -> dict[str, Any]:
        """The fields of every order."""
        return {"connection": self.cluster.connection, "cluster_uid": self.uid}

    # Installation

    async def plan(self, source: str = "Existing", **more: Any) -> StackPlan:
        """Run the preflight."""
        plan: StackPlan = await self.run(
            self.activities.preflight_stack,
            PreflightStack(source=source, **self.base, **more),
        )
        return plan

    async def apply(self, plan: StackPlan, *groups: str) -> StackApplied:
        """Apply groups of objects. Returns the result of the last one."""
        applied = StackApplied()
        for group in groups:
            order = ApplyStackObjects(spec=plan.spec, group=group, **self.base)
            applied = await self.run(self.activities.apply_stack_objects, order)
            self.groups = [*dict.fromkeys([*self.groups, group])]
        return applied

    async def crds(self, plan: StackPlan, *components: str) -> StackApplied:
        """Apply the definitions of charts."""
        order = ApplyChartCrds(
            releases=[plan.releases[each] for each in components], **self.base
        )
        applied: StackApplied = await self.run(self.activities.apply_chart_crds, order)
        return applied

    async def ensure(self, plan: StackPlan, component: str) -> EnsuredRelease:
        """Install or upgrade a release of the stack."""
        order = EnsureRelease(release=plan.releases[component], **self.base)
        self.ensured[component] = await self.run(self.activities.helm_ensure, order)
        return self.ensured[component]

    async def ensure_release(
        self, release: HelmRelease, *, rewrite: bool = False
    ) -> EnsuredRelease:
        """Install or upgrade any release, as others might."""
        order = EnsureRelease(release=release, rewrite=rewrite, **self.base)
        ensured: EnsuredRelease = await self.run(self.activities.helm_ensure, order)
        return ensured

    async def carry_out(self, plan: StackPlan, steps: Iterable[Step]) -> StackSeen:
        """Run the steps of a plan in order.

        Returns the observation of the last waiting step.
        """
        seen = StackSeen()
        for step in steps:
            match step.action:
                case Action.OBJECTS:
                    await self.apply(plan, *step.targets)
                case Action.CRDS:
                    await self.crds(plan, *step.targets)
                case Action.RELEASE:
                    await self.ensure(plan, *step.targets)
                case Action.READY:
                    seen = await self.until(plan, partial(_are_ready, step.targets))
        return seen

    async def install(self, plan: StackPlan) -> StackSeen:
        """Run every step of an installation, and wait until nothing lags."""
        await self.carry_out(plan, INSTALL)
        return await self.until_ready(plan)

    async def upgrade(self, plan: StackPlan) -> StackSeen:
        """Run every step of an upgrade, and wait until nothing lags."""
        await self.carry_out(plan, UPGRADE)
        return await self.until_ready(plan)

    # Readiness

    def installed(self, plan: StackPlan) -> list[InstalledRelease]:
        """Return the installed releases."""
        return [
            InstalledRelease(
                component=component,
                name=found.name,
                namespace=plan.releases[component].namespace,
                revision=found.revision,
                workloads=found.workloads,
            )
            for component, found in self.ensured.items()
        ]

    def check(self, plan: StackPlan, **more: Any) -> CheckStack:
        """Return an order to check everything that was installed."""
        fields = {
            "source": "Existing",
            "spec": plan.spec,
            "plan": plan.digest,
            "max_seconds": 0,
            **self.base,
            **more,
        }
        return CheckStack(releases=self.installed(plan), groups=self.groups, **fields)

    async def look(self, plan: StackPlan, **more: Any) -> StackSeen:
        """Check once by default."""
        seen: StackSeen = await self.run(
            self.activities.stack_readiness, self.check(plan, **more)
        )
        return seen

    async def until(
        self, plan: StackPlan, holds: Callable[[StackSeen], Any]
    ) -> StackSeen:
        """Check until a condition holds."""

        async def check() -> StackSeen | None:
            seen = await self.look(plan)
            return seen if holds(seen) else None

        found: StackSeen = await eventually(check)
        return found

    async def until_ready(self, plan: StackPlan) -> StackSeen:
        """Check until nothing lags.

        A step waits only for gating parts, and one of two pods of a DaemonSet does not
        gate.
        """
        return await self.until(plan, lambda seen: not seen.lags)

    async def restart(self) -> bool:
        """Restart the AI gateway."""
        restarted: bool = await self.run(
            self.activities.restart_ai_gateway, StackOrder(**self.base)
        )
        return restarted

    # Removal

    async def uninstall(
        self, plan: StackPlan, component: str, *, wait_seconds: int = 120, **more: Any
    ) -> TeardownStepResult:
        """Uninstall a release of the stack."""
        release, ensured = plan.releases[component], self.ensured.get(component)
        order = UninstallRelease(
            name=release.name,
            namespace=release.namespace,
            workloads=ensured.workloads if ensured else [],
            wait_seconds=wait_seconds,
            **self.base,
            **more,
        )
        result: TeardownStepResult = await self.run(
            self.activities.helm_uninstall, order
        )
        return result

    async def remove(
        self,
        plan: StackPlan,
        group: str,
        *,
        wait_seconds: int = 120,
        skipped: Sequence[str] = (),
    ) -> TeardownStepResult:
        """Delete a group of objects."""
        order = RemoveStackObjects(
            spec=plan.spec,
            group=group,
            wait_seconds=wait_seconds,
            skipped=list(skipped),
            **self.base,
        )
        result: TeardownStepResult = await self.run(
            self.activities.remove_stack_objects, order
        )
        return result

    async def take(self, plan: StackPlan, step: RemovalStep) -> list[str]:
        """Run one step of a removal. Returns the remaining objects."""
        match step.action:
            case Removal.OBJECTS:
                return shown(await self.remove(plan, step.target))
            case Removal.RELEASE:
                return shown(await self.uninstall(plan, step.target))
            case _:
                return []


def _are_ready(targets: tuple[str, ...], seen: StackSeen) -> bool:
    return not seen.gating(targets)


async def changed(stack: StackUnderTest, plan: StackPlan, seen: StackSeen) -> StackSeen:
    """Wait until the observation changes."""
    looking = stack.look(
        plan, known=seen.digest, max_seconds=2 * TIMEOUT_SECONDS, poll_seconds=1
    )
    return await asyncio.wait_for(looking, TIMEOUT_SECONDS)


def shown(result: TeardownStepResult) -> list[str]:
    """Return the remaining objects in the form of a teardown's message."""
    return [str(item) for item in result.remaining]


def a_pool(**metadata: Any) -> dict[str, Any]:
    """Return an InferencePool `pool` in the namespace `default`."""
    picker = {"name": "x", "port": {"number": 1}}
    spec = {
        "selector": {"matchLabels": {"app": "x"}},
        "targetPorts": [{"number": 8000}],
        "endpointPickerRef": picker,
    }
    return {
        "kind": "InferencePool",
        "metadata": {"name": "pool", **metadata},
        "spec": spec,
    }
