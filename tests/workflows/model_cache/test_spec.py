"""The desired artifacts, according to the spec and the pinned revision."""

from typing import Any

from activities.render.cache.artifact import artifact_key
from activities.render.inputs.facts import CacheInput
from api_types.messages.cluster_work import CacheMount, NodeLocal
from tests.workflows.model_cache.builders import a_staging, ready
from workflows.model_cache.reports import account, replica_report
from workflows.model_cache.spec import (
    artifact_of,
    desired_staging,
    nothing_staged,
    reference_of,
)
from workflows.model_cache.state import CacheState, CacheUser, PinnedRevision

COMMIT = "1" * 40
PULLED_WITH = "pull"


def a_spec(**fields: Any) -> dict[str, Any]:
    """Return the applied spec of a repository on gold clusters."""
    source = {"repo": "acme/qwen", "revision": "main", "sizeGiB": 20, **fields}
    return {
        "source": "HuggingFace",
        "huggingFace": source,
        "clusterSelector": {"matchLabels": {"tier": "gold"}},
    }


def a_state(
    spec: dict[str, Any] | None,
    *,
    revision: str = COMMIT,
    resolved: dict[str, Any] | None = None,
) -> CacheState:
    """Return a cache whose revision was resolved from a spec, by default its own."""
    source = artifact_of("ml", "qwen", CacheState(spec=resolved or spec))
    return CacheState(
        uid="u",
        generation=3,
        spec=spec,
        pin=PinnedRevision(reference=reference_of(source), revision=revision),
    )


def test_nothing_is_desired_before_the_revision_was_resolved() -> None:
    assert desired_staging("ml", "qwen", CacheState(spec=a_spec())) is None


def test_the_pinned_revision_is_desired_on_the_selected_clusters() -> None:
    desired = desired_staging("ml", "qwen", a_state(a_spec()))
    assert desired
    assert (desired.revision, desired.generation, desired.match_labels) == (
        COMMIT,
        3,
        {"tier": "gold"},
    )
    assert desired.artifact_key == artifact_key(
        CacheInput("ml", "qwen", "u", 3, "", a_spec(), revision=COMMIT)
    )
    assert not desired.deleting


def test_an_unresolved_revision_is_used_literally() -> None:
    desired = desired_staging("ml", "qwen", a_state(a_spec(), revision=""))
    assert desired
    assert (desired.revision, desired.pinned) == ("main", False)


def test_a_revision_of_another_source_is_not_used() -> None:
    assert (
        desired_staging(
            "ml", "qwen", a_state(a_spec(repo="acme/other"), resolved=a_spec())
        )
        is None
    )


def test_the_secret_of_the_source_is_the_credential() -> None:
    desired = desired_staging(
        "ml", "qwen", a_state(a_spec(authSecret={"name": "hub", "key": "TOKEN"}))
    )
    assert desired
    assert (desired.credential, desired.credential_key) == ("hub", "TOKEN")


def test_replicas_get_the_size_of_the_volume() -> None:
    state = a_state(a_spec())
    assert (
        replica_report(
            "qwen", state, CacheUser(workflow_id="modelreplica/ml/r", cluster="eu")
        ).size_gib
        == 20
    )
    assert (
        replica_report(
            "qwen",
            CacheState(),
            CacheUser(workflow_id="modelreplica/ml/r", cluster="eu"),
        ).size_gib
        == 0
    )


def test_a_deleted_cache_desires_nothing_even_if_its_source_cannot_be_read() -> None:
    desired = nothing_staged(
        CacheState(spec={"clusterSelector": {"matchLabels": {"tier": "gold"}}})
    )
    assert (desired.deleting, desired.match_labels) == (True, {"tier": "gold"})


def test_an_image_is_pulled_by_its_pinned_digest_and_never_by_tag() -> None:
    spec = {
        "source": "OCI",
        "oci": {"image": "registry.example/m:1", "pullSecret": "pull", "sizeGiB": 9},
        "volume": {"image": True},
    }
    digest = "sha256:" + "ab" * 32
    found = [
        desired_staging("ml", "qwen", a_state(spec, revision=revision))
        for revision in (digest, "")
    ]
    assert [
        (each.by_pods, each.exact, each.image, each.credential)
        for each in found
        if each
    ] == [
        ("image", True, f"registry.example/m@{digest}", "pull"),
        ("image", False, "registry.example/m:1", "pull"),
    ]
    staged = desired_staging(
        "ml", "qwen", a_state({**spec, "volume": {}}, revision=digest)
    )
    assert staged
    assert staged.by_pods == ""


def test_replicas_get_mount_options_that_differ_from_the_default() -> None:
    copies = {
        "usual": (ready(access_mode="ReadWriteMany"), None),
        "of an older version": (ready(), None),
        "one node": (
            ready(access_mode="ReadWriteOnce"),
            CacheMount(access_mode="ReadWriteOnce"),
        ),
        "pulled": (
            ready(image="m@sha256:a", pull_secret=PULLED_WITH),
            CacheMount(image="m@sha256:a", pull_secret=PULLED_WITH),
        ),
    }
    for name, (copy, mount) in copies.items():
        state = CacheState(spec=a_spec(), stagings={"eu-1": a_staging(copy)})
        user = CacheUser(
            workflow_id="modelreplica/ml/r", cluster="eu-1", assigned_claim="claim-1"
        )
        assert replica_report("qwen", state, user).mount == mount, name
        # A cluster under deletion waits for objects, and an image has none there.
        assert account("ml", "qwen", state).clusters == (
            [] if copy.image else ["eu-1"]
        ), name


def test_pods_that_fill_their_volumes_get_the_pinned_revision_and_its_inputs() -> None:
    spec = {
        **a_spec(),
        "volume": {"nodeLocal": True, "storageClassName": "local"},
        "hydration": {"disableXet": True},
    }
    current = ready(node_local=True, revision=COMMIT)
    older = ready(
        node_local=True, artifact_key="key-0", claim="claim-0", revision="0" * 40
    )
    state = a_state(spec)
    state.stagings = {"eu-1": a_staging(current, older)}
    reports = [
        replica_report(
            "qwen",
            state,
            CacheUser(
                workflow_id="modelreplica/ml/r", cluster="eu-1", assigned_claim=claim
            ),
        )
        for claim in ("claim-1", "claim-0")
    ]
    content = {
        field: value for field, value in spec.items() if field != "clusterSelector"
    }
    own = NodeLocal(
        spec=content, revision=COMMIT, storage_class_name="local", size_gib=20
    )
    assert [report.mount for report in reports] == [CacheMount(node_local=own), None]
    desired = desired_staging("ml", "qwen", state)
    assert desired
    assert (desired.by_pods, desired.exact) == ("nodeLocal", True)
