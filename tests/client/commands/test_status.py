"""The lines of `modelplane status`, and the rows of `modelplane version`."""

from datetime import UTC, datetime
from typing import Any, cast

import pytest
from temporalio.api.common.v1 import WorkerVersionCapabilities
from temporalio.api.deployment.v1 import WorkerDeploymentOptions
from temporalio.api.taskqueue.v1 import PollerInfo
from temporalio.api.workflowservice.v1 import (
    DescribeTaskQueueResponse,
    GetSystemInfoResponse,
)
from temporalio.client import Client

from api_types import queues
from api_types.resources.kinds import BY_KIND
from api_types.settings import Settings
from client.commands.inspect.status import capacity_lines, object_lines, problem_lines
from client.commands.inspect.version import behind
from client.failures import ExitCode
from fleet_client.advice import ADVICE
from fleet_client.refs.seen import ListedObject
from fleet_client.refs.targets import Target
from scheduler import PoolCapacityUse
from tests.client.conftest import Cli

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


def seen(
    kind: str, name: str, reason: str = "", message: str = "", **metadata: str
) -> ListedObject:
    """An object that is Ready, or not Ready for a reason since 11:00."""
    ready = {"type": "Ready", "status": "False" if reason else "True", "reason": reason}
    since = {"lastTransitionTime": "2026-03-01T11:00:00Z", "message": message}
    return ListedObject(
        Target.of(BY_KIND[kind], "ml", name),
        {"metadata": metadata, "status": {"conditions": [{**ready, **since}]}},
    )


def test_the_objects_of_each_kind_are_counted() -> None:
    unseen = ListedObject(Target.of(BY_KIND["ModelDeployment"], "ml", "new"), {})
    found = [
        seen("ModelDeployment", "a"),
        seen("ModelDeployment", "b", "ScaledToZero"),
        seen("ModelDeployment", "c", "Unavailable"),
        seen("ModelDeployment", "d", "Unavailable", deletionTimestamp="now"),
        unseen,
        seen("InferenceCluster", "oslo"),
    ]
    assert [line.split() for line in object_lines(found)] == [
        ["KIND", "TOTAL", "READY", "NOT-READY", "DELETING"],
        ["InferenceCluster", "1", "1", "0", "0"],
        ["ModelDeployment", "5", "2", "2", "1"],
    ]
    assert "apply -f" in object_lines([])[0]


def test_objects_with_one_cause_are_one_problem_with_its_next_step() -> None:
    silent = "no answer from https://oslo"
    found = [
        seen("ModelDeployment", "a", "InsufficientCapacity", "pool h200 is full"),
        seen("ModelDeployment", "b", "InsufficientCapacity", "pool h200 is full"),
        seen("ModelReplica", "a-1", "Creating", "waits"),
        seen("InferenceCluster", "oslo", "Unreachable", silent),
        seen("ModelService", "chat", "Unheard", "of"),
    ]
    assert problem_lines(found, NOW, every=False) == [
        "",
        "Problems: 3",
        f"  InferenceCluster oslo: Unreachable for 60m: {silent}",
        "    next: check that the worker can reach the API server that the kubeconfig names",
        "  ModelDeployment ml/a and 1 more: InsufficientCapacity for 60m: pool h200 is full",
        f"    next: {ADVICE['ModelDeployment']['InsufficientCapacity']}",
        "  ModelService ml/chat: Unheard for 60m: of",
        "    next: `modelplane describe ms/chat -n ml`",
    ]
    assert problem_lines(found[2:3], NOW, every=False) == ["", "No problems"]


