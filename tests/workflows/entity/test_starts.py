"""Invalid starts by hand.

On a real server they fail at once with a reason and leave the id free.
"""

import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio.common import WorkflowIDConflictPolicy

from activities.messaging.search_attributes import PUBLISHED_MEMO
from activities.messaging.sending import start_replicas
from api_types import names, queues
from api_types.messages.entities import StartReplica
from api_types.messages.signals import FleetSchedulerSignals
from tests.workflows.environment.failed_starts import refusal_of
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    protocol_fleet,
)

pytestmark = pytest.mark.testbed("shared")

BIRTH = StartReplica(
    uid="u",
    namespace="ml",
    name="r",
    deployment="d",
    deployment_uid="v",
    cluster="eu",
    index=0,
    generation=1,
    spec={},
).wire()

DEPLOYMENT = "modeldeployment/ml/chat"

ENTITY_ID = "id: must be "
SCHEDULER_ID = (
    "id: must be fleetscheduler/default, the id of the only FleetScheduler, got "
)

# One of each kind of mistake. `test_start_arguments.py` has all of them for each type.
REFUSED: list[tuple[str, str, list[Any], str]] = [
    (
        "ModelDeployment",
        "foo",
        [None],
        ENTITY_ID
        + 'modeldeployment/<namespace>/<name> for a ModelDeployment, got "foo"',
    ),
    (
        "ModelDeployment",
        "modeldeployment//chat",
        [None],
        "id: must be a name of 1 to 253 characters, got ''",
    ),
    (
        "ModelReplica",
        "modelreplica/ml/other",
        [{"start": BIRTH}],
        "start: names ml/r, but the workflow is ModelReplica ml/other",
    ),
    (
        "FleetScheduler",
        "fleetscheduler/second",
        [None],
        SCHEDULER_ID + '"fleetscheduler/second"',
    ),
    (
        "ModelCache",
        "modelcache/modelplane-system/x",
        [None],
        'id: namespace "modelplane-system" belongs to the platform; ',
    ),
    ("ModelDeployment", DEPLOYMENT, ["text"], "start argument 1: "),
    (
        "ModelDeployment",
        DEPLOYMENT,
        [None, None, None],
        "start arguments: expected at most 1, got 3",
    ),
    ("ModelReplica", "modelreplica/ml/r", [None], "start: is missing; "),
    ("ModelReplica", "modelreplica/ml/r", [], "start: is missing; "),
]

OF_THE_SCHEDULER: list[tuple[list[Any], str]] = [
    (["text"], "start argument 1: "),
    ([None, {"texts": []}], "start argument 2: "),
    ([None, None, None], "start arguments: expected at most 2, got 3"),
]


@pytest.fixture(scope="module")
async def fleet() -> AsyncIterator[ProtocolFleet]:
    async with protocol_fleet(clients=1) as fleet:
        yield fleet


async def refusal(
    fleet: ProtocolFleet,
    kind: str,
    workflow_id: str,
    arguments: list[Any],
    signal: str | None = None,
) -> str:
    """Start a workflow that fails, with a signal if one is named, and return its failure message.

    A running workflow of that id is terminated in the same request. Between two
    requests, an entity that reports would start another one.
    """
    queue = queues.SCHEDULER if kind == "FleetScheduler" else queues.WORKFLOWS
    handle = await fleet.client.start_workflow(
        kind,
        args=arguments,
        id=workflow_id,
        task_queue=queue,
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        start_signal=signal,
        start_signal_args=[{}],
    )
    return await refusal_of(handle)


async def test_a_replica_that_is_too_large_to_start_does_not_delay_others(
    fleet: ProtocolFleet,
) -> None:
    """Only the real server shows the error with which it rejects a start."""
    names_of = ("huge", "small")
    starts = [
        StartReplica.model_validate(
            {
                **BIRTH,
                "name": name,
                "spec": {"text": "x" * (3_000_000 if name == "huge" else 1)},
            }
        )
        for name in names_of
    ]
    started = await start_replicas(fleet.client, starts)
    assert list(started.refused) == ["huge"]
    assert started.conflicts == []
    found = await fleet.client.get_workflow_handle(
        names.workflow_id("ModelReplica", "ml", "small")
    ).describe()
    assert found.workflow_type == "ModelReplica"


async def test_an_object_starts_under_its_own_id_and_with_valid_arguments_or_fails(
    fleet: ProtocolFleet,
) -> None:
    for kind, workflow_id, arguments, message in REFUSED:
        assert (await refusal(fleet, kind, workflow_id, arguments)).startswith(
            message
        ), (kind, workflow_id, arguments)
    # The ids are free.
    await fleet.apply(a_deployment("chat", "ml"))
    handle = fleet.client.get_workflow_handle(DEPLOYMENT)
    assert (await handle.query("describe"))["metadata"]["name"] == "chat"


async def test_a_scheduler_with_unreadable_arguments_fails_and_the_next_one_starts(
    fleet: ProtocolFleet,
) -> None:
    for number, (arguments, message) in enumerate(OF_THE_SCHEDULER):
        assert (
            await refusal(fleet, "FleetScheduler", names.FLEET_SCHEDULER_ID, arguments)
        ).startswith(message)
        # Any message starts the next one.
        await fleet.apply(a_deployment(f"chat-{number}", NAMESPACE))
        await eventually(
            lambda: fleet.scheduler("describe"), bool, what="the next scheduler"
        )


async def test_a_signal_before_the_refusal_does_not_change_it(
    fleet: ProtocolFleet,
) -> None:
    """Nothing that remains makes Python warn in a later test."""
    signal = FleetSchedulerSignals.REPORT_CLUSTER.name
    for arguments, message in OF_THE_SCHEDULER:
        assert (
            await refusal(
                fleet, "FleetScheduler", names.FLEET_SCHEDULER_ID, arguments, signal
            )
        ).startswith(message)
    gc.collect()


@pytest.mark.parametrize("published", [[], 7, "Ready", {}], ids=str)
async def test_a_scheduler_runs_with_any_memo(
    fleet: ProtocolFleet, published: Any
) -> None:
    await fleet.client.start_workflow(
        "FleetScheduler",
        None,
        id=names.FLEET_SCHEDULER_ID,
        task_queue=queues.SCHEDULER,
        id_conflict_policy=WorkflowIDConflictPolicy.TERMINATE_EXISTING,
        memo={PUBLISHED_MEMO: published},
    )
    await eventually(
        lambda: fleet.scheduler("describe"),
        lambda seen: bool(seen) and seen["status"]["epoch"] > 0,
        what="the epoch",
    )
