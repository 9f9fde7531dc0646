"""The effect of requests on stored objects: ownership of fields, versions, deletion."""

import random
from typing import Any

import pytest

from activities.cluster_objects.cluster_api import ObjectId, Propagation
from activities.observe.digest import content_digest, overwritten_fields
from tests.simulation.fields import Json
from tests.simulation.lone_cluster import an_object
from tests.simulation.store import ObjectKey, ObjectStore, RequestRefused, matches

US, OTHERS = "modelplane", "kubectl-scale"
KEY = ObjectKey("apps", "Deployment", "ml", "engine")


def a_store() -> ObjectStore:
    return ObjectStore("eu-1", random.Random(1))  # noqa: S311 - repeatable on purpose


def deployment(replicas: int = 1, **containers: str) -> Json:
    """A Deployment with containers of these images."""
    pods = [{"name": name, "image": image} for name, image in containers.items()]
    spec: Json = {"replicas": replicas, "template": {"spec": {"containers": pods}}}
    return an_object("apps/v1", "Deployment", "engine", spec=spec)


def images(item: Json | None) -> dict[str, str]:
    assert item is not None
    return {each["name"]: each["image"] for each in item["spec"]["template"]["spec"]["containers"]}


def scaled(replicas: int) -> Any:
    return lambda content: {**content, "spec": {**content["spec"], "replicas": replicas}}


def test_an_apply_that_changes_nothing_writes_nothing() -> None:
    store = a_store()
    first = store.apply(deployment(2, engine="a"), US)
    again = store.apply(deployment(2, engine="a"), US)
    assert (again, store.version) == (first, int(first["metadata"]["resourceVersion"]))


def test_an_apply_merges_containers_by_name_and_removes_omitted_ones() -> None:
    store = a_store()
    store.apply(deployment(1, engine="a", sidecar="b"), US)
    store.edit(
        KEY,
        lambda content: {
            **content,
            "spec": {
                **content["spec"],
                "template": {
                    "spec": {
                        "containers": [
                            *content["spec"]["template"]["spec"]["containers"],
                            {"name": "mesh", "image": "m"},
                        ]
                    }
                },
            },
        },
    )
    store.apply(deployment(1, engine="c"), US)
    assert images(store.get(KEY)) == {"engine": "c", "mesh": "m"}


def test_an_edit_by_hand_takes_the_field_and_an_apply_takes_it_back() -> None:
    store = a_store()
    applied = store.apply(deployment(1, engine="a"), US)
    edited = store.edit(KEY, scaled(3), OTHERS)
    assert edited is not None
    assert content_digest(edited) != content_digest(applied)
    again = store.apply(deployment(1, engine="a"), US)
    assert again["spec"]["replicas"] == 1
    assert content_digest(again) == content_digest(applied)
    assert overwritten_fields(edited, again) == ["spec.replicas by kubectl-scale"]


def without_count() -> Json:
    """The same Deployment, with nothing said about its replicas."""
    manifest = deployment(1, engine="a")
    del manifest["spec"]["replicas"]
    return manifest


def test_a_field_of_two_managers_stays_when_one_of_them_drops_it() -> None:
    store = a_store()
    store.apply(deployment(2, engine="a"), US)
    store.apply(deployment(2, engine="a"), "another")
    assert store.apply(without_count(), US)["spec"]["replicas"] == 2


def test_a_field_taken_over_by_an_apply_is_removed_with_it() -> None:
    store = a_store()
    store.apply(deployment(1, engine="a"), US)
    store.edit(KEY, scaled(3), OTHERS)
    store.apply(deployment(1, engine="a"), US)
    assert "replicas" not in store.apply(without_count(), US)["spec"]


def test_a_status_change_is_not_drift_and_keeps_the_generation() -> None:
    store = a_store()
    applied = store.apply(deployment(1, engine="a"), US)
    seen = store.set_status(KEY, readyReplicas=1)
    assert seen is not None
    assert content_digest(seen) == content_digest(applied)
    assert (applied["metadata"]["generation"], seen["metadata"]["generation"]) == (1, 1)
    assert store.apply(deployment(2, engine="a"), US)["metadata"]["generation"] == 2


