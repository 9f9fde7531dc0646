"""The owner of an object on a cluster, as its annotations name it.

Tenants and other control planes share clusters. Before an object is overwritten or deleted its owner is read; objects of other owners are
left as they are.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from activities.cluster_objects.cluster_api import ObjectId
from api_types import labels, names
from api_types.payloads.limits import shortened

# Annotations may be of any length, and whoever may write the object chooses them.
_SHOWN_BYTES_MAX = 600


class Owner(NamedTuple):
    """The entity that an object carries in its annotations; all parts empty if it carries none of ours."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def workflow_id(self) -> str:
        """The id of the entity's workflow."""
        return names.workflow_id(self.kind, self.namespace, self.name)

    def __str__(self) -> str:
        if not self.uid:
            return "no known owner"
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return shortened(f"{self.kind} {where} (uid {self.uid})", _SHOWN_BYTES_MAX)


def owner_of(item: Mapping[str, Any]) -> Owner:
    """Read the owner of an object."""
    metadata = item["metadata"]
    if (metadata.get("labels") or {}).get(labels.MANAGED_BY) != labels.MANAGED_BY_VALUE:
        return Owner("", "", "", "")
    notes = metadata.get("annotations") or {}
    keys = (labels.OWNER_KIND, labels.OWNER_NAMESPACE, labels.OWNER_NAME, labels.OWNER_UID)
    return Owner(*(str(notes.get(key, "")) for key in keys))


def conflict(item: Mapping[str, Any], uid: str) -> str:
    """Say why the owner with `uid` may not write or delete an existing object; empty if the object is its own."""
    owner = owner_of(item)
    return "" if owner.uid == uid else f"{ObjectId.of(item)} exists already and belongs to {owner}"
