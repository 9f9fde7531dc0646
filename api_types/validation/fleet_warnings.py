"""What an accepted deployment or cache refers to and the fleet does not have (yet).

These are warnings and no errors: the cluster or the cache may be created later, and until then conditions report it. `apply` gives them,
because it can read the fleet.
"""

from collections.abc import Collection, Iterable, Mapping

from api_types.resources.model_cache import ModelCache
from api_types.resources.model_deployment import ModelDeployment
from api_types.resources.parts.base_types import Manifest
from api_types.validation.admission import title
from api_types.validation.problems import Problem


def selected_labels(manifest: Manifest) -> Mapping[str, str]:
    """Give the labels by which a manifest selects InferenceClusters; empty if it selects all."""
    if isinstance(manifest, ModelDeployment):
        selector = manifest.spec.template.spec.cluster_selector
    else:
        selector = manifest.spec.cluster_selector if isinstance(manifest, ModelCache) else None
    return (selector.match_labels if selector else None) or {}


def referenced_cache(manifest: Manifest) -> tuple[str, str] | None:
    """Give namespace and name of the ModelCache that a deployment refers to, or None."""
    reference = manifest.spec.template.spec.model_cache_ref if isinstance(manifest, ModelDeployment) else None
    return (manifest.metadata.namespace, reference.name) if reference else None


def fleet_warnings(manifest: Manifest, clusters: Iterable[Mapping[str, str]], caches: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Compare a manifest with the labels of all InferenceClusters and with the (namespace, name) of ModelCaches that exist."""
    who = title(manifest.kind, manifest.metadata.namespace, manifest.metadata.name)
    found = []
    selected, cache = selected_labels(manifest), referenced_cache(manifest)
    if selected and not any(selected.items() <= labels.items() for labels in clusters):
        path = "spec.template.spec.clusterSelector" if isinstance(manifest, ModelDeployment) else "spec.clusterSelector"
        found.append(Problem(who, path, "no InferenceCluster has these labels yet"))
    if cache and cache not in caches:
        namespace, name = cache
        text = f'ModelCache "{name}" does not exist yet in namespace {namespace}'
        found.append(Problem(who, "spec.template.spec.modelCacheRef.name", text))
    return tuple(map(str, found))
