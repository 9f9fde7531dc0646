"""ModelService: an HTTPRoute over the endpoints that it selects.

The EndpointDirectory of its namespace reports the selected endpoints, the
InferenceGateway reports whether they can be routed, and the watch of the control
cluster reports the state of the route. The service answers the directory when its route
has exactly the endpoints of a list. Only then is a withdrawn endpoint removed. While an
input is unknown, the route stays as it is.
"""

from datetime import datetime
from typing import Any

from temporalio import workflow

from api_types.digests import report_digest
from api_types.errors import NameConflict
from api_types.messages.gateway_work import (
    ControlObserved,
)
from api_types.messages.routing import (
    GatewayChanged,
    Routed,
    ServiceEndpoints,
    ServiceReport,
)
from api_types.messages.scheduling import Resync
from api_types.messages.signals import (
    EndpointDirectorySignals,
    ModelServiceSignals,
    endpoint_directory,
)
from workflows.entity.conditions import FALSE, TRUE, Verdict, condition_of
from workflows.entity.entity import Entity
from workflows.entity.handles import handles
from workflows.entity.registering.gateway_user import GatewayUser
from workflows.entity.start import read_carried
from workflows.model_service import decisions, verdicts
from workflows.model_service.route import ServiceRoute
from workflows.model_service.state import (
    UNMATCHED_AFTER,
    UNRESOLVED_AFTER,
    ServiceState,
)
from workflows.model_service.status import status_of


