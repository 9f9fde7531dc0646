"""One bare cluster for all tests of stack activities, with charts of our own and real helm; each test leaves it as it was."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import pytest_asyncio

from activities.clients.helm.pool import HelmClients
from activities.cluster_objects.cluster_api import ClusterApi
from activities.render.stack.install import INSTALL, Action
from activities.stack.activities import StackActivities
from api_types.messages.cluster_work import TeardownStepResult
from api_types.messages.stack import (
    ApplyChartCrds,
    ApplyStackObjects,
    CheckStack,
    EnsuredRelease,
    EnsureRelease,
    InstalledRelease,
    PreflightStack,
    StackApplied,
    StackPlan,
    StackSeen,
    UninstallRelease,
)
from api_types.settings import StackSettings
from testbed.programs.install import cached
from tests.activities.environment.cluster_under_test import ClusterUnderTest, cluster_from, eventually
from tests.environment.stack_testbed import CLUSTER, StackCluster, stack_cluster
from tests.environment.summary import Summary

ResultT = TypeVar("ResultT")


@dataclass
class StackUnderTest:
    """A bare cluster, as the activities of one InferenceCluster see it. `ensured` are the releases that were installed, by component."""

    world: StackCluster
    cluster: ClusterUnderTest
    activities: StackActivities
    uid: str = field(default_factory=lambda: uuid.uuid4().hex)
    ensured: dict[str, EnsuredRelease] = field(default_factory=dict)
    groups: list[str] = field(default_factory=list)

    async def run(self, activity: Any, order: Any) -> Any:
        return await self.cluster.environment().run(activity, order)

    async def api(self) -> ClusterApi:
        return await self.cluster.api()

    def with_settings(self, **settings: Any) -> "StackUnderTest":
        """The same cluster for a worker with other settings."""
        changed = StackSettings(**{**self.activities.settings.model_dump(), **settings})
        helm = HelmClients(self.cluster.pool, changed, cached("helm"))
        return StackUnderTest(self.world, self.cluster, StackActivities(self.cluster.pool, helm, changed), self.uid)

    @property
    def base(self) -> dict[str, Any]:
        return {"connection": self.cluster.connection, "cluster_uid": self.uid}

    async def plan(self, **more: Any) -> StackPlan:
        plan: StackPlan = await self.run(self.activities.preflight_stack, PreflightStack(source="Existing", **self.base, **more))
        return plan

    async def apply(self, plan: StackPlan, group: str) -> StackApplied:
        applied: StackApplied = await self.run(
            self.activities.apply_stack_objects, ApplyStackObjects(spec=plan.spec, group=group, **self.base)
        )
        self.groups.append(group)
        return applied

    async def crds(self, plan: StackPlan, *components: str) -> StackApplied:
        order = ApplyChartCrds(releases=[plan.releases[each] for each in components], **self.base)
        applied: StackApplied = await self.run(self.activities.apply_chart_crds, order)
        return applied

    async def ensure(self, plan: StackPlan, component: str) -> EnsuredRelease:
        order = EnsureRelease(connection=self.cluster.connection, release=plan.releases[component])
        self.ensured[component] = await self.run(self.activities.helm_ensure, order)
        return self.ensured[component]

    def installed(self, plan: StackPlan) -> list[InstalledRelease]:
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
        fields = {"source": "Existing", "spec": plan.spec, "plan": plan.digest, "max_seconds": 0, **self.base, **more}
        return CheckStack(releases=self.installed(plan), groups=self.groups, **fields)

    async def look(self, plan: StackPlan, **more: Any) -> StackSeen:
        seen: StackSeen = await self.run(self.activities.stack_readiness, self.check(plan, **more))
        return seen

    async def until(self, plan: StackPlan, holds: Any) -> StackSeen:
        async def check() -> StackSeen | None:
            seen = await self.look(plan)
            return seen if holds(seen) else None

        found: StackSeen = await eventually(check)
        return found

    async def install(self, plan: StackPlan) -> StackSeen:
        """Take every step of the plan, in its order, and wait until nothing lags."""
        seen = StackSeen()
        for step in INSTALL:
            match step.action:
                case Action.OBJECTS:
                    await self.apply(plan, *step.targets)
                case Action.CRDS:
                    await self.crds(plan, *step.targets)
                case Action.RELEASE:
                    await self.ensure(plan, *step.targets)
                case Action.READY:
                    seen = await self.until(plan, lambda seen, targets=step.targets: not seen.gating(targets))
        return seen

    async def uninstall(self, plan: StackPlan, component: str, *, wait_seconds: int = 60, **more: Any) -> TeardownStepResult:
        release, ensured = plan.releases[component], self.ensured.get(component)
        order = UninstallRelease(
            connection=self.cluster.connection,
            name=release.name,
            namespace=release.namespace,
            workloads=ensured.workloads if ensured else [],
            wait_seconds=wait_seconds,
            **more,
        )
        result: TeardownStepResult = await self.run(self.activities.helm_uninstall, order)
        return result


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[StackCluster]:
    """The bare cluster, with charts and the stand-in for Envoy."""
    with stack_cluster(tmp_path_factory.mktemp("stack"), Summary.of(pytestconfig)) as world:
        yield world


@pytest_asyncio.fixture(scope="session")
async def bare(world: StackCluster, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StackUnderTest]:
    """The activities, connected once."""
    cluster = await cluster_from(CLUSTER, world.cluster.kubeconfig.read_text(), tmp_path_factory.mktemp("secrets"))
    settings = StackSettings(chart_mirror=world.charts.url)
    helm = HelmClients(cluster.pool, settings, cached("helm"))
    yield StackUnderTest(world, cluster, StackActivities(cluster.pool, helm, settings))
    await cluster.pool.close()


@pytest_asyncio.fixture
async def stack(bare: StackUnderTest) -> AsyncIterator[StackUnderTest]:
    """The bare cluster for one InferenceCluster; what is on it afterwards is taken away."""
    fresh = StackUnderTest(bare.world, bare.cluster, bare.activities)
    yield fresh
    behaviour = fresh.world.envoy.behaviour
    behaviour.addresses, behaviour.service_lag, behaviour.releases_balancers, behaviour.accepts = ("10.245.9.9",), 0.5, True, True
    await eventually(lambda: asyncio.to_thread(_is_clear, fresh.world))
    await (await fresh.api()).resources(refresh=True)


def _is_clear(world: StackCluster) -> bool:
    world.clear()
    return world.is_clear()
