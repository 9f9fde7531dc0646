"""A workflow survives every input, reports its refusals, and does not disturb its
neighbours.

The test takes workflow types and handlers from the registry, so it covers new types
without a change here. A fleet has an object of each type. Types without an object in
the deployment and its cluster are started without arguments.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

import pytest
from temporalio import workflow
from temporalio.api.enums.v1 import WorkflowTaskFailedCause
from temporalio.api.history.v1 import WorkflowTaskFailedEventAttributes
from temporalio.client import (
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowHistory,
    WorkflowQueryFailedError,
    WorkflowUpdateFailedError,
)
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from api_types import names, queues
from api_types.errors import QUERY_REFUSED
from api_types.messages.signals import receiver_of, signals_of
from api_types.payloads.limits import wire_size
from api_types.resources.kinds import BY_KIND
from tests.wire.inputs import LARGE, bad_inputs, raw
from tests.workflows.environment.harness import (
    ControlPlane,
    a_cache,
    a_deployment,
    eventually,
)
from tests.workflows.environment.replaying import replayer
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    simulated_plane,
)
from workflows.registry import SCHEDULER_WORKFLOWS, WORKFLOWS

pytestmark = pytest.mark.testbed("shared")

NAMESPACE = "ml"
# The repetition of the task. The task would have ended the run, and the next run
# receives the new signals.
ARRIVED_MEANWHILE = (
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_FORCE_CLOSE_COMMAND,
    WorkflowTaskFailedCause.WORKFLOW_TASK_FAILED_CAUSE_UNHANDLED_COMMAND,
)
# Kinds with a single object.
ONLY = {
    "InferenceGateway": "inferencegateway/default",
    "StackUpgrades": names.STACK_UPGRADES_ID,
}
ONLY["CloudCluster"] = names.cloud_cluster_id("stormy", "u")
ONLY["Redelivery"] = names.redelivery_id("modeldeployment/ml/stormy")
ANSWER_BYTES_MAX = 2**20
EVENT_BYTES_MAX = 1024
# Signals with one kind of mistake are sent together, within the server's limit of
# concurrent calls.
CALLS_AT_ONCE = 16
# These types get every mistake. The others share the code that reads messages
# (`test_handlers.py` tries every mistake with each of their handlers), so a few
# mistakes show that a real worker uses it.
IN_FULL = ("ModelDeployment", "FleetScheduler")
FEW = ("text", "an unknown encoding", "JSON cut off")
# Arguments that are no state. A start may have other JSON;
# `tests/workflows/entity/test_starts.py` covers it.
NO_JSON = [
    "bytes",
    "an unknown encoding",
    "no encoding",
    "encrypted, without the key",
    "marked as unreadable",
    "protobuf that is none",
    "JSON cut off",
    "invalid UTF-8",
    "a lone surrogate",
    "nested",
]


@pytest.fixture(scope="module")
async def plane() -> AsyncIterator[ControlPlane]:
    async with simulated_plane() as plane:
        for name in ("stormy", "calm"):
            await plane.apply(a_class(f"{name}-8x"))
            await plane.apply(a_cluster(name, class_name=f"{name}-8x"))
            await plane.ready("InferenceCluster", name)
            await plane.apply(a_cache(name, NAMESPACE, "org/model"))
            await plane.ready("ModelCache", name, NAMESPACE)
            await plane.apply(
                a_deployment(name, NAMESPACE, clusterSelector={"matchLabels": {}})
            )
            await plane.ready("ModelDeployment", name, NAMESPACE)
        yield plane


async def one_of(plane: ControlPlane, kind: str, name: str) -> str:
    """Return the workflow id of the object of a kind; a missing kind gets a new id."""
    for known in (
        names.FLEET_SCHEDULER_ID,
        *(
            names.workflow_id(kind, scope, full)
            for scope in ("", NAMESPACE)
            for full in _called(name)
        ),
    ):
        if known.partition("/")[0] == kind.lower() and await _runs(
            plane.client.get_workflow_handle(known)
        ):
            return known
    if kind == "ModelReplica":
        # After a message of another test, the scheduler may have placed its replica
        # again.
        seen = await plane.until(
            "ModelDeployment",
            name,
            lambda tree: len(tree["status"].get("placements", ())) == 1,
            NAMESPACE,
        )
        (placement,) = seen["status"]["placements"]
        return names.workflow_id(kind, NAMESPACE, placement["replica"])
    workflow_id = ONLY.get(kind) or names.workflow_id(
        kind, NAMESPACE if _is_namespaced(kind) else "", name
    )
    if await _runs(plane.client.get_workflow_handle(workflow_id)):
        return workflow_id
    await plane.client.start_workflow(
        kind, None, id=workflow_id, task_queue=queues.WORKFLOWS
    )
    return workflow_id


def mistakes_for(kind: Any) -> dict[str, list[RawValue]]:
    """Return the inputs that a type of workflow receives, by the mistake in them."""
    return {
        mistake: each
        for mistake, each in bad_inputs(None).items()
        if kind.kind in IN_FULL or mistake in FEW
    }


def _called(name: str) -> tuple[str, ...]:
    return name, f"{name}-8x"


async def _runs(handle: WorkflowHandle[Any, Any]) -> bool:
    try:
        return (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
    except RPCError as error:
        if error.status is RPCStatusCode.NOT_FOUND:
            return False
        raise


async def described(handle: WorkflowHandle[Any, Any]) -> Any:
    seen = await handle.query("describe")
    assert wire_size(seen) < ANSWER_BYTES_MAX
    return seen


def events_of(seen: Any) -> list[dict[str, Any]]:
    return list(seen["status"].get("events", ()))


def counted(seen: Any) -> list[tuple[str, str, int]]:
    """Return events without times: a repeated task is a little later."""
    return [
        (event["reason"], event["message"], event["count"]) for event in events_of(seen)
    ]


def refusals(seen: Any) -> list[str]:
    return [
        event["message"]
        for event in events_of(seen)
        if event["reason"] == "MalformedMessage"
    ]


async def together(calls: Iterable[Any]) -> list[Any]:
    slots = asyncio.Semaphore(CALLS_AT_ONCE)

    async def one(call: Any) -> Any:
        async with slots:
            return await call

    return await asyncio.gather(*map(one, calls))


async def histories(plane: ControlPlane, workflow_id: str) -> list[WorkflowHistory]:
    """Return every run of an object."""
    runs = [
        run
        async for run in plane.client.list_workflows(f'WorkflowId = "{workflow_id}"')
    ]
    found = [
        await plane.client.get_workflow_handle(
            run.id, run_id=run.run_id
        ).fetch_history()
        for run in runs
    ]
    assert found
    return found


async def assert_sound(plane: ControlPlane, workflow_id: str) -> None:
    """Check that the workflow runs and none of its tasks failed."""
    handle = plane.client.get_workflow_handle(workflow_id)
    assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING, [
        each async for each in handle.fetch_history_events()
    ][-3:]
    for history in await histories(plane, workflow_id):
        failures = [
            event.workflow_task_failed_event_attributes for event in history.events
        ]
        assert [
            each for each in failures if each.cause and not _is_no_failure(each)
        ] == []


def _is_no_failure(task: WorkflowTaskFailedEventAttributes) -> bool:
    """Return whether a new event or a late query ended the task, and not a defect."""
    return task.cause in ARRIVED_MEANWHILE or task.failure.message == QUERY_REFUSED


@pytest.mark.parametrize("kind", WORKFLOWS, ids=lambda kind: kind.kind)
async def test_no_signal_stops_a_workflow(plane: ControlPlane, kind: Any) -> None:
    workflow_id = await one_of(plane, kind.kind, "stormy")
    calm = await one_of(plane, kind.kind, "calm")
    handle, neighbour = (
        plane.client.get_workflow_handle(workflow_id),
        plane.client.get_workflow_handle(calm),
    )
    before = events_of(await described(neighbour))
    definition = workflow._Definition.must_from_class(kind)
    models = {name: _model_of(kind, str(name)) for name in definition.signals}

    inputs = {str(name): bad_inputs(model) for name, model in models.items()}
    for mistake in mistakes_for(kind):
        receivers = list(inputs)[:1] if mistake in LARGE else list(inputs)
        await together(
            handle.signal(name, args=inputs[name][mistake]) for name in receivers
        )

    async def after_one_more() -> Any:
        # The scheduler reads most messages later, so the refusals may come in another
        # order.
        await handle.signal(
            next(iter(inputs)), args=[raw(b"", {"encoding": b"the/last"})]
        )
        return await described(handle)

    seen = await eventually(
        after_one_more,
        lambda seen: "the/last" in "".join(refusals(seen)),
        what=f"a refusal of {workflow_id}",
    )
    assert all(len(text.encode()) <= EVENT_BYTES_MAX for text in refusals(seen))
    if calm != workflow_id:
        assert events_of(await described(neighbour)) == before
    await assert_sound(plane, workflow_id)


def _model_of(kind: Any, signal: str) -> Any:
    return signals_of(receiver_of(kind.kind))[signal].message


@pytest.mark.parametrize("kind", WORKFLOWS, ids=lambda kind: kind.kind)
async def test_a_query_or_update_that_cannot_be_read_is_answered_in_words(
    plane: ControlPlane, kind: Any
) -> None:
    workflow_id = await one_of(plane, kind.kind, "calm")
    handle = plane.client.get_workflow_handle(workflow_id)
    before = counted(await described(handle))
    definition = workflow._Definition.must_from_class(kind)
    queries = [
        str(name) for name in definition.queries if not str(name).startswith("__")
    ]

    async def outcome(call: Any) -> str:
        try:
            await call
        except (WorkflowQueryFailedError, WorkflowUpdateFailedError) as error:
            return str(error.cause or error) or "without a word"
        return ""

    for mistake, arguments in mistakes_for(kind).items():
        # One of them is read completely, so the others are small.
        if mistake in LARGE:
            queries = queries[:1]
        for said in await together(
            outcome(handle.query(name, args=arguments)) for name in queries
        ):
            assert len(said) <= EVENT_BYTES_MAX, (mistake, said[:200])
            assert said != "without a word"
        for said in await together(
            outcome(handle.execute_update(str(name), args=arguments))
            for name in definition.updates
        ):
            assert 0 < len(said) <= EVENT_BYTES_MAX, (mistake, said[:200])
            assert said != "without a word"
    assert counted(await described(handle)) == before
    await assert_sound(plane, workflow_id)


@pytest.mark.parametrize("kind", WORKFLOWS, ids=lambda kind: kind.kind)
async def test_a_cancelled_workflow_goes_on_and_says_that_this_deletes_nothing(
    plane: ControlPlane, kind: Any
) -> None:
    workflow_id = await one_of(plane, kind.kind, "stormy")
    handle = plane.client.get_workflow_handle(workflow_id)
    await handle.cancel()

    async def reasons() -> list[str]:
        return [event["reason"] for event in events_of(await described(handle))]

    await eventually(
        reasons,
        lambda seen: "CancelRefused" in seen,
        what=f"the event of {workflow_id}",
    )
    await assert_sound(plane, workflow_id)


async def test_after_all_of_it_proper_changes_work(plane: ControlPlane) -> None:
    # Other tests may follow in any order and expect one replica.
    for count in (2, 1):
        await plane.scale("stormy", NAMESPACE, count)
        await plane.until(
            "ModelDeployment", "stormy", partial(_has_ready, count), NAMESPACE
        )
    await plane.apply(a_deployment("later", NAMESPACE))
    await plane.ready("ModelDeployment", "later", NAMESPACE)
    await plane.delete("ModelDeployment", "later", NAMESPACE)
    await plane.gone("ModelDeployment", "later", NAMESPACE)


def _has_ready(count: int, seen: Any) -> bool:
    return bool(seen["status"]["replicas"] == {"total": count, "ready": count})


@pytest.mark.parametrize("kind", WORKFLOWS, ids=lambda kind: kind.kind)
async def test_a_start_that_cannot_be_read_fails_at_once_and_leaves_the_id(
    plane: ControlPlane, kind: Any
) -> None:
    if kind in SCHEDULER_WORKFLOWS:
        return
    mistakes = {
        mistake: each
        for mistake, each in mistakes_for(kind).items()
        if mistake in NO_JSON
    }
    for number, (mistake, arguments) in enumerate(mistakes.items()):
        workflow_id = names.workflow_id(
            kind.kind, NAMESPACE if _is_namespaced(kind.kind) else "", f"wrong-{number}"
        )
        handle = await plane.client.start_workflow(
            kind.kind, args=arguments, id=workflow_id, task_queue=queues.WORKFLOWS
        )
        async with asyncio.timeout(30):
            with pytest.raises(WorkflowFailureError) as failed:
                await handle.result()
        cause = failed.value.cause
        assert isinstance(cause, ApplicationError), mistake
        assert (cause.type, len(cause.message) < EVENT_BYTES_MAX) == (
            "InvalidInput",
            True,
        ), mistake


def _is_namespaced(kind: str) -> bool:
    return kind in BY_KIND and BY_KIND[kind].namespaced


async def test_in_the_end_every_history_is_replayed(plane: ControlPlane) -> None:
    # A replay in the workers' process evicts the running scheduler, so this test is the
    # last.
    ours = ", ".join(f'"{kind.kind}"' for kind in WORKFLOWS)
    replayed = 0
    async for run in plane.client.list_workflows(
        f'WorkflowType IN ({ours}) AND ExecutionStatus != "Failed"'
    ):
        await replayer().replay_workflow(
            await plane.client.get_workflow_handle(
                run.id, run_id=run.run_id
            ).fetch_history()
        )
        replayed += 1
    assert replayed > len(WORKFLOWS)
