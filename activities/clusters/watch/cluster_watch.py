"""The watch over one cluster: which objects are watched, what is kept of them, which owners are signalled."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, Resource, Selection
from activities.cluster_objects.ownership import Owner
from activities.clusters.capacity.objects import reduced
from activities.clusters.facts import discovered_facts
from activities.clusters.watch.capacity_tracker import CapacityTracker
from activities.clusters.watch.copy_index import CopyIndex, read_copy
from activities.clusters.watch.health import RETRY_SECONDS, UNREACHABLE_AFTER_SECONDS, Health, Resolve
from activities.clusters.watch.notifier import ChangeNotifier, Send
from activities.clusters.watch.observation_index import ObservationIndex
from activities.clusters.watch.reflector import Budget, Key, Reflector
from activities.observe.cache import read_job, read_job_pod, read_volume
from activities.observe.capacity import read_node, read_slice
from activities.observe.endpoints import read_endpoints
from activities.observe.gateway import observe_gateway
from activities.observe.objects import read_object
from activities.observe.pods import read_pod
from activities.render.objects.propagation import CONFIG_MAP, SECRET
from api_types import labels
from api_types.errors import ModelplaneError

_DISCOVERY_SECONDS = 60.0

FindAbsent = Callable[[frozenset[str]], Awaitable[Iterable[Owner]]]
_MANAGED = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
_OF_CACHES = f"{_MANAGED},{labels.CACHE}"
_GATEWAY_NAME = f"metadata.name={labels.GATEWAY_NAME}"
_CLUSTER_KINDS = frozenset({kinds.NODE.kind, kinds.GATEWAY.kind, kinds.RESOURCE_SLICE})
# Selectors have no "or". Leaders carry both labels, so the second selection takes followers only.
_PODS = (labels.SERVING, f"{kinds.LWS_NAME_LABEL},!{labels.SERVING}")


class Handler(NamedTuple):
    """How objects of a selection are reduced, and what gets a changed record (None: the object is gone)."""

    read: Callable[[Json], Any]
    on_change: Callable[[Key, Any], None]


def merged(handlers: Sequence[Handler]) -> Handler:
    """Combine several handlers of one selection."""
    if len(handlers) == 1:
        return handlers[0]

    def read(item: Json) -> tuple[Any, ...] | None:
        records = tuple(handler.read(item) for handler in handlers)
        return None if all(record is None for record in records) else records

    def on_change(key: Key, records: tuple[Any, ...] | None) -> None:
        for handler, record in zip(handlers, records or (None,) * len(handlers), strict=True):
            handler.on_change(key, record)

    return Handler(read, on_change)


class ClusterWatch:
    """One cluster, watched until cancelled.

    `cluster` is the entity that gets observations of the cluster itself. `find_absent` is called once, with the workflow ids that have
    objects here, for the owners that should have some and have none: what was deleted while no watch ran leaves no trace on the cluster.
    `settings` are given to the cluster's entity with the facts.
    """

    def __init__(
        self,
        cluster: Owner,
        resolve: Resolve,
        send: Send,
        find_absent: FindAbsent,
        unreachable_after_seconds: float = UNREACHABLE_AFTER_SECONDS,
        *,
        capacity: CapacityTracker | None = None,
        settings: Mapping[str, int | str] | None = None,
    ) -> None:
        self.copies = CopyIndex()
        self._capacity = capacity
        self._settings = settings or {}
        self._cluster = cluster
        self._find_absent = find_absent
        self._notifier = ChangeNotifier(send, self._is_blocked)
        self._index = ObservationIndex(cluster, self._notifier.enqueue, capacity)
        self._health = Health(resolve, self._recovered, unreachable_after_seconds)
        self._budget = Budget()
        self._client: ClusterApi | None = None
        self._reflectors: dict[Selection, Reflector[Any]] = {}
        self._running: dict[Selection, asyncio.Task[None]] = {}
        self._for_capacity: set[Selection] = set()
        self._connected = asyncio.Event()
        self._may_serve_others = asyncio.Event()
        self._all_listed = asyncio.Event()

    def counts(self) -> dict[str, int]:
        """Give counters for the heartbeat."""
        listings = sum(reflector.listings for reflector in self._reflectors.values())
        return {**self._index.counts(), "watches": len(self._reflectors), "listings": listings, "signals": self._notifier.sent}

    def owners(self) -> list[Owner]:
        """Give all owners of objects here."""
        return self._index.owners()

    async def run(self) -> None:
        """Watch until cancelled."""
        self._notifier.enqueue(self._cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notifier.run(self._index))
            tasks.create_task(self._stay_connected())
            tasks.create_task(self._follow_kinds(tasks))
            tasks.create_task(self._notify_absent())

    async def _notify_absent(self) -> None:
        await self._all_listed.wait()
        here = frozenset(owner.workflow_id for owner in self._index.owners())
        for owner in await self._find_absent(here):
            self._notifier.enqueue(owner)

    async def _stay_connected(self) -> None:
        while True:
            wait_seconds = await self._health.probe()
            self._put_health()
            await asyncio.sleep(wait_seconds)

    async def _follow_kinds(self, tasks: asyncio.TaskGroup) -> None:
        """Start a reflector for every kind that is served, now or later."""
        await self._connected.wait()
        while True:
            try:
                served = await self._current().resources(refresh=True)
                facts = discovered_facts(await self._current().version(), served, self._settings)
            except ModelplaneError:
                # The probe finds out why it does not respond, and reports it.
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._index.put_facts(facts)
            wanted = self._reflectors_for(served)
            await self._stop_others(wanted)
            for selection, make in wanted.items():
                task = self._running.get(selection)
                # A reflector ends when its kind is no longer served; it starts again when the kind is back.
                if task is None or task.done():
                    self._reflectors[selection] = make(selection)
                    self._running[selection] = tasks.create_task(self._reflectors[selection].run())
                    self._running[selection].add_done_callback(lambda _: self._may_serve_others.set())
            self._update_capacity()
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that arrives together with what it waits for.
            with suppress(TimeoutError):
                async with asyncio.timeout(_DISCOVERY_SECONDS):
                    await self._may_serve_others.wait()
                # A kind may be named and not be served, for as long as the server of its group is down.
                await asyncio.sleep(RETRY_SECONDS)
            self._may_serve_others.clear()

    async def _stop_others(self, wanted: Collection[Selection]) -> None:
        """Stop what watches a kind in a version that is not the best one any more: both would see the same objects."""
        for selection in [selection for selection in self._running if selection not in wanted]:
            task = self._running[selection]
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            self._reflectors.pop(selection).forget()
            del self._running[selection]

    def _reflectors_for(self, served: Mapping[Kind, Resource]) -> dict[Selection, Callable[[Selection], Reflector[Any]]]:
        """Give a function that makes the reflector of each selection; a selection that two handlers need is watched once."""
        handlers = {selection: [handler] for selection, handler in self._object_handlers(served).items()}
        for_capacity = self._capacity_handlers(served)
        self._for_capacity = set(for_capacity)
        for selection, handler in for_capacity.items():
            handlers.setdefault(selection, []).append(handler)
        return {selection: partial(self._reflector, merged(found)) for selection, found in handlers.items()}

    def _capacity_handlers(self, served: Mapping[Kind, Resource]) -> dict[Selection, Handler]:
        found: dict[Selection, Handler] = {}
        for api_version, name, selector in self._capacity.adapter.kinds if self._capacity else ():
            kind = kinds.resolve((api_version, name), served)
            if kind:
                found[Selection(kind, labels=selector)] = Handler(partial(reduced, name), partial(self._index.put_capacity, name))
        return found

    def _object_handlers(self, served: Mapping[Kind, Resource]) -> dict[Selection, Handler]:
        index = self._index
        handlers: dict[Selection, Handler] = {
            Selection(kind, labels=_MANAGED, metadata_only=kind == kinds.SECRET): Handler(read_object, partial(index.put_object, kind))
            for kind in kinds.replica_kinds(served)
        }
        handlers |= {Selection(kinds.POD, labels=selector): Handler(read_pod, index.put_pod) for selector in _PODS}
        for selection in [each for each in handlers if each.kind.kind in (SECRET, CONFIG_MAP)]:
            handlers[selection] = merged([handlers[selection], Handler(read_copy, partial(self.copies.put, selection.kind))])
        caches = index.caches
        handlers[Selection(kinds.VOLUME_CLAIM, labels=_OF_CACHES)] = Handler(read_volume, caches.put_volume)
        handlers[Selection(kinds.JOB, labels=_OF_CACHES)] = Handler(read_job, caches.put_job)
        handlers[Selection(kinds.POD, labels=labels.CACHE)] = Handler(read_job_pod, caches.put_pod)
        handlers[Selection(kinds.NODE, labels=labels.POOL)] = Handler(read_node, index.put_node)
        handlers[Selection(kinds.ENDPOINT_SLICE, labels=_MANAGED)] = Handler(read_endpoints, index.put_endpoints)
        if kinds.GATEWAY in served:
            handlers[Selection(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, fields=_GATEWAY_NAME)] = Handler(
                observe_gateway, lambda _key, seen: index.put_gateway(seen)
            )
        for kind in kinds.watched_kinds(served):
            if kind.kind == kinds.RESOURCE_SLICE:
                handlers[Selection(kind)] = Handler(read_slice, index.put_device_slice)
        return handlers

    def _reflector(self, handler: Handler, selection: Selection) -> Reflector[Any]:
        return Reflector(self._current, selection, handler.read, handler.on_change, self._listed, budget=self._budget)

    def _current(self) -> ClusterApi:
        if self._client is None:
            raise AssertionError("reflectors start after the first response")
        return self._client

    def _recovered(self, client: ClusterApi) -> None:
        self._client = client
        self._connected.set()
        # It may have been upgraded.
        self._may_serve_others.set()
        # Connections that were open before the outage may be dead without an error: all watches are restarted.
        for reflector in self._reflectors.values():
            reflector.resume()

    def _listed(self) -> None:
        """Record that a selection was listed; when all are, observations are complete and owners may be signalled."""
        if all(reflector.synced for reflector in self._reflectors.values()):
            self._all_listed.set()
            self._index.put_listed()
        self._update_capacity()
        self._notifier.wake()

    def _update_capacity(self) -> None:
        """Allow snapshots once everything is listed that the adapter reads: a queue without its tenants looks like an unused one."""
        if self._capacity:
            self._capacity.synced = all(self._reflectors[selection].synced for selection in self._for_capacity)

    def _is_blocked(self, owner: Owner) -> bool:
        """Tell whether an owner must wait until what concerns it was listed once: a partial list looks like deleted objects."""
        if owner != self._cluster:
            return not self._all_listed.is_set()
        if self._health.lost:
            return False
        about_cluster = [found for selection, found in self._reflectors.items() if selection.kind.kind in _CLUSTER_KINDS]
        # What the cluster refuses to list is reported as its problem, and then there is no capacity snapshot.
        pending = any(not (found.synced or found.problem) for found in map(self._reflectors.__getitem__, self._for_capacity))
        return pending or not (about_cluster and all(found.synced for found in about_cluster))

    def _put_health(self) -> None:
        error = self._health.error
        if error is not None and self._health.lost:
            # The list that the cluster's entity waits for may never complete.
            self._notifier.wake()
            self._index.put_health(reachable=False, error_type=error.type or "", error=error.message)
        elif error is None:
            refused = next((problem for found in self._reflectors.values() if (problem := found.lasting_problem)), None)
            self._index.put_health(
                reachable=True, error_type=(refused.type or "") if refused else "", error=refused.message if refused else ""
            )
