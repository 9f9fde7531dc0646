"""The orders of an InferenceGateway, without Temporal."""

import asyncio
from typing import Any

import pytest

from api_types.messages.delivery import SignalBatchResult
from api_types.messages.gateway_work import (
    GatewayFacts,
    InstallStep,
    ObservedGateway,
    RunInstallStep,
)
from tests.workflows.environment.serverless import Serverless
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow

LONG = "9" * 300


@pytest.mark.parametrize(
    "traefik",
    [
        {"version": LONG, "loadBalancer": "MetalLB", "metallb": {"addressPool": LONG}},
        {"version": None},
        None,
    ],
)
def test_every_previously_accepted_spec_can_be_ordered(traefik: Any) -> None:
    # An order that cannot be constructed fails the workflow task again and again.
    state = GatewayState(uid="g", spec={"backend": "Traefik", "traefik": traefik})
    order = RunInstallStep(
        uid="g",
        step="traefik",
        traefik_version=state.chart_version,
        address_pool=state.address_pool,
    )
    assert len(order.traefik_version) <= 253


@pytest.mark.parametrize(
    ("spec", "backend", "isolates"),
    [
        ({"backend": "Traefik", "traefik": {"version": "39.0.0"}}, "Traefik", False),
        ({"backend": "Traefik", "traefik": {"version": "41.0.2"}}, "Traefik", True),
        ({"backend": "Envoy"}, "Envoy", True),
        ({"backend": "Envoy", "envoy": {"version": "v1.8.0"}}, "Envoy", True),
    ],
)
def test_services_and_endpoints_learn_the_backend(
    monkeypatch: pytest.MonkeyPatch, *, spec: Any, backend: str, isolates: bool
) -> None:
    Serverless(monkeypatch, "inferencegateway/default")
    gateway = InferenceGatewayWorkflow(GatewayState(uid="u", spec=spec))
    report = gateway._report()
    assert (report.backend, report.isolates_backends) == (backend, isolates)


@pytest.mark.parametrize("connects", [0, 1])
def test_a_gateway_whose_deletion_waits_for_services_stays_watched(
    monkeypatch: pytest.MonkeyPatch, connects: int
) -> None:
    """A run that continues as new during the wait has to start the watch again."""
    temporal = Serverless(monkeypatch, "inferencegateway/default")
    temporal.results = {"broadcast": None}
    state = GatewayState(
        uid="u",
        deletion_timestamp="2026-01-01T00:00:00Z",
        users=["modelservice/ml/talk"],
        connects=connects,
        connected=bool(connects),
    )
    gateway = InferenceGatewayWorkflow(state)
    started: list[str] = []
    monkeypatch.setattr(
        gateway.watch, "ensure_running", lambda: started.append("watch")
    )
    assert not asyncio.run(gateway.tear_down())
    assert started == ["watch"] * connects


def test_services_of_a_gateway_under_deletion_learn_of_its_control_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencegateway/default")
    temporal.results = {"signal_many": SignalBatchResult()}
    gateway = InferenceGatewayWorkflow(
        GatewayState(
            uid="u",
            deletion_timestamp="2026-01-01T00:00:00Z",
            users=["modelservice/ml/talk"],
            reported="an earlier state",
            connects=1,
            connected=True,
        )
    )
    monkeypatch.setattr(gateway.watch, "ensure_running", lambda: None)

    def reports() -> list[bool]:
        temporal.executed.clear()
        assert not asyncio.run(gateway.tear_down())
        batches = [batch for _, batch in temporal.executed]
        return [one.payload["connected"] for batch in batches for one in batch.signals]

    silent = {"reachable": False, "error": "no answer"}
    assert [reports(), reports()] == [[True], []]
    gateway.state.observed = ObservedGateway(**silent)
    assert [reports(), reports()] == [[False], []]
    gateway.state.observed = ObservedGateway(reachable=True)
    assert [reports(), reports()] == [[True], []]


def test_a_gateway_that_was_reset_in_its_deletion_connects_while_services_use_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    temporal = Serverless(monkeypatch, "inferencegateway/default")
    temporal.results = {
        "connect_gateway": GatewayFacts(kubernetes_version="1.35.4"),
        "broadcast": None,
        "signal_many": SignalBatchResult(),
    }
    gateway = InferenceGatewayWorkflow(
        GatewayState(
            uid="u",
            deletion_timestamp="2026-01-01T00:00:00Z",
            users=["modelservice/ml/talk"],
        )
    )
    monkeypatch.setattr(gateway.watch, "ensure_running", lambda: None)
    assert not asyncio.run(gateway.tear_down())
    assert not gateway.state.connected
    for learn in temporal.seeded:
        learn(1)
    assert not asyncio.run(gateway.tear_down())
    assert gateway.state.connected


@pytest.mark.parametrize(
    ("reset", "taken", "of_predecessors"),
    [
        (False, ["gateway"], False),
        (True, ["gateway"], True),
        # Its installation would have taken over the part of a terminated gateway.
        (False, [], True),
    ],
)
def test_a_gateway_removes_the_parts_that_it_does_not_know(
    taken: list[InstallStep], *, reset: bool, of_predecessors: bool
) -> None:
    state = GatewayState(
        uid="u", spec={"backend": "Traefik"}, reset=reset, taken_steps=taken
    )
    order = state.install_order("gateway", remove=True)
    assert order.of_predecessors == of_predecessors
    assert not state.install_order("gateway", remove=False).of_predecessors
