"""ModelEndpoint: an endpoint that a user created, for example of a provider.

Its backend is applied on the control cluster, and the EndpointDirectory of its
namespace publishes it, as for a ModelReplica. After a deletion, or with an unusable
URL, the backend is removed only when no route has it.
"""

from typing import Any

from pydantic import Field
from temporalio import workflow
from temporalio.exceptions import ActivityError

from activities.routing.activities import RoutingActivities
from api_types.errors import NoControlCluster
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
    """The state of an endpoint: the gateway, and the progress of its publication."""

    gateway: FollowedGateway = Field(default_factory=FollowedGateway)
    endpoint: PublishedEndpoint = Field(default_factory=PublishedEndpoint)


@workflow.defn(name="ModelEndpoint")
class ModelEndpointWorkflow(Entity[EndpointState]):
    """Workflow id modelendpoint/<namespace>/<name>.

    It ends when the endpoint is deleted, no route has it and its backend is gone.
    """

    kind = "ModelEndpoint"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, EndpointState) or EndpointState())
        self.gateway = GatewayUser(self.context, self.state.gateway, "ModelEndpoint")
        self.publication = EndpointPublication(
            self.context, self.state.endpoint, "ModelEndpoint"
        )

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the endpoint is deleted and its backend is gone."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(ModelEndpointSignals.GATEWAY_CHANGED)
    def gateway_changed(self, message: GatewayChanged) -> None:
        """Store the state of the gateway."""
        self.gateway.record(message)

    @handles(ModelEndpointSignals.ENDPOINT_WITHDRAWN)
    def endpoint_withdrawn(self, message: EndpointWithdrawn) -> None:
        """Record that no route has this endpoint any more."""
        if self.publication.record_withdrawn(message):
            self.context.requeue()

    @handles(ModelEndpointSignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store the backend that the watch of the control cluster observed."""
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
        """Return the report of this endpoint to the directory of its namespace."""
        report = self.publication.report()
        return report.wire() if report else None

    # Hooks of the entity

    def on_manifest_changed(self, *, new_generation: bool) -> None:
        """Make the next attempt at once: a new spec may help."""
        if new_generation:
            self.publication.retry()

    def on_reset(self) -> None:
        """Record that reports and a backend of the tasks that were reset may exist."""
        self.publication.note_unknown()

    def on_retry_requested(self) -> None:
        """Make the next attempt at once."""
        self.publication.retry()
        self.gateway.retry()

    def receivers(self) -> list[str]:
        """Return the directory and the gateway, if they know this endpoint."""
        return [*self.publication.receivers(), *self.gateway.registered_at()]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report again to restarted receivers."""
        if any(each in workflow_ids for each in self.publication.receivers()):
            self.publication.report_again()
        self.gateway.register_again(workflow_ids)

    def status(self) -> dict[str, Any]:
        """Return the backend."""
        applied = self.state.endpoint.applied
        return {"routing": {"backendName": applied.backend}} if applied else {}

    # One pass

    async def reconcile(self) -> bool:
        """Publish the endpoint. Withdraw it if it is deleted or its URL is unusable."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        # The next pass checks a spec that arrives during this one.
        generation = self.state.generation
        await self.gateway.follow()
        problems = self.problems()
        if problems:
            if self.state.endpoint.sequence == 0 and self.state.gateway.connected:
                self.publication.note_unknown()
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
        """Carry out orders, and record their results."""
        for order in orders:
            match order:
                case ReportOrder(signal):
                    await self.context.send(signal, recorded=True)
                case ApplyBackendOrder(request):
                    options = activity_options.on_cluster(
                        activity_options.APPLY, f"apply the backend of {self.title}"
                    )
                    try:
                        applied = await workflow.execute_activity_method(
                            RoutingActivities.apply_endpoint_backend, request, **options
                        )
                    except ActivityError as error:
                        self.publication.failed(failure_of(error))
                    else:
                        self.publication.applied(order, applied)
                case RemoveBackendOrder(request):
                    options = activity_options.on_cluster(
                        activity_options.APPLY, f"remove the backend of {self.title}"
                    )
                    try:
                        await workflow.execute_activity_method(
                            RoutingActivities.remove_endpoint_backend,
                            request,
                            **options,
                        )
                    except ActivityError as error:
                        self.publication.failed(failure_of(error))
                    else:
                        self.publication.removed()

    # Conditions

    def problems(self) -> list[str]:
        """Return why routes cannot use the spec."""
        spec, known = self.state.spec or {}, self.state.gateway.known
        url = read_url(spec["url"])
        # Until a worker has reported the denied networks, none is denied. Endpoints
        # that earlier versions published stay until then.
        denied = (
            ()
            if known is None or known.denied_cidrs is None
            else address_problems(url, known.denied_cidrs)
        )
        found = [
            f"Invalid spec.url: {masked(spec['url'])}: {problem}"
            for problem in (*url.problems, *denied)
        ]
        path = spec.get("rewritePath")
        if path is not None:
            found += [
                f"Invalid spec.rewritePath: {path}: {problem}"
                for problem in rewrite_path_problems(path)
            ]
        return found

    def routing_ready(self, problems: list[str]) -> Verdict:
        """Return the RoutingReady condition: whether services can route the endpoint."""
        published, gateway = self.state.endpoint, self.state.gateway
        if problems:
            return Verdict(FALSE, "InvalidURL", "; ".join(problems))
        if published.failure.type == "InvalidInput":
            return Verdict(FALSE, "InvalidURL", published.failure.message)
        if published.failure.type:
            return Verdict(
                FALSE,
                "WaitingForBackend",
                f"{published.failure.type}: {published.failure.message}",
            )
        if published.applied is None:
            return Verdict(
                FALSE,
                "WaitingForBackend",
                gateway.problem or "the backend is not applied yet",
            )
        return Verdict(
            TRUE,
            "BackendConfigured",
            f"Service {self.namespace}/{published.applied.backend}",
        )

    # Teardown

    async def tear_down(self) -> bool:
        """Withdraw the endpoint, wait for the routes, and remove its backend.

        Return True when it is gone.
        """
        published = self.state.endpoint
        for kind in ("RoutingReady", "Ready"):
            self.context.set_condition(kind, FALSE, "Deleting")
        if published.applied is None:
            # The first apply takes over the backend of an endpoint that was terminated.
            self.publication.note_unknown()
        await self.carry_out(self.publication.withdraw())
        if not published.is_withdrawn and not self.state.forced:
            self._wait("the routes of services still have it")
            return False
        if not await self._backend_is_removed():
            return False
        await self.carry_out(self.publication.end())
        await self.gateway.leave()
        return True

    async def _backend_is_removed(self) -> bool:
        if self.state.forced and not self.state.endpoint.is_withdrawn:
            self.publication.abandon("the teardown was forced while routes may have it")
            return True
        await self.carry_out(self.publication.remove())
        published, failure = self.state.endpoint, self.state.endpoint.failure
        if not published.backend_started:
            return True
        if (
            failure.type == NoControlCluster.__name__
            and published.applied is None
            and not self.state.reset
        ):
            return True
        if self.state.forced and failure.type:
            self.publication.abandon(f"the teardown was forced; {failure.type}")
            return True
        self._wait(
            f"its backend remains: {failure.type}: {failure.message}"
            if failure.type
            else "the gateway follows its routes"
        )
        return False

    def _wait(self, what: str) -> None:
        self.context.set_condition("Deleting", FALSE, "InProgress", what)
