"""An API server in memory, and the clients through which the product's activities reach it."""

import asyncio
import bisect
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from activities.clients.kubernetes.throttle import RequestLimit, ServerUnresponsive
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
from activities.cluster_objects.ownership import owner_of
from api_types.errors import (
    ClusterUnreachable,
    CredentialsInvalid,
    InvalidInput,
    ModelplaneError,
    PermissionDenied,
    ServerError,
    StackMissing,
    Throttled,
)
from api_types.labels import FIELD_MANAGER, MANAGED_BY, POOL, RENDER_HASH
from tests.simulation import kinds
from tests.simulation.collector import Collector
from tests.simulation.fields import copied
from tests.simulation.kubelet import Kubelets
from tests.simulation.network_controllers import NetworkControllers
from tests.simulation.reconciling import ClusterBehaviour, Hub, key_above, key_of
from tests.simulation.storage_controllers import StorageControllers
from tests.simulation.store import (
    ObjectKey,
    ObjectStore,
    RequestRefused,
    StoredChange,
    has_fields,
    in_version,
    matches,
)
from tests.simulation.workload_controllers import WorkloadControllers

ResultT = TypeVar("ResultT")
Mood = Literal["answers", "silent", "refuses", "throttles", "fails"]
Strikes = Callable[[str, str], bool]
Pause = Callable[[float, float], Awaitable[None]]

_LATENCY = (0.002, 0.06)
_READ_SECONDS = 30.0
_WATCH_LASTS = (900.0, 1800.0)
_WATCH_DEAD_SECONDS = 330.0
_SILENT_SECONDS = 5.0
_REQUESTS_AT_ONCE, _APPLIES_AT_ONCE = 24, 32
_APPLY_ATTEMPTS = 4
_DISCOVERY_SECONDS = 5.0
_REVIEW = "SelfSubjectAccessReview"


def no_faults(_name: str, _subject: str) -> bool:
    return False


