"""Paths of the front's API.

A request to a collection is about all its objects: a DELETE there deletes them. So the path of an object is made here alone, and a name
that would make it the path of something else is refused.
"""

from urllib.parse import quote

from api_types.resources.kinds import KindInfo
from api_types.validation.rules.metadata import is_dns_label, is_dns_subdomain
from client.errors import Refused
from client.refs.targets import Target

_SHOWN_MAX = 80


def collection_path(kind: KindInfo, namespace: str | None) -> str:
    """Give the path of all objects of a kind, in a namespace or (None) in all. Raises `Refused`."""
    if kind.shown_by:
        # No kind of the Kubernetes API of a front; they have one namespace.
        return f"/v1/{kind.plural}"
    if namespace is None:
        return f"/apis/{kind.api_version}/{kind.plural}"
    if not is_dns_label(namespace):
        raise Refused(f"{namespace[:_SHOWN_MAX]!r} is not the name of a namespace", next_step="correct it; nothing was sent")
    return f"/apis/{kind.api_version}/namespaces/{quote(namespace, safe='')}/{kind.plural}"


def object_path(target: Target, subresource: str = "") -> str:
    """Give the path of one object, or of a subresource of it. Raises `Refused` for what is the name of none."""
    collection = collection_path(target.kind, target.namespace if target.kind.namespaced else None)
    if not is_dns_subdomain(target.name):
        raise Refused(
            f"{target.name[:_SHOWN_MAX]!r} is not the name of an object",
            next_step="write lower-case letters, digits, hyphens and dots; nothing was sent for it",
        )
    path = f"{collection}/{quote(target.name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def beside_path(target: Target, what: str) -> str:
    """Give the path of what commands ask about an object, beside the Kubernetes API. Raises `Refused` as `object_path` does."""
    return f"/v1/{object_path(target).removeprefix(f'/apis/{target.kind.api_version}/')}/{what}"
