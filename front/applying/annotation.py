"""Stores field owners as JSON in an annotation that users do not see.

Workflows do not store `managedFields`. An autoscaler or the CLI may set the replica
count without a field manager. So the annotation also stores the count. If the object's
count differs, the count belongs to the client that scaled last. The same holds for an
equal count that was set later, because it may have been different in between.
"""

import json
from collections.abc import Mapping
from typing import Any

from api_types import labels
from front.applying.fields import Json, Path, of_field
from front.applying.owners import NAME_MAX, UPDATE, FieldManager, Owners

KEY = labels.MANAGED_FIELDS
TEXT_BYTES_MAX = 16 * 1024
REPLICAS: Path = (of_field("spec"), of_field("replicas"))
WITH_WRITE = "write-"
"""The prefix of request ids that set the count for a write.

The count then belongs to the writer.
"""
_SCALE = "scale"
_BY_APPLY = ("", "apply")
_UNKNOWN = "unknown"


class TooMuch(ValueError):
    """The owners exceed the space for them in an object."""


def kept(manifest: Json, owners: Owners) -> Json:
    """Return a manifest with the annotation, or without it if there are no owners.

    Raises TooMuch.
    """
    metadata = dict(manifest["metadata"])
    annotations = dict(metadata.pop("annotations", None) or {})
    annotations.pop(KEY, None)
    if owners:
        held: Json = {"managers": owners.entries()}
        if manifest["spec"].get("replicas") is not None:
            held["replicas"] = manifest["spec"]["replicas"]
        annotations[KEY] = check_size(held)
    if annotations:
        metadata["annotations"] = annotations
    return {**manifest, "metadata": metadata}


def check_size(held: Any) -> str:
    """Encode the content of the annotation. Raises TooMuch."""
    text = json.dumps(held, separators=(",", ":"), ensure_ascii=False)
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_BYTES_MAX:
        raise TooMuch(
            f"the owners of fields take {size} bytes; the limit is {TEXT_BYTES_MAX}"
        )
    return text


def revealed(tree: Json) -> Json:
    """Return an object as users see it, with `managedFields`."""
    metadata = dict(tree.get("metadata") or {})
    annotations = dict(metadata.get("annotations") or {})
    if KEY not in annotations:
        return tree
    text = annotations.pop(KEY)
    del metadata["annotations"]
    if annotations:
        metadata["annotations"] = annotations
    last_scale = (tree.get("status") or {}).get("lastScale") or {}
    owners = _read(text, tree.get("spec") or {}, last_scale)
    if owners:
        metadata["managedFields"] = owners.entries()
    return {**tree, "metadata": metadata}


def _read(text: str, spec: Mapping[str, Any], last_scale: Mapping[str, Any]) -> Owners:
    """Decode the annotation; return no owners if another writer created it."""
    if len(text) > TEXT_BYTES_MAX:
        return Owners()
    try:
        held = json.loads(text)
        owners = Owners.of_entries(held["managers"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return Owners()
    replicas = spec.get("replicas")
    if not owners or "replicas" not in held or replicas is None:
        return owners
    if replicas == held["replicas"] and not _was_scaled(owners, replicas, last_scale):
        return owners
    by = ""
    if last_scale.get("replicas") == replicas:
        by = str(last_scale.get("by") or "")
    name = "".join(filter(str.isprintable, by))[:NAME_MAX] or _UNKNOWN
    scaler = FieldManager(name, UPDATE, next(iter(owners.fields)).api_version, _SCALE)
    fields = {owner: own - {REPLICAS} for owner, own in owners.fields.items()}
    return owners.written(
        {**fields, scaler: frozenset({REPLICAS})},
        scaler,
        str(last_scale.get("at") or ""),
    )


def _was_scaled(owners: Owners, replicas: Any, last_scale: Mapping[str, Any]) -> bool:
    """Return whether an unchanged count was set again after its owners wrote it."""
    if last_scale.get("replicas") != replicas or last_scale.get("by", "") in _BY_APPLY:
        return False
    if str(last_scale.get("requestId") or "").startswith(WITH_WRITE):
        return False
    times = [
        owners.times.get(owner, "")
        for owner, own in owners.fields.items()
        if REPLICAS in own
    ]
    return bool(times) and all(times) and str(last_scale.get("at") or "") > max(times)
