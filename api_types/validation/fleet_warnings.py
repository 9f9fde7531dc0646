"""Warnings about what a deployment or cache needs and the fleet does not have.

They are not errors, because the cluster or the cache may be created later, and a
feature may be installed later. Until then,
conditions report it. `apply` shows the warnings, because it can read the fleet.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from api_types.pins.features import known, used_features
from api_types.resources.model_cache import ModelCache
from api_types.resources.model_deployment import ModelDeployment
from api_types.resources.parts.base_types import Manifest
from api_types.validation.admission import title
from api_types.validation.problems import Problem


class FleetCluster(NamedTuple):
    """An InferenceCluster, with the keys of the features that it lacks."""

    labels: Mapping[str, str]
    missing_features: tuple[str, ...] = ()


def features_of(manifest: Manifest) -> tuple[str, ...]:
    """Return the keys of the features that a deployment uses."""
    if not isinstance(manifest, ModelDeployment):
        return ()
    template = manifest.spec.template.spec.model_dump(by_alias=True, exclude_none=True)
    return used_features(template["engines"])


def selected_labels(manifest: Manifest) -> Mapping[str, str]:
    """Return the labels by which a manifest selects InferenceClusters, if any."""
    if isinstance(manifest, ModelDeployment):
        selector = manifest.spec.template.spec.cluster_selector
    else:
        selector = (
            manifest.spec.cluster_selector if isinstance(manifest, ModelCache) else None
        )
    return (selector.match_labels if selector else None) or {}


def referenced_cache(manifest: Manifest) -> tuple[str, str] | None:
    """Return namespace and name of the ModelCache that a deployment refers to, or None."""
    reference = (
        manifest.spec.template.spec.model_cache_ref
        if isinstance(manifest, ModelDeployment)
        else None
    )
    return (manifest.metadata.namespace, reference.name) if reference else None


def fleet_warnings(
    manifest: Manifest,
    clusters: Sequence[FleetCluster],
    caches: Collection[tuple[str, str]],
) -> tuple[str, ...]:
    """Return warnings about missing clusters, features and caches.

    Args:
        manifest: the accepted manifest.
        clusters: all InferenceClusters.
        caches: namespace and name of all ModelCaches.

    """
    who = title(manifest.kind, manifest.metadata.namespace, manifest.metadata.name)
    found = []
    selected, cache = selected_labels(manifest), referenced_cache(manifest)
    matching = [each for each in clusters if selected.items() <= each.labels.items()]
    if selected and not matching:
        path = (
            "spec.template.spec.clusterSelector"
            if isinstance(manifest, ModelDeployment)
            else "spec.clusterSelector"
        )
        found.append(Problem(who, path, "no InferenceCluster has these labels yet"))
    for feature in known(features_of(manifest)):
        if matching and all(feature.key in each.missing_features for each in matching):
            text = f"no selected InferenceCluster supports it yet: {feature.lacking()}"
            found.append(Problem(who, "spec.template.spec.engines", text))
    if cache and cache not in caches:
        namespace, name = cache
        text = f'ModelCache "{name}" does not exist yet in namespace {namespace}'
        found.append(Problem(who, "spec.template.spec.modelCacheRef.name", text))
    return tuple(map(str, found))
