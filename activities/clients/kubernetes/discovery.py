"""Discover the kinds that a cluster serves and their paths.

Aggregated discovery needs two requests. Clusters that are too old for it are read group
by group. The kinds change with the serving stack, so the responses are cached with
their ETags and revalidated cheaply.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from activities.cluster_objects.cluster_api import ApiResource, GroupVersionKind

# In order of preference. An old server serves the last one.
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)
_ROOTS = ("/api", "/apis")


class DiscoveryResponse(NamedTuple):
    """The response to a request. `body` is None if nothing changed since `etag`."""

    body: Mapping[str, Any] | None
    etag: str


# Arguments: path, Accept header, ETag of the last response.
Fetch = Callable[[str, str, str], Awaitable[DiscoveryResponse]]


class Discovery:
    """The served kinds of one cluster, as of the last discovery."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._etags = dict.fromkeys(_ROOTS, "")
        self._found: dict[str, dict[GroupVersionKind, ApiResource]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def known(self) -> bool:
        """True if discovery has run."""
        return len(self._found) == len(_ROOTS)

    async def refresh(self) -> None:
        """Run discovery, once at a time."""
        async with self._refreshing:
            for root in _ROOTS:
                page = await self._fetch(root, AGGREGATED, self._etags[root])
                if page.body is None:
                    continue
                if page.body.get("kind") == "APIGroupDiscoveryList":
                    self._found[root] = dict(_aggregated(page.body))
                    self._etags[root] = page.etag
                else:
                    self._found[root] = await self._legacy(root, page.body)

    def resources(self) -> Mapping[GroupVersionKind, ApiResource]:
        """Return every served kind in every served version."""
        return {
            kind: resource
            for found in self._found.values()
            for kind, resource in found.items()
        }

    async def _legacy(
        self, root: str, body: Mapping[str, Any]
    ) -> dict[GroupVersionKind, ApiResource]:
        if root == "/api":
            versions = [str(version) for version in body.get("versions") or []]
        else:
            versions = [
                str(version["groupVersion"])
                for group in body.get("groups") or []
                for version in group["versions"]
            ]
        found: dict[GroupVersionKind, ApiResource] = {}
        for version in versions:
            page = await self._fetch(f"{root}/{version}", "application/json", "")
            for entry in (page.body or {}).get("resources") or []:
                if "/" not in entry["name"]:
                    kind = GroupVersionKind(version, entry["kind"])
                    found[kind] = ApiResource(
                        kind,
                        entry["name"],
                        bool(entry["namespaced"]),
                        frozenset(entry.get("verbs") or ()),
                    )
        return found


def _aggregated(
    body: Mapping[str, Any],
) -> Iterable[tuple[GroupVersionKind, ApiResource]]:
    for group in body.get("items") or []:
        name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or []:
            api_version = (
                f"{name}/{version['version']}" if name else str(version["version"])
            )
            for entry in version.get("resources") or []:
                kind = GroupVersionKind(
                    api_version, (entry.get("responseKind") or {}).get("kind", "")
                )
                if kind.kind:
                    yield (
                        kind,
                        ApiResource(
                            kind,
                            entry["resource"],
                            entry.get("scope") == "Namespaced",
                            frozenset(entry.get("verbs") or ()),
                        ),
                    )


def path(resource: ApiResource, namespace: str = "", name: str = "") -> str:
    """Return the REST path of a collection or, with a name, of one object."""
    root = "/apis" if resource.kind.group else "/api"
    parts = [root, resource.kind.api_version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=":"))
    return "/".join(parts)
