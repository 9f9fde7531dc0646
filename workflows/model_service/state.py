"""What a ModelService carries from run to run."""

from datetime import timedelta

from pydantic import Field

from api_types.messages.gateway_work import AppliedRoute, ObservedServiceRoute
from api_types.messages.routing import ServiceEndpoints
from api_types.messages.versions import ObservationVersion
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.entity.state import EntityState

# A gateway that cannot resolve a backend for so long has a problem; for a moment it has one after every change.
UNRESOLVED_AFTER = timedelta(seconds=60)
# How long an answer to the directory waits for the gateway to accept the route. It does so at once, or within a minute after an outage of
# the control cluster, in which it connects ever more rarely. One that never says so must not hold up endpoints for ever.
ACCEPTED_WITHIN = timedelta(minutes=2)
# How long a new service may select nothing without a warning: its deployment may be applied after it, and models take minutes to load.
UNMATCHED_AFTER = timedelta(minutes=5)


class ServiceState(EntityState):
    """The state of a service.

    `report_sequence`, `report_digest`: of the last report to the EndpointDirectory. `selected`: the newest list from there. `applied`: the
    route, None if there is none, and `applied_at` when; `applied_digest`: what it was made from, empty while that is not known;
    `attempted_digest`: of the last attempt. `route_started`: a route may be on the control cluster. `answered`: the version of the last
    list that was answered, and `answered_unapplied` whether that was so while the route could not be applied. `observed_version` orders
    what the watch says. `drift_since`: since when the route differs from what was applied; `drift_repairs`: the repairs that followed one
    another so far, the last one at `drift_repaired_at`. `unresolved_since`: since when the gateway cannot resolve a backend;
    `unmatched_since`: since when a new service selects nothing, empty once it does or a warning was recorded. `middleware_started`: a
    Middleware may be on the control cluster. `middleware_retry_at`: when one that could not be applied is tried again, after so many
    `middleware_attempts`. `timeouts_retry_at`: when timeouts that an apply left out are ordered again, after so many `timeouts_attempts`.
    `gateway_recovers_at`: when the gateway has recovered from the last outage of the control cluster, empty before the first one.
    """

    gateway: FollowedGateway = Field(default_factory=FollowedGateway)
    report_sequence: int = 0
    report_digest: str = ""
    selected: ServiceEndpoints | None = None
    applied: AppliedRoute | None = None
    applied_at: str = ""
    applied_digest: str = ""
    attempted_digest: str = ""
    route_started: bool = False
    answered: int = 0
    answered_unapplied: bool = False
    observed: ObservedServiceRoute | None = None
    observed_version: ObservationVersion = ObservationVersion()
    drift_since: str = ""
    drift_repairs: int = 0
    drift_repaired_at: str = ""
    unresolved_since: str = ""
    unmatched_since: str = ""
    failure: Failure = NO_FAILURE
    retry_at: str = ""
    middleware_started: bool = False
    middleware_retry_at: str = ""
    middleware_attempts: int = 0
    timeouts_retry_at: str = ""
    timeouts_attempts: int = 0
    gateway_recovers_at: str = ""
