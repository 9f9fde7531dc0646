"""The state that a ModelService carries from run to run."""

from datetime import timedelta

from pydantic import Field

from api_types.messages.gateway_work import AppliedRoute, ObservedServiceRoute
from api_types.messages.routing import ServiceEndpoints
from api_types.messages.versions import ObservationVersion
from workflows.entity.failures import NO_FAILURE, Failure
from workflows.entity.registering.gateway_user import FollowedGateway
from workflows.entity.state import EntityState

# A gateway that cannot resolve a backend for this long has a problem. After every
# change it cannot do so for a moment.
UNRESOLVED_AFTER = timedelta(seconds=60)
# How long an answer to the directory waits for the gateway to accept the route. The
# gateway accepts it at once, or within a minute after an outage of the control cluster,
# in which it connects at growing intervals. A gateway that never accepts it must not
# block endpoints indefinitely.
ACCEPTED_WITHIN = timedelta(minutes=2)
# How long a new service may select nothing without a warning. Its deployment may be
# applied after it, and models take minutes to load.
UNMATCHED_AFTER = timedelta(minutes=5)


class ServiceState(EntityState):
    """The state of a service.

    Attributes:
        report_sequence, report_digest: sequence and digest of the last report to the
            EndpointDirectory.
        selected: the newest list from the directory.
        applied: the route; None without one.
        applied_at: the time of its apply.
        applied_digest: the digest of its inputs; empty while unknown.
        attempted_digest: the digest of the last attempt.
        route_started: a route may exist on the control cluster.
        answered: the version of the last answered list.
        answered_unapplied: whether the answer came while the route could not be applied.
        observed_version: orders the observations of the watch.
        drift_since: the time since which the observed and the applied route differ.
        drift_repairs: the number of repairs in a row, the last at `drift_repaired_at`.
        unresolved_since: the time since which the gateway cannot resolve a backend.
        unmatched_since: the time since which a new service selects nothing; empty after a
            match or a warning.
        middleware_started: a Middleware may exist on the control cluster.
        middleware_retry_at: the time of the next attempt to apply the Middleware.
        middleware_attempts: the number of failed attempts.
        gateway_recovers_at: the time at which the gateway has recovered from the last
            outage of the control cluster; empty before the first one.

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
    gateway_recovers_at: str = ""
