"""What the statuses of all kinds have in common: conditions, events, what a forced teardown did not remove.

The status of one kind is in its module. Status models are tolerant: a status written by a newer or an older release must still be
readable. A condition type appears once per object.
"""

from typing import Literal

from api_types.resources.parts.base_types import ResourceModel


class Condition(ResourceModel):
    """One condition of an object, as in Kubernetes."""

    type: str
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """Whether it is true."""
    reason: str
    """Why, as one word for programs."""
    message: str = ""
    """Why, as a sentence for people."""
    last_transition_time: str
    """When `status` last changed: RFC 3339, UTC."""
    observed_generation: int | None = None
    """The generation of the spec that it is about."""


class EventRecord(ResourceModel):
    """An event of an object; repeats are counted."""

    type: Literal["Normal", "Warning"] = "Normal"
    """Warning if a person may have to act."""
    reason: str
    """What happened, as one word for programs."""
    message: str = ""
    """What happened, as a sentence for people."""
    count: int = 1
    """How often it happened."""
    first: str = ""
    """The first time: RFC 3339, UTC."""
    last: str = ""
    """The last time: RFC 3339, UTC."""


class LastScale(ResourceModel):
    """The last request for a replica count."""

    replicas: int
    """The count."""
    by: str = ""
    """Who requested it."""
    at: str = ""
    """When: RFC 3339, UTC."""
    request_id: str = ""
    """Id of the request."""


class LeftBehind(ResourceModel):
    """An object outside the control plane that a forced teardown did not remove."""

    kind: str
    """What it is."""
    name: str
    """Its name or cloud id."""
    namespace: str = ""
    """Its namespace, if it has one."""
    location: str = ""
    """The cluster, region or account that holds it."""
    reason: str = ""
    """Why it was not removed."""


class ResourceStatus(ResourceModel):
    """What every kind reports."""

    observed_generation: int = 0
    """The generation of the spec that this status is about."""
    phase: str | None = None
    """How far the object is, in one word."""
    conditions: tuple[Condition, ...] = ()
    """One per type."""
    events: tuple[EventRecord, ...] = ()
    """The last events, the oldest first."""
    left_behind: tuple[LeftBehind, ...] | None = None
    """Objects that a forced teardown did not remove."""

    def condition(self, condition_type: str) -> Condition | None:
        """Give the condition of that type, or None if there is none yet."""
        return next((condition for condition in self.conditions if condition.type == condition_type), None)


class GatewayAddress(ResourceModel):
    """Where a gateway can be reached."""

    address: str = ""
    """IP address or host name."""


class RoutingStatus(ResourceModel):
    """How requests reach a replica or an endpoint."""

    surface: str = ""
    """`pool` or `service`."""
    connector: str = ""
    """How the KV cache is transferred from prefill to decode."""
    engine_port: int | None = None
    """The port on which the decode engine listens."""
    url: str = ""
    """Where it is published."""
    backend_name: str = ""
    """The backend object that routes refer to; set once it can be used."""
