"""What paths below `/v1` have in common: the object that they name, and requests that are possible for none of them."""

from dataclasses import replace

from aiohttp import web

from api_types.resources.kinds import SERVED
from front.serving import errors
from front.serving.requests import Resource, resource_of

_GROUP_VERSIONS = {info.plural: info.api_version for info in SERVED}


def named(request: web.Request, plural: str = "", subresource: str = "") -> Resource:
    """Give the object that `namespace`, `plural` and `name` of a path name. Raises `Refused` for names that no object can have.

    `plural`: where the path has none.
    """
    namespace, name = request.match_info.get("namespace", ""), request.match_info["name"]
    plural = plural or request.match_info["plural"]
    scope = f"/namespaces/{namespace}" if namespace else ""
    found = resource_of(f"/apis/{_GROUP_VERSIONS.get(plural, '')}{scope}/{plural}/{name}")
    if found is None or (found.namespace, found.name, found.info.plural) != (namespace, name, plural):
        raise errors.Refused(404, "NotFound", "the server could not find the requested resource")
    return replace(found, subresource=subresource)


def refuse_dry_run(request: web.Request) -> None:
    """Raise `Refused` for a request that is to change nothing: nothing below /v1 can be tried so."""
    if "dryRun" in request.query:
        raise errors.bad_request("dryRun is not possible for this path; nothing was changed")


def allow(request: web.Request, *methods: str) -> None:
    """Raise `Refused` for another method."""
    if request.method not in methods:
        raise errors.method_not_allowed(request.method)
