"""Kubernetes objects as dicts, with Modelplane's labels and annotations.

Only this module adds Modelplane's labels, the owner annotations and the content hash to
an object. The labels are never part of a selector: selectors are immutable, but
ownership may change.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from api_types import labels, names
from api_types.digests import content_hash

Json = dict[str, Any]


@dataclass(frozen=True)
class RenderedObject:
    """One object to apply.

    `key` is its stable inventory key. `hash` covers the whole object, in 64 hex digits.
    An object with `create_only` must never be applied over an existing one, because
    Kubernetes would reject any change.
    """

    key: str
    manifest: Json
    hash: str
    create_only: bool = False


@dataclass(frozen=True)
class RenderOwner:
    """The owner of objects.

    `label` is the key and value of the label by which a sweep finds them. Shared copies
    do not have it.
    """

    kind: str
    namespace: str
    name: str
    uid: str
    generation: int
    label: tuple[str, str] | None = None


def compact(**fields: Any) -> Json:
    """Return the fields that are set, without None and empty containers.

    False, 0 and "" are kept. An `emptyDir: {}` or `namespaceSelector: {}` has a meaning
    although it is empty, so write such fields directly.
    """
    return {
        name: value
        for name, value in fields.items()
        if value is not None and value not in ({}, [], ())
    }


def labelled_item(
    owner: RenderOwner,
    key: str,
    component: str,
    manifest: Mapping[str, Any],
    *,
    engine: str = "",
    extra_labels: Mapping[str, str] | None = None,
    extra_annotations: Mapping[str, str] | None = None,
) -> RenderedObject:
    """Add the labels and annotations to an object with `metadata.name`, and hash it."""
    metadata = dict(manifest["metadata"])
    metadata["labels"] = {
        **(extra_labels or {}),
        labels.MANAGED_BY: labels.MANAGED_BY_VALUE,
        labels.PART_OF: labels.PART_OF_VALUE,
        labels.COMPONENT: component,
    }
    if owner.label:
        owner_key, owner_value = owner.label
        metadata["labels"][owner_key] = owner_value
    if engine:
        metadata["labels"][labels.ENGINE] = names.label_value(engine)
    annotations = {
        **(extra_annotations or {}),
        labels.OWNER_KIND: owner.kind,
        labels.OWNER_NAMESPACE: owner.namespace,
        labels.OWNER_NAME: owner.name,
        labels.OWNER_UID: owner.uid,
        labels.GENERATION: str(owner.generation),
    }
    unhashed = {**manifest, "metadata": {**metadata, "annotations": annotations}}
    return with_content(RenderedObject(key=key, manifest=unhashed, hash=""), unhashed)


def with_content(item: RenderedObject, manifest: Mapping[str, Any]) -> RenderedObject:
    """Return an item with another manifest under the same key, and its new hash."""
    metadata = dict(manifest["metadata"])
    annotations = {
        key: value
        for key, value in metadata["annotations"].items()
        if key != labels.RENDER_HASH
    }
    render_hash = content_hash(
        {**manifest, "metadata": {**metadata, "annotations": annotations}}
    )
    metadata["annotations"] = {**annotations, labels.RENDER_HASH: render_hash}
    return replace(item, manifest={**manifest, "metadata": metadata}, hash=render_hash)


def set_hash(items: Iterable[RenderedObject]) -> str:
    """Return one hash of a list of items, in 64 hex digits.

    The hash depends on the order, because objects are applied in it.
    """
    return content_hash([[item.key, item.hash] for item in items])


def with_template_hash(template: Mapping[str, Any]) -> tuple[Json, str]:
    """Add the hash of a pod template to its annotations, to recognize old pods."""
    template_hash = content_hash(template)
    metadata = dict(template.get("metadata", {}))
    metadata["annotations"] = {
        **metadata.get("annotations", {}),
        labels.TEMPLATE_HASH: template_hash,
    }
    return {**template, "metadata": metadata}, template_hash
