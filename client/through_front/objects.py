"""Objects through the front: what `client/fleet/objects.py` promises, by requests to its Kubernetes API.

The front answers a write after the workflow has applied it, and shows no ids of requests. So they are added here to what is read: those of
requests that this program made and that were answered. Behind one address there may be several fronts, and one that did not carry out the
write learns of it a moment later; until then it counts as a front that cannot answer.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

from api_types.labels import DEPLOYMENT
from api_types.messages.entities import Delete, RetryNow, Scale, SetSpec
from api_types.resources.kinds import KindInfo
from api_types.resources.status import Condition
from client.configuration import needs_temporal
from client.errors import AlreadyExists, CommandFailed, NoAnswer, NotFound, Unreachable
from client.refs.targets import Target
from client.refs.tree import Tree, at_path, conditions, deleting
from client.temporal.control_plane import ListedObject
from client.temporal.execution import Execution
from client.through_front.access import FrontAccess
from client.through_front.answers import next_page, read_items, read_object, read_revisions, unusable
from client.through_front.failures import failure_of
from client.through_front.paths import beside_path, collection_path, object_path
from client.through_front.requests import Answer, FrontRequests, http_client
from workflows.entity.conditions import waiting_for

_PAGE = 500
# Of more objects than that of one kind no list is made: 250 times what a front is tested with.
_PAGES_MAX = 1_000
# A front that serves that many has answered long before.
_LIST_BYTES_MAX = 256 * 1024 * 1024
_LIST_SECONDS = 300.0
# How long a front may take to learn of what another one wrote.
_LEARNS_SECONDS = 10.0
_JSON, _MERGE = "application/json", "application/merge-patch+json"
_DRY = {"dryRun": "All"}
_MANIFEST_OF_USER = ("labels", "annotations")
# A time in microseconds has 16.
_VERSION_DIGITS_MAX = 20


@dataclass
class _Written:
    """The last write of this program to an object: its version, its time, and the ids of all requests.

    `changing`: ids of the requests that changed the object. `ends`: the write is a deletion, and each
    front knew the object before.
    """

    uid: str = ""
    version: int = 0
    at: float = 0.0
    ends: bool = False
    applied: list[str] = field(default_factory=list)
    changing: list[str] = field(default_factory=list)

    @property
    def is_fresh(self) -> bool:
        """Whether a front may not know of it yet."""
        return time.monotonic() - self.at < _LEARNS_SECONDS


class FrontObjects:
    """The objects that a user may see and change at one front. See `Objects` for what each method promises."""

    def __init__(self, requests: FrontRequests) -> None:
        """`requests`: with the token and TLS of the user."""
        self._requests = requests
        self._written: dict[Target, _Written] = {}

    def temporal(self, why: str) -> NoReturn:
        """Raise `Refused`: Temporal is not reached from here."""
        raise needs_temporal(why, self._requests.url)

    async def describe(self, target: Target) -> Tree:
        """Give an object, with the ids of the requests of this program."""
        written = self._written.get(target, _Written())
        answer = await self._ask("GET", target)
        fresh = written.is_fresh
        if not answer.is_success:
            failure = self._failure(answer, target)
            unknown = fresh and written.version and not written.ends
            raise self._behind(target) if unknown and isinstance(failure, NotFound) else failure
        tree = read_object(answer.body, target)
        if fresh and written.uid == at_path(tree, ".metadata.uid") and _version(tree) < written.version:
            raise self._behind(target)
        return tree | {"appliedRequestIds": list(written.applied), "changingRequestIds": list(written.changing)}

    async def find(self, target: Target) -> Tree | None:
        """Give an object, or None."""
        try:
            return await self.describe(target)
        except NotFound:
            return None

    async def exists(self, target: Target) -> bool:
        """Whether there is such an object."""
        return await self.find(target) is not None

    async def list(self, kind: KindInfo, namespace: str | None, *, deployment: str = "") -> Sequence[ListedObject]:
        """Give all objects of a kind, part by part."""
        namespace = kind.home or namespace
        title = f"{kind.plural} in namespace {namespace}" if kind.namespaced and namespace else kind.plural
        try:
            async with asyncio.timeout(_LIST_SECONDS):
                found = await self._parts(kind, namespace if kind.namespaced else None, deployment, title)
        except TimeoutError as error:
            raise Unreachable(
                f"the front at {self._requests.url} has not listed all {title} in {_LIST_SECONDS:g} s",
                next_step="run the command again later, or name the objects",
            ) from error
        return [ListedObject(target, found[target]) for target in sorted(found, key=lambda one: (one.namespace, one.name))]

    async def _parts(self, kind: KindInfo, scope: str | None, deployment: str, title: str) -> dict[Target, Tree]:
        path = collection_path(kind, scope)
        parameters = {"limit": str(_PAGE)} | ({"labelSelector": f"{DEPLOYMENT}={deployment}"} if deployment else {})
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
                raise unusable(title, ["a part of it has no object that is not in those before, and it goes on"])
            if size > _LIST_BYTES_MAX:
                raise unusable(title, [f"it goes on after {_LIST_BYTES_MAX >> 20} MiB"])
            parameters["continue"] = token
        raise unusable(title, [f"it goes on after {_PAGES_MAX} parts"])

    async def waiting(self, target: Target) -> Sequence[str]:
        """Give what the object waits for, as its workflow says it."""
        tree = await self.describe(target)
        return waiting_for([Condition.model_validate(row) for row in conditions(tree)], deleting=deleting(tree))

    async def execution(self, target: Target) -> Execution:
        """Give an empty one: whoever has no access to Temporal has none to its UI."""
        del target
        return Execution()

    async def set_spec(self, target: Target, message: SetSpec) -> None:
        """Create an object, or replace it by what a user wrote."""
        await self._set_spec(target, message, dry=False)

    async def check_spec(self, target: Target, message: SetSpec) -> None:
        """Have the front check what it would be sent, the rights of the user too."""
        await self._set_spec(target, message, dry=True)

    async def _set_spec(self, target: Target, message: SetSpec, *, dry: bool) -> None:
        before = await self.find(target)
        try:
            await self._put(target, message, before, dry=dry)
        except (NotFound, AlreadyExists):
            # It went or came since it was looked for.
            await self._put(target, message, await self.find(target), dry=dry)

    async def change_spec(self, target: Target, message: SetSpec, read: Tree) -> None:
        """Replace an object that was read, if it is still in that state."""
        same = {key: read["metadata"][key] for key in ("uid", "resourceVersion") if read["metadata"].get(key)}
        manifest = {**message.manifest, "metadata": {**message.manifest["metadata"], **same}}
        await self._put(target, message.model_copy(update={"manifest": manifest}), read)

    async def scale(self, target: Target, message: Scale) -> None:
        """Set the replica count by the subresource."""
        content = {"spec": {"replicas": message.replicas}}
        answer = await self._ask("PATCH", target, "scale", content=content, content_type=_MERGE)
        if not answer.is_success:
            raise self._failure(answer, target)
        self._note(target, message.request_id, answer.body)

    async def retry(self, target: Target, message: RetryNow) -> None:
        """Have failed steps of an object tried now."""
        answer = await self._requests.ask("POST", beside_path(target, "retry"), content=b"{}", content_type=_JSON)
        if not answer.is_success:
            raise self._failure(answer, target)
        self._note(target, message.request_id, answer.body)

    async def revisions(self, target: Target) -> Sequence[Tree]:
        """Give the earlier templates of a deployment."""
        answer = await self._requests.ask("GET", beside_path(target, "revisions"))
        if not answer.is_success:
            raise self._failure(answer, target)
        return read_revisions(answer.body, target)

    async def delete(self, target: Target, message: Delete) -> None:
        """Request deletion; the object may be gone at once."""
        if message.evict or message.purge_crds:
            self.temporal("the front takes no options for the deletion of a cluster")
        options = {"preconditions": {"uid": message.uid}} if message.uid else {}
        before = self._written.get(target, _Written())
        answer = await self._ask("DELETE", target, content=options, content_type=_JSON)
        if not answer.is_success:
            raise self._failure(answer, target)
        # Of one that is gone the answer is a Status, and no front may show it any more.
        tree = answer.body if isinstance(answer.body, dict) and answer.body.get("kind") == target.kind.kind else None
        self._note(target, message.request_id, tree, ends=not (before.version and before.is_fresh))

    async def _put(self, target: Target, message: SetSpec, before: Tree | None, *, dry: bool = False) -> None:
        parameters = (_DRY if dry else {}) | ({"reason": message.reason} if message.reason else {})
        if before is None:
            path = collection_path(target.kind, target.namespace if target.kind.namespaced else None)
            content = json.dumps(message.manifest).encode()
            answer = await self._requests.ask("POST", path, parameters, content=content, content_type=_JSON)
        else:
            answer = await self._ask("PUT", target, content=message.manifest, content_type=_JSON, parameters=parameters)
        if not answer.is_success:
            raise self._failure(answer, target)
        after = read_object(answer.body, target)
        if not dry:
            self._note(target, message.request_id, after, changed=before is None or _manifest(before) != _manifest(after))

    async def _ask(
        self,
        method: str,
        target: Target,
        subresource: str = "",
        *,
        content: Any = None,
        content_type: str = "",
        parameters: dict[str, str] | None = None,
    ) -> Answer:
        sent = None if content is None else json.dumps(content).encode()
        return await self._requests.ask(method, object_path(target, subresource), parameters, content=sent, content_type=content_type)

    def _note(self, target: Target, request_id: str, tree: Any, *, changed: bool = False, ends: bool = False) -> None:
        """Note a request that was applied, and the object that the front answered with; None if that is not known."""
        written = self._written.setdefault(target, _Written())
        written.applied.append(request_id)
        if changed:
            written.changing.append(request_id)
        written.ends = ends
        uid = at_path(tree, ".metadata.uid")
        written.uid, written.version, written.at = uid if isinstance(uid, str) else "", _version(tree), time.monotonic()

    def _failure(self, answer: Answer, target: Target) -> CommandFailed:
        return failure_of(answer, self._requests.url, target.title, target)

    def _behind(self, target: Target) -> NoAnswer:
        return NoAnswer(
            f"the front at {self._requests.url} does not show yet what was written to {target.title}",
            next_step=f"see it in a moment with `modelplane get {target.command}`",
        )


def _version(tree: Any) -> int:
    text = str(at_path(tree, ".metadata.resourceVersion") or "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _VERSION_DIGITS_MAX else 0


def _manifest(tree: Tree) -> Any:
    metadata = tree["metadata"]
    return tree.get("spec"), [metadata.get(key) or {} for key in _MANIFEST_OF_USER]


@asynccontextmanager
async def front_objects(access: FrontAccess) -> AsyncIterator[FrontObjects]:
    """Reach objects through the front while a command runs."""
    async with http_client(access) as http:
        yield FrontObjects(FrontRequests(http, access.url))
