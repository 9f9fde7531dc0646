"""Immutable fields of existing objects, and permitted changes during deletion.

A field is immutable if a change would destroy data of the user. Each error says to
create a new object instead.
"""

from collections.abc import Callable, Container, Iterator
from typing import Any

from api_types import labels
from api_types.resources.inference_cluster import InferenceCluster
from api_types.resources.inference_gateway import InferenceGateway
from api_types.resources.model_cache import SOURCE_BLOCKS, ModelCache
from api_types.resources.model_replica import ModelReplica
from api_types.resources.parts.base_types import Manifest
from api_types.validation.admission import title
from api_types.validation.problems import InvalidManifest, Problem

# Programs write these annotations in addition to their user's changes.
_OF_PROGRAMS = (labels.MANAGED_FIELDS, labels.LAST_APPLIED)
Found = Iterator[tuple[str, str]]

_NEW_CLUSTER = "delete the InferenceCluster and create another"
_NEW_GATEWAY = (
    "the routes of one backend do not work in the other; delete the ModelServices and "
    "the InferenceGateway, and create them again"
)
_NEW_CACHE = "create a ModelCache under a new name"


def _cluster(old: InferenceCluster, new: InferenceCluster) -> Found:
    before, after = old.spec.cluster, new.spec.cluster
    if before.source != after.source:
        yield (
            "spec.cluster.source",
            f"cannot change from {before.source} to {after.source}; {_NEW_CLUSTER}",
        )
        return
    block = after.source.lower()
    for field in ("region", "location"):
        was = getattr(getattr(before, block), field, None)
        now = getattr(getattr(after, block), field, None)
        if was != now:
            yield (
                f"spec.cluster.{block}.{field}",
                f"cannot change from {was} to {now}; {_NEW_CLUSTER}",
            )


def _gateway(old: InferenceGateway, new: InferenceGateway) -> Found:
    before, after = old.spec.backend, new.spec.backend
    if before != after:
        yield (
            "spec.backend",
            f"cannot change from {before} to {after}; {_NEW_GATEWAY}",
        )


def _replica(old: ModelReplica, new: ModelReplica) -> Found:
    if old.spec.cluster_name != new.spec.cluster_name:
        yield (
            "spec.clusterName",
            (
                f"cannot change from {old.spec.cluster_name} to "
                f"{new.spec.cluster_name}; a replica never moves"
            ),
        )
    before = {engine.name for engine in old.spec.engines}
    after = {engine.name for engine in new.spec.engines}
    if before != after:
        was, now = ", ".join(sorted(before)), ", ".join(sorted(after))
        yield (
            "spec.engines",
            f"engine names cannot change from {was} to {now}",
        )


def _is_staged(cache: ModelCache) -> bool:
    summary = cache.status.summary if cache.status else None
    return summary is not None and summary.ready.partition("/")[0] != "0"


def _cache(old: ModelCache, new: ModelCache) -> Found:
    if _is_staged(old):
        for path, read in _ARTIFACT.items():
            was, now = read(old), read(new)
            if was != now:
                change = (
                    f"cannot change from {was or 'none'} to {now or 'none'} once staged"
                )
                yield path, f"{change}; {_NEW_CACHE}"
    if new.spec.source == old.spec.source and new.spec.size_gib < old.spec.size_gib:
        block = SOURCE_BLOCKS[new.spec.source]
        yield (
            f"spec.{block}.sizeGiB",
            f"cannot shrink from {old.spec.size_gib} to {new.spec.size_gib}; {_NEW_CACHE}",
        )


def _patterns(cache: ModelCache, field: str) -> str:
    """Return file patterns as a text that is equal for equal sets of patterns."""
    return ", ".join(sorted(set(getattr(cache.spec.hugging_face, field, None) or ())))


_ARTIFACT: dict[str, Callable[[ModelCache], str | None]] = {
    "spec.source": lambda cache: cache.spec.source,
    "spec.huggingFace.repo": lambda cache: (
        cache.spec.hugging_face.repo if cache.spec.hugging_face else None
    ),
    "spec.huggingFace.revision": lambda cache: (
        cache.spec.hugging_face.revision if cache.spec.hugging_face else None
    ),
    "spec.huggingFace.allowPatterns": lambda cache: _patterns(cache, "allow_patterns"),
    "spec.huggingFace.ignorePatterns": lambda cache: _patterns(
        cache, "ignore_patterns"
    ),
    "spec.oci.image": lambda cache: cache.spec.oci.image if cache.spec.oci else None,
    "spec.s3.endpoint": lambda cache: cache.spec.s3.endpoint if cache.spec.s3 else None,
    "spec.s3.bucket": lambda cache: cache.spec.s3.bucket if cache.spec.s3 else None,
    "spec.s3.prefix": lambda cache: cache.spec.s3.prefix if cache.spec.s3 else None,
}

_RULES: dict[type[Manifest], Callable[[Any, Any], Found]] = {
    InferenceCluster: _cluster,
    InferenceGateway: _gateway,
    ModelReplica: _replica,
    ModelCache: _cache,
}


def admit_update(old: Manifest, new: Manifest) -> None:
    """Check a change against the immutable fields; `old` has its status.

    Raises:
        InvalidManifest: it contains every problem of the change.

    """
    who = title(new.kind, new.metadata.namespace, new.metadata.name)
    same = (old.kind, old.metadata.namespace, old.metadata.name) == (
        new.kind,
        new.metadata.namespace,
        new.metadata.name,
    )
    if not same:
        was = title(old.kind, old.metadata.namespace, old.metadata.name)
        text = f"an update must keep kind, namespace and name; this object is {was}"
        raise InvalidManifest.of(who, "metadata.name", text)
    rule = _RULES.get(type(new))
    problems = (
        [Problem(who, path, text) for path, text in rule(old, new)] if rule else []
    )
    if problems:
        raise InvalidManifest(problems)


def update_warnings(old: Manifest, new: Manifest) -> tuple[str, ...]:
    """Return warnings about unexpected effects of an accepted change."""
    if not isinstance(old, InferenceCluster) or not isinstance(new, InferenceCluster):
        return ()
    gone = {pool.name for pool in old.spec.node_pools or ()} - {
        pool.name for pool in new.spec.node_pools or ()
    }
    who = title(new.kind, "", new.metadata.name)
    text = "the pool is removed with its nodes; its replicas are placed again"
    problems = (
        Problem(who, f"spec.nodePools[name={name}]", text) for name in sorted(gone)
    )
    return tuple(map(str, problems))


def is_taken_while_deleting(old: Manifest, new: Manifest) -> bool:
    """Return whether an object that is being deleted accepts a manifest.

    A cluster accepts only changes of the annotations that control its deletion.
    """
    known, wanted = old.metadata.annotations, new.metadata.annotations
    names = labels.TAKEN_WHILE_DELETING if isinstance(new, InferenceCluster) else ()
    changed = [
        name for name in names if name in wanted and wanted[name] != known.get(name)
    ]
    return bool(changed) and _rest(old, changed) == _rest(new, changed)


def _rest(manifest: Manifest, taken: Container[str]) -> tuple[Any, ...]:
    """Return the fields that a user writes, without some annotations."""
    annotations = {
        name: text
        for name, text in manifest.metadata.annotations.items()
        if name not in taken and name not in _OF_PROGRAMS
    }
    return manifest.metadata.labels, annotations, manifest.spec
