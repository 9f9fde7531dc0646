"""Which kinds a cluster serves, and under which path.

Read as aggregated discovery (two requests for everything); from clusters that are too old for it group by group. Kinds change with the
serving stack, so the response is kept with its ETags and refreshed cheaply.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

from activities.cluster_objects.cluster_api import Kind, Resource

# Preferred first; an old server serves the last.
AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,"
    "application/json"
)
_ROOTS = ("/api", "/apis")


class Page(NamedTuple):
    """The response to a request; `body` is None when nothing changed since `etag`."""

    body: Mapping[str, Any] | None
    etag: str


Fetch = Callable[[str, str, str], Awaitable[Page]]  # path, Accept, etag of the last response


class Discovery:
    """The served kinds of one cluster, as last discovered."""

    def __init__(self, fetch: Fetch) -> None:
        self._fetch = fetch
        self._etags = dict.fromkeys(_ROOTS, "")
        self._found: dict[str, dict[Kind, Resource]] = {}
        self._refreshing = asyncio.Lock()

    @property
    def known(self) -> bool:
        """Whether discovery ran at all."""
        return len(self._found) == len(_ROOTS)

    async def refresh(self) -> None:
        """Run discovery; only one run at a time."""
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

    def resources(self) -> Mapping[Kind, Resource]:
        """Give every served kind in every served version."""
        return {kind: resource for found in self._found.values() for kind, resource in found.items()}

    async def _legacy(self, root: str, body: Mapping[str, Any]) -> dict[Kind, Resource]:
        if root == "/api":
            versions = [str(version) for version in body.get("versions") or []]
        else:
            versions = [str(version["groupVersion"]) for group in body.get("groups") or [] for version in group["versions"]]
        found: dict[Kind, Resource] = {}
        for version in versions:
            page = await self._fetch(f"{root}/{version}", "application/json", "")
            for entry in (page.body or {}).get("resources") or []:
                if "/" not in entry["name"]:
                    kind = Kind(version, entry["kind"])
                    found[kind] = Resource(kind, entry["name"], bool(entry["namespaced"]), frozenset(entry.get("verbs") or ()))
        return found


def _aggregated(body: Mapping[str, Any]) -> Iterable[tuple[Kind, Resource]]:
    for group in body.get("items") or []:
        name = (group.get("metadata") or {}).get("name", "")
        for version in group.get("versions") or []:
            api_version = f"{name}/{version['version']}" if name else str(version["version"])
            for entry in version.get("resources") or []:
                kind = Kind(api_version, (entry.get("responseKind") or {}).get("kind", ""))
                if kind.kind:
                    yield (
                        kind,
                        Resource(kind, entry["resource"], entry.get("scope") == "Namespaced", frozenset(entry.get("verbs") or ())),
                    )


def path(resource: Resource, namespace: str = "", name: str = "") -> str:
    """Give the REST path of a collection or, with a name, of one object."""
    root = "/apis" if resource.kind.group else "/api"
    parts = [root, resource.kind.api_version]
    if resource.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(resource.plural)
    if name:
        parts.append(quote(name, safe=":"))
    return "/".join(parts)
