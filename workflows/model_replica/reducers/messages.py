"""How the messages of its deployment, of its cluster's watch and of users change a ModelReplica."""

from datetime import datetime

from api_types.clock import timestamp
from api_types.messages.entities import SecretsChanged, SetLabels, SetTemplate
from api_types.messages.observations import Observed
from workflows.model_replica.reducers.template import apply_labels, apply_template, first_template
from workflows.model_replica.state import ModelReplicaState, ReplicaReport


def start(state: ModelReplicaState) -> None:
    """Begin with what the start argument says.

    A replica that ran before may have anything on its cluster, and may have served: an apply takes that over, a teardown searches for it.
    """
    state.uid, state.sequence = state.start.uid, state.start.first_sequence
    state.apply_started = state.served = state.start.restarted
    apply_template(state, first_template(state.start))


def set_template(state: ModelReplicaState, message: SetTemplate) -> bool:
    """Adopt a newer template; False if there is nothing to adopt."""
    if not _is_meant(state, message.uid) or state.deleting:
        return False
    if (message.generation, message.sequence) < (state.generation, state.template_sequence):
        return False
    apply_template(state, message)
    return True


def set_labels(state: ModelReplicaState, message: SetLabels) -> bool:
    """Follow labels of users, and flags of the endpoint picker; False if they are old, or for another replica of this name."""
    if not _is_meant(state, message.uid) or message.sequence < state.template_sequence:
        return False
    apply_labels(state, message)
    return True


def observed(state: ModelReplicaState, message: Observed) -> bool:
    """Store what the watch of the cluster saw of this replica's objects, unless it is old; True if that may change what is done next.

    Two InferenceClusters may have the same API server. Both see the objects, and the numbers of only one can be followed.
    """
    if message.owner_uid != state.uid or message.replica is None or message.order.cluster not in ("", state.start.cluster):
        return False
    version = state.observed_version.allowing(state.cluster_version.uid)
    if not version.accepts(message.order, state.cluster_version.uid):
        return False
    state.observed_version = version.advanced(message.order)
    state.observed = message.replica
    failure = state.teardown.failure if state.deleting else state.failure
    if failure.is_unreachable:
        # The cluster answers again: what failed because it did not need not wait for its backoff.
        state.retry_at = ""
    return failure.is_unreachable or not state.deleting


def secrets_changed(state: ModelReplicaState, message: SecretsChanged, now: datetime) -> bool:
    """Have copies of Secrets compared with their sources; False if that is meant for another replica, or has no use any more."""
    if not _is_meant(state, message.uid) or state.deleting:
        return False
    state.copies_due = timestamp(now)
    return True


def retry(state: ModelReplicaState, now: datetime) -> None:
    """Reset the backoffs of apply, teardown and pruning, and have copies of Secrets compared with their sources."""
    state.retry_at = ""
    state.copies_due = timestamp(now)
    state.prune_at, state.prune_attempts = "", 0


def repeat_reports(state: ModelReplicaState) -> None:
    """Have the deployment reported to again."""
    state.reported = ReplicaReport()


def _is_meant(state: ModelReplicaState, uid: str) -> bool:
    """Tell whether a message of the deployment is for this replica, and not for an earlier one of its name."""
    return uid in ("", state.uid)
