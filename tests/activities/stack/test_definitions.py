"""The definitions of charts, which Helm installs once and never upgrades."""

from typing import Any

import pytest

from activities.cluster_objects.kinds import GATEWAY, HTTP_ROUTE
from activities.render.objects.manifest import RenderOwner
from activities.render.stack import components, objects
from activities.stack import definitions
from api_types.errors import InvalidInput, NameConflict, TransientError
from api_types.messages.stack import Lag
from api_types.resources.serving_stack import ServingStackSpec
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    POOLS,
    StackUnderTest,
    a_pool,
    shown,
)
from tests.environment.stack_charts import envoy_gateway

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

Json = dict[str, Any]

ENVOY = components.ENVOY_GATEWAY.key
GATEWAYS = "gateways.gateway.networking.k8s.io"
PROXIES = "envoyproxies.gateway.envoyproxy.io"
MONITORS = "podmonitors.monitoring.coreos.com"
BUNDLE = "gateway.networking.k8s.io/bundle-version"
CHANNEL = "gateway.networking.k8s.io/channel"
THEIR_POOL = "inferencepools.inference.networking.k8s.io"
DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
}


def proxies(version: str = "v1alpha1", **names: str) -> Json:
    """Return a definition of EnvoyProxy, or of another kind with its names."""
    taken = {
        "kind": "EnvoyProxy",
        "plural": "envoyproxies",
        "singular": "envoyproxy",
        "listKind": "EnvoyProxyList",
        **names,
    }
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    versions = [{"name": version, "served": True, "storage": True, "schema": schema}]
    spec = {
        "group": "gateway.envoyproxy.io",
        "scope": "Namespaced",
        "names": taken,
        "versions": versions,
    }
    return {
        "metadata": {"name": f"{taken['plural']}.gateway.envoyproxy.io"},
        "spec": spec,
    }


def definition(stack: StackUnderTest, name: str) -> Json:
    """Read a definition of the cluster."""
    found = stack.world.get(f"{DEFINITIONS}/{name}")
    assert found
    return found


def notes_of(stack: StackUnderTest, name: str) -> Json:
    notes: Json = definition(stack, name)["metadata"].get("annotations") or {}
    return notes


def written(stack: StackUnderTest) -> dict[str, tuple[str, int, Json]]:
    """Return the written part of the definitions.

    Their resourceVersion also changes when the API server writes a status.
    """
    found = (each["metadata"] for each in stack.world.items(DEFINITIONS))
    return {
        each["name"]: (each["uid"], each["generation"], each.get("annotations") or {})
        for each in found
    }


def is_established(found: Json) -> bool:
    told = {each["type"]: each["status"] for each in found["status"]["conditions"]}
    return (told.get("Established"), told.get("NamesAccepted")) == ("True", "True")