def test_a_dry_run_stores_nothing() -> None:
    store = a_store()
    before = store.apply(deployment(1, engine="a"), US)
    answer = store.apply(deployment(1, engine="b"), US, dry_run=True)
    assert (images(answer), images(store.get(KEY))) == ({"engine": "b"}, {"engine": "a"})
    assert store.get(KEY) == before


def test_a_replace_needs_the_version_that_is_stored() -> None:
    store = a_store()
    read = store.apply(deployment(1, engine="a"), US)
    store.edit(KEY, scaled(2))
    assert store.replace(read, US) is None
    current = store.get(KEY)
    assert current is not None
    replaced = store.replace({**current, "spec": {**current["spec"], "replicas": 5}}, US)
    assert replaced is not None
    assert replaced["spec"]["replicas"] == 5


@pytest.mark.parametrize(
    ("uid", "version", "deleted"),
    [("", "", True), ("own", "own", True), ("other", "", False), ("own", "other", False)],
)
def test_a_deletion_is_of_the_object_that_is_meant(uid: str, version: str, deleted: bool) -> None:
    store = a_store()
    stored = store.apply(deployment(1, engine="a"), US)["metadata"]
    uids = {"own": stored["uid"], "other": "another"}
    versions = {"own": stored["resourceVersion"], "other": "0"}
    done = store.delete(KEY, uid=uids.get(uid, ""), resource_version=versions.get(version, ""))
    assert (done, store.get(KEY) is None) == (deleted, deleted)


@pytest.mark.parametrize(
    ("propagation", "finalizers"),
    [("Foreground", ["hold", "foregroundDeletion"]), ("Background", ["hold"])],
)
def test_an_object_with_finalizers_stays_until_the_last_one_is_gone(
    propagation: Propagation, finalizers: list[str]
) -> None:
    store = a_store()
    store.apply(deployment(1, engine="a"), US)
    store.set_finalizers(KEY, ["hold"])
    store.delete(KEY, propagation=propagation)
    held = store.get(KEY)
    assert held is not None
    assert (held["metadata"]["finalizers"], "deletionTimestamp" in held["metadata"]) == (
        finalizers,
        True,
    )
    store.set_finalizers(KEY, [])
    assert store.get(KEY) is None


def test_a_claim_keeps_its_storage_class() -> None:
    store = a_store()

    def claim(name: str) -> Json:
        spec = {"accessModes": ["ReadWriteMany"], "storageClassName": name}
        return an_object("v1", "PersistentVolumeClaim", "weights", spec=spec)

    store.apply(claim("rwx"), US)
    with pytest.raises(RequestRefused, match="immutable"):
        store.apply(claim("other"), US)


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("a=1", True),
        ("a=2", False),
        ("a", True),
        ("!a", False),
        ("!b", True),
        ("a=1,b", False),
        ("owner=helm", False),
        ("a in (1,2)", True),
        ("a in (2,3),!b", False),
    ],
)
def test_selectors_of_labels(selector: str, found: bool) -> None:
    assert matches({"metadata": {"labels": {"a": "1"}}}, selector) == found


def test_a_watch_from_before_a_restart_has_expired_and_one_of_a_quiet_kind_has_not() -> None:
    store = a_store()
    store.apply(deployment(1, engine="a"), US)
    seen = store.version
    for number in range(5_000):
        store.create(an_object("v1", "ConfigMap", f"c{number}"), US)
    assert not store.has_expired("apps", "Deployment", seen)
    assert store.has_expired("", "ConfigMap", seen + 1)
    store.compact()
    assert store.has_expired("apps", "Deployment", seen)


def test_an_identity_is_that_of_any_version() -> None:
    older = ObjectId.parse("resource.k8s.io/v1beta1/ResourceClaim/ml/a")
    newer = ObjectId.parse("resource.k8s.io/v1/ResourceClaim/ml/a")
    assert ObjectKey.of(older) == ObjectKey.of(newer)
