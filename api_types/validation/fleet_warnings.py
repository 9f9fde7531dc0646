"""What an accepted deployment or cache may lack in the fleet as it stands.

Neither is wrong: the cluster or the cache may come later. So these are warnings for the moment of `apply`, given by whoever can see the
fleet; afterwards conditions tell the same.
"""

from collections.abc import Collection, Iterable, Mapping

from api_types.resources.model_cache import ModelCache
from api_types.resources.model_deployment import ModelDeployment
from api_types.resources.parts.base_types import LabelSelector, Manifest
from api_types.validation.admission import title
from api_types.validation.problems import Problem


def matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Tell whether labels hold every pair of a selector; none or an empty one matches everything."""
    pairs = (selector.match_labels if selector else None) or {}
    return all(labels.get(key) == value for key, value in pairs.items())


def fleet_warnings(manifest: Manifest, clusters: Iterable[Mapping[str, str]], caches: Collection[tuple[str, str]]) -> tuple[str, ...]:
    """Compare a manifest with the labels of all InferenceClusters and with the (namespace, name) of all ModelCaches."""
    if not isinstance(manifest, ModelDeployment | ModelCache):
        return ()
    who = title(manifest.kind, manifest.metadata.namespace, manifest.metadata.name)
    found = []
    selector, path = _selector(manifest)
    if selector and selector.match_labels and not any(matches(selector, labels) for labels in clusters):
        found.append(Problem(who, path, "no InferenceCluster has these labels yet"))
    if isinstance(manifest, ModelDeployment):
        reference = manifest.spec.template.spec.model_cache_ref
        if reference and (manifest.metadata.namespace, reference.name) not in caches:
            text = f'ModelCache "{reference.name}" does not exist yet in namespace {manifest.metadata.namespace}'
            found.append(Problem(who, "spec.template.spec.modelCacheRef.name", text))
    return tuple(map(str, found))


def _selector(manifest: ModelDeployment | ModelCache) -> tuple[LabelSelector | None, str]:
    if isinstance(manifest, ModelDeployment):
        return manifest.spec.template.spec.cluster_selector, "spec.template.spec.clusterSelector"
    return manifest.spec.cluster_selector, "spec.clusterSelector"
