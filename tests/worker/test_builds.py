"""Objects change while another build of the worker, and the earlier one again, is
promoted.

The server's own histories tell which build completed each workflow task.
"""

import asyncio
import json
import re
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from temporalio import activity
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.client import Client, WorkflowExecution

from api_types import queues
from api_types.messages.cluster_work import (
    Applied,
    ApplyReplica,
    RunTeardownStep,
    TeardownStepResult,
)
from testbed.programs.install import Installer
from testbed.programs.versions import TOOLS
from testbed.temporal import TEMPORAL
from tests.workflows.environment.harness import (
    ControlPlane,
    Json,
    WorkerProcess,
    a_deployment,
    eventually,
    worker_process,
)
from tests.workflows.environment.protocol_fleet import (
    ProtocolFleet,
    WorkerApart,
    protocol_server,
)
from tests.workflows.environment.simulated_clusters import (
    SimulatedClusters,
    a_class,
    a_cluster,
    plane_of,
)
from tests.workflows.environment.topologies import run

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

DEPLOYMENT, NAMESPACE = "modelplane", "ml-team"
NEXT_BUILD = "tests.workflows.environment.worker_of_next_build"
HELD_SECONDS = 0.1
LIVES = ("coming", "rolling", "moving", "leaving")
# The server repeats a task if a signal arrives at its end, and ends a reset run with a
# failed task.
ORDINARY = {"UNHANDLED_COMMAND", "RESET_WORKFLOW"}


@dataclass
class HeldClusters(SimulatedClusters):
    """Clusters on which replicas of held deployments are neither applied nor deleted.

    `waiting` are the replicas that wait for release.
    """

    held: set[str] = field(default_factory=set)
    waiting: set[str] = field(default_factory=set)

    @activity.defn
    async def apply_replica(self, order: ApplyReplica) -> Applied:
        await self._until_released()
        return await super().apply_replica(order)

    @activity.defn
    async def teardown_replica_step(self, order: RunTeardownStep) -> TeardownStepResult:
        await self._until_released()
        return await super().teardown_replica_step(order)

    async def _until_released(self) -> None:
        replica = (activity.info().workflow_id or "").rpartition("/")[2]
        while holder := next(
            (each for each in self.held if replica.startswith(f"{each}-")), ""
        ):
            self.waiting.add(holder)
            activity.heartbeat()
            await asyncio.sleep(HELD_SECONDS)


@dataclass
class Lives:
    """Deployments at four stages: created, rolled out, moved off a cluster and deleted."""

    plane: ControlPlane
    clusters: HeldClusters

    async def begin(self, number: int, drained: str, other: str) -> None:
        """Start the changes of a round, and wait until each is blocked by a cluster."""
        at_rest = [
            self.stays(f"rolling-{number}", 3),
            self.stays(f"leaving-{number}", 1),
            self.moves(f"moving-{number}"),
        ]
        await self.modelplane("cordon", other)
        for document in at_rest:
            await self.plane.apply(document)
        for document in at_rest:
            await self.plane.ready(
                "ModelDeployment", document["metadata"]["name"], NAMESPACE
            )
        await self.modelplane("uncordon", other)
        self.clusters.held = {f"{life}-{number}" for life in LIVES}
        await self.modelplane("drain", drained)
        await self.plane.apply(self.stays(f"coming-{number}", 2))
        await self.plane.apply(
            self.stays(f"rolling-{number}", 3, image="registry.example/engine:2")
        )
        await self.plane.delete("ModelDeployment", f"leaving-{number}", NAMESPACE)

        async def waiting() -> set[str]:
            return set(self.clusters.waiting)

        await eventually(
            waiting,
            lambda found: found == self.clusters.held,
            what="a held life of each kind",
        )

    async def end(self, number: int, other: str) -> None:
        """Release the changes of a round, and wait for their expected end."""
        self.clusters.held, self.clusters.waiting = set(), set()
        await self.plane.gone("ModelDeployment", f"leaving-{number}", NAMESPACE)
        await self.settled(f"coming-{number}", ["stay"] * 2)
        await self.settled(f"rolling-{number}", ["stay"] * 3)
        await self.settled(f"moving-{number}", [other])

    async def settled(self, name: str, clusters: list[str]) -> None:
        def is_settled(seen: Json) -> bool:
            status = seen["status"]
            placed = sorted(
                placement["cluster"] for placement in status.get("placements", ())
            )
            updated = status.get("rollout", {}).get("updatedReady")
            return placed == clusters and status["replicas"]["ready"] == updated == len(
                clusters
            )

        await self.plane.until("ModelDeployment", name, is_settled, NAMESPACE)

    def stays(
        self, name: str, replicas: int, image: str = "registry.example/engine:1"
    ) -> Json:
        selector = {"matchLabels": {"use": "stay"}}
        return a_deployment(
            name, NAMESPACE, replicas=replicas, image=image, clusterSelector=selector
        )

    def moves(self, name: str) -> Json:
        return a_deployment(
            name, NAMESPACE, clusterSelector={"matchLabels": {"use": "move"}}
        )

    async def modelplane(self, *words: str) -> str:
        code, said = await run(self.plane, *words)
        assert code == 0, said
        return said


@asynccontextmanager
async def two_builds(
    folder: Path, clusters: HeldClusters
) -> AsyncIterator[tuple[ControlPlane, WorkerProcess, WorkerProcess]]:
    """A control plane with simulated clusters, and workers of builds `a` and `b`.

    The worker of build `b` is not started yet.
    """
    async with protocol_server() as client:
        first, second = (
            a_build(client, folder, "a"),
            a_build(client, folder, "b", NEXT_BUILD),
        )
        fleet = ProtocolFleet(client, [client], WorkerApart(first))
        await fleet.start_workers()
        try:
            async with plane_of(fleet, clusters) as plane:
                yield plane, first, second
        finally:
            first.kill()
            second.kill()


