"""Apply and remove what routing needs on the control cluster, connect to it, and watch it.

Every activity may run twice, and may be killed between any two requests. Objects of other owners are neither changed nor deleted.
"""

import asyncio
from dataclasses import dataclass
from functools import partial

from temporalio import activity
from temporalio.client import Client

from activities.caller import check_caller
from activities.cluster_objects import kinds
from activities.cluster_objects.cluster_api import ObjectId
from activities.cluster_objects.deletion import Deleter
from activities.cluster_objects.namespaces import ensure_namespace
from activities.cluster_objects.ownership import Owner, owner_of
from activities.heartbeat import heartbeating
from activities.observe.control import backend_digest, names_middleware
from activities.observe.digest import content_digest
from activities.render.objects.manifest import Owner as RenderedOwner
from activities.render.services.endpoint import Backend, endpoint_objects, slice_names
from activities.render.services.route import service_route
from activities.render.services.route_plan import plan_backends
from activities.routing import middlewares
from activities.routing.absent import find_absent
from activities.routing.applying import apply_item, delete_objects, delete_taken_over
from activities.routing.control_cluster import ControlCluster
from activities.routing.watch import ControlWatch
from activities.watching.running import RUN, deliver, this_run, until_first_ends, until_shutdown
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
    """What services, endpoints and the gateway do on the control cluster.

    `load_seconds`: how long after a change of an object the gateway is certain to have loaded it.
    """

    control: ControlCluster
    load_seconds: float = middlewares.LOAD_SECONDS

    # --- backends -----------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def apply_endpoint_backend(self, order: ApplyBackend) -> AppliedBackend:
        """Apply the slice of an endpoint, then its Service; slices with addresses of another type are deleted after that.

        Raises InvalidInput for a URL that no route can use, NameConflict if an object has another owner, NoControlCluster.
        """
        check_caller(order.owner, order.namespace, order.name)
        url = read_url(order.url)
        cluster = await self.control.api()
        if problems := (*url.problems, *address_problems(url, await self.control.denied.of(cluster))):
            raise InvalidInput(f"Invalid spec.url: {masked(order.url)}: {'; '.join(problems)}")
        async with heartbeating() as report:
            owner = RenderedOwner(order.owner, order.namespace, order.name, order.uid, generation=0)
            items = endpoint_objects(owner, order.name, Backend(url))
            # No pod runs there, so it may be one that others made.
            await ensure_namespace(cluster, order.namespace, f"{order.owner} {order.namespace}/{order.name}", shared=True)
            stored = [await apply_item(cluster, item, owner) for item in items]
            (applied_slice, service) = stored
            name: str = service["metadata"]["name"]
            others = [each for each in slice_names(name) if each != applied_slice["metadata"]["name"]]
            # With one of an earlier endpoint of this name requests would go to the addresses of both.
            await delete_taken_over(cluster, owner, report, [ObjectId(kinds.ENDPOINT_SLICE, order.namespace, each) for each in others])
        return AppliedBackend(backend=name, digest=backend_digest(content_digest(service), [content_digest(applied_slice)]))

    @activity.defn
    async def remove_endpoint_backend(self, order: RemoveBackend) -> None:
        """Delete the slices of an endpoint, then its Service, and wait until they are gone. Raises StillThere if that takes too long."""
        check_caller(order.owner, order.namespace, order.name)
        cluster = await self.control.api()
        service = names.endpoint_service_name(order.namespace, order.name)
        async with heartbeating() as report:
            deleter = Deleter(cluster, order.uid, report, None)
            await delete_objects(deleter, [ObjectId(kinds.ENDPOINT_SLICE, order.namespace, each) for each in slice_names(service)])
            await delete_objects(deleter, [ObjectId(kinds.SERVICE, order.namespace, service)])

    # --- routes -------------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def apply_service_route(self, order: ApplyRoute) -> AppliedRoute:
        """Spread the shares of a service over its endpoints, and apply its route. Raises NameConflict or NoControlCluster.

        A route that names a Middleware which the gateway has not loaded answers 404. It loads the two apart, so there is time between them:
        the Middleware comes before the route that names it, and goes after it. Where it cannot be applied the route names none; nor while
        the gateway recovers, and takes longer to load one: a later call names it.
        """
        check_caller(_SERVICE, order.namespace, order.name)
        cluster = await self.control.api()
        async with heartbeating() as report:
            owner = RenderedOwner(_SERVICE, order.namespace, order.name, order.uid, generation=0)
            backends = plan_backends(order.entries)
            await ensure_namespace(cluster, order.namespace, f"{_SERVICE} {order.namespace}/{order.name}", shared=True)
            target = ObjectId(kinds.HTTP_ROUTE, order.namespace, names.service_route_name(order.namespace, order.name))
            middleware = await middlewares.apply_middleware(cluster, owner, order.retries) if order.retries else middlewares.NONE
            # An attempt before this one may have applied or deleted what the gateway does not know yet.
            again = activity.info().attempt > 1
            before = await cluster.get(target)
            # Also an earlier service of this name, which was deleted by force, may have left one, whatever its route names. An earlier
            # attempt may have taken over that route, and not have come to the Middleware.
            middleware_left = order.middleware_left or again or (before is not None and owner_of(before).uid != order.uid)
            if order.gateway_recovers and middleware.digest and not names_middleware(before):
                middleware = middlewares.NOT_LOADED_YET
            if middleware.is_new or (middleware.digest and again):
                await asyncio.sleep(self.load_seconds)
            route_item = service_route(owner, backends, middleware=bool(middleware.digest), timeouts=order.timeouts)
            stored = await apply_item(cluster, route_item, owner)
            if middleware_left and not order.retries:
                if names_middleware(before) or (again and await middlewares.is_there(cluster, owner)):
                    await asyncio.sleep(self.load_seconds)
                await middlewares.delete_middleware_taken_over(cluster, owner, report)
        return AppliedRoute(
            name=stored["metadata"]["name"],
            generation=int(stored["metadata"].get("generation") or 0),
            digest=content_digest(stored),
            backends=[BackendShare(endpoint=backend.endpoint.name, weight=backend.weight) for backend in backends],
            middleware=middleware.digest,
            middleware_problem=middleware.problem,
            timeouts=order.timeouts,
        )

    @activity.defn
    async def remove_service_route(self, order: RemoveRoute) -> None:
        """Delete the route of a service, then its Middleware, and wait until they are gone. Raises StillThere if that takes too long."""
        check_caller(_SERVICE, order.namespace, order.name)
        cluster = await self.control.api()
        async with heartbeating() as report:
            route = ObjectId(kinds.HTTP_ROUTE, order.namespace, names.service_route_name(order.namespace, order.name))
            if order.taken_over:
                owner = RenderedOwner(_SERVICE, order.namespace, order.name, order.uid, generation=0)
                await delete_taken_over(cluster, owner, report, [route])
                await middlewares.delete_middleware_taken_over(cluster, owner, report)
                return
            deleter = Deleter(cluster, order.uid, report, None)
            await delete_objects(deleter, [route])
            if order.middleware_left:
                await middlewares.delete_middleware(deleter, order.namespace, order.name)

    # --- the gateway --------------------------------------------------------------------------------------------------------------

    @activity.defn
    async def connect_gateway(self, order: WatchGateway) -> GatewayFacts:
        """Reach the control cluster, and check that it serves routes and that our permissions suffice."""
        del order
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        return await self.control.check()

    @activity.defn
    async def watch_gateway(self, order: WatchGateway) -> None:
        """Watch the control cluster and signal `control_observed` to the gateway, and to owners of objects there, until cancelled.

        Raises a TransientError when its worker shuts down, so that another worker takes over at once.
        """
        check_caller(_GATEWAY, "", SINGLETON_NAME)
        gateway = Owner(_GATEWAY, "", SINGLETON_NAME, order.uid)
        run = this_run(order.number, order.began)
        send = partial(_signal, activity.client(), run)
        watch = ControlWatch(gateway, self.control.api, send, find_absent)
        await until_first_ends(watch.run(), _heartbeat(watch, run), until_shutdown())


async def _signal(client: Client, run: int, owner: Owner, observed: ControlObserved) -> bool:
    message = observed.model_copy(update={"run": run})
    request = ControlObservedSignals.CONTROL_OBSERVED.request(EntityRef[ControlObservedSignals](owner.workflow_id), message)
    return await deliver(client, request)


async def _heartbeat(watch: ControlWatch, run: int) -> None:
    while True:
        activity.heartbeat({**watch.counts(), RUN: run})
        await asyncio.sleep(_HEARTBEAT_SECONDS)
