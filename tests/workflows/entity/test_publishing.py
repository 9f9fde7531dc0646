"""The search attributes and memo of an entity, and how often they are written."""

from collections.abc import AsyncIterator, Mapping
from functools import partial

import pytest
from temporalio.api.common.v1 import Payload
from temporalio.client import Client, WorkflowHandle

from activities.messaging.search_attributes import PHASE, READY, VERSION
from api_types import names
from api_types.clock import utc_now
from tests.environment.waiting import TIMEOUT_SECONDS
from tests.workflows.environment.harness import a_deployment, eventually
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ReportedCluster,
    protocol_fleet,
)
from workflows.entity.context import microseconds

pytestmark = [pytest.mark.slow, pytest.mark.testbed("shared")]


async def test_each_change_is_written_to_visibility_once_and_initial_values_are_not_repeated() -> (
    None
):
    started = microseconds(utc_now())
    async with protocol_fleet(clients=1) as fleet:
        await fleet.add([ReportedCluster("eu", {"blue": 1})])
        await fleet.apply(a_deployment("chat", NAMESPACE, replicas=1))
        (replica,) = await eventually(
            lambda: _of_kind(fleet.client, "ModelReplica"),
            bool,
            within=TIMEOUT_SECONDS,
            what="a replica",
        )
        deployment = fleet.client.get_workflow_handle(
            names.workflow_id("ModelDeployment", NAMESPACE, "chat")
        )
        for handle in (deployment, fleet.client.get_workflow_handle(replica)):
            await eventually(
                partial(_tasks, handle),
                bool,
                within=TIMEOUT_SECONDS,
                what="a workflow task",
            )
            assert await _written(handle) == 0
            seen = (await handle.describe()).typed_search_attributes
            shown = await handle.query("describe")
            ready = next(
                condition
                for condition in shown["status"]["conditions"]
                if condition["type"] == "Ready"
            )
            assert (seen.get(PHASE), seen.get(READY)) == (
                shown["status"]["phase"],
                ready["status"],
            )

        # A rejected spec has another phase.
        await fleet.apply(
            {
                "metadata": {"name": "refused", "namespace": NAMESPACE},
                "kind": "ModelDeployment",
                "spec": {},
            }
        )
        refused = fleet.client.get_workflow_handle(
            names.workflow_id("ModelDeployment", NAMESPACE, "refused")
        )
        await eventually(
            partial(_written, refused),
            bool,
            within=TIMEOUT_SECONDS,
            what="search attributes",
        )
        assert (await refused.describe()).typed_search_attributes.get(
            PHASE
        ) == "Pending"

        # Each version of an object is written to visibility once.
        async def published() -> int | None:
            seen = (await deployment.describe()).typed_search_attributes
            shown = await deployment.query("describe")
            version = int(shown["metadata"]["resourceVersion"])
            return version if seen.get(VERSION) == version else None

        before = await eventually(
            published, bool, within=TIMEOUT_SECONDS, what="the version"
        )
        await deployment.signal("scale", {"replicas": 2, "requestId": "more"})
        await eventually(
            published,
            lambda version: (version or 0) > before,
            within=TIMEOUT_SECONDS,
            what="the next version",
        )
        # It is the time of the change, so the times of all objects can be compared.
        assert before >= started
        versions = [
            names[VERSION.name].data
            async for names in _indexed(deployment)
            if VERSION.name in names
        ]
        assert len(versions) == len(set(versions))


async def _of_kind(client: Client, kind: str) -> list[str]:
    return [row.id async for row in client.list_workflows(f'WorkflowType = "{kind}"')]


async def _tasks(handle: "WorkflowHandle[object, object]") -> int:
    return [
        event.HasField("workflow_task_completed_event_attributes")
        async for event in handle.fetch_history_events()
    ].count(True)


async def _written(handle: "WorkflowHandle[object, object]") -> int:
    """Return how often phase and readiness were written."""
    return len([names async for names in _indexed(handle) if PHASE.name in names])


async def _indexed(
    handle: "WorkflowHandle[object, object]",
) -> AsyncIterator[Mapping[str, Payload]]:
    async for event in handle.fetch_history_events():
        if event.HasField("upsert_workflow_search_attributes_event_attributes"):
            upserted = event.upsert_workflow_search_attributes_event_attributes
            yield upserted.search_attributes.indexed_fields
