"""The template of a ModelReplica: its spec, labels and picker flags.

The functions change the given state, without clock and I/O.
"""

from api_types import labels, names
from api_types.messages.entities import SetLabels, SetTemplate, StartReplica
from workflows.model_replica.state import ModelReplicaState


def managed_labels(start: StartReplica) -> dict[str, str]:
    """Return the labels that take precedence over users' labels."""
    return {
        labels.DEPLOYMENT: names.label_value(start.deployment),
        labels.CLUSTER: names.label_value(start.cluster),
        labels.REPLICA_INDEX: str(start.index),
    }


def first_template(start: StartReplica) -> SetTemplate:
    """Return the first template of the replica."""
    return SetTemplate(
        **{field: getattr(start, field) for field in SetTemplate.model_fields}
    )


def apply_template(state: ModelReplicaState, template: SetTemplate) -> None:
    """Make a template the spec of the replica."""
    state.labels = {**template.labels, **managed_labels(state.start)}
    state.picker_flags = template.picker_flags
    state.entry = template.entry
    state.template_sequence = template.sequence
    state.adoption = max(state.adoption, template.adoption)
    if template.spec != state.spec or template.generation != state.generation:
        state.spec, state.generation = template.spec, template.generation
        state.retry_at = ""


def apply_labels(state: ModelReplicaState, message: SetLabels) -> None:
    """Store users' settings on the deployment outside of its template."""
    state.labels = {**message.labels, **managed_labels(state.start)}
    state.picker_flags = message.picker_flags
    state.template_sequence = message.sequence
