"""Objects through the front: the interface of `fleet_client/objects.py` over its API.

The front responds to a write after the workflow has applied it, and does not show
request ids. So this module adds the ids of this program's completed requests to each
object. Several fronts may share one address. A front that did not handle a write sees
it a moment later. Until then, this module raises `NoAnswer` instead of returning its
outdated object.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

from api_types.labels import DEPLOYMENT
from api_types.resources.kinds import KindInfo
from api_types.resources.status import Condition
from fleet_client.configuration import needs_temporal
from fleet_client.errors import (
    AlreadyExists,
    CommandFailed,
    NoAnswer,
    NotFound,
    Unreachable,
)
from fleet_client.refs.seen import Execution, ListedObject
from fleet_client.refs.targets import Target
from fleet_client.refs.tree import Tree, at_path, conditions, deleting
from fleet_client.through_front.access import FrontAccess
from fleet_client.through_front.answers import (
    next_page,
    read_items,
    read_object,
    read_revisions,
    unusable,
)
from fleet_client.through_front.failures import failure_of
from fleet_client.through_front.paths import beside_path, collection_path, object_path
from fleet_client.through_front.requests import (
    FrontRequests,
    FrontResponse,
    http_client,
)
from workflows.entity.conditions import waiting_for

if TYPE_CHECKING:  # slow to import
    from api_types.messages.entities import Delete, RetryNow, Scale, SetSpec

_PAGE = 500
# Longer lists are rejected. This is 250 times the number of objects that a front is
# tested with.
_PAGES_MAX = 1_000
# Enough for any list of objects.
_LIST_BYTES_MAX = 256 * 1024 * 1024
_LIST_SECONDS = 300.0
# How long it may take until a front sees another front's write.
_LEARNS_SECONDS = 10.0
_JSON, _MERGE = "application/json", "application/merge-patch+json"
_DRY = {"dryRun": "All"}
_MANIFEST_OF_USER = ("labels", "annotations")
# A time in microseconds has 16 digits.
_VERSION_DIGITS_MAX = 20


@dataclass
class _Written:
    """The last write of this program to an object, and the ids of all its requests.

    `changing` has the ids of the requests that changed the object. `ends` means that
    the write is a deletion of an object that every front knew before.
    """

    uid: str = ""
    version: int = 0
    at: float = 0.0
    ends: bool = False
    applied: list[str] = field(default_factory=list)
    changing: list[str] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """Whether a front may not know of the write yet."""
        return time.monotonic() - self.at < _LEARNS_SECONDS


class FrontObjects:
    """The objects that a user may see and change at one front; see `FleetObjects`."""

    def __init__(self, requests: FrontRequests) -> None:
        """Use `requests`, which have the token and TLS of the user."""
        self._requests = requests
        self._written: dict[Target, _Written] = {}

    def temporal(self, why: str) -> NoReturn:
        """Raise `Refused`: there is no connection to Temporal."""
        raise needs_temporal(why, self._requests.url)

    async def front_version(self) -> str:
        """Return the version of the front, or "unknown" for one that does not say it.

        Raise `Unreachable`, or `CommandFailed` if it refuses the request.
        """
        answer = await self._requests.ask("GET", "/version")
        if not answer.is_success:
            raise failure_of(answer, self._requests.url, "the version", None)
        found = at_path(answer.body, ".modelplaneVersion")
        return found if isinstance(found, str) else "unknown"

    async def describe(self, target: Target) -> Tree:
        """Return an object, with the request ids of this program."""
        written = self._written.get(target, _Written())
        answer = await self._ask("GET", target)
        fresh = written.is_fresh
        if not answer.is_success:
            failure = self._failure(answer, target)
            should_exist = fresh and written.version and not written.ends
            if should_exist and isinstance(failure, NotFound):
                raise self._behind(target)
            raise failure
        tree = read_object(answer.body, target)
        if (
            fresh
            and written.uid == at_path(tree, ".metadata.uid")
            and _version(tree) < written.version
        ):
            raise self._behind(target)
        return tree | {
            "appliedRequestIds": list(written.applied),
            "changingRequestIds": list(written.changing),
        }

    async def find(self, target: Target) -> Tree | None:
        try:
            return await self.describe(target)
        except NotFound:
            return None

    async def exists(self, target: Target) -> bool:
        return await self.find(target) is not None

    async def last_state(self, target: Target) -> Tree | None:
        return await self.find(target)

    async def list(
        self, kind: KindInfo, namespace: str | None, *, deployment: str = ""
    ) -> Sequence[ListedObject]:
        """Return all objects of a kind, reading the list in parts."""
        namespace = kind.home or namespace
        scope = namespace if kind.namespaced else None
        title = f"{kind.plural} in namespace {scope}" if scope else kind.plural
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                found = await self._parts(kind, scope, deployment, title)
        except TimeoutError as error:
            raise Unreachable(
                f"the front at {self._requests.url} has not listed all {title} "
                f"in {_LIST_SECONDS:g} s",
                next_step="run the command again later, or name the objects",
            ) from error
        return [
            ListedObject(target, found[target])
            for target in sorted(found, key=lambda one: (one.namespace, one.name))
        ]

    async def _parts(
        self, kind: KindInfo, scope: str | None, deployment: str, title: str
    ) -> dict[Target, Tree]:
        path = collection_path(kind, scope)
        parameters = {"limit": str(_PAGE)}
        if deployment:
            parameters["labelSelector"] = f"{DEPLOYMENT}={deployment}"
        found: dict[Target, Tree] = {}
        size = 0
        for _ in range(_PAGES_MAX):
            answer = await self._requests.ask("GET", path, parameters)
            if not answer.is_success:
                raise failure_of(answer, self._requests.url, title, None)
            before, size = len(found), size + answer.size
            found |= read_items(answer.body, kind, scope)
            token = next_page(answer.body)
            if not token:
                return found
            if len(found) == before:
                raise unusable(
                    title,
                    ["a part of it repeats the parts before"],
                )
            if size > _LIST_BYTES_MAX:
                raise unusable(title, [f"it goes on after {_LIST_BYTES_MAX >> 20} MiB"])
            parameters["continue"] = token
        raise unusable(title, [f"it goes on after {_PAGES_MAX} parts"])

    async def waiting(self, target: Target) -> Sequence[str]:
        """Return the conditions that block the object, in the words of its workflow."""
        tree = await self.describe(target)
        return waiting_for(
            [Condition.model_validate(row) for row in conditions(tree)],
            deleting=deleting(tree),
        )

    async def execution(self, target: Target) -> Execution:
        """Return an empty execution: the user has no access to the Temporal UI."""
        del target
        return Execution()

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        """Create an object, or replace it with the manifest of a user."""
        await self._set_spec(target, message, dry=False)

    async def check_spec(self, target: Target, message: SetSpec) -> None:
        """Make the front check the request, including the user's rights."""
        await self._set_spec(target, message, dry=True)

    async def _set_spec(self, target: Target, message: SetSpec, *, dry: bool) -> None:
        before = await self.find(target)
        try:
            await self._put(target, message, before, dry=dry)
        except (NotFound, AlreadyExists):
            # The object was created or deleted in the meantime.
            await self._put(target, message, await self.find(target), dry=dry)

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        """Replace an object that was read, unless it has changed since."""
        metadata = dict(message.manifest["metadata"])
        for key in ("uid", "resourceVersion"):
            if read["metadata"].get(key):
                metadata[key] = read["metadata"][key]
        manifest = {**message.manifest, "metadata": metadata}
        await self._put(target, message.model_copy(update={"manifest": manifest}), read)

    async def scale(self, target: Target, message: Scale) -> None:
        """Set the replica count with the scale subresource."""
        content = {"spec": {"replicas": message.replicas}}
        answer = await self._ask(
            "PATCH", target, "scale", content=content, content_type=_MERGE
        )
        if not answer.is_success:
            raise self._failure(answer, target)
        self._note(target, message.request_id, answer.body)

    async def retry(self, target: Target, message: RetryNow) -> None:
        answer = await self._requests.ask(
            "POST", beside_path(target, "retry"), content=b"{}", content_type=_JSON
        )
        if not answer.is_success:
            raise self._failure(answer, target)
        self._note(target, message.request_id, answer.body)

    async def revisions(self, target: Target) -> Sequence[Tree]:
        answer = await self._requests.ask("GET", beside_path(target, "revisions"))
        if not answer.is_success:
            raise self._failure(answer, target)
        return read_revisions(answer.body, target)

    async def delete(self, target: Target, message: Delete) -> None:
        """Request deletion. The object may be gone at once."""
        if message.evict or message.purge_crds:
            self.temporal("the front accepts no options for the deletion of a cluster")
        options = {"preconditions": {"uid": message.uid}} if message.uid else {}
        before = self._written.get(target, _Written())
        answer = await self._ask("DELETE", target, content=options, content_type=_JSON)
        if not answer.is_success:
            raise self._failure(answer, target)
        # The answer about an object that is gone is a Status, and no front may show the
        # object any more.
        body = answer.body
        is_object = isinstance(body, dict) and body.get("kind") == target.kind.kind
        self._note(
            target,
            message.request_id,
            body if is_object else None,
            ends=not (before.version and before.is_fresh),
        )

    async def _put(
        self,
        target: Target,
        message: SetSpec,
        before: Tree | None,
        *,
        dry: bool = False,
    ) -> None:
        parameters = dict(_DRY) if dry else {}
        if message.reason:
            parameters["reason"] = message.reason
        if before is None:
            path = collection_path(
                target.kind, target.namespace if target.kind.namespaced else None
            )
            content = json.dumps(message.manifest).encode()
            answer = await self._requests.ask(
                "POST", path, parameters, content=content, content_type=_JSON
            )
        else:
            answer = await self._ask(
                "PUT",
                target,
                content=message.manifest,
                content_type=_JSON,
                parameters=parameters,
            )
        if not answer.is_success:
            raise self._failure(answer, target)
        after = read_object(answer.body, target)
        if not dry:
            self._note(
                target,
                message.request_id,
                after,
                changed=before is None or _manifest(before) != _manifest(after),
            )

    async def _ask(
        self,
        method: str,
        target: Target,
        subresource: str = "",
        *,
        content: Any = None,
        content_type: str = "",
        parameters: dict[str, str] | None = None,
    ) -> FrontResponse:
        sent = None if content is None else json.dumps(content).encode()
        return await self._requests.ask(
            method,
            object_path(target, subresource),
            parameters,
            content=sent,
            content_type=content_type,
        )

    def _note(
        self,
        target: Target,
        request_id: str,
        tree: Any,
        *,
        changed: bool = False,
        ends: bool = False,
    ) -> None:
        """Record an applied request, and the object in the answer if there is one."""
        written = self._written.setdefault(target, _Written())
        written.applied.append(request_id)
        if changed:
            written.changing.append(request_id)
        written.ends = ends
        uid = at_path(tree, ".metadata.uid")
        written.uid, written.version, written.at = (
            uid if isinstance(uid, str) else "",
            _version(tree),
            time.monotonic(),
        )

    def _failure(self, answer: FrontResponse, target: Target) -> CommandFailed:
        return failure_of(answer, self._requests.url, target.title, target)

    def _behind(self, target: Target) -> NoAnswer:
        return NoAnswer(
            f"the front at {self._requests.url} does not show the change of {target.title} yet",
            next_step=f"check in a moment with `modelplane get {target.command}`",
        )


def _version(tree: Any) -> int:
    text = str(at_path(tree, ".metadata.resourceVersion") or "")
    is_number = text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS_MAX
    return int(text) if is_number else 0


def _manifest(tree: Tree) -> Any:
    metadata = tree["metadata"]
    return tree.get("spec"), [metadata.get(key) or {} for key in _MANIFEST_OF_USER]


@asynccontextmanager
async def front_objects(access: FrontAccess) -> AsyncIterator[FrontObjects]:
    """Connect to the front while a command runs."""
    async with http_client(access) as http:
        yield FrontObjects(FrontRequests(http, access.url))
