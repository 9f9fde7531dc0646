"""Reports of a cache to deployments and replicas, and its account, as pure functions of
its state.
"""

from typing import Any

import pytest

from activities.render.cache.artifact import SHARED
from api_types.messages.caches import CacheAccount, CacheChanged, CacheReport
from api_types.messages.cluster_work import CacheMount
from tests.workflows.model_cache.builders import a_copy, a_site, a_staging, ready
from workflows.model_cache.reports import account, deployment_report, replica_report
from workflows.model_cache.spec import node_local_of, size_gib
from workflows.model_cache.state import CacheCopy, CacheState, CacheUser

SPEC: dict[str, Any] = {
    "source": "HuggingFace",
    "huggingFace": {"repo": "example/model", "sizeGiB": 20},
    "clusterSelector": {"matchLabels": {"tier": "gold"}},
}
NODE_LOCAL = {**SPEC, "volume": {"nodeLocal": True}}
AT = "2026-01-01T00:00:00Z"
WAITS = "waits for its volume claim"
NEWER = a_copy(claim="claim-2", artifact_key="key-2")


def a_state(*copies: CacheCopy, **fields: Any) -> CacheState:
    """Return a cache with these artifacts on one cluster."""
    stagings = {"eu-1": a_staging(*copies)}
    return CacheState(**{"uid": "c", "spec": SPEC, "stagings": stagings, **fields})


def test_placement_gets_the_allowed_clusters_and_those_with_a_complete_artifact() -> (
    None
):
    stagings = {
        "a": a_staging(NEWER, ready()),
        "b": a_staging(a_copy()),
        "c": a_staging(),
    }
    state = CacheState(uid="c", spec=SPEC, stagings=stagings, deletion_timestamp=AT)
    assert deployment_report("weights", state) == CacheChanged(
        cache="weights",
        uid="c",
        deleting=True,
        match_labels={"tier": "gold"},
        phases={"a": "Ready", "b": "Pending", "c": "Pending"},
    )
    assert deployment_report("weights", CacheState(uid="c")) == CacheChanged(
        cache="weights", uid="c", present=False
    )


@pytest.mark.parametrize(
    ("state", "assigned", "expected"),
    [
        (a_state(a_copy(revision="main")), "", {"phase": "Pending", "message": WAITS}),
        (
            a_state(a_copy(), deletion_timestamp=AT),
            "",
            {"phase": "Pending", "message": "ModelCache weights is being deleted"},
        ),
        (
            a_state(ready(revision="main")),
            "claim-1",
            {"phase": "Ready", "artifact_key": "key-1", "revision": "main"},
        ),
        (
            a_state(NEWER, ready(revision="main", commit="abc"), deletion_timestamp=AT),
            "claim-1",
            {"phase": "Ready", "artifact_key": "key-1", "revision": "abc"},
        ),
        (
            a_state(NEWER, a_copy()),
            "claim-1",
            {"phase": "Pending", "artifact_key": "key-1"},
        ),
        (a_state(ready()), "claim-0", {"phase": "Ready"}),
        (
            CacheState(uid="c", spec=SPEC),
            "",
            {"message": "ModelCache weights is not staged on eu-1"},
        ),
        (CacheState(uid="c", spec=SPEC), "claim-1", {}),
        (CacheState(uid="c"), "claim-1", {"size_gib": 0}),
    ],
    ids=[
        "before it is staged",
        "while it is deleted",
        "staged",
        "an older one, while it is deleted",
        "lost, with another on its way",
        "a removed cluster",
        "not there",
        "not there any more",
        "without a spec",
    ],
)
def test_a_replica_gets_its_mount_or_the_reason_of_its_wait(
    state: CacheState, assigned: str, expected: dict[str, Any]
) -> None:
    user = CacheUser(
        workflow_id="modelreplica/ml/r", cluster="eu-1", assigned_claim=assigned
    )
    common = {
        "cache": "weights",
        "uid": "c",
        "sequence": 0,
        "cluster": "eu-1",
        "size_gib": 20,
    }
    assert replica_report("weights", state, user) == CacheReport(
        **{**common, "claim": assigned, "phase": "", **expected}
    )


@pytest.mark.parametrize(
    ("copies", "spec", "mount"),
    [
        ([ready(access_mode=SHARED)], SPEC, None),
        ([ready()], SPEC, None),
        (
            [ready(access_mode="ReadWriteOnce")],
            SPEC,
            CacheMount(access_mode="ReadWriteOnce"),
        ),
        (
            [ready(image="r/m:1", pull_secret="s")],  # noqa: S106 - the name of a Secret
            SPEC,
            CacheMount(image="r/m:1", pull_secret="s"),  # noqa: S106 - the name of a Secret
        ),
        ([ready(node_local=True)], SPEC, None),
        ([NEWER, ready(node_local=True)], NODE_LOCAL, None),
    ],
    ids=[
        "for all nodes",
        "unknown",
        "for one node",
        "an image",
        "of nodes, which the spec does not ask for any more",
        "of nodes, an older one",
    ],
)
def test_a_mount_differs_from_the_default_only_where_necessary(
    copies: list[CacheCopy], spec: dict[str, Any], mount: CacheMount | None
) -> None:
    user = CacheUser(
        workflow_id="modelreplica/ml/r", cluster="eu-1", assigned_claim="claim-1"
    )
    assert replica_report("weights", a_state(*copies, spec=spec), user).mount == mount


def test_pods_with_their_own_volumes_get_the_source_to_fill_them() -> None:
    state = a_state(ready(node_local=True, revision="abc"), spec=NODE_LOCAL)
    user = CacheUser(
        workflow_id="modelreplica/ml/r", cluster="eu-1", assigned_claim="claim-1"
    )
    content = node_local_of(state, "abc")
    assert content is not None
    assert replica_report("weights", state, user).mount == CacheMount(
        node_local=content
    )
    assert (content.revision, content.size_gib, content.storage_class_name) == (
        "abc",
        20,
        "",
    )
    assert content.spec.keys() == {"source", "huggingFace", "volume"}


@pytest.mark.parametrize(
    ("spec", "size"),
    [(SPEC, 20), (None, 0), ({"source": "HuggingFace"}, 0)],
    ids=["as in the spec", "without a spec", "an unreadable one"],
)
def test_the_size_of_the_volume(spec: dict[str, Any] | None, size: int) -> None:
    assert size_gib(CacheState(spec=spec)) == size


@pytest.mark.parametrize(
    ("deleting", "clusters"),
    [("", ["a", "d"]), (AT, [])],
    ids=["it stays", "it is deleted"],
)
def test_an_account_names_the_clusters_with_objects_of_the_cache(
    deleting: str, clusters: list[str]
) -> None:
    images = ready(image="r/m:1")
    stagings = {
        "a": a_staging(a_copy()),
        "b": a_staging(images),
        "c": a_staging(),
        "d": a_staging(images, ready(), site=a_site("d")),
    }
    state = CacheState(
        uid="c", spec=SPEC, stagings=stagings, deletion_timestamp=deleting
    )
    assert account("ml", "weights", state) == CacheAccount(
        namespace="ml", name="weights", uid="c", clusters=clusters
    )
