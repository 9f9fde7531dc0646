"""Repairing a gateway that is not accepted, with the workflow outside Temporal."""

from datetime import datetime, timedelta

import pytest

from api_types.messages.gateway_work import InstallStepResult, ObservedGateway
from tests.workflows.environment.serverless import NOW, Serverless
from workflows.entity import backoff
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.workflow import (
    STEP_AT_LAST,
    STEP_CHECKS_FIRST,
    STEP_FIRST,
    STEP_LATER,
    InferenceGatewayWorkflow,
)

NOT_ACCEPTED = ObservedGateway(reachable=True, accepted=False, message="not accepted")


def a_gateway(**state: object) -> InferenceGatewayWorkflow:
    spec = {"backend": "Traefik", "traefik": {"version": "39.0.0"}}
    return InferenceGatewayWorkflow(
        GatewayState.model_validate(
            {"uid": "u", "spec": spec, "connected": True, **state}
        )
    )


@pytest.mark.parametrize(
    ("repairs", "pauses"),
    [
        (0, [STEP_LATER] * 6),
        (
            1,
            [
                STEP_LATER,
                2 * STEP_LATER,
                4 * STEP_LATER,
                8 * STEP_LATER,
                STEP_AT_LAST,
                STEP_AT_LAST,
            ],
        ),
    ],
    ids=["the first installation", "a repair"],
)
async def test_an_ineffective_repair_is_repeated_ever_more_rarely(
    monkeypatch: pytest.MonkeyPatch, repairs: int, pauses: list[timedelta]
) -> None:
    serverless = Serverless(monkeypatch, "inferencegateway/default")
    serverless.results["run_install_step"] = InstallStepResult(
        done=False, message="not accepted"
    )
    gateway, found = a_gateway(repairs=repairs), list[timedelta]()
    for _ in range(STEP_CHECKS_FIRST + len(pauses) - 1):
        assert not await gateway.install()
        due = datetime.fromisoformat(gateway.state.retry_at)
        found.append(due - serverless.now)
        serverless.now = due
    assert found == [STEP_FIRST] * (STEP_CHECKS_FIRST - 1) + pauses


def test_an_installed_gateway_that_is_not_accepted_is_repaired_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Serverless(monkeypatch, "inferencegateway/default")
    gateway = a_gateway(installed="d", observed=NOT_ACCEPTED)
    gateway.conclude()
    assert gateway.state.repair_at == (NOW + backoff.after_retries(0)).isoformat()
