"""ModelCaches among the objects that are rendered: which clusters stage them, and how replicas mount them.

Nothing is staged without a server. Engines are rendered as they are once these caches are: without that, nobody could read them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from activities.render.cache.artifact import IMAGE, NODE_LOCAL, SHARED, by_pods, claim_name, read_artifact, read_volume
from activities.render.inputs.facts import CacheInput, ClusterInput, ReplicaInput
from api_types.messages.cluster_work import CacheMount, NodeLocal
from api_types.resources.model_cache import ModelCacheSpec
from api_types.resources.parts.referenced_caches import model_cache, referenced_caches
from scheduler import Documents


def note(names: list[str]) -> str:
    """Say which caches count as staged."""
    return f"engines are rendered as they are once the caches among the objects are staged: {', '.join(names)}"


def matches(cache: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> bool:
    """Whether a cache is staged on a cluster; one that is known by facts alone has no labels to match."""
    if cluster is None:
        return True
    own = cluster["metadata"].get("labels") or {}
    wanted = ((cache["spec"].get("clusterSelector") or {}).get("matchLabels")) or {}
    return all(own.get(key) == value for key, value in wanted.items())


def is_staged(namespace: str, name: str, cluster: ClusterInput) -> bool:
    """Whether the facts about a cluster say that a cache is staged there."""
    return any(key in cluster.cache_claims for key in (f"{namespace}/{name}", name))


def with_mounts(wanted: ReplicaInput, documents: Documents, cluster: ClusterInput | None) -> tuple[ReplicaInput, list[str]]:
    """Say how a replica mounts the caches that are among the objects, and how large its model is; gives those that count as staged too.

    An image is there without being staged. Facts that name the volume claim of a cache stand above what its spec says.
    """
    mounts, claims, assumed = dict[str, CacheMount](), dict[str, str](), list[str]()
    for name in referenced_caches(wanted.spec):
        manifest = documents.caches.get((wanted.namespace, name))
        if manifest is None:
            continue
        cache = CacheInput(wanted.namespace, name, wanted.uid, wanted.generation, wanted.cluster, manifest["spec"])
        how, artifact, volume = by_pods(cache.spec), read_artifact(cache), read_volume(cache.spec)
        if how == NODE_LOCAL:
            content = NodeLocal(spec=dict(cache.spec), storage_class_name=volume.storage_class, size_gib=artifact.size_gib)
            mounts[name], claims[name] = CacheMount(node_local=content), claim_name(cache)
            continue
        if how == IMAGE:
            mounts[name], claims[name] = CacheMount(image=artifact.image, pull_secret=artifact.credential), claim_name(cache)
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
