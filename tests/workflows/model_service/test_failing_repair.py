"""A service whose route others have changed, and whose control cluster rejects writes for long.

The workflow runs outside Temporal.
"""

from datetime import datetime, timedelta
from typing import Any

import pytest
from temporalio import workflow
from temporalio.exceptions import ApplicationError

from api_types.messages.gateway_work import AppliedRoute, ObservedServiceRoute
from api_types.messages.routing import EntryEndpoints, GatewayChanged, ServiceEndpoints
from tests.workflows.environment.serverless import NOW, Serverless, an_activity_error
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.model_service import decisions
from workflows.model_service.state import ServiceState
from workflows.model_service.workflow import ModelServiceWorkflow

PASSES_MAX = 20
APPLIED, CHANGED = (
    AppliedRoute(name="r", generation=1, digest="d"),
    ObservedServiceRoute(present=True, generation=2, digest="other"),
)


class ControlCluster:
    """Reject or accept routes. `attempts` has the times of the applies."""

    def __init__(self, serverless: Serverless) -> None:
        self.serverless = serverless
        self.refuses = True
        self.attempts: list[datetime] = []

    async def execute(self, *_: object, **__: object) -> AppliedRoute:
        self.attempts.append(self.serverless.now)
        self.serverless.now += timedelta(seconds=3)
        if not self.refuses:
            return APPLIED.model_copy(update={"digest": CHANGED.digest})
        raise an_activity_error() from ApplicationError(
            "no answer", type="ClusterUnreachable"
        )


async def passes_of_one_task(service: ModelServiceWorkflow) -> None:
    service.context.requeue_time = None
    for _ in range(PASSES_MAX):
        service.context.queued = False
        await service.route.bring()
        if not service.context.queued:
            return
    pytest.fail(
        f"passes without a wait, {service.context.moment() - NOW} after the change"
    )


async def test_a_repair_that_keeps_failing_ends_its_passes_and_resumes_on_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    serverless = Serverless(monkeypatch, "modelservice/ml/qwen")
    control = ControlCluster(serverless)
    monkeypatch.setattr(workflow, "execute_activity_method", control.execute)
    state: Any = ServiceState(
        uid="u",
        spec={"endpoints": [{"selector": {"matchLabels": {}}}]},
        gateway=FollowedGateway(
            registered=True,
            known=GatewayChanged(
                uid="g", sequence=1, connected=True, address="10.0.0.1"
            ),
        ),
        selected=ServiceEndpoints(
            uid="u", sequence=1, version=1, entries=[EntryEndpoints(matched=1, ready=1)]
        ),
        report_sequence=1,
        applied=APPLIED,
        observed=CHANGED,
    )
    wanted = decisions.wanted_route(state, "ml", "qwen")
    assert wanted
    state.applied_digest = state.attempted_digest = wanted.digest
    service = ModelServiceWorkflow(state)
    while serverless.now < NOW + timedelta(minutes=20):
        await passes_of_one_task(service)
        assert service.context.requeue_time
        serverless.now = max(serverless.now, service.context.requeue_time)
    detected = sum(
        event.count for event in service.state.events if event.reason == "DriftDetected"
    )
    assert detected == len(control.attempts)
    control.refuses = False
    await passes_of_one_task(service)
    assert (
        service.context.requeue_time is None
        or service.context.requeue_time >= serverless.now
    )
    assert not service.state.failure.type
    assert not service.state.drift_since
