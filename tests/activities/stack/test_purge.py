"""The removal of definitions that charts left."""

from typing import Any

import pytest

from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Keep,
    ObjectList,
    Selection,
    whole,
)
from activities.render.stack import components, objects
from activities.stack import purge as purging
from api_types.errors import StackMissing
from api_types.messages.cluster_work import RemainingObject
from api_types.messages.stack import PurgedDefinitions, PurgeDefinitions, StackPlan
from tests.activities.environment.cluster_under_test import eventually
from tests.activities.stack.stack_under_test import (
    DEFINITIONS,
    GATEWAY_API,
    StackUnderTest,
)

pytestmark = [pytest.mark.testbed("shared"), pytest.mark.long]

LWS, NFD, ENVOY = (
    components.LEADER_WORKER_SET.key,
    components.NODE_FEATURE_DISCOVERY.key,
    components.ENVOY_GATEWAY.key,
)
SETS = "leaderworkersets.leaderworkerset.x-k8s.io"
FEATURES = "nodefeatures.nfd.k8s-sigs.io"
CLASSES = "gatewayclasses.gateway.networking.k8s.io"


async def purge(
    stack: StackUnderTest, plan: StackPlan, *components_: str, **more: Any
) -> PurgedDefinitions:
    releases = [plan.releases[component] for component in components_]
    order = PurgeDefinitions(
        **{"releases": releases, "wait_seconds": 60, **stack.base, **more}
    )
    found: PurgedDefinitions = await stack.run(
        stack.activities.purge_definitions, order
    )
    return found


async def remaining(stack: StackUnderTest, plan: StackPlan) -> list[RemainingObject]:
    """Purge once, without waiting, and return the remaining definitions.

    The list is empty until the API server serves them.
    """
    return (await purge(stack, plan, LWS, wait_seconds=0)).remaining


async def test_unused_definitions_are_deleted_and_used_ones_are_kept_and_named(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS, ENVOY)
    for name in ("theirs", "others"):
        stack.world.create(
            f"{GATEWAY_API}/gatewayclasses",
            {
                "kind": "GatewayClass",
                "metadata": {"name": name},
                "spec": {"controllerName": "example.com/other"},
            },
        )
    # For a chart whose definitions others have applied.
    stack.world.create(DEFINITIONS, {"kind": "CustomResourceDefinition", **features()})
    found = await purge(stack, plan, LWS, NFD, ENVOY)
    assert found.remaining == []
    assert {kept.name: kept.why for kept in found.kept} == {
        CLASSES: "its objects would be deleted with it: others, theirs",
        FEATURES: "it was not applied for this stack",
    }
    assert stack.world.names(DEFINITIONS) == [CLASSES, FEATURES]
    for name in ("theirs", "others"):
        stack.world.delete(f"{GATEWAY_API}/gatewayclasses/{name}")
    assert [kept.name for kept in (await purge(stack, plan, LWS, NFD, ENVOY)).kept] == [
        FEATURES
    ]
    assert stack.world.names(DEFINITIONS) == [FEATURES]


async def test_a_new_definition_is_deleted_once_it_is_served(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    told: list[Any] = []
    order = PurgeDefinitions(
        releases=[plan.releases[LWS]], wait_seconds=60, **stack.base
    )
    async with stack.activities.helm.at(order.connection) as helm:
        found = await purging.purge(
            NotServedYet(await stack.api()), helm, order, told.append
        )
    assert found == PurgedDefinitions()
    assert told[0] == {
        "waitingFor": [
            f"CustomResourceDefinition {SETS} (its objects cannot be listed: not served yet)"
        ]
    }
    assert SETS not in stack.world.names(DEFINITIONS)


async def test_a_definition_that_is_not_deleted_is_named_with_the_reason_until_it_is_skipped(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    stack.world.patch(
        f"{DEFINITIONS}/{SETS}", {"metadata": {"finalizers": ["example.com/held"]}}
    )
    try:
        await eventually(lambda: remaining(stack, plan))
        (held,) = await remaining(stack, plan)
        assert "finalizer example.com/held" in held.why
        assert (await purge(stack, plan, LWS, skipped=[held.id])).remaining == []
    finally:
        stack.world.patch(f"{DEFINITIONS}/{SETS}", {"metadata": {"finalizers": None}})


async def test_a_definition_whose_objects_cannot_be_listed_is_kept_with_the_reason(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, NFD)
    live = stack.world.get(f"{DEFINITIONS}/{FEATURES}")
    assert live
    versions = [{**version, "served": False} for version in live["spec"]["versions"]]
    stack.world.patch(f"{DEFINITIONS}/{FEATURES}", {"spec": {"versions": versions}})
    found = await purge(stack, plan, NFD)
    assert {kept.name: kept.why for kept in found.kept}[
        FEATURES
    ] == "no version of it is served, so its objects cannot be listed"
    assert FEATURES in stack.world.names(DEFINITIONS)


async def test_a_definition_with_names_of_another_one_is_kept(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    stack.world.create(
        DEFINITIONS,
        {
            "kind": "CustomResourceDefinition",
            **defined("others.leaderworkerset.x-k8s.io", "Other", "SetList"),
        },
    )
    applied = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        **defined(SETS, "LeaderWorkerSet", "SetList"),
    }
    await (await stack.api()).apply(applied)
    (kept,) = (await purge(stack, plan, LWS)).kept
    assert (kept.name, kept.why.partition(": ")[0]) == (
        SETS,
        "its objects cannot be listed",
    )
    assert SETS in stack.world.names(DEFINITIONS)


async def test_definitions_of_a_release_or_of_another_owners_stack_are_kept(
    stack: StackUnderTest,
) -> None:
    plan = await stack.plan()
    await stack.crds(plan, LWS)
    mark = {
        "meta.helm.sh/release-namespace": "apps",
        "meta.helm.sh/release-name": "theirs",
    }
    stack.world.patch(f"{DEFINITIONS}/{SETS}", {"metadata": {"annotations": mark}})
    assert [kept.why for kept in (await purge(stack, plan, LWS)).kept] == [
        "it belongs to release apps/theirs"
    ]
    stack.world.patch(
        f"{DEFINITIONS}/{SETS}", {"metadata": {"annotations": dict.fromkeys(mark)}}
    )
    other = stack.of_another()
    await other.apply(plan, objects.NAMESPACES)
    result = await purge(stack, plan, LWS)
    assert (result.kept, result.remaining) == ([], [])
    assert "belongs to" in result.skipped[0]
    assert SETS in stack.world.names(DEFINITIONS)


class NotServedYet:
    """A cluster that serves no kind at the first discovery."""

    def __init__(self, cluster: ClusterApi) -> None:
        self.cluster, self.was_asked = cluster, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        if self.was_asked:
            return await self.cluster.list(selection, keep)
        self.was_asked = True
        raise StackMissing("not served yet")


def features() -> dict[str, Any]:
    """Return the definition of NodeFeature, as others have it."""
    return defined(FEATURES, "NodeFeature", "NodeFeatureList")


def defined(name: str, kind: str, list_kind: str) -> dict[str, Any]:
    """Return the definition of a kind with arbitrary fields."""
    plural, _, group = name.partition(".")
    schema = {
        "openAPIV3Schema": {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
        }
    }
    names = {
        "kind": kind,
        "plural": plural,
        "singular": kind.lower(),
        "listKind": list_kind,
    }
    versions = [{"name": "v1alpha1", "served": True, "storage": True, "schema": schema}]
    return {
        "metadata": {"name": name},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": names,
            "versions": versions,
        },
    }
