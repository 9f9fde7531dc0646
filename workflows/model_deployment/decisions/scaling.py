"""The replica count: its writers, and the effect of a newly applied spec.

The functions change the given state. They do no I/O and read no clock.
"""

from typing import Any

from api_types.limits import REPLICAS_MAX
from api_types.messages.entities import Scale
from api_types.resources.status import LastScale
from workflows.model_deployment.revisions import remember
from workflows.model_deployment.state import DeploymentState


def scale_problem(state: DeploymentState, message: Scale) -> str:
    """Return why an ordered count is refused; empty if it is accepted."""
    count = message.replicas
    if isinstance(count, bool) or not isinstance(count, int):
        return f"spec.replicas: must be a whole number between 0 and {REPLICAS_MAX}, got {count!r}"
    if not 0 <= count <= REPLICAS_MAX:
        return f"spec.replicas: must be between 0 and {REPLICAS_MAX}, got {count!r}"
    if state.deleting or state.spec is None:
        return (
            "the deployment is being deleted"
            if state.deleting
            else "there is no spec yet"
        )
    return ""


def record_applied_replicas(
    state: DeploymentState, spec: dict[str, Any], now: str
) -> dict[str, Any]:
    """Record the count of an applied spec; return the spec with the count in force.

    The count of an autoscaler stays in force unless the applied count is new.
    """
    applied = spec["replicas"]
    count = applied
    if state.spec is not None and applied == state.applied_replicas:
        count = state.spec["replicas"]
    elif state.spec is not None:
        state.last_scale = LastScale(replicas=applied, by="apply", at=now)
    state.applied_replicas = applied
    return {**spec, "replicas": count}


def record_revision(state: DeploymentState, spec: dict[str, Any], now: str) -> None:
    """Keep the template that an applied spec replaces, for rollbacks."""
    before = state.spec
    if before is not None and before["template"]["spec"] == spec["template"]["spec"]:
        return
    if before is not None:
        state.revisions = remember(
            state.revisions, state.template_generation, before["template"]["spec"], now
        )
    state.template_generation = state.generation + 1
