"""The placement requests of a ModelDeployment."""

from collections.abc import Sequence
from typing import Any

from api_types.messages.scheduling import KnownReplica, PlacementRequest
from scheduler import to_wire
from scheduler.model.inputs import DeploymentView


def place(
    view: DeploymentView,
    number: int = 1,
    kept: Sequence[KnownReplica] = (),
    **more: Any,
) -> PlacementRequest:
    """Return the request of a deployment's first generation for all its replicas.

    `number` is the pass that sends it.
    """
    return PlacementRequest(
        request_id=f"{view.uid}/{number}",
        namespace=view.namespace,
        name=view.name,
        uid=view.uid,
        generation=1,
        wanted=view.replicas,
        need=to_wire(view),
        kept=list(kept),
        **more,
    )
