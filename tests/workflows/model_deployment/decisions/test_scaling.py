"""The replica count.

Rejected orders, and the count and template that a newly applied spec keeps.
"""

from typing import Any

import pytest

from api_types.limits import REPLICAS_MAX
from api_types.messages.entities import Scale
from workflows.model_deployment.decisions.scaling import (
    record_applied_replicas,
    record_revision,
    scale_problem,
)
from workflows.model_deployment.state import DeploymentState

AT = "2026-01-01T00:00:00Z"


def spec(replicas: int, image: str = "one") -> dict[str, Any]:
    return {"replicas": replicas, "template": {"spec": {"image": image}}}


@pytest.mark.parametrize("count", [0, 1, REPLICAS_MAX])
def test_a_count_within_the_limits_is_accepted(count: int) -> None:
    assert scale_problem(DeploymentState(spec=spec(1)), Scale(replicas=count)) == ""


@pytest.mark.parametrize("count", [True, 1.0, "3", None])
def test_a_count_that_is_no_integer_is_rejected_with_the_expected_type(
    count: Any,
) -> None:
    problem = scale_problem(DeploymentState(spec=spec(1)), Scale(replicas=count))
    assert (
        problem
        == f"spec.replicas: must be a whole number between 0 and {REPLICAS_MAX}, got {count!r}"
    )


@pytest.mark.parametrize("count", [-1, REPLICAS_MAX + 1])
def test_a_count_outside_the_limits_is_rejected_with_the_limits(count: int) -> None:
    problem = scale_problem(DeploymentState(spec=spec(1)), Scale(replicas=count))
    assert (
        problem == f"spec.replicas: must be between 0 and {REPLICAS_MAX}, got {count!r}"
    )


def test_a_deployment_that_is_deleted_or_has_no_spec_is_not_scaled() -> None:
    assert scale_problem(DeploymentState(), Scale(replicas=1)) == "there is no spec yet"
    assert (
        scale_problem(
            DeploymentState(spec=spec(1), deletion_timestamp=AT), Scale(replicas=1)
        )
        == "the deployment is being deleted"
    )


@pytest.mark.parametrize(
    ("applied_before", "present", "applied", "count", "by"),
    [
        (None, None, 2, 2, None),
        (2, 5, 2, 5, None),
        (2, 5, 3, 3, "apply"),
        (None, 4, 4, 4, "apply"),
    ],
    ids=[
        "the first spec",
        "an autoscaler's count stays",
        "a new count holds",
        "no count was applied before",
    ],
)
def test_an_applied_spec_keeps_the_current_count_unless_its_own_is_new(
    applied_before: int | None,
    present: int | None,
    applied: int,
    count: int,
    by: str | None,
) -> None:
    state = DeploymentState(
        applied_replicas=applied_before, spec=None if present is None else spec(present)
    )
    assert record_applied_replicas(state, spec(applied), AT)["replicas"] == count
    assert state.applied_replicas == applied
    assert (state.last_scale.by if state.last_scale else None) == by


def test_the_template_that_a_spec_replaces_is_kept_with_its_generation() -> None:
    state = DeploymentState(generation=4, template_generation=2, spec=spec(1, "old"))
    record_revision(state, spec(9, "old"), AT)
    assert (state.revisions, state.template_generation) == ([], 2)
    record_revision(state, spec(1, "new"), AT)
    (kept,) = state.revisions
    assert (
        kept.generation,
        kept.template,
        kept.replaced,
        state.template_generation,
    ) == (2, {"image": "old"}, AT, 5)
