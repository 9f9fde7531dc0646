"""A worker rejects the argument of an activity, like one of an older release during an upgrade.

No workflow ends. These tests use a real server.
"""

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from temporalio import activity

from activities import arguments
from api_types import names
from api_types.errors import InvalidInput
from tests.workflows.environment.harness import (
    a_deployment,
    condition,
    eventually,
    message,
)
from tests.workflows.environment.protocol_fleet import (
    NAMESPACE,
    ProtocolFleet,
    ReportedCluster,
    protocol_fleet,
)
from workflows.entity import backoff

pytestmark = pytest.mark.testbed("shared")

REFUSED = "argument 1: later_field: is not known"


class OldWorker:
    """Reject the first call of each non-local activity by each kind of workflow.

    A `blocked` activity is rejected until it is unblocked.
    """

    def __init__(self) -> None:
        self.refused = Counter[str]()
        self.blocked: set[str] = set()

    def check(self, info: activity.Info) -> None:
        """Check a call. Raise InvalidInput to reject it."""
        name, call = info.activity_type, f"{info.workflow_type}/{info.activity_type}"
        if not info.is_local and (name in self.blocked or not self.refused[call]):
            self.refused[call] += 1
            raise InvalidInput(f"{name}: {REFUSED}")


@pytest.fixture
def old_worker(monkeypatch: pytest.MonkeyPatch) -> OldWorker:
    """Install the check before the check of arguments."""
    worker, check = OldWorker(), arguments._Check.execute_activity

    async def execute(self: Any, call: Any) -> Any:
        worker.check(activity.info())
        return await check(self, call)

    monkeypatch.setattr(arguments._Check, "execute_activity", execute)
    monkeypatch.setattr(backoff, "_TRANSIENT_SECONDS", (1, 1))
    return worker


@pytest.fixture
async def fleet(old_worker: OldWorker) -> AsyncIterator[ProtocolFleet]:
    assert not old_worker.refused
    async with protocol_fleet(clients=1) as fleet:
        await fleet.add([ReportedCluster("eu", {"h100": 4})])
        yield fleet


async def ended(fleet: ProtocolFleet) -> list[str]:
    """Return the workflows that have ended."""
    ends = fleet.client.list_workflows(
        'ExecutionStatus != "Running" AND ExecutionStatus != "ContinuedAsNew"'
    )
    return [f"{each.id}: {each.status}" async for each in ends]


async def test_an_object_reports_the_refused_call_until_the_worker_accepts_it(
    fleet: ProtocolFleet, old_worker: OldWorker
) -> None:
    old_worker.blocked = {"start_replicas"}
    await fleet.apply(a_deployment("chat", NAMESPACE))

    async def seen() -> Any:
        return await fleet.describe("chat") or {}

    shown = await eventually(
        seen,
        lambda shown: condition(shown, "CallsAccepted") == "False",
        what="the refusal",
    )
    assert (
        f"start_replicas: {REFUSED}. The call is retried; upgrade the workers that serve modelplane"
        in message(shown, "CallsAccepted")
    )
    waiting = await fleet.client.get_workflow_handle(
        names.workflow_id("ModelDeployment", NAMESPACE, "chat")
    ).query("waiting")
    assert any(line.startswith("CallsAccepted: CallRefused") for line in waiting), (
        waiting
    )
    old_worker.blocked = set()
    await eventually(
        seen,
        lambda shown: condition(shown, "CallsAccepted") == "",
        what="the end of the refusal",
    )
    await eventually(
        lambda: fleet.running("ModelReplica"),
        lambda count: count == 1,
        what="the replica",
    )
    assert await ended(fleet) == []
    # The scheduler repeated its answering call too, because the replica was placed.
    expected = {"FleetScheduler/tell_many", "ModelDeployment/start_replicas"}
    assert expected <= set(old_worker.refused)
    # It keeps the last few refusals. Which ones these are depends on the load.
    events = (await fleet.scheduler("describe"))["status"]["events"]
    assert "CallRefused" in {event["reason"] for event in events}
