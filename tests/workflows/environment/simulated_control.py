"""Simulated clusters with a simulated control cluster.

The results of its activities, and the reports of its watch. It records the order in
which backends and routes are applied and deleted. Other tests check how a real control
cluster handles the objects.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from temporalio import activity
from temporalio.client import Client

from activities.render.services.route_plan import plan_backends
from activities.routing.middlewares import NOT_LOADED_YET
from api_types import labels, names
from api_types.digests import report_digest
from api_types.errors import ClusterUnreachable, NameConflict, NoControlCluster
from api_types.messages.gateway_work import (
    AppliedBackend,
    AppliedRoute,
    ApplyBackend,
    ApplyRoute,
    BackendShare,
    ControlObserved,
    GatewayFacts,
    InstallStepResult,
    ObservedGateway,
    ObservedServiceRoute,
    RemoveBackend,
    RemoveRoute,
    RouteRetries,
    RunInstallStep,
    WatchGateway,
)
from api_types.messages.routing import TimeoutSupport
from tests.workflows.environment.harness import Json, eventually
from tests.workflows.environment.simulated_clusters import (
    API_VERSION,
    HEARTBEAT_SECONDS,
    SimulatedClusters,
    signal_if_open,
)

ADDRESS = "10.245.255.1"


@dataclass
class SimulatedControl(SimulatedClusters):
    """The activities on clusters and on the control cluster.

    - `configured`: whether a control cluster exists. `down`: whether it is unreachable.
    - `gateway`: whether its Gateway exists, which the last step installs.
    - `address`: the address of its gateway.
    - `orders`: the orders of installation steps.
    - `done`: the applied and deleted objects in order, as `apply route qwen [a, b]`.
    - `routes`, `backends`: the objects that exist now.
    - `waits`: per incomplete step, the message of its wait.
    - `ineffective`: steps whose effect others revert.
    - `denied`: networks in which endpoints are forbidden.
    - `unavailable`: why no Middleware can be applied, or "".
    - `middlewares`: the existing Middlewares. `named`: services whose routes name theirs.
    - `taken`: services whose routes have the name of another owner's object.
    - `timeouts`: those that the gateway class supports; None until the watch has read it.
    """

    configured: bool = True
    down: bool = False
    gateway: bool = True
    address: str = ADDRESS
    resolves: bool = True
    follows: bool = True
    waits: dict[str, str] = field(default_factory=dict)
    ineffective: set[str] = field(default_factory=set)
    denied: list[str] = field(default_factory=list)
    orders: list[RunInstallStep] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    routes: dict[str, ApplyRoute] = field(default_factory=dict)
    backends: dict[str, str] = field(default_factory=dict)
    unavailable: str = ""
    taken: set[str] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    middlewares: dict[str, RouteRetries] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    timeouts: TimeoutSupport | None = None
    _watching: WatchGateway | None = None
    _sequence: int = 0

    def __post_init__(self) -> None:
        self.settings = {
            **self.settings,
            "control_cluster": "modelplane-system/control/kubeconfig",
        }

    def _check(self) -> None:
        if not self.configured:
            raise NoControlCluster(
                "no control cluster is configured; set controlCluster.name to a "
                "Secret with its kubeconfig"
            )
        if self.down:
            raise ClusterUnreachable("the control cluster does not answer")

    @activity.defn
    async def apply_endpoint_backend(self, order: ApplyBackend) -> AppliedBackend:
        self._check()
        backend = names.endpoint_service_name(order.namespace, order.name)
        self.backends[backend] = order.url
        self.done.append(f"apply backend {order.name}")
        return AppliedBackend(backend=backend, digest="as-applied")

    @activity.defn
    async def remove_endpoint_backend(self, order: RemoveBackend) -> None:
        self._check()
        self.backends.pop(
            names.endpoint_service_name(order.namespace, order.name), None
        )
        self.done.append(f"remove backend {order.name}")

    @activity.defn
    async def apply_service_route(self, order: ApplyRoute) -> AppliedRoute:
        self._check()
        backends = plan_backends(order.entries)
        if order.name in self.taken:
            raise NameConflict(
                f"control cluster: HTTPRoute {order.name} exists already and belongs to others"
            )
        missing = [
            backend.endpoint.name
            for backend in backends
            if backend.endpoint.backend not in self.backends
        ]
        assert not missing, f"no backends for {missing}"
        if self.routes.get(order.name) != order:
            self.generations[order.name] = self.generations.get(order.name, 0) + 1
        self.routes[order.name] = order
        problem = self.unavailable if order.retries else ""
        if order.retries and order.gateway_recovers and order.name not in self.named:
            problem = problem or NOT_LOADED_YET.problem
        if order.retries and not self.unavailable:
            self.middlewares[order.name] = order.retries
        (self.named.add if order.retries and not problem else self.named.discard)(
            order.name
        )
        if order.middleware_left and not order.retries:
            self.middlewares.pop(order.name, None)
        self.done.append(
            f"apply route {order.name} [{', '.join(backend.endpoint.name for backend in backends)}]"
        )
        self._report_route(order.namespace, order.name, order.uid)
        return AppliedRoute(
            name=names.service_route_name(order.namespace, order.name),
            generation=self.generations[order.name],
            digest=self._digest(order.name),
            backends=[
                BackendShare(endpoint=backend.endpoint.name, weight=backend.weight)
                for backend in backends
            ],
            middleware=self._middleware(order.name)
            if order.retries and not problem
            else "",
            middleware_problem=problem,
            timeouts=order.timeouts,
        )

    @activity.defn
    async def remove_service_route(self, order: RemoveRoute) -> None:
        self._check()
        self.routes.pop(order.name, None)
        if order.middleware_left:
            self.middlewares.pop(order.name, None)
        self.done.append(f"remove route {order.name}")
        self._report_route(order.namespace, order.name, order.uid)

    @activity.defn
    async def connect_gateway(self, order: WatchGateway) -> GatewayFacts:
        del order
        self._check()
        return GatewayFacts(
            kubernetes_version="v1.35.4", uid="control", denied_cidrs=self.denied
        )

    @activity.defn
    async def watch_gateway(self, order: WatchGateway) -> None:
        self._watching = order
        shown: tuple[bool, bool, str, TimeoutSupport | None] | None = None
        while True:
            if (
                seen := (self.down, self.gateway, self.address, self.timeouts)
            ) != shown:
                shown = seen
                gateway = ObservedGateway(
                    reachable=not self.down,
                    error="no answer" if self.down else "",
                    accepted=not self.down and self.gateway,
                    address="" if self.down else self.address,
                    message=""
                    if self.address
                    else "Gateway modelplane-system/modelplane has no address yet",
                    timeouts=None if self.down else self.timeouts,
                )
                observed = ControlObserved(
                    owner_uid=order.uid, gateway_uid=order.uid, gateway=gateway
                )
                await self._observe("inferencegateway/default", observed)
            activity.heartbeat()
            await asyncio.sleep(HEARTBEAT_SECONDS / 25)

    @activity.defn
    async def run_install_step(self, order: RunInstallStep) -> InstallStepResult:
        self._check()
        self.orders.append(order)
        self.done.append(f"{'remove' if order.remove else 'install'} {order.step}")
        self.gateway = self.gateway or (
            order.step == "gateway" and order.step not in self.ineffective
        )
        return InstallStepResult(
            done=order.step not in self.waits, message=self.waits.get(order.step, "")
        )

    def activities(self) -> list[Callable[..., Any]]:
        return [
            *super().activities(),
            self.apply_endpoint_backend,
            self.apply_service_route,
            self.connect_gateway,
            self.watch_gateway,
            self.run_install_step,
        ]

    def _digest(self, name: str) -> str:
        return f"digest-{self.generations[name]}" if name in self.routes else ""

    def _middleware(self, name: str) -> str:
        return (
            report_digest(self.middlewares[name].wire())
            if name in self.middlewares
            else ""
        )

    def lose_middleware(self, service: str, client: Client) -> None:
        """Delete the Middleware of a service, as a user with kubectl can."""
        del self.middlewares[service]
        self._report_route(
            self.routes[service].namespace, service, self.routes[service].uid, client
        )

    def _report_route(
        self, namespace: str, name: str, uid: str, client: Client | None = None
    ) -> None:
        """Send the watch's report after the activity has ended."""
        watching, client = self._watching, client or activity.client()
        if watching is None:
            return

        async def send() -> None:
            await asyncio.sleep(0.1)
            await tell()
            if not self.follows:
                await eventually(
                    follows, bool, what="a gateway that follows its routes"
                )
                await tell()

        async def follows() -> bool:
            return self.follows

        async def tell() -> None:
            route = ObservedServiceRoute(
                present=name in self.routes,
                generation=self.generations.get(name, 0),
                digest=self._digest(name),
                accepted=self.follows,
                resolved=self.resolves,
                message="" if self.resolves else "a backend cannot be resolved",
                middleware=self._middleware(name),
            )
            observed = ControlObserved(
                owner_uid=uid, gateway_uid=watching.uid, route=route
            )
            handle = client.get_workflow_handle(
                names.workflow_id("ModelService", namespace, name)
            )
            await signal_if_open(
                handle, "control_observed", self._ordered(observed).wire()
            )

        task = asyncio.create_task(send())
        self._reports.add(task)
        task.add_done_callback(self._reports.discard)

    async def _observe(self, workflow_id: str, observed: ControlObserved) -> None:
        handle = activity.client().get_workflow_handle(workflow_id)
        await signal_if_open(handle, "control_observed", self._ordered(observed).wire())

    def _ordered(self, observed: ControlObserved) -> ControlObserved:
        self._sequence += 1
        return observed.model_copy(update={"run": 1, "sequence": self._sequence})


