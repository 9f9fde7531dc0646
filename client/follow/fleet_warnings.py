"""The warnings of `apply` about labels and caches that a manifest names and the fleet does not have.

A misspelt label or name shows before the object waits for it. Only what the manifests name is read from the fleet.
"""

from collections.abc import Mapping, Sequence

from api_types.resources.kinds import BY_KIND
from api_types.validation.fleet_warnings import fleet_warnings, referenced_cache, selected_labels
from api_types.validation.manifests import Manifest
from client.errors import Forbidden, NoAnswer
from client.fleet.objects import Objects
from client.refs.targets import Target
from client.refs.tree import labels


async def warnings_of(plane: Objects, manifests: Sequence[Manifest]) -> list[str]:
    """Compare manifests with the fleet and with one another. Raises `Unreachable`."""
    clusters = await _cluster_labels(plane, manifests)
    caches = await _caches(plane, manifests)
    return [warning for manifest in manifests for warning in fleet_warnings(manifest, clusters, caches)]


async def _cluster_labels(plane: Objects, manifests: Sequence[Manifest]) -> list[Mapping[str, str]]:
    """Give the labels of all clusters of the fleet and of the files."""
    wanted = [selected for manifest in manifests if (selected := selected_labels(manifest))]
    if not wanted:
        return []
    try:
        listed = await plane.list(BY_KIND["InferenceCluster"], None)
    except (Forbidden, NoAnswer):
        return wanted
    if not all(one.answered for one in listed):
        return wanted  # the labels of a cluster that does not answer are not known: it may have all of them
    return [*(labels(one.tree) for one in listed), *(one.metadata.labels for one in manifests if one.kind == "InferenceCluster")]


async def _caches(plane: Objects, manifests: Sequence[Manifest]) -> set[tuple[str, str]]:
    """Give the caches of the files, and those of the fleet that deployments in the files refer to."""
    caches = {(one.metadata.namespace, one.metadata.name) for one in manifests if one.kind == "ModelCache"}
    referenced = {cache for manifest in manifests if (cache := referenced_cache(manifest))}
    for namespace, name in sorted(referenced - caches):
        if await _exists(plane, Target.of(BY_KIND["ModelCache"], namespace, name)):
            caches.add((namespace, name))
    return caches


async def _exists(plane: Objects, target: Target) -> bool:
    try:
        return await plane.find(target) is not None
    except (Forbidden, NoAnswer):
        return True  # its workflow is there, and does not answer; or it may be there, and is not shown to this user