@dataclass
class ApiServer:
    """A cluster: its objects, its controllers, and how its API server answers at present.

    `strikes` draws faults of single requests, `pause` lets the time of a part of one pass. `tokens`
    are the credentials that it accepts; an empty set accepts all.
    """

    name: str
    draw: random.Random
    strikes: Strikes = no_faults
    pause: Pause | None = None
    behaviour: ClusterBehaviour = field(default_factory=ClusterBehaviour)
    version: str = "v1.35.4"
    mood: Mood = "answers"
    tokens: set[str] = field(default_factory=set)
    stalled_until: float = 0.0
    cuts: int = 0

    def __post_init__(self) -> None:
        self.store = ObjectStore(self.name, self.draw)
        self.served: dict[GroupVersionKind, ApiResource] = kinds.resources(kinds.CORE)
        self.shrunk: set[str] = set()
        hub = Hub(self.store, self.draw, self.behaviour)
        self.hub = hub
        self.collector = Collector(hub, self._define)
        self.kubelets = Kubelets(hub)
        self.workloads = WorkloadControllers(hub)
        self.network = NetworkControllers(hub)
        self.storage = StorageControllers(hub)
        self._watches: dict[tuple[str, str], list[asyncio.Event]] = {}
        # The original replicas of workloads that were scaled up by hand, and the uids
        # of their owners.
        self._scaled: dict[ObjectKey, tuple[int, str]] = {}
        self.store.listeners.append(self._tell)
        for name in ("default", "kube-system"):
            self._create("v1", "Namespace", name)
        spec = {"clusterIPs": ["10.96.0.1"], "ports": [{"port": 443, "targetPort": 6443}]}
        self._create("v1", "Service", "kubernetes", "default", spec=spec)

    def stop(self) -> None:
        self.mood = "refuses"
        self.cut()
        self.hub.stop()

    async def wait(self, low: float = _LATENCY[0], high: float = _LATENCY[1]) -> None:
        """Wait for a part of a request. Raises the error of `pause` for a dead caller."""
        if self.pause is not None:
            await self.pause(low, high)
        else:
            await asyncio.sleep(self.draw.uniform(low, high))

    # Acts of an administrator

    def serve(self, *served: GroupVersionKind) -> None:
        """Install definitions, as an administrator prepares a cluster."""
        for kind in served:
            self.store.create(kinds.definition_of(kind), "kubectl")
            self.served |= kinds.resources([kind])

    def create(self, manifest: Json) -> Json | None:
        """Create an object as an administrator."""
        return self.store.create(manifest, "kubectl")

    def set_nodes(self, pool: str, count: int, devices: int = 8) -> None:
        """Set the number of nodes of a pool; new ones have these devices, the last go first."""
        there = self.nodes_of(pool)
        for name in there[count:]:
            self.remove_node(name)
        numbers = (
            number for number in range(len(there) + count) if f"{pool}-{number}" not in there
        )
        for _ in range(count - len(there)):
            self.add_node(f"{pool}-{next(numbers)}", pool, devices)

    def add_node(self, name: str, pool: str, devices: int) -> None:
        """Add a node of a pool (empty: none of ours) with devices that a driver publishes."""
        marks = {POOL: pool} if pool else {}
        ready = {"conditions": [{"type": "Ready", "status": "True"}], "devices": devices}
        self.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": marks},
                "spec": {},
                "status": ready,
            }
        )
        if devices:
            published = {
                "driver": "gpu.nvidia.com",
                "nodeName": name,
                "pool": {"name": name, "generation": 1},
                "devices": [{"name": f"gpu-{number}"} for number in range(devices)],
            }
            self._create("resource.k8s.io/v1", "ResourceSlice", f"{name}-gpu", spec=published)

    def remove_node(self, name: str) -> None:
        """Remove a node together with its machine."""
        node = self.store.get(ObjectKey("", "Node", "", name))
        if node is not None:
            self.shrunk.add((node["metadata"].get("labels") or {}).get(POOL, ""))
        self.store.delete(ObjectKey("", "Node", "", name))
        self.store.delete(ObjectKey("resource.k8s.io", "ResourceSlice", "", f"{name}-gpu"))

    def nodes_of(self, pool: str) -> list[str]:
        """Name the nodes of a pool."""
        found = self.store.find("", "Node")
        return [
            each["metadata"]["name"]
            for each in found
            if (each["metadata"].get("labels") or {}).get(POOL, "") == pool
        ]

    def pools(self) -> list[str]:
        """Name the pools that have nodes."""
        found = (
            (each["metadata"].get("labels") or {}).get(POOL) for each in self.store.find("", "Node")
        )
        return list(dict.fromkeys(filter(None, found)))

    def set_node_ready(self, node: str, *, ready: bool) -> None:
        """Mark a node as lost, or as ready again."""
        self.store.set_status(
            ObjectKey("", "Node", "", node), conditions=[{"type": "Ready", "status": str(ready)}]
        )

    def workload_of(self, pod: Json) -> Json | None:
        """Return the ModelReplica object that created a pod; None if it was deleted."""
        item: Json | None = pod
        while item is not None and not owner_of(item).uid:
            references = item["metadata"].get("ownerReferences", ())
            namespace = item["metadata"]["namespace"]
            item = self.store.get(key_above(references[0], namespace)) if references else None
        return item

    def drift(self, item: Json) -> str:
        """Delete or edit an object by hand; describe the change."""
        key = key_of(item)
        how = self.draw.choice(("delete", "edit", "edit", "label"))
        if how == "delete" or "spec" not in item:
            self.store.delete(key)
            return f"delete {key.kind} {key.namespace}/{key.name}"

        def change(content: Json) -> Json:
            metadata = content["metadata"]
            if how == "label":
                marks = {
                    name: value
                    for name, value in metadata.get("labels", {}).items()
                    if name != MANAGED_BY
                }
                return {**content, "metadata": {**metadata, "labels": marks}}
            if "replicas" in content.get("spec", {}):
                return self._scaled_up(key, content)
            notes = {**metadata.get("annotations", {}), RENDER_HASH: "by hand"}
            return {**content, "metadata": {**metadata, "annotations": notes}}

        self.store.edit(key, change)
        return f"{how} {key.kind} {key.namespace}/{key.name}"

    def scale_up(self, key: ObjectKey) -> None:
        """Scale a workload up by hand."""
        self.store.edit(key, lambda content: self._scaled_up(key, content))

    def _scaled_up(self, key: ObjectKey, content: Json) -> Json:
        count = content["spec"]["replicas"]
        self._scaled.setdefault(key, (count, owner_of(content).uid))
        return {**content, "spec": {**content["spec"], "replicas": count + 1}}

    def owners_of_scaled(self) -> Iterator[str]:
        """Yield the owners of workloads that somebody scaled up by hand.

        A workload that is scaled back is named once more.
        """
        for key, (count, owner) in list(self._scaled.items()):
            item = self.store.get(key)
            if item is None or item["spec"]["replicas"] <= count:
                del self._scaled[key]
            yield owner

    # How it answers

    def cut(self) -> None:
        """End all connections."""
        self.cuts += 1
        for waiting in self._watches.values():
            for each in waiting:
                each.set()

    def restart(self) -> None:
        """Restart the API server: all watches end, and their versions have expired."""
        self.store.compact()
        self.cut()

    def watching(self, kind: GroupVersionKind) -> "asyncio.Event":
        """Return an event that is set when an object of a kind changes."""
        event = asyncio.Event()
        self._watches.setdefault((kind.group, kind.kind), []).append(event)
        return event

    def unwatch(self, kind: GroupVersionKind, event: asyncio.Event) -> None:
        """Forget an event."""
        self._watches[kind.group, kind.kind].remove(event)

    def _tell(self, change: StoredChange) -> None:
        for event in self._watches.get((change.key.group, change.key.kind), ()):
            event.set()

    def _define(self, definition: Json, served: bool) -> None:
        if served:
            found = kinds.defined_by(definition)
            self.served |= kinds.resources(found)
            if any(kind.kind == "Gateway" for kind in found):
                self.network.gateway_started()
            return
        for kind in kinds.by_definition(self.served, definition):
            del self.served[kind]
        self.cut()

    def _create(
        self, api_version: str, kind: str, name: str, namespace: str = "", **content: Any
    ) -> None:
        metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
        self.create({"apiVersion": api_version, "kind": kind, "metadata": metadata, **content})


