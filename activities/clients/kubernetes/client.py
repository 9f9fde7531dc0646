"""`ClusterApi` over HTTP.

Objects are JSON, one function computes the path of every kind, and every failure
becomes an error of `api_types.errors`.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from typing import Any, TypeGuard
from urllib.parse import quote, urlencode

from activities.clients.kubernetes.api_failures import (
    failure,
    is_missing_namespace,
    unreachable,
)
from activities.clients.kubernetes.discovery import Discovery, DiscoveryResponse, path
from activities.clients.kubernetes.session import Response, Session
from activities.clients.outward.answers import read_object
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    Event,
    GroupVersionKind,
    Json,
    Keep,
    ObjectId,
    ObjectList,
    Propagation,
    Selection,
    WatchExpired,
    whole,
)
from api_types.errors import AnswerTooLarge, ServerError, StackMissing
from api_types.labels import FIELD_MANAGER

# The first is the default of client-go. The others are for pages that exceed the size
# limit of a response.
_PAGE_ITEMS = (500, 100, 10, 1)
# The size as JSON. Parsed, a page takes twice as much memory, or twenty times as much
# if it was crafted, so only the kept fields outlive it. The nodes of the largest
# clusters, 5,000 with all their images, take 150 MiB.
_LIST_BYTES_MAX = 256 << 20
_METADATA_LIST_BYTES_MAX = 32 << 20
# The maximum number of pods of a Kubernetes cluster.
_LIST_ITEMS_MAX = 150_000
_LIST_RESTARTS_MAX = 3
# The event types, with the metadata fields that their objects must have.
_EVENTS = {
    **dict.fromkeys(("ADDED", "MODIFIED", "DELETED"), ("name", "resourceVersion")),
    "BOOKMARK": ("resourceVersion",),
}
_WATCH_SECONDS = (200, 300)
# If a discovery does not find the kind, the next one is delayed. Otherwise a missing
# stack would cost a discovery per request.
_DISCOVERY_SECONDS_MIN = 5.0
_APPLY_ATTEMPTS = 4
_CONFLICT_WAIT_SECONDS = 0.2
# Longer than any name. Messages accept no more.
_NAME_MAX = 1024
_METADATA = "application/json;as={};g=meta.k8s.io;v=v1"


class KubernetesCluster(ClusterApi):
    """One cluster, accessed with one credential."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._cluster = session.cluster
        self._discovery = Discovery(self._page)
        self._discovered_at = float("-inf")

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def applying(self) -> AbstractAsyncContextManager[None]:
        """Wait for an apply slot of the cluster, and hold it during the context."""
        return self._session.apply_turn()

    async def version(self) -> str:
        """Return the server's version, such as `v1.35.4`."""
        answer = await self._session.request("GET", "/version")
        found = self._read(answer, "read the server's version")
        return str(found.get("gitVersion", ""))

    async def resources(
        self, *, refresh: bool = False
    ) -> Mapping[GroupVersionKind, ApiResource]:
        """Return every served kind in every served version."""
        if refresh or not self._discovery.known:
            await self._discover()
        return self._discovery.resources()

    async def get(self, target: ObjectId) -> Json | None:
        """Return one object, or None if it, its namespace or its kind does not exist."""
        resource = await self._resource(target.kind)
        if resource is None:
            return None
        answer = await self._session.request(
            "GET", path(resource, target.namespace, target.name)
        )
        if answer.status == HTTPStatus.NOT_FOUND:
            return None
        found = self._read(answer, f"read {target}")
        if not _is_object(found):
            raise self._malformed(f"read {target}", "it is not a Kubernetes object")
        return found

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        """List all pages.

        Raises StackMissing if the kind is not served, and the errors of `keep`.
        """
        resource = await self._needed(selection.kind)
        where = path(resource, selection.namespace)
        for page_items in _PAGE_ITEMS:
            try:
                return await self._list(selection, keep, where, page_items)
            except AnswerTooLarge:
                # Pages are limited by the number of objects and not by their size. Some
                # kinds have 500 small objects, others a few large ones.
                if page_items == _PAGE_ITEMS[-1]:
                    raise
        raise AssertionError("the last size of a page returns or raises")

    async def _list(
        self, selection: Selection, keep: Keep, where: str, page_items: int
    ) -> ObjectList:
        doing = f"list {selection.kind}"
        items: list[Any] = []
        bytes_max = _LIST_BYTES_MAX
        headers = None
        if selection.metadata_only:
            headers = {"Accept": _METADATA.format("PartialObjectMetadataList")}
            if keep is whole:
                bytes_max = _METADATA_LIST_BYTES_MAX
        size = restarts = 0
        query = _query(selection) | {"limit": str(page_items)}
        while True:
            answer = await self._session.request(
                "GET", f"{where}?{urlencode(query)}", headers=headers
            )
            if answer.status == HTTPStatus.NOT_FOUND:
                raise self._not_served(selection.kind)
            if answer.status == HTTPStatus.GONE and restarts < _LIST_RESTARTS_MAX:
                # The continue token has expired, so list from the start.
                items.clear()
                query.pop("continue", None)
                size, restarts = 0, restarts + 1
                continue
            page = self._read(answer, doing)
            size += len(answer.body)
            if size > bytes_max:
                raise self._malformed(
                    doing, f"its pages are more than {bytes_max >> 20} MiB together"
                )
            found, metadata = page.get("items") or [], page.get("metadata") or {}
            if not _is_list(found, metadata):
                raise self._malformed(doing, "it is not a list of Kubernetes objects")
            if len(items) + len(found) > _LIST_ITEMS_MAX:
                raise self._malformed(
                    doing, f"it has more than {_LIST_ITEMS_MAX} objects"
                )
            items += [keep(_typed(item, selection.kind)) for item in found]
            if not metadata.get("continue"):
                return ObjectList(items, str(metadata.get("resourceVersion", "")))
            query["continue"] = str(metadata["continue"])

    async def watch(
        self, selection: Selection, resource_version: str
    ) -> AsyncIterator[Event]:
        """Yield changes until the server ends the watch."""
        resource = await self._needed(selection.kind)
        query = _query(selection) | {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            # Random, so that the watches of a worker do not all restart at once.
            "timeoutSeconds": str(random.randint(*_WATCH_SECONDS)),  # noqa: S311
        }
        headers = None
        if selection.metadata_only:
            headers = {"Accept": _METADATA.format("PartialObjectMetadata")}
        async for line in self._session.lines(
            f"{path(resource, selection.namespace)}?{urlencode(query)}", headers
        ):
            if isinstance(line, Response):
                self._check_watch(line.status, line.body, line.headers, selection)
                continue
            try:
                event = read_object(line)
            except ValueError as error:
                # The connection broke inside a line.
                raise unreachable(error, self._cluster, self._session.server) from error
            changed = event.get("object")
            if event.get("type") == "ERROR" and isinstance(changed, dict):
                code = changed.get("code")
                self._check_watch(
                    code if isinstance(code, int) else 0, changed, {}, selection
                )
                continue
            needed = _EVENTS.get(str(event.get("type")))
            if needed is None or not _is_object(changed, needed):
                raise self._malformed(
                    f"watch {selection.kind}",
                    "a line of it is not an event of a Kubernetes object",
                )
            yield Event(event["type"], _typed(changed, selection.kind))

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """Apply one object server-side as manager `modelplane`.

        The apply takes over fields of other managers. With `dry_run` nothing is stored.
        """
        target = ObjectId.of(manifest)
        resource = await self._needed(target.kind)
        parameters = {
            "fieldManager": FIELD_MANAGER,
            "force": "true",
            "fieldValidation": "Strict",
        }
        query = urlencode(parameters | ({"dryRun": "All"} if dry_run else {}))
        where = f"{path(resource, target.namespace, target.name)}?{query}"
        for attempt in range(_APPLY_ATTEMPTS):
            answer = await self._session.request(
                "PATCH",
                where,
                body=manifest,
                content_type="application/apply-patch+yaml",
            )
            # Fields are forced, so a conflict only means a concurrent write.
            if answer.status != HTTPStatus.CONFLICT or attempt + 1 == _APPLY_ATTEMPTS:
                break
            await asyncio.sleep(_CONFLICT_WAIT_SECONDS * 2**attempt)
        if answer.status == HTTPStatus.NOT_FOUND:
            if is_missing_namespace(answer.body):
                raise ServerError(
                    f"cluster {self._cluster}: apply {target}: the namespace is gone; "
                    "it is created again at the next attempt"
                )
            raise self._not_served(target.kind)
        return self._read(answer, f"apply {target}")

    async def create(self, manifest: Json) -> Json | None:
        """Create an object. Returns None if the name is taken."""
        metadata = manifest.get("metadata") or {}
        kind = GroupVersionKind(manifest["apiVersion"], manifest["kind"])
        resource = await self._needed(kind)
        query = urlencode({"fieldManager": FIELD_MANAGER})
        answer = await self._session.request(
            "POST",
            f"{path(resource, metadata.get('namespace', ''))}?{query}",
            body=manifest,
        )
        if answer.status == HTTPStatus.CONFLICT:
            return None
        return self._read(
            answer,
            f"create {kind}/{metadata.get('namespace', '')}/{metadata.get('name', '')}",
        )

    async def replace(self, manifest: Json) -> Json | None:
        """Replace the object with its `metadata.resourceVersion`.

        Returns None if that version has changed or the object is gone.
        """
        target = ObjectId.of(manifest)
        resource = await self._needed(target.kind)
        query = urlencode({"fieldManager": FIELD_MANAGER})
        where = f"{path(resource, target.namespace, target.name)}?{query}"
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
        """Request deletion of an object.

        Returns False if the object does not exist.

        With `uid` and `resource_version` only the object with these values is deleted.
        """
        resource = await self._resource(target.kind)
        if resource is None:
            return False
        options: Json = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": propagation,
        }
        preconditions = {"uid": uid, "resourceVersion": resource_version}
        given = {name: value for name, value in preconditions.items() if value}
        if given:
            options["preconditions"] = given
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        answer = await self._session.request(
            "DELETE", path(resource, target.namespace, target.name), body=options
        )
        # A conflict means that a precondition failed: another object has the name, or
        # this one has changed.
        if answer.status in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
            return False
        self._read(answer, f"delete {target}")
        return True

    async def proxied_status(
        self, service: ObjectId, port: int, path: str
    ) -> int | None:
        """Return the status code with which a Service answers a GET request, or None."""
        answer = await self._session.request(
            "GET",
            f"/api/v1/namespaces/{quote(service.namespace)}/services/"
            f"{quote(service.name)}:{port}/proxy{quote(path)}",
        )
        try:
            from_server = read_object(answer.body).get("kind") == "Status"
        except ValueError:
            from_server = False
        return None if from_server else answer.status

    async def _page(self, where: str, accept: str, etag: str) -> DiscoveryResponse:
        headers = {"Accept": accept}
        if etag:
            headers["If-None-Match"] = etag
        answer = await self._session.request_in_turn("GET", where, headers=headers)
        if answer.status == HTTPStatus.NOT_MODIFIED:
            return DiscoveryResponse(None, etag)
        return DiscoveryResponse(
            self._read(answer, f"read {where}"), answer.headers.get("ETag", "")
        )

    async def _discover(self) -> None:
        # One discovery runs at a time. Callers that wait for it hold a slot, so that
        # only a few wait for a server that hangs.
        async with self._session.turn():
            try:
                await self._discovery.refresh()
            except (AttributeError, KeyError, TypeError) as error:
                raise self._malformed(
                    "read the served kinds", "it is not a discovery document"
                ) from error
        self._discovered_at = asyncio.get_running_loop().time()

    async def _resource(self, kind: GroupVersionKind) -> ApiResource | None:
        found = (await self.resources()).get(kind)
        age = asyncio.get_running_loop().time() - self._discovered_at
        if found is None and age > _DISCOVERY_SECONDS_MIN:
            found = (await self.resources(refresh=True)).get(kind)
        return found

    async def _needed(self, kind: GroupVersionKind) -> ApiResource:
        found = await self._resource(kind)
        if found is None:
            raise self._not_served(kind)
        return found

    def _not_served(self, kind: GroupVersionKind) -> StackMissing:
        return StackMissing(
            f"cluster {self._cluster} does not serve {kind.kind} of {kind.api_version}; "
            "it is retried until the serving stack is installed"
        )

    def _check_watch(
        self,
        status: int,
        body: bytes | Mapping[str, Any],
        headers: Mapping[str, str],
        selection: Selection,
    ) -> None:
        if status == HTTPStatus.GONE:
            raise WatchExpired
        if status == HTTPStatus.NOT_FOUND:
            raise self._not_served(selection.kind)
        raise failure(
            status,
            body,
            headers,
            self._cluster,
            f"watch {selection.kind}",
            identity=self._session.identity,
        )

    def _read(self, answer: Response, doing: str) -> Json:
        if not HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            raise failure(
                answer.status,
                answer.body,
                answer.headers,
                self._cluster,
                doing,
                identity=self._session.identity,
            )
        try:
            return read_object(answer.body)
        except ValueError as error:
            raise unreachable(error, self._cluster, self._session.server) from error

    def _malformed(self, doing: str, problem: str) -> ServerError:
        return ServerError(
            f"cluster {self._cluster}: {doing}: the response was rejected: {problem}; "
            f"check which server responds at {self._session.server}"
        )


def _query(selection: Selection) -> dict[str, str]:
    pairs = {"labelSelector": selection.labels, "fieldSelector": selection.fields}
    return {name: value for name, value in pairs.items() if value}


def _is_object(found: object, needed: tuple[str, ...] = ("name",)) -> TypeGuard[Json]:
    """Return whether a value has metadata with the fields that every reader relies on."""
    metadata = found.get("metadata") if isinstance(found, dict) else None
    if not isinstance(metadata, dict):
        return False
    for name in ("name", "namespace", "resourceVersion"):
        text = metadata.get(name, "")
        if not isinstance(text, str) or len(text) > _NAME_MAX:
            return False
    return all(name in metadata for name in needed)


def _is_list(items: object, metadata: object) -> bool:
    return (
        isinstance(items, list)
        and all(map(_is_object, items))
        and isinstance(metadata, dict)
    )


def _typed(item: Json, kind: GroupVersionKind) -> Json:
    # Items of a list, and PartialObjectMetadata, do not contain the kind.
    item["apiVersion"], item["kind"] = kind
    return item
