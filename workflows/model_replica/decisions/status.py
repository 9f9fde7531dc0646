"""Phase, endpoint and status of a ModelReplica, and its reports. Pure."""

from typing import Any

from api_types.messages.scheduling import ReplicaAccount
from api_types.payloads.limits import shortened
from workflows.entity.conditions import TRUE, condition_of, is_true
from workflows.model_replica.decisions.cache import cache_status
from workflows.model_replica.decisions.cluster import is_unreachable
from workflows.model_replica.decisions.observation import endpoint_url, observed_status
from workflows.model_replica.state import ModelReplicaState, ReplicaReport


def is_serving(state: ModelReplicaState) -> bool:
    """Return whether new requests may arrive: pods serve and no apply replaces them soon."""
    return state.serving and not state.drain_until


def endpoint(state: ModelReplicaState) -> str:
    """Return the replica's address; empty while it must not be used."""
    facts = state.cluster.facts if state.cluster else None
    if not (is_serving(state) and facts and facts.gateway_address) or state.deleting:
        return ""
    return endpoint_url(
        facts.gateway_address,
        state.start.namespace,
        state.start.name,
        facts.gateway_scheme,
    )


def detailed_phase(state: ModelReplicaState) -> str:
    """Return the replica's own phase, which is finer than the shared phases."""
    if state.deleting:
        return "Unreachable" if state.teardown.failure.is_unreachable else "Terminating"
    if state.failure.type in ("InvalidInput", "NameConflict") and not state.was_ready:
        return "Failed"
    if is_unreachable(state):
        return "Unreachable"
    if is_true(state.conditions, "Ready"):
        return "Ready"
    if state.applied is None:
        return "Applying" if state.apply_started else "Pending"
    if state.was_ready:
        return (
            "Updating"
            if state.prune or state.applied_generation != state.generation
            else "Degraded"
        )
    return "Starting"


def shared_phase(state: ModelReplicaState) -> str:
    """Map the finer phase to the shared ones."""
    if state.deleting:
        return "Deleting"
    shared = {
        "Ready": "Ready",
        "Failed": "Failed",
        "Pending": "Pending",
        "Degraded": "Degraded",
        "Unreachable": "Degraded",
    }
    return shared.get(detailed_phase(state), "Progressing")


def status_of(state: ModelReplicaState) -> dict[str, Any]:
    """Return status fields for engines, routing, inventory, cache and teardown."""
    status: dict[str, Any] = {"phase": detailed_phase(state)}
    if state.deleting:
        status["teardown"] = state.teardown.shown()
    if state.applied is None:
        return status
    if state.applied_inputs and state.applied_inputs.adoption:
        status["adoption"] = state.applied_inputs.adoption
    return (
        status
        | observed_status(state.applied, state.observed, endpoint(state))
        | cache_status(state)
    )


# A deployment stores and shows the messages of up to a thousand replicas. The replica
# itself has the full message.
REPORT_MESSAGE_MAX = 200


def report_of(state: ModelReplicaState) -> ReplicaReport:
    """Return the report to the deployment."""
    ready, applied = condition_of(state.conditions, "Ready"), state.applied
    return ReplicaReport(
        ready=ready is not None and ready.status == TRUE,
        serving=is_serving(state),
        endpoint=endpoint(state),
        phase="Terminating" if state.deleting else detailed_phase(state),
        generation=state.applied_generation,
        pending=", ".join(applied.pending_causes) if applied else "",
        adopting=bool(applied and applied.adopting),
        adoption=state.applied_inputs.adoption if state.applied_inputs else 0,
        message=shortened(
            state.teardown.message()
            if state.deleting
            else (ready.message if ready else ""),
            REPORT_MESSAGE_MAX,
        ),
    )


def account_of(state: ModelReplicaState, *, gone: bool) -> ReplicaAccount:
    """Return the account of the replica for scheduler and deployment."""
    start = state.start
    return ReplicaAccount(
        uid=state.uid,
        namespace=start.namespace,
        deployment=start.deployment,
        name=start.name,
        cluster=start.cluster,
        index=start.index,
        generation=state.generation,
        template_sequence=state.template_sequence,
        entry=state.entry,
        ready=is_true(state.conditions, "Ready"),
        serving=is_serving(state),
        deleting=state.deleting,
        gone=gone,
    )
