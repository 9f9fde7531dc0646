"""How the owner of an endpoint publishes its backend and its routes.

The backend is on the control cluster. The EndpointDirectory of the namespace reports
the endpoint to its services. This module only decides: it returns orders and records
their results.

The owner applies the backend before it reports to the directory. To remove an endpoint,
the owner first withdraws it, waits until no route has it, and then removes the backend.
In another order requests would fail: a gateway answers 500 for the share of a missing
backend.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from api_types import labels, names
from api_types.messages.delivery import SignalRequest
from api_types.messages.gateway_work import (
    AppliedBackend,
    ApplyBackend,
    ControlObserved,
    RemoveBackend,
)
from api_types.messages.routing import (
    Endpoint,
    EndpointOwner,
    EndpointReport,
    EndpointWithdrawn,
)
from api_types.messages.signals import EndpointDirectorySignals, endpoint_directory
from api_types.messages.versions import ObservationVersion
from api_types.resources.status import LeftBehind
from workflows.entity import drift
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.entity.state import EntityState

# A gateway follows its routes within two seconds. Until then it may send requests to a
# backend that is no longer in any route.
GATEWAY_DELAY = timedelta(seconds=5)
# After an outage of the control cluster, a gateway watches each kind of object again
# after its own wait, a minute at most. A gateway that has seen the route but not yet
# the Service answers 500 for the share of a new backend.
GATEWAY_RECOVERS = timedelta(seconds=60)


class PublishedEndpoint(BaseModel):
    """The state of an endpoint in its owner.

    Attributes:
        sequence: the number of the last report.
        reported: the endpoint in the last report; None if it withdrew the endpoint.
        withdrawn: the number of the last answered report.
        withdrawn_at: the time of that answer.
        repeat: the last report is sent again under a new number.
        backend_started: the backend may exist on the control cluster.
        has_unknown: reports and a backend that the owner does not know may exist, under
            another uid: an operator reset the owner, or terminated an earlier owner of
            this name.
        applied_from: the input of the applied backend.
        publish_at: the time when a gateway that may have lost its watch knows the
            backend; empty if the gateway knows it.
        observed: the digest that the watch saw, in the order of `observed_version`.
        drift_since: the time since which the observed and the applied backend differ.
        drift_repairs: the number of repairs in a row, the last at `drift_repaired_at`.

    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        extra="ignore",
    )

    sequence: int = 0
    reported: Endpoint | None = None
    withdrawn: int = 0
    withdrawn_at: str = ""
    repeat: bool = False
    backend_started: bool = False
    has_unknown: bool = False
    applied: AppliedBackend | None = None
    applied_from: str = ""
    publish_at: str = ""
    observed: str | None = None
    observed_version: ObservationVersion = ObservationVersion()
    drift_since: str = ""
    drift_repairs: int = 0
    drift_repaired_at: str = ""
    failure: Failure = NO_FAILURE
    retry_at: str = ""
    attempts: int = 0

    @property
    def is_out_of_routes(self) -> bool:
        """Return whether no route has the endpoint.

        It is withdrawn, or has no backend for now.
        """
        return self.sequence == 0 or (
            not (self.reported and self.reported.backend)
            and self.withdrawn >= self.sequence
        )

    @property
    def is_withdrawn(self) -> bool:
        """Return whether no service selects the endpoint, and no route has it."""
        return self.reported is None and self.is_out_of_routes


@dataclass(frozen=True)
class WantedEndpoint:
    """The endpoint to publish. `made_from` is the input of its backend besides the URL."""

    url: str
    labels: Mapping[str, str]
    rewrite_path: str | None = None
    cluster: str = ""
    made_from: str = ""


@dataclass(frozen=True)
class ApplyBackendOrder:
    """Apply the backend."""

    request: ApplyBackend
    made_from: str


@dataclass(frozen=True)
class RemoveBackendOrder:
    """Delete the backend."""

    request: RemoveBackend


@dataclass(frozen=True)
class ReportOrder:
    """Report to the directory, when the decision is in the history."""

    signal: SignalRequest


EndpointOrder = ApplyBackendOrder | RemoveBackendOrder | ReportOrder


