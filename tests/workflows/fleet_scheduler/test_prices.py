"""Prices of classes on a running fleet: they reach the clusters that use the class, and the profile `cheap` follows them."""

from collections.abc import AsyncIterator

import pytest

from api_types.labels import PRICE_PER_NODE_HOUR
from tests.workflows.environment.harness import ControlPlane, Json, a_deployment

pytestmark = pytest.mark.testbed

# In the testbed's fleet each of the two clusters has a class of its own, and one that both have.
ONLY_EU, ONLY_US = "h100-8x", "h200-8x"


async def price(plane: ControlPlane, name: str, per_hour: str | None) -> int:
    """Apply a class again with a price, or without; gives the generation after that."""
    seen = await plane.describe("InferenceClass", name)
    annotations = {PRICE_PER_NODE_HOUR: per_hour} if per_hour else {}
    document = {**{key: seen[key] for key in ("apiVersion", "kind", "spec")}, "metadata": {"name": name, "annotations": annotations}}
    request = await plane.apply(document)
    seen = await plane.until("InferenceClass", name, lambda seen: request in seen["appliedRequestIds"])
    generation: int = seen["metadata"]["generation"]
    return generation


async def published(plane: ControlPlane, cluster: str, prices: dict[str, int | None]) -> None:
    """Wait until the cluster's pools have these prices, None for none."""

    def has_prices(seen: Json) -> bool:
        return {pool["name"]: pool.get("priceMilli") for pool in seen["status"].get("gpuPools", ())} == prices

    await plane.until("InferenceCluster", cluster, has_prices)


async def place_of(plane: ControlPlane, name: str, namespace: str) -> str:
    """Apply a deployment with the profile `cheap`; gives the cluster and pool where it is placed."""
    document = a_deployment(name, namespace)
    document["spec"]["scheduling"] = {"profile": "cheap"}
    await plane.apply(document)
    seen = await plane.until("ModelDeployment", name, lambda seen: bool(seen.get("status", {}).get("placements")), namespace)
    (placement,) = seen["status"]["placements"]
    replica = await plane.until("ModelReplica", placement["replica"], lambda seen: bool(seen.get("spec")), namespace)
    return f"{placement['cluster']}/{replica['spec']['engines'][0]['members'][0]['nodePoolName']}"


@pytest.fixture
async def unpriced(plane: ControlPlane) -> AsyncIterator[ControlPlane]:
    """The fleet, with no price left at the end."""
    yield plane
    for name in (ONLY_EU, ONLY_US):
        await price(plane, name, None)
    await published(plane, "prod-eu", {"h100": None, "l40s": None})
    await published(plane, "prod-us", {"h200": None, "l40s": None})


async def test_the_profile_cheap_follows_the_price_that_a_class_has_now(unpriced: ControlPlane, namespace: str) -> None:
    plane = unpriced
    before = (await plane.describe("InferenceClass", ONLY_EU))["metadata"]["generation"]
    await price(plane, ONLY_EU, "98.32")
    await price(plane, ONLY_US, "120")
    await published(plane, "prod-eu", {"h100": 98_320, "l40s": None})
    await published(plane, "prod-us", {"h200": 120_000, "l40s": None})
    assert await place_of(plane, "first", namespace) == "prod-eu/h100"

    assert await price(plane, ONLY_EU, "150") == before  # no spec changed, so no generation did
    await published(plane, "prod-eu", {"h100": 150_000, "l40s": None})
    assert await place_of(plane, "second", namespace) == "prod-us/h200"

    await price(plane, ONLY_US, None)
    await published(plane, "prod-us", {"h200": None, "l40s": None})
    # A pool without a price counts as the most expensive.
    assert await place_of(plane, "third", namespace) == "prod-eu/h100"
    for name in ("first", "second", "third"):
        await plane.delete("ModelDeployment", name, namespace)
        await plane.gone("ModelDeployment", name, namespace)
