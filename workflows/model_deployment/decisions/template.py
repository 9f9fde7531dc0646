"""The part of a deployment's spec that describes its replicas. Pure."""

from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

from api_types import labels
from api_types.messages.entities import SetLabels, SetTemplate, StartReplica
from api_types.resources.replica_spec import replica_spec
from api_types.validation.picker_flags import parse_picker_flags
from scheduler import template_digest
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
    """Fill the placement of a replica into the template that it was placed for.

    That may be an earlier template: until the scheduler has updated the placement, it
    has charged no more than the pods of that one. If the template is unknown, for
    example because an earlier deployment of the name placed the replica, the newest one
    that fits the placement takes its place. If none fits, the replica gets only the data
    of its placement. That is enough to delete the replica; it is not applied until the
    scheduler has updated it.
    """
    engines, digest = replica.entry["engines"], replica.entry.get("template")
    templates = [
        (state.spec or {})["template"]["spec"],
        *(revision.template for revision in reversed(state.revisions)),
    ]
    its_own = (
        template
        for template in templates
        if template_digest(template, replica.adoption) == digest
    )
    fitting = (template for template in templates if _fits(template, engines))
    template = next(chain(its_own, fitting), None)
    return replica_spec(template or _placed_template(engines), replica.cluster, engines)


def _fits(template: dict[str, Any], engines: Sequence[dict[str, Any]]) -> bool:
    """Return whether a placement has all engines of a template, with as many pods each."""
    placed = {engine["engine"]: _placed_pods(engine) for engine in engines}
    return all(
        placed.get(engine["name"]) == _pods(engine) for engine in template["engines"]
    )


def _placed_pods(engine: dict[str, Any]) -> tuple[int, list[int]]:
    """Return the copies of a placed engine, and the nodes of each member."""
    nodes = [member.get("workerNodes") or 1 for member in engine["members"]]
    return engine.get("copies") or 1, nodes


def _pods(engine: dict[str, Any]) -> tuple[int, list[int]]:
    """Return the copies of a template's engine, and the nodes of each member."""
    nodes = [
        (member.get("worker") or {}).get("nodes") or 1 for member in engine["members"]
    ]
    return engine.get("copies") or 1, nodes


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
