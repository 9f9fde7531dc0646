"""The watch of the control cluster: selections, kept records, and signals to owners."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import (
    ClusterApi,
    GroupVersionKind,
    Json,
    Selection,
)
from activities.cluster_objects.ownership import ObjectOwner
from activities.observe.control import (
    GATEWAY,
    BackendPart,
    ClassSeen,
    GatewaySeen,
    MiddlewareSeen,
    RouteSeen,
    backend_digest,
    parts_digest,
    read_class,
    read_gateway,
    read_middleware,
    read_route,
    read_service,
    read_slice,
)
from activities.routing import envoy_routes
from activities.routing.control_cluster import ROLES_FILE
from activities.routing.middlewares import THE_GATEWAY
from activities.watching.absent import FindAbsent
from activities.watching.health import Health, Resolve
from activities.watching.notifier import ChangeNotifier, Send
from activities.watching.reflector import NamespacedName, RecordBudget, Reflector
from api_types import labels
from api_types.digests import report_digest
from api_types.errors import ClusterUnreachable, ModelplaneError, PermissionDenied
from api_types.messages.gateway_work import (
    ControlObserved,
    ObservedBackend,
    ObservedGateway,
    ObservedServiceRoute,
)
from api_types.messages.routing import GatewayBackend, TimeoutSupport

_MANAGED = f"{labels.MANAGED_BY}={labels.MANAGED_BY_VALUE}"
_ROUTES = Selection(kinds.HTTP_ROUTE, labels=_MANAGED)
_SERVICES = Selection(kinds.SERVICE, labels=_MANAGED)
_SLICES = Selection(kinds.ENDPOINT_SLICE, labels=_MANAGED)
# The kinds of the objects to which the route of a service refers.
_PARTS: Mapping[GatewayBackend, tuple[GroupVersionKind, ...]] = {
    "Traefik": (kinds.MIDDLEWARE,),
    "Envoy": envoy_routes.PARTS,
}
_CLASSES = Selection(kinds.GATEWAY_CLASS)
_SERVICE_KIND = "ModelService"
# A kind that is no longer served may be served again after its CRDs were replaced.
_RESTART_SECONDS = 10.0
# Every API server serves kinds of this API version.
_CORE = "v1"


@dataclass(frozen=True)
class PendingControlObservation:
    """The observation to signal to an owner.

    `last` is True if the owner has no objects on the control cluster any more.
    """

    observed: ControlObserved
    last: bool = False
    changes_at: datetime | None = None

    @property
    def digest(self) -> str:
        """A digest of the content."""
        return report_digest(self.observed.wire())

    def numbered(self, sequence: int) -> ControlObserved:
        """Return the signal with its sequence number among the signals of this watch."""
        return self.observed.model_copy(update={"sequence": sequence})


class ControlIndex:
    """The records of the control cluster's objects, by owner.

    `gateway` is the InferenceGateway. `enqueue` is called with every owner that has
    changes.
    """

    def __init__(
        self, gateway: ObjectOwner, enqueue: Callable[[ObjectOwner], None]
    ) -> None:
        self._gateway_owner = gateway
        self._enqueue = enqueue
        self._routes: dict[NamespacedName, RouteSeen] = {}
        self._services: dict[NamespacedName, BackendPart] = {}
        self._slices: dict[NamespacedName, BackendPart] = {}
        self._parts: defaultdict[str, dict[NamespacedName, MiddlewareSeen]] = (
            defaultdict(dict)
        )
        self._owned: defaultdict[ObjectOwner, set[tuple[str, NamespacedName]]] = (
            defaultdict(set)
        )
        self._gateway: GatewaySeen = read_gateway(None)
        self._classes: dict[NamespacedName, ClassSeen] = {}
        self._classes_listed = False
        self._class_problem = ""
        self._class_problem_type = ""
        self.reachable = True
        self.error = ""
        self.follows_parts: Callable[[], bool] = lambda: True

    def counts(self) -> dict[str, int]:
        """Return counters for the heartbeat."""
        return {
            "owners": len(self._owned),
            "routes": len(self._routes),
            "backends": len(self._services),
        }

    def workflow_ids(self) -> frozenset[str]:
        """Return the ids of the workflows that have objects on the control cluster."""
        return frozenset(
            owner.workflow_id for owner, owned in self._owned.items() if owned
        )

    def put_route(self, key: NamespacedName, seen: RouteSeen | None) -> None:
        """Store or delete the record of a route."""
        self._put("route", self._routes, key, seen)

    def put_service(self, key: NamespacedName, seen: BackendPart | None) -> None:
        """Store or delete the record of an endpoint's Service."""
        self._put("service", self._services, key, seen)

    def put_slice(self, key: NamespacedName, seen: BackendPart | None) -> None:
        """Store or delete the record of an endpoint's slice."""
        self._put("slice", self._slices, key, seen)

    def put_part(
        self, kind: str, key: NamespacedName, seen: MiddlewareSeen | None
    ) -> None:
        """Store or delete the record of an object to which a service's route refers."""
        self._put(kind, self._parts[kind], key, seen)

    def parts_listed(self) -> None:
        """Enqueue the services that need such objects: a missing one is relevant now."""
        for seen in self._routes.values():
            if seen.names_middleware:
                self._enqueue(seen.owner)

    def put_gateway(self, _key: NamespacedName, seen: GatewaySeen | None) -> None:
        """Store the state of the gateway."""
        self._gateway = seen or read_gateway(None)
        self._enqueue(self._gateway_owner)

    def put_class(self, key: NamespacedName, seen: ClassSeen | None) -> None:
        """Store or delete the record of a GatewayClass."""
        if seen is None:
            self._classes.pop(key, None)
        else:
            self._classes[key] = seen
        self._enqueue(self._gateway_owner)

    def classes_listed(self) -> None:
        """Enqueue the gateway, because the absence of its class is relevant now."""
        self._classes_listed = True
        self._enqueue(self._gateway_owner)

    def put_class_problem(self, error: ModelplaneError | None) -> None:
        """Store why GatewayClasses cannot be read; None if they can.

        The text of an error varies with each attempt, so the first one is kept.
        """
        problem = _why_unread(error)
        problem_type = type(error).__name__ if problem else ""
        if problem_type != self._class_problem_type:
            self._class_problem, self._class_problem_type = problem, problem_type
            self._enqueue(self._gateway_owner)

    def put_health(self, *, reachable: bool, error: str = "") -> None:
        """Store whether the API server is reachable.

        The text of an error varies with each attempt, so the first one is kept.
        """
        if reachable != self.reachable:
            self.reachable, self.error = reachable, error
            self._enqueue(self._gateway_owner)

    def observation_for(
        self, owner: ObjectOwner, now: datetime
    ) -> PendingControlObservation:
        """Return the current observation for an owner."""
        del now
        if owner == self._gateway_owner:
            return PendingControlObservation(
                self._observed(owner, gateway=self._observed_gateway())
            )
        owned = self._owned.get(owner, set())
        if owner.kind == _SERVICE_KIND:
            route = next(
                (self._routes[key] for kind, key in sorted(owned) if kind == "route"),
                None,
            )
            seen = _observed_route(route)
            if route is not None and route.names_middleware and self.follows_parts():
                digest = parts_digest(
                    self._parts[kind][key].digest
                    for kind, key in owned
                    if kind in self._parts
                )
                seen = seen.model_copy(update={"middleware": digest})
            return PendingControlObservation(
                self._observed(owner, route=seen), last=not owned
            )
        services = [
            self._services[key].digest for kind, key in owned if kind == "service"
        ]
        slices = [self._slices[key].digest for kind, key in owned if kind == "slice"]
        backend = ObservedBackend(
            digest=backend_digest(next(iter(services), ""), slices)
        )
        return PendingControlObservation(
            self._observed(owner, backend=backend), last=not owned
        )

    def forget(self, owner: ObjectOwner) -> None:
        """Delete an owner that has no objects on the control cluster any more."""
        if not self._owned.get(owner, True):
            del self._owned[owner]

    def _put(
        self, kind: str, kept: dict[NamespacedName, Any], key: NamespacedName, seen: Any
    ) -> None:
        old = kept.pop(key, None)
        if old:
            self._owned[old.owner].discard((kind, key))
            self._enqueue(old.owner)
        if seen:
            kept[key] = seen
            self._owned[seen.owner].add((kind, key))
            self._enqueue(seen.owner)

    def _observed(self, owner: ObjectOwner, **part: Any) -> ControlObserved:
        return ControlObserved(
            owner_uid=owner.uid, gateway_uid=self._gateway_owner.uid, **part
        )

    def _observed_gateway(self) -> ObservedGateway:
        seen = self._gateway
        if not self.reachable:
            return ObservedGateway(reachable=False, error=self.error)
        timeouts = self._timeouts(seen.gateway_class)
        if self._lacks_its_class(seen):
            # The Gateway still has Accepted=True, but its controller no longer serves
            # it and writes no status.
            lacks = f"{GATEWAY}: GatewayClass {seen.gateway_class} does not exist"
            seen = seen._replace(accepted=False, message=lacks)
        return ObservedGateway(
            reachable=True,
            accepted=seen.accepted,
            address=seen.address,
            message=seen.message,
            timeouts=timeouts,
        )

    def _lacks_its_class(self, seen: GatewaySeen) -> bool:
        """Return whether an accepted Gateway names a class that does not exist."""
        can_tell = self._classes_listed and not self._class_problem
        return (
            seen.accepted
            and can_tell
            and NamespacedName("", seen.gateway_class) not in self._classes
        )

    def _timeouts(self, gateway_class: str) -> TimeoutSupport | None:
        """Return the timeouts that the gateway's class supports; None while unknown."""
        if not gateway_class:
            return None
        if self._class_problem:
            return TimeoutSupport(
                gateway_class=gateway_class, problem=self._class_problem
            )
        if not self._classes_listed:
            return None
        seen = self._classes.get(
            NamespacedName("", gateway_class), ClassSeen(problem="it does not exist")
        )
        return TimeoutSupport(gateway_class=gateway_class, **seen._asdict())


