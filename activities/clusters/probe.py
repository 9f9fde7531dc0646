"""Probe a cluster for what features need beyond the served API versions.

A definition may be too old for a feature, and the definitions of a driver may be
installed without the driver. A user without the permission to read definitions or
DeviceClasses can use the cluster nevertheless: unreadable facts count as unknown, and
no feature is reported as missing because of them.
"""

from collections.abc import Mapping
from typing import Any

from activities.cluster_objects import kinds
from activities.cluster_objects.access_review import ResourceRight
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    GroupVersionKind,
    Json,
    ObjectId,
    Selection,
)
from api_types.errors import PermissionDenied, StackMissing
from api_types.limits import DEVICE_CLASSES_MAX
from api_types.pins import apiversions
from api_types.pins.features import FEATURES, Feature

# A server may return a string of any length.
_NAME_MAX = 253

Served = Mapping[GroupVersionKind, ApiResource]

RIGHTS = (
    ResourceRight("get", "customresourcedefinitions", kinds.CRD.group),
    ResourceRight("list", "deviceclasses", apiversions.DRA_GROUP),
)
"""The permissions of the probe. A user may lack them."""


async def probed_facts(cluster: ClusterApi, served: Served) -> dict[str, Any]:
    """Return the facts `missing_features` and `device_classes` of a cluster."""
    classes = await _device_classes(cluster, served)
    missing = [
        feature.key
        for feature in FEATURES
        if await _is_missing(cluster, served, classes, feature)
    ]
    is_known = classes is not None and len(classes) <= DEVICE_CLASSES_MAX
    return {
        "missing_features": missing,
        "device_classes": classes if is_known else None,
    }


async def _is_missing(
    cluster: ClusterApi, served: Served, classes: list[str] | None, feature: Feature
) -> bool:
    versions = (GroupVersionKind(each, feature.kind) for each in feature.api_versions)
    kind = next((version for version in versions if version in served), None)
    if kind is None:
        return True
    if feature.device_class and classes is not None:
        return feature.device_class not in classes
    return bool(feature.list_field) and await _allows_only_one(
        cluster, served[kind], feature.list_field
    )


async def _allows_only_one(
    cluster: ClusterApi, resource: ApiResource, field: str
) -> bool:
    """Return whether a list in the spec of a kind may have only one item."""
    name = f"{resource.plural}.{resource.kind.group}"
    try:
        definition = await cluster.get(ObjectId(kinds.CRD, "", name))
    except PermissionDenied:
        return False
    version = resource.kind.api_version.rpartition("/")[2]
    return _most_items(definition or {}, version, field) == 1


def _most_items(definition: Json, version: str, field: str) -> int | None:
    """Return `maxItems` of a list in the spec, or None without that limit."""
    for each in (definition.get("spec") or {}).get("versions") or ():
        if each.get("name") == version:
            schema = (each.get("schema") or {}).get("openAPIV3Schema") or {}
            spec = (schema.get("properties") or {}).get("spec") or {}
            found = (spec.get("properties") or {}).get(field) or {}
            limit = found.get("maxItems")
            return limit if isinstance(limit, int) else None
    return None


async def _device_classes(cluster: ClusterApi, served: Served) -> list[str] | None:
    """Return the names of all DeviceClasses, sorted; None if they are unknown."""
    kind = kinds.resolve((f"{apiversions.DRA_GROUP}/", "DeviceClass"), served)
    if kind is None:
        return None
    try:
        listed = await cluster.list(Selection(kind, metadata_only=True))
    except (PermissionDenied, StackMissing):
        return None
    return sorted(str(item["metadata"]["name"])[:_NAME_MAX] for item in listed.items)
