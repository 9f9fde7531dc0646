"""Paths of the front's API.

A DELETE of a collection deletes all its objects. So only this module builds the path of
an object, and it refuses a name that would make it another path.
"""

from urllib.parse import quote

from api_types.resources.kinds import KindInfo
from api_types.validation.rules.metadata import is_dns_label, is_dns_subdomain
from fleet_client.errors import Refused
from fleet_client.refs.targets import Target

_SHOWN_MAX = 80


def collection_path(kind: KindInfo, namespace: str | None) -> str:
    """Return the path of all objects of a kind, in a namespace or (None) in all.

    Raise `Refused`.
    """
    if kind.shown_by:
        # This kind is not in the front's Kubernetes API. Its objects share one
        # namespace.
        return f"/v1/{kind.plural}"
    if namespace is None:
        return f"/apis/{kind.api_version}/{kind.plural}"
    if not is_dns_label(namespace):
        raise Refused(
            f"{namespace[:_SHOWN_MAX]!r} is not the name of a namespace",
            next_step="correct it; nothing was sent",
        )
    return (
        f"/apis/{kind.api_version}/namespaces/{quote(namespace, safe='')}/{kind.plural}"
    )


def object_path(target: Target, subresource: str = "") -> str:
    """Return the path of one object or of its subresource.

    Raise `Refused` for an invalid name.
    """
    collection = collection_path(
        target.kind, target.namespace if target.kind.namespaced else None
    )
    if not is_dns_subdomain(target.name):
        raise Refused(
            f"{target.name[:_SHOWN_MAX]!r} is not the name of an object",
            next_step="write lower-case letters, digits, hyphens and dots; nothing was sent for it",
        )
    path = f"{collection}/{quote(target.name, safe='')}"
    return f"{path}/{subresource}" if subresource else path


def beside_path(target: Target, what: str) -> str:
    """Return the path of a request about an object outside the Kubernetes API.

    Raise the errors of `object_path`.
    """
    path = object_path(target).removeprefix(f"/apis/{target.kind.api_version}/")
    return f"/v1/{path}/{what}"
