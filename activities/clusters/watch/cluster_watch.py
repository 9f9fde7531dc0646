"""The watch over one cluster: watched objects, kept fields, and signalled owners."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ApiResource,
    ClusterApi,
    GroupVersionKind,
    Json,
    Selection,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.clusters.capacity.objects import reduced
from activities.clusters.facts import discovered_facts
from activities.clusters.probe import probed_facts
from activities.clusters.watch.capacity_tracker import CapacityTracker
from activities.clusters.watch.copy_index import CopyIndex, read_copy
from activities.clusters.watch.gateway_probe import (
    LOST_SECONDS,
    PROBE_SECONDS,
    GatewayProbe,
)
from activities.clusters.watch.observation_index import ObservationIndex
from activities.clusters.watch.route_proofs import prove_routes
from activities.observe.cache import (
    allows_expansion,
    read_job,
    read_job_pod,
    read_volume,
)
from activities.observe.capacity import read_node, read_slice
from activities.observe.endpoints import read_endpoints
from activities.observe.gateway import observe_gateway
from activities.observe.objects import read_object
from activities.observe.pods import read_pod
from activities.render.objects.propagation import CONFIG_MAP, SECRET
from activities.watching.absent import FindAbsent
from activities.watching.health import RETRY_SECONDS, Health, Resolve
from activities.watching.notifier import ChangeNotifier, Send
from activities.watching.reflector import NamespacedName, RecordBudget, Reflector
from api_types import labels
from api_types.errors import ModelplaneError
from api_types.limits import STORAGE_CLASSES_MAX
from api_types.messages.cluster_work import ClusterFacts
from api_types.messages.observations import Observed

_DISCOVERY_SECONDS = 60.0

_MANAGED = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
_OF_CACHES = f"{_MANAGED},{labels.CACHE}"
_GATEWAY_NAME = f"metadata.name={labels.GATEWAY_NAME}"
# The user may lack the permission to list these kinds. Then only the facts that depend
# on them are unknown.
_STORAGE_CLASSES = Selection(kinds.STORAGE_CLASS)
_CLUSTER_KINDS = frozenset({kinds.NODE.kind, kinds.GATEWAY.kind, kinds.RESOURCE_SLICE})
# Selectors have no "or". Leaders have both labels, so the second selection only
# contains followers.
_PODS = (labels.SERVING, f"{kinds.LWS_NAME_LABEL},!{labels.SERVING}")


class WatchHandler(NamedTuple):
    """A handler of one selection.

    `read` reduces an object to a record. `on_change` gets the record, or None when the
    object was deleted.
    """

    read: Callable[[Json], Any]
    on_change: Callable[[NamespacedName, Any], None]


def merged(handlers: Sequence[WatchHandler]) -> WatchHandler:
    """Combine several handlers of one selection."""
    if len(handlers) == 1:
        return handlers[0]

    def read(item: Json) -> tuple[Any, ...] | None:
        records = tuple(handler.read(item) for handler in handlers)
        return None if all(record is None for record in records) else records

    def on_change(key: NamespacedName, records: tuple[Any, ...] | None) -> None:
        for handler, record in zip(
            handlers, records or (None,) * len(handlers), strict=True
        ):
            handler.on_change(key, record)

    return WatchHandler(read, on_change)


def _in_any_version(selection: Selection) -> Selection:
    """Return a key that is equal for a selection in every version of its kind."""
    return selection._replace(
        kind=selection.kind._replace(api_version=selection.kind.group)
    )


class ClusterWatch:
    """The watch over one cluster, until it is cancelled.

    `cluster` is the entity that gets observations of the cluster itself. `find_absent`
    is called once, with the workflow ids that have objects on the cluster. It yields
    the owners that should have objects there and have none, because objects that were
    deleted while no watch ran leave no trace on the cluster. `settings` are part of the
    facts that the cluster's entity gets. Without `gateway` nobody asks the gateway.
    """

    def __init__(
        self,
        cluster: ObjectOwner,
        resolve: Resolve,
        send: Send[Observed],
        find_absent: FindAbsent,
        *,
        capacity: CapacityTracker | None = None,
        settings: Mapping[str, int | str] | None = None,
        gateway: GatewayProbe | None = None,
    ) -> None:
        self.copies = CopyIndex()
        self._capacity = capacity
        self._settings = settings or {}
        self._gateway = gateway
        self._cluster = cluster
        self._find_absent = find_absent
        self._notifier = ChangeNotifier(send, self._is_blocked)
        self._index = ObservationIndex(cluster, self._notifier.enqueue, capacity)
        self._health = Health(resolve, self._recovered)
        self._budget = RecordBudget()
        self._client: ClusterApi | None = None
        self._reflectors: dict[Selection, Reflector[Any]] = {}
        self._running: dict[Selection, asyncio.Task[None]] = {}
        self._for_capacity: set[Selection] = set()
        # Selections that watch a kind in another version than before.
        self._successors: set[Selection] = set()
        self._facts: ClusterFacts | None = None
        self._storage_classes: dict[str, bool] = {}
        self._connected = asyncio.Event()
        self._may_serve_others = asyncio.Event()
        self._all_listed = asyncio.Event()

    def counts(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        listings = sum(reflector.listings for reflector in self._reflectors.values())
        return {
            **self._index.counts(),
            "watches": len(self._reflectors),
            "listings": listings,
            "signals": self._notifier.sent,
        }

    def owners(self) -> list[ObjectOwner]:
        """Return all owners of objects on the cluster."""
        return self._index.owners()

    def repeat(self, workflow_id: str) -> None:
        """Signal a workflow again, although nothing changed: its last run closed."""
        self._notifier.repeat(workflow_id)

    async def run(self) -> None:
        self._notifier.enqueue(self._cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notifier.run(self._index))
            tasks.create_task(self._stay_connected())
            tasks.create_task(self._follow_kinds(tasks))
            tasks.create_task(self._notify_absent())
            if self._gateway is not None:
                tasks.create_task(self._probe_gateway(self._gateway))
            tasks.create_task(prove_routes(self._index, self._current))

    async def _notify_absent(self) -> None:
        await self._all_listed.wait()
        here = frozenset(owner.workflow_id for owner in self._index.owners())
        async for owner in self._find_absent(here):
            self._notifier.enqueue(owner)

    async def _stay_connected(self) -> None:
        while True:
            wait_seconds = await self._health.probe()
            self._put_health()
            await asyncio.sleep(wait_seconds)

    async def _probe_gateway(self, gateway: GatewayProbe) -> None:
        while True:
            await gateway.probe(self._index.gateway_address)
            self._index.put_gateway_answers(answers=gateway.answers)
            await asyncio.sleep(LOST_SECONDS if self._health.error else PROBE_SECONDS)

    async def _follow_kinds(self, tasks: asyncio.TaskGroup) -> None:
        """Start a reflector for every kind that is served now or later."""
        await self._connected.wait()
        while True:
            try:
                cluster = self._current()
                served = await cluster.resources(refresh=True)
                found = discovered_facts(
                    await cluster.version(), served, self._settings
                )
                self._facts = found.model_copy(
                    update=await probed_facts(cluster, served)
                )
            except ModelplaneError:
                # The probe reports why the cluster does not respond.
                await asyncio.sleep(RETRY_SECONDS)
                continue
            wanted = self._reflectors_for(served)
            await self._stop_others(wanted)
            self._start(wanted, tasks)
            self._for_capacity = set(self._capacity_handlers(served))
            self._update_capacity()
            self._put_facts()
            # Not asyncio.wait_for: before Python 3.12 it loses a cancellation that
            # arrives together with its result.
            with suppress(TimeoutError):
                async with asyncio.timeout(_DISCOVERY_SECONDS):
                    await self._may_serve_others.wait()
                # Discovery may list a kind that is not served, while the server of its
                # group is down.
                await asyncio.sleep(RETRY_SECONDS)
            self._may_serve_others.clear()

    async def _stop_others(self, wanted: Collection[Selection]) -> None:
        """Stop watches of a kind in a version that is no longer the best one.

        Two versions would show the same objects.
        """
        for selection, task in self._running.items():
            if selection not in wanted and not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _start(
        self,
        wanted: Mapping[Selection, Callable[[Selection], Reflector[Any]]],
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Start missing reflectors, and drop unwanted ones.

        A reflector takes over the records of the same objects in another version.
        """
        ended = {
            _in_any_version(selection): selection
            for selection, task in self._running.items()
            if task.done()
        }
        for selection, make in wanted.items():
            task = self._running.get(selection)
            # A reflector ends when its kind is no longer served. It starts again when
            # the kind is served again, possibly in another version.
            if task is None or task.done():
                reflector = make(selection)
                self._successors.discard(selection)
                if before := ended.pop(_in_any_version(selection), None):
                    reflector.take_over(self._reflectors.pop(before))
                    del self._running[before]
                    if before != selection:
                        self._successors.add(selection)
                self._reflectors[selection] = reflector
                self._running[selection] = tasks.create_task(reflector.run())
                self._running[selection].add_done_callback(
                    lambda _: self._may_serve_others.set()
                )
        for selection in ended.values():
            self._reflectors.pop(selection).forget()
            del self._running[selection]

    def _reflectors_for(
        self, served: Mapping[GroupVersionKind, ApiResource]
    ) -> dict[Selection, Callable[[Selection], Reflector[Any]]]:
        """Return the factory of each selection's reflector.

        A selection that two handlers need is watched once.
        """
        handlers = {
            selection: [handler]
            for selection, handler in self._object_handlers(served).items()
        }
        for selection, handler in self._capacity_handlers(served).items():
            handlers.setdefault(selection, []).append(handler)
        return {
            selection: partial(self._reflector, merged(found))
            for selection, found in handlers.items()
        }

    def _capacity_handlers(
        self, served: Mapping[GroupVersionKind, ApiResource]
    ) -> dict[Selection, WatchHandler]:
        found: dict[Selection, WatchHandler] = {}
        read = self._capacity.adapter.kinds if self._capacity else ()
        for api_version, name, selector in read:
            kind = kinds.resolve((api_version, name), served)
            if kind:
                found[Selection(kind, labels=selector)] = WatchHandler(
                    partial(reduced, name), partial(self._index.put_capacity, name)
                )
        return found

    def _object_handlers(
        self, served: Mapping[GroupVersionKind, ApiResource]
    ) -> dict[Selection, WatchHandler]:
        index = self._index
        handlers: dict[Selection, WatchHandler] = {
            Selection(
                kind, labels=_MANAGED, metadata_only=kind == kinds.SECRET
            ): WatchHandler(read_object, partial(index.put_object, kind))
            for kind in kinds.replica_kinds(served)
        }
        handlers |= {
            Selection(kinds.POD, labels=selector): WatchHandler(read_pod, index.put_pod)
            for selector in _PODS
        }
        copied = [each for each in handlers if each.kind.kind in (SECRET, CONFIG_MAP)]
        for selection in copied:
            copies = WatchHandler(read_copy, partial(self.copies.put, selection.kind))
            handlers[selection] = merged([handlers[selection], copies])
        caches = index.caches
        handlers[Selection(kinds.VOLUME_CLAIM, labels=_OF_CACHES)] = WatchHandler(
            read_volume, caches.put_volume
        )
        handlers[Selection(kinds.JOB, labels=_OF_CACHES)] = WatchHandler(
            read_job, caches.put_job
        )
        handlers[Selection(kinds.POD, labels=labels.CACHE)] = WatchHandler(
            read_job_pod, caches.put_pod
        )
        handlers[Selection(kinds.NODE, labels=labels.POOL)] = WatchHandler(
            read_node, index.put_node
        )
        handlers[Selection(kinds.ENDPOINT_SLICE, labels=_MANAGED)] = WatchHandler(
            read_endpoints, index.put_endpoints
        )
        if kinds.GATEWAY in served:
            handlers[
                Selection(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, fields=_GATEWAY_NAME)
            ] = WatchHandler(
                observe_gateway, lambda _key, seen: index.put_gateway(seen)
            )
        if kinds.STORAGE_CLASS in served:
            handlers[_STORAGE_CLASSES] = WatchHandler(
                allows_expansion, self._put_storage_class
            )
        for kind in kinds.watched_kinds(served):
            if kind.kind == kinds.RESOURCE_SLICE:
                handlers[Selection(kind)] = WatchHandler(
                    read_slice, index.put_device_slice
                )
        return handlers

    def _reflector(self, handler: WatchHandler, selection: Selection) -> Reflector[Any]:
        return Reflector(
            self._current,
            selection,
            handler.read,
            handler.on_change,
            self._listed,
            budget=self._budget,
        )

    def _current(self) -> ClusterApi:
        if self._client is None:
            raise AssertionError("reflectors start after the first response")
        return self._client

    def _recovered(self, client: ClusterApi) -> None:
        self._client = client
        self._connected.set()
        # The cluster may have been upgraded.
        self._may_serve_others.set()
        # Connections from before the outage may be broken without an error, so all
        # watches are restarted.
        for reflector in self._reflectors.values():
            reflector.resume()

    def _listed(self) -> None:
        """Handle a completed list.

        When all selections are listed, observations are complete and owners may be
        signalled.
        """
        if all(reflector.synced for reflector in self._required()):
            self._all_listed.set()
            self._index.put_listed()
        self._update_capacity()
        self._put_facts()
        self._notifier.wake()

    def _put_facts(self) -> None:
        """Publish the facts once every kind that they name is watched.

        Objects are applied in the versions that the facts name, and must be observed
        soon after.
        """
        successors = [
            self._reflectors[selection]
            for selection in self._successors & self._reflectors.keys()
        ]
        if self._facts and all(each.listings or each.problem for each in successors):
            self._index.put_facts(
                self._facts.model_copy(
                    update={"storage_classes": self._listed_storage_classes()}
                )
            )

    def _put_storage_class(self, key: NamespacedName, expandable: bool | None) -> None:
        if expandable is None:
            self._storage_classes.pop(key.name, None)
        else:
            self._storage_classes[key.name] = expandable
        self._put_facts()

    def _listed_storage_classes(self) -> dict[str, bool] | None:
        """Return the StorageClasses, or None if not listed yet or too many."""
        reflector = self._reflectors.get(_STORAGE_CLASSES)
        known = reflector is not None and reflector.synced
        return (
            dict(sorted(self._storage_classes.items()))
            if known and len(self._storage_classes) <= STORAGE_CLASSES_MAX
            else None
        )

    def _required(self) -> list[Reflector[Any]]:
        """Return the reflectors that observations of objects depend on."""
        return [
            reflector
            for selection, reflector in self._reflectors.items()
            if selection != _STORAGE_CLASSES
        ]

    def _update_capacity(self) -> None:
        """Allow snapshots once all objects of the adapter are listed.

        A queue without its tenants looks like an unused one.
        """
        if self._capacity:
            self._capacity.synced = all(
                self._reflectors[selection].synced for selection in self._for_capacity
            )

    def _is_blocked(self, owner: ObjectOwner) -> bool:
        """Return True if an owner must wait until its objects were listed once.

        A partial list looks like deleted objects.
        """
        if owner != self._cluster:
            return not self._all_listed.is_set()
        if self._health.lost:
            return False
        about_cluster = [
            found
            for selection, found in self._reflectors.items()
            if selection.kind.kind in _CLUSTER_KINDS
        ]
        # A refused list is reported as the cluster's problem, and then there is no
        # capacity snapshot.
        pending = any(
            not (
                self._reflectors[selection].synced
                or self._reflectors[selection].problem
            )
            for selection in self._for_capacity
        )
        return pending or not (
            about_cluster and all(found.synced for found in about_cluster)
        )

    def _put_health(self) -> None:
        error = self._health.error
        if error is not None and self._health.lost:
            # The list that the cluster's entity waits for may never complete.
            self._notifier.wake()
            self._index.put_silence(
                error.type or "", error.message, self._health.silent_seconds
            )
        elif error is None:
            problems = (found.lasting_problem for found in self._required())
            refused = next(filter(None, problems), None)
            refusal = (refused.type or "", refused.message) if refused else ("", "")
            self._index.put_answer(*refusal)
