"""Find the Secrets and ConfigMaps that the pods of a replica reference.

`objects/propagation.py` decides which of them are copied.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from activities.render.engines.spec import ReplicaSpec
from activities.render.objects.propagation import CONFIG_MAP, SECRET, Reference
from api_types.messages.cluster_work import CacheMount

_FIELDS = {"secretKeyRef": SECRET, "configMapKeyRef": CONFIG_MAP}


def references(
    spec: ReplicaSpec,
    mounts: Iterable[CacheMount] = (),
    others: Iterable[Reference] = (),
) -> tuple[Reference, ...]:
    """Return the references of a replica's pods, merged and sorted by kind and name.

    Each has all its keys. `mounts` adds pull secrets of caches, and `others` further
    references.
    """
    merged: dict[str, Reference] = {}
    pulling = [
        Reference(SECRET, mount.pull_secret) for mount in mounts if mount.pull_secret
    ]
    for reference in (*_all_references(spec), *pulling, *others):
        known = merged.get(str(reference), reference)
        # No keys means all keys, which includes any list of keys.
        keys = (
            tuple(sorted({*known.keys, *reference.keys}))
            if known.keys and reference.keys
            else ()
        )
        merged[str(reference)] = Reference(
            reference.kind, reference.name, keys, known.optional and reference.optional
        )
    return tuple(merged[key] for key in sorted(merged))


def _all_references(spec: ReplicaSpec) -> Iterator[Reference]:
    for engine in spec.engines:
        for member in engine.members:
            yield from (Reference(SECRET, name) for name in member.pull_secrets)
            for variable in member.env:
                yield from _variable_references(variable)


def _variable_references(variable: Mapping[str, Any]) -> Iterator[Reference]:
    for field, source in (variable.get("valueFrom") or {}).items():
        if field in _FIELDS:
            yield Reference(
                _FIELDS[field],
                source["name"],
                (source["key"],),
                bool(source.get("optional")),
            )
