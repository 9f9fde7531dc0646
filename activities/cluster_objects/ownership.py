"""The owner of an object on a cluster, as its annotations name it.

Tenants and other control planes share clusters. Before an object is overwritten or
deleted, its owner is read. Objects of other owners are not changed.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import ObjectId
from api_types import labels, names
from api_types.payloads.limits import shortened

# Annotations may be of any length, and everyone who may write the object can set them.
_SHOWN_BYTES_MAX = 600


class ObjectOwner(NamedTuple):
    """The entity that an object's annotations name, or empty fields if they name none."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def workflow_id(self) -> str:
        return names.workflow_id(self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        if not self.uid:
            return "no known owner"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return shortened(f"{self.kind} {where} (uid {self.uid})", _SHOWN_BYTES_MAX)


def owner_of(item: Mapping[str, Any]) -> ObjectOwner:
    metadata = item["metadata"]
    if (metadata.get("labels") or {}).get(labels.MANAGED_BY) != labels.MANAGED_BY_VALUE:
        return ObjectOwner("", "", "", "")
    notes = metadata.get("annotations") or {}
    keys = (
        labels.OWNER_KIND,
        labels.OWNER_NAMESPACE,
        labels.OWNER_NAME,
        labels.OWNER_UID,
    )
    return ObjectOwner(*(str(notes.get(key, "")) for key in keys))


def conflict(item: Mapping[str, Any], uid: str) -> str:
    """Return why the owner with `uid` may not write or delete an existing object.

    Returns an empty string if the owner may.
    """
    owner = owner_of(item)
    return (
        ""
        if owner.uid == uid
        else f"{ObjectId.of(item)} exists already and belongs to {owner}"
    )
