"""A hub that does not answer when a cache is born, or that refuses the control plane: all clusters stage one commit still (wkl-85).

On the testbed's two API servers, with a real Temporal server and a worker process.
"""

import asyncio

import pytest

from tests.environment.local_hub import LocalHub, Repo, a_commit
from tests.workflows.environment.caches import clean_up, clusters_of, end_download, no_room_for_jobs
from tests.workflows.environment.harness import ControlPlane, Json, a_cache, message, reason

pytestmark = pytest.mark.testbed


def claims(plane: ControlPlane, cluster: str, namespace: str) -> list[Json]:
    listed = plane.get(cluster, f"/api/v1/namespaces/{namespace}/persistentvolumeclaims") or {"items": []}
    return list(listed["items"])


@pytest.mark.long
async def test_wkl_85_while_the_hub_does_not_answer_nothing_is_staged_and_then_the_commit_everywhere(
    plane: ControlPlane, namespace: str, hub: LocalHub
) -> None:
    repo = f"acme/{namespace}"
    hub.repos[repo] = Repo()
    hub.error_status = 503
    try:
        await plane.apply(a_cache("qwen", namespace, repo, revision="main"))
        seen = await plane.until("ModelCache", "qwen", lambda seen: "attempt 3 of 7" in message(seen, "RevisionPinned"), namespace)
    finally:
        hub.error_status = 0
    assert reason(seen, "RevisionPinned") == "Unresolved"
    assert "resolved again at 20" in message(seen, "RevisionPinned")
    assert [claims(plane, cluster, namespace) for cluster in plane.running.clusters] == [[] for _ in plane.running.clusters]
    ready = await plane.ready("ModelCache", "qwen", namespace)
    commit = a_commit("first")
    assert (reason(ready, "RevisionPinned"), ready["status"]["resolvedRevision"]) == ("Resolved", commit)
    assert {row["revision"] for row in clusters_of(ready).values()} == {commit}
    await clean_up(plane, "qwen", namespace)


async def test_wkl_85_where_the_hub_refuses_the_control_plane_the_first_volume_says_the_commit_of_all(
    plane: ControlPlane, namespace: str
) -> None:
    first, second = sorted(plane.running.clusters)
    commit = a_commit("what the branch meant in the cluster")
    with no_room_for_jobs(plane, first):
        # The hub of the test has no such repository, and clusters reach another one.
        await plane.apply(a_cache("qwen", namespace, f"acme/{namespace}", revision="main"))
        waiting = await plane.until("ModelCache", "qwen", lambda seen: "unschedulable" in message(seen, "ArtifactReady"), namespace)
        assert f"waits for {first}" in clusters_of(waiting)[second]["message"]
        assert reason(waiting, "RevisionPinned") == "Unresolved"
        assert claims(plane, second, namespace) == []
        await end_download(plane, first, namespace, 0, commit)
        ready = await plane.ready("ModelCache", "qwen", namespace)
    assert (reason(ready, "RevisionPinned"), ready["status"]["resolvedRevision"]) == ("Resolved", commit)
    rows = clusters_of(ready)
    assert {row["revision"] for row in rows.values()} == {commit}
    assert rows[first]["claimName"] != rows[second]["claimName"], "each is named after what its Job was told"
    await asyncio.sleep(1)
    assert [len(claims(plane, cluster, namespace)) for cluster in (first, second)] == [1, 1]
    await clean_up(plane, "qwen", namespace)
