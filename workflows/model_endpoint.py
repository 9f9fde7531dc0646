"""ModelEndpoint: an endpoint that a user wrote, such as that of a provider.

Its backend is applied on the control cluster and it is reported to the EndpointDirectory of its namespace, as that of a ModelReplica is.
Before the backend is removed, because of a deletion or of a URL that cannot be used any more, no route has it.
"""

from typing import Any

from pydantic import Field
from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.routing.activities import RoutingActivities
from api_types.messages.gateway_work import ControlObserved
from api_types.messages.routing import EndpointWithdrawn, GatewayChanged
from api_types.messages.scheduling import Resync
from api_types.messages.signals import ModelEndpointSignals
from api_types.text.endpoint_address import address_problems
from api_types.text.endpoint_url import masked, read_url, rewrite_path_problems
from workflows.entity.calls import activity_options
from workflows.entity.conditions import FALSE, TRUE, Verdict
from workflows.entity.entity import Entity
from workflows.entity.failures import failure_of
from workflows.entity.handles import handles
from workflows.entity.registering.endpoint import (
    ApplyBackendOrder,
    EndpointOrder,
    EndpointPublication,
    PublishedEndpoint,
    RemoveBackendOrder,
    ReportOrder,
    WantedEndpoint,
)
from workflows.entity.registering.gateway_user import FollowedGateway, GatewayUser
from workflows.entity.start import read_carried
from workflows.entity.state import EntityState


class EndpointState(EntityState):
    """The state of an endpoint: what is known of the gateway, and how far it is published."""

    gateway: FollowedGateway = Field(default_factory=FollowedGateway)
    endpoint: PublishedEndpoint = Field(default_factory=PublishedEndpoint)


