"""The probe finds features that the served API versions alone do not show."""

from typing import Any

import pytest

from activities.cluster_objects.cluster_api import (
    ApiResource,
    GroupVersionKind,
    ObjectId,
    ObjectList,
    Selection,
)
from activities.clusters.probe import probed_facts
from api_types.errors import PermissionDenied
from api_types.limits import DEVICE_CLASSES_MAX
from api_types.pins import apiversions
from api_types.pins.features import FEATURES

POOL_DEFINITION = "inferencepools.inference.networking.k8s.io"
CHANNELS = "compute-domain-default-channel.nvidia.com"
DEVICE_CLASS = GroupVersionKind("resource.k8s.io/v1", "DeviceClass")
EVERYTHING = {
    *(
        GroupVersionKind(version, each.kind)
        for each in FEATURES
        for version in each.api_versions
    ),
    DEVICE_CLASS,
}


def a_pool_definition(most_ports: int, version: str = "v1") -> dict[str, Any]:
    ports = {"type": "array", "maxItems": most_ports}
    spec = {"type": "object", "properties": {"targetPorts": ports}}
    schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
    older = {"name": "v1alpha2", "schema": {}}
    return {"spec": {"versions": [older, {"name": version, "schema": schema}]}}


class Cluster:
    """A cluster with one definition and some DeviceClasses; None refuses the reading."""

    def __init__(
        self, definition: dict[str, Any] | None, classes: list[str] | None
    ) -> None:
        self.definition = definition
        self.classes = classes

    async def get(self, target: ObjectId) -> dict[str, Any]:
        assert target.name == POOL_DEFINITION
        if self.definition is None:
            raise PermissionDenied("customresourcedefinitions")
        return self.definition

    async def list(self, selection: Selection) -> ObjectList:
        assert selection == Selection(DEVICE_CLASS, metadata_only=True)
        if self.classes is None:
            raise PermissionDenied("deviceclasses")
        return ObjectList([{"metadata": {"name": name}} for name in self.classes], "1")


async def probed(
    served: set[GroupVersionKind] = EVERYTHING,
    definition: dict[str, Any] | None = a_pool_definition(8),  # noqa: B008
    classes: list[str] | None = [CHANNELS],  # noqa: B006
) -> tuple[list[str], list[str] | None]:
    resources = {
        kind: ApiResource(
            kind, f"{kind.kind.lower()}s", namespaced=True, verbs=frozenset()
        )
        for kind in served
    }
    cluster: Any = Cluster(definition, classes)
    found = await probed_facts(cluster, resources)
    return found["missing_features"], found["device_classes"]


async def test_a_complete_cluster_lacks_nothing() -> None:
    assert await probed() == ([], [CHANNELS])


async def test_a_cluster_without_the_kinds_lacks_every_feature() -> None:
    everything = [feature.key for feature in FEATURES]
    assert await probed(served=set()) == (everything, None)


async def test_each_kind_is_missed_in_all_of_its_versions_only() -> None:
    older = GroupVersionKind(apiversions.MODEL_REWRITES[1], "InferenceModelRewrite")
    router = GroupVersionKind(apiversions.MODEL_REWRITES[0], "InferenceModelRewrite")
    assert (await probed(served=EVERYTHING - {router}))[0] == []
    assert (await probed(served=EVERYTHING - {router, older}))[0] == ["modelNames"]


@pytest.mark.parametrize(
    ("definition", "lacks"),
    [
        (a_pool_definition(1), ["dataParallel"]),
        (a_pool_definition(8), []),
        # Another version of the kind says nothing about the version that is used.
        (a_pool_definition(1, "v1beta1"), []),
        ({}, []),
        # The user may not read definitions.
        (None, []),
    ],
)
async def test_pools_with_one_port_lack_ranks(
    definition: dict[str, Any] | None, lacks: list[str]
) -> None:
    assert (await probed(definition=definition))[0] == lacks


@pytest.mark.parametrize(
    ("classes", "found"),
    [
        # The definition of ComputeDomain is part of a driver that does not serve it.
        (["gpu.nvidia.com"], (["computeDomain"], ["gpu.nvidia.com"])),
        ([CHANNELS, "gpu.nvidia.com"], ([], [CHANNELS, "gpu.nvidia.com"])),
        (None, ([], None)),
        (
            [CHANNELS, *(f"class-{n}" for n in range(DEVICE_CLASSES_MAX))],
            ([], None),
        ),
    ],
)
async def test_device_classes_show_the_parts_of_drivers(
    classes: list[str] | None, found: tuple[list[str], list[str] | None]
) -> None:
    missing, known = await probed(classes=classes)
    assert (missing, known and sorted(known)) == (found[0], found[1])