def test_a_ready_cluster_and_a_deletion_may_have_problems_at_their_cloud() -> None:
    degraded = seen("InferenceCluster", "oslo")
    degraded.tree["status"] |= {
        "conditions": [
            *degraded.tree["status"]["conditions"],
            at_eleven("CloudObjectsReady", "False", "CapacityUnavailable", "pool l4"),
        ],
        "cloudObjects": [{"object": "pool/l4", "nextStep": "wait for machines"}],
    }
    leaving = [
        seen("InferenceCluster", name, "Deleting", deletionTimestamp="now")
        for name in ("bonn", "rome")
    ]
    for one, reason in zip(leaving, ("DeletionBlocked", "Draining"), strict=True):
        one.tree["status"]["conditions"].append(
            at_eleven("Deleting", "True", reason, "others own vpce-1")
        )
    found = [degraded, *leaving]
    assert problem_lines(found, NOW, every=False) == [
        "",
        "Problems: 2",
        "  InferenceCluster oslo: CapacityUnavailable for 60m: pool l4",
        "    next: pool/l4: wait for machines",
        "  InferenceCluster bonn: DeletionBlocked for 60m: others own vpce-1",
        "    next: `modelplane describe ic/bonn`",
    ]
    assert object_lines(found)[1].split() == ["InferenceCluster", "3", "1", "0", "2"]


def at_eleven(kind: str, status: str, reason: str, message: str) -> dict[str, str]:
    """A condition that changed at 11:00."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-03-01T11:00:00Z",
    }


def test_more_problems_than_fit_on_a_screen_are_counted() -> None:
    found = [
        seen("ModelService", f"s{n}", "Lost", f"{n}: {'x' * 500}") for n in range(15)
    ]
    lines = problem_lines(found, NOW, every=False)
    assert (len(lines), lines[-1]) == (
        27,
        "3 more: `modelplane status --all-problems` shows them",
    )
    assert max(map(len, lines)) < 250
    assert len(problem_lines(found, NOW, every=True)) == 32


def test_the_capacity_is_summed_by_unit() -> None:
    pools = [
        PoolCapacityUse("a", "p", "nodes", 4, 1, 1, 2, 0),
        PoolCapacityUse("b", "p", "nodes", 6, 2, 0, 0, 4),
        PoolCapacityUse("b", "q", "devices", 8, 8, 0, 0, 0),
    ]
    assert capacity_lines(pools)[1:3] == [
        "Capacity: 10 nodes: 3 used, 1 held, 2 free, 4 wasted",
        "Capacity: 8 devices: 8 used, 0 held, 0 free, 0 wasted",
    ]
    assert capacity_lines([]) == []


class Service:
    """A Temporal with a worker of each way to name a build, on the queue of workflows."""

    async def get_system_info(self, _request: Any, **_: Any) -> GetSystemInfoResponse:
        return GetSystemInfoResponse(server_version="1.29.1")

    async def describe_task_queue(
        self, request: Any, **_: Any
    ) -> DescribeTaskQueueResponse:
        if request.task_queue.name != queues.WORKFLOWS:
            return DescribeTaskQueueResponse()
        versioned = WorkerDeploymentOptions(deployment_name="d", build_id="0.2.0-bbb")
        plain = WorkerVersionCapabilities(build_id="0.1.0-aaa")
        return DescribeTaskQueueResponse(
            pollers=[
                PollerInfo(deployment_options=versioned),
                PollerInfo(worker_version_capabilities=plain),
            ]
        )


class Connected:
    """A client of that Temporal."""

    namespace = "default"
    workflow_service = Service()


async def test_versions_of_temporal_and_of_each_build_are_shown() -> None:
    rows = await behind(cast("Client", Connected()), Settings())
    assert [(row["part"], row["version"]) for row in rows] == [
        ("temporal", "1.29.1"),
        ("worker", "0.1.0"),
        ("worker", "0.2.0"),
    ]


@pytest.mark.usefixtures("nowhere")
def test_the_version_of_this_program_is_shown_although_no_server_answers(
    cli: Cli,
) -> None:
    shown = cli("version")
    assert (shown.code, shown.out.split()[3]) == (ExitCode.UNREACHABLE, "client")
    assert cli("version", "--client").code == ExitCode.DONE
