"""`ClusterApi` over HTTP: JSON in, JSON out, every kind by one path rule, every failure an error of ours."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, TypeGuard
from urllib.parse import urlencode

from activities.clients.kubernetes.api_failures import failure, is_missing_namespace, unreachable
from activities.clients.kubernetes.discovery import Discovery, Page, path
from activities.clients.kubernetes.session import Response, Session
from activities.clients.outward.answers import read_object
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    Event,
    Json,
    Keep,
    Kind,
    Listing,
    ObjectId,
    Propagation,
    Resource,
    Selection,
    WatchExpired,
    whole,
)
from api_types.errors import AnswerTooLarge, ServerError, StackMissing
from api_types.labels import FIELD_MANAGER

# The first is that of client-go; the next ones are for pages that are larger than is read of an answer.
_PAGE_ITEMS = (500, 100, 10, 1)
# In JSON; in memory it is twice as much, or twenty times where it is meant to be, so only what is kept of a page outlives it.
# The nodes of the largest clusters, 5,000 with all their images, take 150 MiB.
_LIST_BYTES_MAX = 256 << 20
_METADATA_LIST_BYTES_MAX = 32 << 20
# As many pods as a cluster of Kubernetes has.
_LIST_ITEMS_MAX = 150_000
_LIST_RESTARTS_MAX = 3
# With what the metadata of their objects must have.
_EVENTS = {
    **dict.fromkeys(("ADDED", "MODIFIED", "DELETED"), ("name", "resourceVersion")),
    "BOOKMARK": ("resourceVersion",),
}
_WATCH_SECONDS = (200, 300)
# After a discovery without the kind, the next one waits: a missing stack would cost a discovery per request.
_DISCOVERY_SECONDS_MIN = 5.0
_APPLY_ATTEMPTS = 4
_CONFLICT_WAIT_SECONDS = 0.2
# More than any name has, and as much as messages take of one.
_NAME_MAX = 1024
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"


class KubernetesCluster(ClusterApi):
    """One cluster, under one credential."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cluster = session.cluster
        self._discovery = Discovery(self._page)
        self._discovered_at = float("-inf")

    async def close(self) -> None:
        """End all connections."""
        await self._session.close()

    def applying(self) -> AbstractAsyncContextManager[None]:
        """Wait until one more apply may run on the cluster, and count as one while held."""
        return self._session.apply_turn()

    async def version(self) -> str:
        """Give the server's version, such as `v1.35.4`."""
        return str(self._read(await self._session.request("GET", "/version"), "read the server's version").get("gitVersion", ""))

    async def resources(self, *, refresh: bool = False) -> Mapping[Kind, Resource]:
        """Give every served kind in every served version."""
        if refresh or not self._discovery.known:
            await self._discover()
        return self._discovery.resources()

    async def get(self, target: ObjectId) -> Json | None:
        """Read one object; None if it, its namespace or its kind does not exist."""
        resource = await self._resource(target.kind)
        if resource is None:
            return None
        answer = await self._session.request("GET", path(resource, target.namespace, target.name))
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        found = self._read(answer, f"read {target}")
        if not _is_object(found):
            raise self._malformed(f"read {target}", "it is no Kubernetes object")
        return found

    async def list(self, selection: Selection, keep: Keep = whole) -> Listing:
        """List all pages. Raises StackMissing if the kind is not served, and what `keep` raises."""
        resource = await self._needed(selection.kind)
        where = path(resource, selection.namespace)
        for page_items in _PAGE_ITEMS:
            try:
                return await self._list(selection, keep, where, page_items)
            except AnswerTooLarge:
                # Objects are not counted by size: some kinds have 500 small ones, others a few large ones.
                if page_items == _PAGE_ITEMS[-1]:
                    raise
        raise AssertionError("the last size of a page returns or raises")

    async def _list(self, selection: Selection, keep: Keep, where: str, page_items: int) -> Listing:
        doing = f"list {selection.kind}"
        items: list[Any] = []
        bytes_max = _METADATA_LIST_BYTES_MAX if selection.metadata_only and keep is whole else _LIST_BYTES_MAX
        size = restarts = 0
        query = _query(selection) | {"limit": str(page_items)}
        headers = {"Accept": _METADATA.format("PartialObjectMetadataList")} if selection.metadata_only else None
        while True:
            answer = await self._session.request("GET", f"{where}?{urlencode(query)}", headers=headers)
            if answer.status == HTTPStatus.NOT_FOUND:
                raise self._not_served(selection.kind)
            if answer.status == HTTPStatus.GONE and restarts < _LIST_RESTARTS_MAX:
                # The continue token has expired: list from the start.
                items.clear()
                query.pop("continue", None)
                size, restarts = 0, restarts + 1
                continue
            page = self._read(answer, doing)
            size += len(answer.body)
            if size > bytes_max:
                raise self._malformed(doing, f"its pages are more than {bytes_max >> 20} MiB together")
            found, metadata = page.get("items") or [], page.get("metadata") or {}
            if not (isinstance(found, list) and all(map(_is_object, found)) and isinstance(metadata, dict)):
                raise self._malformed(doing, "it is no list of Kubernetes objects")
            if len(items) + len(found) > _LIST_ITEMS_MAX:
                raise self._malformed(doing, f"it has more than {_LIST_ITEMS_MAX} objects")
            items += [keep(_typed(item, selection.kind)) for item in found]
            if not metadata.get("continue"):
                return Listing(items, str(metadata.get("resourceVersion", "")))
            query["continue"] = str(metadata["continue"])

    async def watch(self, selection: Selection, resource_version: str) -> AsyncIterator[Event]:
        """Follow changes until the server ends the watch."""
        resource = await self._needed(selection.kind)
        query = _query(selection) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            # Spread, so that a worker's watches do not all restart in one second.
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311
        }
        headers = {"Accept": _METADATA.format("PartialObjectMetadata")} if selection.metadata_only else None
        async for line in self._session.lines(f"{path(resource, selection.namespace)}?{urlencode(query)}", headers):
            if isinstance(line, Response):
                self._check_watch(line.status, line.body, line.headers, selection)
                continue
            try:
                event = read_object(line)
            except ValueError as error:
                # A connection that broke inside a line.
                raise unreachable(error, self._cluster, self._session.server) from error
            changed = event.get("object")
            if event.get("type") == "ERROR" and isinstance(changed, dict):
                code = changed.get("code")
                self._check_watch(code if isinstance(code, int) else 0, changed, {}, selection)
                continue
            needed = _EVENTS.get(str(event.get("type")))
            if needed is None or not _is_object(changed, needed):
                raise self._malformed(f"watch {selection.kind}", "a line of it is no event of a Kubernetes object")
            yield Event(event["type"], _typed(changed, selection.kind))

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Apply one object server-side, as manager `modelplane`, taking over fields of others; with `dry_run` nothing is stored."""
        target = ObjectId.of(manifest)
        resource = await self._needed(target.kind)
        parameters = {"fieldManager": FIELD_MANAGER, "force": "true", "fieldValidation": "Strict"}
        query = urlencode(parameters | ({"dryRun": "All"} if dry_run else {}))
        where = f"{path(resource, target.namespace, target.name)}?{query}"
        for attempt in range(_APPLY_ATTEMPTS):
            answer = await self._session.request("PATCH", where, body=manifest, content_type="application/apply-patch+yaml")
            # Fields are forced, so a conflict only means a concurrent write.
            if answer.status != HTTPStatus.CONFLICT or attempt + 1 == _APPLY_ATTEMPTS:
                break
            await asyncio.sleep(_CONFLICT_WAIT_SECONDS * 2**attempt)
        if answer.status == HTTPStatus.NOT_FOUND:
            if is_missing_namespace(answer.body):
                raise ServerError(
                    f"cluster {self._cluster}: apply {target}: the namespace is gone; it is created again at the next attempt"
                )
            raise self._not_served(target.kind)
        return self._read(answer, f"apply {target}")

    async def create(self, manifest: Json) -> Json | None:
        """Create an object; None if the name is taken."""
        metadata = manifest.get("metadata") or {}
        kind = Kind(manifest["apiVersion"], manifest["kind"])
        resource = await self._needed(kind)
        query = urlencode({"fieldManager": FIELD_MANAGER})
        answer = await self._session.request("POST", f"{path(resource, metadata.get('namespace', ''))}?{query}", body=manifest)
        if answer.status == HTTPStatus.CONFLICT:
            return None
        return self._read(answer, f"create {kind}/{metadata.get('namespace', '')}/{metadata.get('name', '')}")

    async def replace(self, manifest: Json) -> Json | None:
        """Replace the object with its `metadata.resourceVersion`; None if that one has changed or is gone."""
        target = ObjectId.of(manifest)
        resource = await self._needed(target.kind)
        where = f"{path(resource, target.namespace, target.name)}?{urlencode({'fieldManager': FIELD_MANAGER})}"
        answer = await self._session.request("PUT", where, body=manifest)
        if answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            return None
        return self._read(answer, f"replace {target}")

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        """Request deletion, only of the object with `uid` (at `resource_version`) if given. False if there is no such object (any more)."""
        resource = await self._resource(target.kind)
        if resource is None:
            return False
        options: Json = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        if given := {name: value for name, value in preconditions.items() if value}:
            options["preconditions"] = given
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        answer = await self._session.request("DELETE", path(resource, target.namespace, target.name), body=options)
        # A conflict is that of a precondition: another object has taken the name, or this one has changed.
        if answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            return False
        self._read(answer, f"delete {target}")
        return True

    async def _page(self, where: str, accept: str, etag: str) -> Page:
        answer = await self._session.request_in_turn("GET", where, headers={"Accept": accept} | ({"If-None-Match": etag} if etag else {}))
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return Page(None, etag)
        return Page(self._read(answer, f"read {where}"), answer.headers.get("ETag", ""))

    async def _discover(self) -> None:
        # One discovery runs at a time. Who waits for it holds a turn, so that only a few wait for a server that hangs.
        async with self._session.turn():
            try:
                await self._discovery.refresh()
            except (AttributeError, KeyError, TypeError) as error:
                raise self._malformed("read the served kinds", "it is no discovery document") from error
        self._discovered_at = asyncio.get_running_loop().time()

    async def _resource(self, kind: Kind) -> Resource | None:
        found = (await self.resources()).get(kind)
        if found is None and asyncio.get_running_loop().time() - self._discovered_at > _DISCOVERY_SECONDS_MIN:
            found = (await self.resources(refresh=True)).get(kind)
        return found

    async def _needed(self, kind: Kind) -> Resource:
        found = await self._resource(kind)
        if found is None:
            raise self._not_served(kind)
        return found

    def _not_served(self, kind: Kind) -> StackMissing:
        return StackMissing(
            f"cluster {self._cluster} does not serve {kind.kind} of {kind.api_version}; it is retried until the serving stack is installed"
        )

    def _check_watch(self, status: int, body: bytes | Mapping[str, Any], headers: Mapping[str, str], selection: Selection) -> None:
        if status == HTTPStatus.GONE:
            raise WatchExpired
        if status == HTTPStatus.NOT_FOUND:
            raise self._not_served(selection.kind)
        raise failure(status, body, headers, self._cluster, f"watch {selection.kind}", identity=self._session.identity)

    def _read(self, answer: Response, doing: str) -> Json:
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise failure(answer.status, answer.body, answer.headers, self._cluster, doing, identity=self._session.identity)
        try:
            return read_object(answer.body)
        except ValueError as error:
            raise unreachable(error, self._cluster, self._session.server) from error

    def _malformed(self, doing: str, problem: str) -> ServerError:
        return ServerError(
            f"cluster {self._cluster}: {doing}: the answer was not taken: {problem}; check what answers at {self._session.server}"
        )


def _query(selection: Selection) -> dict[str, str]:
    pairs = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {name: value for name, value in pairs.items() if value}


def _is_object(found: object, needed: tuple[str, ...] = ("name",)) -> TypeGuard[Json]:
    """Whether it has what every reader of objects relies on: metadata, and these fields of it."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    return (
        isinstance(metadata, dict)
        and all(
            isinstance(text := metadata.get(name, ""), str) and len(text) <= _NAME_MAX for name in ("name", "namespace", "resourceVersion")
        )
        and all(name in metadata for name in needed)
    )


def _typed(item: Json, kind: Kind) -> Json:
    # Items of a list, and PartialObjectMetadata, have no kind of their own.
    item["apiVersion"], item["kind"] = kind
    return item
