"""Plain Kubernetes objects with our labels and annotations.

Every object of ours gets its labels, its owner annotations and the hash of its content here and nowhere else. The labels are never part of
a selector: selectors are immutable, ownership may change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api_types import labels, names
from api_types.digests import content_hash

Json = dict[str, Any]


@dataclass(frozen=True)
class Item:
    """One object to apply. `key` is its stable place in the inventory; `hash` covers all of it, in 64 hex digits.

    `create_only`: the object must never be applied over an existing one, because Kubernetes would refuse any change.
    """

    key: str
    manifest: Json
    hash: str
    create_only: bool = False


@dataclass(frozen=True)
class Owner:
    """The owner of objects. `label` is the one by which a sweep finds them, key and value; shared copies have none."""

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    label: tuple[str, str] | None = None


def compact(**fields: Any) -> Json:
    """Keep what is set: drop None and everything empty, but never False, 0 or an empty text.

    An `emptyDir: {}` or `namespaceSelector: {}` says something by being empty; write such fields directly.
    """
    return {name: value for name, value in fields.items() if value is not None and value not in ({}, [], ())}


def labelled_item(
    owner: Owner,
    key: str,
    component: str,
    manifest: Mapping[str, Any],
    *,
    engine: str = "",
    extra_labels: Mapping[str, str] | None = None,
    extra_annotations: Mapping[str, str] | None = None,
) -> Item:
    """Add our labels and annotations to an object that has `metadata.name`, and hash it."""
    metadata = dict(manifest["metadata"])
    metadata["labels"] = {
        **(extra_labels or {}),
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.PART_OF: labels.PART_OF_VALUE,
        labels.COMPONENT: component,
        **(dict([owner.label]) if owner.label else {}),
        **({labels.ENGINE: names.label_value(engine)} if engine else {}),
    }
    annotations = {
        **(extra_annotations or {}),
        labels.OWNER_KIND: owner.kind,
        labels.OWNER_NAMESPACE: owner.namespace,
        labels.OWNER_NAME: owner.name,
        labels.OWNER_UID: owner.uid,
        labels.GENERATION: str(owner.generation),
    }
    unhashed = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    return with_content(Item(key=key, manifest=unhashed, hash=""), unhashed)


def with_content(item: Item, manifest: Mapping[str, Any]) -> Item:
    """Give an item with another manifest under its key, and the hash of that."""
    metadata = dict(manifest["metadata"])
    annotations = {key: value for key, value in metadata["annotations"].items() if key != labels.RENDER_HASH}
    render_hash = content_hash({**manifest, "metadata": {**metadata, "annotations": annotations}})
    metadata["annotations"] = {**annotations, labels.RENDER_HASH: render_hash}
    return replace(item, manifest={**manifest, "metadata": metadata}, hash=render_hash)


def set_hash(items: Iterable[Item]) -> str:
    """Give one hash over a whole set, in 64 hex digits; order counts, because objects are applied in it."""
    return content_hash([[item.key, item.hash] for item in items])


def with_template_hash(template: Mapping[str, Any]) -> tuple[Json, str]:
    """Write the hash of a pod template into its annotations, to distinguish old pods from new ones."""
    template_hash = content_hash(template)
    metadata = dict(template.get("metadata", {}))
    metadata["annotations"] = {**metadata.get("annotations", {}), labels.TEMPLATE_HASH: template_hash}
    return {**template, "metadata": metadata}, template_hash
