"""Helpers of all paths below `/v1`."""

from dataclasses import replace

from aiohttp import web

from api_types.resources.kinds import SERVED
from front.serving import errors
from front.serving.requests import RequestedResource, resource_of

_GROUP_VERSIONS = {info.plural: info.api_version for info in SERVED}


def named(
    request: web.Request, plural: str = "", subresource: str = ""
) -> RequestedResource:
    """Return the object that a path names.

    `plural` replaces the plural in the path. Raises `RejectedRequest` for impossible
    names.
    """
    namespace = request.match_info.get("namespace", "")
    name = request.match_info["name"]
    plural = plural or request.match_info["plural"]
    scope = f"/namespaces/{namespace}" if namespace else ""
    found = resource_of(
        f"/apis/{_GROUP_VERSIONS.get(plural, '')}{scope}/{plural}/{name}"
    )
    if found is None or (found.namespace, found.name, found.info.plural) != (
        namespace,
        name,
        plural,
    ):
        raise errors.RejectedRequest(
            404, "NotFound", "the server could not find the requested resource"
        )
    return replace(found, subresource=subresource)


def refuse_dry_run(request: web.Request) -> None:
    """Raise `RejectedRequest` for a dry run, which no path below `/v1` supports."""
    if "dryRun" in request.query:
        raise errors.bad_request(
            "dryRun is not supported for this path; nothing was changed"
        )


def allow(request: web.Request, *methods: str) -> None:
    """Raise `RejectedRequest` for other methods."""
    if request.method not in methods:
        raise errors.method_not_allowed(request.method)
