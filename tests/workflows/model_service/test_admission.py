"""Timeouts that a worker of before has refused are refused again; without Temporal."""

from typing import Any

import pytest

from api_types.validation.manifests import InvalidManifest
from tests.workflows.environment.simulated_control import a_service, selecting
from workflows.model_service.admission import TIMEOUTS_PATCH, TimeoutsAdmission

SERVICE = a_service("s", selecting({"tier": "own"}))


def with_timeouts(timeouts: Any) -> dict[str, Any]:
    return {**SERVICE, "spec": {**SERVICE["spec"], "timeouts": timeouts}}


@pytest.mark.parametrize("timeouts", [{"request": "300s"}, None])
def test_timeouts_that_were_refused_are_refused_and_the_next_ones_are_admitted(timeouts: Any) -> None:
    asked: list[str] = []

    def patched(patch: str) -> bool:
        # An earlier worker has handled the first spec with timeouts, and no other.
        asked.append(patch)
        return patch != f"{TIMEOUTS_PATCH}-0"

    admission = TimeoutsAdmission("ModelService ml-team/s", patched)
    admission.check(SERVICE)
    assert asked == []
    with pytest.raises(InvalidManifest, match=r"spec\.timeouts: unknown field; Traefik has no timeouts"):
        admission.check(with_timeouts(timeouts))
    for _ in range(2):
        admission.check(with_timeouts(timeouts))
    assert asked == [f"{TIMEOUTS_PATCH}-{number}" for number in (0, 1, 1)]
