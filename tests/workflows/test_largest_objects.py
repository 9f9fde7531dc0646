"""The largest class, cluster and cache that admission accepts complete a whole
lifecycle on a real server, without an oversized payload.

The largest deployments are in `model_deployment/test_largest_life.py`.
"""

import random
import string
from typing import Any

import pytest

from api_types import names
from api_types.limits import CLASS_BYTES_MAX
from api_types.payloads.limits import MANIFEST_BYTES_MAX, PAYLOAD_BYTES_MAX, wire_size
from api_types.validation.admission import admit
from api_types.validation.problems import InvalidManifest
from fleet_client.checks import CHECKS
from tests.workflows.environment.harness import Json, a_cache, condition
from tests.workflows.environment.payload_sizes import assert_within_limits
from tests.workflows.environment.short_runs import runs
from tests.workflows.environment.simulated_clusters import (
    a_class,
    a_cluster,
    simulated_plane,
)

pytestmark = pytest.mark.testbed("shared")

POOLS = 8
NAMESPACE = "ml-team"
CLUSTER = "largest"
SIZES: dict[str, int] = {}
"""The length of the text that was found for an object of each kind."""


def noise(size: int, seed: object) -> str:
    """Return an incompressible text that depends only on the seed."""
    return "".join(
        random.Random(f"{seed}/{size}").choices(string.ascii_lowercase, k=size)  # noqa: S311
    )


def largest_class(number: int, version: int = 1) -> Json:
    """Return a class whose spec has the maximum size.

    Four devices with 32 attributes, and a description for the rest.
    """
    document = a_class(f"class-{number}")
    (device,) = document["spec"]["devices"]
    document["spec"]["devices"] = [
        {
            **device,
            "name": f"gpu-{n}",
            "attributes": {
                f"a{key}": {"string": noise(200, f"{number}/{version}/{n}/{key}")}
                for key in range(32)
            },
        }
        for n in range(4)
    ]
    return filled(document, document["spec"], "description", f"{number}/{version}")


def largest_cluster(version: int) -> Json:
    """Return a cluster of eight pools with a class each, and with labels and
    annotations up to the maximum size of a manifest.
    """
    document = a_cluster(CLUSTER)
    document["spec"]["nodePools"] = [
        {"name": f"{noise(36, n)}-{n}", "className": f"class-{n}", "nodeCount": 1_000}
        for n in range(POOLS)
    ]
    document["metadata"]["labels"] = {
        f"example.com/{noise(50, n)}": noise(63, n) for n in range(32)
    }
    return filled(
        document, document["metadata"]["annotations"], "example.com/note", version
    )


def largest_cache(version: int) -> Json:
    """Return a cache with labels and annotations up to the maximum size of a manifest."""
    document = a_cache("largest", NAMESPACE, "example/model")
    document["metadata"]["labels"] = {
        f"example.com/{noise(50, n)}": noise(63, n) for n in range(32)
    }
    document["metadata"]["annotations"] = {}
    return filled(
        document, document["metadata"]["annotations"], "example.com/note", version
    )


def filled(document: Json, holder: dict[str, Any], key: str, seed: object) -> Json:
    """Lengthen one text of a document up to the limit of admission.

    Return the document as it is stored.
    """

    def fits(size: int) -> bool:
        holder[key] = "x" * size
        return is_lawful(document)

    # Objects of a kind differ in no length, and a search admits twenty documents.
    least = SIZES.get(document["kind"], 0)
    most = least if fits(least) and not fits(least + 1) else MANIFEST_BYTES_MAX
    while least < most:
        middle = (least + most + 1) // 2
        least, most = (middle, most) if fits(middle) else (least, middle - 1)
    SIZES[document["kind"]] = least
    holder[key] = noise(least, seed)
    assert is_lawful(document)
    return admit(document, CHECKS).manifest.model_dump(
        mode="json", by_alias=True, exclude_none=True
    )


def is_lawful(document: Json) -> bool:
    try:
        admit(document, CHECKS)
    except InvalidManifest as problem:
        if "at most" not in str(problem):
            raise
        return False
    return True


async def test_the_largest_class_cluster_and_cache_complete_a_whole_lifecycle() -> None:
    classes = [largest_class(n) for n in range(POOLS)]
    assert all(
        CLASS_BYTES_MAX - 64 < wire_size(each["spec"]) <= CLASS_BYTES_MAX
        for each in classes
    )
    for document in (largest_cluster(1), largest_cache(1)):
        assert MANIFEST_BYTES_MAX - 2_048 < wire_size(document) <= MANIFEST_BYTES_MAX
    # Runs are short, so that everything is carried over as well.
    async with simulated_plane(events=60) as plane:
        for document in (*classes, largest_cluster(1), largest_cache(1)):
            await plane.apply(document)
        await plane.ready("InferenceCluster", CLUSTER)
        await plane.ready("ModelCache", "largest", NAMESPACE)
        # Everything changes, and every entity with a copy is informed.
        for document in (
            largest_class(0, version=2),
            largest_cluster(2),
            largest_cache(2),
        ):
            await plane.apply(document)
        for kind, namespace in (("InferenceCluster", ""), ("ModelCache", NAMESPACE)):
            wanted = (largest_cluster if kind == "InferenceCluster" else largest_cache)(
                2
            )["metadata"]["annotations"]["example.com/note"]

            def changed(seen: Json, wanted: str = wanted) -> bool:
                return (
                    condition(seen, "Ready") == "True"
                    and seen["metadata"]["annotations"]["example.com/note"] == wanted
                )

            shown = await plane.until(kind, CLUSTER, changed, namespace)
            assert wire_size(shown) <= PAYLOAD_BYTES_MAX
        await plane.delete("ModelCache", "largest", NAMESPACE)
        await plane.gone("ModelCache", "largest", NAMESPACE)
        await plane.delete("InferenceCluster", CLUSTER)
        await plane.gone("InferenceCluster", CLUSTER)
        for number in range(POOLS):
            await plane.delete("InferenceClass", f"class-{number}")
            await plane.gone("InferenceClass", f"class-{number}")
        ids = [
            names.workflow_id("InferenceClass", "", f"class-{number}")
            for number in range(POOLS)
        ]
        ids += [
            names.workflow_id("InferenceCluster", "", CLUSTER),
            names.workflow_id("ModelCache", NAMESPACE, "largest"),
        ]
        for workflow_id in (*ids, names.FLEET_SCHEDULER_ID):
            await assert_within_limits(plane.client, workflow_id)
        assert (
            await runs(plane.client, names.workflow_id("InferenceCluster", "", CLUSTER))
            > 1
        )
