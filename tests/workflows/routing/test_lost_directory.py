"""An endpoint whose EndpointDirectory is terminated before it answers queries the next one."""

from datetime import timedelta

import pytest

from api_types import names
from tests.simulation.lives.virtual_plane import on_a_virtual_loop, virtual_plane
from tests.workflows.environment.simulated_control import SimulatedControl
from workflows.entity import periods
from workflows.entity.registering.endpoint import PublishedEndpoint
from workflows.model_endpoint import EndpointState

TEAM = "ml-team"


@on_a_virtual_loop
async def test_an_endpoint_with_an_unanswered_withdrawal_queries_the_next_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(periods, "RESYNC", timedelta(seconds=2))
    withdrawn = PublishedEndpoint(sequence=2, withdrawn=1)
    state = EndpointState(
        uid="u",
        generation=1,
        spec={"url": "https://api.example.com"},
        endpoint=withdrawn,
    )
    state.deletion_timestamp = "2026-01-01T00:00:00Z"
    async with virtual_plane(SimulatedControl()) as plane:
        workflow_id = names.workflow_id("ModelEndpoint", TEAM, "own")
        plane.start_continued(
            "ModelEndpoint", workflow_id, state.model_dump(mode="json", by_alias=True)
        )
        await plane.gone("ModelEndpoint", "own", TEAM)
