"""Which owners a new watch of the control cluster notifies although it sees no object of theirs.

This test uses a real Temporal server.
"""

from collections.abc import Sequence

import pytest

from activities.cluster_objects.ownership import ObjectOwner
from activities.messaging.entity_client import EntityClient
from activities.messaging.messages import QueryEach, SurveyResult
from activities.routing.absent import find_absent
from activities.watching import absent
from tests.activities.environment.asking import asked_by
from tests.workflows.environment.harness import ControlPlane, eventually
from tests.workflows.environment.simulated_clusters import simulated_plane
from tests.workflows.environment.simulated_control import (
    SimulatedControl,
    a_gateway,
    a_service,
    an_endpoint,
    selecting,
)

TEAM = "ml-team"
OWN = {"tier": "own"}
HERE = ["modelendpoint/ml-team/here"]


async def found(plane: ControlPlane, here: Sequence[str] = ()) -> list[ObjectOwner]:
    async def collected() -> list[ObjectOwner]:
        return sorted([owner async for owner in find_absent(frozenset(here))])

    owners: list[ObjectOwner] = await asked_by(
        "inferencegateway/default", client=plane.client
    ).run(collected)
    return owners


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_services_and_endpoints_without_objects_are_found_even_if_one_answers_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(absent, "_RETRY_SECONDS", 0.1)
    control = SimulatedControl()
    async with simulated_plane(control) as plane:
        await plane.apply(a_gateway())
        for name in ("here", "lost"):
            await plane.apply(an_endpoint(name, **OWN))
        # An owner of which nothing was ever applied.
        await plane.apply(an_endpoint("unusable", "http://localhost:8000", **OWN))
        await plane.apply(a_service("s", selecting(OWN)))
        uids = {
            name: (await plane.ready("ModelEndpoint", name, TEAM))["metadata"]["uid"]
            for name in ("here", "lost")
        }
        uid = (await plane.ready("ModelService", "s", TEAM))["metadata"]["uid"]
        service, lost = (
            ObjectOwner("ModelService", TEAM, "s", uid),
            ObjectOwner("ModelEndpoint", TEAM, "lost", uids["lost"]),
        )
        await eventually(
            lambda: found(plane),
            [
                ObjectOwner("ModelEndpoint", TEAM, "here", uids["here"]),
                lost,
                service,
            ].__eq__,
        )
        assert await found(plane, HERE) == [lost, service]

        query_each, late = EntityClient.query_each, ["modelendpoint/ml-team/lost"]

        async def slow(self: EntityClient, wanted: QueryEach) -> SurveyResult:
            answered = await query_each(self, wanted)
            unresponsive = {each: "" for each in wanted.workflow_ids if each in late}
            late.clear()
            return answered.model_copy(
                update={
                    "answers": {
                        each: answer
                        for each, answer in answered.answers.items()
                        if each not in unresponsive
                    },
                    "unresponsive": unresponsive,
                }
            )

        monkeypatch.setattr(EntityClient, "query_each", slow)
        late[:] = ["modelendpoint/ml-team/lost"]
        assert await found(plane, [*HERE, "modelservice/ml-team/s"]) == [lost]
