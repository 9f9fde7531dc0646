"""Writes of an object that is being deleted.

Only the way in which a cluster is deleted may change.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api_types import labels
from front.serving import bodies
from front.store.projection import ObjectKey, Tree, shown
from tests.front.fleet_of_tenants import Fleet, a_fleet
from tests.workflows.environment.simulated_clusters import a_cluster

OTHER = "/apis/modelplane.ai/v1alpha1/inferenceclusters/other"
KEY = ObjectKey("InferenceCluster", "", "other")
KIND: Tree = {"apiVersion": "modelplane.ai/v1alpha1", "kind": "InferenceCluster"}
ABANDON: Tree = {"metadata": {"annotations": {labels.ABANDON: "true"}}}
POINTER = f"/metadata/annotations/{labels.ABANDON.replace('/', '~1')}"


@pytest.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    """A front with a cluster that one manager applied, and that is being deleted."""
    async with a_fleet(tmp_path) as fleet:
        document = a_cluster("other")
        metadata = {**fleet.plane.trees[KEY]["metadata"], **document["metadata"]}
        fleet.plane.trees[KEY] = {**document, "metadata": metadata, "status": {}}
        status, told = await write(
            fleet,
            {**KIND, "metadata": {"name": "other", "labels": {"tier": "gold"}}},
            bodies.APPLY,
            "PATCH",
        )
        assert status == 200, told
        await fleet.ask("DELETE", OTHER, "root")
        yield fleet


async def write(
    fleet: Fleet, body: Any, kind: str, method: str, query: str = ""
) -> tuple[int, Tree]:
    path = f"{OTHER}?fieldManager={'mine' if kind == bodies.APPLY else 'kubectl-annotate'}{query}"
    status, answer = await fleet.ask(
        method, path, "root", json.dumps(body).encode(), **{"Content-Type": kind}
    )
    return status, json.loads(answer)


def written(fleet: Fleet, kind: str, method: str, **more: Any) -> Any:
    """Return the body that abandons the cluster, with `more` changes of its metadata."""
    if kind == bodies.JSON_PATCH:
        other = [
            {"op": "add", "path": f"/metadata/{field}", "value": value}
            for field, value in more.items()
        ]
        return [{"op": "add", "path": POINTER, "value": "true"}, *other]
    if method == "PUT":
        tree = shown(fleet.plane.trees[KEY])
        annotations = {**tree["metadata"]["annotations"], labels.ABANDON: "true"}
        return {
            **tree,
            "metadata": {**tree["metadata"], "annotations": annotations, **more},
        }
    labelled: Tree = {"labels": {"tier": "gold"}} if kind == bodies.APPLY else {}
    metadata = {"name": "other", **labelled, **ABANDON["metadata"], **more}
    return {**KIND, "metadata": metadata}


WRITES = [
    (bodies.MERGE, "PATCH"),
    (bodies.JSON_PATCH, "PATCH"),
    (bodies.JSON, "PUT"),
    (bodies.APPLY, "PATCH"),
]


@pytest.mark.parametrize(("kind", "method"), WRITES)
async def test_a_cluster_that_is_being_deleted_can_only_be_abandoned(
    fleet: Fleet, kind: str, method: str
) -> None:
    before = fleet.plane.trees[KEY]
    status, told = await write(
        fleet, written(fleet, kind, method, labels={"another": "1"}), kind, method
    )
    assert (status, "is being deleted" in told["message"]) == (409, True), told
    assert (
        await write(fleet, written(fleet, kind, method), kind, method, "&dryRun=All")
    )[0] == 200
    assert fleet.plane.trees[KEY] is before
    status, told = await write(fleet, written(fleet, kind, method), kind, method)
    assert status == 200, told
    assert fleet.plane.trees[KEY]["metadata"]["annotations"][labels.ABANDON] == "true"


@pytest.mark.parametrize("query", ["", "&dryRun=All"])
@pytest.mark.parametrize("changes_nothing", [True, False])
async def test_an_unchanged_apply_to_an_object_that_is_being_deleted_is_rejected(
    fleet: Fleet, query: str, *, changes_nothing: bool
) -> None:
    """Otherwise a client could believe that the object persists."""
    labelled, query = (
        ({"tier": "gold"}, query)
        if changes_nothing
        else ({"tier": "silver"}, f"{query}&force=true")
    )
    body = {**KIND, "metadata": {"name": "other", "labels": labelled}}
    status, told = await write(fleet, body, bodies.APPLY, "PATCH", query)
    assert (status, "is being deleted" in told["message"]) == (409, True), told
