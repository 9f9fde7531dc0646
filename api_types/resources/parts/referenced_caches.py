"""The ModelCaches that a template refers to."""

from collections.abc import Mapping
from typing import Any


def model_cache(spec: Mapping[str, Any]) -> str:
    """Return the cache of the model in the wire form of a replica's spec, or ""."""
    name: str = (spec.get("modelCacheRef") or {}).get("name") or ""
    return name


def adapter_caches(spec: Mapping[str, Any]) -> list[str]:
    """Return the caches of all adapters in the same spec, sorted, without the model's."""
    names: set[str] = set()
    for engine in spec.get("engines") or ():
        for adapter in engine.get("adapters") or ():
            names.add((adapter.get("modelCacheRef") or {}).get("name") or "")
    return sorted(names - {"", model_cache(spec)})


def referenced_caches(spec: Mapping[str, Any]) -> list[str]:
    """Return every cache that the same spec needs, the model's first."""
    return [name for name in (model_cache(spec), *adapter_caches(spec)) if name]