async def test_running_changes_continue_on_a_promoted_build_and_after_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELPLANE_WORKER__DEPLOYMENT_NAME", DEPLOYMENT)
    clusters = HeldClusters()
    async with two_builds(tmp_path, clusters) as (plane, first, second):
        lives = Lives(plane, clusters)
        assert (
            first.readiness()
            == "build a is not current, unversioned is: run `modelplane workers promote a` "
            "to let it run the workflows\n"
        )
        await lives.modelplane("workers", "promote", "a", "--wait")
        assert first.readiness() == "ok\n"
        await apply_clusters(plane)
        await lives.begin(1, "old", "new")
        under_way = await running(plane.client)
        await asyncio.to_thread(second.start)
        await lives.modelplane("workers", "promote", "b", "--wait")
        assert [first.readiness().split(":")[0], second.readiness()] == [
            "build a is not current, b is",
            "ok\n",
        ]
        await lives.end(1, "new")
        before = [await told(plane.client, run) for run in under_way]
        assert [
            run
            for run in before
            if not re.fullmatch("a+b*" if run.is_at_rest else "a+b+", run.builds)
        ] == []
        assert {problem for run in before for problem in run.problems} == set()

        await lives.begin(2, "new", "old")
        started = [
            run
            for run in await running(plane.client)
            if re.search("/[a-z]+-2(-|$)", run.id)
        ]
        assert {
            build for run in started for build in (await told(plane.client, run)).builds
        } == {"b"}
        await lives.modelplane("workers", "promote", "a")
        await asyncio.to_thread(second.kill)
        clusters.held = set()
        # Workflows without a command of the newer build continue.
        await plane.scale("coming-1", NAMESPACE, 3)
        await lives.settled("coming-1", ["stay"] * 3)

        # The others wait until they are reset, or the newer build is promoted again.
        async def problems() -> set[str]:
            return {
                problem
                for run in started
                for problem in (await told(plane.client, run)).problems
            }

        await eventually(
            problems,
            lambda found: found == {"NON_DETERMINISTIC_ERROR"},
            what="a task that the older build cannot replay",
        )
        await reset_to_before(plane.client, "b")
        await lives.end(2, "old")
        assert await plane.scheduler("audit") == []
        ended = [await told(plane.client, run) for run in await running(plane.client)]
        assert [
            run for run in ended if not (run.is_at_rest or run.builds.endswith("a"))
        ] == []
        assert {problem for run in ended for problem in run.problems} == set()


def a_build(
    client: Client, folder: Path, build: str, module: str = "worker"
) -> WorkerProcess:
    """A workflow worker with a build id."""
    address = client.service_client.config.target_host
    served = json.dumps([queues.WORKFLOWS, queues.SCHEDULER])
    settings = {
        "MODELPLANE_QUEUES__SERVE": served,
        "MODELPLANE_WORKER__BUILD_ID": build,
    }
    return worker_process(
        address, folder / "secrets", folder / f"{build}.log", module, **settings
    )


async def apply_clusters(plane: ControlPlane) -> None:
    await plane.apply(a_class())
    for name in ("stay", "old", "new"):
        document = a_cluster(name, nodes=40)
        document["metadata"]["labels"] = {"use": "stay" if name == "stay" else "move"}
        await plane.apply(document)
        await plane.ready("InferenceCluster", name)


async def running(client: Client) -> list[WorkflowExecution]:
    listed = client.list_workflows('ExecutionStatus = "Running"')
    return [
        run
        async for run in listed
        if run.task_queue in (queues.WORKFLOWS, queues.SCHEDULER)
    ]


@dataclass(frozen=True)
class Run:
    """Return the builds that completed a run's tasks, and the causes of failed tasks."""

    id: str
    run_id: str
    builds: str
    problems: set[str]

    @property
    def is_at_rest(self) -> bool:
        """Return whether the run may be idle during a promotion."""
        return self.id.startswith(("inferenceclass/", "inferencecluster/"))


async def told(client: Client, run: WorkflowExecution) -> Run:
    history = await client.get_workflow_handle(
        run.id, run_id=run.run_id
    ).fetch_history()
    builds, problems = "", set()
    for event in history.events:
        if event.HasField("workflow_task_completed_event_attributes"):
            builds += event.workflow_task_completed_event_attributes.deployment_version.build_id
        elif event.HasField("workflow_task_failed_event_attributes"):
            cause = WorkflowTaskFailedCause.Name(
                event.workflow_task_failed_event_attributes.cause
            )
            problems.add(cause.removeprefix("WORKFLOW_TASK_FAILED_CAUSE_"))
    return Run(run.id, run.run_id, builds, problems - ORDINARY)


async def reset_to_before(client: Client, build: str) -> None:
    """Reset the workflows that a build has worked on, as in docs/how-to/upgrade-workers.md."""
    program = Installer(print).programs(
        tool for tool in TOOLS if tool.name == TEMPORAL
    )[TEMPORAL]
    query = 'ExecutionStatus = "Running" AND WorkflowType IN ("ModelDeployment", "ModelReplica")'
    reset = [
        str(program),
        "workflow",
        "reset",
        "--address",
        client.service_client.config.target_host,
    ]
    command = [
        *reset,
        "--type",
        "BuildId",
        "--build-id",
        build,
        "--query",
        query,
        "--reason",
        "roll back",
        "--yes",
    ]
    ended = await asyncio.to_thread(
        subprocess.run, command, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
