"""An administrator terminates, cancels or resets a workflow with the `temporal` command.

Everything changes at that moment, and the fleet continues. Workflows refuse a
cancellation. A terminated workflow is started again automatically, or when its user
applies the object again.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from api_types import labels, names
from api_types.sections.stacks import StackSettings
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import TEMPORAL
from tests.activities.clouds.builders import a_pool
from tests.workflows.cloud_cluster.control_plane import CloudPlane, cloud_plane
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    a_deployment,
    condition,
    eventually,
)
from tests.workflows.environment.protocol_fleet import protocol_fleet
from tests.workflows.environment.simulated_clusters import a_class, plane_of
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    selecting,
)
from tests.workflows.stack_upgrades.simulated_stacks import SimulatedStacks, a_managed_cluster
from workflows.entity import backoff, periods
from workflows.entity.conditions import CANCEL_REFUSED
from workflows.stack_upgrades import turns

pytestmark = [pytest.mark.soak, pytest.mark.testbed("shared"), pytest.mark.timeout(600)]

NAMESPACE = "ml"
CLUSTERS = ("eu", "us")
COMMANDS: dict[str, tuple[str, ...]] = {
    "terminate": ("terminate",),
    "cancel": ("cancel",),
    "reset": ("reset", "--type", "FirstWorkflowTask"),
}
# Two versions of one component, which the workers want alternately.
VERSIONS = ("v0.8.1", "v0.8.2")
# The workflow is carrying out the change when the command arrives.
UNDER_WAY_SECONDS = 0.3


@dataclass
class Everything(SimulatedStacks, SimulatedControl):
    """Clusters with stacks, and a control cluster."""


@dataclass
class Fleet:
    """A fleet in which each change concerns every kind of workflow."""

    plane: ControlPlane
    clusters: Everything
    cloud: CloudPlane
    changes: int = 0
    placed: set[str] = field(default_factory=set)

    @property
    def replicas(self) -> int:
        return 2 + self.changes % 2

    @property
    def nodes(self) -> int:
        return 10 + self.changes

    @property
    def version(self) -> str:
        return VERSIONS[self.changes % 2]

    def cluster(self, name: str) -> Json:
        document = a_managed_cluster(name)
        document["spec"]["nodePools"][0]["nodeCount"] = self.nodes
        return document

    def service(self) -> Json:
        entry = selecting({labels.DEPLOYMENT: "qwen"}, weight=1 + self.changes)
        return a_service("chat", entry, namespace=NAMESPACE)

    def pools(self) -> list[Json]:
        return [a_pool(), *([a_pool("more")] if self.changes % 2 else [])]

    async def begin(self) -> None:
        self.clusters.open.set()
        await self.plane.apply(a_gateway())
        await self.plane.apply(a_class())
        # The installation of a stack waits for no turn, so StackUpgrades starts with a change.
        for _ in range(2):
            await self.change()
            await self.whole()

    async def change(self) -> None:
        self.changes += 1
        self.clusters.stack_settings = StackSettings(versions={"leaderWorkerSet": self.version})
        for name in CLUSTERS:
            await self.plane.apply(self.cluster(name))
        await self.plane.apply(a_deployment("qwen", NAMESPACE, replicas=self.replicas))
        await self.plane.apply(self.service())
        await self.cloud.apply(*self.pools(), removable=("more",))

    async def again(self) -> None:
        """Apply user-owned objects again after a termination."""
        await self.plane.apply(self.cluster("eu"))
        await self.plane.apply(self.service())
        await self.cloud.apply(*self.pools(), removable=("more",))

    async def whole(self) -> None:
        """Wait until the last change has arrived everywhere."""
        for name in CLUSTERS:
            await self.plane.until("InferenceCluster", name, self._is_new)
        seen = await self.plane.until("ModelDeployment", "qwen", self._is_placed, NAMESPACE)
        rows = seen["status"]["placements"]
        placed = {row["replica"]: row["cluster"] for row in rows if row["phase"] != "Terminating"}

        async def ledger() -> dict[str, str]:
            return {
                entry["name"]: entry["cluster"] for entry in await self.plane.scheduler("ledger")
            }

        await eventually(ledger, lambda found: found == placed, what="the ledger")
        assert await self.plane.scheduler("audit") == []

        async def routed() -> tuple[int, list[str]]:
            (entry,) = self.clusters.routes["chat"].entries
            return entry.weight, sorted(endpoint.name for endpoint in entry.endpoints)

        await eventually(
            routed, lambda found: found == (1 + self.changes, sorted(placed)), what="the route"
        )

        async def written() -> dict[str, str]:
            return dict(self.clusters.written)

        await eventually(
            written, lambda found: found == dict.fromkeys(CLUSTERS, self.version), what="the stacks"
        )
        await eventually(self._turns, lambda found: found == ([], []), what="the end of all turns")
        await self.cloud.ready()
        await self.cloud.settled()
        pools = {f"pool/{pool['name']}" for pool in self.pools()}
        await self.cloud.until_cloud(
            lambda cloud: {key for key in cloud.things if key.startswith("pool/")} == pools,
            "the pools",
        )

    def _is_new(self, seen: Json) -> bool:
        return condition(seen, "Ready") == "True" and [
            pool["nodes"] for pool in seen["status"].get("gpuPools", ())
        ] == [self.nodes]

    def _is_placed(self, seen: Json) -> bool:
        return condition(seen, "Ready") == "True" and seen["status"]["replicas"] == {
            "total": self.replicas,
            "ready": self.replicas,
        }

    async def _turns(self) -> tuple[list[str], list[str]]:
        handle = self.plane.client.get_workflow_handle(names.STACK_UPGRADES_ID)
        try:
            shown = (await handle.query("describe"))["status"]
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return [], []
        return shown["upgrading"], shown["waiting"]


@pytest.fixture(scope="module")
async def fleet() -> AsyncIterator[Fleet]:
    """Start one fleet for all rows.

    Its entities check for restarted workflows every few seconds.
    """
    async with AsyncExitStack() as stack:
        patched = stack.enter_context(pytest.MonkeyPatch.context())
        patched.setattr(periods, "RESYNC", timedelta(seconds=5))
        # Worker settings that keep changing are followed ever more rarely.
        patched.setattr(backoff, "renderer", lambda _: timedelta(seconds=0.5))
        # A cluster that is terminated in its turn and applied again does not return the
        # turn, so the lease ends it.
        patched.setattr(turns, "LEASE", timedelta(seconds=5))
        clusters = Everything(settings={"drain_seconds": 1})
        served = await stack.enter_async_context(protocol_fleet(clients=1))
        plane = await stack.enter_async_context(plane_of(served, clusters))
        cloud = await stack.enter_async_context(cloud_plane(served.client, "GKE"))
        fleet = Fleet(plane, clusters, cloud)
        await fleet.begin()
        yield fleet


async def temporal(fleet: Fleet, *words: str) -> None:
    """Run the `temporal` command. Raise AssertionError if it fails."""
    program = Installer(print).programs(tool for tool in TOOLS if tool.name == TEMPORAL)[TEMPORAL]
    command = [str(program), "workflow", *words, "--address", fleet.plane.running.temporal_address]
    ran = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    said, _ = await ran.communicate()
    assert ran.returncode == 0, said.decode()


IDS: dict[str, Callable[[Fleet], str]] = {
    "FleetScheduler": lambda _: names.FLEET_SCHEDULER_ID,
    "InferenceCluster": lambda _: names.workflow_id("InferenceCluster", "", "eu"),
    "ModelService": lambda _: names.workflow_id("ModelService", NAMESPACE, "chat"),
    "EndpointDirectory": lambda _: names.endpoint_directory_id(NAMESPACE),
    "StackUpgrades": lambda _: names.STACK_UPGRADES_ID,
    "CloudCluster": lambda fleet: fleet.cloud.id,
}


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("command", COMMANDS)
async def test_the_fleet_continues_after_a_temporal_command(
    fleet: Fleet, kind: str, command: str
) -> None:
    workflow_id = IDS[kind](fleet)
    before = (await fleet.plane.client.get_workflow_handle(workflow_id).describe()).run_id
    await fleet.change()
    await asyncio.sleep(UNDER_WAY_SECONDS)
    reason = () if command == "cancel" else ("--reason", "a test")
    await temporal(fleet, *COMMANDS[command], "--workflow-id", workflow_id, *reason)
    if command == "terminate":
        await fleet.again()
    await fleet.whole()
    after = await fleet.plane.client.get_workflow_handle(workflow_id).describe()
    assert after.status is WorkflowExecutionStatus.RUNNING
    assert (after.run_id == before) is (command == "cancel")
    if command == "cancel":
        seen = await fleet.plane.client.get_workflow_handle(workflow_id).query("describe")
        assert CANCEL_REFUSED in [event["reason"] for event in seen["status"]["events"]]