class _Answering(AbstractAsyncContextManager[None]):
    """Waits for a turn. Raises ClusterUnreachable if the server has fallen silent."""

    def __init__(self, cluster: str, turn: AbstractAsyncContextManager[None]) -> None:
        self._cluster, self._turn = cluster, turn

    async def __aenter__(self) -> None:
        try:
            await self._turn.__aenter__()
        except ServerUnresponsive:
            raise ClusterUnreachable(
                f"cluster {self._cluster}: it has not responded to any request for more than 5 s"
            ) from None

    async def __aexit__(self, *_: object) -> None:
        await self._turn.__aexit__(None, None, None)


class ClusterClient(ClusterApi):
    """One cluster, as one worker reaches it under one credential."""

    def __init__(self, server: ApiServer, token: str = "") -> None:
        self.server = server
        self._token = token
        self._limit = RequestLimit(_REQUESTS_AT_ONCE, _SILENT_SECONDS)
        self._applies = asyncio.Semaphore(_APPLIES_AT_ONCE)
        self._known: dict[GroupVersionKind, ApiResource] = {}
        self._discovered_at = float("-inf")

    def applying(self) -> AbstractAsyncContextManager[None]:
        """See `ClusterApi`."""
        return _Answering(self.server.name, self._limit.waiting_for(self._applies))

    async def version(self) -> str:
        """See `ClusterApi`."""
        return await self._call("read the server's version", lambda: self.server.version)

    async def resources(self, *, refresh: bool = False) -> Mapping[GroupVersionKind, ApiResource]:
        """See `ClusterApi`."""
        if refresh or not self._known:
            self._known = await self._call(
                "read the served kinds", lambda: dict(self.server.served)
            )
            self._discovered_at = asyncio.get_running_loop().time()
        return self._known

    async def get(self, target: ObjectId) -> Json | None:
        """See `ClusterApi`."""
        if await self._resource(target.kind) is None:
            return None
        key = ObjectKey.of(target)

        def read() -> Json | None:
            found = self.server.store.get(key) if target.kind in self.server.served else None
            return None if found is None else _apart(in_version(found, target.kind))

        return await self._call(f"read {target}", read)

    async def list(self, selection: Selection, keep: Keep = whole) -> ObjectList:
        """See `ClusterApi`."""
        await self._needed(selection.kind)

        def read() -> ObjectList:
            self._check_served(selection.kind)
            store = self.server.store
            items = [
                keep(_shown(item, selection))
                for item in store.find(
                    selection.kind.group, selection.kind.kind, selection.namespace
                )
                if _selected(item, selection)
            ]
            return ObjectList(items, str(store.version))

        return await self._call(f"list {selection.kind}", read)

    async def watch(self, selection: Selection, resource_version: str) -> AsyncIterator[Event]:
        """See `ClusterApi`."""
        await self._needed(selection.kind)
        server, store, clock = self.server, self.server.store, asyncio.get_running_loop().time
        version = int(resource_version)
        await self._call(f"watch {selection.kind}", lambda: self._check_served(selection.kind))
        changed, cuts, started = server.watching(selection.kind), server.cuts, clock()
        ends = started + server.draw.uniform(*_WATCH_LASTS)
        try:
            while True:
                if store.has_expired(selection.kind.group, selection.kind.kind, version):
                    raise WatchExpired
                changed.clear()
                for change in _since(store.changes, version):
                    version = change.version
                    event = _event(change, selection)
                    if event is not None:
                        yield event
                if server.cuts != cuts:
                    raise ClusterUnreachable(
                        f"cluster {server.name}: watch {selection.kind}: the connection was closed"
                    )
                if clock() >= ends:
                    yield Event(
                        "BOOKMARK",
                        {"metadata": {"resourceVersion": str(max(version, store.version))}},
                    )
                    return
                await self._until_changed(changed, ends, started)
        finally:
            server.unwatch(selection.kind, changed)

    async def _until_changed(self, changed: asyncio.Event, ends: float, started: float) -> None:
        server, clock = self.server, asyncio.get_running_loop().time
        try:
            async with asyncio.timeout_at(ends):
                await changed.wait()
        except TimeoutError:
            return
        await server.wait()
        while clock() < server.stalled_until or server.mood == "silent":
            # No event arrives, but the connection looks healthy.
            if clock() - started >= _WATCH_DEAD_SECONDS:
                raise ClusterUnreachable(f"cluster {server.name}: watch: no response")
            await asyncio.sleep(min(10.0, max(0.5, server.stalled_until - clock())))

    async def apply(self, manifest: Json, *, dry_run: bool = False) -> Json:
        """See `ClusterApi`."""
        target = ObjectId.of(manifest)
        await self._needed(target.kind)

        def write() -> Json:
            self._check_served(target.kind)
            self._check_namespace(target)
            store = self.server.store
            stored = store.apply(copied(manifest), FIELD_MANAGER, dry_run=dry_run)
            return _apart(in_version(stored, target.kind))

        return await self._call(f"apply {target}", write, writes=not dry_run)

    async def create(self, manifest: Json) -> Json | None:
        """See `ClusterApi`."""
        if manifest["kind"] == _REVIEW:
            return await self._call(
                "review access", lambda: {**manifest, "status": {"allowed": True}}
            )
        target = ObjectId.of(manifest)
        await self._needed(target.kind)

        def write() -> Json | None:
            self._check_namespace(target)
            return _copied(self.server.store.create(copied(manifest), FIELD_MANAGER))

        return await self._call(f"create {target}", write, writes=True)

    async def replace(self, manifest: Json) -> Json | None:
        """See `ClusterApi`."""
        target = ObjectId.of(manifest)
        await self._needed(target.kind)
        return await self._call(
            f"replace {target}",
            lambda: _copied(self.server.store.replace(copied(manifest), FIELD_MANAGER)),
            writes=True,
        )

    async def proxied_status(self, service: ObjectId, port: int, path: str) -> int | None:
        """See `ClusterApi`. Nothing serves the Services of a simulated cluster."""
        del service, port, path
        return None

    async def delete(
        self,
        target: ObjectId,
        *,
        uid: str = "",
        resource_version: str = "",
        propagation: Propagation = "Foreground",
        grace_seconds: int | None = None,
    ) -> bool:
        """See `ClusterApi`."""
        if await self._resource(target.kind) is None:
            return False

        def write() -> bool:
            return self.server.store.delete(
                ObjectKey.of(target),
                uid=uid,
                resource_version=resource_version,
                propagation=propagation,
                grace_seconds=grace_seconds,
            )

        return await self._call(f"delete {target}", write, writes=True)

    # One request

    async def _call(
        self, doing: str, effect: Callable[[], ResultT], *, writes: bool = False
    ) -> ResultT:
        """Send a request. Its effect happens halfway through its duration."""
        server = self.server
        async with _Answering(server.name, self._limit.turn()):
            where = f"cluster {server.name}: {doing}"
            await server.wait()
            await self._endure(where)
            if server.tokens and self._token not in server.tokens:
                self._limit.record_response()
                raise CredentialsInvalid(
                    f"{where}: the API server does not accept this credential (401); put a valid "
                    "kubeconfig into the secret store"
                )
            if server.strikes("cluster.error", where):
                self._limit.record_response()
                raise server.draw.choice(
                    (
                        ServerError(f"{where}: etcdserver: request timed out (500)"),
                        Throttled(f"{where}: (429)"),
                    )
                )
            try:
                result = effect()
            except RequestRefused as refused:
                self._limit.record_response()
                raise _error(where, refused) from None
            if writes and server.strikes("cluster.lost", where):
                raise ClusterUnreachable(f"{where}: no response: the connection was closed")
            if writes:
                # A worker that dies here leaves the effect behind.
                await server.wait()
            self._limit.record_response()
            return result

    async def _endure(self, where: str) -> None:
        server = self.server
        if server.mood == "silent" or server.strikes("cluster.stall", where):
            await server.wait(_READ_SECONDS, _READ_SECONDS)
            raise ClusterUnreachable(f"{where}: no response")
        if server.mood == "refuses":
            raise ClusterUnreachable(f"{where}: connection refused")
        if server.mood in ("throttles", "fails"):
            self._limit.record_response()
            raise (
                Throttled(f"{where}: (429)")
                if server.mood == "throttles"
                else ServerError(f"{where}: internal error (500)")
            )

    async def _resource(self, kind: GroupVersionKind) -> ApiResource | None:
        found = (await self.resources()).get(kind)
        if (
            found is None
            and asyncio.get_running_loop().time() - self._discovered_at > _DISCOVERY_SECONDS
        ):
            found = (await self.resources(refresh=True)).get(kind)
        return found

    async def _needed(self, kind: GroupVersionKind) -> ApiResource:
        found = await self._resource(kind)
        if found is None:
            raise self._not_served(kind)
        return found

    def _check_served(self, kind: GroupVersionKind) -> None:
        if kind not in self.server.served:
            raise self._not_served(kind)

    def _not_served(self, kind: GroupVersionKind) -> StackMissing:
        return StackMissing(
            f"cluster {self.server.name} does not serve {kind.kind} of {kind.api_version}"
        )

    def _check_namespace(self, target: ObjectId) -> None:
        if not target.namespace or self.server.store.get(ObjectKey.of(target)) is not None:
            return
        found = self.server.store.get(ObjectKey("", "Namespace", "", target.namespace))
        if found is None:
            raise ServerError(
                f"cluster {self.server.name}: {target}: the namespace is gone; it is created again "
                "at the next attempt"
            )
        if found["metadata"].get("deletionTimestamp"):
            raise ServerError(
                f"cluster {self.server.name}: {target}: the namespace is being deleted and can be "
                "used again when it is gone"
            )