@workflow.defn(name="ModelService")
class ModelServiceWorkflow(Entity[ServiceState]):
    """Workflow id modelservice/<namespace>/<name>.

    It ends when the service is deleted and its route is gone.
    """

    kind = "ModelService"

    @workflow.init
    def __init__(self, *arguments: Any) -> None:
        super().__init__(read_carried(arguments, ServiceState) or ServiceState())
        self.gateway = GatewayUser(self.context, self.state.gateway, "ModelService")
        self.route = ServiceRoute(self.context)
        self.directory = endpoint_directory(self.namespace)

    @workflow.run
    async def run(self, *arguments: Any) -> None:
        """Run until the service is deleted and its route is gone."""
        del arguments
        await self.run_until_deleted()

    # Messages

    @handles(ModelServiceSignals.GATEWAY_CHANGED)
    def gateway_changed(self, message: GatewayChanged) -> None:
        """Store the state of the gateway. Record a recovery of the control cluster."""
        before = self.state.gateway.known
        self.gateway.record(message)
        known = self.state.gateway.known
        if (
            before
            and known
            and before.connects
            and known.connected
            and known.connects != before.connects
        ):
            self.route.note_recovery()

    @handles(ModelServiceSignals.ENDPOINTS_CHANGED)
    def endpoints_changed(self, message: ServiceEndpoints) -> None:
        """Store the endpoints that the entries select."""
        known = self.state.selected
        if message.uid != self.state.uid or (known and message.version < known.version):
            return
        self.state.selected = message
        self.context.mark_changed()

    @handles(ModelServiceSignals.CONTROL_OBSERVED)
    def control_observed(self, message: ControlObserved) -> None:
        """Store the route that the watch of the control cluster observed."""
        version, order = self.state.observed_version, message.order
        if message.owner_uid != self.state.uid or message.route is None:
            return
        if not version.accepts(order, self.state.gateway.version.uid):
            return
        self.state.observed_version = version.advanced(order)
        self.state.observed = message.route
        self.context.requeue()

    @handles(ModelServiceSignals.RESYNC)
    def resync(self, message: Resync | None) -> None:
        """Report again to a directory that lost its state."""
        del message
        self.state.report_digest = ""
        self.context.requeue()

    @workflow.query
    def service_report(self) -> dict[str, Any] | None:
        """Return the report of this service to the directory of its namespace."""
        return self.report().wire() if self.state.report_sequence else None

    # Hooks of the entity

    def receivers(self) -> list[str]:
        """Return the directory and the gateway, if they know this service."""
        directory = [self.directory.workflow_id] if self.state.report_digest else []
        return [*directory, *self.gateway.registered_at()]

    def on_receivers_lost(self, workflow_ids: list[str]) -> None:
        """Report again to restarted receivers."""
        if self.directory.workflow_id in workflow_ids:
            self.state.report_digest = ""
        self.gateway.register_again(workflow_ids)

    def on_reset(self) -> None:
        """Record that a route and a Middleware of the tasks that were reset may exist."""
        self.state.route_started = self.state.middleware_started = True

    def on_retry_requested(self) -> None:
        """Apply with the next pass."""
        self.state.retry_at = ""
        if self.state.middleware_retry_at:
            self.state.middleware_attempts = 0
            self.state.middleware_retry_at = self.context.moment().isoformat()
        self.gateway.retry()

    def status(self) -> dict[str, Any]:
        """Return address, route, entries and routed endpoints."""
        return status_of(self.state, self.namespace, self.name)

    def details(self) -> list[str]:
        """Return a table of the entries for the Temporal UI."""
        shown = self.status()
        lines = [
            "| entry | weight | matched | ready | routed |",
            "|---|---|---|---|---|",
        ]
        columns = ("name", "weight", "matched", "ready", "routed")
        for entry in shown["entries"]:
            cells = " | ".join(str(entry[column]) for column in columns)
            lines.append(f"| {cells} |")
        return lines if shown["entries"] else []

    # One pass

    async def reconcile(self) -> bool:
        """Report the selection, update the route, answer, and set conditions."""
        if self.state.deleting:
            return await self.tear_down()
        if self.state.spec is None:
            return False
        await self.gateway.follow()
        await self.report_changes()
        await self.route.bring()
        await self.answer()
        self.conclude()
        return False

    def report(self) -> ServiceReport:
        """Return the report for the directory."""
        return ServiceReport(
            name=self.name,
            uid=self.state.uid,
            sequence=self.state.report_sequence,
            created=self.state.creation_timestamp,
            entries=decisions.selections(self.state),
            routed=decisions.routed_names(self.state),
            version=self.state.selected.version if self.state.selected else 0,
            falls_back=decisions.falls_back(self.state),
        )

    async def report_changes(self) -> None:
        """Report a changed selection to the directory."""
        selections: list[Any] = [
            entry.wire() for entry in decisions.selections(self.state)
        ]
        if decisions.falls_back(self.state):
            selections.append("falls back")
        digest = report_digest(selections)
        if digest == self.state.report_digest:
            return
        self.state.report_digest = digest
        self.state.report_sequence = self.context.next_registration()
        await self.context.signal_recorded(
            self.directory, EndpointDirectorySignals.REPORT_SERVICE, self.report()
        )

    async def answer(self) -> None:
        """Report the routed endpoints, once the route has the directory's newest list.

        The gateway must have accepted the route. If the name of the route is taken, the
        route cannot change, and other objects need not wait for it. If the route
        changes later after all, the same list is answered again. Otherwise endpoints
        that are no longer in it would be held until the next list.
        """
        found = self.state.selected
        if found is None:
            return
        is_answered = found.version == self.state.answered
        if is_answered and not self.state.answered_unapplied:
            return
        wanted = self.route.wanted()
        is_applied = wanted is not None and wanted.digest == self.state.applied_digest
        if (
            not is_applied
            and self.state.route_started
            and (is_answered or not self._name_is_taken())
        ):
            return
        if is_applied and self.route.gateway_is_behind():
            return
        self.state.answered = found.version
        self.state.answered_unapplied = not is_applied and self.state.route_started
        answer = Routed(
            service=self.name,
            uid=self.state.uid,
            version=found.version,
            endpoints=decisions.routed_names(self.state),
        )
        await self.context.signal_recorded(
            self.directory, EndpointDirectorySignals.ROUTED, answer
        )

    def _name_is_taken(self) -> bool:
        """Return whether an object of another owner has the name of the route.

        Then the route has no endpoint that it did not have before.
        """
        return self.state.failure.type == NameConflict.__name__

    # Conditions

    def conclude(self) -> None:
        """Set the conditions from the state, and record events."""
        state, now = self.state, self.context.moment()
        self._follow_resolution(now)
        resolved = verdicts.endpoints_resolved(state)
        lost_at = verdicts.lost_at(state)
        if lost_at and lost_at > now:
            self.context.requeue_at(lost_at)
        routing = verdicts.routing_ready(state, now)
        self._follow_selection(resolved, now)
        known = condition_of(state.conditions, "RoutingReady")
        if (
            routing.status == TRUE
            and routing.message
            and (known is None or known.message != routing.message)
        ):
            self.context.record_event(
                "Warning",
                "EndpointsTruncated",
                f"{routing.message}: an HTTPRoute has at most 16 backends",
            )
        self.context.set_condition("EndpointsResolved", *resolved)
        self.context.set_condition("RoutingReady", *routing)
        self.context.set_condition("Ready", *routing)
        self._conclude_optional("RetriesReady", verdicts.retries_ready(state))
        self._conclude_optional("TimeoutsReady", verdicts.timeouts_ready(state))
        state.observed_generation = state.generation

    def _conclude_optional(self, kind: str, verdict: Verdict | None) -> None:
        """Set a condition for an optional part of the spec, or remove it."""
        before = condition_of(self.state.conditions, kind)
        if verdict is None:
            self.context.remove_condition(kind)
            return
        if verdict.status == FALSE and (
            before is None or before.message != verdict.message
        ):
            self.context.record_event("Warning", verdict.reason, verdict.message)
        self.context.set_condition(kind, *verdict)

    def _follow_selection(self, resolved: Verdict, now: datetime) -> None:
        """Warn of a service that selects nothing.

        The warning comes at once if it selected endpoints before, and after a delay if
        it is new.
        """
        state, before = (
            self.state,
            condition_of(self.state.conditions, "EndpointsResolved"),
        )
        since, state.unmatched_since = state.unmatched_since, ""
        if resolved.reason != verdicts.NO_ENDPOINTS:
            return
        is_new = before is None or before.reason == verdicts.RESOLVING
        if is_new or since:
            since = since or now.isoformat()
            due = datetime.fromisoformat(since) + UNMATCHED_AFTER
            if due > now:
                state.unmatched_since = since
                self.context.requeue_at(due)
                return
        elif before is not None and before.reason == verdicts.NO_ENDPOINTS:
            return
        self.context.record_event("Warning", resolved.reason, resolved.message)

    def _follow_resolution(self, now: datetime) -> None:
        """Record since when the gateway cannot resolve a backend.

        Requeue for the time when this becomes a problem.
        """
        seen = self.state.observed
        if seen is None or not seen.present or seen.resolved or not seen.accepted:
            self.state.unresolved_since = ""
            return
        self.state.unresolved_since = self.state.unresolved_since or now.isoformat()
        due = datetime.fromisoformat(self.state.unresolved_since) + UNRESOLVED_AFTER
        if due > now:
            self.context.requeue_at(due)

    # Teardown

    async def tear_down(self) -> bool:
        """Remove the route, then report to directory and gateway.

        Return True when the service is gone.
        """
        for kind in ("RoutingReady", "Ready"):
            self.context.set_condition(kind, FALSE, "Deleting")
        if not await self.route.remove():
            return False
        if self.state.report_sequence:
            gone = self.report().model_copy(
                update={
                    "sequence": self.context.next_registration(),
                    "entries": [],
                    "routed": [],
                    "gone": True,
                }
            )
            await self.context.signal_recorded(
                self.directory, EndpointDirectorySignals.REPORT_SERVICE, gone
            )
        await self.gateway.leave()
        return True
