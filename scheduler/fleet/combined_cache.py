"""Several caches of one deployment as one: its replicas need all of them."""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]
# From the least to the most advanced; a cluster is as far as the cache that is behind the others.
_PHASES = ("Failed", "Pending", "Hydrating", "Ready")


def combined_cache(caches: Sequence[Tree]) -> dict[str, Any]:
    """Give one cache for all, in the form of each: empty if all are, and one alone as it is.

    One that is missing, unread or being deleted stands for all. A label that two caches want with different values has a value that no
    cluster can have.
    """
    referenced = [cache for cache in caches if cache]
    if len(referenced) <= 1:
        return dict(referenced[0]) if referenced else {}
    holding = next((cache for cache in referenced if _holds_back(cache)), None)
    if holding is not None:
        return dict(holding)
    manifests = [_manifest(cache) for cache in referenced]
    labels: dict[str, str] = {}
    for manifest in manifests:
        for key, value in (((manifest.get("spec") or {}).get("clusterSelector") or {}).get("matchLabels") or {}).items():
            labels[key] = value if labels.get(key, value) == value else f"{labels[key]}, {value}"
    phases = [_phases(manifest) for manifest in manifests]
    everywhere = sorted(set(phases[0]).intersection(*phases[1:]))
    name = f"{cache_name(referenced[0])} (and {len(referenced) - 1} of adapters)"
    return {
        "name": name,
        "state": "Present",
        "manifest": {
            "metadata": {"name": name},
            "spec": {"clusterSelector": {"matchLabels": labels}},
            "status": {"clusters": [{"name": cluster, "phase": _least(phases, cluster)} for cluster in everywhere]},
        },
    }


def _manifest(cache: Tree) -> Tree:
    manifest: Tree = cache if "metadata" in cache else cache.get("manifest") or {}
    return manifest


def _phases(manifest: Tree) -> dict[str, str]:
    return {one["name"]: one.get("phase") or "Pending" for one in (manifest.get("status") or {}).get("clusters") or ()}


def cache_name(cache: Tree) -> str:
    """Name a cache, given as its manifest or with its state."""
    return str(cache.get("name") or _manifest(cache).get("metadata", {}).get("name") or "")


def _holds_back(cache: Tree) -> bool:
    manifest = _manifest(cache)
    return cache.get("state", "Present") != "Present" or bool(manifest.get("metadata", {}).get("deletionTimestamp"))


def _least(phases: Sequence[dict[str, str]], cluster: str) -> str:
    return min((each[cluster] for each in phases), key=lambda phase: _PHASES.index(phase) if phase in _PHASES else 0)