def _error(where: str, refused: RequestRefused) -> ModelplaneError:
    text = f"{where}: {refused.text} ({refused.status})"
    if refused.status == 403:
        return PermissionDenied(text)
    return InvalidInput(text) if refused.status in (400, 422) else ServerError(text)


def _selected(item: Json, selection: Selection) -> bool:
    metadata = item["metadata"]
    return (
        (not selection.namespace or metadata.get("namespace") == selection.namespace)
        and (not selection.labels or matches(item, selection.labels))
        and (not selection.fields or has_fields(item, selection.fields))
    )


def _shown(item: Json, selection: Selection) -> Json:
    if selection.metadata_only:
        return {
            "apiVersion": selection.kind.api_version,
            "kind": item["kind"],
            "metadata": item["metadata"],
        }
    return in_version(item, selection.kind)


def _since(changes: Sequence[StoredChange], version: int) -> list[StoredChange]:
    return list(changes[bisect.bisect_right(changes, version, key=lambda each: each.version) :])


def _event(change: StoredChange, selection: Selection) -> Event | None:
    """Return the event of a change; an object that leaves the selection is deleted for a watch."""
    if (change.key.group, change.key.kind) != (selection.kind.group, selection.kind.kind):
        return None
    before = (
        change.before if change.before is not None and _selected(change.before, selection) else None
    )
    after = (
        change.after if change.after is not None and _selected(change.after, selection) else None
    )
    if after is not None:
        return Event("MODIFIED" if before is not None else "ADDED", _shown(after, selection))
    if before is None:
        return None
    metadata = {**before["metadata"], "resourceVersion": str(change.version)}
    return Event("DELETED", _shown({**before, "metadata": metadata}, selection))


def _apart(item: Json) -> Json:
    """Return a shallow copy of an object, whose contents nobody changes in place."""
    return {**item, "metadata": {**item["metadata"]}}


def _copied(item: Json | None) -> Json | None:
    return None if item is None else copied(item)
