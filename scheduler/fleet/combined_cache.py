"""Combine several caches of a deployment into one, because its replicas need all."""

from collections.abc import Mapping, Sequence
from typing import Any

Tree = Mapping[str, Any]
# From the least to the most advanced phase. The combined cache has the least advanced
# phase.
_PHASES = ("Failed", "Pending", "Hydrating", "Ready")


def combined_cache(caches: Sequence[Tree]) -> dict[str, Any]:
    """Return one cache that combines all, in the same form.

    The result is empty if all caches are empty, and a single cache is returned
    unchanged. If a cache is missing, unread or being deleted, the result is that cache.
    If two caches require different values of a label, the result requires a value that
    no cluster can have.
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
        selector = (manifest.get("spec") or {}).get("clusterSelector") or {}
        for key, value in (selector.get("matchLabels") or {}).items():
            if labels.get(key, value) == value:
                labels[key] = value
            else:
                labels[key] = f"{labels[key]}, {value}"
    phases = [_phases(manifest) for manifest in manifests]
    everywhere = sorted(set(phases[0]).intersection(*phases[1:]))
    name = f"{cache_name(referenced[0])} (and {len(referenced) - 1} of adapters)"
    return {
        "name": name,
        "state": "Present",
        "manifest": {
            "metadata": {"name": name},
            "spec": {"clusterSelector": {"matchLabels": labels}},
            "status": {
                "clusters": [
                    {"name": cluster, "phase": _least(phases, cluster)}
                    for cluster in everywhere
                ]
            },
        },
    }


def _manifest(cache: Tree) -> Tree:
    manifest: Tree = cache if "metadata" in cache else cache.get("manifest") or {}
    return manifest


def _phases(manifest: Tree) -> dict[str, str]:
    return {
        one["name"]: one.get("phase") or "Pending"
        for one in (manifest.get("status") or {}).get("clusters") or ()
    }


def cache_name(cache: Tree) -> str:
    """Return the name of a cache, given as its manifest or with its state."""
    return str(
        cache.get("name") or _manifest(cache).get("metadata", {}).get("name") or ""
    )


def _holds_back(cache: Tree) -> bool:
    manifest = _manifest(cache)
    return cache.get("state", "Present") != "Present" or bool(
        manifest.get("metadata", {}).get("deletionTimestamp")
    )


def _least(phases: Sequence[dict[str, str]], cluster: str) -> str:
    return min(
        (each[cluster] for each in phases),
        key=lambda phase: _PHASES.index(phase) if phase in _PHASES else 0,
    )
