"""The watch over one cluster, put together: who is followed, what is kept, who is told."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, Kind, Resource, Selection
from activities.cluster_objects.ownership import Owner
from activities.clusters.capacity.objects import reduced
from activities.clusters.watch.capacity import CapacityBook
from activities.clusters.watch.health import RETRY_SECONDS, UNREACHABLE_AFTER_SECONDS, Health, Resolve
from activities.clusters.watch.notifier import ChangeNotifier, Send
from activities.clusters.watch.observation_index import ObservationIndex
from activities.clusters.watch.reflector import Key, Reflector
from activities.observe.cache import read_job, read_job_pod, read_volume
from activities.observe.capacity import read_node, read_slice
from activities.observe.endpoints import read_endpoints
from activities.observe.gateway import observe_gateway
from activities.observe.objects import read_object
from activities.observe.pods import read_pod
from api_types import labels
from api_types.errors import ModelplaneError

_DISCOVERY_SECONDS = 60.0

Absent = Callable[[frozenset[str]], Awaitable[Iterable[Owner]]]
_OURS = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
_OF_CACHES = f"{_OURS},{labels.CACHE}"
_GATEWAY_NAME = f"metadata.name={labels.GATEWAY_NAME}"
_ABOUT_CLUSTER = frozenset({kinds.NODE.kind, kinds.GATEWAY.kind, kinds.RESOURCE_SLICE})
# Selectors know no "or". Leaders carry both labels, so the second selection takes followers only.
_PODS = (labels.SERVING, f"{kinds.LWS_NAME_LABEL},!{labels.SERVING}")


class Follow(NamedTuple):
    """How objects of a selection are reduced, and who is told of a changed one (None: it is gone)."""

    read: Callable[[Json], Any]
    changed: Callable[[Key, Any], None]


def joined(follows: Sequence[Follow]) -> Follow:
    """Let several readers follow one selection."""
    if len(follows) == 1:
        return follows[0]

    def read(item: Json) -> tuple[Any, ...] | None:
        records = tuple(follow.read(item) for follow in follows)
        return None if all(record is None for record in records) else records

    def changed(key: Key, records: tuple[Any, ...] | None) -> None:
        for follow, record in zip(follows, records or (None,) * len(follows), strict=True):
            follow.changed(key, record)

    return Follow(read, changed)


class ClusterWatch:
    """One cluster, watched until cancelled.

    `cluster` is the entity that hears of the cluster itself. `absent` is asked once, with the workflow ids that have objects here, for the
    owners that believe to have some and have none: what was deleted while nobody watched leaves no trace on the cluster.
    """

    def __init__(
        self,
        cluster: Owner,
        resolve: Resolve,
        send: Send,
        absent: Absent,
        unreachable_after_seconds: float = UNREACHABLE_AFTER_SECONDS,
        *,
        capacity: CapacityBook | None = None,
    ) -> None:
        self._capacity = capacity
        self._cluster = cluster
        self._absent = absent
        self._teller = ChangeNotifier(send, self._is_held)
        self._board = ObservationIndex(cluster, self._teller.touch, capacity)
        self._health = Health(resolve, self._recovered, unreachable_after_seconds)
        self._client: ClusterApi | None = None
        self._reflectors: dict[Selection, Reflector[Any]] = {}
        self._running: dict[Selection, asyncio.Task[None]] = {}
        self._for_capacity: set[Selection] = set()
        self._connected = asyncio.Event()
        self._whole = asyncio.Event()

    def counts(self) -> dict[str, int]:
        """Give counters for the heartbeat."""
        listings = sum(reflector.listings for reflector in self._reflectors.values())
        return {**self._board.counts(), "watches": len(self._reflectors), "listings": listings, "signals": self._teller.sent}

    async def run(self) -> None:
        """Watch until cancelled."""
        self._teller.touch(self._cluster)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._teller.run(self._board))
            tasks.create_task(self._stay_connected())
            tasks.create_task(self._follow_kinds(tasks))
            tasks.create_task(self._tell_absent())

    async def _tell_absent(self) -> None:
        await self._whole.wait()
        here = frozenset(owner.workflow_id for owner in self._board.owners())
        for owner in await self._absent(here):
            self._teller.touch(owner)

    async def _stay_connected(self) -> None:
        while True:
            wait_seconds = await self._health.probe()
            self._say_health()
            await asyncio.sleep(wait_seconds)

    async def _follow_kinds(self, tasks: asyncio.TaskGroup) -> None:
        """Start a reflector for every kind that is served, now or later."""
        await self._connected.wait()
        while True:
            try:
                served = await self._current().resources(refresh=True)
            except ModelplaneError:
                # Why it does not answer is the probe's to find out and to tell.
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for selection, make in self._wanted(served).items():
                task = self._running.get(selection)
                # A reflector ends when its kind is no longer served; it begins again when the kind is back.
                if task is None or task.done():
                    self._reflectors[selection] = make(selection)
                    self._running[selection] = tasks.create_task(self._reflectors[selection].run())
            self._note_capacity()
            await asyncio.sleep(_DISCOVERY_SECONDS)

    def _wanted(self, served: Mapping[Kind, Resource]) -> dict[Selection, Callable[[Selection], Reflector[Any]]]:
        """Give a maker of reflectors for each selection; what two readers want of one selection is followed once."""
        follows = {selection: [follow] for selection, follow in self._followed(served).items()}
        for_capacity = self._capacity_followed(served)
        self._for_capacity = set(for_capacity)
        for selection, follow in for_capacity.items():
            follows.setdefault(selection, []).append(follow)
        return {selection: partial(self._reflector, joined(wanted)) for selection, wanted in follows.items()}

    def _capacity_followed(self, served: Mapping[Kind, Resource]) -> dict[Selection, Follow]:
        found: dict[Selection, Follow] = {}
        for api_version, name, selector in self._capacity.adapter.kinds if self._capacity else ():
            kind = kinds.resolve((api_version, name), served)
            if kind:
                found[Selection(kind, labels=selector)] = Follow(partial(reduced, name), partial(self._board.put_capacity, name))
        return found

    def _followed(self, served: Mapping[Kind, Resource]) -> dict[Selection, Follow]:
        board = self._board
        wanted: dict[Selection, Follow] = {
            Selection(kind, labels=_OURS, metadata_only=kind == kinds.SECRET): Follow(read_object, partial(board.put_object, kind))
            for kind in kinds.ours(served)
        }
        wanted |= {Selection(kinds.POD, labels=selector): Follow(read_pod, board.put_pod) for selector in _PODS}
        caches = board.caches
        wanted[Selection(kinds.VOLUME_CLAIM, labels=_OF_CACHES)] = Follow(read_volume, caches.put_volume)
        wanted[Selection(kinds.JOB, labels=_OF_CACHES)] = Follow(read_job, caches.put_job)
        wanted[Selection(kinds.POD, labels=labels.CACHE)] = Follow(read_job_pod, caches.put_pod)
        wanted[Selection(kinds.NODE, labels=labels.POOL)] = Follow(read_node, board.put_node)
        wanted[Selection(kinds.ENDPOINT_SLICE, labels=_OURS)] = Follow(read_endpoints, board.put_endpoints)
        if kinds.GATEWAY in served:
            wanted[Selection(kinds.GATEWAY, labels.SYSTEM_NAMESPACE, fields=_GATEWAY_NAME)] = Follow(
                observe_gateway, lambda _key, seen: board.put_gateway(seen)
            )
        for kind in kinds.only_watched(served):
            if kind.kind == kinds.RESOURCE_SLICE:
                wanted[Selection(kind)] = Follow(read_slice, board.put_device_slice)
        return wanted

    def _reflector(self, follow: Follow, selection: Selection) -> Reflector[Any]:
        return Reflector(self._current, selection, follow.read, follow.changed, self._listed)

    def _current(self) -> ClusterApi:
        if self._client is None:
            raise AssertionError("reflectors start after the first answer")
        return self._client

    def _recovered(self, client: ClusterApi) -> None:
        self._client = client
        self._connected.set()
        # Connections that were open when the silence began may be dead without knowing it: all watches are taken up anew.
        for reflector in self._reflectors.values():
            reflector.resume()

    def _listed(self) -> None:
        """Note that a selection was listed whole; when all were, the first picture is complete and owners may be told."""
        if all(reflector.synced for reflector in self._reflectors.values()):
            self._whole.set()
        self._note_capacity()
        self._teller.wake()

    def _note_capacity(self) -> None:
        """Let the book speak once it holds all that its adapter reads: a queue without its tenants looks like one for nobody."""
        if self._capacity:
            self._capacity.whole = all(self._reflectors[selection].synced for selection in self._for_capacity)

    def _is_held(self, owner: Owner) -> bool:
        """Tell whether an owner must wait: until what concerns it was listed once, for half a picture looks like losses."""
        if owner != self._cluster:
            return not self._whole.is_set()
        if self._health.lost:
            return False
        about_cluster = [found for selection, found in self._reflectors.items() if selection.kind.kind in _ABOUT_CLUSTER]
        # What the cluster refuses to list is told as its problem, and then nothing is told of capacity.
        coming = any(not (found.synced or found.problem) for found in map(self._reflectors.__getitem__, self._for_capacity))
        return coming or not (about_cluster and all(found.synced for found in about_cluster))

    def _say_health(self) -> None:
        error = self._health.error
        if error is not None and self._health.lost:
            # What the cluster's entity would otherwise wait for may never come.
            self._teller.wake()
            self._board.put_health(reachable=False, error_type=error.type or "", error=error.message)
        elif error is None:
            refused = next((found.problem for found in self._reflectors.values() if found.problem and not found.synced), None)
            self._board.put_health(
                reachable=True, error_type=(refused.type or "") if refused else "", error=refused.message if refused else ""
            )
