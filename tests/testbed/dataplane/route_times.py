"""How soon the route of a service follows its replicas, from moments that the parts themselves wrote down.

What a replica was told is in its history; when the API server has a route, the activity that applied it has completed soon after, or a
watch has shown it: the earlier of the two is taken. So a test that is late itself sees no delay, and one that nobody waits for is seen.
"""

import asyncio
from bisect import bisect_right
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, NamedTuple, Self

from api_types import labels, names
from api_types.clock import utc_now
from api_types.messages.observations import Observed, ObservedReplica
from testbed.cluster.kube import Watcher, collection, follow
from testbed.cluster.pki import Authority
from testbed.running import ClusterRunning
from tests.environment.waiting import machine_seconds
from tests.testbed.conftest import control_of
from tests.testbed.dataplane.services import TEAM, Services
from tests.workflows.environment.harness import Json, eventually
from tests.workflows.environment.history_times import times_of

SAMPLE_SECONDS = 0.05


class RouteVersion(NamedTuple):
    """A route as a watch has shown it, and when."""

    generation: int
    backends: frozenset[str]
    seen: datetime


class RouteTimes(AbstractAsyncContextManager["RouteTimes"]):
    """While it is entered, the route of a service and the pods of its replicas are watched."""

    def __init__(self, services: Services, service: str) -> None:
        self._services, self._service = services, service
        self._route = names.service_route_name(TEAM, service)
        self._versions: list[RouteVersion] = []
        # Of each pod that is being deleted: its workload, and when that was requested, at the earliest. API servers write whole seconds.
        self._pods_deleted: list[tuple[str, datetime]] = []
        self._samples: list[tuple[float, float]] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._watchers: list[Watcher] = []

    async def __aenter__(self) -> Self:
        running = self._services.plane.running
        routes = self._watch(control_of(running), collection("gateway.networking.k8s.io/v1", "HTTPRoute", TEAM), self._put_route)
        pods = [self._watch(each, collection("v1", "Pod", TEAM), self._put_pod) for each in running.clusters.values()]
        self._tasks = [routes, *pods, asyncio.create_task(self._sample())]
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for watcher in self._watchers:
            await watcher.close()

    # --- moments --------------------------------------------------------------------------------------------------------------------

    async def after_observation(self, replica: str, since: datetime, *, serving: bool) -> float:
        """Seconds from when a replica was told, for the first time since then, that all its pods are ready, or that not all are."""
        routed = await self.routed(replica, since, present=serving)
        times = await times_of(self._services.plane.handle("ModelReplica", replica, TEAM))
        told = next(each.at for each in times.signals if each.at >= since and _tells_serving(each.name, each.message) is serving)
        return self._seconds(told, routed)

    async def after_deletion(self, replica: str, since: datetime) -> float:
        """Seconds from when a replica was told to end, which was after `since`."""
        routed = await self.routed(replica, since, present=False)
        times = await times_of(self._services.plane.handle("ModelReplica", replica, TEAM))
        return self._seconds(next(each.at for each in times.signals if each.at >= since and each.name == "delete"), routed)

    async def routed(self, replica: str, since: datetime, *, present: bool) -> datetime:
        """Wait until the route has a replica, or is without it; gives when the API server had that, at the latest."""
        backend = names.endpoint_service_name(TEAM, replica)

        async def look() -> RouteVersion | None:
            return next((each for each in self._versions if each.seen >= since and (backend in each.backends) is present), None)

        found = await eventually(look, lambda version: version is not None, what=f"the route {'with' if present else 'without'} {replica}")
        times = await times_of(self._services.plane.handle("ModelService", self._service, TEAM))
        applied = [each for each in times.completed("apply_service_route") if each.result["generation"] == found.generation]
        routed: datetime = min([found.seen, *(each.completed for each in applied if each.completed)])
        return routed

    async def pods_deleted(self, replica: str, since: datetime) -> datetime:
        """Wait until the deletion of a pod of a replica was requested, after `since`; gives when that was, at the earliest."""
        workload = names.workload_name(TEAM, replica)

        async def look() -> list[datetime]:
            # A later replica may have the name of an earlier one.
            return [requested for of, requested in self._pods_deleted if of == workload and requested >= since.replace(microsecond=0)]

        found: list[datetime] = await eventually(look, bool, what=f"the deletion of the pods of {replica}")
        return min(found)

    # --- what is watched ------------------------------------------------------------------------------------------------------------

    def _watch(self, cluster: ClusterRunning, path: str, put: Any) -> asyncio.Task[None]:
        watcher = Watcher(cluster.server, Authority(cluster.kubeconfig.parent / "pki"))
        self._watchers.append(watcher)

        async def received(_kind: str, items: list[Json]) -> None:
            for item in items:
                put(item)

        return asyncio.create_task(follow(watcher, path, received))

    def _put_route(self, route: Json) -> None:
        if route["metadata"]["name"] == self._route:
            backends = frozenset(each["name"] for rule in route["spec"]["rules"] for each in rule.get("backendRefs", ()))
            self._versions.append(RouteVersion(route["metadata"]["generation"], backends, utc_now()))

    def _put_pod(self, pod: Json) -> None:
        metadata = pod["metadata"]
        if ends := metadata.get("deletionTimestamp"):
            # It says when the grace period is over.
            requested = datetime.fromisoformat(ends) - timedelta(seconds=metadata["deletionGracePeriodSeconds"])
            self._pods_deleted.append((metadata["labels"][labels.SERVING], requested))

    # --- seconds --------------------------------------------------------------------------------------------------------------------

    async def _sample(self) -> None:
        while True:
            self._samples.append((utc_now().timestamp(), machine_seconds()))
            await asyncio.sleep(SAMPLE_SECONDS)

    def _seconds(self, begin: datetime, end: datetime) -> float:
        """Give the seconds between two moments in which the machine's processors were its own."""
        return self._machine_seconds(end) - self._machine_seconds(begin)

    def _machine_seconds(self, moment: datetime) -> float:
        at = moment.timestamp()
        number = min(max(bisect_right(self._samples, (at, float("inf"))), 1), len(self._samples) - 1)
        (earlier, first), (later, last) = self._samples[number - 1 : number + 1]
        return first + (last - first) * (at - earlier) / (later - earlier)


def _tells_serving(signal: str, message: Any) -> bool | None:
    """Whether an observation says that a replica serves; None of what is no observation of a replica."""
    seen = Observed.model_validate(message).replica if signal == "observed" else None
    return None if seen is None else _serves(seen)


def _serves(seen: ObservedReplica) -> bool:
    engines = [each.current and each.updated == each.ready == each.desired > 0 for each in seen.workloads]
    return bool(engines) and all(engines) and all(each.accepted for each in seen.routes) and seen.endpoints_ready > 0
