"""The answers to CloudCluster workflows: results, observations, audits and problems."""

from collections.abc import Mapping

from activities.clouds.desired.plan import PlanProblem
from activities.clouds.lifecycle.handler import CloudObservation, State
from api_types.errors import ModelplaneError
from api_types.messages.clouds import (
    LEFTOVERS_MAX,
    CloudAudit,
    CloudHealth,
    CloudObject,
    CloudObjectResult,
    CloudObjectShown,
    CloudProblem,
    Facts,
    Leftover,
    ObjectPhase,
)
from api_types.payloads.limits import shortened

_EVIDENCE_BYTES_MAX = 200
_PHASES: Mapping[State, ObjectPhase] = {
    State.ABSENT: "Absent",
    State.PENDING: "Creating",
    State.READY: "Ready",
    State.DIFFERS: "Differs",
    State.BROKEN: "Broken",
    State.DELETING: "Deleting",
    State.FOREIGN: "Unknown",
}


def cloud_problem(each: PlanProblem) -> CloudProblem:
    return CloudProblem(reason=each.reason, at=each.at, text=each.text)


def result_of(key: str, found: CloudObservation) -> CloudObjectResult:
    if found.state is State.FOREIGN:
        return CloudObjectResult(
            key=key,
            phase="Absent",
            message=f"it belongs to another owner ({found.reason}) and was not changed",
        )
    if found.state is State.ABSENT:
        return CloudObjectResult(key=key, phase="Absent")
    return CloudObjectResult(
        key=key,
        phase=_PHASES[found.state],
        facts=facts_of(found),
        cause=_cause(found),
        message=found.reason,
        health=_health(found),
    )


def shown(each: CloudObject, found: CloudObservation, problem: str) -> CloudObjectShown:
    """Return the report of an observed object.

    `problem` says why it could not be observed.
    """
    return CloudObjectShown(
        key=each.key,
        kind=each.kind,
        name=each.name,
        id=found.id,
        phase="Unknown" if problem else _phase(found),
        message=problem or _difference(found),
        cause=_cause(found),
        health=_health(found),
    )


def stays(leftover: Leftover, error: ModelplaneError) -> Leftover:
    """Return a leftover with the reason why it could not be deleted."""
    problem = f"{error.type}: {shortened(error.message, _EVIDENCE_BYTES_MAX)}"
    return leftover.model_copy(update={"evidence": f"{problem}; {leftover.evidence}"})


def audited(left: list[Leftover], swept: list[Leftover]) -> CloudAudit:
    """Return the leftovers in bounded size, the cluster's own first.

    The size is bounded because other users of the cloud account control how many there
    are.
    """
    ordered = sorted(left, key=lambda each: not each.ours)
    return CloudAudit(
        leftovers=[_short(each) for each in ordered[:LEFTOVERS_MAX]],
        swept=[_short(each) for each in swept[:LEFTOVERS_MAX]],
        more=len(ordered[LEFTOVERS_MAX:]),
    )


def _short(leftover: Leftover) -> Leftover:
    return leftover.model_copy(
        update={"evidence": shortened(leftover.evidence, _EVIDENCE_BYTES_MAX)}
    )


def _phase(found: CloudObservation) -> ObjectPhase:
    """Return the phase of an object.

    An object with duplicates is Differs, so that they are deleted.
    """
    if found.state is State.ABSENT and found.cause is not None:
        return "Broken"
    return (
        "Differs"
        if found.state is State.READY and found.duplicates
        else _PHASES[found.state]
    )


def _difference(found: CloudObservation) -> str:
    parts = [found.reason or ", ".join((*found.replaces, *found.changes))]
    if found.duplicates:
        parts.append(f"it exists more than once: {', '.join(found.duplicates)}")
    return "; ".join(filter(None, parts))


def _cause(found: CloudObservation) -> str:
    return found.cause.__name__ if found.cause else ""


def _health(found: CloudObservation) -> CloudHealth | None:
    issue = found.health
    if issue is None:
        return None
    return CloudHealth(
        error=issue.error.__name__,
        code=issue.code,
        text=issue.text,
        lacks_nodes=issue.lacks_nodes,
    )


def facts_of(found: CloudObservation) -> Facts:
    facts = dict(found.facts)
    if found.id:
        facts["id"] = found.id
    return facts