class EndpointPublication:
    """Publishes one endpoint, which has the name of its owner."""

    def __init__(
        self,
        context: EntityContext[EntityState],
        state: PublishedEndpoint,
        owner: EndpointOwner,
    ) -> None:
        self._context = context
        self._state = state
        self._owner: EndpointOwner = owner
        self._directory = endpoint_directory(context.namespace)

    # Orders

    def publish(
        self, wanted: WantedEndpoint, *, may_apply: bool
    ) -> list[EndpointOrder]:
        """Return the next order that brings an endpoint to its services.

        Return none if the endpoint is published, or has to wait.
        """
        state, made_from = self._state, f"{wanted.url} {wanted.made_from}"
        if may_apply and self._is_due(made_from):
            state.backend_started = True
            request = ApplyBackend(**self._identity(), url=wanted.url)
            return [ApplyBackendOrder(request, made_from)]
        if (
            state.applied_from != made_from
            and state.applied is not None
            and state.reported is not None
        ):
            # The published endpoint and its backend have another URL. They stay until
            # the new backend is applied.
            return []
        endpoint = Endpoint(
            name=self._context.name,
            uid=self._context.state.uid,
            cluster=wanted.cluster,
            labels=dict(wanted.labels),
            url=wanted.url,
            rewrite_path=wanted.rewrite_path,
            backend=self._backend_to_route(made_from),
        )
        return (
            []
            if endpoint == state.reported and not state.repeat
            else [self._report(endpoint)]
        )

    def suspend(self) -> list[EndpointOrder]:
        """Order that an endpoint receives no requests but stays selected by services.

        The endpoint will return. If it is the only endpoint of a service, the route
        stays and the gateway answers 503, which clients retry, instead of 404.
        """
        reported = self._state.reported
        if reported is None or not (reported.backend or self._is_asked_again()):
            return []
        return [self._report(reported.model_copy(update={"backend": ""}))]

    def withdraw(self) -> list[EndpointOrder]:
        """Order that no service routes the endpoint any more."""
        state = self._state
        is_unknown = state.has_unknown and state.sequence == 0
        return (
            [self._report(None)]
            if state.reported is not None or is_unknown or self._is_asked_again()
            else []
        )

    def note_unknown(self) -> None:
        """Record that reports and a backend may exist that the owner does not know."""
        self._state.has_unknown = self._state.backend_started = True

    def withdraw_unknown(self) -> list[EndpointOrder]:
        """Order the withdrawal of an endpoint that an earlier run may have published."""
        return [self._report(None)]

    def remove(self) -> list[EndpointOrder]:
        """Order the removal of the backend after the gateway has dropped its routes.

        Return none if there is no backend, or the removal has to wait.
        """
        state = self._state
        if not (state.backend_started and self.may_be_removed) or self._waits():
            return []
        order = RemoveBackend(**self._identity(), of_predecessors=state.has_unknown)
        return [RemoveBackendOrder(order)]

    def end(self) -> list[EndpointOrder]:
        """Order the last report: the owner is gone."""
        return [self._report(None, gone=True)] if self._state.sequence else []

    @property
    def may_be_removed(self) -> bool:
        """Return whether no route has the backend, not even in the gateway.

        Otherwise requeue for the time when this becomes true.
        """
        state = self._state
        if not state.is_withdrawn:
            return False
        if not state.withdrawn_at:
            return True
        due = datetime.fromisoformat(state.withdrawn_at) + GATEWAY_DELAY
        if due > self._context.moment():
            self._context.requeue_at(due)
            return False
        return True

    def report(self) -> EndpointReport | None:
        """Return the last report, for a directory that lost its state."""
        return self._message(self._state.reported) if self._state.sequence else None

    # Results

    def applied(self, order: ApplyBackendOrder, result: AppliedBackend) -> None:
        if self._state.failure.is_unreachable:
            self._state.publish_at = (
                self._context.moment() + GATEWAY_RECOVERS
            ).isoformat()
        self._state.applied, self._state.applied_from, self._state.drift_since = (
            result,
            order.made_from,
            "",
        )
        self._succeeded()

    def removed(self) -> None:
        self._state.applied, self._state.applied_from, self._state.backend_started = (
            None,
            "",
            False,
        )
        self._state.observed = None
        self._succeeded()

    def failed(self, failure: Failure) -> None:
        """Record why an order failed, and schedule the next attempt."""
        state = self._state
        if failure != state.failure:
            self._context.record_event("Warning", failure.type, failure.message)
        pause = backoff_after(failure, state.attempts)
        state.failure, state.attempts = failure, state.attempts + 1
        state.retry_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)

    def abandon(self, why: str) -> None:
        """Leave the backend on the control cluster, and list its objects.

        These are a Service and its EndpointSlices. The slices are listed by their
        label, because their names depend on the address types of the endpoint.
        """
        namespace, name = (
            self._context.namespace,
            names.endpoint_service_name(self._context.namespace, self._context.name),
        )
        service = LeftBehind(
            kind="Service",
            namespace=namespace,
            name=name,
            location="control cluster",
            reason=why,
        )
        slices = service.model_copy(
            update={"kind": "label", "name": f"{labels.SERVICE_NAME}={name}"}
        )
        self._context.state.add_left_behind([service, slices])
        self._context.record_event(
            "Warning",
            "LeftBehind",
            f"Service {namespace}/{name} and its EndpointSlice may remain: {why}",
        )
        self._state.backend_started = False

    def retry(self) -> None:
        """Make the next attempt with the next pass."""
        self._state.retry_at, self._state.attempts = "", 0

    # Messages

    def record_withdrawn(self, message: EndpointWithdrawn) -> bool:
        """Record that no route has the endpoint any more.

        Return False for a message about another report or owner.
        """
        state = self._state
        is_routed = state.reported is not None and bool(state.reported.backend)
        if (
            message.uid != self._context.state.uid
            or message.sequence != state.sequence
            or is_routed
        ):
            return False
        if state.withdrawn < message.sequence:
            state.withdrawn = message.sequence
            state.withdrawn_at = self._context.moment().isoformat()
        return True

    def record_observed(self, message: ControlObserved, gateway: str = "") -> bool:
        """Record the observed backend.

        Return False for an old observation, and for the backend of another owner.
        `gateway` is the uid of the present InferenceGateway, if the owner knows it.
        """
        version, order = self._state.observed_version, message.order
        if message.owner_uid != self._context.state.uid or message.backend is None:
            return False
        if not version.accepts(order, gateway):
            return False
        self._state.observed_version = version.advanced(order)
        self._state.observed = message.backend.digest
        return True

    def report_again(self) -> None:
        """Repeat the last report in the next pass, for a restarted directory.

        The previous directory may not have answered it.
        """
        self._state.repeat = True

    def receivers(self) -> list[str]:
        """Return the workflow id of the directory, if it knows this endpoint."""
        return [self._directory.workflow_id] if self._state.sequence else []

    # Helpers

    def _is_asked_again(self) -> bool:
        """Return whether an unanswered withdrawal is to be reported again."""
        return self._state.repeat and not self._state.is_out_of_routes

    def _is_due(self, made_from: str) -> bool:
        state = self._state
        if state.applied_from == made_from and not self._drift_is_due():
            return False
        return not self._waits()

    def _backend_to_route(self, made_from: str) -> str:
        """Return the backend for routes.

        It is empty if there is none or the gateway does not know it yet. The gateway
        knows a backend that is routed already.
        """
        state = self._state
        backend = (
            state.applied.backend
            if state.applied and state.applied_from == made_from
            else ""
        )
        is_routed = state.reported is not None and state.reported.backend == backend
        return backend if is_routed or self._gateway_has_recovered() else ""

    def _gateway_has_recovered(self) -> bool:
        """Return whether the gateway should know the backend by now.

        Otherwise requeue for the time when it should.
        """
        if self._context.waits_until(self._state.publish_at):
            return False
        self._state.publish_at = ""
        return True

    def _waits(self) -> bool:
        return self._context.waits_until(self._state.retry_at)

    def _drift_is_due(self) -> bool:
        state = self._state
        has_drifted = (
            state.applied is not None
            and state.observed is not None
            and state.observed != state.applied.digest
        )
        if not drift.has_lasted(self._context, state, has_drifted=has_drifted):
            return False
        if not self._waits():
            drift.count_repair(self._context, state)
            self._context.record_event(
                "Warning",
                "DriftDetected",
                "another client changed or deleted the backend of the endpoint",
            )
        return True

    def _succeeded(self) -> None:
        self._state.failure, self._state.retry_at, self._state.attempts = (
            NO_FAILURE,
            "",
            0,
        )
        self._context.mark_changed()

    def _identity(self) -> dict[str, str]:
        return {
            "owner": self._owner,
            "namespace": self._context.namespace,
            "name": self._context.name,
            "uid": self._context.state.uid,
        }

    def _report(self, endpoint: Endpoint | None, *, gone: bool = False) -> ReportOrder:
        state = self._state
        state.sequence = self._context.next_number(state.sequence)
        state.reported, state.repeat = endpoint, False
        message = self._message(endpoint).model_copy(update={"gone": gone})
        return ReportOrder(
            EndpointDirectorySignals.REPORT_ENDPOINT.request(self._directory, message)
        )

    def _message(self, endpoint: Endpoint | None) -> EndpointReport:
        return EndpointReport(
            owner=self._owner,
            name=self._context.name,
            uid=self._context.state.uid,
            sequence=self._state.sequence,
            endpoint=endpoint,
        )