def _observed_route(seen: RouteSeen | None) -> ObservedServiceRoute:
    if seen is None:
        return ObservedServiceRoute(present=False)
    return ObservedServiceRoute(
        present=True,
        generation=seen.generation,
        digest=seen.digest,
        accepted=seen.accepted,
        resolved=seen.resolved,
        message=seen.message,
    )


def _why_unread(problem: ModelplaneError | None) -> str:
    """Return why GatewayClasses cannot be read, and the remedy.

    Returns "" if they can be read, or if the cluster does not respond, which proves
    nothing.
    """
    if problem is None or isinstance(problem, ClusterUnreachable):
        return ""
    return (
        f"{problem.message}; apply {ROLES_FILE} there"
        if isinstance(problem, PermissionDenied)
        else problem.message
    )


class ControlWatch:
    """Watches the control cluster until cancelled.

    `backend` is the implementation of the gateway. `find_absent` is called once, with
    the workflow ids that have objects there. It yields the owners that may have lost all
    their objects.
    """

    def __init__(
        self,
        gateway: ObjectOwner,
        resolve: Resolve,
        send: Send[ControlObserved],
        find_absent: FindAbsent,
        backend: GatewayBackend = "Traefik",
    ) -> None:
        self._find_absent = find_absent
        self._all_listed = asyncio.Event()
        self._notifier: ChangeNotifier[ControlObserved] = ChangeNotifier(
            send, self._is_blocked
        )
        self._index = ControlIndex(gateway, self._notifier.enqueue)
        self._health = Health(resolve, self._recovered)
        self._gateway = gateway
        self._client: ClusterApi | None = None
        self._connected = asyncio.Event()
        budget = RecordBudget()
        index = self._index
        self._reflectors: list[Reflector[Any]] = [
            self._reflector(_ROUTES, read_route, index.put_route, budget),
            self._reflector(_SERVICES, read_service, index.put_service, budget),
            self._reflector(_SLICES, read_slice, index.put_slice, budget),
            self._reflector(THE_GATEWAY, read_gateway, index.put_gateway, budget),
        ]
        # Nothing waits for these selections: if a kubeconfig user may not read them,
        # services just have no retries and timeouts.
        self._parts = [
            Reflector(
                self._current,
                Selection(kind, labels=_MANAGED),
                read_middleware,
                partial(index.put_part, kind.kind),
                index.parts_listed,
                budget=budget,
            )
            for kind in _PARTS[backend]
        ]
        self._classes = Reflector(
            self._current,
            _CLASSES,
            read_class,
            index.put_class,
            index.classes_listed,
            budget=budget,
        )
        index.follows_parts = lambda: all(
            each.synced and each.lasting_problem is None for each in self._parts
        )

    def counts(self) -> dict[str, int]:
        return {**self._index.counts(), "signals": self._notifier.sent}

    async def run(self) -> None:
        self._notifier.enqueue(self._gateway)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._notifier.run(self._index))
            tasks.create_task(self._stay_connected())
            tasks.create_task(self._notify_absent())
            for reflector in (*self._reflectors, *self._parts, self._classes):
                tasks.create_task(self._keep_running(reflector))

    async def _keep_running(self, reflector: Reflector[Any]) -> None:
        await self._connected.wait()
        while True:
            await reflector.run()
            # When the definition of a kind is deleted all its objects are gone, and no
            # event reports that.
            if await self._is_unserved(reflector.selection.kind):
                reflector.forget()
            await asyncio.sleep(_RESTART_SECONDS)

    async def _is_unserved(self, kind: GroupVersionKind) -> bool:
        """Return whether the API server reports that it does not serve a kind.

        A 404 alone may come from a proxy.
        """
        try:
            served = await self._current().resources(refresh=True)
        except ModelplaneError:
            return False
        return kind not in served and any(each.api_version == _CORE for each in served)

    async def _notify_absent(self) -> None:
        await self._all_listed.wait()
        async for owner in self._find_absent(self._index.workflow_ids()):
            self._notifier.enqueue(owner)

    def _listed(self) -> None:
        """Record that a selection was listed. When all are, owners may be notified."""
        if self._all_are_listed():
            self._all_listed.set()
        self._notifier.wake()

    def _all_are_listed(self) -> bool:
        return all(reflector.synced for reflector in self._reflectors)

    async def _stay_connected(self) -> None:
        while True:
            wait_seconds = await self._health.probe()
            self._put_health()
            self._index.put_class_problem(self._classes.lasting_problem)
            await asyncio.sleep(wait_seconds)

    def _put_health(self) -> None:
        error = self._health.error
        if error is not None and self._health.lost:
            self._index.put_health(reachable=False, error=error.message)
            self._notifier.wake()
        elif error is None:
            self._index.put_health(reachable=True)

    def _reflector(
        self,
        selection: Selection,
        read: Callable[[Json], Any],
        on_change: Callable[[NamespacedName, Any], None],
        budget: RecordBudget,
    ) -> Reflector[Any]:
        return Reflector(
            self._current, selection, read, on_change, self._listed, budget=budget
        )

    def _current(self) -> ClusterApi:
        if self._client is None:
            raise AssertionError("reflectors start after the first response")
        return self._client

    def _recovered(self, client: ClusterApi) -> None:
        self._client = client
        self._connected.set()
        # Connections from before the outage may be broken without an error.
        for reflector in (*self._reflectors, *self._parts, self._classes):
            reflector.resume()

    def _is_blocked(self, owner: ObjectOwner) -> bool:
        """Return whether an owner must wait until everything was listed once.

        A partial list looks like deleted objects.
        """
        if owner == self._gateway and self._health.lost:
            return False
        return not self._all_are_listed()
