"""Applies messages of deployment, watch and users to the state of a ModelReplica."""

from datetime import datetime

from api_types.clock import timestamp
from api_types.messages.entities import SecretsChanged, SetLabels, SetTemplate
from api_types.messages.observations import Observed
from workflows.model_replica.reducers.template import (
    apply_labels,
    apply_template,
    first_template,
)
from workflows.model_replica.state import ModelReplicaState, ReplicaReport


def start(state: ModelReplicaState) -> None:
    """Start with the argument of the workflow.

    A replica that ran before may have objects on its cluster and may have served: an
    apply takes them over, and a teardown searches for them.
    """
    state.uid, state.sequence = state.start.uid, state.start.first_sequence
    state.apply_started = state.served = state.start.restarted
    apply_template(state, first_template(state.start))


def set_template(state: ModelReplicaState, message: SetTemplate) -> bool:
    """Adopt a newer template; return False for an outdated one."""
    if not _is_meant(state, message.uid) or state.deleting:
        return False
    if (message.generation, message.sequence) < (
        state.generation,
        state.template_sequence,
    ):
        return False
    apply_template(state, message)
    return True


def set_labels(state: ModelReplicaState, message: SetLabels) -> bool:
    """Store users' labels and picker flags; return False for outdated ones."""
    if not _is_meant(state, message.uid) or message.sequence < state.template_sequence:
        return False
    apply_labels(state, message)
    return True


def observed(state: ModelReplicaState, message: Observed) -> bool:
    """Store an observation unless it is outdated; return whether it may change the next steps.

    Two InferenceClusters may have the same API server. Both observe the objects, and
    only the numbers of one can be compared.
    """
    if (
        message.owner_uid != state.uid
        or message.replica is None
        or message.order.cluster not in ("", state.start.cluster)
    ):
        return False
    version = state.observed_version.allowing(state.cluster_version.uid)
    if not version.accepts(message.order, state.cluster_version.uid):
        return False
    state.observed_version = version.advanced(message.order)
    state.observed = message.replica
    failure = state.teardown.failure if state.deleting else state.failure
    if failure.is_unreachable:
        # The cluster answers again, so failures to reach it need no backoff.
        state.retry_at = ""
    return failure.is_unreachable or not state.deleting


def secrets_changed(
    state: ModelReplicaState, message: SecretsChanged, now: datetime
) -> bool:
    """Schedule a comparison of Secret copies; return False if it does not concern this replica."""
    if not _is_meant(state, message.uid) or state.deleting:
        return False
    state.copies_due = timestamp(now)
    return True


def retry(state: ModelReplicaState, now: datetime) -> None:
    """Reset the backoffs, and schedule a comparison of Secret copies with their sources."""
    state.retry_at = ""
    state.copies_due = timestamp(now)
    state.prune_at, state.prune_attempts = "", 0


def repeat_reports(state: ModelReplicaState) -> None:
    """Report to the deployment again."""
    state.reported = ReplicaReport()


def _is_meant(state: ModelReplicaState, uid: str) -> bool:
    """Return whether a message of the deployment is for this uid and not for an earlier one."""
    return uid in ("", state.uid)