def a_gateway(*, version: str = "41.0.2", installed: bool = False) -> Json:
    """Return the gateway.

    Its InferenceGateway installs it if `installed`, and others otherwise.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceGateway",
        "metadata": {
            "name": "default",
            "annotations": {} if installed else {labels.STACK: "external"},
        },
        "spec": {"backend": "Traefik", "traefik": {"version": version}},
    }


def an_envoy_gateway(*, installed: bool = False, **envoy: Any) -> Json:
    """Return the gateway with the backend Envoy and the fields of its block."""
    block = {"envoy": envoy} if envoy else {}
    return {**a_gateway(installed=installed), "spec": {"backend": "Envoy", **block}}


def a_service(name: str, *entries: Json, namespace: str = "ml-team") -> Json:
    """Return a service with these entries."""
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelService",
        "metadata": metadata,
        "spec": {"endpoints": list(entries)},
    }


def selecting(
    match_labels: Mapping[str, str], *, weight: int = 1, priority: int = 0
) -> Json:
    """Return an entry that selects by these labels."""
    return {
        "weight": weight,
        "priority": priority,
        "selector": {"matchLabels": dict(match_labels)},
    }


def an_endpoint(
    name: str,
    url: str = "https://api.example.com/v1",
    *,
    namespace: str = "ml-team",
    **own_labels: str,
) -> Json:
    """Return a hand-written endpoint."""
    metadata = {"name": name, "namespace": namespace, "labels": own_labels}
    return {
        "apiVersion": API_VERSION,
        "kind": "ModelEndpoint",
        "metadata": metadata,
        "spec": {"url": url},
    }
