"""A CloudCluster over many workflow runs, on a server that suggests continue-as-new
after a few events.
"""

from functools import partial
from typing import Any

import pytest

from activities.clouds import patience
from activities.heartbeat import heartbeating
from tests.activities.clouds.builders import a_pool, an_eks_pool
from tests.workflows.cloud_cluster.control_plane import cloud_plane, workflow_worker
from tests.workflows.environment.replaying import replayer
from tests.workflows.environment.short_runs import runs, server_with_short_runs

# Number of events after which the server suggests a new run. GKE has a third of the
# objects of EKS.
_EVENTS = {"EKS": 200, "GKE": 80}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "pool"),
    [("EKS", an_eks_pool()), ("GKE", a_pool())],
    ids=["EKS", "GKE"],
)
async def test_a_lifecycle_over_many_runs_creates_everything_once_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, source: str, pool: dict[str, Any]
) -> None:
    # A run ends when its activities notice their cancellation, which a heartbeat
    # delivers.
    monkeypatch.setattr(patience, "heartbeating", partial(heartbeating, 0.2))
    async with (
        server_with_short_runs(_EVENTS[source]) as client,
        workflow_worker(client),
        cloud_plane(client, source) as plane,
    ):
        plane.cloud.polls = 3
        await plane.apply(pool)
        await plane.ready()
        created = plane.cloud.written("create")
        assert len(created) == len(set(created))
        assert await runs(client, plane.id) > 1
        await plane.delete()
        await plane.gone()
        assert plane.cloud.things == {}
        async for run in client.list_workflows(f'WorkflowId = "{plane.id}"'):
            history = await client.get_workflow_handle(
                run.id, run_id=run.run_id
            ).fetch_history()
            assert (await replayer().replay_workflow(history)).replay_failure is None
