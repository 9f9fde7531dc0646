"""Observations of the control cluster that a gateway stores, without a Temporal server."""

from typing import Any

import pytest

from api_types.messages.gateway_work import ControlObserved, ObservedGateway
from api_types.messages.routing import TimeoutSupport
from api_types.messages.versions import MessageVersion, ObservationVersion
from tests.workflows.environment.serverless import Serverless
from workflows.inference_gateway.state import GatewayState
from workflows.inference_gateway.workflow import InferenceGatewayWorkflow

BOTH = TimeoutSupport(request=True, backend_request=True)
SEEN = ObservedGateway(reachable=True, accepted=True, address="10.0.0.9", timeouts=BOTH)
LOST = ObservedGateway(reachable=False, error="connection refused")


def message(seen: ObservedGateway | None, **fields: Any) -> ControlObserved:
    order = {"owner_uid": "u", "gateway_uid": "g", "run": 2, "sequence": 5}
    return ControlObserved(gateway=seen, **{**order, **fields})


@pytest.mark.parametrize(
    ("before", "received", "stored", "connects", "events"),
    [
        (None, message(SEEN), SEEN, 0, []),
        (SEEN, message(None), SEEN, 0, []),
        (SEEN, message(LOST, owner_uid="another"), SEEN, 0, []),
        (SEEN, message(LOST, sequence=3), SEEN, 0, []),
        (SEEN, message(LOST, run=1), SEEN, 0, []),
        (
            SEEN,
            message(LOST),
            LOST.model_copy(update={"address": "10.0.0.9", "timeouts": BOTH}),
            0,
            ["ClusterUnreachable"],
        ),
        (None, message(LOST), LOST, 0, ["ClusterUnreachable"]),
        (LOST, message(LOST), LOST, 0, []),
        (LOST, message(SEEN), SEEN, 1, ["Connected"]),
        (
            SEEN,
            message(SEEN.model_copy(update={"address": "", "timeouts": None})),
            SEEN.model_copy(update={"address": ""}),
            0,
            [],
        ),
    ],
    ids=[
        "the first observation",
        "a message without a gateway",
        "a message for an earlier gateway of the name",
        "an older observation",
        "an observation of an earlier watch",
        "the address stays while the cluster does not answer",
        "unreachable from the beginning",
        "unreachable is recorded once",
        "the cluster answers again",
        "a watch that has not read the class keeps the timeouts",
    ],
)
def test_an_observation_of_the_control_cluster_is_stored(
    monkeypatch: pytest.MonkeyPatch,
    *,
    before: ObservedGateway | None,
    received: ControlObserved,
    stored: ObservedGateway,
    connects: int,
    events: list[str],
) -> None:
    Serverless(monkeypatch, "inferencegateway/default")
    gateway = InferenceGatewayWorkflow(
        GatewayState(uid="u", spec={"backend": "Traefik"})
    )
    newest = MessageVersion(uid="g", sequence=2)
    gateway.state.observed_version = ObservationVersion(run=newest, sequence=4)
    gateway.state.observed = before
    gateway.control_observed(received)
    recorded = [event.reason for event in gateway.state.events]
    assert (gateway.state.observed, gateway.state.connects, recorded) == (
        stored,
        connects,
        events,
    )
