"""Connect to the control cluster, apply and delete routing objects there, and watch it.

Every activity is idempotent and may be killed between any two requests. Objects of
other owners are neither changed nor deleted.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from temporalio import activity
from temporalio.client import Client

from activities.caller import check_caller
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ClusterApi, Json, ObjectId
from activities.cluster_objects.namespaces import ensure_namespace
from activities.cluster_objects.ownership import ObjectOwner, owner_of
from activities.heartbeat import Progress, heartbeating
from activities.observe.control import backend_digest, names_middleware
from activities.observe.digest import content_digest
from activities.render.objects.manifest import RenderOwner
from activities.render.services.endpoint import Backend, endpoint_objects, slice_names
from activities.render.services.route import service_route
from activities.render.services.route_plan import RoutedBackend, plan_backends
from activities.routing import envoy_routes, middlewares
from activities.routing.absent import find_absent
from activities.routing.applying import apply_item, delete_taken_over, remove_objects
from activities.routing.control_cluster import ControlCluster
from activities.routing.watch import ControlWatch
from activities.watching.running import (
    RUN,
    deliver,
    this_run,
    until_first_ends,
    until_shutdown,
)
from api_types import names
from api_types.errors import InvalidInput
from api_types.messages.delivery import EntityRef
from api_types.messages.gateway_work import (
    AppliedBackend,
    AppliedRoute,
    ApplyBackend,
    ApplyRoute,
    BackendShare,
    ControlObserved,
    GatewayFacts,
    RemoveBackend,
    RemoveRoute,
    WatchGateway,
)
from api_types.messages.signals import ControlObservedSignals
from api_types.resources.inference_gateway import SINGLETON_NAME
from api_types.text.endpoint_address import address_problems
from api_types.text.endpoint_url import masked, read_url

_GATEWAY = "InferenceGateway"
_SERVICE = "ModelService"
_HEARTBEAT_SECONDS = 10.0


@dataclass(frozen=True)
class RoutingActivities:
    """The activities of services, endpoints and the gateway on the control cluster.

    `load_seconds` is the time after which the gateway has loaded a changed object.
    """

    control: ControlCluster
    load_seconds: float = middlewares.LOAD_SECONDS

    # Backends

    @activity.defn
    async def apply_endpoint_backend(self, order: ApplyBackend) -> AppliedBackend:
        """Apply the slice of an endpoint, then its Service.

        Slices of another address type are deleted afterwards. Raises InvalidInput for a
        URL that no route can use, NameConflict if an object has another owner, and
        NoControlCluster.
        """
        check_caller(order.owner, order.namespace, order.name)
        url = read_url(order.url)
        cluster = await self.control.api()
        denied = await self.control.denied.of(cluster)
        problems = [*url.problems, *address_problems(url, denied)]
        if problems:
            raise InvalidInput(
                f"Invalid spec.url: {masked(order.url)}: {'; '.join(problems)}"
            )
        async with heartbeating() as report:
            owner = RenderOwner(
                order.owner, order.namespace, order.name, order.uid, generation=0
            )
            items = endpoint_objects(owner, order.name, Backend(url))
            # No pod runs in this namespace, so it may be used whoever created it.
            await ensure_namespace(
                cluster,
                order.namespace,
                f"{order.owner} {order.namespace}/{order.name}",
                shared=True,
            )
            stored = [await apply_item(cluster, item, owner) for item in items]
            (applied_slice, service) = stored
            name: str = service["metadata"]["name"]
            others = [
                each
                for each in slice_names(name)
                if each != applied_slice["metadata"]["name"]
            ]
            # If a slice of an earlier endpoint of this name remained, requests would go
            # to the addresses of both.
            await delete_taken_over(
                cluster,
                owner,
                report,
                [
                    ObjectId(kinds.ENDPOINT_SLICE, order.namespace, each)
                    for each in others
                ],
            )
        return AppliedBackend(
            backend=name,
            digest=backend_digest(
                content_digest(service), [content_digest(applied_slice)]
            ),
        )

    @activity.defn
    async def remove_endpoint_backend(self, order: RemoveBackend) -> None:
        """Delete the slices of an endpoint, then its Service, and wait for their end.

        Raises StillThere if that takes too long.
        """
        check_caller(order.owner, order.namespace, order.name)
        cluster = await self.control.api()
        service = names.endpoint_service_name(order.namespace, order.name)
        owner = RenderOwner(
            order.owner, order.namespace, order.name, order.uid, generation=0
        )
        slices = [
            ObjectId(kinds.ENDPOINT_SLICE, order.namespace, each)
            for each in slice_names(service)
        ]
        async with heartbeating() as report:
            for targets in (
                slices,
                [ObjectId(kinds.SERVICE, order.namespace, service)],
            ):
                await remove_objects(
                    cluster,
                    owner,
                    report,
                    targets,
                    of_predecessors=order.of_predecessors,
                )

    # Routes

    @activity.defn
    async def apply_service_route(self, order: ApplyRoute) -> AppliedRoute:
        """Distribute the shares of a service over its endpoints, and apply its route.

        A route that references a Middleware which the gateway has not loaded responds
        with 404. The gateway loads the two separately, so there is a pause between
        them: the Middleware is applied before the route that references it, and deleted
        after it. If the Middleware cannot be applied, the route references none. While
        the gateway recovers and needs longer to load it, the route references none
        either, and a later call adds the reference.

        Raises NameConflict or NoControlCluster.
        """
        check_caller(_SERVICE, order.namespace, order.name)
        cluster = await self.control.api()
        async with heartbeating() as report:
            owner = RenderOwner(
                _SERVICE, order.namespace, order.name, order.uid, generation=0
            )
            backends = plan_backends(order.entries)
            await ensure_namespace(
                cluster,
                order.namespace,
                f"{_SERVICE} {order.namespace}/{order.name}",
                shared=True,
            )
            if order.gateway == "Envoy":
                stored, parts = await envoy_routes.apply_route(
                    cluster, owner, order, backends, report
                )
                middleware = middlewares.AppliedMiddleware(parts)
            else:
                stored, middleware = await self._apply_route(
                    cluster, owner, order, backends, report
                )
        return AppliedRoute(
            name=stored["metadata"]["name"],
            generation=int(stored["metadata"].get("generation") or 0),
            digest=content_digest(stored),
            backends=[
                BackendShare(endpoint=backend.endpoint.name, weight=backend.weight)
                for backend in backends
            ],
            middleware=middleware.digest,
            middleware_problem=middleware.problem,
            timeouts=order.timeouts,
        )

    async def _apply_route(
        self,
        cluster: ClusterApi,
        owner: RenderOwner,
        order: ApplyRoute,
        backends: Sequence[RoutedBackend],
        report: Callable[[Progress], None],
    ) -> tuple[Json, middlewares.AppliedMiddleware]:
        """Apply the Middleware and the route, and delete an obsolete Middleware."""
        target = ObjectId(
            kinds.HTTP_ROUTE,
            order.namespace,
            names.service_route_name(order.namespace, order.name),
        )
        middleware = middlewares.NONE
        if order.retries:
            middleware = await middlewares.apply_middleware(
                cluster, owner, order.retries
            )
        # An earlier attempt may have applied or deleted objects that the gateway has
        # not loaded yet.
        again = activity.info().attempt > 1
        before = await cluster.get(target)
        # An earlier service of this name, which was deleted by force, may have left a
        # Middleware. Its route need not reference it, and may be gone. An earlier
        # attempt may have taken over that route but not the Middleware.
        is_first = before is None or owner_of(before).uid != order.uid
        middleware_left = order.middleware_left or again or is_first
        is_named = names_middleware(before)
        if order.gateway_recovers and middleware.digest and not is_named:
            middleware = middlewares.NOT_LOADED_YET
        if middleware.is_new or (middleware.digest and again):
            await asyncio.sleep(self.load_seconds)
        route_item = service_route(
            owner,
            backends,
            middleware=bool(middleware.digest),
            timeouts=order.timeouts,
        )
        stored = await apply_item(cluster, route_item, owner)
        if middleware_left and not order.retries:
            if is_named or (again and await middlewares.is_there(cluster, owner)):
                await asyncio.sleep(self.load_seconds)
            await middlewares.delete_middleware_taken_over(cluster, owner, report)
        return stored, middleware

    @activity.defn
    async def remove_service_route(self, order: RemoveRoute) -> None:
        """Delete the route of a service, then the objects that it refers to.

        Waits for their end.

        Raises StillThere if that takes too long.
        """
        check_caller(_SERVICE, order.namespace, order.name)
        cluster = await self.control.api()
        owner = RenderOwner(
            _SERVICE, order.namespace, order.name, order.uid, generation=0
        )
        route = ObjectId(
            kinds.HTTP_ROUTE,
            order.namespace,
            names.service_route_name(order.namespace, order.name),
        )
        async with heartbeating() as report:
            remove = partial(
                remove_objects,
                cluster,
                owner,
                report,
                of_predecessors=order.of_predecessors,
            )
            await remove([route])
            # An earlier service of the name may have been behind the other gateway.
            if order.gateway == "Envoy" or order.of_predecessors:
                await remove(await envoy_routes.parts_of(cluster, owner))
            if order.gateway != "Envoy" and order.middleware_left:
                await middlewares.delete_middleware(owner, remove)

    # The gateway

    @activity.defn
    async def connect_gateway(self, order: WatchGateway) -> GatewayFacts:
        """Connect to the control cluster, and check its kinds and permissions."""
        del order
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        return await self.control.check()

    @activity.defn
    async def watch_gateway(self, order: WatchGateway) -> None:
        """Watch the control cluster, and signal changes to the gateway and to owners.

        The signal is `control_observed`. Runs until cancelled. Raises a TransientError
        when its worker shuts down, so that another worker takes over at once.
        """
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        gateway = ObjectOwner(_GATEWAY, "", SINGLETON_NAME, order.uid)
        run = this_run(order.number, order.began)
        send = partial(_signal, activity.client(), run)
        watch = ControlWatch(
            gateway, self.control.api, send, find_absent, order.gateway or "Traefik"
        )
        await until_first_ends(watch.run(), _heartbeat(watch, run), until_shutdown())


async def _signal(
    client: Client, run: int, owner: ObjectOwner, observed: ControlObserved
) -> bool:
    message = observed.model_copy(update={"run": run})
    request = ControlObservedSignals.CONTROL_OBSERVED.request(
        EntityRef[ControlObservedSignals](owner.workflow_id), message
    )
    return await deliver(client, request)


async def _heartbeat(watch: ControlWatch, run: int) -> None:
    while True:
        activity.heartbeat({**watch.counts(), RUN: run})
        await asyncio.sleep(_HEARTBEAT_SECONDS)
