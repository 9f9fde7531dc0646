"""How the owner of an endpoint publishes it: its backend on the control cluster, and its place in the EndpointDirectory of the namespace.

Decisions only: orders go out, and what came of them is recorded. The backend is applied before the directory hears of it; for the other way
round the owner withdraws its endpoint, is told when no route has it any more, and only then removes the backend. Otherwise requests would
fail: a gateway answers 500 for the share of a backend that is gone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from api_types import labels, names
from api_types.messages.delivery import SignalRequest
from api_types.messages.gateway_work import AppliedBackend, ApplyBackend, ControlObserved, RemoveBackend
from api_types.messages.routing import Endpoint, EndpointOwner, EndpointReport, EndpointWithdrawn
from api_types.messages.signals import EndpointDirectorySignals, endpoint_directory
from api_types.messages.versions import ObservationOrder, ObservationVersion
from api_types.resources.status import LeftBehind
from workflows.entity import backoff
from workflows.entity.context import EntityContext
from workflows.entity.failures import NO_FAILURE, Failure, backoff_after
from workflows.entity.state import EntityState

# A gateway follows its routes within two seconds; until then it may send requests to a backend that no route has any more.
GATEWAY_DELAY = timedelta(seconds=5)
# After an outage of the control cluster a gateway watches each kind of object again when its own wait is over, a minute at most. One that
# has seen the route and not yet the Service answers 500 for the share of a new backend.
GATEWAY_RECOVERS = timedelta(seconds=60)
# Histories of before know no such wait.
RECOVERY_PATCH = "publish-after-recovery"
# In histories of before only a published endpoint was reported to a directory that was started anew.
WITHDRAWN_AGAIN_PATCH = "withdraw-again"
# In histories of before each repair of what others changed waited longer than the last one, however long ago that was.
REPAIRS_PATCH = "forget-old-repairs"
# In histories of before a repair was also counted while the next attempt at it had to wait. Once none could wait longer than the last one
# no workflow task ended, so there it needs no patch.
ATTEMPTS_PATCH = "count-attempted-repairs"


class PublishedEndpoint(BaseModel):
    """What an owner carries of its endpoint.

    `sequence` is that of the last report, `reported` the endpoint in it, None if it withdrew it. `withdrawn`: the sequence of the last
    report that was answered, `withdrawn_at` when. `repeat`: the last report is sent again, numbered anew. `backend_started`: a backend may
    be on the control cluster. `applied_from`: what it was made from. `publish_at`: when a gateway that may have lost its watch knows the
    backend; empty if it does. `observed` is the digest that the watch saw, `observed_version` orders these.
    `drift_since`: since when it differs from what was applied; `drift_repairs`: the repairs that followed one another so far, the last one
    at `drift_repaired_at`.
    """

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    sequence: int = 0
    reported: Endpoint | None = None
    withdrawn: int = 0
    withdrawn_at: str = ""
    repeat: bool = False
    backend_started: bool = False
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
        """Whether no route has the endpoint, be it withdrawn or without a backend for now."""
        return self.sequence == 0 or (not (self.reported and self.reported.backend) and self.withdrawn >= self.sequence)

    @property
    def is_withdrawn(self) -> bool:
        """Whether no service selects the endpoint, and no route has it."""
        return self.reported is None and self.is_out_of_routes


@dataclass(frozen=True)
class WantedEndpoint:
    """The endpoint that is to be published. `made_from`: what its backend depends on besides the URL."""

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
        self, context: EntityContext[EntityState], state: PublishedEndpoint, owner: EndpointOwner, patched: Callable[[str], bool]
    ) -> None:
        self._patched = patched
        self._context = context
        self._state = state
        self._owner: EndpointOwner = owner
        self._directory = endpoint_directory(context.namespace)

    # --- orders ---------------------------------------------------------------------------------------------------------------------

    def publish(self, wanted: WantedEndpoint, *, may_apply: bool) -> list[EndpointOrder]:
        """Order the next thing that brings an endpoint to its services; none if that is done, or has to wait."""
        state, made_from = self._state, f"{wanted.url} {wanted.made_from}"
        if may_apply and self._is_due(made_from):
            state.backend_started = True
            request = ApplyBackend(**self._identity(), url=wanted.url)
            return [ApplyBackendOrder(request, made_from)]
        if state.applied_from != made_from and state.applied is not None and state.reported is not None:
            # What is published is that of another URL, and its backend too: it stays until the new one is applied.
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
        return [] if endpoint == state.reported and not state.repeat else [self._report(endpoint)]

    def suspend(self) -> list[EndpointOrder]:
        """Order that no request is sent to an endpoint that was published, and that services select it all the same: it will be back.

        If it is their only one, their route stays and the gateway answers 503, which clients try again, and not 404.
        """
        reported = self._state.reported
        if reported is None or not (reported.backend or self._is_asked_again()):
            return []
        return [self._report(reported.model_copy(update={"backend": ""}))]

    def withdraw(self) -> list[EndpointOrder]:
        """Order that no service routes the endpoint any more."""
        return [self._report(None)] if self._state.reported is not None or self._is_asked_again() else []

    def withdraw_unknown(self) -> list[EndpointOrder]:
        """Order the same of an endpoint that an earlier run of this owner may have published."""
        return [self._report(None)]

    def remove(self) -> list[EndpointOrder]:
        """Order the removal of the backend, once no route has it and the gateway knows that; none if there is none, or it has to wait."""
        state = self._state
        if not (state.backend_started and self.may_be_removed) or self._waits():
            return []
        return [RemoveBackendOrder(RemoveBackend(**self._identity()))]

    def end(self) -> list[EndpointOrder]:
        """Order the last report: the owner is gone."""
        return [self._report(None, gone=True)] if self._state.sequence else []

    @property
    def may_be_removed(self) -> bool:
        """Whether no route has the backend, also in the gateway; otherwise the next pass is when that may be so."""
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
        """Give the last report, for a directory that lost its state."""
        return self._message(self._state.reported) if self._state.sequence else None

    # --- results --------------------------------------------------------------------------------------------------------------------

    def applied(self, order: ApplyBackendOrder, result: AppliedBackend) -> None:
        """Record that the backend was applied."""
        if self._state.failure.is_unreachable and self._patched(RECOVERY_PATCH):
            self._state.publish_at = (self._context.moment() + GATEWAY_RECOVERS).isoformat()
        self._state.applied, self._state.applied_from, self._state.drift_since = result, order.made_from, ""
        self._succeeded()

    def removed(self) -> None:
        """Record that the backend is gone."""
        self._state.applied, self._state.applied_from, self._state.backend_started = None, "", False
        self._state.observed = None
        self._succeeded()

    def failed(self, failure: Failure) -> None:
        """Record why an order failed, and when the next attempt is made."""
        state = self._state
        if failure != state.failure:
            self._context.record_event("Warning", failure.type, failure.message)
        pause = backoff_after(failure, state.attempts)
        state.failure, state.attempts = failure, state.attempts + 1
        state.retry_at = (self._context.moment() + pause).isoformat()
        self._context.requeue_after(pause)

    def abandon(self, why: str) -> None:
        """Leave the backend on the control cluster, and list its Service and its slices.

        The slices are listed by their label: their names depend on the types of addresses that the endpoint had.
        """
        namespace, name = self._context.namespace, names.endpoint_service_name(self._context.namespace, self._context.name)
        service = LeftBehind(kind="Service", namespace=namespace, name=name, location="control cluster", reason=why)
        slices = service.model_copy(update={"kind": "label", "name": f"{labels.SERVICE_NAME}={name}"})
        self._context.state.add_left_behind([service, slices])
        self._context.record_event("Warning", "LeftBehind", f"Service {namespace}/{name} and its EndpointSlice may remain: {why}")
        self._state.backend_started = False

    def retry(self) -> None:
        """Make the next attempt with the next pass."""
        self._state.retry_at, self._state.attempts = "", 0

    # --- messages -------------------------------------------------------------------------------------------------------------------

    def record_withdrawn(self, message: EndpointWithdrawn) -> bool:
        """Record that no route has the endpoint any more; False if that is about another report or another owner."""
        state = self._state
        is_routed = state.reported is not None and bool(state.reported.backend)
        if message.uid != self._context.state.uid or message.sequence != state.sequence or is_routed:
            return False
        if state.withdrawn < message.sequence:
            state.withdrawn = message.sequence
            state.withdrawn_at = self._context.moment().isoformat()
        return True

    def record_observed(self, message: ControlObserved, gateway: str = "") -> bool:
        """Record the observed backend. Returns False for an old observation, and for the backend of another owner.

        `gateway` is the uid of the present InferenceGateway, where the owner knows it.
        """
        order = ObservationOrder(cluster="control", cluster_uid=message.gateway_uid, run=message.run, sequence=message.sequence)
        if message.owner_uid != self._context.state.uid or message.backend is None:
            return False
        if not self._state.observed_version.accepts(order, gateway):
            return False
        self._state.observed_version = self._state.observed_version.advanced(order)
        self._state.observed = message.backend.digest
        return True

    def report_again(self) -> None:
        """Report with the next pass, to a directory that was started anew: also what the one before did not answer."""
        self._state.repeat = True

    def receivers(self) -> list[str]:
        """Name the directory, if it knows of this endpoint."""
        return [self._directory.workflow_id] if self._state.sequence else []

    # --- parts ----------------------------------------------------------------------------------------------------------------------

    def _is_asked_again(self) -> bool:
        """Tell whether a withdrawal that was not answered is reported again; one that was answered stays so."""
        return self._state.repeat and not self._state.is_out_of_routes and self._patched(WITHDRAWN_AGAIN_PATCH)

    def _is_due(self, made_from: str) -> bool:
        state = self._state
        if state.applied_from == made_from and not self._drift_is_due():
            return False
        return not self._waits()

    def _backend_to_route(self, made_from: str) -> str:
        """Give the backend that routes may have; empty while there is none, or the gateway may not know it. What is routed it knows."""
        state = self._state
        backend = state.applied.backend if state.applied and state.applied_from == made_from else ""
        is_routed = state.reported is not None and state.reported.backend == backend
        return backend if is_routed or self._gateway_has_recovered() else ""

    def _gateway_has_recovered(self) -> bool:
        """Tell whether the gateway knows the backend, as far as that is known; otherwise the next pass is when it does."""
        if not self._state.publish_at:
            return True
        if self._context.is_future(self._state.publish_at):
            self._context.requeue_at(datetime.fromisoformat(self._state.publish_at))
            return False
        self._state.publish_at = ""
        return True

    def _waits(self) -> bool:
        if not self._state.retry_at or not self._context.is_future(self._state.retry_at):
            return False
        self._context.requeue_at(datetime.fromisoformat(self._state.retry_at))
        return True

    def _drift_is_due(self) -> bool:
        """Tell whether the backend differs from what was applied for so long that it is applied again."""
        state = self._state
        if state.applied is None or state.observed is None or state.observed == state.applied.digest:
            state.drift_since = ""
            return False
        now = self._context.moment()
        if not state.drift_since:
            state.drift_since = now.isoformat()
            if self._patched(REPAIRS_PATCH):
                state.drift_repairs = backoff.recent_repairs(state.drift_repairs, state.drift_repaired_at, now)
        due = datetime.fromisoformat(state.drift_since) + backoff.repair(state.drift_repairs)
        if due > now:
            self._context.requeue_at(due)
            return False
        # Each event is followed by a pass: with one in every pass that is to wait, the passes of a workflow task would never end.
        if self._waits() and (backoff.is_longest_repair(state.drift_repairs) or self._patched(ATTEMPTS_PATCH)):
            return True
        state.drift_repairs, state.drift_repaired_at = min(state.drift_repairs + 1, 16), now.isoformat()
        self._context.record_event("Warning", "DriftDetected", "the backend of the endpoint was changed or deleted by others")
        return True

    def _succeeded(self) -> None:
        self._state.failure, self._state.retry_at, self._state.attempts = NO_FAILURE, "", 0
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
        return ReportOrder(EndpointDirectorySignals.REPORT_ENDPOINT.request(self._directory, message))

    def _message(self, endpoint: Endpoint | None) -> EndpointReport:
        return EndpointReport(
            owner=self._owner, name=self._context.name, uid=self._context.state.uid, sequence=self._state.sequence, endpoint=endpoint
        )