@workflow.defn(name="ModelEndpoint")
class ModelEndpointWorkflow(Entity[EndpointState]):
    """Workflow id modelendpoint/<namespace>/<name>; ends when it is deleted, no route has it and its backend is gone."""

    kind = "ModelEndpoint"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, EndpointState) or EndpointState())
        self.gateway = GatewayUser(self.context, self.state.gateway, "ModelEndpoint")
        self.publication = EndpointPublication(self.context, self.state.endpoint, "ModelEndpoint", workflow.patched)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the endpoint is deleted and its backend is gone."""
        del arguments
        await self.run_until_deleted()

    # --- messages -----------------------------------------------------------------------------------------------------------------

    @handles(ModelEndpointSignals.GATEWAY_CHANGED)
    def gateway_changed(self, message: GatewayChanged) -> None:
        """Store the state of the gateway."""
        self.gateway.record(message)

    @handles(ModelEndpointSignals.ENDPOINT_WITHDRAWN)
    def endpoint_withdrawn(self, message: EndpointWithdrawn) -> None:
        """Store that no route has this endpoint any more."""
        if self.publication.record_withdrawn(message):
            self.context.requeue()

    @handles(ModelEndpointSignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store what the watch of the control cluster saw of the backend."""
        if self.publication.record_observed(message, self.state.gateway.version.uid):
            self.context.requeue()

    @handles(ModelEndpointSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again to a directory that lost its state."""
        del message
        self.publication.report_again()
        self.context.requeue()

    @workflow.query
    def endpoint_report(self) -> dict[str, Any] | None:
        """Give what this endpoint reports to the directory of its namespace."""
        report = self.publication.report()
        return report.wire() if report else None

    # --- hooks of the entity ------------------------------------------------------------------------------------------------------

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Make the next attempt at once: a new spec may help."""
        if new_generation:
            self.publication.retry()

    def on_retry_requested(self) -> None:
        """Make the next attempt at once."""
        self.publication.retry()
        self.gateway.retry()

    def receivers(self) -> list[str]:
        """Name the directory and the gateway, where they know of this endpoint."""
        return [*self.publication.receivers(), *self.gateway.registered_at()]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report again to those that were started anew."""
        if any(each in workflow_ids for each in self.publication.receivers()):
            self.publication.report_again()
        self.gateway.register_again(workflow_ids)

    def status(self) -> dict[str, Any]:
        """Show the backend."""
        applied = self.state.endpoint.applied
        return {"routing": {"backendName": applied.backend}} if applied else {}

    # --- one pass -----------------------------------------------------------------------------------------------------------------

    async def reconcile(self) -> bool:
        """Publish the endpoint; or withdraw it, because it is deleted or its URL cannot be used."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        # A spec that comes while this pass waits is judged by the next one.
        generation = self.state.generation
        await self.gateway.follow()
        problems = self.problems()
        if problems:
            await self.carry_out(self.publication.withdraw())
            await self.carry_out(self.publication.remove())
        else:
            await self.publish_endpoint()
        verdict = self.routing_ready(problems)
        self.context.set_condition("RoutingReady", *verdict)
        self.context.set_condition("Ready", *verdict)
        self.state.observed_generation = generation
        return False

    async def publish_endpoint(self) -> None:
        """Apply the backend, then report the endpoint to the directory."""
        spec, gateway = self.state.spec or {}, self.state.gateway
        wanted = WantedEndpoint(
            url=spec["url"],
            labels=self.state.labels,
            rewrite_path=spec.get("rewritePath"),
            made_from=str(gateway.known.connects) if gateway.known else "",
        )
        while orders := self.publication.publish(wanted, may_apply=gateway.connected):
            await self.carry_out(orders)

    async def carry_out(self, orders: list[EndpointOrder]) -> None:
        """Carry orders out, and record what came of them."""
        for order in orders:
            match order:
                case ReportOrder(signal):
                    await self.context.send(signal, recorded=True)
                case ApplyBackendOrder(request):
                    options = activity_options.on_cluster(activity_options.APPLY, f"apply the backend of {self.title}")
                    try:
                        applied = await workflow.execute_activity_method(RoutingActivities.apply_endpoint_backend, request, **options)
                    except ActivityError as error:
                        self.publication.failed(failure_of(error))
                    else:
                        self.publication.applied(order, applied)
                case RemoveBackendOrder(request):
                    options = activity_options.on_cluster(activity_options.APPLY, f"remove the backend of {self.title}")
                    try:
                        await workflow.execute_activity_method(RoutingActivities.remove_endpoint_backend, request, **options)
                    except ActivityError as error:
                        self.publication.failed(failure_of(error))
                    else:
                        self.publication.removed()

    # --- conditions ---------------------------------------------------------------------------------------------------------------

    def problems(self) -> list[str]:
        """Say why the spec cannot be used in a route."""
        spec, known = self.state.spec or {}, self.state.gateway.known
        url = read_url(spec["url"])
        # Before a worker has said what is denied, nothing is: what earlier versions published stays until then.
        denied = () if known is None or known.denied_cidrs is None else address_problems(url, known.denied_cidrs)
        found = [f"Invalid spec.url: {masked(spec['url'])}: {problem}" for problem in (*url.problems, *denied)]
        path = spec.get("rewritePath")
        if path is not None:
            found += [f"Invalid spec.rewritePath: {path}: {problem}" for problem in rewrite_path_problems(path)]
        return found

    def routing_ready(self, problems: list[str]) -> Verdict:
        """Say whether services can route this endpoint."""
        published, gateway = self.state.endpoint, self.state.gateway
        if problems:
            return Verdict(FALSE, "InvalidURL", "; ".join(problems))
        if published.failure.type == "InvalidInput":
            return Verdict(FALSE, "InvalidURL", published.failure.message)
        if published.failure.type:
            return Verdict(FALSE, "WaitingForBackend", f"{published.failure.type}: {published.failure.message}")
        if published.applied is None:
            return Verdict(FALSE, "WaitingForBackend", gateway.problem or "the backend is not applied yet")
        return Verdict(TRUE, "BackendConfigured", f"Service {self.namespace}/{published.applied.backend}")

    # --- teardown -----------------------------------------------------------------------------------------------------------------

    async def tear_down(self) -> bool:
        """Withdraw the endpoint, wait until no route has it, remove its backend. True when it is gone."""
        published = self.state.endpoint
        for kind in ("RoutingReady", "Ready"):
            self.context.set_condition(kind, FALSE, "Deleting")
        await self.carry_out(self.publication.withdraw())
        if not published.is_withdrawn and not self.state.forced:
            self._wait("the routes of services still have it")
            return False
        if published.backend_started and not await self._backend_is_removed():
            return False
        await self.carry_out(self.publication.end())
        await self.gateway.leave()
        return True

    async def _backend_is_removed(self) -> bool:
        if self.state.forced and not self.state.endpoint.is_withdrawn:
            self.publication.abandon("the teardown was forced while routes may have it")
            return True
        await self.carry_out(self.publication.remove())
        if not self.state.endpoint.backend_started:
            return True
        if self.state.forced and self.state.endpoint.failure.type:
            self.publication.abandon(f"the teardown was forced; {self.state.endpoint.failure.type}")
            return True
        failure = self.state.endpoint.failure
        self._wait(f"its backend remains: {failure.type}: {failure.message}" if failure.type else "the gateway follows its routes")
        return False

    def _wait(self, what: str) -> None:
        self.context.set_condition("Deleting", FALSE, "InProgress", what)
