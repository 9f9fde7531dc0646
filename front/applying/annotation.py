"""Where it is kept who owns what: a workflow stores no `managedFields`, so an annotation has them as JSON, which nobody sees.

A count of replicas may be set without a manager: by an autoscaler, or by a command that knows nothing of managers. So the count is kept
too, and another one belongs to whoever scaled last. So does the same one if it was set later: it may have been another between.
"""

import json
from collections.abc import Mapping
from typing import Any

from api_types import labels
from front.applying.fields import Json, Path, of_field
from front.applying.owners import NAME_MAX, UPDATE, Owner, Owners

KEY = labels.MANAGED_FIELDS
TEXT_BYTES_MAX = 16 * 1024
REPLICAS: Path = (of_field("spec"), of_field("replicas"))
WITH_WRITE = "write-"
"""How the id of a request begins that sets the count for a write: it belongs to who wrote."""
_SCALE = "scale"
_BY_APPLY = ("", "apply")
_UNKNOWN = "unknown"


class TooMuch(ValueError):
    """There is more to keep than an object has room for."""


def kept(manifest: Json, owners: Owners) -> Json:
    """Give a manifest with the annotation, or without one if nobody owns anything. Raises TooMuch."""
    metadata = manifest["metadata"]
    annotations = {key: value for key, value in (metadata.get("annotations") or {}).items() if key != KEY}
    if owners:
        replicas = manifest["spec"].get("replicas")
        held = {"managers": owners.entries()} | ({} if replicas is None else {"replicas": replicas})
        annotations[KEY] = check_size(held)
    rest = {key: value for key, value in metadata.items() if key != "annotations"}
    return {**manifest, "metadata": rest | ({"annotations": annotations} if annotations else {})}


def check_size(held: Any) -> str:
    """Write as JSON what is to be kept. Raises TooMuch."""
    text = json.dumps(held, separators=(",", ":"), ensure_ascii=False)
    size = len(text.encode(errors="surrogatepass"))
    if size > TEXT_BYTES_MAX:
        raise TooMuch(f"who owns which fields takes {size} bytes; at most {TEXT_BYTES_MAX} are kept")
    return text


def revealed(tree: Json) -> Json:
    """Give an object as users see it: with `managedFields` in the place of the annotation."""
    metadata = tree.get("metadata") or {}
    annotations = dict(metadata.get("annotations") or {})
    if KEY not in annotations:
        return tree
    text = annotations.pop(KEY)
    rest = {key: value for key, value in metadata.items() if key != "annotations"} | ({"annotations": annotations} if annotations else {})
    owners = _read(text, tree.get("spec") or {}, (tree.get("status") or {}).get("lastScale") or {})
    return {**tree, "metadata": rest | ({"managedFields": owners.entries()} if owners else {})}


def _read(text: str, spec: Mapping[str, Any], last_scale: Mapping[str, Any]) -> Owners:
    """Read the annotation; without owners if another writer made it."""
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
    by = str(last_scale.get("by") or "") if last_scale.get("replicas") == replicas else ""
    name = "".join(filter(str.isprintable, by))[:NAME_MAX] or _UNKNOWN
    scaler = Owner(name, UPDATE, next(iter(owners.fields)).api_version, _SCALE)
    fields = {owner: own - {REPLICAS} for owner, own in owners.fields.items()}
    return owners.written({**fields, scaler: frozenset({REPLICAS})}, scaler, str(last_scale.get("at") or ""))


def _was_scaled(owners: Owners, replicas: Any, last_scale: Mapping[str, Any]) -> bool:
    """Whether a count, which is as it was written, was set again after its owners wrote it."""
    if last_scale.get("replicas") != replicas or last_scale.get("by", "") in _BY_APPLY:
        return False
    if str(last_scale.get("requestId") or "").startswith(WITH_WRITE):
        return False
    times = [owners.times.get(owner, "") for owner, own in owners.fields.items() if REPLICAS in own]
    return bool(times) and all(times) and str(last_scale.get("at") or "") > max(times)
