"""A deployment whose messages a test delivers and whose orders it reads, without a server."""

from datetime import UTC, datetime
from typing import Any

from api_types.messages.delivery import SignalRequest
from api_types.messages.scheduling import (
    PlacementResponse,
    ReplicaEviction,
    ReplicaPlacement,
)
from tests.api_types.builders import a_deployment
from workflows.entity.context import EntityContext
from workflows.model_deployment.controller import DeploymentController
from workflows.model_deployment.orders import (
    Order,
    SendDeploymentSignals,
    StartReplicaWorkflows,
)
from workflows.model_deployment.state import DeploymentState

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ENTRY = {
    "uid": "r",
    "state": "Reserved",
    "engines": [{"engine": "a", "members": [{"pool": "h100"}]}],
}
PLACEMENT = ReplicaPlacement(
    uid="r", name="qwen-0", cluster="eu", index=0, action="Create", entry=ENTRY
)
EVICTION = ReplicaEviction(uid="r", name="qwen-0", cluster="eu", reason="preempted")


def a_controller(**state: Any) -> DeploymentController:
    spec = a_deployment()["spec"]
    made = DeploymentState(
        **{
            "uid": "d",
            "generation": 1,
            "adopted": True,
            "spec": {"replicas": 1, **spec},
            **state,
        }
    )
    return DeploymentController(
        EntityContext(
            "ModelDeployment",
            made,
            lambda: None,
            "modeldeployment/ml/qwen",
            lambda: NOW,
        )
    )


def state_of(controller: DeploymentController) -> DeploymentState:
    return controller.replicas._context.state


def signals(orders: list[Order]) -> list[SignalRequest]:
    return [
        signal
        for order in orders
        if isinstance(order, SendDeploymentSignals)
        for signal in order.signals
    ]


def named(orders: list[Order], name: str) -> list[Any]:
    return [signal.payload for signal in signals(orders) if signal.signal == name]


def started(orders: list[Order]) -> list[str]:
    return [
        start.uid
        for order in orders
        if isinstance(order, StartReplicaWorkflows)
        for start in order.replicas
    ]


def answer(
    controller: DeploymentController, *placements: ReplicaPlacement
) -> PlacementResponse:
    return PlacementResponse(
        request_id=state_of(controller).request_id,
        epoch=1,
        generation=1,
        placements=list(placements),
    )