async def test_definitions_of_subcharts_are_applied_established_and_served(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    applied = await stack.crds(plan, ENVOY, components.PROMETHEUS.key)
    found = stack.world.items(DEFINITIONS)
    assert {GATEWAYS, PROXIES, MONITORS} <= {each["metadata"]["name"] for each in found}
    assert (applied.objects, applied.notes) == (len(found), [])
    assert [
        each["metadata"]["name"] for each in found if not is_established(each)
    ] == []
    # Discovery lists the new kinds from now on.
    assert {GATEWAY, HTTP_ROUTE} <= set(await (await stack.api()).resources())
    assert stack.world.releases() == {}


async def test_definitions_that_are_applied_twice_are_the_same(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    first = await stack.crds(plan, ENVOY)
    before = written(stack)
    await stack.apply(plan, objects.CRDS)
    assert await stack.crds(plan, ENVOY) == first
    assert written(stack) == before


async def test_a_newer_bundle_of_the_gateway_api_is_kept_with_a_note(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, ENVOY)
    stack.world.patch(
        f"{DEFINITIONS}/{GATEWAYS}", {"metadata": {"annotations": {BUNDLE: "v1.10.0"}}}
    )
    stack.world.patch(
        f"{DEFINITIONS}/httproutes.gateway.networking.k8s.io",
        {"metadata": {"annotations": {BUNDLE: "v1.4.0"}}},
    )
    applied = await stack.crds(plan, ENVOY)
    note = (
        f"{GATEWAYS} is not changed: the cluster has v1.10.0, which is newer than "
        f"{plan.spec['versions']['gatewayApi']}"
    )
    assert applied.notes == [note]
    assert applied.objects == len(stack.world.items(DEFINITIONS)) - 1
    assert notes_of(stack, GATEWAYS)[BUNDLE] == "v1.10.0"
    assert (
        notes_of(stack, "httproutes.gateway.networking.k8s.io")[BUNDLE]
        == plan.spec["versions"]["gatewayApi"]
    )


async def test_a_definition_that_would_lose_objects_is_refused_and_nothing_is_applied(
    stack: StackUnderTest,
) -> None:
    await (await stack.api()).apply({**DEFINITION, **proxies("v0")})
    plan = await stack.plan()
    with pytest.raises(
        InvalidInput,
        match=f"{PROXIES}: objects of version v0 are stored, .* migrate them first",
    ):
        await stack.crds(plan, ENVOY)
    assert stack.world.names(DEFINITIONS) == [PROXIES]
    assert definition(stack, PROXIES)["spec"]["versions"][0]["name"] == "v0"


async def test_the_gateway_api_moves_to_its_experimental_channel_and_not_back(
    stack: StackUnderTest,
) -> None:
    stack.world.charts.add(envoy_gateway("v1.8.20", channel="standard"))
    standard = stack.with_settings(versions={"envoyGateway": "v1.8.20"})
    await standard.crds(await standard.plan(), ENVOY)
    assert notes_of(stack, GATEWAYS)[CHANNEL] == "standard"
    await stack.crds(await stack.plan(), ENVOY)
    with pytest.raises(
        InvalidInput,
        match=f"{GATEWAYS}: the cluster has the experimental channel of the Gateway API, "
        "and the chart has the standard",
    ):
        await standard.crds(await standard.plan(), ENVOY)
    assert notes_of(stack, GATEWAYS)[CHANNEL] == "experimental"


async def test_a_definition_whose_names_are_taken_is_retried_with_the_reason(
    stack: StackUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_ESTABLISHED_SECONDS", 2.0)
    taken = proxies(plural="theirs", singular="their")
    await (await stack.api()).apply({**DEFINITION, **taken})
    plan = await stack.plan()
    with pytest.raises(
        TransientError,
        match=f"not established: .*{PROXIES}: Established is False: NotAccepted",
    ):
        await stack.crds(plan, ENVOY)
    stack.world.delete(f"{DEFINITIONS}/theirs.gateway.envoyproxy.io")
    monkeypatch.undo()
    await stack.crds(plan, ENVOY)
    assert is_established(definition(stack, PROXIES))


def their_pools(stack: StackUnderTest, spec: Json) -> Json:
    """Create the definition of InferencePools without our marks, as others would."""
    items = objects.group(
        objects.CRDS,
        ServingStackSpec.model_validate(spec),
        RenderOwner("", "", "", "", generation=0),
    )
    (manifest,) = (
        item.manifest
        for item in items
        if item.manifest["metadata"]["name"] == THEIR_POOL
    )
    theirs = {
        **manifest,
        "metadata": {
            "name": THEIR_POOL,
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
    }
    stack.world.create(DEFINITIONS, theirs)
    return theirs


async def test_foreign_definitions_are_used_and_kept_with_their_objects(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    their_pools(stack, plan.spec)
    applied = await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    assert (applied.objects, applied.notes) == (
        3,
        [f"{THEIR_POOL} belongs to others and is not changed"],
    )
    assert "modelplane.ai/owner-uid" not in notes_of(stack, THEIR_POOL)
    assert (await stack.until_ready(plan)).lags == []
    stack.world.create(POOLS, a_pool())
    # Foreign pools are no reason to wait, because their definition is kept.
    removed = await stack.remove(plan, objects.CRDS)
    assert (shown(removed), len(removed.skipped)) == ([], 1)
    assert set(stack.world.names(DEFINITIONS)) & set(objects.INFERENCE_CRDS) == {
        THEIR_POOL
    }


async def test_newer_definitions_of_the_inference_extension_are_kept(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    newer = {"inference.networking.k8s.io/bundle-version": "v1.50.0"}
    stack.world.patch(
        f"{DEFINITIONS}/{THEIR_POOL}", {"metadata": {"annotations": newer}}
    )
    applied = await stack.apply(plan, objects.CRDS)
    assert applied.notes == [
        f"{THEIR_POOL} is not changed: the cluster has v1.50.0, which is newer than v1.5.0"
    ]
    assert newer.items() <= notes_of(stack, THEIR_POOL).items()


async def test_a_definition_that_is_being_deleted_must_be_applied_again(
    stack: StackUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "_ESTABLISHED_SECONDS", 2.0)
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES, objects.CRDS)
    stack.world.create(POOLS, a_pool(finalizers=["example.com/held"]))
    stack.world.delete(f"{DEFINITIONS}/{THEIR_POOL}")
    (lag,) = (await stack.look(plan)).lags
    assert lag == Lag(
        target=objects.CRDS,
        object=f"CustomResourceDefinition {THEIR_POOL}",
        why="is being deleted",
        missing=True,
    )
    with pytest.raises(
        TransientError, match=f"not established: {THEIR_POOL}: is being deleted"
    ):
        await stack.apply(plan, objects.CRDS)
    stack.world.patch(f"{POOLS}/pool", {"metadata": {"finalizers": None}})
    await eventually(lambda: stack.world.get(f"{DEFINITIONS}/{THEIR_POOL}") is None)
    monkeypatch.undo()
    await stack.apply(plan, objects.CRDS)
    assert (await stack.look(plan)).lags == []


async def test_a_foreign_object_other_than_a_definition_is_a_conflict(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.NAMESPACES)
    path = "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas"
    stack.world.create(
        path,
        {"metadata": {"name": "allow-critical-pods"}, "spec": {"hard": {"pods": "3"}}},
    )
    with pytest.raises(
        NameConflict,
        match="allow-critical-pods exists already and belongs to no known owner; "
        "delete it, or annotate",
    ) as refused:
        await stack.apply(plan, objects.QUOTA_GROUP)
    assert refused.value.details == ("ReleaseConflict",)
    (quota,) = stack.world.items(path)
    assert quota["spec"]["hard"] == {"pods": "3"}


async def test_deleted_namespaces_are_created_again_first(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.apply(plan, objects.QUOTA_GROUP)
    assert {"modelplane-system", "dra-driver-nvidia-gpu"} <= set(
        stack.world.names("/api/v1/namespaces")
    )
    assert stack.world.names(
        "/api/v1/namespaces/dra-driver-nvidia-gpu/resourcequotas"
    ) == ["allow-critical-pods"]
