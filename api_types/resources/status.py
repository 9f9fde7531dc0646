"""The common parts of all statuses: conditions, events and left-behind objects.

The status of one kind is in its module. Status models are tolerant: a status of a newer
or an older release must still be readable. A condition type appears once per object.
"""

from typing import Literal

from api_types.base import Name, Text
from api_types.resources.parts.base_types import ResourceModel


class Condition(ResourceModel):
    """One condition of an object, as in Kubernetes."""

    type: str
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether the condition is true."""
    reason: str
    """Reason, as one word for programs."""
    message: str = ""
    """Reason, as a sentence for people."""
    last_transition_time: str
    """Last change of `status`: RFC 3339, UTC."""
    observed_generation: int | None = None
    """The generation of the spec that the condition is about."""


class EventRecord(ResourceModel):
    """An event of an object; repeats are counted."""

    type: Literal["Normal", "Warning"] = "Normal"
    """Warning if a person may have to act."""
    reason: Name
    """Event, as one word for programs."""
    message: Text = ""
    """Event, as a sentence for people."""
    count: int = 1
    """Number of occurrences."""
    first: Name = ""
    """The first time: RFC 3339, UTC."""
    last: Name = ""
    """The last time: RFC 3339, UTC."""


class LastScale(ResourceModel):
    """The last request for a replica count."""

    replicas: int
    """The count."""
    by: str = ""
    """The user."""
    at: str = ""
    """Time of the request: RFC 3339, UTC."""
    request_id: str = ""
    """Id of the request."""


class LeftBehind(ResourceModel):
    """An object outside the control plane that a forced teardown did not remove."""

    kind: str
    """Its kind."""
    name: str
    """Its name or cloud id."""
    namespace: str = ""
    """Its namespace, if it has one."""
    location: str = ""
    """The cluster, region or account that contains it."""
    reason: str = ""
    """Reason why it was not removed."""


class ResourceStatus(ResourceModel):
    """The common part of all statuses."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    phase: str | None = None
    """Phase of the object, as one word."""
    conditions: tuple[Condition, ...] = ()
    """One per type."""
    events: tuple[EventRecord, ...] = ()
    """The last events, the oldest first."""
    left_behind: tuple[LeftBehind, ...] | None = None
    """Objects that a forced teardown did not remove."""

    def condition(self, condition_type: str) -> Condition | None:
        """Return the condition of a type, or None."""
        for condition in self.conditions:
            if condition.type == condition_type:
                return condition
        return None


class GatewayAddress(ResourceModel):
    """The address of a gateway."""

    address: str = ""
    """IP address or host name."""


class RoutingStatus(ResourceModel):
    """Routing of requests to a replica or an endpoint."""

    surface: str = ""
    """`pool` or `service`."""
    connector: str = ""
    """Method of the KV cache transfer from prefill to decode."""
    engine_port: int | None = None
    """The port of the decode engine."""
    url: str = ""
    """Published URL."""
    backend_name: str = ""
    """The backend object that routes refer to; set when it is ready for use."""
