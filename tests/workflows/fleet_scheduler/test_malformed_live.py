"""Malformed signals on a real server: the scheduler's run goes on, and a valid request is placed. `test_malformed` has all forms."""

from typing import Any

import pytest
from temporalio.common import WorkflowIDConflictPolicy

from api_types import names, queues
from tests.workflows.environment.harness import a_deployment, condition, eventually
from tests.workflows.environment.protocol_fleet import NAMESPACE, ReportedCluster, protocol_fleet
from tests.workflows.fleet_scheduler.malformed import MANIFEST, a_place

pytestmark = pytest.mark.testbed("shared")

REPORT = {"name": "eu", "uid": "u", "sequence": 1, "manifest": MANIFEST}
MALFORMED: list[tuple[str, list[Any]]] = [
    ("place", []),
    ("place", [None]),
    ("place", [{**a_place().wire(), "need": {**a_place().need, "policy": []}}]),
    ("place", [{**a_place().wire(), "need": {"policy": None}}]),
    ("bound", [{"entries": {"u": {"uid": 5}}}]),
    ("report_cluster", [{**REPORT, "manifest": {}}]),
    ("report_cluster", [{**REPORT, "manifest": {**MANIFEST, "spec": {"nodePools": [{"className": "h100"}]}}}]),
    ("report_cluster", [{**REPORT, "manifest": {**MANIFEST, "metadata": {"name": ["eu"]}}}]),
    ("forget", ["InferenceCluster"]),
    ("forget", [{"kind": "ModelDeployment", "namespace": "a/b", "name": "c", "uid": "u", "gone": True}]),
    ("bound", [{"entries": {"$packed": "nonsense"}}]),
    ("set_policy", [{"policy": {"reservationTtlSeconds": 10**30, "quotas": [None]}}]),
]


async def test_a_real_scheduler_goes_on_after_malformed_signals() -> None:
    async with protocol_fleet(clients=1) as fleet:
        await fleet.add([ReportedCluster("us", {"h100": 4})])
        scheduler = fleet.client.get_workflow_handle(names.FLEET_SCHEDULER_ID)
        for signal, arguments in MALFORMED:
            await scheduler.signal(signal, args=arguments)
        await fleet.apply(a_deployment("next", NAMESPACE))
        await eventually(
            lambda: fleet.describe("next"), lambda seen: bool(seen) and condition(seen, "ReplicasScheduled") == "True", what="the placement"
        )
        assert await fleet.scheduler("audit") == []
        assert (await fleet.scheduler("describe"))["status"]["clusters"] == 1


async def test_a_scheduler_that_is_started_by_hand_rebuilds() -> None:
    # Nothing else runs, so no message tells it an epoch: it has drawn one itself, as it does when it begins to rebuild.
    async with protocol_fleet(clients=1) as fleet:
        before = await eventually(lambda: fleet.scheduler("describe"), bool, what="the first scheduler")
        await fleet.client.start_workflow(
            "FleetScheduler",
            id=names.FLEET_SCHEDULER_ID,
            task_queue=queues.SCHEDULER,
            id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        )
        seen = await eventually(
            lambda: fleet.scheduler("describe"),
            lambda seen: bool(seen) and not seen["status"]["rebuilding"],
            what="the one that was started by hand",
        )
        assert seen["status"]["epoch"] > before["status"]["epoch"]
