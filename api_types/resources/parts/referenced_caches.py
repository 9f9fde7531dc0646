"""Which ModelCaches a template names."""

from collections.abc import Mapping
from typing import Any


def model_cache(spec: Mapping[str, Any]) -> str:
    """Name the cache of the model of a replica's spec, or of its template, in its wire form; empty if it names none."""
    name: str = (spec.get("modelCacheRef") or {}).get("name") or ""
    return name


def adapter_caches(spec: Mapping[str, Any]) -> list[str]:
    """Name the caches of all adapters of such a spec, sorted; that of the model is not one of them."""
    engines = spec.get("engines") or ()
    named = [(adapter.get("modelCacheRef") or {}).get("name") or "" for engine in engines for adapter in engine.get("adapters") or ()]
    return sorted(set(named) - {"", model_cache(spec)})


def referenced_caches(spec: Mapping[str, Any]) -> list[str]:
    """Name every cache that such a spec needs, that of the model first."""
    return [name for name in (model_cache(spec), *adapter_caches(spec)) if name]
