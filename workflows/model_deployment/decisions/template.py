"""The part of a deployment's spec that describes its replicas. Pure."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from api_types import labels
from api_types.messages.entities import SetLabels, SetTemplate, StartReplica
from api_types.resources.replica_spec import replica_spec
from api_types.validation.picker_flags import parse_picker_flags
from workflows.model_deployment.state import DeploymentState, TrackedReplica


def template_labels(state: DeploymentState) -> dict[str, str]:
    """Return the users' labels for replicas and endpoints."""
    found: dict[str, str] = (
        (state.spec or {})["template"].get("metadata", {}).get("labels", {})
    )
    return found


def flags_text(state: DeploymentState) -> str:
    """Return the annotation with extra flags for endpoint pickers."""
    return state.annotations.get(labels.PICKER_FLAGS, "")


class PickerFlags(NamedTuple):
    """The extra flags of the endpoint pickers, and the problem that made them unreadable."""

    flags: dict[str, str]
    problem: str = ""


def read_flags(state: DeploymentState) -> PickerFlags:
    """Read the extra flags of the endpoint pickers; none if they are unreadable."""
    try:
        return PickerFlags(parse_picker_flags(flags_text(state)))
    except ValueError as error:
        return PickerFlags({}, f"{labels.PICKER_FLAGS}: {error}")


def start_message(
    state: DeploymentState,
    namespace: str,
    name: str,
    replica: TrackedReplica,
    flags: dict[str, str],
    *,
    sequence: int,
) -> StartReplica:
    """Return the start argument of a replica of deployment `name`.

    `sequence` numbers the template.
    """
    return StartReplica(
        uid=replica.uid,
        namespace=namespace,
        name=replica.name,
        deployment=name,
        deployment_uid=state.uid,
        cluster=replica.cluster,
        index=replica.index,
        generation=replica.generation,
        sequence=sequence,
        spec=_spec_of(state, replica),
        entry=replica.entry,
        labels=template_labels(state),
        picker_flags=flags,
        adoption=replica.adoption_due,
        restarted=replica.restarted,
        first_sequence=replica.sequence if replica.restarted else 0,
        deleting=bool(replica.deletion_reason),
    )


def template_message(
    state: DeploymentState,
    replica: TrackedReplica,
    flags: dict[str, str],
    sequence: int,
) -> SetTemplate:
    """Return the present template for a running replica."""
    return SetTemplate(
        uid=replica.uid,
        generation=replica.generation,
        sequence=sequence,
        spec=_spec_of(state, replica),
        entry=replica.entry,
        labels=template_labels(state),
        picker_flags=flags,
        adoption=replica.adoption_due,
    )


def labels_message(
    state: DeploymentState,
    replica: TrackedReplica,
    flags: dict[str, str],
    sequence: int,
) -> SetLabels:
    """Return the settings that a replica follows in addition to its template."""
    return SetLabels(
        uid=replica.uid,
        sequence=sequence,
        labels=template_labels(state),
        picker_flags=flags,
    )


def _spec_of(state: DeploymentState, replica: TrackedReplica) -> dict[str, Any]:
    """Fill the placement of a replica into the present template.

    An earlier template, or an earlier deployment of the name, may have placed a replica
    for other engines. Until its update, such a replica gets the newest template that
    fits its placement. If none fits, it gets only the data of its placement. That is
    enough to delete the replica; it is not applied until the scheduler has updated it.
    """
    engines = replica.entry["engines"]
    templates = [
        (state.spec or {})["template"]["spec"],
        *(revision.template for revision in reversed(state.revisions)),
    ]
    template = next(
        (template for template in templates if _fits(template, engines)), None
    )
    return replica_spec(template or _placed_template(engines), replica.cluster, engines)


def _fits(template: dict[str, Any], engines: Sequence[dict[str, Any]]) -> bool:
    """Return whether a placement has all engines of a template, with as many members each."""
    placed = {engine["engine"]: len(engine["members"]) for engine in engines}
    return all(
        placed.get(engine["name"]) == len(engine["members"])
        for engine in template["engines"]
    )


def _placed_template(engines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the template that a placement describes: names of engines, and roles."""
    return {
        "engines": [
            {
                "name": engine["engine"],
                "members": [
                    {"role": member.get("role", "")} for member in engine["members"]
                ],
            }
            for engine in engines
        ]
    }
