"""Warnings of `apply` about what manifests name or use and the fleet lacks.

They reveal a misspelt name, or a feature that no cluster has, before an object waits
for it. Only the named objects, and the clusters, are read from the fleet.
"""

from collections.abc import Sequence

from api_types.pins.features import POOLS
from api_types.resources.kinds import BY_KIND
from api_types.validation.fleet_warnings import (
    FleetCluster,
    features_of,
    fleet_warnings,
    referenced_cache,
    selected_labels,
)
from api_types.validation.manifests import Manifest
from fleet_client.errors import Forbidden, NoAnswer
from fleet_client.objects import FleetObjects
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, labels


async def warnings_of(plane: FleetObjects, manifests: Sequence[Manifest]) -> list[str]:
    """Return warnings from comparing manifests with the fleet and with each other.

    Raise `Unreachable`.
    """
    clusters = await _clusters(plane, manifests)
    caches = await _caches(plane, manifests)
    return [
        warning
        for manifest in manifests
        for warning in fleet_warnings(manifest, clusters, caches)
    ]


async def _clusters(
    plane: FleetObjects, manifests: Sequence[Manifest]
) -> list[FleetCluster]:
    """Return all clusters of the fleet and of the files.

    A cluster of the files may have every feature once it is installed.
    """
    wanted = [FleetCluster(selected_labels(manifest)) for manifest in manifests]
    uses = {key for manifest in manifests for key in features_of(manifest)}
    # Nearly every cluster has the definitions of pools.
    if not any(each.labels for each in wanted) and uses <= {POOLS.key}:
        return []
    try:
        listed = await plane.list(BY_KIND["InferenceCluster"], None)
    except (Forbidden, NoAnswer):
        return wanted
    if not all(one.answered for one in listed):
        return wanted  # the cluster that does not answer may have the labels
    return [
        *(_read(one.tree) for one in listed),
        *(
            FleetCluster(one.metadata.labels)
            for one in manifests
            if one.kind == "InferenceCluster"
        ),
    ]


def _read(tree: Tree) -> FleetCluster:
    missing = (tree.get("status") or {}).get("missingFeatures") or ()
    return FleetCluster(labels(tree), tuple(map(str, missing)))


async def _caches(
    plane: FleetObjects, manifests: Sequence[Manifest]
) -> set[tuple[str, str]]:
    """Return the caches of the files, and those of the fleet that the files refer to."""
    caches = {
        (one.metadata.namespace, one.metadata.name)
        for one in manifests
        if one.kind == "ModelCache"
    }
    referenced = {
        cache for manifest in manifests if (cache := referenced_cache(manifest))
    }
    for namespace, name in sorted(referenced - caches):
        if await _exists(plane, Target.of(BY_KIND["ModelCache"], namespace, name)):
            caches.add((namespace, name))
    return caches


async def _exists(plane: FleetObjects, target: Target) -> bool:
    try:
        return await plane.find(target) is not None
    except (Forbidden, NoAnswer):
        # the object may exist, and not be visible to this user, or its workflow does
        # not answer
        return True
