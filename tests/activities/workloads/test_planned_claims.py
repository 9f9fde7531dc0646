"""An apply creates the claim templates that remaining pods use.

Claims are immutable, so a changed claim has another name. These tests need no cluster.
"""

import pytest

from activities.cluster_objects.cluster_api import Json, ObjectId
from activities.render.objects.inventory_keys import (
    CLAIM_TEMPLATE_PREFIX,
    ENGINE_PREFIX,
)
from activities.render.objects.manifest import RenderedObject
from activities.workloads.pending import _planned
from api_types import labels

KEY = f"{CLAIM_TEMPLATE_PREFIX}main-standalone"
MANIFEST: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaimTemplate",
    "metadata": {"name": "claim", "namespace": "ml", "labels": {labels.ENGINE: "main"}},
}
ITEM = RenderedObject(KEY, MANIFEST, "hash", create_only=True)


@pytest.mark.parametrize(
    ("there", "staying", "named", "made"),
    [
        (False, "main", ["other"], False),
        (False, "main", ["claim"], True),
        (True, "main", ["other"], True),
        (False, "second", ["other"], True),
        (False, "", [], True),
    ],
    ids=[
        "one for pods to come waits with them",
        "a claim that remaining pods need is created again",
        "an existing claim stays",
        "the pods of another engine stay",
        "no pods stay",
    ],
)
def test_claim_templates_are_created_for_the_pods_that_use_them(
    there: bool,
    staying: str,
    named: list[str],
    made: bool,
) -> None:
    kept: dict[str, RenderedObject | None] = (
        {f"{ENGINE_PREFIX}{staying}": None} if staying else {}
    )
    found = {ObjectId.of(MANIFEST): MANIFEST if there else None}
    assert _planned(ITEM, kept, found, named) == (ITEM if made else None)
