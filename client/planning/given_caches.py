"""ModelCaches among the rendered objects: where they are staged, how they are mounted.

Nothing is staged without a server. Engines are rendered as if these caches were staged,
because the output would be useless otherwise.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from activities.render.cache.artifact import (
    IMAGE,
    NODE_LOCAL,
    SHARED,
    by_pods,
    claim_name,
    read_artifact,
    read_volume,
)
from activities.render.inputs.facts import CacheInput, ClusterInput, ReplicaInput
from api_types.messages.cluster_work import CacheMount, NodeLocal
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.parts.referenced_caches import model_cache, referenced_caches
from scheduler import Documents


def note(names: list[str]) -> str:
    """Return a note about the caches that count as staged."""
    return (
        "engines are rendered as they are once the caches among the objects are "
        f"staged: {', '.join(names)}"
    )


def matches(cache: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> bool:
    """Whether a cache's selector matches a cluster.

    A cluster known by facts alone has no labels, and matches.
    """
    if cluster is None:
        return True
    own = cluster["metadata"].get("labels") or {}
    wanted = ((cache["spec"].get("clusterSelector") or {}).get("matchLabels")) or {}
    return all(own.get(key) == value for key, value in wanted.items())


def is_staged(namespace: str, name: str, cluster: ClusterInput) -> bool:
    """Whether the facts about a cluster name the cache as staged."""
    return any(key in cluster.cache_claims for key in (f"{namespace}/{name}", name))


def with_mounts(
    wanted: ReplicaInput, documents: Documents, cluster: ClusterInput | None
) -> tuple[ReplicaInput, list[str]]:
    """Add the mounts of given caches and the size of the model to a replica.

    Also return the caches that count as staged. An image needs no staging. A volume
    claim in the facts takes precedence over the spec of its cache.
    """
    mounts, claims, assumed = dict[str, CacheMount](), dict[str, str](), list[str]()
    for name in referenced_caches(wanted.spec):
        manifest = documents.caches.get((wanted.namespace, name))
        if manifest is None:
            continue
        cache = CacheInput(
            wanted.namespace,
            name,
            wanted.uid,
            wanted.generation,
            wanted.cluster,
            manifest["spec"],
        )
        how, artifact, volume = (
            by_pods(cache.spec),
            read_artifact(cache),
            read_volume(cache.spec),
        )
        if how == NODE_LOCAL:
            content = NodeLocal(
                spec=dict(cache.spec),
                storage_class_name=volume.storage_class,
                size_gib=artifact.size_gib,
            )
            mounts[name], claims[name] = (
                CacheMount(node_local=content),
                claim_name(cache),
            )
            continue
        if how == IMAGE:
            mounts[name], claims[name] = (
                CacheMount(image=artifact.image, pull_secret=artifact.credential),
                claim_name(cache),
            )
            continue
        if volume.access_mode != SHARED:
            mounts[name] = CacheMount(access_mode=volume.access_mode)
        if cluster is None or is_staged(wanted.namespace, name, cluster):
            continue
        can_stage = bool(volume.storage_class or cluster.facts.storage_class_name)
        if can_stage and matches(manifest, documents.clusters.get(wanted.cluster)):
            claims[name] = claim_name(cache)
            assumed.append(f"{wanted.namespace}/{name}")
    own = documents.caches.get((wanted.namespace, model_cache(wanted.spec)))
    mounting = replace(
        wanted,
        mounts=mounts,
        cache_claim=claims.pop(model_cache(wanted.spec), wanted.cache_claim),
        cache_gib=ModelCacheSpec.model_validate(own["spec"]).size_gib if own else 0,
        adapter_claims={**wanted.adapter_claims, **claims},
    )
    return mounting, assumed
